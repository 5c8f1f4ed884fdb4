"""Names of peers' hosts (srdma/agent/dial.py): one identity's do not delay those of others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from srdma.agent import dial as dialing
from srdma.agent.dial import LOOKUPS, dial
from srdma.keyex.fields import ExchangeError
from tests.keyex_players import PATIENCE

MANY = 100  # more than the threads of an executor


class Names:
    """A resolver that does not answer until `go` is set, but for localhost. asked: how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.asked: Counter[str] = Counter()
        self._real = socket.getaddrinfo
        monkeypatch.setattr(dialing.socket, "getaddrinfo", self._found)

    def _found(self, host: str, *rest: Any, **more: Any) -> Any:
        self.asked[host] += 1
        if host != "localhost":
            self.go.wait(PATIENCE)
            raise socket.gaierror(-2, "Name or service not known")
        return self._real(host, *rest, **more)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names(monkeypatch)
    yield names
    names.go.set()


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield "localhost", listening.getsockname()[1]


async def begun(names: Names, host: str) -> None:
    """Waits until the resolver is asked for a name as often as is permitted."""
    while names.asked[host] < LOOKUPS:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("closes", [False, True])
def test_names_that_nobody_knows(names: Names, address: tuple[str, int], closes: bool) -> None:
    """closes: the program that asked goes away, and its lookups go on."""

    async def both() -> None:
        slow = [asyncio.ensure_future(dial("slow.invalid", 1, owner="a")) for _ in range(MANY)]
        await begun(names, "slow.invalid")
        if closes:
            for task in slow:
                task.cancel()
            await asyncio.wait(slow)
            again = asyncio.ensure_future(dial("slow.invalid", 1, owner="a"))
        async with asyncio.timeout(PATIENCE):
            (await dial(*address, owner="b")).close()
        assert names.asked["slow.invalid"] == LOOKUPS
        names.go.set()
        for task in [again] if closes else slow:
            with pytest.raises(ExchangeError, match="no such host") as caught:
                await task
            assert caught.value.code == "name"

    asyncio.run(both())


def test_name_that_has_no_encoding() -> None:
    async def one() -> None:
        with contextlib.closing(await dial(f"{'x' * 64}.invalid", 1)):
            raise AssertionError("not reached")

    with pytest.raises(ExchangeError, match="no such host"):
        asyncio.run(one())
