"""Names of peers' hosts (srdma/agent/names.py): one user's do not delay those of others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from srdma.agent import names
from srdma.agent.accounts import User
from srdma.agent.dial import dial
from srdma.agent.links import Links
from srdma.agent.names import LOOKUPS, THREADS, Names
from srdma.agent.settings import Identity
from srdma.keyex.fields import ExchangeError
from tests.keyex_players import PATIENCE, load

MANY = 100  # more than the threads of an executor


class Resolver:
    """Does not answer until `go` is set, but for localhost. asked: how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.asked: Counter[str] = Counter()
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._found)

    def _found(self, host: str, *rest: Any, **more: Any) -> Any:
        self.asked[host] += 1
        if host != "localhost":
            self.go.wait(PATIENCE)
            raise socket.gaierror(-2, "Name or service not known")
        return self._real(host, *rest, **more)

    async def is_asked(self, host: str, times: int = LOOKUPS) -> None:
        while self.asked[host] < times:
            await asyncio.sleep(0.01)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    resolver = Resolver(monkeypatch)
    yield resolver
    resolver.go.set()


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield "localhost", listening.getsockname()[1]


@pytest.mark.parametrize("closes", [False, True])
def test_names_that_nobody_knows(
    resolver: Resolver, address: tuple[str, int], closes: bool
) -> None:
    """closes: the program that asked goes away, and its look-ups go on."""

    async def both() -> None:
        shared = Names()
        one, other = (partial(shared.addresses, user) for user in (7, 8))
        slow = [asyncio.ensure_future(dial("slow.invalid", 1, "", one)) for _ in range(MANY)]
        await resolver.is_asked("slow.invalid")
        if closes:
            for task in slow:
                task.cancel()
            await asyncio.wait(slow)
            again = asyncio.ensure_future(dial("slow.invalid", 1, "", one))
        async with asyncio.timeout(PATIENCE):
            (await dial(*address, "", other)).close()
        assert resolver.asked["slow.invalid"] == LOOKUPS
        resolver.go.set()
        for task in [again] if closes else slow:
            with pytest.raises(ExchangeError, match="no such host") as caught:
                await task
            assert caught.value.code == "name"

    asyncio.run(both())


def test_same_name_of_another_user(
    resolver: Resolver, identities: Path, address: tuple[str, int]
) -> None:
    """A user with one identity asks for slow names, and then for a peer of another user with the
    same identity, who does not wait for the former."""

    async def both() -> None:
        links, own = Links(cast(Any, None)), Identity(load(identities, "a"), ())
        slow = [
            asyncio.ensure_future(links.meet(own, each, user=7))
            for each in [*(("slow.invalid", 1 + n) for n in range(LOOKUPS)), address]
        ]
        await resolver.is_asked("slow.invalid")
        assert not resolver.asked["localhost"]
        other = asyncio.ensure_future(links.meet(own, address, user=8))
        async with asyncio.timeout(PATIENCE):
            await resolver.is_asked("localhost", 1)
        resolver.go.set()
        for task in (*slow, other):
            task.cancel()
        await asyncio.wait((*slow, other))

    asyncio.run(both())


def test_name_that_has_no_encoding() -> None:
    async def one() -> None:
        with contextlib.closing(await dial(f"{'x' * 64}.invalid", 1)):
            raise AssertionError("not reached")

    with pytest.raises(ExchangeError, match="no such host"):
        asyncio.run(one())


class Turns:
    """Look-ups without threads, each of which ends by end(). begun: their users."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[User] = []
        self._ends: list[asyncio.Future[None]] = []
        self._names = Names()
        self._tasks = set[asyncio.Future[Any]]()
        monkeypatch.setattr(names, "looked_up", self._look_up)

    async def _look_up(self, host: str, port: int) -> list[tuple[Any, ...]]:
        self.begun.append(port)
        self._ends.append(asyncio.get_running_loop().create_future())
        await self._ends[-1]
        return []

    async def ask(self, *users: int) -> list[asyncio.Future[Any]]:
        found = [asyncio.ensure_future(self._names.addresses(user, "", user)) for user in users]
        self._tasks.update(found)
        await settled()
        return found

    async def end(self, *numbers: int) -> None:
        """The look-ups with these numbers in `begun` end."""
        for number in numbers:
            self._ends[number].set_result(None)
        await settled()

    async def finish(self) -> None:
        while left := [n for n, end in enumerate(self._ends) if not end.done()]:
            await self.end(*left)
        await asyncio.wait(self._tasks)
        assert not self._names._waiting and not self._names._running


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def turns(monkeypatch: pytest.MonkeyPatch, work: Callable[[Turns], Awaitable[None]]) -> None:
    async def run() -> None:
        made = Turns(monkeypatch)
        await work(made)
        await made.finish()

    asyncio.run(run())


def test_users_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads are in use. A user that asks for much waits no less than one that asks once."""

    async def work(made: Turns) -> None:
        users = [*range(THREADS)]
        await made.ask(*users)
        await made.ask(100, 100, 100, 101, 102, 0)
        assert made.begun == users
        await made.end(1, 2, 3)
        assert made.begun[THREADS:] == [100, 101, 102]
        await made.end(*range(4, 8))  # 0 and 100 have one, and more than half is in use
        assert made.begun[THREADS + 3 :] == []
        await made.end(0)
        assert made.begun[THREADS + 3 :] == [0]

    turns(monkeypatch, work)


def test_second_thread_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has one while fewer than half of the threads are in use, and never a third one."""

    async def work(made: Turns) -> None:
        await made.ask(100, 100, 100)
        assert made.begun == [100, 100]
        await made.ask(*range(THREADS // 2 - 2))
        await made.ask(0, 200)
        assert made.begun[2:] == [*range(THREADS // 2 - 2), 200]
        await made.end(0, 1)
        assert made.begun[-1] == 100
        await made.end(3)
        assert made.begun[-1] == 0

    turns(monkeypatch, work)


def test_look_ups_that_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits takes no place; one whose turn has come at the same time gives it back."""

    async def work(made: Turns) -> None:
        _, _, waits, next_, last = await made.ask(7, 7, 7, 7, 7)
        waits.cancel()
        await settled()
        made._ends[0].set_result(None)
        while not made._names._waiting.get(7) or len(made._names._waiting[7]) > 1:
            await asyncio.sleep(0)
        next_.cancel()
        await settled()
        assert next_.cancelled() and made.begun == [7, 7, 7]
        last.cancel()
        await settled()

    turns(monkeypatch, work)


def test_turn_that_comes_to_a_look_up_that_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another look-up ends after the cancellation, and before the task knows of it."""

    async def work(made: Turns) -> None:
        _, _, waits, last = await made.ask(7, 7, 7, 7)
        made._ends[0].set_result(None)
        await asyncio.sleep(0)
        waits.cancel()
        await settled()
        assert waits.cancelled() and not last.done() and made.begun == [7, 7, 7]

    turns(monkeypatch, work)
