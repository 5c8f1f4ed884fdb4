"""Contents of tests/vectors/revocation.json: histories of regions, and the verdicts on accesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from . import memory
from .memory import Capability, Region
from .mode_vectors import ALICE, registered, registered_json
from .reasons import Reason
from .target import MAX_REVOKED, Access, Claim, FullError, Peer, Registered, Want, judge

BLOCK = 64
SIZE = 140 * BLOCK - 5
NOW = 1000
START = 0x7F0011223000
PEER = Peer(pd=1, qpn=0x5E12E2, proves=True, holder=memory.holder_id(ALICE))


@dataclass
class Life:
    """A region, the tokens made for it, and the record of both."""

    rng: Random
    state: Registered
    steps: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[Capability] = field(default_factory=list)

    def grant(self, lo: int, hi: int, rights: int = 7) -> int:
        """Returns the index of the new token, or -1 if refused."""
        step: dict[str, Any] = {"do": "grant", "range": [lo, hi], "rights": rights}
        try:
            cap = self.state.grant(lo, hi, rights)
        except ValueError:
            self.steps.append(step | {"token": None})
            return -1
        self.steps.append(step | {"token": cap.encode().hex()})
        self.tokens.append(cap)
        return len(self.tokens) - 1

    def seal(self, number: int, holder: bytes, expiry: int) -> int:
        """Seals a token, as the owner's CAP or anyone with an open token can. Not a step."""
        self.tokens.append(self.tokens[number].seal(holder, expiry))
        return len(self.tokens) - 1

    def revoke(self, lo: int = 0, hi: int = 0) -> None:
        """0, 0: the whole region."""
        salt = self.rng.randbytes(16)
        step = {"do": "revoke", "range": [lo, hi], "salt": salt.hex()}
        try:
            self.state = self.state.revoke_range(lo, hi, salt) if hi else self.state.revoke(salt)
            refused = ""
        except FullError:
            refused = "full"
        except ValueError:
            refused = "range"
        self.steps.append(step | {"refused": refused, "ranges": len(self.state.revoked)})

    def access(self, number: int, lo: int, hi: int, wanted: Reason, **how: Any) -> None:
        """Accesses bytes, counted from the region's start, with token `number`. `how` may have
        `now`, the `right` of the access, the `granted` right of the key (the same by default),
        and changed fields of the claim."""
        cap, now = self.tokens[number], how.pop("now", NOW)
        right = how.pop("right", memory.WRITE)
        granted = how.pop("granted", right)
        start = self.state.tree.region.start
        node = cap.holding(granted, min(max(start + lo - cap.region.start, cap.lo), cap.hi - 1))
        data = self.rng.randbytes(96)
        proof = memory.proof(cap.usable(granted, node), data)
        claim = replace(Claim(node.depth, cap.holder, cap.expiry, proof, data), **how)
        asked = Want(right, self.state.rkey, start + lo, hi - lo)
        verdict = judge({self.state.rkey: self.state}, PEER, asked, claim, now)
        assert verdict == wanted, f"[{lo}, {hi}): {verdict!r}, not {wanted!r}"
        self.steps.append(
            {
                "do": "access",
                "right": right,
                "range": [lo, hi],
                "now": now,
                "depth": claim.depth,
                "holder": claim.holder.hex(),
                "expiry": claim.expiry,
                "proof": claim.proof.hex(),
                "data": claim.data.hex(),
                "verdict": verdict.name,
            }
        )


def revocation_vectors() -> list[dict[str, Any]]:
    return [_life(script) for script in (whole, ranges, newest, claims, full)]


def _life(script: Callable[[Life], None]) -> dict[str, Any]:
    rng = Random(f"srdma-1 revocation {script.__name__}")
    region = Region(START, START + SIZE, BLOCK)
    life = Life(rng, registered(rng, region, Access.REMOTE_READ | Access.REMOTE_WRITE))
    before = registered_json(life.state)
    script(life)
    after = registered_json(life.state)
    return {"name": script.__name__, "before": before, "steps": life.steps, "after": after}


