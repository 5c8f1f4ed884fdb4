"""Reasons of failures (protocol.md 13.1)."""

from __future__ import annotations

# The codes that a NAK may carry, and the IBTA syndrome that says so.
NAK_SYNDROME = {
    1: 0x62,  # BAD_RKEY
    2: 0x62,  # WRONG_PD
    3: 0x62,  # OUT_OF_BOUNDS
    4: 0x62,  # NO_RIGHT
    5: 0x62,  # QP_SCOPE
    6: 0x62,  # PROOF_REQUIRED
    7: 0x61,  # PROOF_UNSUPPORTED
    8: 0x61,  # TOO_MANY_READS
    9: 0x61,  # RECV_TOO_SHORT
    10: 0x61,  # MALFORMED
    11: 0x61,  # UNSUPPORTED
    12: 0x63,  # TARGET_DMA
    13: 0x61,  # NO_RECV
    14: 0x62,  # PROOF_WRONG
    15: 0x62,  # PROOF_RANGE
    16: 0x62,  # PROOF_EXPIRED
}

# The codes that a CLOSE may carry: DEADLINE to PROVIDER.
CLOSE_REASONS = frozenset(range(20, 30))


class RefusedError(Exception):
    """A datagram is dropped; `counter` is the one of 13.2 that counts it."""

    def __init__(self, counter: str, why: str) -> None:
        super().__init__(f"{counter}: {why}")
        self.counter = counter
