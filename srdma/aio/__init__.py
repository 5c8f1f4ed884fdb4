"""The API for asyncio: the calls of a QP, of connecting and of listening, to be awaited.

    import srdma.aio

    async with await srdma.aio.connect(("127.0.0.1", 7471), pd, identity="host-a") as conn:
        await asyncio.gather(*(conn.qp.write(record, remote, at) for at in places))

Context, PD and MR are those of the blocking API; their calls talk to the own worker only, and
are short. A PD belongs to one event loop while anything of this module is open on it: blocking
calls are refused until then. Close a PD in the thread of its loop, or when the loop is over.

Requests of one QP are posted in the order of the calls, and wait where its queue is full.
A call that is cancelled, also by asyncio.timeout(), does not take back what is posted: each
request still ends once, and only then is its memory used again. What it was given, a region or
a buffer, must stay until then as well; a region by itself does. A cancelled recv() loses no
message: the next recv() gets it.

Making and closing connections happens in a thread each: it starts and ends the key exchange.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from srdma import connection
from srdma._engine.resource import Resource
from srdma.aio.qp import QP
from srdma.aio.reactor import Seat
from srdma.connection import Address
from srdma.errors import Timeout
from srdma.options import CONNECT_TIMEOUT, Options
from srdma.pd import ROTATE_TIMEOUT

if TYPE_CHECKING:
    from types import TracebackType

    from srdma.keyex.messages import Suite
    from srdma.pd import PD

__all__ = ["QP", "Connection", "Listener", "connect", "listen", "rotate"]

_T = TypeVar("_T")


class Connection:
    """A `srdma.Connection`, which `sync` is, with QPs to await."""

    def __init__(self, sync: connection.Connection) -> None:
        self.sync = sync
        self.qps = [QP(qp) for qp in sync.qps]
        self._watch = _Watch(sync, sync.fileno(), lambda: not sync.alive())
        self._closing: asyncio.Future[None] | None = None

    @property
    def qp(self) -> QP:
        """The first QP, of most connections the only one."""
        return self.qps[0]

    @property
    def identity(self) -> str:
        """Of the peer, as its certificate says."""
        return self.sync.identity

    @property
    def data(self) -> bytes:
        """What the peer sent along."""
        return self.sync.data

    @property
    def suite(self) -> Suite:
        return self.sync.suite

    def alive(self) -> bool:
        """False once the peer closed the connection, or its key exchange ended."""
        return self.sync.alive()

    async def reconnect(self) -> Connection:
        """As srdma.Connection.reconnect()."""
        address, pd, options = self.sync.route()
        await self.close()
        return await _connect(address, pd, options)

    async def rekey(self, timeout: float = CONNECT_TIMEOUT) -> None:
        """As srdma.Connection.rekey(). Cancelled, the exchange goes on behind the scenes."""
        wish = self.sync.wish()
        wait = partial(self.sync.wait_renewed, wish, time.monotonic() + timeout)
        await _in_thread(wait)

    async def wait_closed(self) -> None:
        """Until either end closed the connection."""
        await self._watch.ended.wait()

    async def close(self) -> None:
        """Also when it is cancelled, it goes on to its end."""
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
    """Looks at a descriptor; `ended` is set when it is readable and over(), or parent closed."""

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
    """A `srdma.Listener`, which `sync` is, with an accept() to await."""

    def __init__(self, sync: connection.Listener, pd: PD) -> None:
        self.sync = sync
        self._pd = pd
        self._order = asyncio.Lock()

    @property
    def address(self) -> Address:
        """With the port that the system chose for port 0."""
        return self.sync.address

    async def accept(self) -> Connection:
        """The next peer. One that fails raises; the listener stays usable.

        Key exchanges of several calls go on at the same time.
        """
        with Seat(self._pd, self._pd):
            sock = await self._next()
            return await _join(lambda: self.sync.meet(sock), sock)

    async def _next(self) -> socket.socket:
        async with self._order:
            while True:
                with _Watch(self.sync, self.sync.fileno(), lambda: True) as watch:
                    await watch.ended.wait()
                with contextlib.suppress(Timeout):
                    return self.sync.take(0)

    async def close(self) -> None:
        """Ends accept() calls; connections that they made stay."""
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
    """As srdma.connect(). Cancelled, it ends behind the scenes, by its timeout at the latest."""
    return await _connect(address, pd, connection.prepared(pd, options))


async def _connect(address: Address, pd: PD, options: Options) -> Connection:
    with Seat(pd, pd):
        dial = partial(connection.dial, address, options.timeout)
        sock = await _in_thread(dial, socket.socket.close)
        make = partial(connection.Connection, pd, sock, "client", options, address)
        return await _join(make, sock)


async def _join(make: Callable[[], connection.Connection], sock: socket.socket) -> Connection:
    try:
        sync = await _in_thread(make, connection.Connection.close)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)  # ends the key exchange
        raise
    try:
        return Connection(sync)
    except BaseException:
        await _in_thread(sync.close)
        raise


async def _in_thread(call: Callable[[], _T], undo: Callable[[_T], object] | None = None) -> _T:
    """What call() makes; if the wait for it is cancelled, undo it.

    In a thread of its own: those of a pool could all be busy with calls that wait for another.
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
