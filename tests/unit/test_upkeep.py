"""The upkeep of a session (srdma/agent/upkeep.py) without a connection: its end, and the peers that
may resume it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srdma.agent.sessions import Sessions
from srdma.agent.tasks import Bell, Closed
from srdma.agent.upkeep import Upkeep
from srdma.keyex.fields import ExchangeError
from srdma.keyex.pace import Turns
from srdma.keyex.renew import Renewing, Times
from tests.keyex_players import HOST_A, HOST_B
from tests.renew_players import agreement, done


class Closing:
    """A session whose program has closed, and its identity."""

    def identity(self) -> Any:
        return SimpleNamespace(credentials=SimpleNamespace(identity=HOST_B))

    def requests(self) -> float:
        raise Closed


class Waiting:
    """A meeting. refused: codes of the errors by which it was refused."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def refuse(self, error: ExchangeError) -> None:
        self.refused.append(error.code)


def lost() -> Upkeep:
    """The upkeep of a server whose connection is lost. The caller runs an event loop."""
    server = done()[1].exchange
    record = SimpleNamespace(
        agreement=agreement(server, HOST_A), times=Times(0.0, 60.0), count=0, leg=1, address=None
    )
    worker = SimpleNamespace(control=None, ended=asyncio.get_running_loop().create_future())
    house = SimpleNamespace(sessions=Sessions(), turns=Turns(), links=None)
    return Upkeep(*map(cast(Any, lambda one: one), (record, worker, Closing(), house, Bell())))


@pytest.mark.parametrize(
    ("uri", "identity", "right"),
    [(HOST_B, HOST_A, True), (HOST_A, HOST_A, False), (HOST_B, HOST_B, False)],
)
def test_identities_of_a_resumption(uri: str, identity: str, right: bool) -> None:
    """The peer's, and the one of this end to which it came: an agent may have several."""

    async def compare() -> bool:
        return lost().may_resume(cast(Any, SimpleNamespace(uri=uri, identity=identity)))

    assert asyncio.run(compare()) is right


def test_end_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers that want to resume it are refused, and its secrets are wiped."""
    forgotten: list[Renewing] = []
    monkeypatch.setattr(Renewing, "forget", lambda self: forgotten.append(self))

    async def end() -> None:
        upkeep, offered, proved = lost(), Waiting(), Waiting()
        upkeep._offer, upkeep._proved = cast(Any, (offered, 0)), cast(Any, (proved, 0))
        with pytest.raises(Closed):
            await upkeep.run(None)
        assert forgotten == [upkeep._renewing]
        assert offered.refused == proved.refused == ["resume"]
        assert not cast(Any, upkeep._house).sessions._by_hash

    asyncio.run(end())
