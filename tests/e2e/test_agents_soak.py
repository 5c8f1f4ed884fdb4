"""Random work of two hosts whose system agents end and start again (make soak): programs, agents
and workers are real."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import srdma
from srdma import Access
from tests.e2e.agents import Agent, Place, gid_hosts
from tests.e2e.conftest import WAIT, A, B, run

SEED = int(os.environ.get("SEED", "1"))
SECONDS = float(os.environ.get("SOAK_SECONDS", "900"))
CONNECTIONS = 12
GROWTH = 40 << 20  # bytes that the memory of an agent may have more than at its start
SHORT = 30.0  # seconds of a short run, in make test-all


@dataclass
class Ends:
    """Both ends of a connection; the first one is of host a."""

    ends: tuple[srdma.Connection, srdma.Connection]


class Audit(threading.Thread):
    """Reads the audit lines of an agent, so that it can write more."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(daemon=True)
        assert agent.process.stderr
        self._lines = agent.process.stderr
        self.events: Counter[str] = Counter()
        self.faults: list[str] = []
        self.start()

    def run(self) -> None:
        for line in self._lines:
            event = json.loads(line)
            self.events[event["event"]] += 1
            if event["event"] == "fault":
                self.faults.append(line)


class Soak:
    """Random steps; each raises an error if a request is lost or a QP ends."""

    def __init__(self, place: Place) -> None:
        self._place, self._dice = place, random.Random(SEED)
        self._pairs: list[Ends] = []
        self.steps: Counter[str] = Counter()
        self.audits = [Audit(agent) for agent in place.agents]
        self.faults: list[str] = []
        self._first = [rss(agent) for agent in place.agents]

    def step(self) -> None:
        likely: dict[Callable[[], None], int] = {
            self.write: 40, self.rekey: 20, self.listen: 8, self.meet: 8, self.close: 8,
            self.restart: 2,
        }  # fmt: skip
        [chosen] = self._dice.choices([*likely], [*likely.values()])
        self.steps[chosen.__name__] += 1
        chosen()

    def write(self) -> None:
        if pair := self._any():
            way = self._dice.randrange(2)
            hosts = self._place.b, self._place.a
            with hosts[way].pd.alloc(
                4096, Access.LOCAL_WRITE | Access.REMOTE_WRITE, scope="pd"
            ) as region:
                data = self._dice.randbytes(self._dice.randrange(1, 4097))
                pair.ends[way].qp.write(data, region.remote(), timeout=WAIT)
                assert bytes(region.buf[: len(data)]) == data

    def rekey(self) -> None:
        if pair := self._any():
            pair.ends[self._dice.randrange(2)].rekey(WAIT)

    def listen(self) -> None:
        self._room()
        self._pairs.append(Ends(self._place.connect()))

    def meet(self) -> None:
        self._room()
        options = {"timeout": WAIT, "mode": self._dice.choice(["basic", "pd"])}
        a = srdma.rendezvous(self._place.a.pd, identity="host-a", peer=B, **options)
        b = srdma.rendezvous(self._place.b.pd, identity="host-b", peer=A, **options)
        other = run(b.connect, a.gid, a.qp_num)
        try:
            mine = a.connect(b.gid, b.qp_num)
        except srdma.Error as error:
            with pytest.raises(srdma.Error) as theirs:
                other()
            error.add_note(f"host B: {theirs.value}")
            raise
        self._pairs.append(Ends((mine, other())))

    def close(self) -> None:
        if pair := self._any():
            self._pairs.remove(pair)
            for end in self._dice.sample(pair.ends, 2):
                end.close()

    def restart(self) -> None:
        which = self._dice.randrange(2)
        agent = self._place.agents[which]
        self.memory(which)
        agent.process.send_signal(self._dice.choice([signal.SIGKILL, signal.SIGTERM]))
        agent.process.wait(WAIT)
        self.audits[which].join(WAIT)
        self.faults += self.audits[which].faults
        agent.start()
        self.audits[which] = Audit(agent)
        self._first[which] = rss(agent)
        for pair in self._pairs:
            assert all(end.alive() for end in pair.ends)

    def memory(self, which: int) -> None:
        grown = rss(self._place.agents[which]) - self._first[which]
        assert grown < GROWTH, grown

    def end(self) -> None:
        for pair in self._pairs:
            for end in pair.ends:
                end.rekey(WAIT)
        self.memory(0)
        self.memory(1)
        assert not self.faults + self.audits[0].faults + self.audits[1].faults

    def _any(self) -> Ends | None:
        return self._dice.choice(self._pairs) if self._pairs else None

    def _room(self) -> None:
        if len(self._pairs) >= CONNECTIONS:
            self.close()


def rss(agent: Agent) -> int:
    """Resident memory of an agent in bytes."""
    pages = Path(f"/proc/{agent.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def place(pki: Path, tmp_path: Path) -> Iterator[Place]:
    with gid_hosts(pki, tmp_path) as place:
        yield place


@pytest.mark.parametrize("seconds", [SHORT, pytest.param(SECONDS, marks=pytest.mark.soak)])
def test_random_work(place: Place, seconds: float) -> None:
    """No request is lost, no QP ends and no agent has a fault, whatever is restarted."""
    soak = Soak(place)
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        soak.step()
    soak.end()
    print(f"seed {SEED}: {dict(soak.steps)}")
