"""A program's use of a multicast group, from its turn to its end (agent.md 14)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from srdma.agent.calls import USES, Callers
from srdma.agent.channel import Channel, until_closed
from srdma.agent.memberships import Memberships, Use
from srdma.agent.subscriptions import ROUND, Subscriptions
from srdma.agent.tasks import first_of
from srdma.keyex.fields import ExchangeError


class Multicast:
    """The uses of groups by all programs of an agent."""

    def __init__(self, memberships: Memberships, subscriptions: Subscriptions) -> None:
        self._memberships, self._subscriptions = memberships, subscriptions
        self.users = Callers(USES)

    async def run(
        self,
        channel: Channel,
        made: Callable[[], Awaitable[Use]],
        worker_ended: asyncio.Future[None],
    ) -> None:
        """Serve the channel of a use until its end. made: makes the use, when it is its turn, and
        checks its QP. Raises ExchangeError."""
        await until_closed(channel, self._serve(channel, made), _worker_over(worker_ended))

    async def _serve(self, channel: Channel, made: Callable[[], Awaitable[Use]]) -> NoReturn:
        (await self.users.of(channel.uid).begin()).end(failed=True)
        use = await made()
        with self._memberships.used(use), self._subscriptions.of(use) as answers:
            await first_of(_joined(use, answers), _over(use))


async def _joined(use: Use, answers: list[asyncio.Future[None]]) -> NoReturn:
    """Report once that the hosts have answered, or have had the time to."""
    await asyncio.wait(answers, timeout=ROUND)
    use.channel.report("joined")
    await asyncio.Event().wait()
    raise AssertionError("nothing sets the event")


async def _over(use: Use) -> NoReturn:
    raise await use.over


async def _worker_over(ended: asyncio.Future[None]) -> NoReturn:
    await asyncio.wait([ended])
    raise ExchangeError("worker", "the worker ended")
