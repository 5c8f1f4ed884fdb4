"""Waiting of an agent's tasks for several events (srdma/agent/tasks.py)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, NoReturn, cast

import pytest

from srdma.agent.tasks import Bell, Closed, Watched, cancelled, first_of
from srdma.errors import Error
from srdma.keyex.fields import ExchangeError
from tests.keyex_players import PATIENCE


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


async def steps() -> None:
    """All tasks do what they can."""
    for _ in range(5):
        await asyncio.sleep(0)


# Bell ---------------------------------------------------------------------------------


def test_ring_before_the_wait_is_not_lost() -> None:
    async def work() -> None:
        bell = Bell()
        bell.ring()
        bell.ring()
        await bell.wait()
        waits = asyncio.ensure_future(bell.wait())
        await steps()
        assert not waits.done()  # both rings counted once
        bell.ring()
        bell.ring()
        await waits

    run(work())


def test_ring_by_the_end_of_a_future() -> None:
    async def work() -> None:
        bell = Bell()
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(bell.ring)
        waits = asyncio.ensure_future(bell.wait())
        await steps()
        future.set_result(None)
        await waits

    run(work())


def test_wait_until_a_time() -> None:
    """A time that is over ends the wait at once, and counts as no ring of the next one."""

    async def work() -> None:
        bell = Bell()
        await bell.wait(time.monotonic() - 1)
        await bell.wait(time.monotonic() + 0.01)
        waits = asyncio.ensure_future(bell.wait())
        await steps()
        assert not waits.done()
        await cancelled(waits)

    run(work())


def test_ring_ends_the_timer() -> None:
    async def work() -> None:
        bell, loop = Bell(), asyncio.get_running_loop()
        waits = asyncio.ensure_future(bell.wait(loop.time() + PATIENCE))
        await steps()
        bell.ring()
        await waits
        timers = [each for each in cast(Any, loop)._scheduled if not each.cancelled()]
        assert len(timers) == 1  # of run()

    run(work())


def test_ring_after_a_cancelled_wait() -> None:
    async def work() -> None:
        bell = Bell()
        await cancelled(asyncio.ensure_future(bell.wait()))
        waits = asyncio.ensure_future(bell.wait())
        await steps()
        await cancelled(waits)
        bell.ring()
        await bell.wait()

    run(work())


# Watched ------------------------------------------------------------------------------


class Channel:
    """Raises `end`, if there is one, in check()."""

    def __init__(self, end: BaseException | None = None) -> None:
        self.end = end
        self.checks = 0

    def check(self) -> None:
        self.checks += 1
        if self.end:
            raise self.end


def test_end_before_the_block() -> None:
    async def work() -> None:
        watched = Watched(Channel(Closed()).check)
        with pytest.raises(Closed), watched:
            raise AssertionError("the block began")
        await asyncio.sleep(0)  # the task is not cancelled

    run(work())


@pytest.mark.parametrize("end", [Closed(), ExchangeError("config", "no")], ids=repr)
def test_news_end_the_block(end: Closed | Error) -> None:
    """The exception of the check takes the place of what the block waited for."""

    async def work() -> None:
        channel = Channel()
        watched = Watched(channel.check)
        loop = asyncio.get_running_loop()
        loop.call_soon(watched.news)  # without an end
        with pytest.raises(type(end)) as caught, watched:
            await steps()
            channel.end = end
            loop.call_soon(watched.news)
            loop.call_soon(watched.news)  # no effect
            await asyncio.sleep(PATIENCE)
        assert caught.value is end and channel.checks == 3
        task = asyncio.current_task()
        assert task and not task.cancelling()
        await asyncio.sleep(0)

    run(work())


def test_news_outside_the_block() -> None:
    async def work() -> None:
        channel = Channel()
        watched = Watched(channel.check)
        watched.news()
        with watched:
            await asyncio.sleep(0)
        channel.end = Closed()
        watched.news()
        await asyncio.sleep(0)
        assert channel.checks == 1

    run(work())


def test_exception_of_the_block() -> None:
    async def work() -> None:
        with pytest.raises(ExchangeError, match="own"), Watched(Channel().check):
            raise ExchangeError("state", "own")

    run(work())


def test_news_while_the_task_is_cancelled() -> None:
    """The task ends as cancelled: an agent that ends does not take it for the program's end."""

    async def work() -> None:
        channel = Channel()
        watched = Watched(channel.check)

        async def block() -> None:
            with watched:
                await asyncio.sleep(PATIENCE)

        for order in (0, 1):
            channel.end = None
            watched = Watched(channel.check)
            task = asyncio.ensure_future(block())
            await steps()
            channel.end = Closed()
            for act in [(watched.news, task.cancel), (task.cancel, watched.news)][order]:
                act()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(work())


def test_time_that_is_over_within_the_block() -> None:
    """Both are about the same task."""

    async def work() -> None:
        with pytest.raises(TimeoutError), Watched(Channel().check):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(PATIENCE)
        channel = Channel()
        watched = Watched(channel.check)
        with pytest.raises(Closed), watched:
            async with asyncio.timeout(PATIENCE):
                channel.end = Closed()
                asyncio.get_running_loop().call_soon(watched.news)
                await asyncio.sleep(PATIENCE)

    run(work())


# Tasks --------------------------------------------------------------------------------


def test_first_of() -> None:
    """The others have ended when it returns."""

    async def work() -> None:
        ended: list[str] = []

        async def endless() -> NoReturn:
            try:
                await asyncio.sleep(PATIENCE)
                raise AssertionError
            finally:
                ended.append("endless")

        async def short() -> NoReturn:
            await steps()
            raise Closed

        with pytest.raises(Closed):
            await first_of(endless(), short(), endless())
        assert ended == ["endless"] * 2

    run(work())


@pytest.mark.parametrize(
    ("end", "raised"), [(Closed(), False), (ExchangeError("gone", ""), False), (KeyError(), True)]
)
def test_cancelled(end: Exception, raised: bool) -> None:
    """The event that ended a task is dropped, and a fault is not."""

    async def work() -> None:
        async def task() -> None:
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                raise end

        made = asyncio.ensure_future(task())
        await steps()
        if raised:
            with pytest.raises(type(end)):
                await cancelled(made)
        else:
            await cancelled(made)
        assert made.done()

    run(work())
