"""Load generators of a measurement: one in C, and one in Python that uses the public API.

The load in Python posts batches of which only the last request completes, and polls many
completions at a time.
"""

from __future__ import annotations

import os
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from srdma._engine.engine import post_error
from srdma._engine.handles import Handle
from srdma.batch import Batch, work_of
from srdma.capability import Capability
from srdma.errors import Error, RemoteError, Timeout, WorkerGone
from srdma.native.leg import Work
from srdma.pd import PD
from srdma.qp import SecureQP
from srdma.wc import WC, WCOpcode
from srdma.wr import RecvWR, SendFlag, SendWR
from srdma_bench.native.load import Failed, Load, Refused

WINDOWS = 10  # parts of a bandwidth run, for its peak
BATCH = 32  # maximum number of requests that Python posts at a time
PATIENCE = 60.0  # default of the maximum time without a completion, seconds
NAP = 0.02  # seconds of waiting for one of several QPs

Marks = list[tuple[int, int]]  # (requests completed, ns since the start); the last one is the end
Sends = Sequence[tuple[SecureQP, SendWR]]
Receives = Sequence[tuple[SecureQP, RecvWR]]


@dataclass(frozen=True)
class Sweep:
    """Requests that are posted in turn. After each turn all addresses move by `stride` bytes, and
    after `laps` turns back to the start."""

    todo: Sends
    laps: int = 1
    stride: int = 0


class Host(Protocol):
    """The load of one end; `name` is for the report. Each call raises Timeout if nothing completes
    for too long, and the error of a failed completion."""

    name: str

    def receives(self, todo: Receives) -> None:
        """Fill the receive queues with these requests, and keep them full from now on."""

    def stream(self, sweep: Sweep, count: int, ns: int) -> Marks:
        """Post requests in turn, as many at a time as the queues take, until `count` are posted,
        or for `ns` if count is 0; wait for all completions."""

    def take(self, count: int, ns: int) -> tuple[int, int]:
        """Receive `count` messages; if count is 0, until none arrives for `ns` after the first.
        Returns the number of messages and the ns.

        Messages that arrived during stream(), since receives(), are counted.
        """

    def alone(self, todo: Sends, times: array[int]) -> None:
        """Execute the first request repeatedly, one at a time; times[i] becomes its ns."""

    def play(
        self, todo: Sends, words: tuple[memoryview, memoryview | None], times: array[int],
        first: bool,
    ) -> None:  # fmt: skip
        """Ping-pong with the first request. first: this end begins. times[i] becomes the ns of a
        round.

        The last byte of words[0] is the number that is sent, the last byte of words[1] the number
        that is awaited; None: await a message instead.
        """


def load_of(pd: PD, patience: float) -> Load:
    """A load on the leg of a PD. patience: maximum seconds without a completion."""
    return Load(*pd.engine.native(), pd.engine.watch, patience)


class CHost:
    """A Host in C: `native.load.Load`, which runs without the GIL."""

    name = "C"

    def __init__(self, pd: PD, patience: float) -> None:
        self._pd = pd
        self._load = load_of(pd, patience)
        self._handles: dict[Capability, Handle] = {}
        self._qps: dict[int, SecureQP] = {}
        self._receiving: list[SecureQP] = []

    def receives(self, todo: Receives) -> None:
        self._qps |= {qp.qp_num: qp for qp, _ in todo}
        works = [work_of(qp, wr, 0) for qp, wr in todo]
        with self._running():
            self._receiving = [qp for qp, _ in todo]
            self._load.receives(works)

    def stream(self, sweep: Sweep, count: int, ns: int) -> Marks:
        works, marks = self._works(sweep.todo), array("Q", bytes(16 * WINDOWS))
        with self._running():
            self._load.stream(works, (sweep.laps, sweep.stride), count, ns, marks)
        return list(zip(marks[::2], marks[1::2], strict=True))

    def take(self, count: int, ns: int) -> tuple[int, int]:
        with self._running():
            return self._load.take(count, ns)

    def alone(self, todo: Sends, times: array[int]) -> None:
        (work,) = self._works(todo[:1])
        with self._running():
            self._load.alone(work, times)

    def play(
        self, todo: Sends, words: tuple[memoryview, memoryview | None], times: array[int],
        first: bool,
    ) -> None:  # fmt: skip
        (work,) = self._works(todo[:1])
        with self._running():
            self._load.play(work, *words, times, first)

    def _works(self, todo: Sends) -> list[Work]:
        self._qps |= {qp.qp_num: qp for qp, _ in todo}
        return [self._work(qp, wr) for qp, wr in todo]

    def _work(self, qp: SecureQP, wr: SendWR) -> Work:
        work = work_of(qp, wr, 0)
        if wr.capability is not None:
            if wr.capability not in self._handles:
                self._handles[wr.capability] = self._pd.handles.take(wr.capability)
            work.capability(self._handles[wr.capability].number)
        return work

    @contextmanager
    def _running(self) -> Iterator[None]:
        try:
            with self._pd.engine.lock:
                for qp in self._receiving:  # messages that arrived during control messages
                    self._came(qp)
                yield
        except Refused as refused:
            raise post_error(*refused.args) from None
        except Failed as failed:
            raise self._why(*failed.args) from None

    def _came(self, qp: SecureQP) -> None:
        # Not poll(): it delivers completions of other QPs too, and those of a QP that was before
        # this one in _running() would be missed.
        for wc in qp.poll_delivered(qp.depths[1]):
            qp.verdict(wc)
            if wc.opcode == WCOpcode.RECV:
                self._load.came(qp.qp_num)

    def _why(self, qpn: int, opcode: int, status: int, reason: int) -> Error:
        """The exception for a failed completion or an event of a QP."""
        wc = WC.from_record((0, qpn, opcode, status, 0, reason, 0, 0))
        try:
            if qpn in self._qps:
                self._qps[qpn].verdict(wc)
        except Error as error:
            return error
        return wc.error() or ended(wc.reason)


