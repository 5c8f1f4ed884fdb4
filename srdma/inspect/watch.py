"""Feeds a Proof: from a network device, from a tap of a wire over shared memory, from a file."""

from __future__ import annotations

import contextlib
import itertools
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from srdma.errors import DeviceError, LocalError
from srdma.inspect import capture_file, datagram
from srdma.inspect.capture_file import Captured
from srdma.inspect.proof import Proof
from srdma.inspect.roce import Sniffer
from srdma.inspect.tap import TapProcess

BATCH = 256  # frames between two looks at time and count
_TURN = 0.1  # seconds that a source waits at most
_TAP_TURN = 0.02
_RAW = 101
# Link type of libpcap by ARPHRD_* of a device: Ethernet, loopback, tunnels without a link header.
_LINKS = {
    1: datagram.ETHERNET,
    772: datagram.ETHERNET,
    65_534: _RAW,
    768: _RAW,
    769: _RAW,
    776: _RAW,
}


class Source(Protocol):
    """Where packets come from. live: packets come until stop()."""

    live: bool

    def feed(self, proof: Proof) -> bool:
        """Take waiting packets, after a short wait. False at the end of the source, and if no
        packet waits after stop()."""

    def stop(self) -> None:
        """No further packets are wanted: feed() has those that came before."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Until:
    """When to stop: after seconds, or after packets of srdma and plain ones; None: no limit."""

    seconds: float | None = None
    packets: int | None = None


class Follower(Protocol):
    """Is told of the progress of watch()."""

    def begun(self) -> None:
        """The source captures, and Ctrl-C ends a live one with a result from now on."""

    def batch(self, proof: Proof) -> None:
        """A batch was judged."""


def watch(source: Source, proof: Proof, until: Until, follower: Follower) -> None:
    """Feed the proof until the source ends or a limit is reached; a live source until Ctrl-C, too.
    A second Ctrl-C raises KeyboardInterrupt."""
    end = None if until.seconds is None else time.monotonic() + until.seconds
    stopped = False
    with _interrupts(wanted=source.live) as interrupted:
        follower.begun()
        while source.feed(proof):
            follower.batch(proof)
            if until.packets is not None and proof.judged >= until.packets:
                break
            if not stopped and (interrupted or (end is not None and time.monotonic() >= end)):
                stopped = True
                source.stop()
    proof.finish()


@contextlib.contextmanager
def _interrupts(*, wanted: bool) -> Iterator[list[int]]:
    """A list that is filled by the first Ctrl-C, if that is wanted."""
    came: list[int] = []
    if not wanted:
        yield came
        return

    def on_interrupt(number: int, _: object) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


class Device:
    """A network device."""

    live = True

    def __init__(self, netdev: str) -> None:
        """Raises DeviceError, also without the right to capture."""
        self._sniffer = Sniffer(netdev)
        link = _LINKS.get(self._sniffer.hardware)
        if link is None:
            self.close()
            raise DeviceError(
                f"cannot read the frames of {netdev} (hardware type {self._sniffer.hardware}): "
                "give a device with Ethernet, loopback or raw IP frames"
            )
        self._link = link
        self._stopped = False

    def feed(self, proof: Proof) -> bool:
        if not self._stopped:
            select.select([self._sniffer], [], [], _TURN)
        frames, lost = self._sniffer.drain(BATCH)
        proof.lost += lost
        for frame in frames:
            proof.frame(Captured(self._link, frame, len(frame)))
        return bool(frames) or not self._stopped

    def stop(self) -> None:
        self._sniffer.stop()
        self._stopped = True

    def close(self) -> None:
        self._sniffer.close()


class Tap:
    """The tap of tap.py between two workers whose wires are in different folders."""

    live = True

    def __init__(self, left: Path, right: Path) -> None:
        """left, right: FOLDER/NAME of the workers. Raises DeviceError."""
        for end in (left, right):
            if not end.parent.is_dir():
                raise LocalError(f"{end.parent} is not a folder: give FOLDER/NAME of a worker")
        self._stopped = False
        self._tap = TapProcess((left.parent, right.parent), (left.name, right.name))
        try:
            self._tap.wait_until_up()
        except BaseException:
            self.close()
            raise

    def feed(self, proof: Proof) -> bool:
        time.sleep(_TAP_TURN)
        packets, lost = self._tap.take()
        proof.lost += lost
        for packet in packets:
            proof.packet(packet.data)
        return not self._stopped

    def stop(self) -> None:
        self._stopped = True

    def close(self) -> None:
        self._tap.close()


class File:
    """A capture file."""

    live = False

    def __init__(self, path: Path) -> None:
        """Raises LocalError."""
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115
        except OSError as error:
            raise LocalError(f"cannot read {path}: {error.strerror}") from None
        self._stopped = False
        self._packets: Iterator[Captured] = capture_file.read(self._file)

    def feed(self, proof: Proof) -> bool:
        """Raises CaptureError where the file is damaged."""
        taken = 0
        for captured in itertools.islice(self._packets, BATCH):
            proof.frame(captured)
            taken += 1
        return taken == BATCH and not self._stopped

    def stop(self) -> None:
        self._stopped = True

    def close(self) -> None:
        self._file.close()
