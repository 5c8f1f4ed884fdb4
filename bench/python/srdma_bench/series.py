"""Runs in turn on a noisy machine, and what is said of them: the median and the quartiles."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from srdma.errors import LocalError

T = TypeVar("T")


@dataclass(frozen=True)
class Spread:
    """Of repetitions."""

    median: float
    low: float  # first quartile
    high: float  # third quartile
    rounds: int

    def scaled(self, by: float) -> Spread:
        """In another unit."""
        low, high = sorted((self.low * by, self.high * by))
        return Spread(self.median * by, low, high, self.rounds)

    def __format__(self, spec: str) -> str:
        return f"{self.median:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def spread(values: Iterable[float]) -> Spread:
    """Quartiles are of the values themselves, interpolated; of one value they are that value."""
    have = sorted(values)
    if not have:
        raise LocalError("no values: a series has at least one round")
    if len(have) == 1:
        return Spread(have[0], have[0], have[0], 1)
    low, median, high = statistics.quantiles(have, n=4, method="inclusive")
    return Spread(median, low, high, len(have))


def in_turn(runs: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Each run once per round (a, b, ..., a, b, ...), so that a noisy minute hits all alike.

    Every other round goes backwards, so that no run always follows the same one.
    """
    if rounds < 1:
        raise LocalError(f"{rounds} rounds: at least one would be right")
    results: dict[str, list[T]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            results[name].append(runs[name]())
    return results


def ratios(of: Sequence[float], to: Sequence[float]) -> Spread:
    """of / to, round by round: what was measured side by side is compared, and nothing else."""
    if len(of) != len(to):
        raise LocalError(f"{len(of)} and {len(to)} rounds: a ratio is of as many of each")
    return spread(a / b for a, b in zip(of, to, strict=True))
