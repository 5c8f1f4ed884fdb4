"""Capabilities installed on a leg: a request names one by its handle (protocol.md 6.4).

A capability is installed at its first use. A full leg gives up the one used longest ago, but none
that a request under way still names: that request would fail.
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
    """One installation; `uses` requests that have not ended name it."""

    __slots__ = ("capability", "number", "uses")

    def __init__(self, capability: Capability, number: int) -> None:
        self.capability = capability
        self.number = number
        self.uses = 0


class Handles:
    """Those of one leg. Talks to the worker in take() only, and never with its lock held."""

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
        self._changing = threading.Lock()  # one call at a time changes what is installed
        self._known: OrderedDict[Capability, Handle] = OrderedDict()  # the one to go first, first

    def take(self, capability: Capability) -> Handle:
        """For one request; the caller owes a give()."""
        handle = self._use(capability)
        if handle is None:
            with self._changing:
                handle = self._use(capability) or self._make(capability)
        return handle

    def give(self, handle: Handle) -> None:
        """The request ended, or was not posted."""
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
            f"requests under way name {self._limit} capabilities, as many as a PD takes: "
            "poll completions, then post again"
        )


class _Use(NamedTuple):
    last: int  # number of the signaled request with which this one has ended too
    handle: Handle


class Uses:
    """Which handles the application's own requests of one QP name.

    Requests end in order, and an unsignaled one says nothing: it has ended when the next
    signaled one has. Whoever calls holds the engine's lock.
    """

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._posted = self._ended = 0  # signaled requests of the QP, blocking calls' too
        self._uses: deque[_Use] = deque()

    def posted(self, signaled: int, handle: Handle | None = None) -> None:
        """So many more signaled ones; or the request of a handle, which ends with the next."""
        if handle is not None:
            self._uses.append(_Use(self._posted + 1, handle))
        self._posted += signaled

    def ended(self) -> None:
        """The next signaled one, by success."""
        self._ended += 1
        while self._uses and self._uses[0].last <= self._ended:
            self._handles.give(self._uses.popleft().handle)

    def clear(self) -> None:
        """The QP is in error: whatever is under way fails by itself."""
        while self._uses:
            self._handles.give(self._uses.popleft().handle)
