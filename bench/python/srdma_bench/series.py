"""Runs in turn on a noisy machine, and their statistics: the median and the quartiles."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from srdma.errors import LocalError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of repetitions."""

    median: float
    low: float  # first quartile
    high: float  # third quartile
    rounds: int

    def scaled(self, by: float) -> Spread:
        """The spread in another unit: all values multiplied by `by`."""
        low, high = sorted((self.low * by, self.high * by))
        return Spread(self.median * by, low, high, self.rounds)

    def __format__(self, spec: str) -> str:
        return f"{self.median:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def spread(values: Iterable[float]) -> Spread:
    """Median and interpolated quartiles of the values; one value is its own quartiles.

    Raises LocalError without values.
    """
    have = sorted(values)
    if not have:
        raise LocalError("no values: a series needs at least one round")
    if len(have) == 1:
        return Spread(have[0], have[0], have[0], 1)
    low, median, high = statistics.quantiles(have, n=4, method="inclusive")
    return Spread(median, low, high, len(have))


def in_turn(runs: Mapping[K, Callable[[], T]], rounds: int) -> dict[K, list[T]]:
    """Execute each run once per round (a, b, ..., a, b, ...), so that noise affects all equally.

    Every second round has the reverse order, so that no run always follows the same one. Raises
    LocalError for less than one round.
    """
    if rounds < 1:
        raise LocalError(f"{rounds} rounds: give at least 1")
    results: dict[K, list[T]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            results[name].append(runs[name]())
    return results


def ratios(of: Sequence[float], to: Sequence[float]) -> Spread:
    """The ratios of / to of each round: only values of the same round are compared.

    Raises LocalError if the numbers of rounds differ.
    """
    if len(of) != len(to):
        raise LocalError(f"{len(of)} and {len(to)} rounds: a ratio needs equal numbers")
    return spread(a / b for a, b in zip(of, to, strict=True))
