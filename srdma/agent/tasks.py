"""Waiting for one of several events, and why a task of the service is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, NoReturn

from srdma.errors import Error
from srdma.keyex.exchange_renew import Goodbye
from srdma.keyex.renew import NEVER
from srdma.keyex.tls import PeerClosed

# Messages of CancelledError, by Service.
WITHDRAWN = "the policy no longer grants the identity to this program"
RESTART = "the agent ends, and its QPs go on"
TOLD = "the other end withdrew the identity from its program"  # to the peer, for WITHDRAWN


class Closed(Exception):  # noqa: N818 - an event, not a fault
    """The program closed the channel."""


class Bell:
    """Wakes the one task of a session, which waits for many events."""

    __slots__ = ("_rung", "_waiter")

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self, _: object = None) -> None:
        """Something happened; also the callback of a future."""
        self._rung = True
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, until: float = NEVER) -> None:
        """Wait for ring() since the last call, or for a time (time.monotonic() seconds)."""
        if not self._rung:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = None if until == NEVER else loop.call_at(until, self.ring)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer:
                    timer.cancel()
        self._rung = False


class Watched:
    """A block of code of a task, which an exception of check() ends, as asyncio.timeout() does.

    check() is called at the beginning and by news(). It may raise Closed or Error.
    """

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        self._task: asyncio.Task[Any] | None = None
        self._before = 0
        self._end: Closed | Error | None = None

    def news(self) -> None:
        if self._task is None or self._end:
            return
        try:
            self._check()
        except (Closed, Error) as end:
            self._end = end
            self._task.cancel()

    def __enter__(self) -> None:
        self._check()
        self._task = asyncio.current_task()
        assert self._task
        self._before = self._task.cancelling()

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task
        own = self._end and task.uncancel() <= self._before
        if own and kind is asyncio.CancelledError:
            assert self._end
            raise self._end from None


async def first_of(*works: Coroutine[Any, Any, NoReturn]) -> NoReturn:
    """Run all; raise the exception of the first that ends, and cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            await cancelled(task)
    raise AssertionError("a task ended without an exception")


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end. Its result, or the event that ended it, is dropped."""
    task.cancel()
    await asyncio.wait({task})  # not `await task`: this task may be cancelled too
    error = None if task.cancelled() else task.exception()
    if error and not isinstance(error, Error | PeerClosed | Closed | Goodbye):
        raise error
