"""A program's use of a multicast group, from its turn to its end (agent.md 14)."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from srdma.agent.calls import USES, Callers
from srdma.agent.channel import until_closed
from srdma.agent.memberships import Memberships, Use
from srdma.agent.subscriptions import ROUND, Subscriptions
from srdma.keyex.fields import ExchangeError


class Multicast:
    """The uses of groups by all programs of an agent."""

    def __init__(self, memberships: Memberships, subscriptions: Subscriptions) -> None:
        self._memberships, self._subscriptions = memberships, subscriptions
        self.users = Callers(USES)

    async def run(self, use: Use, worker_ended: asyncio.Future[None]) -> None:
        """Serve the channel of a use until its end. Raises ExchangeError."""
        ends = [_over(use), _worker_over(worker_ended)]
        await until_closed(use.channel, self._serve(use), *ends)

    async def _serve(self, use: Use) -> NoReturn:
        (await self.users.of(use.channel.uid).begin()).end(failed=True)
        with self._memberships.used(use), self._subscriptions.of(use) as answers:
            await asyncio.wait(answers, timeout=ROUND)
            use.channel.report("joined")
            await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")


async def _over(use: Use) -> NoReturn:
    raise await use.over


async def _worker_over(ended: asyncio.Future[None]) -> NoReturn:
    await asyncio.wait([ended])
    raise ExchangeError("worker", "the worker ended")
