"""Capabilities installed on a leg: a request names one by its handle (protocol.md 6.4).

A capability is installed at its first use. On a full leg the least recently used capability that
no outstanding request names is uninstalled; a request that names an uninstalled one would fail.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from srdma.capability import Capability
from srdma.errors import QueueFullError
from srdma.native.constants import HANDLES_MAX

LIMIT = HANDLES_MAX


class Handle:
    """An installed capability. uses: number of outstanding requests that name it."""

    __slots__ = ("capability", "number", "uses")

    def __init__(self, capability: Capability, number: int) -> None:
        self.capability = capability
        self.number = number
        self.uses = 0


class Handles:
    """The handles of one leg. Only take() calls the worker, and never with the lock held."""

    def __init__(
        self,
        install: Callable[[Capability], int],
        uninstall: Callable[[int], None],
        limit: int = LIMIT,
    ) -> None:
        self._install = install
        self._uninstall = uninstall
        self._limit = limit
        self._lock = threading.Lock()
        self._changing = threading.Lock()  # serializes install and uninstall
        self._known: OrderedDict[Capability, Handle] = OrderedDict()  # least recently used first

    def take(self, capability: Capability) -> Handle:
        """Handle for one request, installed if needed; the caller must give() it back.

        Raises QueueFullError if all handles of the leg are in use, or RefusedError.
        """
        handle = self._use(capability)
        if handle is None:
            with self._changing:
                handle = self._use(capability) or self._make(capability)
        return handle

    def give(self, handle: Handle) -> None:
        """Release a handle of take(): its request has ended, or was not posted."""
        with self._lock:
            handle.uses -= 1

    def _use(self, capability: Capability) -> Handle | None:
        with self._lock:
            handle = self._known.get(capability)
            if handle is not None:
                handle.uses += 1
                self._known.move_to_end(capability)
            return handle

    def _make(self, capability: Capability) -> Handle:
        with self._lock:
            oldest = self._oldest() if len(self._known) >= self._limit else None
            if oldest is not None:
                del self._known[oldest.capability]
        if oldest is not None:
            self._uninstall(oldest.number)
        handle = Handle(capability, self._install(capability))
        handle.uses = 1
        with self._lock:
            self._known[capability] = handle
        return handle

    def _oldest(self) -> Handle:
        for handle in self._known.values():
            if not handle.uses:
                return handle
        raise QueueFullError(
            f"outstanding requests name {self._limit} capabilities, the limit of a PD: "
            "poll completions, then post again"
        )


class _Use(NamedTuple):
    last: int  # serial number of the signaled request whose end implies the end of this one
    handle: Handle


class Uses:
    """Handles that the application's outstanding requests of one QP name.

    Requests end in order. An unsignaled request makes no completion: it has ended when the next
    signaled one has. The caller of each method holds the engine's lock.
    """

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._posted = self._ended = 0  # signaled requests, those of blocking calls included
        self._uses: deque[_Use] = deque()

    def posted(self, signaled: int, handle: Handle | None = None) -> None:
        """Count `signaled` signaled requests as posted.

        With a handle, exactly one request was posted, which names it; `signaled` is 0 or 1. That
        request has ended when the first signaled request at or after it has completed.
        """
        if handle is not None:
            self._uses.append(_Use(self._posted + 1, handle))
        self._posted += signaled

    def ended(self) -> None:
        """The oldest signaled request completed successfully."""
        self._ended += 1
        while self._uses and self._uses[0].last <= self._ended:
            self._handles.give(self._uses.popleft().handle)

    def clear(self) -> None:
        """Release all handles. Called when the QP is in error or destroyed: no request remains."""
        while self._uses:
            self._handles.give(self._uses.popleft().handle)
