"""A tap between two embedded NICs: forwards and captures every packet, and can flip one bit.

    python -m srdma.inspect.tap LEFT_DIR RIGHT_DIR LEFT_NAME RIGHT_NAME

The worker LEFT_NAME has the wire folder LEFT_DIR, the worker RIGHT_NAME has RIGHT_DIR. The folders
differ, so that packets pass only through the tap. In LEFT_DIR the tap uses the name RIGHT_NAME and
in RIGHT_DIR the name LEFT_NAME: each worker connects to the tap under the name of the other. The
workers need no option for the tap.

Requests arrive on stdin, results go to stdout (_engine/frames.py). {"do": "flip", side, at_least,
at} flips the lowest bit of byte `at` of the next packet from `side` (0 left, 1 right) with at
least `at_least` bytes. {"do": "capture"} returns all packets since the last capture: {"packets":
[[side, bytes, flipped], ...], "lost": number of packets that did not fit}. The process ends at the
end of stdin.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from srdma._engine.frames import ask, read_frame, write_frame
from srdma.embedded import START_TIMEOUT, STOP_TIMEOUT, spawn, stop
from srdma.errors import DeviceError
from srdma.native.tap import ACCEPT, DOWN, UP, ShmWire

LEFT, RIGHT = 0, 1
CAPTURE_MAX = 256 << 20  # bytes of packets that are kept between captures


class Packet(NamedTuple):
    """One packet as the worker of `side` sent it, before any flip."""

    side: int
    data: bytes
    flipped: bool


class Flip(NamedTuple):
    """The next packet from `side` with at least `at_least` bytes; at: the byte to change."""

    side: int
    at_least: int
    at: int


@dataclass
class Link:
    """One connection at one side, and its partner at the other side."""

    side: int
    conn: int
    up: bool
    queue: deque[bytes] = field(default_factory=deque)  # packets to send on this connection
    partner: Link | None = None


class Tap:
    """The two wires and the packets between them. It does no other I/O."""

    def __init__(self, folders: tuple[Path, Path], names: tuple[str, str]) -> None:
        self._names = names
        self.wires = (
            ShmWire(folders[LEFT], names[RIGHT]),
            ShmWire(folders[RIGHT], names[LEFT]),
        )
        self._links: dict[tuple[int, int], Link] = {}
        self._packets: list[Packet] = []
        self._bytes = self._lost = 0
        self.flip: Flip | None = None

    def step(self) -> bool:
        """Forward all waiting packets; False if there were none."""
        busy = False
        for side, wire in enumerate(self.wires):
            for kind, conn, data in wire.poll():
                busy = True
                self._on(side, kind, conn, data)
        for link in list(self._links.values()):
            busy |= self._send(link)
        for wire in self.wires:
            wire.flush()
        return busy

    def capture(self) -> dict[str, Any]:
        """All packets since the last call, in the form of the result of {"do": "capture"}."""
        packets, lost = self._packets, self._lost
        self._packets, self._bytes, self._lost = [], 0, 0
        return {"packets": [list(packet) for packet in packets], "lost": lost}

    def waits(self) -> bool:
        """True if a packet waits for room in a ring: the caller must not sleep."""
        return any(link.queue and link.up for link in self._links.values())

    def close(self) -> None:
        for wire in self.wires:
            wire.close_all()

    # Internal --------------------------------------------------------------

    def _on(self, side: int, kind: str, conn: int, data: bytes | None) -> None:
        if kind == ACCEPT:
            self._join(side, conn)
            return
        link = self._links.get((side, conn))
        if link is None:
            return
        if kind == UP:
            link.up = True
        elif kind == DOWN:
            self._end(link)
        elif data is not None and link.partner is not None:
            link.partner.queue.append(self._pass(side, data))

    def _join(self, side: int, conn: int) -> None:
        """A worker connected: connect to the worker that it addressed."""
        other = 1 - side
        here = Link(side, conn, up=True)
        there = Link(other, self.wires[other].connect(self._names[other]), up=False)
        here.partner, there.partner = there, here
        self._links[side, here.conn], self._links[other, there.conn] = here, there

    def _end(self, link: Link) -> None:
        """One side closed its connection: close the other one after the queued packets."""
        for one in (link, link.partner):
            if one is not None and (one.side, one.conn) in self._links:
                del self._links[one.side, one.conn]
                if one is not link:
                    self._send(one)
                self.wires[one.side].flush()
                self.wires[one.side].close(one.conn)

    def _pass(self, side: int, data: bytes) -> bytes:
        """Capture a packet. Returns it, with one bit flipped if the pending flip matches."""
        flip = self.flip
        flipped = flip is not None and flip.side == side and len(data) >= flip.at_least
        self._keep(Packet(side, data, flipped))
        if not flipped or flip is None:
            return data
        self.flip = None
        changed = bytearray(data)
        changed[flip.at] ^= 1
        return bytes(changed)

    def _keep(self, packet: Packet) -> None:
        if self._bytes + len(packet.data) > CAPTURE_MAX:
            self._lost += 1
            return
        self._bytes += len(packet.data)
        self._packets.append(packet)

    def _send(self, link: Link) -> bool:
        sent = False
        while link.up and link.queue and self.wires[link.side].send(link.conn, link.queue[0]):
            link.queue.popleft()
            sent = True
        return sent


# The process -------------------------------------------------------------------


def serve(tap: Tap) -> None:
    """Forward packets and serve requests until the end of stdin."""
    poll = select.poll()
    for fd in (sys.stdin.fileno(), *(wire.fileno() for wire in tap.wires)):
        poll.register(fd, select.POLLIN)
    write_frame(sys.stdout.fileno(), {"up": os.getpid()})
    while True:
        if tap.step():
            continue
        sleepy = not tap.waits()
        for wire in tap.wires:  # no early exit: disarm() below needs every wire to be armed
            sleepy &= wire.arm()
        ready = [fd for fd, _ in poll.poll(None if sleepy else 0)]
        for wire in tap.wires:
            wire.disarm()
        if sys.stdin.fileno() in ready:
            request = read_frame(sys.stdin.fileno())
            if request is None:
                return
            write_frame(sys.stdout.fileno(), answer(tap, request))


def answer(tap: Tap, request: dict[str, Any]) -> dict[str, Any]:
    if request.get("do") == "flip":
        tap.flip = Flip(request["side"], request["at_least"], request["at"])
        return {}
    if request.get("do") == "capture":
        return tap.capture()
    return {"error": f"unknown request {request}: known are flip and capture"}


def main(arguments: list[str]) -> int:
    if len(arguments) != 4:
        print((__doc__ or "").splitlines()[2].strip(), file=sys.stderr)
        return 2
    left, right, left_name, right_name = arguments
    tap = Tap((Path(left), Path(right)), (left_name, right_name))
    try:
        serve(tap)
    finally:
        tap.close()
    return 0


# The parent's side -------------------------------------------------------------


class TapProcess:
    """The tap as a child process. The caller calls close()."""

    def __init__(self, folders: tuple[Path, Path], names: tuple[str, str]) -> None:
        words = [*(str(folder) for folder in folders), *names]
        self._process = spawn(
            [sys.executable, "-m", "srdma.inspect.tap", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin and self._process.stdout
        self._fds = self._process.stdin.fileno(), self._process.stdout.fileno()

    def wait_until_up(self) -> None:
        """Wait until the tap runs; to be called before its first use and before a worker
        connects. Raises DeviceError."""
        if read_frame(self._fds[1], START_TIMEOUT) is None:
            raise DeviceError("the tap process did not start: its error is on stderr")

    @property
    def pid(self) -> int:
        return self._process.pid

    def flip(self, side: int, *, at_least: int, at: int) -> None:
        """Flip a bit of byte `at` of the next packet from `side` with at least `at_least`
        bytes."""
        ask(self._fds, {"do": "flip", "side": side, "at_least": at_least, "at": at})

    def take(self) -> tuple[list[Packet], int]:
        """The packets since the last call, and the number of those without room."""
        got = ask(self._fds, {"do": "capture"})
        return [Packet(*packet) for packet in got["packets"]], got["lost"]

    def capture(self) -> list[Packet]:
        """Every packet since the last call. Raises DeviceError if the tap dropped any."""
        packets, lost = self.take()
        if lost:
            raise DeviceError(f"the tap had no room for {lost} packets: call capture() more often")
        return packets

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT)
        stop(self._process)
        self._process.stdout.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