class PythonHost:
    """A Host in Python: `SecureQP.batch()`, `Batch.post()` and `SecureQP.poll()`."""

    name = "Python"

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._moved = 0.0  # time of the last completion or of the start of the run
        self._receives: dict[SecureQP, Batch] = {}
        self._arrived = self._heard = 0

    def receives(self, todo: Receives) -> None:
        for qp, wr in todo:
            self._receives[qp] = qp.batch([wr] * qp.depths[1])
            self._receives[qp].post()
        self._heard = self._arrived

    def stream(self, sweep: Sweep, count: int, ns: int) -> Marks:
        by_qp: dict[SecureQP, list[SendWR]] = {}
        for qp, wr in sweep.todo:
            by_qp.setdefault(qp, []).append(wr)
        laps = sweep.laps, sweep.stride
        stream = _Stream([_Lane(qp, wrs, laps) for qp, wrs in by_qp.items()], count, ns)
        idle = 0.0
        self._begin()
        while not stream.over:
            moved = 0
            for lane in stream.lanes:
                moved += stream.post(lane)
                moved += stream.ended(lane, self._poll(lane.qp, idle))
            idle = 0.0 if moved else NAP
            if moved:
                stream.mark()
        return stream.finish()

    def take(self, count: int, ns: int) -> tuple[int, int]:
        start = last = time.perf_counter_ns()
        first = seen = self._heard
        self._begin()
        while not count or self._arrived - first < count:
            for qp in self._receives:
                self._poll(qp, NAP / len(self._receives))
            if self._arrived != seen:
                seen, last = self._arrived, time.perf_counter_ns()
            elif not count and seen != first and time.perf_counter_ns() - last > ns:
                break
        self._heard = self._arrived
        return self._arrived - first, time.perf_counter_ns() - start

    def alone(self, todo: Sends, times: array[int]) -> None:
        qp, wr = todo[0]
        batch = qp.batch([wr])
        self._begin()
        for number in range(len(times)):
            start = time.perf_counter_ns()
            while not batch.post():
                self._poll(qp, NAP)
            while not self._poll(qp, NAP):
                pass
            times[number] = time.perf_counter_ns() - start

    def play(
        self, todo: Sends, words: tuple[memoryview, memoryview | None], times: array[int],
        first: bool,
    ) -> None:  # fmt: skip
        qp, wr = todo[0]
        batch, (out, back), under_way = qp.batch([wr]), words, 0
        self._begin()
        for number in range(len(times)):
            word, start = number % 255 + 1, time.perf_counter_ns()
            if not first:
                under_way -= self._hear(qp, back, word)
            out[-1] = word
            while not batch.post():
                under_way -= self._poll(qp)
            under_way += 1
            if first:
                under_way -= self._hear(qp, back, word)
            times[number] = time.perf_counter_ns() - start
        while under_way:  # otherwise the next run would count these completions
            under_way -= self._poll(qp, NAP)

    def _hear(self, qp: SecureQP, back: memoryview | None, word: int) -> int:
        """Wait for the next message (back None) or for `word` in memory. Returns the number of
        requests that completed meanwhile."""
        done = 0
        while back[-1] != word if back is not None else self._arrived == self._heard:
            done += self._poll(qp, 0 if back is not None else NAP)
            os.sched_yield()
        self._heard += back is None
        return done

    def _begin(self) -> None:
        self._moved = time.monotonic()

    def _poll(self, qp: SecureQP, timeout: float = 0) -> int:
        """Poll. Returns the number of completed requests of the send queue; posts receives
        again."""
        wcs = qp.poll(sum(qp.depths), timeout)
        if wcs:
            self._begin()
        elif time.monotonic() - self._moved > self._patience:
            raise Timeout(f"no request completed in {self._patience:g} s")
        arrived = 0
        for wc in wcs:
            qp.verdict(wc)
            arrived += wc.opcode == WCOpcode.RECV
        if arrived:
            self._arrived += arrived
            receives = self._receives[qp]
            receives.post(len(receives) - arrived)
        elif not wcs and qp.reason:
            raise ended(qp.reason)
        return len(wcs) - arrived


