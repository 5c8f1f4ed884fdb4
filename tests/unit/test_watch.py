"""Feeding a proof from live sources, and their end (srdma/inspect/watch.py)."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from srdma.errors import DeviceError, LocalError
from srdma.inspect import watch
from srdma.inspect.proof import Proof
from srdma.inspect.roce import Sniffer
from srdma.inspect.watch import BATCH, Device, File, Tap, Until
from tests import captures

FRAME = captures.rc(0x0A, b"plain")


class Source:
    """One plain packet per turn; two more are there when it is stopped."""

    live = True

    def __init__(self, interrupts: int = 0) -> None:
        self.left = 1000
        self.interrupts = interrupts

    def feed(self, proof: Proof) -> bool:
        if self.left == 0:
            return False
        self.left -= 1
        proof.packet(b"plain")
        if self.interrupts:
            self.interrupts -= 1
            os.kill(os.getpid(), signal.SIGINT)
        return True

    def stop(self) -> None:
        self.left = 2

    def close(self) -> None: ...


class Follower:
    """A follower that may interrupt the process."""

    def __init__(self, *, at_begin: bool = False, at_batch: bool = False) -> None:
        self._at_begin, self._at_batch = at_begin, at_batch

    def begun(self) -> None:
        if self._at_begin:
            os.kill(os.getpid(), signal.SIGINT)

    def batch(self, _: Proof) -> None:
        if self._at_batch:
            os.kill(os.getpid(), signal.SIGINT)


def fed(
    source: Source | File,
    until: Until = Until(),  # noqa: B008 - immutable
    follower: Follower = Follower(),  # noqa: B008 - immutable
) -> Proof:
    proof = Proof()
    watch.watch(source, proof, until, follower)
    return proof


def test_a_source_that_ends() -> None:
    assert fed(Source()).judged == 1000


def test_a_number_of_packets() -> None:
    assert fed(Source(), Until(packets=7)).judged == 7


def test_packets_before_the_end_of_the_time_are_judged() -> None:
    assert fed(Source(), Until(seconds=1e-9)).judged == 3


def test_packets_before_an_interrupt_are_judged() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert fed(Source(interrupts=1)).judged == 3
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_right_after_the_announcement_gives_a_result() -> None:
    assert fed(Source(), follower=Follower(at_begin=True)).judged == 3


def test_a_second_interrupt_ends_the_command() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fed(Source(interrupts=2))
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupted_file_gives_no_result(tmp_path: Path) -> None:
    path = tmp_path / "wire.pcap"
    path.write_bytes(captures.pcap([FRAME] * (2 * BATCH)))
    with pytest.raises(KeyboardInterrupt):
        fed(File(path), follower=Follower(at_batch=True))


def test_a_file_ends_after_its_time(tmp_path: Path) -> None:
    path = tmp_path / "wire.pcap"
    path.write_bytes(captures.pcap([FRAME] * (3 * BATCH)))
    assert fed(File(path), Until(seconds=1e-9)).judged == 2 * BATCH


class FakeSniffer:
    """The frames of two calls, of which the kernel lost three."""

    def __init__(self, hardware: int) -> None:
        self.hardware = hardware
        self.closed = self.stopped = False
        self._calls = [([FRAME], 3), ([], 0)]

    def fileno(self) -> int:
        return self._file.fileno()

    def drain(self, most: int) -> tuple[list[bytes], int]:
        assert most == BATCH
        return self._calls.pop(0)

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        self.closed = True

    _file = tempfile.TemporaryFile()  # noqa: SIM115 - always readable


def test_frames_that_the_kernel_lost_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSniffer(hardware=1)
    monkeypatch.setattr(watch, "Sniffer", lambda _: fake)
    device, proof = Device("eth0"), Proof()
    assert device.feed(proof) and (proof.plain.total(), proof.lost) == (1, 3)
    device.stop()
    assert fake.stopped and not device.feed(proof)
    device.close()
    assert fake.closed


def test_a_device_whose_frames_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSniffer(hardware=32)  # IP over InfiniBand
    monkeypatch.setattr(watch, "Sniffer", lambda _: fake)
    with pytest.raises(DeviceError, match=r"frames of ib0 .hardware type 32.: give a device"):
        Device("ib0")
    assert fake.closed


@pytest.mark.skipif(os.geteuid() != 0, reason="capturing needs root")
def test_a_device_that_does_not_exist() -> None:
    with pytest.raises(DeviceError, match="cannot capture on no-such-dev: No such device"):
        Device("no-such-dev")


@pytest.mark.skipif(os.geteuid() != 0, reason="capturing needs root")
def test_a_sniffer_that_was_stopped_takes_no_further_frames() -> None:
    import socket

    sniffer = Sniffer("lo")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"before-the-stop", ("127.0.0.1", 9))
        sniffer.stop()
        sender.sendto(b"behind-the-stop", ("127.0.0.1", 9))
    frames = b"".join(sniffer.drain()[0])
    sniffer.close()
    assert frames.count(b"before-the-stop") == 2  # and in the ICMP error
    assert b"behind-the-stop" not in frames


class FakeTap:
    """Stands for TapProcess."""

    broken = False

    def __init__(self, folders: tuple[Path, Path], names: tuple[str, str]) -> None:
        self.closed = False
        self.ends = folders, names
        FakeTap.last = self

    def wait_until_up(self) -> None:
        if self.broken:
            raise DeviceError("the tap process did not start")

    def take(self) -> tuple[list[SimpleNamespace], int]:
        return [SimpleNamespace(data=b"plain")], 2

    def close(self) -> None:
        self.closed = True


def test_a_tap_joins_two_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watch, "TapProcess", FakeTap)
    tap, proof = Tap(tmp_path / "a", Path("/tmp/b")), Proof()
    assert FakeTap.last.ends == ((tmp_path, Path("/tmp")), ("a", "b"))
    assert tap.feed(proof) and (proof.plain.total(), proof.lost) == (1, 2)
    tap.stop()
    assert not tap.feed(proof)
    tap.close()
    assert FakeTap.last.closed


def test_a_tap_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watch, "TapProcess", FakeTap)
    monkeypatch.setattr(FakeTap, "broken", True)
    with pytest.raises(DeviceError, match="did not start"):
        Tap(tmp_path / "a", tmp_path / "b")
    assert FakeTap.last.closed
    with pytest.raises(LocalError, match="is not a folder: give FOLDER/NAME"):
        Tap(Path("/no/a"), Path("/no/b"))
