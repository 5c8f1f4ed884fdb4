"""The target of srdma-1 in C (csrc/memory/memguard.c) and in the reference, for vectors and
random histories: a region in both, and the verdicts of both as reasons of protocol.md 13.1."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.native import memkeys
from tests.reference import memory
from tests.reference.reasons import Reason
from tests.reference.target import Claim, FullError, Peer, Registered, Want, judge

PEER = Peer(pd=1, qpn=5, proves=True)
VERDICTS = {
    errno.ERANGE: Reason.PROOF_RANGE,
    errno.EKEYEXPIRED: Reason.PROOF_EXPIRED,
    errno.EBADMSG: Reason.PROOF_WRONG,
}


def guard_of(state: Registered) -> memkeys.Guard:
    """Makes a C guard of a region without revocations."""
    region = state.tree.region
    log2_block = region.block.bit_length() - 1
    shape = (region.start, region.end, log2_block, region.depth_limit)
    return memkeys.Guard(state.pd_key, shape, state.rkey, state.tree.salt)


def verdict(guard: memkeys.Guard, wanted: Want, claim: Claim, now: int) -> Reason:
    """Returns the verdict of the C implementation."""
    asked: memkeys.Claim = {
        "right": wanted.right,
        "depth": claim.depth,
        "addr": wanted.start,
        "len": wanted.length,
        "holder": claim.holder,
        "expiry": claim.expiry,
        "ad": claim.data,
        "proof": claim.proof,
    }
    try:
        guard.check(asked, now)
    except memkeys.RefusedError as refused:
        return VERDICTS[refused.errno]
    return Reason.NONE


@dataclass
class Both:
    """A region in C and in the reference. Their results must be the same."""

    guard: memkeys.Guard
    state: Registered

    def judge(self, wanted: Want, claim: Claim, now: int) -> Reason:
        told = judge({self.state.rkey: self.state}, PEER, wanted, claim, now)
        assert verdict(self.guard, wanted, claim, now) == told, (wanted, claim)
        return told

    def revoke(self, lo: int, hi: int, salt: bytes) -> str:
        """Revokes a range; 0, 0: the whole region. Returns "" or the reason why both refused."""
        whole = (lo, hi) == (0, 0)
        call = (lambda: self.guard.revoke_all(salt)) if whole else lambda: self._in_c(lo, hi, salt)
        in_c = refusal(call)
        try:
            self.state = self.state.revoke(salt) if whole else self.state.revoke_range(lo, hi, salt)
            told = ""
        except FullError:
            told = "full"
        except ValueError:
            told = "range"
        assert in_c == told, (lo, hi)
        return told

    def _in_c(self, lo: int, hi: int, salt: bytes) -> None:
        self.guard.revoke(lo, hi, salt)

    def grant(self, lo: int, hi: int, rights: int) -> memory.Capability | None:
        """Returns None if both refused."""
        try:
            cap = self.state.grant(lo, hi, rights)
        except ValueError:
            cap = None
        try:
            token = self.guard.grant(lo, hi, rights).encode()
        except (memkeys.RefusedError, OverflowError):
            token = None
        assert token == (cap and cap.encode()), (lo, hi, rights)
        return cap


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except OverflowError:
        return "range"
    except memkeys.RefusedError as refused:
        names = {errno.ENOSPC: "full", errno.ERANGE: "range", errno.EINVAL: "range"}
        return names[refused.errno]
    return ""
