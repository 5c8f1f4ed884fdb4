"""The man in the middle: it relays everything, captures everything, and flips one bit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from srdma.inspect.tap import LEFT, RIGHT, Flip, Tap
from srdma.native import tap as _tap


class Middle:
    """A tap with a wire port at each side, all in this process."""

    def __init__(self, folder: Path) -> None:
        left, right = folder / "l", folder / "r"
        left.mkdir()
        right.mkdir()
        self.a, self.b = _tap.ShmWire(left, "nica"), _tap.ShmWire(right, "nicb")
        self.tap = Tap((left, right), ("nica", "nicb"))
        self.to_b = self.a.connect("nicb")
        self.to_a = 0
        self.got: dict[str, list[bytes]] = {"a": [], "b": []}
        self.down: list[str] = []
        self.turn(400)

    def turn(self, times: int = 50) -> None:
        for _ in range(times):
            self.tap.step()
            for name, wire in (("a", self.a), ("b", self.b)):
                for kind, conn, data in wire.poll():
                    if kind == _tap.ACCEPT:
                        self.to_a = conn
                    elif kind == _tap.RECV and data is not None:
                        self.got[name].append(data)
                    elif kind == _tap.DOWN:
                        self.down.append(name)

    def close(self) -> None:
        for port in (self.tap, self.a, self.b):
            port.close() if isinstance(port, Tap) else port.close_all()


@pytest.fixture
def middle(tmp_path: Path) -> Iterator[Middle]:
    one = Middle(tmp_path)
    yield one
    one.close()
    assert not list(tmp_path.glob("*/*"))  # all sockets were removed


def test_everything_passes_and_is_captured(middle: Middle) -> None:
    forth = [os.urandom(size) for size in (1, 100, _tap.MAX_PACKET, 4095) * 20]
    back = [os.urandom(32) for _ in range(300)]
    for packets, wire, conn in ((forth, middle.a, middle.to_b), (back, middle.b, middle.to_a)):
        for packet in packets:
            for _ in range(1000):
                if wire.send(conn, packet):
                    break
                wire.flush()
                middle.turn(1)
        wire.flush()
    middle.turn(500)
    assert middle.got == {"b": forth, "a": back}
    captured = middle.tap.capture()
    assert captured["lost"] == 0
    assert [data for side, data, _ in captured["packets"] if side == LEFT] == forth
    assert [data for side, data, _ in captured["packets"] if side == RIGHT] == back
    assert middle.tap.capture()["packets"] == []


def test_one_bit_of_one_packet(middle: Middle) -> None:
    middle.tap.flip = Flip(LEFT, at_least=10, at=-1)
    for packet in (b"short", bytes(20), bytes(20)):
        assert middle.a.send(middle.to_b, packet)
    middle.a.flush()
    middle.turn()
    assert middle.got["b"] == [b"short", bytes(19) + b"\x01", bytes(20)]
    assert [flipped for _, _, flipped in middle.tap.capture()["packets"]] == [False, True, False]


def test_end_of_one_connection_ends_the_other(middle: Middle) -> None:
    middle.a.send(middle.to_b, b"last")
    middle.a.flush()
    middle.a.close(middle.to_b)
    middle.turn(300)
    assert middle.got["b"] == [b"last"] and middle.down == ["b"]


def test_capture_is_bounded(middle: Middle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srdma.inspect.tap.CAPTURE_MAX", 10)
    for _ in range(3):
        middle.a.send(middle.to_b, b"123456")
    middle.a.flush()
    middle.turn()
    captured = middle.tap.capture()
    assert len(captured["packets"]) == 1 and captured["lost"] == 2
    assert len(middle.got["b"]) == 3


def test_wire_refuses(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory does not exist"):
        _tap.ShmWire(tmp_path / "none", "x")
    wire = _tap.ShmWire(tmp_path, "x")
    with pytest.raises(OSError, match="a worker of this name is running"):
        _tap.ShmWire(tmp_path, "x")
    with pytest.raises(ValueError, match="no such connection"):
        wire.send(7, b"x")
    conn = wire.connect("x")
    for bad in (b"", bytes(_tap.MAX_PACKET + 1)):
        with pytest.raises(ValueError, match="1 to "):
            wire.send(conn, bad)
    wire.close_all()
    wire.close_all()
    with pytest.raises(ValueError, match="closed"):
        wire.poll()


def test_usage() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "srdma.inspect.tap"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == "python -m srdma.inspect.tap LEFT_DIR RIGHT_DIR LEFT_NAME RIGHT_NAME\n"
