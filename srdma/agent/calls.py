"""The rate at which users begin key exchanges and talks without success (agent.md 3).

The programs of all users with an identity share its connections. The peer's agent ends a connection
in which it refuses too many OFFERs and TALKs (protocol.md 8.7): no user may use up this number.
"""

from __future__ import annotations

import asyncio
import time

from srdma.agent.accounts import User
from srdma.agent.tasks import Bell
from srdma.keyex.pace import Pace

UNANSWERED = 2048, 0.04  # calls of a user without an answer: at once, and seconds per further one
USERS_MAX = 1024  # that are remembered, as long as they have not called without success lately


class Calls:
    """The calls of one user. Each counts from begin() until back(), or is used up."""

    def __init__(self) -> None:
        self._pace = Pace(*UNANSWERED)
        self._turn = asyncio.Lock()  # held by the call that is the next one
        self._bell = Bell()

    async def begin(self) -> None:
        """Wait until the user may call, in the order of the calls."""
        async with self._turn:
            while not self._pace.take(time.monotonic()):
                await self._bell.wait(self._pace.next)

    def back(self) -> None:
        """A call was answered, or was not made."""
        self._pace.give_back()
        self._bell.ring()

    def idle(self, now: float) -> bool:
        """True if nothing needs to be remembered."""
        return self._pace.full(now)


class Callers:
    """The calls of all users."""

    def __init__(self) -> None:
        self._of: dict[User, Calls] = {}

    def of(self, user: User) -> Calls:
        if user not in self._of and len(self._of) >= USERS_MAX:
            now = time.monotonic()
            self._of = {who: calls for who, calls in self._of.items() if not calls.idle(now)}
        return self._of.setdefault(user, Calls())
