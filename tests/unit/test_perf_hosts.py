"""The load in Python on a leg that accepts only a part of each batch."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import pytest

from srdma.wr import SendFlag, SendWR, WROpcode
from srdma_bench.perf.hosts import PATIENCE, PythonHost, Sweep
from srdma_bench.perf.measure import WORKS, spots

DEPTH = 96


class Stingy:
    """A QP whose leg accepts at most takes[i] requests in call i, and all in later calls."""

    qp_num, reason, depths = 7, None, (DEPTH, DEPTH)

    def __init__(self, takes: Iterable[int]) -> None:
        self.takes, self.posted, self.most = iter(takes), 0, 0
        self._ends: list[int] = []  # number of requests that were posted up to each completion

    def batch(self, wrs: list[SendWR]) -> StingyBatch:
        return StingyBatch(self, wrs)

    def poll(self, most: int, timeout: float) -> list[SimpleNamespace]:
        self.most = max(self.most, self.posted - (self._ends[0] if self._ends else 0))
        ended, self._ends = len(self._ends), []
        return [SimpleNamespace(opcode=None)] * ended

    def verdict(self, wc: object) -> None:
        pass

    def take(self, wrs: list[SendWR]) -> int:
        taken = min(len(wrs), next(self.takes, len(wrs)))
        for wr in wrs[:taken]:
            self.posted += 1
            if wr.send_flags & SendFlag.SIGNALED:
                self._ends.append(self.posted)
        return taken


class StingyBatch:
    def __init__(self, qp: Stingy, wrs: list[SendWR]) -> None:
        self._qp, self._wrs = qp, wrs

    def __len__(self) -> int:
        return len(self._wrs)

    def post(self, first: int = 0) -> int:
        return self._qp.take(self._wrs[first:])


def write() -> SendWR:
    return SendWR(0, WROpcode.RDMA_WRITE, [], send_flags=SendFlag.SIGNALED)


@pytest.mark.parametrize("takes", [[], [0], [5, 0, 0, 3], [1] * 90, [24, 24, 24, 24, 1]])
@pytest.mark.parametrize("count", [1, 50, 100, 250])
def test_partly_accepted_batches_are_completed(takes, count):
    qp = Stingy(takes)
    marks = PythonHost(PATIENCE).stream(Sweep([(qp, write())]), count, 0)
    assert qp.posted == marks[-1][0] == count
    assert qp.most <= DEPTH


def test_partly_accepted_batch_at_the_deadline():
    def takes() -> Iterator[int]:
        yield 3
        over = time.monotonic() + 0.05
        while time.monotonic() < over:
            yield 0

    qp = Stingy(takes())
    marks = PythonHost(PATIENCE).stream(Sweep([(qp, write())]), 0, 25_000_000)
    assert qp.posted == marks[-1][0] > 3


def test_ping_pong_leaves_no_completion_behind():
    qp, word = Stingy([]), memoryview(bytearray(8))
    host = PythonHost(PATIENCE)
    host.play([(qp, write())], (word, word), array("Q", bytes(8 * 10)), first=True)
    assert qp.posted == 10
    assert not qp.poll(1, 0)


@pytest.mark.parametrize("qps", [1, 3, 8, 64, 256])
@pytest.mark.parametrize("room", [1, 16, 255, 256, 300, 512, 32768])
def test_places_of_a_region(room, qps):
    count, laps = spots(room, qps)
    assert 0 < count <= WORKS and count % qps == 0
    if room < qps:
        assert (count, laps) == (qps, 1)
    else:  # the places cover the region except for less than one lap
        assert 0 <= room - count * laps < count
