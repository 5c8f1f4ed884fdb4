"""Ack body (protocol.md 2.4)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum

from .reasons import CLOSE_REASONS, NAK_SYNDROME, RefusedError

_FIXED = struct.Struct(">BBBBIIIIII")
_GAP = struct.Struct(">III")
FIXED_LEN = _FIXED.size
GAP_LEN = _GAP.size
MAX_GAPS = 8
GAP_IDS = 1 << 31  # maximum extent of a gap, in request ids
MAX_MESSAGE = 1 << 30


class Kind(IntEnum):
    OPEN = 1
    PING = 2
    CLOSE = 3
    ACK = 4
    NAK = 5
    RNR = 6


@dataclass(frozen=True)
class AckBody:
    kind: int
    reason: int = 0
    request_id: int = 0  # position: low 32 bits
    offset: int = 0  # position
    highest_pn: int = 0  # low 32 bits
    recv_credit: int = 0
    request_credit: int = 0
    gaps: tuple[tuple[int, int, int], ...] = ()
    skips: int = 0  # 1: data before the first gap is missing too
    path: int = 0  # bit 31: the sender's path is not validated; bits 30..0: a token (7.3)

    @property
    def syndrome(self) -> int:
        """AETH.Syndrome for this body."""
        if self.kind == Kind.NAK:
            return NAK_SYNDROME[self.reason]
        return 0x20 if self.kind == Kind.RNR else 0x1F

    def encode(self) -> bytes:
        fixed = _FIXED.pack(
            self.kind,
            self.reason,
            len(self.gaps),
            self.skips,
            self.request_id,
            self.offset,
            self.highest_pn,
            self.recv_credit,
            self.request_credit,
            self.path,
        )
        return fixed + b"".join(_GAP.pack(*gap) for gap in self.gaps)


def body_length(gaps: int) -> int:
    if gaps > MAX_GAPS:
        raise RefusedError("ack_body", f"{gaps} gaps, at most {MAX_GAPS} are legal")
    return FIXED_LEN + GAP_LEN * gaps


def decode(data: bytes) -> AckBody:
    """Decodes the body in `data`, whose length must match its gap count."""
    kind, reason, gaps, skips, *numbers, path = _FIXED.unpack_from(data)
    if kind not in set(Kind):
        raise RefusedError("ack_body", f"kind {kind} is not one of 1..6")
    if skips > (gaps > 0):
        raise RefusedError("ack_body", f"byte 3 is {skips}, with {gaps} gaps")
    legal = {Kind.NAK: set(NAK_SYNDROME), Kind.CLOSE: CLOSE_REASONS}.get(Kind(kind), {0})
    if reason not in legal:
        raise RefusedError("ack_body", f"reason {reason} is not legal for kind {kind}")
    if path and kind in (Kind.NAK, Kind.CLOSE):
        raise RefusedError("ack_body", f"bytes 24 to 27 are {path:#x}, not 0, in kind {kind}")
    found = tuple(_GAP.unpack_from(data, FIXED_LEN + GAP_LEN * i) for i in range(gaps))
    body = replace(AckBody(kind, reason, *numbers), gaps=found, skips=skips, path=path)
    _check_gaps(body)
    return body


def gap_end(request_id: int, offset: int, extent: int) -> tuple[int, int]:
    """Returns request id and offset of the end of a gap."""
    if extent & GAP_IDS:
        return request_id + (extent & ~GAP_IDS), 0
    return request_id, offset + extent


def _check_gaps(body: AckBody) -> None:
    """Gaps are ascending, not empty, at or after the position; ids are serial numbers (5.2)."""
    before = 0, body.offset
    for request_id, offset, extent in body.gaps:
        start = (request_id - body.request_id) % (1 << 32), offset
        end = gap_end(*start, extent)
        if not extent & ~GAP_IDS:
            raise RefusedError("ack_body", "an empty gap")
        if start < before:
            raise RefusedError("ack_body", "a gap before the end of another, or the position")
        if end[0] > GAP_IDS or max(offset, end[1]) > MAX_MESSAGE:
            raise RefusedError("ack_body", "a gap beyond what can be sent")
        before = end
