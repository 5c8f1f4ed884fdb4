"""The cost of waiting: CPU time of idle workers, and of workers with a low constant load."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from srdma.errors import DeviceError
from srdma.native.leg import Work
from srdma_bench.perf.counts import check_counts, gained
from srdma_bench.perf.hosts import PATIENCE, load_of
from srdma_bench.perf.measure import Plan, Result, offered
from srdma_bench.stand import Link, Stand

WRITE, SIGNALED = 1, 1  # opcode and flag of descriptors (local-interface.md 2.1)
SIZE = 32
REACHED = 0.95  # minimum fraction of the requested rate
HICCUP = 0.1  # seconds by which any run may be late


class PaceError(DeviceError):
    """The machine is too busy to reach a rate."""


@dataclass(frozen=True)
class Waiting:
    """worker_a, worker_b: CPU time in percent of a core. median, p99: latencies of WRITEs from
    post to completion, us. rate: requested WRITEs per second, 0: none; reached: actual ones."""

    rate: int
    reached: float
    worker_a: float
    worker_b: float
    wakeups_a: int  # per second
    wakeups_b: int
    median: float = 0.0
    p99: float = 0.0


def measure(stand: Stand, link: Link, rate: int, seconds: float) -> Waiting:
    """Send `rate` WRITEs of 32 bytes per second, one at a time and at least one; 0: none.

    Raises IntegrityError if the workers' counters do not match, PaceError if the rate was not
    reached.
    """
    times = array("Q", bytes(8 * max(int(rate * seconds), rate > 0)))
    cpu, stats, start = stand.cpu(), stand.stats(), time.monotonic_ns()
    if rate:
        _write(stand, link, times, 1_000_000_000 // rate)
    else:
        time.sleep(seconds)
    ns, now = time.monotonic_ns() - start, stand.cpu()
    moved = [gained(*pair) for pair in zip(stats, stand.stats(), strict=True)]
    if rate:
        _check(link, times, ns, rate, moved)
    wakeups = [round(of["wakeups"] * 1e9 / ns) for of in moved]
    taken = sorted(times) or [0]
    return Waiting(
        rate,
        reached=len(times) * 1e9 / ns,
        worker_a=100 * (now["worker_a"] - cpu["worker_a"]) / ns,
        worker_b=100 * (now["worker_b"] - cpu["worker_b"]) / ns,
        wakeups_a=wakeups[0],
        wakeups_b=wakeups[1],
        median=taken[len(taken) // 2] / 1e3,
        p99=taken[len(taken) * 99 // 100] / 1e3,
    )


def _check(
    link: Link, times: array[int], ns: int, rate: int, moved: Sequence[dict[str, int]]
) -> None:
    plan = Plan("write_lat", SIZE, len(times))
    check_counts(link.client, Result(plan, len(times), ns), *moved)
    late = ns / 1e9 - len(times) / rate
    if late > max(HICCUP, (1 / REACHED - 1) * len(times) / rate):
        raise PaceError(
            f"{rate} WRITEs per second were requested, {len(times) * 1e9 / ns:.0f} were reached: "
            "give a lower rate, or stop other programs"
        )


def _write(stand: Stand, link: Link, times: array[int], gap: int) -> None:
    there = link.client.there
    qp, target = there.qps[1], offered(there.data)
    with qp.pd.alloc(SIZE) as source:
        work = Work(WRITE, qp.qp_num, 0, SIGNALED)
        work.local(source.addr, SIZE, source.lkey)
        work.remote(target.address, target.rkey)
        with stand.as_host_a(), qp.pd.engine.lock:
            load_of(qp.pd, PATIENCE).alone(work, times, gap)
