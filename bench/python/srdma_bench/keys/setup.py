"""Key set-up between two agents: one connection after the other, and many at the same time.

with Pair("system", Load(peers=8)) as pair:
    made = pair.run(256, at_once=256)
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Literal

from srdma.agent.links import OPEN_MAX
from srdma.connection import REKEY_LIMIT
from srdma.embedded import Closing, Embedded, spawn, stop
from srdma.keyex.offers import QPS_MAX
from srdma_bench.device import EMBEDDED, Device
from srdma_bench.keys.agents import (
    Agent,
    Usage,
    ask,
    descriptors_needed,
    make_identities,
    policy_of,
    usage,
)
from srdma_bench.keys.program import Program, Session
from srdma_bench.series import in_turn

Kind = Literal["system", "private"]
MAX_QPS = 16384  # of each worker
LISTENERS = 8  # a listener keeps 64 connections before their handshake, and 64 arrivals
ONE, CONNECTIONS, QPS = "one QP", "connections at once", "QPs of one connection"
PAUSE = 0.5  # seconds in which both ends release the connections of a run


@dataclass(frozen=True)
class Load:
    """own: number of identities of host A; peers: of host B, each with a listener. qps: per
    connection. timeout: of an exchange; limit: of a renewal, seconds."""

    own: int = 1
    peers: int = 1
    qps: int = 1
    timeout: float = 30.0
    limit: float = REKEY_LIMIT


@dataclass(frozen=True)
class Made:
    """Connections that were made. seconds: in all; median, p99: of a connection, ms. cpu_a, cpu_b:
    CPU time of the agents per QP, ms; program_a: of the program at host A."""

    connections: int
    qps: int
    seconds: float
    median: float
    p99: float
    cpu_a: float
    cpu_b: float
    program_a: float

    @property
    def rate(self) -> float:
        """QPs per second of one core, of the busier agent."""
        return 1e3 / max(self.cpu_a, self.cpu_b)


class Pair(Closing):
    """Two workers, an agent each, and two programs: that of host A is this process.

    profile: arguments of agent A, see agents.py.
    """

    def __init__(
        self, kind: Kind, load: Load | None = None, device: Device = EMBEDDED,
        profile: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.load = load = load or Load()
        self._names = [f"a{n}" for n in range(load.own)], [f"b{n}" for n in range(load.peers)]
        with ExitStack() as stack:
            nics = stack.enter_context(Embedded())
            self._folder = nics.folder / "identities"
            make_identities(self._folder, [name for names in self._names for name in names])
            options = device.words(nics)
            workers = [
                nics.launch(name, [*words, "--max-qps", str(MAX_QPS)])
                for name, words in zip(("nica", "nicb"), options, strict=True)
            ]
            sockets, pids = ["", ""], [0, 0]
            if kind == "system":
                for n, (worker, own) in enumerate(zip(workers, self._names, strict=True)):
                    more = ["--channels", str(4 * MAX_QPS), *(profile if not n else ())]
                    lines = policy_of(own)
                    agent = Agent(self._folder, "ab"[n], worker.control, lines, more)
                    stack.callback(agent.close)
                    sockets[n], pids[n] = str(agent.socket), agent.pid
            self._system = kind == "system"
            config = {
                "worker": str(workers[1].control),
                "agent": sockets[1],
                "identities": [self._identity(name) for name in self._names[1]],
                "qps": load.qps,
                "timeout": load.timeout,
                "limit": load.limit,
            }
            command = [sys.executable, "-m", "srdma_bench.keys.program", json.dumps(config)]
            self._b = spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.callback(self._end_b)
            said = ask(self._b)
            self.addresses = said["addresses"]
            self.program = Program(workers[0].control, sockets[0], load.timeout)
            stack.callback(self.program.close)
            self.pids = pids[0] or self.program.agent_pid, pids[1] or said["agent"]
            self._stack = stack.pop_all()

    def _identity(self, name: str) -> str:
        return name if self._system else str(self._folder / name)

    def _end_b(self) -> None:
        assert self._b.stdin
        self._b.stdin.close()
        stop(self._b, 60)

    def usage(self) -> tuple[Usage, Usage]:
        """The usage of both agents."""
        return usage(self.pids[0]), usage(self.pids[1])

    async def connect(self, number: int) -> Session:
        """Connection `number`. Each pair of an own identity and a peer comes in turn."""
        own, peers = len(self._names[0]), len(self._names[1])
        name = self._names[0][number // peers % own]
        address = self.addresses[number % peers]
        return await self.program.connect(
            self._identity(name), address, self.load.qps, self.load.limit
        )

    async def open(self, count: int, at_once: int) -> tuple[Made, list[Session]]:
        """Make connections, at most `at_once` at the same time."""
        links = min(count, 2 * OPEN_MAX) if self._system else count  # TLS connections
        descriptors_needed(count + links)
        places = asyncio.Semaphore(at_once)

        async def one(number: int) -> Session:
            async with places:
                return await self.connect(number)

        before, own = self.usage(), time.process_time()
        start = time.perf_counter()
        sessions = await asyncio.gather(*(one(number) for number in range(count)))
        seconds = time.perf_counter() - start
        after, qps = self.usage(), count * self.load.qps
        cpu = [1e3 * (b.cpu - a.cpu) / qps for a, b in zip(before, after, strict=True)]
        times = sorted(1e3 * session.seconds for session in sessions)
        p99 = times[min(count - 1, int(0.99 * count))]
        program = 1e3 * (time.process_time() - own) / qps
        return (
            Made(count, qps, seconds, statistics.median(times), p99, cpu[0], cpu[1], program),
            sessions,
        )

    def run(self, count: int, at_once: int) -> Made:
        """As open(); closes the connections."""

        async def run() -> Made:
            made, sessions = await self.open(count, at_once)
            for session in sessions:
                session.close()
            await asyncio.sleep(PAUSE)
            return made

        return asyncio.run(run())

    def close(self) -> None:
        self._stack.close()


@dataclass(frozen=True)
class Extent:
    """serial: number of connections of one QP that are made one after the other; many: of those
    made at the same time, and QPs of a connection with many."""

    serial: int = 100
    many: int = QPS_MAX
    rounds: int = 7


def measure(kind: Kind, device: Device, extent: Extent) -> dict[str, list[Made]]:
    """Connections of one QP one after the other (ONE) and at the same time (CONNECTIONS), and one
    connection of many QPs (QPS); one value per round."""
    with (
        Pair(kind, Load(peers=min(LISTENERS, extent.many)), device) as single,
        Pair(kind, Load(qps=extent.many), device) as several,
    ):
        single.run(extent.many, 1)  # every listener has had a peer
        several.run(1, 1)
        runs = {
            ONE: partial(single.run, extent.serial, 1),
            CONNECTIONS: partial(single.run, extent.many, extent.many),
            QPS: partial(several.run, 1, 1),
        }
        return in_turn(runs, extent.rounds)
