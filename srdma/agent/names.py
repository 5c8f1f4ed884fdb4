"""Look-ups of the names of hosts, for all users of an agent (agent.md 3, *Connections*)."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from srdma.agent.accounts import User

LOOKUPS = 2  # of a user at the same time: each has a thread until DNS has answered
THREADS = 64  # for the look-ups of all users


Addresses = list[tuple[Any, ...]]  # as those of getaddrinfo()
LookUp = Callable[[str, int], Awaitable[Addresses]]  # of a host and a port


async def looked_up(host: str, port: int) -> Addresses:
    """The addresses of a host. Raises OSError, and ValueError: the name has no encoding."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


class Names:
    """Look-ups that are under way, and those that wait. A user has its second thread only while
    fewer than half of the threads are in use."""

    def __init__(self) -> None:
        self._running = Counter[User]()
        # The turns that users wait for; the user whose turn is next comes first.
        self._waiting: dict[User, dict[asyncio.Future[None], None]] = {}

    async def addresses(self, user: User, host: str, port: int) -> Addresses:
        """As looked_up(). A look-up that is cancelled goes on in its thread, and counts until its
        end."""
        await self._turn(user)
        found = asyncio.ensure_future(looked_up(host, port))
        found.add_done_callback(partial(self._over, user))
        return await asyncio.shield(found)

    # Internal ---------------------------------------------------------------

    def _may(self, user: User) -> bool:
        running = self._running.total()
        return running < THREADS and (
            self._running[user] < (LOOKUPS if running < THREADS // 2 else 1)
        )

    async def _turn(self, user: User) -> None:
        """Wait until the user may look a name up, which counts from then on."""
        if user not in self._waiting and self._may(user):
            self._running[user] += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, {})[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(user, turn)
            else:  # both at once
                self._end(user)
            raise

    def _over(self, user: User, found: asyncio.Future[Any]) -> None:
        if not found.cancelled():
            found.exception()  # of a look-up whose caller was cancelled
        self._end(user)

    def _end(self, user: User) -> None:
        """A look-up counts no longer. The next ones begin."""
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        for other, turns in [*self._waiting.items()]:
            # The task of a cancelled turn has not run yet: it calls _leave() itself.
            turn = next((turn for turn in turns if not turn.cancelled()), None)
            if turn and self._may(other):
                self._leave(other, turn)
                self._running[other] += 1
                turn.set_result(None)

    def _leave(self, user: User, turn: asyncio.Future[None]) -> None:
        """A look-up waits no longer. The user is behind the others now."""
        turns = self._waiting.pop(user)
        del turns[turn]
        if turns:
            self._waiting[user] = turns
