"""What a forked child gives up at once, and what it may never free.

A descriptor that parent and child share is not closed before both have closed it: a child that
lives on would keep the parent's connections to its worker, to its key exchange and to its peers
open, and nobody would notice the parent's end. So the child closes them before it runs anything
else. Memory of pyverbs is the other way round: to free it is to destroy the parent's QP.

Only forks made by Python are seen. `subprocess` without a preexec_fn is none: pass_fds works.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from typing import Protocol


class Closeable(Protocol):
    def close(self) -> object: ...


_dropped: weakref.WeakSet[Closeable] = weakref.WeakSet()
_kept: weakref.WeakSet[object] = weakref.WeakSet()


def drop(*ends: Closeable) -> None:
    """A forked child closes its copy of these files and sockets."""
    _dropped.update(ends)


def keep(thing: object) -> None:
    """A forked child never frees this, not even at its end."""
    _kept.add(thing)


def _in_child() -> None:
    for end in list(_dropped):
        with contextlib.suppress(OSError):
            end.close()
    for thing in list(_kept):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


os.register_at_fork(after_in_child=_in_child)
