"""How the target checks an access to its memory (protocol.md 6, 6.1, 6.3).

Pure functions: regions are values, a revocation returns a new value, a verdict is a reason.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntFlag

from . import memory
from .memory import Capability
from .reasons import Reason
from .wire import Flag, Op, Packet

MAX_REVOKED = 64


class Access(IntFlag):
    """Access rights of a registration: the flags of verbs."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
    PROOF = 0x100


# Maps the right of a tree to that of a registration.
NEEDS = {
    memory.READ: Access.REMOTE_READ,
    memory.WRITE: Access.REMOTE_WRITE,
    memory.ATOMIC: Access.REMOTE_ATOMIC,
}
ATOMIC_LEN = 8


class FullError(ValueError):
    """A region would have more revoked ranges than permitted."""


@dataclass(frozen=True)
class Tree:
    """Inputs of the key derivation: a region or a revoked range of one, and its salt."""

    region: memory.Region
    salt: bytes

    def has(self, start: int, end: int) -> bool:
        return self.region.start <= start and end <= self.region.end

    def touches(self, start: int, end: int) -> bool:
        return self.region.start < end and start < self.region.end


@dataclass(frozen=True)
class Registered:
    """A region as its worker stores it. Addresses are virtual."""

    pd: int  # the PD that it belongs to
    pd_key: bytes = field(repr=False)  # K_PDmem
    rkey: int
    access: int
    tree: Tree
    generation: int = 1
    scope: int = 0  # SRC QPN of the only QP that may use it; 0: all QPs of the PD
    scope_holder: bytes = bytes(16)  # the only identity that may use it; zeros: all
    revoked: tuple[Tree, ...] = ()  # the newest last

    def revoke(self, salt: bytes) -> Registered:
        """Revokes the whole region."""
        tree = replace(self.tree, salt=salt)
        return replace(self, generation=self.generation + 1, tree=tree, revoked=())

    def revoke_range(self, lo: int, hi: int, salt: bytes) -> Registered:
        """Offsets count from the region's start. ValueError if the range cannot be revoked."""
        region = self.tree.region
        if not 0 <= lo < hi <= region.length:
            raise ValueError(f"[{lo}, {hi}) is empty or outside of {region}")
        if lo % region.block or (hi % region.block and hi != region.length):
            raise ValueError(f"[{lo}, {hi}) is not made of {region.block} bytes each")
        own = replace(region, start=region.start + lo, end=region.start + hi)
        kept = [e for e in self.revoked if not Tree(own, salt).has(e.region.start, e.region.end)]
        if len(kept) >= MAX_REVOKED:
            raise FullError(f"{MAX_REVOKED} ranges are revoked: revoke the whole region")
        return replace(self, revoked=(*kept, Tree(own, salt)))

    def tree_of(self, start: int, end: int) -> Tree | None:
        """Returns the tree whose keys cover these addresses; None across the
        edge of a revoked range."""
        touched = [tree for tree in self.revoked if tree.touches(start, end)]
        newest = touched[-1] if touched else self.tree
        return newest if newest.has(start, end) else None

    def mr_key(self, tree: Tree) -> bytes:
        return memory.mr_key(self.pd_key, tree.region, self.rkey, self.generation, tree.salt)

    def grant(self, lo: int, hi: int, rights: int) -> Capability:
        """Offsets count from the region's start. ValueError if the range cannot be granted."""
        start = self.tree.region.start
        if not 0 <= lo < hi <= self.tree.region.length:
            raise ValueError(f"[{lo}, {hi}) is empty or outside of {self.tree.region}")
        tree = self.tree_of(start + lo, start + hi)
        if tree is None:
            raise ValueError(f"[{lo}, {hi}) is partly revoked")
        shift = tree.region.start - start
        key = self.mr_key(tree)
        return memory.grant(key, tree.region, self.rkey, lo - shift, hi - shift, rights)


@dataclass(frozen=True)
class Peer:
    """The memory-related state of the QP that received a packet."""

    pd: int
    qpn: int
    proves: bool  # the key mode includes `mem`
    holder: bytes = bytes(16)  # of the peer's identity


@dataclass(frozen=True)
class Want:
    """The bytes that a packet accesses."""

    right: int
    rkey: int
    start: int
    length: int


@dataclass(frozen=True)
class Claim:
    """The proof fields of a packet with flag P."""

    depth: int
    holder: bytes
    expiry: int
    proof: bytes
    data: bytes = field(repr=False)  # data that the proof covers

    @staticmethod
    def of(p: Packet, peer: Peer, data: bytes) -> Claim | None:
        if not p.flags & Flag.PROOF:
            return None
        holder = peer.holder if p.flags & Flag.HOLDER else bytes(16)
        return Claim(p.depth, holder, p.expiry, p.proof, data)


def want(p: Packet, first: Packet) -> Want:
    """The access of one packet. `first` is the packet of its message that has the RETH."""
    if p.opcode == Op.READ_REQUEST:
        return Want(memory.READ, p.rkey, p.va + p.offset, p.dma_len)
    if p.opcode in (Op.COMPARE_SWAP, Op.FETCH_ADD):
        return Want(memory.ATOMIC, p.rkey, p.va, ATOMIC_LEN)
    return Want(memory.WRITE, first.rkey, first.va + p.offset, len(p.payload))


Regions = Mapping[int, Registered]


def judge(regions: Regions, peer: Peer, wanted: Want, claim: Claim | None, now: int) -> Reason:
    """Returns NONE or the reason for refusal. `now`: the target's clock, Unix seconds."""
    if wanted.length == 0:
        return Reason.NONE
    if wanted.right == memory.ATOMIC and wanted.start % ATOMIC_LEN:
        return Reason.MISALIGNED
    reason = _authorized(regions, peer, wanted)
    if reason:
        return reason
    region = regions[wanted.rkey]
    demanded = bool(region.access & Access.PROOF)
    if claim is None:
        return Reason.PROOF_REQUIRED if demanded else Reason.NONE
    if not peer.proves or not demanded:
        return Reason.PROOF_UNSUPPORTED
    return _proven(region, wanted, claim, now)


def _authorized(regions: Regions, peer: Peer, wanted: Want) -> Reason:
    """The checks of section 6 that need no proof."""
    region = regions.get(wanted.rkey)
    if region is None:
        return Reason.BAD_RKEY
    if region.pd != peer.pd:
        return Reason.WRONG_PD
    if region.scope not in (0, peer.qpn) or region.scope_holder not in (bytes(16), peer.holder):
        return Reason.QP_SCOPE
    if not region.access & NEEDS.get(wanted.right, 0):
        return Reason.NO_RIGHT
    if not region.tree.has(wanted.start, wanted.start + wanted.length):
        return Reason.OUT_OF_BOUNDS
    return Reason.NONE


def _proven(region: Registered, wanted: Want, claim: Claim, now: int) -> Reason:
    tree = region.tree_of(wanted.start, wanted.start + wanted.length)
    if tree is None or claim.depth > tree.region.depth:
        return Reason.PROOF_RANGE
    offset = wanted.start - tree.region.start
    node = tree.region.at(claim.depth, offset)
    if offset + wanted.length > node.hi:
        return Reason.PROOF_RANGE
    if claim.expiry and now >= claim.expiry:
        return Reason.PROOF_EXPIRED
    key = memory.node_key(region.mr_key(tree), tree.region, wanted.right, node)
    wanted_proof = memory.proof(
        memory.access_key(key, node, claim.holder, claim.expiry), claim.data
    )
    good = hmac.compare_digest(wanted_proof, claim.proof)
    return Reason.NONE if good else Reason.PROOF_WRONG
