"""Return free memory of the heap to the system."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def trim() -> None:
    """malloc_trim() of glibc; without effect with another C library."""
    if call := _malloc_trim():
        call(0)


@cache
def _malloc_trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
