"""Connections that an agent closes because they are idle or silent (srdma/agent/links.py), and the
memory of closed ones. The connections are objects of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srdma.agent import heap, links
from srdma.agent.links import IDLE, KEPT, LOOK, OPEN_MAX, SILENCE, TRIM_AFTER, TRIM_EVERY, Links
from srdma.keyex.streams import Idle, Link

NOW = 1000.0
PORT = 7
SWEEPS = 4  # steps of the event loop, of which each is a look at the connections


class Connection:
    """A connection that this agent made and that may be closed while it is idle, but for changes.

    reached: the number of looks at its acknowledgements.
    """

    version, role, streams, identity = 2, "client", 1, "spiffe://test/peer"
    agent = port = PORT
    parked = replaceable = acknowledges = True

    def __init__(self, used_at: float = NOW, **changes: Any) -> None:
        self.used_at, self.look_at = used_at, 0.0
        self.end: object = None
        self.reached = 0
        self.outer = self
        vars(self).update(changes)

    def parks(self) -> bool:
        return self.parked

    def stuck(self, _: float) -> bool:
        return False

    def reachable(self, within: float) -> bool:
        assert within == SILENCE
        self.reached += 1
        return self.acknowledges

    async def close(self, why: object) -> None:
        self.end = why

    def drop(self, why: str = "") -> None:
        self.end = self.end or why or "dropped"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time; a look follows the last one at once."""
    made = SimpleNamespace(now=NOW)
    monkeypatch.setattr(links, "SWEEP", 0)
    monkeypatch.setattr(links, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def looked(connections: Iterable[Connection]) -> list[Connection]:
    """Lets an agent look at its connections. Returns those that it keeps."""

    async def look() -> list[Connection]:
        made = Links(cast(Any, None))
        for connection in connections:
            made._add(cast(Link, connection))
        for _ in range(SWEEPS):
            await asyncio.sleep(0)
        kept = [cast(Connection, link) for link in made._links]
        assert made._sweeper
        await links.cancelled(made._sweeper)
        return kept

    return asyncio.run(look())


# Idle connections -----------------------------------------------------------------------


def test_numbers() -> None:
    """The numbers of agent.md 3."""
    assert (KEPT, OPEN_MAX, IDLE) == (256, 512, 60.0)


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(links, "OPEN_MAX", 3)
    return 3


def test_longest_idle_connections_are_closed(most: int) -> None:
    """The order in which they were made does not matter."""
    ages = (2, 5, 0, 4, 1, 3)
    made = {age: Connection(NOW - age) for age in ages}
    assert looked(made.values()) == [made[2], made[0], made[1]]
    assert all(isinstance(made[age].end, Idle) for age in (3, 4, 5))


def test_as_many_connections_as_are_kept(most: int) -> None:
    made = [Connection(NOW - 50) for _ in range(most)]
    assert looked(made) == made


@pytest.mark.parametrize(
    "change",
    [
        {"parked": False},  # an exchange is under way, or a session cannot be resumed
        {"role": "server"},  # the peer closes it
        {"agent": 0},  # the peer's agent has no port
        {"port": 0},  # this agent has no port at the address of this end
        {"version": 1},
        {"streams": 0},  # it is closed after UNUSED
    ],
    ids=str,
)
def test_connections_that_are_needed(most: int, change: dict[str, Any]) -> None:
    """Others are closed in their place."""
    needed = [Connection(NOW - 3, **change) for _ in range(most + 1)]
    others = [Connection(NOW - n) for n in range(2)]
    assert looked([*needed, *others]) == needed


def test_connections_of_an_agent_without_a_port(most: int) -> None:
    made = [Connection(NOW - 50, port=0) for _ in range(most + 1)]
    assert looked(made) == made


def test_idle_connections_of_an_agent_that_has_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "KEPT", 2)
    made = [Connection(NOW - age) for age in (IDLE + 1, IDLE + 2)]
    assert looked(made) == made
    made.append(Connection(NOW - IDLE))
    assert looked(made) == made[1:]  # two are left, of which none is closed
    made = [Connection(NOW - IDLE) for _ in range(3)]
    assert looked(made) == made


def test_connections_without_sessions() -> None:
    """The end that made one closes it first."""
    ages = {"client": links.UNUSED, "server": links.UNUSED_HERE}
    for role, age in ages.items():
        made = [Connection(NOW - age - more, role=role, streams=0) for more in (0, 1)]
        assert looked(made) == made[:1]


# Acknowledgements ---------------------------------------------------------------------


def test_one_look_for_all_sessions(clock: SimpleNamespace) -> None:
    """The kernel is asked once per connection and interval, whatever the number of sessions."""
    made = Connection(streams=100)
    for looks in (1, 2):
        looked([made])
        assert made.reached == looks
        clock.now += LOOK - 1
        looked([made])
        assert made.reached == looks
        clock.now += 1


def test_connection_without_acknowledgements() -> None:
    silent, other = Connection(acknowledges=False), Connection()
    assert looked([silent, other]) == [other]
    assert silent.end == "no acknowledgement in 60 s"


@pytest.mark.parametrize("change", [{"replaceable": False}], ids=str)
def test_silent_connection_whose_sessions_need_it(change: dict[str, Any]) -> None:
    """A session that cannot be resumed is left to TCP."""
    made = Connection(acknowledges=False, **change)
    assert looked([made]) == [made] and made.reached == 0


# Memory -------------------------------------------------------------------------------


def test_memory_of_closed_connections(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is returned after TRIM_AFTER connections, but not more often than every TRIM_EVERY."""
    calls: list[float] = []
    monkeypatch.setattr(links, "trim", lambda: calls.append(clock.now))

    async def close(made: Links, number: int) -> None:
        for _ in range(number):
            made._add(cast(Link, Connection(end="closed")))
        for _ in range(SWEEPS):
            await asyncio.sleep(0)

    async def look() -> None:
        made = Links(cast(Any, None))
        made._add(cast(Link, Connection()))
        await close(made, TRIM_AFTER - 1)
        assert not calls
        await close(made, 1)
        assert calls == [NOW]
        clock.now += TRIM_EVERY - 1
        await close(made, TRIM_AFTER)
        assert calls == [NOW]
        clock.now += 1
        await close(made, 0)
        clock.now += TRIM_EVERY
        await close(made, TRIM_AFTER - 1)
        assert calls == [NOW, NOW + TRIM_EVERY]
        assert made._sweeper
        await links.cancelled(made._sweeper)

    asyncio.run(look())


@pytest.mark.parametrize("known", [True, False])
def test_trim(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """It has no effect with a C library without malloc_trim()."""
    calls: list[int] = []
    library = SimpleNamespace(malloc_trim=calls.append) if known else SimpleNamespace()
    monkeypatch.setattr(heap, "ctypes", SimpleNamespace(CDLL=lambda _: library))
    heap._malloc_trim.cache_clear()
    try:
        heap.trim()
        heap.trim()
    finally:
        heap._malloc_trim.cache_clear()
    assert calls == ([0, 0] if known else [])


def test_trim_of_this_process() -> None:
    heap.trim()
