"""The places of those that wait at an agent (agent.md 3, *Fair places*)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
K = TypeVar("K")


Holders = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """most: how many may wait. holders: of one that waits, those that share the places, for example
    its identity and its GID, always in this order; without them it keeps its place."""

    most: int
    holders: Holders = ()


Limits = Mapping[Hashable, Limit]  # by what has the places, for example a port


class Full(Exception):  # noqa: N818 - an answer, not a fault
    """No place is free. at: a key of Limits."""

    def __init__(self, at: Hashable) -> None:
        super().__init__(at)
        self.at = at


class _Crowd(Generic[T]):
    """The ones that wait under one limit."""

    def __init__(self) -> None:
        self.waiting: dict[T, Holders] = {}  # the oldest first; () for one that gives no way
        self._sets = Counter[Holders]()
        self._of = Counter[str]()  # how many a holder has

    def add(self, one: T, holders: Holders) -> None:
        self.waiting[one] = holders
        self._of.update(holders)
        if holders:
            self._sets[holders] += 1

    def fix(self, one: T) -> None:
        """It waits still, and keeps its place."""
        holders = self.waiting[one]
        self.waiting[one] = ()
        for holder in holders:
            _less(self._of, holder)
        if holders:
            _less(self._sets, holders)

    def remove(self, one: T) -> None:
        self.fix(one)
        del self.waiting[one]

    def displaced(self, holders: Holders) -> T | None:
        """The one that gives way to a further one of these holders; None: they have too many. Each
        refused peer costs a look at all sets of holders, of which a peer can make many."""
        mine = [(own, self._of[own] + 1) for own in holders]
        most, most_excess = None, 0
        for others in self._sets:
            if (excess := self._excess(others, mine)) > most_excess:
                most, most_excess = others, excess
        if most is None:
            return None
        return next(one for one, others in self.waiting.items() if others == most)

    def _excess(self, others: Holders, mine: list[tuple[str, int]]) -> int:
        """How many places these holders would have more than mine, if one of theirs became mine. A
        holder of both is not compared. Not above 0: two could displace each other without end.
        mine: each holder, and how many it would have."""
        total = 0
        for other, (own, number) in zip(others, mine, strict=False):
            if other != own:
                more = self._of[other] - number
                if more < 0:
                    return -1
                total += more
        return total


def _less(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


class Places(Generic[T]):
    """See the description of the module."""

    def __init__(self) -> None:
        self._crowds: dict[Hashable, _Crowd[T]] = {}

    def add(self, one: T, limits: Limits) -> None:
        """It waits until remove(). See make_room()."""
        for key, limit in limits.items():
            self._crowds.setdefault(key, _Crowd()).add(one, limit.holders)

    def fix(self, one: T, limits: Limits) -> None:
        """It has its places until remove()."""
        for key in limits:
            self._crowds[key].fix(one)

    def remove(self, one: T, limits: Limits) -> None:
        for key in limits:
            crowd = self._crowds[key]
            crowd.remove(one)
            if not crowd.waiting:
                del self._crowds[key]

    def make_room(self, limits: Limits) -> list[T]:
        """Returns the ones that must give way to a further one. Raises Full."""
        gone: list[T] = []
        for key, limit in limits.items():
            crowd = self._crowds.get(key) or _Crowd[T]()
            if len(crowd.waiting) - sum(one in crowd.waiting for one in gone) >= limit.most:
                if (one := crowd.displaced(limit.holders)) is None:
                    raise Full(key)
                gone.append(one)
        return gone

    def count(self, key: Hashable) -> int:
        """How many wait under a limit."""
        return len(self._crowds[key].waiting) if key in self._crowds else 0
