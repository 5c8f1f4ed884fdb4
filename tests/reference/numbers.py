"""Packet numbers and request ids from 24 bits, and the window (protocol.md 4.1, 4.2)."""

from __future__ import annotations

from .reasons import RefusedError

HALF = 1 << 23
MAX_PN = (1 << 62) - 1


def infer(low: int, expected: int) -> int | None:
    """Returns the number nearest to `expected` with these low 24 bits, or None if it is illegal."""
    candidate = expected & ~0xFFFFFF | low
    if candidate + HALF <= expected:
        candidate += 1 << 24
    elif candidate > expected + HALF and candidate >= 1 << 24:
        candidate -= 1 << 24
    if candidate > expected + HALF or candidate > MAX_PN:
        return None
    return candidate


class Window:
    """Which of the last `size` packet numbers verified."""

    def __init__(self, first: int, size: int) -> None:
        self.highest = first - 1
        self.size = size
        self._seen: set[int] = set()

    def candidate(self, psn: int) -> int:
        pn = infer(psn, self.highest + 1)
        if pn is None:
            raise RefusedError("pn_range", f"{psn:#08x} after {self.highest}")
        if pn + self.size <= self.highest:
            raise RefusedError("replay", f"{pn} is {self.highest - pn} behind")
        if pn in self._seen:
            raise RefusedError("replay", f"{pn} was seen")
        return pn

    def move(self, pn: int) -> None:
        """Records that packet `pn` verified."""
        self._seen.add(pn)
        self.highest = max(self.highest, pn)
        self._seen = {n for n in self._seen if n + self.size > self.highest}
