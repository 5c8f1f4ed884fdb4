"""Registered memory of the library's own, through which unregistered data goes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from srdma.mr import MR, Access

if TYPE_CHECKING:
    from srdma.pd import PD

STAGE = 1 << 20  # bytes of a region in the pool; longer messages get one of their own
KEEP = 8  # regions


class BouncePool:
    """Regions of STAGE bytes. A region is in use until its work request completed."""

    def __init__(self, pd: PD) -> None:
        self._pd = pd
        self._lock = threading.Lock()
        self._free: list[MR] = []
        self._surplus: list[MR] = []

    def take(self, size: int) -> MR:
        """A region of at least size bytes, the caller's until give()."""
        with self._lock:
            surplus, self._surplus = self._surplus, []
            free = self._free.pop() if size <= STAGE and self._free else None
        for mr in surplus:
            mr.close()
        return free or self._pd.alloc(max(size, STAGE), Access.LOCAL_WRITE)

    def give(self, mr: MR) -> None:
        """Back again; talks to nobody, so it may be called by a sink."""
        with self._lock:
            keep = mr.length == STAGE and len(self._free) < KEEP
            (self._free if keep else self._surplus).append(mr)
