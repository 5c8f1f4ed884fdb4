"""A lemma, its proof, and the evaluation of formulas on concrete values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import z3

LIMIT_MS = 600_000  # of one proof, which takes at most 5 s on an idle core


@dataclass(frozen=True)
class Lemma:
    """A claim about a formula that holds for all values, and formulas that break it."""

    claim: Callable[[Any], z3.BoolRef]  # its argument is the formula
    formula: Any
    twins: dict[str, Any] = field(default_factory=dict)

    def proved(self) -> z3.CheckSatResult:
        """unsat: no value contradicts the claim."""
        return contradiction(self.claim(self.formula))

    def refuted(self, twin: str) -> z3.CheckSatResult:
        """sat: z3 found values that contradict the claim for this twin."""
        return contradiction(self.claim(self.twins[twin]))


def contradiction(claim: z3.BoolRef) -> z3.CheckSatResult:
    solver = z3.Solver()
    solver.set("timeout", LIMIT_MS)
    solver.add(z3.Not(claim))
    return solver.check()


def number(value: int, bits: int = 64) -> z3.BitVecRef:
    return z3.BitVecVal(value, bits)


def value(expression: Any) -> int:
    """Value of an expression without variables. A Bool is 0 or 1."""
    found = z3.simplify(expression)
    if z3.is_bv_value(found) or z3.is_int_value(found):
        return found.as_long()
    assert z3.is_true(found) or z3.is_false(found), found
    return int(z3.is_true(found))


def wide(x: z3.BitVecRef, bits: int = 72) -> z3.BitVecRef:
    """The same number with more bits, so that sums do not wrap."""
    return z3.ZeroExt(bits - x.size(), x)
