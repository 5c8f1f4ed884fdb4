"""Alternating rounds, and their statistics."""

from __future__ import annotations

import pytest

from srdma.errors import LocalError
from srdma_bench.series import Spread, in_turn, ratios, spread


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([4.0], Spread(4, 4, 4, 1)),
        ([1.0, 3.0], Spread(2, 1.5, 2.5, 2)),
        ([5.0, 1.0, 4.0, 2.0, 3.0], Spread(3, 2, 4, 5)),
        ([7.0] * 9, Spread(7, 7, 7, 9)),
    ],
)
def test_median_and_quartiles(values, expected):
    assert spread(iter(values)) == expected


def test_without_values():
    with pytest.raises(LocalError, match="at least one round"):
        spread([])


def test_conversion_of_the_unit():
    assert spread([1.0, 2.0, 3.0]).scaled(1000) == Spread(2000, 1500, 2500, 3)
    assert spread([1.0, 2.0, 3.0]).scaled(-1) == Spread(-2, -2.5, -1.5, 3)
    assert f"{spread([1.0, 2.0, 3.0]):.1f}" == "2.0 [1.5, 2.5]"


def test_rounds_alternate_in_both_orders():
    ran: list[str] = []

    def run(name: str) -> int:
        ran.append(name)
        return len(ran)

    runs = {name: lambda name=name: run(name) for name in "abc"}
    results = in_turn(runs, 3)
    assert "".join(ran) == "abccbaabc"
    assert results == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}


def test_no_rounds():
    with pytest.raises(LocalError, match="0 rounds"):
        in_turn({}, 0)


def test_ratios_are_computed_per_round():
    assert ratios([2.0, 30.0, 8.0], [1.0, 10.0, 2.0]) == Spread(3, 2.5, 3.5, 3)
    with pytest.raises(LocalError, match="1 and 2 rounds"):
        ratios([1.0], [1.0, 2.0])
