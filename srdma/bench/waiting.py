"""What waiting costs: workers that have nothing to do, and workers with a little, at a pace."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass

from .._leg import Work
from ..perf import offered
from .stand import Link, Stand

WRITE, SIGNALED = 1, 1  # of descriptors (protocol.md 9.1)
SIZE = 32


@dataclass(frozen=True)
class Waiting:
    """CPU in percent of a core; the latencies, of WRITEs from post to completion, in us. rate:
    that was asked for, per second, 0: none."""

    rate: int
    worker_a: float
    worker_b: float
    wakeups_a: int  # of worker A, per second
    wakeups_b: int
    median: float = 0.0
    p99: float = 0.0


def measure(stand: Stand, link: Link, rate: int, seconds: float) -> Waiting:
    """So many WRITEs of 32 bytes per second, one at a time; 0: none at all."""
    times = array("Q", bytes(8 * int(rate * seconds)))
    cpu, stats, start = stand.cpu(), stand.stats(), time.monotonic_ns()
    if rate:
        _write(stand, link, times, 1_000_000_000 // rate)
    else:
        time.sleep(seconds)
    ns, now = time.monotonic_ns() - start, stand.cpu()
    wakeups = [
        round((after["wakeups"] - before["wakeups"]) * 1e9 / ns)
        for before, after in zip(stats, stand.stats(), strict=True)
    ]
    taken = sorted(times) or [0]
    return Waiting(
        rate,
        worker_a=100 * (now["worker_a"] - cpu["worker_a"]) / ns,
        worker_b=100 * (now["worker_b"] - cpu["worker_b"]) / ns,
        wakeups_a=wakeups[0],
        wakeups_b=wakeups[1],
        median=taken[len(taken) // 2] / 1e3,
        p99=taken[len(taken) * 99 // 100] / 1e3,
    )


def _write(stand: Stand, link: Link, times: array[int], gap: int) -> None:
    there = link.client.there
    qp, target = there.qps[1], offered(there.data)
    with qp.pd.alloc(SIZE) as source:
        work = Work(WRITE, qp.qp_num, 0, SIGNALED)
        work.local(source.addr, SIZE, source.lkey)
        work.remote(target.address, target.rkey)
        with stand.as_host_a(), qp.pd.engine.lock:
            qp.pd.engine.load().alone(work, times, gap)
