"""Limits of each user at an agent, or at a proxy (agent.md 2)."""

from __future__ import annotations

import asyncio
from collections import Counter
from weakref import WeakValueDictionary

from srdma.agent.accounts import User
from srdma.agent.closing import waiting

CHANNELS_MAX = 16_384  # of a user
ROOM_MAX = 16 << 20  # bytes of requests of one user that wait in all its channels


class Room:
    """The requests of one user that wait. used: their bytes. turn: of their first messages."""

    __slots__ = ("__weakref__", "turn", "used")

    def __init__(self) -> None:
        self.used = 0
        self.turn = asyncio.Lock()

    @property
    def full(self) -> bool:
        return self.used > ROOM_MAX


class Users:
    """The channels of all users, and the rooms of those that have one."""

    def __init__(self) -> None:
        self._channels: Counter[User] = Counter()
        self._rooms = WeakValueDictionary[User, Room]()

    def may_enter(self, user: User) -> bool:
        """True if a user may have another channel."""
        return self._channels[user] + waiting(user) < CHANNELS_MAX

    def enter(self, user: User) -> None:
        self._channels[user] += 1

    def leave(self, user: User) -> None:
        self._channels[user] -= 1
        if not self._channels[user]:
            del self._channels[user]

    def room(self, user: User) -> Room:
        """The room that all channels of a user share."""
        return self._rooms.setdefault(user, Room())
