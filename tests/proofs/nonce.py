"""The nonce of a packet (make_nonce in session/flow.c)."""

from __future__ import annotations

from typing import Any

import z3
from z3 import ULT, And, BitVec, BitVecRef, BoolRef, Implies, Or

from .lemma import Lemma, number

END = number(1 << 62)


def nonce(iv: BitVecRef, direction: BitVecRef, pn: BitVecRef) -> BitVecRef:
    """96 bits; direction has 8 bits and is 0 or 1."""
    low = z3.ZeroExt(56, direction) << 63 | pn
    return iv ^ z3.ZeroExt(32, low)


def of_low_half(iv: BitVecRef, direction: BitVecRef, pn: BitVecRef) -> BitVecRef:
    return nonce(iv, direction, z3.ZeroExt(32, z3.Extract(31, 0, pn)))


def without_direction(iv: BitVecRef, direction: BitVecRef, pn: BitVecRef) -> BitVecRef:
    return nonce(iv, z3.BitVecVal(0, 8), pn)


def with_direction_in_the_number(iv: BitVecRef, direction: BitVecRef, pn: BitVecRef) -> BitVecRef:
    return iv ^ z3.ZeroExt(32, z3.ZeroExt(56, direction) << 61 | pn)


IV = BitVec("iv", 96)
A, B = ((BitVec(f"direction{i}", 8), BitVec(f"pn{i}", 64)) for i in "ab")


def injective(formula: Any) -> BoolRef:
    """Two packets under one key and IV have one nonce only if they are the same packet."""
    legal = And(*(And(ULT(d, 2), ULT(pn, END)) for d, pn in (A, B)))
    differ = Or(A[0] != B[0], A[1] != B[1])
    return Implies(And(legal, differ), formula(IV, *A) != formula(IV, *B))


LEMMAS = {
    "packets of one key have different nonces": Lemma(
        injective,
        nonce,
        {
            "half of the packet number": of_low_half,
            "no direction": without_direction,
            "a direction inside the number": with_direction_in_the_number,
        },
    ),
}
