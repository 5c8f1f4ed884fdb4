"""The rate of exchanges of a session (protocol.md 8.5), and of all sessions of an agent."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable

EVERY = 1.0  # seconds per exchange in the long run
BURST = 10  # exchanges at once that an end begins, or asks for
PEERS_BURST = 2 * BURST  # that a client may begin unasked; more than BURST, for an agent's restart


TURNS = 64  # exchanges of an agent at the same time
HELD = 2.0  # seconds after which an exchange counts no longer: its peer may be slow


class Pace:
    """Permits `burst` events at once, and one per `every` seconds in the long run. Time is an
    argument."""

    __slots__ = ("_every", "_paid", "_room")

    def __init__(self, burst: int, every: float = EVERY) -> None:
        self._every, self._room = every, (burst - 1) * every
        self._paid = float("-inf")  # time up to which the events so far would last

    def take(self, now: float) -> bool:
        """Count an event. False, without effect, if it comes too early."""
        paid = max(self._paid, now)
        if paid - now > self._room:
            return False
        self._paid = paid + self._every
        return True

    def used(self, now: float) -> int:
        """Number of events that still count."""
        return math.ceil(max(self._paid - now, 0) / self._every)

    @property
    def next(self) -> float:
        """Time from which take() permits an event."""
        return self._paid - self._room


class Turns:
    """Permits TURNS exchanges at the same time. Others wait in the order in which they were due."""

    def __init__(self) -> None:
        self._held: dict[object, float] = {}  # who has a turn -> when it is over; the oldest first
        self._waiting: list[tuple[float, int, object]] = []  # due time, number, who
        self._calls: dict[object, tuple[int, Callable[[], None]]] = {}  # and number of who waits
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def take(self, who: object, due: float, call: Callable[[], None]) -> bool:
        """True if it is the turn of `who`, until give(). Otherwise call() follows, once."""
        if who not in self._calls and who not in self._held:
            number = next(self._numbers)
            heapq.heappush(self._waiting, (due, number, who))
            self._calls[who] = number, call
            self._pass(who)
        return who in self._held

    def waits(self, who: object) -> bool:
        """True if the call of take() will follow."""
        return who in self._calls

    def give(self, who: object) -> None:
        """End the turn of `who`, or its wait."""
        waited = self._calls.pop(who, None)
        if self._held.pop(who, None) or waited:
            self._pass()

    def _pass(self, caller: object = None) -> None:
        """Give the free turns."""
        now = time.monotonic()
        for who in [who for who, end in self._held.items() if end <= now]:
            del self._held[who]
        while self._calls and len(self._held) < TURNS:
            _, number, who = heapq.heappop(self._waiting)
            waits, call = self._calls.get(who, (None, None))
            if call and waits == number:  # it has not given up this wait
                del self._calls[who]
                self._held[who] = now + HELD
                if who is not caller:
                    call()
        if not self._calls:
            self._waiting.clear()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(next(iter(self._held.values())), self._over)

    def _over(self) -> None:
        self._timer = None
        self._pass()
