"""Bounce regions: registered memory through which data of unregistered buffers is copied."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from srdma.mr import MR, Access

if TYPE_CHECKING:
    from srdma.pd import PD

STAGE = 1 << 20  # bytes of a kept region; a longer message gets a region of its own size
KEEP = 8  # free regions kept


class BouncePool:
    """A pool of regions of STAGE bytes. A region is in use until its work request completed."""

    def __init__(self, pd: PD) -> None:
        self._pd = pd
        self._lock = threading.Lock()
        self._free: list[MR] = []
        self._surplus: list[MR] = []

    def take(self, size: int) -> MR:
        """A region of at least `size` bytes, owned by the caller until give()."""
        with self._lock:
            surplus, self._surplus = self._surplus, []
            free = self._free.pop() if size <= STAGE and self._free else None
        for mr in surplus:
            mr.close()
        return free or self._pd.alloc(max(size, STAGE), Access.LOCAL_WRITE)

    def give(self, mr: MR) -> None:
        """Return a region. No control message is sent, so a completion sink may call it."""
        with self._lock:
            keep = mr.length == STAGE and len(self._free) < KEEP
            (self._free if keep else self._surplus).append(mr)
