"""Delivers the completions of one PD in an asyncio event loop, without a thread or busy polling.

The loop watches the leg's descriptor and the control socket. A turn delivers the completions that
arrived. If nothing arrived and requests are outstanding, it arms the leg.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from srdma._engine.resource import Resource
from srdma.errors import LocalError

if TYPE_CHECKING:
    from srdma.pd import PD

_reactors: dict[PD, Reactor] = {}
_lock = threading.Lock()  # connections are closed in other threads


class Reactor:
    """The reactor of one PD in one loop; it exists while it has a `Seat`.

    Its methods must be called in the loop's thread, except soon() and leave().
    """

    def __init__(self, pd: PD) -> None:
        self.loop = asyncio.get_running_loop()
        self._pd = pd
        self._engine = pd.engine
        self._thread = threading.get_ident()
        self._news = asyncio.Event()
        self._seats = 0
        self._outstanding = 0
        self._armed = self._scheduled = False
        self._engine.claim()
        self._fds: Sequence[int] = (pd.fileno(), pd.control.fileno())
        for fd in self._fds:
            self.loop.add_reader(fd, self._turn)

    def posted(self) -> None:
        """One further completion is expected; over() must be called when it has arrived."""
        self._outstanding += 1
        if not self._armed:
            self._schedule()

    def over(self) -> None:
        """One expected completion has arrived."""
        self._outstanding -= 1

    def soon(self, callback: Callable[..., object], *args: object) -> None:
        """Schedule a callback in the loop, from any thread; no effect if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            if threading.get_ident() == self._thread:
                self.loop.call_soon(callback, *args)
            else:
                self.loop.call_soon_threadsafe(callback, *args)

    async def until(self, done: Callable[[], bool], seconds: float) -> None:
        """Deliver completions until done() is true, or for `seconds` at most."""
        self.posted()
        try:
            async with asyncio.timeout(seconds):
                while not done():
                    await self._news.wait()
        except TimeoutError:
            pass
        finally:
            self.over()

    def sit(self) -> None:
        """Add a Seat."""
        with _lock:
            self._seats += 1

    def leave(self) -> None:
        """Remove a Seat; the reactor ends with its last one. Any thread may call this."""
        with _lock:
            self._seats -= 1
            if self._seats:
                return
            del _reactors[self._pd]
        self._engine.unclaim()
        if threading.get_ident() == self._thread:
            self._unwatch()
        else:
            self.soon(self._unwatch)

    def _unwatch(self) -> None:
        fds, self._fds = self._fds, ()
        for fd in fds:
            if not self.loop.is_closed():
                self.loop.remove_reader(fd)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._armed = self._scheduled = False
        if not self._seats:
            return
        self._engine.drain()
        if self._engine.poll():
            self._schedule()
        elif self._engine.ended:
            self._unwatch()
            while self._engine.poll():
                pass
        elif self._outstanding:
            self._armed = not self._engine.arm()
            if not self._armed:
                self._schedule()
        self._news.set()
        self._news.clear()


class Seat(Resource):
    """Keeps the reactor of a PD alive, and the PD bound to this loop, until `parent` is closed.

    Raises LocalError if another loop or a blocking call uses the PD.
    """

    def __init__(self, parent: Resource, pd: PD) -> None:
        super().__init__(parent)
        self._joined: Reactor | None = None
        try:
            self._joined = _reactor_of(pd)
        except BaseException:
            self.close()
            raise
        self._joined.sit()

    @property
    def reactor(self) -> Reactor:
        assert self._joined is not None
        return self._joined

    def _release(self) -> None:
        if self._joined is not None:
            self._joined.leave()


def _reactor_of(pd: PD) -> Reactor:
    reactor = _reactors.get(pd)
    if reactor is None:
        reactor = _reactors[pd] = Reactor(pd)
    elif reactor.loop is not asyncio.get_running_loop():
        raise LocalError(
            "another event loop uses this PD: close its objects there, or use a new PD here"
        )
    return reactor
