"""The heap of an agent: many objects that live long, and few cycles of references."""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from typing import Any

YOUNG = 20_000  # new objects between two runs of the cycle collector; 700 by default


def collect_less() -> None:
    """Run Python's cycle collector less often: each run looks at the objects of many sessions, and
    finds nothing."""
    gc.set_threshold(YOUNG)


def trim() -> None:
    """Return free memory to the system: malloc_trim() of glibc; without effect with another C
    library."""
    if call := _malloc_trim():
        call(0)


@cache
def _malloc_trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
