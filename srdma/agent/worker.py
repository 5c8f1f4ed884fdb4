"""The agent's connections to a worker process (local-interface.md 3).

Calls that the worker answers at once are made by a `Control`. WAIT is answered when a QP is in RTS
or ERR, so that it has a control connection of its own, in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

from srdma.agent.accounts import User, check_owner
from srdma.control import Control, Kind, QPState
from srdma.errors import RefusedError, WorkerGone


class Worker:
    """Both connections to one worker process. `ended` is done when either ends."""

    def __init__(self, path: Path, trusted: int | None = None) -> None:
        """trusted: see Control.connect(). Raises NoWorkerError."""
        self.path = path
        self.sessions = 0  # that use it
        self._shared = False  # of a system agent: programs of several users use it
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        with contextlib.ExitStack() as stack:
            self.control = Control.connect(path, user=trusted)
            stack.callback(self.control.close)
            self._waits = Control.connect(path, user=trusted)
            stack.pop_all()
        self._tags = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[tuple[Any, ...]]] = {}
        self._loop.add_reader(self._waits.fileno(), self._read)

    def take_role(self, *, attached: bool = False) -> None:
        """Take the role AGENT for both connections; attached: for the legs of attach() only.

        Raises RefusedError: EBUSY if another process has it.
        """
        self._shared = True
        self.control.agent(attached=attached)
        self._waits.agent(attached=attached)

    async def attach(self, token: bytes, user: User) -> int:
        """Use the leg with this token for a program of a user. Returns its number.

        Raises ExchangeError (`policy`) if the leg is of another user, unless this is a private
        agent, whose programs are its own; RefusedError, WorkerGone.
        """
        _, opener, charged = await self._request(Kind.ATTACH, [token])
        if self._shared:
            check_owner(user, opener, charged)
        return self.control.attach(token)

    async def wait(self, qpn: int) -> tuple[QPState, int]:
        """Wait until a QP is in RTS or ERR. Returns (state, reason), reason 0 in RTS.

        Raises RefusedError, or WorkerGone if the worker ends.
        """
        state, reason = await self._request(Kind.WAIT, [qpn])
        return QPState(state), reason

    def alive(self) -> bool:
        """False once the worker ended, also if `ended` is not done yet."""
        return not self.ended.done() and self.control.alive()

    def close(self) -> None:
        if self.ended.done():
            return
        self.ended.set_result(None)
        self._loop.remove_reader(self._waits.fileno())
        self._waits.close()
        self.control.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(WorkerGone("the local worker ended"))

    async def _request(self, kind: Kind, values: list[Any]) -> tuple[Any, ...]:
        tag = next(self._tags) & 0xFFFFFFFF
        answer: asyncio.Future[tuple[Any, ...]] = self._loop.create_future()
        self._waiting[tag] = answer
        try:
            self._waits.post(kind, tag, values)
            return await answer
        finally:
            del self._waiting[tag]

    def _read(self) -> None:
        """An answer has arrived, or the worker has ended."""
        try:
            tag, values = self._waits.take()
        except WorkerGone:
            self.close()
            return
        answer = self._waiting.get(tag)
        if answer is None or answer.done():
            return  # its session has ended
        if isinstance(values, RefusedError):
            answer.set_exception(values)
        else:
            answer.set_result(values)
