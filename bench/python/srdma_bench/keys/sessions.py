"""Many sessions of one agent: memory, CPU time, and a wave of renewals.

Agent A has all sessions as client. A peer is a pair of identities: own ones of agent A, others of
agent B, so that few certificates and listeners make many TLS connections.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from srdma_bench.keys.setup import Load, Pair

AT_ONCE = 48  # connections that are made at the same time: a listener keeps 64 of one address
TIMEOUT = 600.0  # seconds of an exchange or a renewal, of which many are under way
SETTLE = 2.0  # seconds after set-up, before the memory is read


@dataclass(frozen=True)
class Crowd:
    """QPs of agent A. connections: their number; qps: of each; peers: that the connections have in
    turn. idle: seconds without work, renewed: one wave of renewals follows."""

    connections: int
    peers: int
    qps: int = 1
    idle: float = 60.0
    renewed: bool = True
    at_once: int = AT_ONCE

    @property
    def load(self) -> Load:
        """The factors of `peers` are nearly equal, so that few identities are needed."""
        own = max(n for n in range(1, int(self.peers**0.5) + 1) if self.peers % n == 0)
        if self.peers <= 256:
            own = 1
        return Load(own, self.peers // own, self.qps, TIMEOUT, TIMEOUT)


@dataclass(frozen=True)
class Cost:
    """The cost of agent A.

    setup, wave: seconds; setup_cpu, wave_cpu, idle_cpu: CPU seconds, the last one per minute.
    base, rss, pss: KiB: before the first connection, after set-up; idle_rss: at the end of the idle
    time; wave_rss: after the wave. session: bytes of each connection after the idle time.
    descriptors: before and after the idle time.
    """

    connections: int
    qps: int
    peers: int
    setup: float
    setup_cpu: float
    base: int
    rss: int
    pss: int
    descriptors: tuple[int, int]
    idle_cpu: float
    idle_rss: int
    session: int
    wave: float = 0.0
    wave_cpu: float = 0.0
    wave_rss: int = 0


async def measure(pair: Pair, crowd: Crowd) -> Cost:
    """Make the connections, wait, renew them, and close them."""
    base, _ = pair.usage()
    made, sessions = await pair.open(crowd.connections, crowd.at_once)
    await asyncio.sleep(SETTLE)
    ready, _ = pair.usage()
    await asyncio.sleep(crowd.idle)
    idle, _ = pair.usage()
    wave = 0.0
    if crowd.renewed:
        start = time.perf_counter()
        await asyncio.gather(*(session.renew() for session in sessions))
        wave = time.perf_counter() - start
    end, _ = pair.usage()
    for session in sessions:
        session.close()
    return Cost(
        crowd.connections, made.qps, crowd.peers, made.seconds,
        made.cpu_a * made.qps / 1e3, base.rss, ready.rss, ready.pss,
        (ready.descriptors, idle.descriptors),
        60 * (idle.cpu - ready.cpu) / crowd.idle if crowd.idle else 0.0,
        idle.rss, ((idle.rss - base.rss) << 10) // crowd.connections,
        wave, end.cpu - idle.cpu, end.rss,
    )  # fmt: skip
