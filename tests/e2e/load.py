"""Requests of all kinds over a connection. Each must end with the right data.

Both ends are hosts of this process, so that the test can compare the memory of the other end:
the bytes that a WRITE placed, that a READ returns, and that a SEND delivered.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable

import srdma
from srdma import Access, WROpcode
from srdma.mr import MR
from srdma.wc import WC, WCOpcode, WCStatus
from tests.e2e.conftest import Host, Pair

SLOT = 64 << 10
OUTSTANDING = 16
RECEIVES = 32
LENGTHS = (0, 1, 13, 1000, 4096, 16 << 10, SLOT)
KINDS = (WROpcode.RDMA_WRITE, WROpcode.RDMA_READ, WROpcode.SEND, WROpcode.RDMA_WRITE_WITH_IMM)
ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
POOL = random.Random(1).randbytes(1 << 20)
PATIENCE = 60.0  # seconds without a completion until the load counts as hung
LOOK = 0.02  # seconds between two checks of the end condition


class Request:
    """One outstanding request."""

    def __init__(self, serial: int, kind: WROpcode, length: int) -> None:
        self.serial, self.kind, self.length = serial, kind, length
        self.posted = time.monotonic()
        at = serial * 7919 % (len(POOL) - SLOT)
        self.data = POOL[at : at + length]

    def received(self) -> tuple[WCOpcode, int, bytes]:
        """Returns the opcode, immediate data and bytes that its receiver must get."""
        if self.kind is WROpcode.SEND:
            return WCOpcode.RECV, 0, self.data
        return WCOpcode.RECV_RDMA_WITH_IMM, self.serial & 0xFFFFFFFF, b""


class Stream:
    """The requests of one end to the other."""

    def __init__(self, ends: tuple[srdma.SecureQP, srdma.SecureQP], hosts: tuple[Host, Host]):
        self._qp, self._peer = ends
        own, other = hosts
        self._own = own.pd.alloc(OUTSTANDING * SLOT, ACCESS, scope="pd")
        self._there = other.pd.alloc(OUTSTANDING * SLOT, ACCESS, scope="pd")
        self._remote = self._there.remote()
        self._inbox = other.pd.alloc(RECEIVES * SLOT, ACCESS, scope="pd")
        self._dice = random.Random(self._qp.qp_num)
        self._under_way: dict[int, Request] = {}
        self._messages: deque[Request] = deque()  # messages that consume a receive, in order
        self._serial = 0
        # Number of succeeded requests by kind, and of failed ones by reason.
        self.ended: Counter[str] = Counter()
        self.bytes = 0
        self.slowest = 0.0  # seconds from posting to completion
        for n in range(RECEIVES):
            self._post_receive(n)

    @property
    def outstanding(self) -> int:
        return len(self._under_way)

    def fill(self) -> None:
        for slot in range(OUTSTANDING):
            self._post(slot)

    def _post(self, slot: int) -> None:
        request = Request(self._serial, self._dice.choice(KINDS), self._dice.choice(LENGTHS))
        self._serial += 1
        at = slot * SLOT
        reads = request.kind is WROpcode.RDMA_READ
        place(self._there if reads else self._own, at, request.data)
        piece = [self._own[at : at + request.length]] if request.length else []
        wr = srdma.SendWR(slot, request.kind, piece, imm_data=request.serial & 0xFFFFFFFF)
        if request.kind is not WROpcode.SEND:
            wr.set_remote(self._remote, at)
        if request.kind in (WROpcode.SEND, WROpcode.RDMA_WRITE_WITH_IMM):
            self._messages.append(request)
        self._under_way[slot] = request
        self._qp.post_send(wr)

    def _post_receive(self, n: int) -> None:
        self._peer.post_recv(srdma.RecvWR(n, [self._inbox[n * SLOT : (n + 1) * SLOT]]))

    def take(self, wc: WC, more: bool) -> None:
        """Handles a completion of this end's requests."""
        request = self._under_way.pop(wc.wr_id)
        self.slowest = max(self.slowest, time.monotonic() - request.posted)
        if wc.status is not WCStatus.SUCCESS:
            self.ended[wc.reason] += 1
            return
        self.ended[request.kind.name] += 1
        self.bytes += request.length
        at = wc.wr_id * SLOT
        if request.kind is not WROpcode.SEND:
            where = self._own if request.kind is WROpcode.RDMA_READ else self._there
            assert bytes(where.buf[at : at + request.length]) == request.data, request.kind
        if more:
            self._post(wc.wr_id)

    def take_received(self, wc: WC) -> None:
        """Handles a completion of the other end's receives."""
        if wc.status is not WCStatus.SUCCESS:
            return
        opcode, immediate, data = self._messages.popleft().received()
        at = wc.wr_id * SLOT
        assert (wc.opcode, wc.imm_data) == (opcode, immediate)
        if opcode is WCOpcode.RECV:
            assert wc.byte_len == len(data)
            assert bytes(self._inbox.buf[at : at + len(data)]) == data
        self._post_receive(wc.wr_id)

    @property
    def received_all(self) -> bool:
        """True if every message that was sent was received."""
        return not self._messages


def place(mr: MR, at: int, data: bytes) -> None:
    mr.buf[at : at + len(data)] = data


class Load:
    """Both directions of a connection."""

    def __init__(self, pair: Pair) -> None:
        a, b = pair
        self.streams = (
            Stream((a, b), (pair.a, pair.b)),
            Stream((b, a), (pair.b, pair.a)),
        )
        self._qps = (a, b)

    def run(self, until: Callable[[], bool]) -> float:
        """Posts requests until `until()` is true, then waits for the
        outstanding ones. Returns bytes per second."""
        begin, before = time.monotonic(), self.bytes
        for stream in self.streams:
            stream.fill()
        self._take(until)
        return (self.bytes - before) / (time.monotonic() - begin)

    def until(self, requests: int) -> Callable[[], bool]:
        """Returns a condition for run(): true after this many more requests have completed."""
        enough = sum(self.ended.values()) + requests
        return lambda: sum(self.ended.values()) >= enough

    @property
    def bytes(self) -> int:
        return sum(stream.bytes for stream in self.streams)

    @property
    def reasons(self) -> list[str]:
        """Returns the failure reasons of the QPs; "" for a QP that works."""
        return [qp.reason for qp in self._qps]

    @property
    def slowest(self) -> float:
        return max(stream.slowest for stream in self.streams)

    @property
    def ended(self) -> Counter[str]:
        return self.streams[0].ended + self.streams[1].ended

    def _take(self, until: Callable[[], bool]) -> None:
        news = look = time.monotonic()
        more, got = True, 0
        while more or got or any(stream.outstanding for stream in self.streams):
            if more and time.monotonic() > look:
                more = not until()
                look = time.monotonic() + LOOK
            got = 0
            for own, qp in enumerate(self._qps):
                for wc in qp.poll(OUTSTANDING + RECEIVES):
                    got += 1
                    if wc.opcode in (WCOpcode.RECV, WCOpcode.RECV_RDMA_WITH_IMM):
                        self.streams[1 - own].take_received(wc)
                    else:
                        self.streams[own].take(wc, more)
            if got:
                news = time.monotonic()
            else:
                assert time.monotonic() - news < PATIENCE, f"no request completed for {PATIENCE} s"
                time.sleep(0.0002)
