"""The rate at which users begin what the peer's agent may count against all of them (agent.md 3).

The programs of all users with an identity share its connections. The peer's agent ends a connection
in which it refuses too many streams that begin with OFFER, TALK or ASK (protocol.md 8.7): no user
may use up this number.
"""

from __future__ import annotations

import asyncio
import time

from srdma.agent.accounts import User, group
from srdma.agent.tasks import Bell
from srdma.keyex.pace import Pace
from srdma.keyex.renew import NEVER

# Calls of a user that have no answer or have failed, at once; seconds after which a failed one
# counts no longer.
UNANSWERED = 2048, 0.04
# The same of talks to members of multicast groups, which the user did not choose.
OF_MEMBERS = 512, 0.1
# Uses of groups that a user begins, at once; seconds for one more in the long run. The peer counts
# the end of the stream of each (protocol.md 8.10): they all count as failed.
USES = 1024, 0.1


class Begun:
    """A call that has begun."""

    def __init__(self, calls: Calls) -> None:
        self._calls: Calls | None = calls

    def end(self, *, failed: bool) -> None:
        """The call was answered, or not made, or it has failed; without effect the second time."""
        calls, self._calls = self._calls, None
        if calls:
            calls.ended(failed=failed)


class Calls:
    """The calls of one user."""

    def __init__(self, most: int, every: float) -> None:
        """See UNANSWERED."""
        self._most, self._every = most, every
        self._open = 0
        self._failed = Pace(most, every)
        self._turn = asyncio.Lock()  # held by the call that is the next one
        self._bell = Bell()

    async def begin(self) -> Begun:
        """Wait until the user may call, in the order of the calls."""
        async with self._turn:
            while self._open + (failed := self._failed.used(time.monotonic())) >= self._most:
                await self._bell.wait(time.monotonic() + self._every if failed else NEVER)
            self._open += 1
            return Begun(self)

    def ended(self, *, failed: bool) -> None:
        """For Begun."""
        self._open -= 1
        if failed:
            self._failed.take(time.monotonic())
        self._bell.ring()


class Callers:
    """The calls of all users. limit: of each user, see UNANSWERED."""

    def __init__(self, limit: tuple[int, float]) -> None:
        self.limit = limit
        self._of: dict[User, Calls] = {}  # the policy names all of them

    def of(self, user: User) -> Calls:
        """The calls of a user; those of all users of another computer, which can name any number of
        them, are the same."""
        key = group(user) or user
        if key not in self._of:
            self._of[key] = Calls(*self.limit)
        return self._of[key]
