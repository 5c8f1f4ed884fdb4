"""Waiting for one of several tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, NoReturn

from srdma.errors import Error
from srdma.keyex.exchange_renew import Goodbye
from srdma.keyex.renew import NEVER
from srdma.keyex.tls import PeerClosed


class Closed(Exception):  # noqa: N818 - an event, not a fault
    """The program closed the channel."""


async def first_of(*works: Coroutine[Any, Any, NoReturn]) -> NoReturn:
    """Run all; raise the exception of the first that ends, and cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        for task in await next_of({*tasks}):
            task.result()
    finally:
        for task in tasks:
            await cancelled(task)
    raise AssertionError("a task ended without an exception")


async def next_of(
    tasks: set[asyncio.Future[Any]], until: float = NEVER
) -> set[asyncio.Future[Any]]:
    """Wait for one of these, or for a time (time.monotonic() seconds); returns those that ended."""
    pause = None if until == NEVER else max(until - time.monotonic(), 0)
    done, _ = await asyncio.wait(tasks, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
    return done


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end. Its result, or the event that ended it, is dropped."""
    task.cancel()
    await asyncio.wait({task})  # not `await task`: this task may be cancelled too
    error = None if task.cancelled() else task.exception()
    if error and not isinstance(error, Error | PeerClosed | Closed | Goodbye):
        raise error