def whole(life: Life) -> None:
    """Earlier grants prove nothing any more. Later grants do."""
    root, part = life.grant(0, SIZE), life.grant(BLOCK, 3 * BLOCK, memory.WRITE)
    life.access(root, 0, 5, Reason.NONE)
    life.access(part, BLOCK, 2 * BLOCK, Reason.NONE)
    life.revoke()
    life.access(root, 0, 5, Reason.PROOF_WRONG)
    life.access(part, BLOCK, 2 * BLOCK, Reason.PROOF_WRONG)
    again = life.grant(0, SIZE)
    life.access(again, 0, 5, Reason.NONE)
    life.revoke(0, BLOCK)
    life.revoke()
    life.access(again, 0, 5, Reason.PROOF_WRONG)
    life.access(life.grant(0, 2 * BLOCK), 0, 5, Reason.NONE)


def ranges(life: Life) -> None:
    """Bytes outside stay accessible. Accesses and grants across the edge are refused."""
    root = life.grant(0, SIZE)
    life.revoke(4 * BLOCK, 7 * BLOCK)
    life.access(root, 4 * BLOCK - 1, 4 * BLOCK, Reason.NONE)
    life.access(root, 7 * BLOCK, 8 * BLOCK, Reason.NONE)
    life.access(root, 4 * BLOCK, 4 * BLOCK + 1, Reason.PROOF_WRONG)
    life.access(root, 4 * BLOCK - 1, 4 * BLOCK + 1, Reason.PROOF_RANGE)
    life.access(root, 6 * BLOCK, 7 * BLOCK + 1, Reason.PROOF_RANGE)
    life.access(root, 0, SIZE, Reason.PROOF_RANGE)
    inside = life.grant(4 * BLOCK, 7 * BLOCK)  # the root of a tree of three blocks
    life.access(inside, 4 * BLOCK, 7 * BLOCK, Reason.NONE)
    life.access(inside, 4 * BLOCK, 6 * BLOCK, Reason.PROOF_WRONG, depth=1)
    life.access(inside, 4 * BLOCK, 7 * BLOCK, Reason.PROOF_RANGE, depth=1)
    life.access(inside, 4 * BLOCK, 4 * BLOCK + 1, Reason.PROOF_RANGE, depth=3)
    last = life.grant(6 * BLOCK, 7 * BLOCK)
    life.access(last, 6 * BLOCK, 7 * BLOCK, Reason.NONE)
    for lo, hi in ((3 * BLOCK, 5 * BLOCK), (0, SIZE), (4 * BLOCK, 8 * BLOCK)):
        life.grant(lo, hi)
    life.access(life.grant(7 * BLOCK, SIZE), 8 * BLOCK, 9 * BLOCK, Reason.NONE)
    life.revoke(SIZE - SIZE % BLOCK, SIZE)
    life.access(root, SIZE - 1, SIZE, Reason.PROOF_WRONG)
    for lo, hi in ((1, BLOCK), (0, BLOCK + 1), (BLOCK, BLOCK), (0, SIZE + 1), (SIZE, 2 * SIZE)):
        life.revoke(lo, hi)


def newest(life: Life) -> None:
    """The newest of overlapping revoked ranges applies."""
    life.revoke(2 * BLOCK, 6 * BLOCK)
    first = life.grant(2 * BLOCK, 6 * BLOCK)
    life.revoke(4 * BLOCK, 10 * BLOCK)
    second = life.grant(4 * BLOCK, 10 * BLOCK)
    life.access(first, 2 * BLOCK, 4 * BLOCK, Reason.NONE)
    life.access(first, 4 * BLOCK, 5 * BLOCK, Reason.PROOF_WRONG)
    life.access(first, 3 * BLOCK, 5 * BLOCK, Reason.PROOF_RANGE)
    life.access(second, 5 * BLOCK, 6 * BLOCK, Reason.NONE)
    life.grant(2 * BLOCK, 5 * BLOCK)
    life.access(life.grant(2 * BLOCK, 4 * BLOCK), 3 * BLOCK, 4 * BLOCK, Reason.NONE)
    life.revoke(4 * BLOCK, 10 * BLOCK)  # replaces the second
    life.access(second, 5 * BLOCK, 6 * BLOCK, Reason.PROOF_WRONG)
    life.access(first, 2 * BLOCK, 4 * BLOCK, Reason.NONE)
    life.revoke(2 * BLOCK, 10 * BLOCK)  # replaces both
    life.access(first, 2 * BLOCK, 4 * BLOCK, Reason.PROOF_WRONG)
    third = life.grant(2 * BLOCK, 10 * BLOCK)
    life.revoke(3 * BLOCK, 4 * BLOCK)
    life.access(third, 2 * BLOCK, 3 * BLOCK, Reason.NONE)
    life.access(third, 4 * BLOCK, 10 * BLOCK, Reason.NONE)
    life.access(third, 3 * BLOCK, 4 * BLOCK, Reason.PROOF_WRONG)
    life.access(third, 3 * BLOCK - 1, 4 * BLOCK + 1, Reason.PROOF_RANGE)
    life.grant(2 * BLOCK, 10 * BLOCK)


