"""accept() on a listening socket that another process shares (agent.md 3).

O_NONBLOCK belongs to the file description, which a program that passed its listening socket still
has. It may clear the flag at any time, and accept the connection itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from functools import cache

_NO_LINGER = struct.pack("ii", 0, 0)
BLOCKED = 0.5  # seconds of one accept() after which its socket is shut down


class _Guard(threading.Thread):
    """Ends an accept() that blocks: by shutdown(), which also ends the listening socket."""

    def __init__(self) -> None:
        super().__init__(name="accept-guard", daemon=True)
        self._begun = threading.Event()
        self._number = 0
        self._sock: socket.socket | None = None  # on which an accept() is under way
        self.start()

    def accept(self, sock: socket.socket) -> tuple[socket.socket, tuple[object, ...]]:
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


async def accepted(sock: socket.socket) -> tuple[socket.socket, tuple[object, ...]]:
    """The next connection and its address; sock: listening. Raises OSError.

    Other tasks run before, also while connections wait. The connection has not the SO_LINGER that
    the program may have given to the listening socket: its close() would block.
    """
    while True:
        await _readable(sock)
        try:
            _forbid_blocking(sock)
            found, address = _guard().accept(sock)
        except BlockingIOError:  # the program accepted it, or it was reset
            continue
        found.setblocking(False)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        return found, address


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
