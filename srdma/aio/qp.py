"""The calls of a QP to be awaited: the jobs of _engine/blocking.py, done in an event loop.

Nothing is posted without a place in its queue, so calls wait for one and are no QueueFullError.
Messages go to the calls in their order, whichever call it was that posted the receive.
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
    """A recv() that waits."""

    size: int
    own: SGE | None
    got: asyncio.Future[Request]


class QP:
    """The calls of a SecureQP, which `sync` is; at most one of these per SecureQP."""

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
        """As SecureQP.write()."""
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
        """As SecureQP.recv(). Calls get the messages in their own order.

        After a cancelled call its receive stays posted, with its memory, for the next one.
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
        """The messages, until either end closes the QP."""
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
        taken = False  # a place that nothing was posted for yet
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
        """In the queue; what is copied may have few of them, to bound the memory."""
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

    # Under the engine's lock, in any thread:

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
        """Hand out what arrived, and see that there is a receive posted for each that waits."""
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
        """Is there one that waits, and was not cancelled?"""
        while self._receivers and self._receivers[0].got.done():
            self._receivers.popleft()
        return bool(self._receivers)

    def _post(self, receiver: _Receiver) -> None:
        self.sync.ensure_alive()
        request = blocking.post_receive(self.sync, receiver.size, receiver.own, self._receive_ended)
        self.sync.leave_receive(request)
        self._reactor.posted()

    def _leave(self, receiver: _Receiver) -> None:
        """It was cancelled; what it may have got by then is the next one's."""
        if receiver in self._receivers:
            self._receivers.remove(receiver)
        elif not receiver.got.cancelled() and receiver.got.exception() is None:
            self.sync.leave_receive(receiver.got.result())
            self._receive()
