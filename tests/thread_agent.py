"""Agents in threads of the test, which may therefore change their constants."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from srdma.agent.accounts import User
from srdma.agent.clock import SystemClock
from srdma.agent.policy import Private
from srdma.agent.service import Service
from tests.keyex_players import PATIENCE

T = TypeVar("T")


class ServiceThread:
    """A Service in an event loop of its own. `faults` are texts of errors that no task handled."""

    def __init__(self, make: Callable[[], Service]) -> None:
        self.faults: list[str] = []
        self._started: Future[None] = Future()
        self._make = make
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        self._started.result(PATIENCE)

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda _, context: self.faults.append(str(context)))
        self.service = self._make()
        self._started.set_result(None)
        await self._over.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop. Returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def call(self, work: Callable[[], T]) -> T:
        """Call a function in the loop. Returns its result."""

        async def called() -> T:
            return work()

        return self.run(called())

    def post(self, work: Callable[[], object]) -> None:
        """Call a function in the loop, and do not wait for it."""
        self._loop.call_soon_threadsafe(work)

    def open(self, user: User | None = None, link: int = 0) -> socket.socket:
        """The program's end of a new channel. user, link: see Service.open()."""
        ours, theirs = socket.socketpair()
        self.call(lambda: self.service.open(theirs, user, link))
        return ours

    def close(self, *, restart: bool = False) -> None:
        """End the service, as by SIGTERM if `restart`, and its thread."""
        if self._thread.is_alive():
            self.run(self.service.close(restart=restart))
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(PATIENCE)


class ThreadAgent:
    """In place of a PrivateAgent of keyex_players.Program."""

    pid = 0

    def __init__(self, clock: SystemClock | None = None) -> None:
        self.thread = ServiceThread(lambda: Service(Private(clock)))
        self.open = self.thread.open
        self._process = self._door = self

    @property
    def _log(self) -> io.BytesIO:
        return io.BytesIO("\n".join(self.thread.faults).encode())

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        self.thread.close()

    def wait(self, _: float) -> int:
        return 0
