"""Reasons of failures (protocol.md 13.1)."""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    NONE = 0
    BAD_RKEY = 1
    WRONG_PD = 2
    OUT_OF_BOUNDS = 3
    NO_RIGHT = 4
    QP_SCOPE = 5
    PROOF_REQUIRED = 6
    PROOF_UNSUPPORTED = 7
    TOO_MANY_READS = 8
    RECV_TOO_SHORT = 9
    MALFORMED = 10
    UNSUPPORTED = 11
    TARGET_DMA = 12
    NO_RECV = 13
    PROOF_WRONG = 14
    PROOF_RANGE = 15
    PROOF_EXPIRED = 16
    MISALIGNED = 17
    DEADLINE = 20
    NO_RECV_CREDIT = 21
    PEER_CLOSED = 22
    PEER_HOST_GONE = 23
    WIRE_LOST = 24
    PEER_SILENT = 25
    KEY_LIMIT = 26
    FORGERY_LIMIT = 27
    PEER_ERROR = 28
    PROVIDER = 29
    RECLAIMED = 30
    FLUSHED = 40
    WORKER_GONE = 41
    LOCAL_KEY = 42
    LOCAL_DMA = 43
    BAD_DESCRIPTOR = 44
    MESSAGE_TOO_LONG = 45
    QUEUE_FULL = 46
    QP_STATE = 47
    BAD_CAPABILITY = 48


# Reasons that a NAK may carry, with the IBTA syndrome for each.
NAK_SYNDROME: dict[int, int] = {
    Reason.BAD_RKEY: 0x62,
    Reason.WRONG_PD: 0x62,
    Reason.OUT_OF_BOUNDS: 0x62,
    Reason.NO_RIGHT: 0x62,
    Reason.QP_SCOPE: 0x62,
    Reason.PROOF_REQUIRED: 0x62,
    Reason.PROOF_UNSUPPORTED: 0x61,
    Reason.TOO_MANY_READS: 0x61,
    Reason.RECV_TOO_SHORT: 0x61,
    Reason.MALFORMED: 0x61,
    Reason.UNSUPPORTED: 0x61,
    Reason.TARGET_DMA: 0x63,
    Reason.NO_RECV: 0x61,
    Reason.PROOF_WRONG: 0x62,
    Reason.PROOF_RANGE: 0x62,
    Reason.PROOF_EXPIRED: 0x62,
    Reason.MISALIGNED: 0x61,
}

# Reasons that a CLOSE may carry.
CLOSE_REASONS: frozenset[int] = frozenset(range(Reason.DEADLINE, Reason.PROVIDER + 1))


class RefusedError(Exception):
    """A datagram is dropped. `counter` names the counter of 13.2 that counts it."""

    def __init__(self, counter: str, why: str) -> None:
        super().__init__(f"{counter}: {why}")
        self.counter = counter
