"""Inherited objects that a forked child closes at once, and those that it must never free.

A connection ends when all processes have closed its descriptor. A child that keeps descriptors of
the parent would hide the parent's end from worker, agent and peers. The child
therefore closes them before it runs anything else. Objects of pyverbs must not be freed in the
child, because that would destroy the parent's QP.

Only forks made by Python run this code. `subprocess` without a preexec_fn does not, so pass_fds
works.
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
    """Register files or sockets: a forked child closes its copies."""
    _dropped.update(ends)


def keep(thing: object) -> None:
    """Register an object that a forked child never frees, not even at its end."""
    _kept.add(thing)


def _in_child() -> None:
    for end in list(_dropped):
        with contextlib.suppress(OSError):
            end.close()
    for thing in list(_kept):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


os.register_at_fork(after_in_child=_in_child)