def claims(life: Life) -> None:
    """Sealed capabilities, and each kind of wrong claim."""
    alice, bob = PEER.holder, memory.holder_id("spiffe://example.org/bob")
    root = life.grant(0, SIZE)
    held, timed = life.seal(root, alice, 0), life.seal(root, bytes(16), NOW + 1)
    both = life.seal(root, alice, NOW + 1)
    for number in (held, timed, both):
        life.access(number, 0, SIZE, Reason.NONE)
    life.access(held, 0, 1, Reason.PROOF_WRONG, holder=bytes(16))
    life.access(held, 0, 1, Reason.PROOF_WRONG, holder=bob)
    life.access(root, 0, 1, Reason.PROOF_WRONG, holder=alice)
    for number in (timed, both):
        life.access(number, 0, 1, Reason.PROOF_EXPIRED, now=NOW + 1)
        life.access(number, 0, 1, Reason.PROOF_EXPIRED, now=(1 << 32) - 1)
        life.access(number, 0, 1, Reason.PROOF_WRONG, expiry=NOW + 2)
        life.access(number, 0, 1, Reason.PROOF_WRONG, expiry=0)
    life.access(timed, 0, 1, Reason.PROOF_EXPIRED, now=NOW + 1, proof=bytes(16))
    part = life.grant(2 * BLOCK, 4 * BLOCK, memory.READ)
    life.access(part, 2 * BLOCK, 4 * BLOCK, Reason.NONE, right=memory.READ)
    life.access(part, 2 * BLOCK, 4 * BLOCK, Reason.PROOF_WRONG, granted=memory.READ)
    read = {"right": memory.READ}
    life.access(part, BLOCK, 2 * BLOCK, Reason.PROOF_WRONG, **read)
    life.access(part, 2 * BLOCK - 1, 2 * BLOCK + 1, Reason.PROOF_RANGE, **read)
    deepest, granted = life.state.tree.region.depth, life.tokens[part].nodes[0].depth
    for depth in set(range(deepest + 1)) - {granted}:
        life.access(part, 2 * BLOCK, 2 * BLOCK + 1, Reason.PROOF_WRONG, depth=depth, **read)
    for depth in (deepest + 1, 48, 255):
        life.access(part, 2 * BLOCK, 2 * BLOCK + 1, Reason.PROOF_RANGE, depth=depth, **read)
    life.access(part, 2 * BLOCK, 3 * BLOCK, Reason.PROOF_WRONG, proof=bytes(16), **read)
    life.access(part, 2 * BLOCK, 3 * BLOCK, Reason.PROOF_WRONG, data=bytes(96), **read)


def full(life: Life) -> None:
    """Revokes one more range than the list can hold."""
    root = life.grant(0, SIZE)
    for i in range(MAX_REVOKED + 1):
        life.revoke(2 * i * BLOCK, (2 * i + 1) * BLOCK)
    refused = 2 * MAX_REVOKED * BLOCK
    life.access(root, refused, refused + 1, Reason.NONE)
    life.access(root, 0, 1, Reason.PROOF_WRONG)
    life.revoke(0, 3 * BLOCK)  # covers two
    for i in (MAX_REVOKED, MAX_REVOKED + 1):
        life.revoke(2 * i * BLOCK, (2 * i + 1) * BLOCK)
    life.access(root, refused, refused + 1, Reason.PROOF_WRONG)
    life.revoke()
    life.revoke(0, BLOCK)