class _Lane:
    """One QP of a stream: its requests in batches, and the sizes of the outstanding batches."""

    def __init__(self, qp: SecureQP, wrs: list[SendWR], laps: tuple[int, int]) -> None:
        self.qp = qp
        self._laps, self._stride = laps
        self._size = max(1, min(BATCH, qp.depths[0] // 3))
        self._batches = [
            qp.batch(self._chunk(wrs, number)) for number in range(-(-len(wrs) // self._size))
        ]
        self._turn = 0
        self._room = qp.depths[0]
        self._under_way: deque[int] = deque()  # sizes of the outstanding batches
        self.rest = 0  # unposted requests of a partly posted batch, whose last one completes

    def _chunk(self, wrs: list[SendWR], number: int) -> list[SendWR]:
        """The requests of one batch; only the last one is signaled."""
        first = number * self._size
        chunk = [wrs[(first + i) % len(wrs)] for i in range(self._size)]
        return [*map(_unsignaled, chunk[:-1]), chunk[-1]]

    def post(self, most: int) -> int:
        """Post a batch, or its last `most` requests, if the queue has room. Returns the number of
        requests that the queue took."""
        if not self.rest:
            size = min(self._size, most)
            if size > self._room:
                return 0
            self._room -= size
            self._turn += 1
            if self._laps > 1 and self._turn % len(self._batches) == 0:
                self._move(self._turn // len(self._batches) % self._laps)
            self.rest = size
            self._under_way.append(size)
        batch = self._batches[self._turn % len(self._batches)]
        sent = batch.post(len(batch) - self.rest)
        self.rest -= sent
        return sent

    def ended(self, batches: int) -> int:
        """Account for completed batches. Returns the number of their requests."""
        done = sum([self._under_way.popleft() for _ in range(batches)])
        self._room += done
        return done

    def _move(self, lap: int) -> None:
        for batch in self._batches:
            batch.move(self._stride if lap else (1 - self._laps) * self._stride)


class _Stream:
    """Progress of a stream of `count` requests or, if count is 0, of `limit` ns."""

    def __init__(self, lanes: list[_Lane], count: int, limit: int) -> None:
        self.lanes, self._count, self._limit = lanes, count, limit
        self._posted = self._done = 0
        self._start = time.perf_counter_ns()
        self.marks: Marks = []

    @property
    def ns(self) -> int:
        return time.perf_counter_ns() - self._start

    @property
    def _more(self) -> int:
        """The number of requests that may still be posted."""
        return self._count - self._posted if self._count else BATCH * (self.ns < self._limit)

    @property
    def over(self) -> bool:
        return self._done == self._posted and not self._more

    def post(self, lane: _Lane) -> int:
        """Post batches until the queue of the lane is full. Returns the number of requests."""
        before = self._posted
        while (more := lane.rest or self._more) and (sent := lane.post(more)):
            self._posted += sent
        return self._posted - before

    def ended(self, lane: _Lane, batches: int) -> int:
        done = lane.ended(batches)
        self._done += done
        return done

    def mark(self) -> int:
        """Record marks for the parts of the work that are complete. Returns the ns so far."""
        ns = self.ns
        part, whole = (self._done, self._count) if self._count else (ns, self._limit)
        while len(self.marks) < WINDOWS - 1 and part * WINDOWS >= whole * (len(self.marks) + 1):
            self.marks.append((self._done, ns))
        return ns

    def finish(self) -> Marks:
        return [*self.marks, (self._done, self.ns)]


def _unsignaled(wr: SendWR) -> SendWR:
    """A copy that creates no completion on success."""
    copy = SendWR(wr.wr_id, wr.opcode, wr.sg, send_flags=SendFlag(0), capability=wr.capability)
    copy.set_wr_rdma(wr.rkey, wr.remote_addr)
    return copy


def ended(reason: str) -> Error:
    """The exception for a QP in error without a failed request."""
    text = f"the QP ended: {reason}"
    return WorkerGone(text) if reason == "WORKER_GONE" else RemoteError(text)


def host_named(name: str, pd: PD, patience: float) -> Host:
    """The load generator "C" or "Python"."""
    return CHost(pd, patience) if name == CHost.name else PythonHost(patience)
