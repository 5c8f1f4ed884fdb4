"""The replay window (srdma_window_test, srdma_window_commit).

The lemmas are about one number x, which stands for all. `committed` says whether x was committed.
The invariant holds for a new window, and each commit of an accepted number preserves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import z3
from z3 import UGE, ULE, ULT, And, BitVec, BitVecRef, Bool, BoolRef, If, Implies, Not, Or

from .lemma import Lemma, number

WORDS = 32
END = number(1 << 62)
Bits = Callable[[BitVecRef], BoolRef]  # bit of the bitmap by its index


@dataclass(frozen=True)
class Window:
    next: BitVecRef
    size: BitVecRef
    seen: Bits


@dataclass(frozen=True)
class Formula:
    """The arithmetic of window.c; a twin has other values."""

    words: int = WORDS
    lower_end: bool = True  # numbers before the window are refused
    fewer: int = 0  # words that a move forgets to clear
    marks: bool = True  # a commit sets the bit
    inclusive: bool = False  # the oldest number of the window is refused
    after: int = 1  # from a committed number to the next one
    blank: bool = True  # a new window has an empty bitmap

    def index(self, pn: BitVecRef) -> BitVecRef:
        return pn & (self.words * 64 - 1)

    def accepts(self, w: Window, pn: BitVecRef) -> BoolRef:
        inside = Not(w.seen(self.index(pn)))
        if self.lower_end:
            inside = And(Not(self.too_old(w, pn)), inside)
        return Or(UGE(pn, w.next), inside)

    def too_old(self, w: Window, pn: BitVecRef) -> BoolRef:
        return (ULE if self.inclusive else ULT)(pn + w.size, w.next)

    def commit(self, w: Window, pn: BitVecRef) -> Window:
        moves = UGE(pn, w.next)
        steps = z3.LShR(pn, 6) - If(w.next != 0, z3.LShR(w.next - 1, 6), number(0))
        steps = If(z3.UGT(steps, WORDS), number(WORDS), steps)
        steps = If(UGE(steps, self.fewer), steps - self.fewer, number(0))

        def seen(i: BitVecRef) -> BoolRef:
            behind = (z3.LShR(pn, 6) - z3.LShR(i, 6)) & (self.words - 1)
            kept = And(w.seen(i), Not(And(moves, ULT(behind, steps))))
            return Or(kept, i == self.index(pn)) if self.marks else kept

        return replace(w, next=If(moves, pn + self.after, w.next), seen=seen)


def bits(name: str) -> Bits:
    array = z3.Array(name, z3.BitVecSort(64), z3.BoolSort())
    return lambda i: z3.Select(array, i)


def concrete(next_number: int, size: int, seen: int) -> Window:
    """A window of C, for the evaluation of a formula."""
    bitmap = z3.BitVecVal(seen, WORDS * 64)

    def bit(i: BitVecRef) -> BoolRef:
        wide = z3.ZeroExt(WORDS * 64 - 64, i)
        return z3.Extract(0, 0, z3.LShR(bitmap, wide)) == z3.BitVecVal(1, 1)

    return Window(number(next_number), number(size), bit)


X, PN, COMMITTED = BitVec("x", 64), BitVec("pn", 64), Bool("committed")
BEFORE = Window(BitVec("next", 64), BitVec("size", 64), bits("seen"))
LEGAL = And(
    Or(BEFORE.size == 64, BEFORE.size == 1024), ULE(BEFORE.next, END), ULT(PN, END), ULT(X, END)
)


def invariant(f: Formula, w: Window, committed: BoolRef) -> BoolRef:
    marked = w.seen(f.index(X))
    ahead = UGE(X, w.next)
    highest = If(w.next != 0, z3.LShR(w.next - 1, 6), number(0))
    return And(
        Implies(ahead, Not(committed)),
        # The bitmap is exact in the window, and empty in the rest of its newest word.
        Implies(And(Not(ahead), Not(ULT(X + w.size, w.next))), marked == committed),
        Implies(And(ahead, z3.LShR(X, 6) == highest), Not(marked)),
    )


def begins(f: Any) -> BoolRef:
    empty = replace(BEFORE, seen=lambda _: z3.BoolVal(not f.blank))
    return Implies(LEGAL, invariant(f, empty, z3.BoolVal(False)))


def preserved(f: Any) -> BoolRef:
    before = And(LEGAL, invariant(f, BEFORE, COMMITTED), f.accepts(BEFORE, PN))
    after = invariant(f, f.commit(BEFORE, PN), Or(COMMITTED, X == PN))
    return Implies(before, after)


def once(f: Any) -> BoolRef:
    return Implies(
        And(LEGAL, invariant(f, BEFORE, COMMITTED), COMMITTED), Not(f.accepts(BEFORE, X))
    )


def fair(f: Any) -> BoolRef:
    """A number that was not committed and is not before the window is accepted."""
    inside = Not(ULT(X + BEFORE.size, BEFORE.next))
    known = And(LEGAL, invariant(f, BEFORE, COMMITTED), Not(COMMITTED), inside)
    return Implies(known, f.accepts(BEFORE, X))


def rises(f: Any) -> BoolRef:
    """The next number never falls, is above each committed number, and is at most 2^62."""
    after = f.commit(BEFORE, PN)
    risen = And(UGE(after.next, BEFORE.next), UGE(after.next, PN + 1), ULE(after.next, END))
    return Implies(And(LEGAL, f.accepts(BEFORE, PN)), risen)


LEMMAS = {
    "a new window knows no number": Lemma(
        begins, Formula(), {"the bitmap is not cleared": Formula(blank=False)}
    ),
    "a commit keeps the bitmap exact": Lemma(
        preserved,
        Formula(),
        {
            "one word is not cleared": Formula(fewer=1),
            "the bitmap is as short as the window": Formula(words=16),
            "a number is not marked": Formula(marks=False),
        },
    ),
    "no number is accepted twice": Lemma(
        once, Formula(), {"no lower end": Formula(lower_end=False)}
    ),
    "a new number in the window is accepted": Lemma(
        fair, Formula(), {"the oldest number is refused": Formula(inclusive=True)}
    ),
    "the window never moves back": Lemma(
        rises, Formula(), {"the next number is the committed one": Formula(after=0)}
    ),
}
