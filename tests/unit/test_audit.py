"""The audit lines of a system agent (agent.md 6), also if no process reads its stderr."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srdma.agent import audit
from srdma.agent.audit import AUDIT_RATE, WAITING_BYTES, WAITING_LINES, AuditLog, Lines
from tests.keyex_players import PATIENCE, Wire, until

POLICY = """
worker = "{folder}/w.ctl"
socket = "{folder}/agent.sock"
[[identity]]
name = "host-a"
path = "{identities}/a"
"""


def test_audit_lines_are_limited(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, now = AuditLog(), [100.0]
    monkeypatch.setattr("srdma.agent.audit.time.time", lambda: now[0])
    for n in range(AUDIT_RATE + 5):
        log("refused", number=n)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["number"] for line in lines] == [*range(AUDIT_RATE)]
    assert lines[0] == {"time": 100.0, "event": "refused", "number": 0}
    now[0] = 101.0
    log("started")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line.get("lines")) for line in lines] == [
        ("dropped", 5),
        ("started", None),
    ]


def test_many_lines_of_an_event_displace_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers can make as many lines `refused` as they want."""
    log = AuditLog()
    monkeypatch.setattr("srdma.agent.audit.time.time", lambda: 100.0)
    for _ in range(3 * AUDIT_RATE):
        log("refused")
    log("failed", code="policy")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == [*["refused"] * AUDIT_RATE, "failed"]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a busy machine."""
    monkeypatch.setattr(audit, "FLUSH", PATIENCE)


class Pipe:
    """A pipe that is full and that no process reads, until read()."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self.filling = 0
        os.set_blocking(self.write_end, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.filling += os.write(self.write_end, bytes(4096))
        os.set_blocking(self.write_end, True)

    def lines(self, n: int) -> list[str]:
        """The first n lines behind the filling, if no others are there."""
        got = b""
        while got[self.filling :].count(b"\n") < n:
            got += os.read(self.read_end, 1 << 16)
        behind, self.filling = got[self.filling :], 0
        return behind.decode().splitlines()

    def read(self) -> list[str]:
        """The lines behind the filling, until all writers have closed."""
        os.close(self.write_end)
        with open(self.read_end, "rb", closefd=False) as file:
            return file.read()[self.filling :].decode().splitlines()

    def close(self) -> None:
        os.close(self.read_end)
        with contextlib.suppress(OSError):
            os.close(self.write_end)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def until_waiting(lines: Lines) -> None:
    """The thread of the lines has taken one, which it cannot write."""
    until(lambda: not lines._waiting)


@pytest.mark.parametrize(("size", "room"), [(8, WAITING_LINES), (1 << 16, 16)])
def test_lines_that_nobody_reads(pipe: Pipe, size: int, room: int) -> None:
    """A bounded number waits. The reader gets them all, and the number of those that were lost."""
    assert room * size <= WAITING_BYTES
    lines = Lines(os.dup(pipe.write_end))
    lines.write("first\n")
    until_waiting(lines)
    for n in range(room + 7):
        lines.write(f"{n:0{size - 1}}\n")
    assert len(lines._waiting) == room
    closing = threading.Thread(target=lines.close)
    closing.start()
    threading.Thread(target=lambda: (closing.join(), os.close(lines._fd))).start()
    first, *others, last = pipe.read()
    assert first == "first" and others == [f"{n:0{size - 1}}" for n in range(room)]
    told = json.loads(last)
    assert (told["event"], told["lines"]) == ("dropped", 7)


def test_lines_after_lost_ones(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are behind the number of those that were lost."""
    monkeypatch.setattr(audit, "WAITING_LINES", 2)
    lines = Lines(os.dup(pipe.write_end))
    lines.write("1\n")
    until_waiting(lines)
    lines.write("2\n3\n4\n5\n")
    *found, number = pipe.lines(4)
    assert found == ["1", "2", "3"] and json.loads(number)["lines"] == 2
    lines.write("6\nbegun, ")
    lines.write("no end")
    lines.close()
    os.close(lines._fd)
    assert pipe.read() == ["6", "begun, no end"]


def test_end_with_lines_that_nobody_reads(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FLUSH", 0.1)
    lines = Lines(pipe.write_end)
    lines.write("1\n2\n")
    begun = time.monotonic()
    lines.close()
    assert 0.1 <= time.monotonic() - begun < PATIENCE
    assert os.read(pipe.read_end, 1)  # the thread ends when it can write
    lines._thread.join(0)


def test_reader_that_has_ended(pipe: Pipe) -> None:
    """The lines are lost, and nothing else."""
    lines = Lines(os.dup(pipe.write_end))
    os.close(pipe.read_end)
    pipe.read_end = os.open(os.devnull, os.O_RDONLY)
    lines.write("1\n2\n")
    lines.close()
    assert not lines._thread.is_alive()
    os.close(lines._fd)


def test_pipe_that_does_not_block(pipe: Pipe) -> None:
    """Another process may have made it so."""
    os.set_blocking(pipe.write_end, False)
    lines = Lines(os.dup(pipe.write_end))
    lines.write("1\n")
    until_waiting(lines)
    assert pipe.lines(1) == ["1"]
    lines.close()
    os.close(lines._fd)


@pytest.mark.parametrize("closed", [False, True])
def test_all_that_goes_to_stderr(monkeypatch: pytest.MonkeyPatch, closed: bool) -> None:
    """Log lines of libraries too. Without a stderr they are lost."""
    read_end, write_end = os.pipe()
    with open(write_end, "w") as file:
        monkeypatch.setattr(sys, "stderr", None if closed else file)
        with audit.stderr_in_a_thread():
            assert isinstance(sys.stderr, Lines)
            logging.lastResort.handle(logging.makeLogRecord({"msg": "from asyncio"}))
            print("é", "\ud800", file=sys.stderr)
            AuditLog()("started")
        assert sys.stderr is (None if closed else file)
        monkeypatch.undo()
    with open(read_end, encoding="utf-8") as found:
        texts = found.read().splitlines()
    assert texts[:-1] == ([] if closed else ["from asyncio", "é \\ud800"])
    assert closed or json.loads(texts[-1])["event"] == "started"


@contextlib.contextmanager
def agent(folder: Path, identities: Path, pipe: Pipe) -> Iterator[subprocess.Popen[bytes]]:
    """`srdma agent` with the pipe as stderr."""
    (identities / "ca.pem").write_bytes((identities / "ca/ca.pem").read_bytes())
    file = folder / "agent.toml"
    file.write_text(POLICY.format(folder=folder, identities=identities))
    command = [sys.executable, "-m", "srdma", "agent", "--config", str(file)]
    process = subprocess.Popen(command, stderr=pipe.write_end)
    yield process
    process.kill()
    process.wait()


def ask(folder: Path) -> dict[str, Any]:
    """The answer of the agent to a program without rights."""

    def connected() -> bool:
        return sock.connect_ex(str(folder / "agent.sock")) == 0

    with socket.socket(socket.AF_UNIX) as sock:
        until(connected)
        wire = Wire(sock.dup())
        wire.tell({"do": "listen", "identity": "host-b", "peer": []}, [])
        return wire.event()


@pytest.mark.parametrize("reads", [False, True])
def test_agent_serves(tmp_path: Path, identities: Path, pipe: Pipe, reads: bool) -> None:
    """It ends too. A late reader gets the lines."""
    with agent(tmp_path, identities, pipe) as process:
        for _ in range(3):
            assert ask(tmp_path)["event"] == "error"
        if reads:
            found = [json.loads(line)["event"] for line in pipe.lines(4)]
            assert found == ["started", "failed", "failed", "failed"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
