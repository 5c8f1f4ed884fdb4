"""Life of the objects of the API: parents close their children first, each once.

What was made from a Context keeps it until it is closed: were both freed when nobody names
them any more, peers could go on writing into memory that is somebody else's by then.

A forked child shares the parent's memory with it, also what peers write into, and loses its
connections (control/forked.py). It may only forget what it inherited: every use is an error,
close() talks to nobody.
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

_held: set[Resource] = set()  # those without a parent that have children


class Resource:
    """Something of the worker's that must be given back; a context manager."""

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
                "cannot use it; open a Context of its own there"
            )

    def ensure_alive(self) -> None:
        """Raise ClosedError unless this may be used."""
        if self._closed or os.getpid() != self._pid:
            self.ensure_mine()
            raise ClosedError(f"this {type(self).__name__} is closed")

    def close(self) -> None:
        """Give back what this and everything made from it holds. Again: no effect."""
        if self._closed or os.getpid() != self._pid:
            return
        with contextlib.ExitStack() as stack:  # last made, first closed, whatever fails
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
        """What closing means for this object; called once."""

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
    """Around what gives something back: it went with its leg, or its worker, if that is gone.

    A leg may end alone, over verbs: then the worker knows nothing of it any more (protocol.md 10),
    and no DMA of it is under way.
    """
    try:
        yield
    except WorkerGone:
        pass
    except RefusedError as error:
        if error.errno != errno.EPERM:
            raise
