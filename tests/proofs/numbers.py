"""Inference of a 62-bit number from its low 24 bits (srdma_window_infer)."""

from __future__ import annotations

from typing import Any, NamedTuple

import z3
from z3 import UGE, UGT, ULE, ULT, And, BitVec, BitVecRef, BoolRef, If, Implies, Not, Or

from .lemma import Lemma, number, wide

CYCLE, HALF, END = number(1 << 24), number(1 << 23), number(1 << 62)


class Inferred(NamedTuple):
    found: BoolRef
    number: BitVecRef


def nearest(expected: BitVecRef, low: BitVecRef) -> BitVecRef:
    n = (expected & ~(CYCLE - 1)) | (low & (CYCLE - 1))
    above = ULE(n + HALF, expected)
    below = And(UGT(n, expected + HALF), UGE(n, CYCLE))
    return If(above, n + CYCLE, If(below, n - CYCLE, n))


def infer(expected: BitVecRef, low: BitVecRef) -> Inferred:
    n = nearest(expected, low)
    return Inferred(Not(Or(UGT(n, expected + HALF), UGE(n, END))), n)


def without_end(expected: BitVecRef, low: BitVecRef) -> Inferred:
    n = nearest(expected, low)
    return Inferred(Not(UGT(n, expected + HALF)), n)


def without_underflow(expected: BitVecRef, low: BitVecRef) -> Inferred:
    n = nearest(expected, low)
    return Inferred(Not(UGE(n, END)), n)


def never_above(expected: BitVecRef, low: BitVecRef) -> Inferred:
    n = (expected & ~(CYCLE - 1)) | (low & (CYCLE - 1))
    n = If(And(UGT(n, expected + HALF), UGE(n, CYCLE)), n - CYCLE, n)
    return Inferred(Not(Or(UGT(n, expected + HALF), UGE(n, END))), n)


def tie_below(expected: BitVecRef, low: BitVecRef) -> Inferred:
    n = (expected & ~(CYCLE - 1)) | (low & (CYCLE - 1))
    above = ULT(n + HALF, expected)
    below = And(UGE(n, expected + HALF), UGE(n, CYCLE))
    n = If(above, n + CYCLE, If(below, n - CYCLE, n))
    return Inferred(Not(Or(UGT(n, expected + HALF), UGE(n, END))), n)


EXPECTED, LOW, X = BitVec("expected", 64), z3.ZeroExt(40, BitVec("low", 24)), BitVec("x", 64)
LEGAL = ULE(EXPECTED, END)


def candidate(x: BitVecRef) -> BoolRef:
    """x has the low bits, is a number, and lies in (expected - 2^23, expected + 2^23]."""
    e, half = wide(EXPECTED), wide(HALF)
    near = And(UGT(wide(x) + half, e), ULE(wide(x), e + half))
    return And(x & (CYCLE - 1) == LOW, ULT(x, END), near)


def sound(formula: Any) -> BoolRef:
    found = formula(EXPECTED, LOW)
    return Implies(And(LEGAL, found.found), candidate(found.number))


def complete(formula: Any) -> BoolRef:
    """Every candidate is the result; therefore there is at most one."""
    found = formula(EXPECTED, LOW)
    return Implies(And(LEGAL, candidate(X)), And(found.found, found.number == X))


def no_underflow(formula: Any) -> BoolRef:
    """Low bits that only a negative number could have had are refused."""
    found = formula(EXPECTED, LOW)
    negative = And(ULT(EXPECTED, HALF), UGT(LOW, EXPECTED + HALF))
    return Implies(negative, Not(found.found))


LEMMAS = {
    "an inferred number has the low bits and lies within half a cycle": Lemma(
        sound, infer, {"no end of numbers": without_end, "no second check": without_underflow}
    ),
    "the only candidate is inferred": Lemma(
        complete, infer, {"no step up": never_above, "a tie goes down": tie_below}
    ),
    "a number below zero is refused": Lemma(
        no_underflow, infer, {"no second check": without_underflow}
    ),
}
