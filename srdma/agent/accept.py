"""accept() on listening sockets that another process shares (agent.md 3).

O_NONBLOCK belongs to the file description, which a program that passed its listening socket still
has. It may clear the flag at any time, and accept the connection itself: accept() blocks then. For
all sockets of a user whose program did that once, accept() is called in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import threading
import time
from functools import cache
from weakref import WeakSet

Accepted = tuple[socket.socket, tuple[object, ...]]

_NO_LINGER = struct.pack("ii", 0, 0)
BLOCKED = 0.5  # seconds of one accept() after which its socket is shut down
THREADS = 4  # of a user, that call accept() at the same time
SHORT = 0.001  # seconds of an accept() that does not block
LATE_MAX = 0.05  # seconds by which all calls for a user may be longer than SHORT, together


class _Guard(threading.Thread):
    """Ends an accept() that blocks: by shutdown(), which also ends the listening socket."""

    def __init__(self) -> None:
        super().__init__(name="accept-guard", daemon=True)
        self._begun = threading.Event()
        self._number = 0
        self._sock: socket.socket | None = None  # on which an accept() is under way
        self.start()

    def accept(self, sock: socket.socket) -> Accepted:
        self._number, self._sock = self._number + 1, sock
        self._begun.set()
        try:
            return sock.accept()
        finally:
            self._sock = None

    def run(self) -> None:
        while self._begun.wait():
            self._begun.clear()
            number = self._number
            time.sleep(BLOCKED)
            sock = self._sock
            if sock and number == self._number:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


class Acceptor:
    """accept() on the listening sockets of one user: it delays this user's listeners, and no other
    task for more than BLOCKED and LATE_MAX in all, however many sockets the user passes."""

    def __init__(self) -> None:
        self._set = WeakSet[socket.socket]()  # sockets whose flag this process has set
        self._late = 0.0  # seconds, see LATE_MAX
        self._turns = asyncio.Semaphore(THREADS)

    @property
    def suspects(self) -> bool:
        """True if a program of this user cleared the flag, or made accept() block."""
        return self._late > LATE_MAX

    async def accepted(self, sock: socket.socket) -> Accepted:
        """The next connection and its address; sock: listening. Raises OSError.

        Other tasks run before, also while connections wait. The connection has not the SO_LINGER
        that the program may have given to the listening socket: its close() would block.
        """
        if sock not in self._set:  # a program may pass it as it is by default
            os.set_blocking(sock.fileno(), False)
            self._set.add(sock)
        while True:
            await _readable(sock)
            try:
                found, address = await self._accept(sock)
            except BlockingIOError:  # the program accepted it, or it was reset
                continue
            found.setblocking(False)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            return found, address

    async def _accept(self, sock: socket.socket) -> Accepted:
        self._look(sock)
        if self.suspects:
            async with self._turns:
                return await _Call(sock, asyncio.get_running_loop()).done()
        _forbid_blocking(sock)
        begin = time.monotonic()
        try:
            return _guard().accept(sock)
        finally:
            # The program may have set the flag again meanwhile.
            self._late += max(time.monotonic() - begin - SHORT, 0)
            self._look(sock)

    def _look(self, sock: socket.socket) -> None:
        if os.get_blocking(sock.fileno()):
            self._late = float("inf")


class _Call:
    """One accept() in a thread."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._sock, self._loop = sock, loop
        self._made: asyncio.Future[Accepted] = loop.create_future()
        self._returned = False  # accept() has

    async def done(self) -> Accepted:
        """Its result. One that blocks is ended, also if the listener ends: no thread remains."""
        _forbid_blocking(self._sock)
        thread = threading.Thread(target=self._run, name="accept", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            raise OSError(errno.ENOMEM, "no thread can be started") from None
        try:
            await asyncio.wait({self._made}, timeout=BLOCKED)
            self._unblock()
            return await self._made
        except asyncio.CancelledError:
            self._unblock()
            made = self._made
            if not made.cancelled() and not made.cancel() and not made.exception():
                made.result()[0].close()
            raise

    def _unblock(self) -> None:
        if not self._returned:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        result: Accepted | OSError
        try:
            result = self._sock.accept()
        except OSError as error:
            result = error
        self._returned = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._over, result)

    def _over(self, result: Accepted | OSError) -> None:
        if isinstance(result, OSError):
            if not self._made.cancelled():
                self._made.set_exception(result)
        elif self._made.cancelled():
            result[0].close()
        else:
            self._made.set_result(result)


def listens(sock: socket.socket) -> bool:
    """False once the socket was shut down."""
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


async def _readable(sock: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


def _forbid_blocking(sock: socket.socket) -> None:
    """The flag is set by a system call, whatever the flag was when this process set it last."""
    os.set_blocking(sock.fileno(), False)


@cache
def _guard() -> _Guard:
    return _Guard()
