"""The API for asyncio: QPs, connections and listeners whose calls are awaited.

    import srdma.aio

    async with await srdma.aio.connect(("127.0.0.1", 7471), pd, identity="host-a") as conn:
        await asyncio.gather(*(conn.qp.write(record, remote, at) for at in places))

Context, PD and MR are those of the blocking API. Their calls are short, because they only call
the local worker. While an object of this module is open on a PD, the PD belongs to its event loop,
and blocking calls of its QPs raise LocalError. Close a PD in the thread of its loop, or after the
loop has ended.

Requests of one QP are posted in the order of the calls. They wait while its queue is full.

Cancelling a call, also by asyncio.timeout(), does not withdraw posted requests: each still
completes, and its memory is in use until then. The caller must keep buffers that it passed until
then; regions are kept automatically. A cancelled recv() loses no message: the next recv() gets it.

Connections are made and closed in a separate thread each, which starts or ends the key exchange.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from srdma import connection
from srdma._engine.resource import Resource
from srdma.agent.client import Arrival, Attempt
from srdma.aio.qp import QP
from srdma.aio.reactor import Seat
from srdma.connection import Address
from srdma.errors import Timeout
from srdma.options import CONNECT_TIMEOUT, Options
from srdma.pd import ROTATE_TIMEOUT

if TYPE_CHECKING:
    from types import TracebackType

    from srdma.keyex.offers import Suite
    from srdma.pd import PD
    from srdma.rendezvous import Rendezvous

__all__ = ["QP", "Connection", "Listener", "connect", "listen", "meet", "rotate"]

_T = TypeVar("_T")


class Connection:
    """A connection whose calls are awaited. sync: the underlying `srdma.Connection`."""

    def __init__(self, sync: connection.Connection) -> None:
        self.sync = sync
        self.qps = [QP(qp) for qp in sync.qps]
        self._watch = _Watch(sync, sync.fileno(), lambda: not sync.alive())
        self._closing: asyncio.Future[None] | None = None

    @property
    def qp(self) -> QP:
        """The first QP; most connections have only one."""
        return self.qps[0]

    @property
    def identity(self) -> str:
        """URI of the peer's certificate."""
        return self.sync.identity

    @property
    def data(self) -> bytes:
        """The peer's option `data`, at most 256 bytes."""
        return self.sync.data

    @property
    def suite(self) -> Suite:
        """Suite and level that protect the packets."""
        return self.sync.suite

    def alive(self) -> bool:
        """False once the peer closed the connection, or the agent ended."""
        return self.sync.alive()

    async def reconnect(self) -> Connection:
        """As srdma.Connection.reconnect()."""
        address, pd, options = self.sync.route()
        await self.close()
        return await _connect(address, pd, options)

    async def rekey(self, timeout: float = CONNECT_TIMEOUT) -> None:
        """As srdma.Connection.rekey(). Cancelling it does not stop the exchange."""
        wish = self.sync.wish()
        wait = partial(self.sync.wait_renewed, wish, time.monotonic() + timeout)
        await _in_thread(wait)

    async def wait_closed(self) -> None:
        """Wait until either end has closed the connection."""
        await self._watch.ended.wait()

    async def close(self) -> None:
        """Close the connection. If this call is cancelled, closing continues in its thread."""
        self._watch.close()
        if self._closing is None:
            self._closing = asyncio.ensure_future(_in_thread(self.sync.close))
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _Watch(Resource):
    """Watches a descriptor: `ended` is set when it is readable and over() is true, or at close."""

    def __init__(self, parent: Resource, fd: int, over: Callable[[], bool]) -> None:
        super().__init__(parent)
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._over = over
        self._loop.add_reader(fd, self._look)

    def _look(self) -> None:
        if self._over():
            self.close()

    def _release(self) -> None:
        self.ended.set()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)


class Listener:
    """A listener whose accept() is awaited. sync: the underlying `srdma.Listener`."""

    def __init__(self, sync: connection.Listener, pd: PD) -> None:
        self.sync = sync
        self._pd = pd
        self._order = asyncio.Lock()

    @property
    def address(self) -> Address:
        """(host, port); the port is the actual one if port 0 was given."""
        return self.sync.address

    async def accept(self) -> Connection:
        """Accept the next peer and run the key exchange with it.

        Raises the error of a failed key exchange; the listener stays usable. Several calls run
        their key exchanges at the same time.
        """
        with Seat(self._pd, self._pd):
            return await _join(partial(self.sync.meet, await self._next()))

    async def _next(self) -> Arrival:
        async with self._order:
            while True:
                with _Watch(self.sync, self.sync.fileno(), lambda: True) as watch:
                    await watch.ended.wait()
                with contextlib.suppress(Timeout):
                    return self.sync.take(0)

    async def close(self) -> None:
        """Stop listening and end accept() calls. Accepted connections stay open."""
        self.sync.close()

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def listen(address: Address, pd: PD, **options: object) -> Listener:
    """As srdma.listen()."""
    call = partial(connection.listen, address, pd, **options)
    return Listener(await _in_thread(call, connection.Listener.close), pd)


async def rotate(pd: PD, timeout: float = ROTATE_TIMEOUT) -> int:
    """As PD.rotate()."""
    return await _in_thread(partial(pd.rotate, timeout))


async def connect(address: Address, pd: PD, **options: object) -> Connection:
    """As srdma.connect(). After cancellation its thread ends within the option `timeout`."""
    return await _connect(address, pd, connection.prepared(pd, options))


async def meet(rendezvous: Rendezvous, gid: str, qp_num: int) -> Connection:
    """As Rendezvous.connect(). After cancellation its thread ends within the option `timeout`."""
    with Seat(rendezvous.pd, rendezvous.pd):
        return await _join(partial(rendezvous.connect, gid, qp_num))


async def _connect(address: Address, pd: PD, options: Options) -> Connection:
    with Seat(pd, pd):
        return await _join(partial(connection.Connection, pd, options, address))


async def _join(make: Callable[..., connection.Connection]) -> Connection:
    attempt = Attempt()
    try:
        sync = await _in_thread(partial(make, attempt=attempt), connection.Connection.close)
    except asyncio.CancelledError:
        attempt.cancel()
        raise
    try:
        return Connection(sync)
    except BaseException:
        await _in_thread(sync.close)
        raise


async def _in_thread(call: Callable[[], _T], undo: Callable[[_T], object] | None = None) -> _T:
    """Run call() in a new thread and return its result; undo(result) if this was cancelled.

    A thread pool could deadlock: its threads may all run calls that wait for a queued one.
    """
    made: concurrent.futures.Future[_T] = concurrent.futures.Future()

    def work() -> None:
        try:
            result = call()
        except BaseException as e:
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                made.set_exception(e)
            return
        try:
            made.set_result(result)
        except concurrent.futures.InvalidStateError:  # cancelled
            if undo is not None:
                undo(result)

    threading.Thread(target=work, name="srdma.aio").start()
    try:
        return await asyncio.wrap_future(made)
    except asyncio.CancelledError:
        if not made.cancel() and undo is not None and made.exception() is None:
            threading.Thread(target=undo, args=(made.result(),), name="srdma.aio").start()
        raise
