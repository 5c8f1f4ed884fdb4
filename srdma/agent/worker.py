"""The agent's connections to a worker process (local-interface.md 3).

Calls that the worker answers at once are made by a `Control`. WAIT is answered when a QP is in RTS
or ERR, so that it has a control connection of its own, in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from typing import Any

from srdma.agent.accounts import User, check_owner
from srdma.control import Control, Direction, Kind
from srdma.errors import RefusedError, WorkerGone
from srdma.keyex.fields import ExchangeError


class Ended(asyncio.Future[None]):
    """The end of a worker, for which all sessions wait together with other futures.

    Each asyncio.wait() adds and removes a callback. A Future searches all callbacks to remove one,
    which took 40 % of the CPU time of an agent with 3,000 sessions; this one does not search.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._waiting: dict[Callable[[Any], object], Context | None] = {}
        super().add_done_callback(Ended._call)

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        """A callback that is added twice is called once."""
        if self.done():
            super().add_done_callback(fn, context=context)
        else:
            self._waiting[fn] = context

    def remove_done_callback(self, fn: Callable[[Any], object], /) -> int:
        known = fn in self._waiting
        self._waiting.pop(fn, None)
        return int(known)

    def _call(self) -> None:
        for fn, context in self._waiting.items():
            self.get_loop().call_soon(fn, self, context=context)
        self._waiting.clear()


class Worker:
    """Both connections to one worker process. `ended` is done when either ends."""

    def __init__(self, path: Path, trusted: int | None = None, token: bytes = b"") -> None:
        """trusted: see Control.connect(); token: of the leg, if it is for one only. Raises
        NoWorkerError."""
        self.path, self.token = path, token
        self.sessions = 0  # that use it
        self._shared = False  # of a system agent: programs of several users use it
        self._loop = asyncio.get_running_loop()
        self.ended = Ended(self._loop)
        with contextlib.ExitStack() as stack:
            self.control = Control.connect(path, user=trusted)
            stack.callback(self.control.close)
            self._waits = Control.connect(path, user=trusted)
            stack.pop_all()
        self._legs: dict[bytes, tuple[int, int, str]] = {}  # number of the leg with each token
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

        Both connections use it until they end, so that only the first call makes requests. Raises
        ExchangeError (`policy`) if the leg is of another user, unless this is a private agent,
        whose programs are its own; RefusedError, WorkerGone.
        """
        if token not in self._legs:
            _, opener, charged = await self._ask(Kind.ATTACH, [token])
            self._legs[token] = self.control.attach(token), opener, charged
        leg, opener, charged = self._legs[token]
        if self._shared:
            check_owner(user, opener, charged)
        return leg

    def check_new(self, qpn: int) -> None:
        """Raises ExchangeError (`config`) unless this QP of an attached leg is not connected."""
        try:
            self.control.rekey(qpn, Direction.BOTH)  # changes nothing
        except RefusedError as error:
            if error.errno != errno.ENOTCONN:
                raise ExchangeError(
                    "config", f"QP {qpn:#08x} is no new QP of this program: {error}"
                ) from None
        else:
            raise ExchangeError("config", f"QP {qpn:#08x} is connected already")

    def wait(self, qpn: int) -> asyncio.Future[tuple[Any, ...]]:
        """(state, reason) of a QP, once it is in RTS or ERR; reason 0 in RTS.

        Raises RefusedError, or WorkerGone if the worker ends.
        """
        return self._ask(Kind.WAIT, [qpn])

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
        for answer in [*self._waiting.values()]:
            if not answer.done():
                answer.set_exception(WorkerGone("the local worker ended"))

    def _ask(self, kind: Kind, values: list[Any]) -> asyncio.Future[tuple[Any, ...]]:
        tag = next(self._tags) & 0xFFFFFFFF
        self._waits.post(kind, tag, values)
        answer = self._waiting[tag] = self._loop.create_future()
        answer.add_done_callback(lambda _: self._waiting.pop(tag, None))
        return answer

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
