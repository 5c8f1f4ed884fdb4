"""Arithmetic on lengths: bounds of a region (srdma_mr_covers), layout of a datagram (wire.c)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import z3
from z3 import UGT, ULE, ULT, And, ArithRef, BitVec, BitVecRef, Bool, BoolRef, If, Implies, Not, Or

from .lemma import Lemma, number, wide

# --- bounds of a region -------------------------------------------------------

# 64-bit words as integers: z3 decides linear arithmetic in milliseconds, and the same claim on bit
# vectors in a minute.
WORD = 1 << 64
BASE, LENGTH, ADDR, SIZE = (z3.Int(name) for name in ("base", "length", "addr", "size"))


def plus(a: ArithRef, b: ArithRef) -> ArithRef:
    return If(a + b >= WORD, a + b - WORD, a + b)


def minus(a: ArithRef, b: ArithRef) -> ArithRef:
    return If(a >= b, a - b, a - b + WORD)


def within(base: ArithRef, length: ArithRef, addr: ArithRef, size: ArithRef) -> BoolRef:
    return And(size <= length, addr >= base, minus(addr, base) <= minus(length, size))


def by_sums(base: ArithRef, length: ArithRef, addr: ArithRef, size: ArithRef) -> BoolRef:
    return And(addr >= base, plus(addr, size) <= plus(base, length))


def without_size(base: ArithRef, length: ArithRef, addr: ArithRef, size: ArithRef) -> BoolRef:
    return And(addr >= base, minus(addr, base) <= minus(length, size))


def exact(formula: Any) -> BoolRef:
    words = And(*(And(x >= 0, x < WORD) for x in (BASE, LENGTH, ADDR, SIZE)))
    inside = And(ADDR >= BASE, ADDR + SIZE <= BASE + LENGTH)
    return Implies(words, formula(BASE, LENGTH, ADDR, SIZE) == inside)


# --- layout of a datagram -----------------------------------------------------

BTH, STH, STH_PROOF, BODY, GAP, MAX_GAPS = 12, 8, 32, 28, 12, 8
MAX_PACKET = 12 + 4 + 8 + 64 + 28 + 8 * 12 + 4096 + 3
SHORT, GAPS, LENGTH_OF_PAYLOAD, FINE = range(4)  # verdicts


def word(n: int) -> BitVecRef:
    return number(n, 32)


class Datagram(NamedTuple):
    """The values that parse_layout() and parse_payload() read, each of 32 bits."""

    length: BitVecRef
    extension: BitVecRef  # bytes of the extension headers
    proof: BoolRef
    ack: BoolRef
    payload: BoolRef  # the opcode may have a payload
    only: BoolRef  # the opcode may have an empty payload
    gaps: BitVecRef
    tag: BitVecRef
    pad: BitVecRef
    mtu: BitVecRef


class Layout(NamedTuple):
    verdict: BitVecRef
    tag_at: BitVecRef
    payload_at: BitVecRef
    payload: BitVecRef  # bytes


@dataclass(frozen=True)
class Parser:
    """The arithmetic of wire.c; a twin has other values."""

    gaps_counted: bool = True  # the payload begins after the gaps
    pad_first: bool = True  # a pad longer than the rest is refused
    cap: int = MAX_PACKET + 1  # a length that is enough to refuse a longer datagram

    def __call__(self, d: Datagram) -> Layout:
        length = If(UGT(d.length, MAX_PACKET), word(self.cap), d.length)
        sth_at = word(BTH) + d.extension
        tag_at = sth_at + If(d.proof, word(STH_PROOF), word(STH))
        need = tag_at + d.tag
        gaps = word(GAP) * d.gaps if self.gaps_counted else word(0)
        payload_at = need + If(d.ack, word(BODY) + gaps, word(0))
        rest = length - payload_at
        payload = rest - d.pad
        refused = [
            (ULT(d.length, BTH + STH), SHORT),
            (ULT(length, sth_at + STH), SHORT),
            (And(d.ack, ULT(length, need + BODY)), SHORT),
            (And(d.ack, UGT(d.gaps, MAX_GAPS)), GAPS),
            (ULT(length, payload_at), SHORT),
            (self.too_long(rest, d), LENGTH_OF_PAYLOAD),
            (Not(If(d.payload, Or(payload != 0, d.only), payload == 0)), LENGTH_OF_PAYLOAD),
        ]
        verdict = word(FINE)
        for condition, result in reversed(refused):
            verdict = If(condition, word(result), verdict)
        return Layout(verdict, tag_at, payload_at, payload)

    def too_long(self, rest: BitVecRef, d: Datagram) -> BoolRef:
        if self.pad_first:
            return Or(ULT(rest, d.pad), UGT(rest - d.pad, d.mtu))
        return UGT(rest, d.mtu + d.pad)


def variables() -> Datagram:
    words = {
        name: BitVec(name, 32) for name in ("length", "extension", "gaps", "tag", "pad", "mtu")
    }
    flags = {name: Bool(name) for name in ("proof", "ack", "payload", "only")}
    return Datagram(**words, **flags)


D = variables()
# Values that parse_bth(), the table of opcodes and the QP's parameters permit. The extension
# headers of an ack are an AETH, and no flag P is legal on it.
LEGAL = And(
    *(ULE(D.extension, 28), ULE(D.gaps, 255), ULE(D.tag, 64), ULE(D.pad, 3), ULE(D.mtu, 4096)),
    Implies(D.ack, And(D.extension == 4, Not(D.proof), Not(D.payload))),
)


def complete(parser: Any) -> BoolRef:
    """The parts of an accepted datagram are all of it, and the payload fits the MTU."""
    found = parser(D)
    total = wide(found.payload_at) + wide(found.payload) + wide(D.pad)
    accepted = And(LEGAL, found.verdict == FINE)
    return Implies(accepted, And(total == wide(D.length), ULE(found.payload, D.mtu)))


def inside(parser: Any) -> BoolRef:
    """Tag, ack body and payload lie in the datagram, in this order."""
    found = parser(D)
    body = If(D.ack, word(BODY) + word(GAP) * D.gaps, word(0))
    ends = And(
        ULE(wide(found.tag_at) + wide(D.tag) + wide(body), wide(found.payload_at)),
        ULE(wide(found.payload_at) + wide(found.payload), wide(D.length)),
    )
    return Implies(And(LEGAL, found.verdict == FINE), ends)


LEMMAS = {
    "an access is allowed if and only if all its bytes are in the region": Lemma(
        exact, within, {"sums that wrap": by_sums, "a size that wraps": without_size}
    ),
    "header, body, payload and pad are the datagram": Lemma(
        complete,
        Parser(),
        {
            "a pad beyond the rest": Parser(pad_first=False),
            "a long datagram is cut to a short one": Parser(cap=MAX_PACKET // 2),
        },
    ),
    "tag, body and payload lie in the datagram": Lemma(
        inside,
        Parser(),
        {
            "gaps in the payload": Parser(gaps_counted=False),
            "a pad beyond the rest": Parser(pad_first=False),
        },
    ),
}
