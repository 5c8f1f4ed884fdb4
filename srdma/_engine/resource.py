"""Lifetime of the objects of the API. A parent closes its children first, each exactly once.

A Context with children is held until it is closed, even if the program drops all references.
Otherwise the memory of a region could be freed and reused while peers still write into it.

A forked child shares the memory of its parent, including memory that peers write into, and loses
the connections (control/forked.py). Objects that it inherited cannot be used: every call raises
ClosedError, and close() has no effect.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from types import TracebackType
from typing import TypeVar

from srdma.errors import ClosedError, RefusedError, WorkerGone

_R = TypeVar("_R", bound="Resource")

_held: set[Resource] = set()  # roots (without a parent) that have children


class Resource:
    """Base class: a resource of the worker that must be released; a context manager."""

    def __init__(self, parent: Resource | None = None) -> None:
        self._parent = parent
        self._children: dict[int, Resource] = {}  # by id(), in order of creation
        self._pid = os.getpid()
        self._closed = False
        if parent is not None:
            parent.ensure_alive()
            parent._children[id(self)] = self
            if parent._parent is None:
                _held.add(parent)

    @property
    def closed(self) -> bool:
        return self._closed

    def ensure_mine(self) -> None:
        """Raise ClosedError in a forked child."""
        if os.getpid() != self._pid:
            raise ClosedError(
                f"this {type(self).__name__} belongs to process {self._pid}: a forked child "
                "cannot use it; open a new Context in the child"
            )

    def ensure_alive(self) -> None:
        """Raise ClosedError if this was closed or belongs to a parent process."""
        if self._closed or os.getpid() != self._pid:
            self.ensure_mine()
            raise ClosedError(f"this {type(self).__name__} is closed")

    def close(self) -> None:
        """Release this and everything made from it. A second call has no effect."""
        if self._closed or os.getpid() != self._pid:
            return
        with contextlib.ExitStack() as stack:  # newest first; an error does not stop the rest
            stack.callback(self._end)
            for child in self._children.values():
                stack.callback(child.close)

    def _end(self) -> None:
        self._closed = True
        if self._parent is not None:
            self._parent._children.pop(id(self), None)
            if not self._parent._children:
                _held.discard(self._parent)
        self._release()

    def _release(self) -> None:
        """Release what this object itself holds; called once."""

    def __enter__(self: _R) -> _R:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextlib.contextmanager
def unless_gone() -> Iterator[None]:
    """Ignore errors of a release whose leg or worker has ended: the resource ended with it.

    A leg over verbs may end alone. The worker then answers EPERM, ENOENT for a QP of it, or
    ECONNRESET if the request waited, and no DMA of the leg is in progress. It also answers ENOENT
    if an earlier copy of the request ended the resource and its DMA (control-link.md 2.5).
    """
    try:
        yield
    except WorkerGone:
        pass
    except RefusedError as error:
        if error.errno not in (errno.EPERM, errno.ENOENT, errno.ECONNRESET):
            raise
