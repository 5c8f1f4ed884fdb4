"""Calls of a QP that are awaited: the jobs of _engine/blocking.py, executed in an event loop.

A request is posted only if the queue has room; a call waits for room instead of raising
QueueFullError. Messages are delivered to recv() calls in the order of the calls, regardless of
which call posted the receive.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from srdma._engine import blocking
from srdma._engine.blocking import Job, Message
from srdma._engine.bounce import KEEP, STAGE
from srdma.aio.reactor import Seat
from srdma.errors import ClosedError, Error, RemoteError
from srdma.qp import REASON_S, Request, SecureQP
from srdma.wc import WC

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from srdma._engine.blocking import Remote
    from srdma.mr import MR
    from srdma.wr import SGE


class _Receiver(NamedTuple):
    """A waiting recv() call. own: its memory, None for a bounce region of `size` bytes."""

    size: int
    own: SGE | None
    got: asyncio.Future[Request]


class QP:
    """A QP whose calls are awaited. sync: the underlying SecureQP; at most one QP uses it."""

    def __init__(self, qp: SecureQP) -> None:
        self.sync = qp
        self._reactor = Seat(qp, qp.pd).reactor
        self._order = asyncio.Lock()
        self._places = asyncio.Semaphore(qp.depths[0])
        self._copies = asyncio.Semaphore(KEEP)
        self._ends: dict[Request, asyncio.Future[None]] = {}
        self._receivers: deque[_Receiver] = deque()
        with qp.pd.engine.lock:
            for request in qp.receives:
                if request.wc is None:
                    request.ended = self._receive_ended
                    self._reactor.posted()

    async def write(
        self,
        data: Buffer | MR | SGE,
        remote: Remote,
        offset: int = 0,
        imm: int | None = None,
    ) -> None:
        """As SecureQP.write(); for a time limit use asyncio.timeout()."""
        self.sync.ensure_alive()
        await self._do(blocking.write(self.sync, data, remote, offset, imm))

    async def read(
        self,
        remote: Remote,
        offset: int = 0,
        length: int | None = None,
        into: Buffer | MR | SGE | None = None,
    ) -> bytes:
        """As SecureQP.read()."""
        self.sync.ensure_alive()
        return await self._do(blocking.read(self.sync, remote, offset, length, into))

    async def compare_and_swap(self, remote: Remote, offset: int, compare: int, swap: int) -> int:
        """As SecureQP.compare_and_swap()."""
        self.sync.ensure_alive()
        job = blocking.compare_and_swap(self.sync, remote, offset, compare, swap)
        return blocking.number(await self._do(job))

    async def fetch_add(self, remote: Remote, offset: int, add: int) -> int:
        """As SecureQP.fetch_add()."""
        self.sync.ensure_alive()
        return blocking.number(await self._do(blocking.fetch_add(self.sync, remote, offset, add)))

    async def send(self, data: Buffer | MR | SGE = b"", imm: int | None = None) -> None:
        """As SecureQP.send()."""
        self.sync.ensure_alive()
        await self._do(blocking.send(self.sync, data, imm))

    async def recv(self, *, size: int = STAGE, into: MR | SGE | None = None) -> Message:
        """As SecureQP.recv(). Calls get messages in the order of the calls.

        The receive of a cancelled call stays posted, with its memory, for the next call.
        """
        self.sync.ensure_alive()
        own = None if into is None else blocking.writable(self.sync, into, None)
        receiver = _Receiver(size, own, self._reactor.loop.create_future())
        self._receivers.append(receiver)
        self._receive()
        try:
            request = await receiver.got
        except asyncio.CancelledError:
            self._leave(receiver)
            raise
        try:
            assert request.wc is not None
            return blocking.message_of(request, await self._outcome(request.wc))
        finally:
            self.sync.release(request)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yield messages until either end closes the QP; raises its other errors."""
        while True:
            try:
                message = await self.recv()
            except (ClosedError, RemoteError):
                if self.sync.closed or self.sync.reason == "PEER_CLOSED":
                    return
                raise
            yield message

    # Requests ----------------------------------------------------------------------

    async def _do(self, job: Job) -> bytes:
        ended = self._copy_ended if job.copied else self._ended
        taken = False  # True: has a place in the queue, not yet posted
        try:
            with contextlib.closing(blocking.steps(self.sync, job, ended)) as requests:
                for request in requests:
                    if taken:
                        taken = False
                        self._reactor.posted()
                    if request is None:
                        await self._take_place(job.copied)
                        taken = True
                        self.sync.ensure_alive()
                    else:
                        await self._end_of(request)
        finally:
            if taken:
                self._give_place(job.copied)
        return bytes(job.result)

    async def _take_place(self, copied: bool) -> None:
        """Wait for a place in the queue; at most KEEP requests with copied data are outstanding."""
        async with self._order:
            if copied:
                await self._copies.acquire()
            try:
                await self._places.acquire()
            except BaseException:
                if copied:
                    self._copies.release()
                raise

    def _give_place(self, copied: bool) -> None:
        self._places.release()
        if copied:
            self._copies.release()

    async def _end_of(self, request: Request) -> None:
        if request.wc is None:
            ended = self._ends[request] = self._reactor.loop.create_future()
            try:
                await ended
            finally:
                self._ends.pop(request, None)
        assert request.wc is not None
        await self._outcome(request.wc)

    async def _outcome(self, wc: WC) -> WC:
        if self.sync.lacks_reason(wc):
            await self._reactor.until(lambda: not self.sync.lacks_reason(wc), REASON_S)
        return self.sync.outcome(wc)

    # Callbacks of completed requests; called under the engine's lock, in any thread.

    def _ended(self, request: Request) -> None:
        self._reactor.soon(self._over, request, False)

    def _copy_ended(self, request: Request) -> None:
        self._reactor.soon(self._over, request, True)

    def _receive_ended(self, request: Request) -> None:
        self._reactor.soon(self._receive_over)

    def _over(self, request: Request, copied: bool) -> None:
        self._reactor.over()
        self._give_place(copied)
        waiting = self._ends.get(request)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # Receives ------------------------------------------------------------------------

    def _receive_over(self) -> None:
        self._reactor.over()
        self._receive()

    def _receive(self) -> None:
        """Deliver messages, then post receives until there is one for each waiting call."""
        while self._head() and (request := self.sync.take_receive(ended=True)):
            self._receivers.popleft().got.set_result(request)
        while (n := len(self.sync.receives)) < min(len(self._receivers), self.sync.depths[1]):
            receiver = self._receivers[n]
            try:
                self._post(receiver)
            except Error as e:
                del self._receivers[n]
                if not receiver.got.done():
                    receiver.got.set_exception(e)

    def _head(self) -> bool:
        """True if a call waits; removes cancelled ones from the head of the queue."""
        while self._receivers and self._receivers[0].got.done():
            self._receivers.popleft()
        return bool(self._receivers)

    def _post(self, receiver: _Receiver) -> None:
        self.sync.ensure_alive()
        request = blocking.post_receive(self.sync, receiver.size, receiver.own, self._receive_ended)
        self.sync.leave_receive(request)
        self._reactor.posted()

    def _leave(self, receiver: _Receiver) -> None:
        """The call was cancelled; a message that it already has goes to the next call."""
        if receiver in self._receivers:
            self._receivers.remove(receiver)
        elif not receiver.got.cancelled() and receiver.got.exception() is None:
            self.sync.leave_receive(receiver.got.result())
            self._receive()
