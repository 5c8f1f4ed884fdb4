"""Nodes and covers of the memory tree (memtree.c)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import z3
from z3 import UGE, UGT, ULE, ULT, And, BitVec, BitVecRef, BoolRef, If, Implies, Not, Or

from .lemma import Lemma, number

BLOCK_MIN, BLOCK_MAX, DEPTH_MAX = 6, 30, 48
LEN_MAX = number(1 << 63)
BOUND = 4  # depth of the trees of the lemma that unrolls the loops of a cover


class Tree(NamedTuple):
    length: BitVecRef
    log2_block: BitVecRef
    limit: BitVecRef  # of the depth


class Node(NamedTuple):
    index: BitVecRef
    lo: BitVecRef
    hi: BitVecRef


def legal(t: Tree) -> BoolRef:
    block = And(UGE(t.log2_block, BLOCK_MIN), ULE(t.log2_block, BLOCK_MAX))
    depth = And(UGE(t.limit, 1), ULE(t.limit, DEPTH_MAX))
    return And(t.length != 0, ULE(t.length, LEN_MAX), block, depth)


def height(t: Tree) -> BitVecRef:
    """Number of bits of the index of the last block."""
    last = z3.LShR(t.length - 1, t.log2_block)
    found = number(0)
    for n in range(64):
        found = If(UGE(last, 1 << n), number(n + 1), found)
    return found


@dataclass(frozen=True)
class Formula:
    """The arithmetic of memtree.c; a twin has other values."""

    clamped: bool = True  # the last node ends at the end of the region
    rounded: bool = True  # the number of blocks is padded to a power of two
    whole: bool = True  # a node that ends after hi is not taken
    from_root: bool = True  # depth 0 is the root, not a leaf

    def depth(self, t: Tree) -> BitVecRef:
        h = height(t)
        return If(ULT(h, t.limit), h, t.limit)

    def span(self, t: Tree, depth: BitVecRef) -> BitVecRef:
        h = height(t) if self.rounded else height(t) - 1
        return number(1) << (t.log2_block + (h - depth if self.from_root else depth))

    def node(self, t: Tree, depth: BitVecRef, offset: BitVecRef) -> Node:
        span = self.span(t, depth)
        lo = offset & ~(span - 1)
        clamped = If(UGT(t.length - lo, span), lo + span, t.length)
        index = z3.LShR(offset, t.log2_block + height(t) - depth)
        return Node(index, lo, clamped if self.clamped else lo + span)

    def rejected(self, node: Node, lo: BitVecRef, hi: BitVecRef) -> BoolRef:
        """The condition of the loop in greatest()."""
        before = ULT(node.lo, lo)
        return Or(before, UGT(node.hi, hi)) if self.whole else before

    def greatest(self, t: Tree, lo: BitVecRef, hi: BitVecRef, most: int) -> Node:
        """The first node that is not rejected, of depth 0 to most."""
        found = self.node(t, number(most), lo)
        for depth in reversed(range(most)):
            node = self.node(t, number(depth), lo)
            rejected = self.rejected(node, lo, hi)
            found = Node(*(If(rejected, a, b) for a, b in zip(found, node, strict=True)))
        return found

    def granted(self, t: Tree, lo: BitVecRef, hi: BitVecRef) -> BoolRef:
        """srdma_memtree_cover() accepts the range."""
        rest = self.span(t, self.depth(t)) - 1
        aligned = And(lo & rest == 0, Or(hi & rest == 0, hi == t.length))
        return And(ULT(lo, hi), ULE(hi, t.length), aligned)


class FromBelow(Formula):
    """Takes the smallest node that begins at lo, not the largest."""

    def greatest(self, t: Tree, lo: BitVecRef, hi: BitVecRef, most: int) -> Node:
        return self.node(t, number(most), lo)


T = Tree(BitVec("length", 64), BitVec("log2_block", 64), BitVec("limit", 64))
DEPTH, OFFSET, LO, HI = (BitVec(name, 64) for name in ("depth", "offset", "lo", "hi"))


def found(f: Any) -> BoolRef:
    """The node of a depth that contains a byte does contain it, and lies in the region."""
    node = f.node(T, DEPTH, OFFSET)
    known = And(legal(T), ULE(DEPTH, f.depth(T)), ULT(OFFSET, T.length))
    return Implies(known, And(ULE(node.lo, OFFSET), ULT(OFFSET, node.hi), ULE(node.hi, T.length)))


def root(f: Any) -> BoolRef:
    """The root is the region."""
    node = f.node(T, number(0), OFFSET)
    return Implies(And(legal(T), ULT(OFFSET, T.length)), And(node.lo == 0, node.hi == T.length))


def nested(f: Any) -> BoolRef:
    """A node lies in its parent."""
    child, parent = f.node(T, DEPTH, OFFSET), f.node(T, DEPTH - 1, OFFSET)
    known = And(legal(T), UGE(DEPTH, 1), ULE(DEPTH, f.depth(T)), ULT(OFFSET, T.length))
    return Implies(known, And(UGE(child.lo, parent.lo), ULE(child.hi, parent.hi)))


def ends(f: Any) -> BoolRef:
    """The loop of greatest() ends: it accepts the node of the greatest depth."""
    node = f.node(T, f.depth(T), LO)
    return Implies(And(legal(T), f.granted(T, LO, HI)), Not(f.rejected(node, LO, HI)))


def step(f: Any) -> BoolRef:
    """A node that the loop accepts begins at lo and leaves a range that can be granted, or none.

    By induction a cover is exactly [lo, hi), without gap and overlap.
    """
    node = f.node(T, DEPTH, LO)
    known = And(legal(T), f.granted(T, LO, HI), ULE(DEPTH, f.depth(T)))
    left = Or(node.hi == HI, f.granted(T, node.hi, HI))
    exact = And(node.lo == LO, UGT(node.hi, LO), ULE(node.hi, HI), left)
    return Implies(And(known, Not(f.rejected(node, LO, HI))), exact)


def few(f: Any) -> BoolRef:
    """Two nodes of each depth from 2 on are enough for a cover. For trees of BOUND levels with
    blocks of 64 bytes, any length and any range."""
    t = Tree(T.length, number(BLOCK_MIN), number(DEPTH_MAX))
    at, blocks = LO, z3.LShR(t.length - 1, BLOCK_MIN)
    for _ in range(2 * (BOUND - 1)):
        node = f.greatest(t, at, HI, BOUND)
        at = If(ULT(at, HI), node.hi, at)
    levels = And(UGE(blocks, 1 << (BOUND - 1)), ULT(blocks, 1 << BOUND))
    return Implies(And(legal(t), levels, f.granted(t, LO, HI)), at == HI)


LEMMAS = {
    "a node contains the byte that it was found by": Lemma(
        found, Formula(), {"the last node is not clamped": Formula(clamped=False)}
    ),
    "the root is the region": Lemma(root, Formula(), {"a tree too small": Formula(rounded=False)}),
    "a node lies in its parent": Lemma(
        nested, Formula(), {"depths count from the leaves": Formula(from_root=False)}
    ),
    "the search for a node of a cover ends": Lemma(
        ends, Formula(), {"the last node is not clamped": Formula(clamped=False)}
    ),
    "a node of a cover leaves a range that can be granted": Lemma(
        step, Formula(), {"a node beyond the end": Formula(whole=False)}
    ),
    "a cover has at most two nodes of each depth from 2 on": Lemma(
        few, Formula(), {"a search from below": FromBelow()}
    ),
}
