"""Carries the bytes or messages of a local Unix socket in a stream of the control link."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from srdma.agent.accounts import User
from srdma.agent.closing import CROWDED_LOOK, FDS_MAX, close_drained, close_soon, crowded
from srdma.agent.remote.link import BODY_MAX, Link
from srdma.keyex.fields import ExchangeError
from srdma.native.control import MAX_MESSAGE

WAITING_MAX = 1 << 18  # bytes for a local socket that is not read
LAST = 10.0  # seconds for a local socket to take the last bytes of a stream
LATE = ExchangeError("busy", "the program or worker does not read")
FDS = ExchangeError("config", "files cannot be passed to another computer")
LONG = ExchangeError("config", f"a control message has more than {MAX_MESSAGE} bytes")


class Relay:
    """One local socket and one stream. It owns the socket, and ends with either.

    A stream socket is a channel, whose bytes may be cut anywhere; a SOCK_SEQPACKET socket is a
    control connection, of which each message is one DATA.
    """

    def __init__(
        self,
        link: Link,
        sock: socket.socket,
        over: Callable[[Relay], None] | None = None,
        user: User = 0,
    ) -> None:
        """over: called when the socket is closed. user: of the program at its other end, if that
        is a program."""
        sock.setblocking(False)
        self._link, self._sock, self._fd = link, sock, sock.fileno()
        self.number, self._over, self._user = 0, over, user
        self._loop = asyncio.get_running_loop()
        self._messages = sock.type == socket.SOCK_SEQPACKET
        self._most = MAX_MESSAGE + 1 if self._messages else BODY_MAX  # bytes of one read
        self._out: list[bytes] = []
        self._waiting = 0  # bytes of _out
        self._last = False  # the stream ended: the socket is closed when _out is written
        self._closed = False
        self.ready: asyncio.Future[None] | None = None  # of a proxy: OPENED, or the refusal
        self.farewell = b""  # the last bytes for the socket if the link ends before the stream

    def start(self, first: bytes = b"") -> None:
        """Carry data from now on, unless the stream has ended. first: bytes that were read
        already."""
        if self._closed or self._last:
            return
        for at in range(0, len(first), BODY_MAX):
            self._link.data(self.number, first[at : at + BODY_MAX])
        self._loop.add_reader(self._fd, self._read)

    # Calls of the link ---------------------------------------------------------

    def opened(self) -> None:
        if self.ready and not self.ready.done():
            self.ready.set_result(None)

    def data(self, body: bytes) -> None:
        if self._closed or self._last:
            return
        if self._messages and len(body) > MAX_MESSAGE:
            self.fail(LONG)
            return
        self._out.append(body)
        self._waiting += len(body)
        if len(self._out) == 1:
            self._write()
        if self._waiting > WAITING_MAX:
            self.fail(LATE)

    def ended(self, reason: ExchangeError | None, *, lost: bool = False) -> None:
        if self._closed:  # the descriptor may be of another socket
            return
        if lost and self.farewell:
            self._out.append(self.farewell)
            self._write()
        if self.ready and not self.ready.done():
            gone = ExchangeError("closed", "the stream was ended")
            self.ready.set_exception(reason or gone)
        self._last = True
        self._loop.remove_reader(self._fd)
        if self._out:
            self._loop.call_later(LAST, self._close)
        else:
            self._close()

    def resume(self) -> None:
        if not self._closed and not self._last:
            self._loop.add_reader(self._fd, self._read)

    # Internal ---------------------------------------------------------------

    def _read(self) -> None:
        if self._link.crowded(self):
            self._loop.remove_reader(self._fd)
            return
        if crowded(self._user):
            self._loop.remove_reader(self._fd)
            self._loop.call_later(CROWDED_LOOK, self.resume)
            return
        try:
            # The kernel would close files that are not taken, which may block (closing.py).
            data, fds, _, _ = socket.recv_fds(self._sock, self._most, FDS_MAX)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if fds:
            close_soon(self._user, fds)
            self.fail(FDS)
        elif not data:
            self.fail(None)
        elif self._messages and len(data) > MAX_MESSAGE:
            self.fail(LONG)
        else:
            self._link.data(self.number, data)

    def _write(self) -> None:
        try:
            while self._out:
                sent = self._sock.send(self._out[0])
                self._waiting -= sent
                if sent == len(self._out[0]):
                    del self._out[0]
                else:
                    self._out[0] = self._out[0][sent:]
        except BlockingIOError:
            self._loop.add_writer(self._fd, self._write)
            return
        except OSError:
            self.fail(None)
            return
        self._loop.remove_writer(self._fd)
        if self._last:
            self._close()

    def fail(self, reason: ExchangeError | None) -> None:
        """End both. reason: for the other end of the link."""
        self._link.end(self.number, reason)
        self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            self._out.clear()
            close_drained(self._user, self._sock)
            if self._over:
                self._over(self)
