"""The agent's end of a channel (agent.md 2): CBOR maps behind their length on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import cbor2

from srdma import plain_cbor
from srdma.agent.accounts import User
from srdma.agent.closing import (
    CROWDED_LOOK,
    FDS_MAX,
    close_drained,
    close_soon,
    closed,
    crowded,
)
from srdma.agent.tasks import Closed, first_of
from srdma.agent.users import Room
from srdma.keyex.fields import ExchangeError

LENGTH = 4
MESSAGE_MAX = 1 << 17
FIRST = 65536  # bytes of the first read
UNREAD_MAX = LENGTH + MESSAGE_MAX  # bytes of requests that wait for message()
UNSENT_MAX = 1 << 20  # bytes of events that a program may leave unread


class Channel:
    """See the description of the module. open() makes one; it owns its socket.

    It reads and writes the socket itself: a transport with streams takes 2.7 KB more per channel.
    Only one task may wait for message(). watch() is for a task that waits for other events too.

    uid: user of the program, or the name of its container (accounts.User). listening: the listening
    TCP socket that came beside the first message, or None; the channel owns it. link: see
    Service.open().
    """

    __slots__ = (
        "__weakref__", "_ended", "_failed", "_fd", "_gone", "_in", "_loop", "_news", "_out",
        "_room", "_sock", "_waiter", "link", "listening", "uid",
    )  # fmt: skip

    def __init__(
        self, sock: socket.socket, uid: User, link: int = 0, room: Room | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        # asyncio formats a socket on each call that takes one, which is slow.
        self._sock, self._fd = sock, sock.fileno()
        self.uid, self.link = uid, link
        self.listening: socket.socket | None = None
        self._in, self._out = b"", b""  # bytes that were read, and that the socket did not take
        self._room = room or Room()  # has the size of _in
        self._ended = False  # the program closed its end, or the socket failed
        self._failed = False  # the event `error` was reported
        self._waiter: asyncio.Future[None] | None = None  # of the task that waits for bytes, or end
        self._news: Callable[[], None] | None = None
        self._gone: asyncio.Future[None] | None = None

    @classmethod
    async def open(
        cls, sock: socket.socket, uid: User, link: int = 0, room: Room | None = None
    ) -> Channel:
        """Wait for the beginning of the first message. room: of the user; None: of this channel
        alone. Raises OSError."""
        sock.setblocking(False)
        channel = cls(sock, uid, link, room)
        channel._loop.add_reader(channel._fd, channel._begun)
        try:
            await channel._change()
        except BaseException:
            channel._loop.remove_reader(channel._fd)
            if channel.listening:
                close_soon(uid, [channel.listening.detach()])
            raise
        return channel

    async def message(self) -> dict[str, Any] | None:
        """The next message; None when the program closed the channel.

        Raises ExchangeError (`config`) for a malformed one.
        """
        while (message := self.take()) is None and not self._ended:
            await self._change()
        return message

    def watch(self, news: Callable[[], None] | None) -> None:
        """Call news() when bytes of messages, or the end, have arrived; None: call nothing."""
        self._news = news

    @property
    def ended(self) -> bool:
        """True once the program closed the channel. Messages may wait."""
        return self._ended

    def take(self) -> dict[str, Any] | None:
        """The next message, or None if it is not complete. Raises as message()."""
        if (body := self._take()) is None:
            return None
        try:
            fields = plain_cbor.loads(body)
        except Exception as error:  # wrong bytes may raise any exception in the decoder
            raise ExchangeError(
                "config", f"a message is not CBOR: {type(error).__name__}"
            ) from None
        if not isinstance(fields, dict):
            raise ExchangeError("config", "a message is not a CBOR map")
        return fields

    def report(self, event: str, **fields: Any) -> None:
        """Send an event, which is the last one if it is `error`. The channel of a program that does
        not read its events is closed."""
        if self.closed or self._failed:
            return
        self._failed = event == "error"
        raw = cbor2.dumps({"event": event, **fields}, canonical=True)
        if self.unread() > UNSENT_MAX:
            self._fail()
            return
        self._out += len(raw).to_bytes(LENGTH, "big") + raw
        if len(self._out) == LENGTH + len(raw):  # nothing else waits
            self._send()
            if self._out:
                self._loop.add_writer(self._fd, self._flush)

    @property
    def closed(self) -> bool:
        """True after close(), after an error of the socket, and if the program did not read."""
        return self._sock.fileno() < 0

    def gone(self) -> asyncio.Future[None]:
        """A future that is done once the channel is closed."""
        self._gone = self._gone or self._loop.create_future()
        if self.closed and not self._gone.done():
            self._gone.set_result(None)
        return self._gone

    def pass_on(self, event: str, fd: int, **fields: Any) -> None:
        """Send an event with a file descriptor beside it, before any other event. Raises OSError.

        A new socket has room for it.
        """
        raw = cbor2.dumps({"event": event, **fields}, canonical=True)
        message = len(raw).to_bytes(LENGTH, "big") + raw
        socket.send_fds(self._sock, [message], [fd])

    def detach(self) -> tuple[socket.socket, bytes]:
        """The socket and the bytes that were read but not taken. The caller owns both from now on,
        and the channel is over."""
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        rest = self._in
        self._hold(b"")
        return socket.socket(fileno=self._sock.detach()), rest

    def drop(self) -> None:
        """Close the socket at once, with all that waits."""
        self._news = None
        self._fail()

    def unread(self) -> int:
        """Bytes of events that the socket did not take because the program does not read them."""
        return len(self._out)

    async def close(self) -> None:
        """Close the channel, when the program has read all events or has closed its end."""
        if not self.closed:
            self._loop.remove_reader(self._fd)
        try:
            if self.listening:
                await closed(self.uid, self.listening.detach())
            while self._out:
                await self._change()
        finally:
            self._fail()

    async def _change(self) -> None:
        """Wait until bytes or the end have arrived, or until all bytes have been sent."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _changed(self) -> None:
        if self._news:
            self._news()
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _take(self) -> bytes | None:
        """The body of the next message, if all of it is there."""
        if len(self._in) < LENGTH:
            return None
        size = int.from_bytes(self._in[:LENGTH], "big")
        if size > MESSAGE_MAX:
            raise ExchangeError(
                "config", f"a message of {size} bytes: at most {MESSAGE_MAX} are permitted"
            )
        if len(self._in) < LENGTH + size:
            return None
        body, rest = self._in[LENGTH : LENGTH + size], self._in[LENGTH + size :]
        if len(self._in) > UNREAD_MAX >= len(rest) and not self._ended:
            self._loop.add_reader(self._fd, self._read)
        self._hold(rest)
        return body

    def _begun(self) -> None:
        """The first bytes, with a socket beside them if the program listens."""
        if self._waits(self._begun):
            return
        self._loop.add_reader(self._fd, self._read)
        try:
            data, fds = self._received()
        except BlockingIOError:
            self._loop.add_reader(self._fd, self._begun)
            return
        if fds:
            self.listening = _listening(self.uid, fds.pop(0))
        close_soon(self.uid, fds)
        self._arrived(data)

    def _waits(self, read: Callable[[], None]) -> bool:
        """True if many files of the user wait to be closed: read() is called later."""
        if not crowded(self.uid):
            return False
        self._loop.remove_reader(self._fd)
        self._loop.call_later(CROWDED_LOOK, self._look, read)
        return True

    def _look(self, read: Callable[[], None]) -> None:
        if not self._ended and not self.closed:
            self._loop.add_reader(self._fd, read)

    def _read(self) -> None:
        if self._waits(self._read):
            return
        with contextlib.suppress(BlockingIOError):
            data, fds = self._received()
            if fds:  # only the first message may have one: a program could pass any number
                close_soon(self.uid, fds)
                self._fail()
            else:
                self._arrived(data)

    def _received(self) -> tuple[bytes, list[int]]:
        """Bytes, b"" at the end, and the files beside them. The kernel would close those that are
        not taken at once, which may block. Raises BlockingIOError."""
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, FIRST, FDS_MAX)
        except BlockingIOError:
            raise
        except OSError:
            return b"", []
        return data, fds

    def _arrived(self, data: bytes) -> None:
        """Bytes, or b"" at the end. No more are read while many wait for message(). The channel
        for which the user has no room is closed."""
        self._hold(self._in + data)
        if self._room.full:
            self._fail()
            return
        self._ended = not data
        if self._ended or len(self._in) > UNREAD_MAX:
            self._loop.remove_reader(self._fd)
        self._changed()

    def _hold(self, waiting: bytes) -> None:
        self._room.used += len(waiting) - len(self._in)
        self._in = waiting

    def _send(self) -> None:
        try:
            self._out = self._out[self._sock.send(self._out) :]
        except BlockingIOError:
            return
        except OSError:
            self._fail()

    def _flush(self) -> None:
        self._send()
        if not self._out and not self.closed:
            self._loop.remove_writer(self._fd)
            self._changed()

    def _fail(self) -> None:
        """Close the socket at once: message() returns None from now on."""
        if not self.closed:
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            close_drained(self.uid, self._sock)
        if self._gone:
            self.gone()
        self._hold(b"")
        self._out = b""
        self._ended = True
        self._changed()


class Absent:
    """In place of the channel of a program that has not come back after a restart of its agent.

    returned: the program's new channel, once it is back. look_at: time of the next look at whether
    the QPs have ended; for the session.
    """

    __slots__ = ("look_at", "returned", "uid")

    def __init__(self, uid: User) -> None:
        self.uid = uid
        self.returned: Channel | None = None
        self.look_at = time.monotonic()

    def report(self, event: str, **fields: Any) -> None:
        """Nobody is there to hear it."""


async def until_closed(channel: Channel, *works: Coroutine[Any, Any, NoReturn]) -> None:
    """Run works until the program closes their channel, of which no request is expected. Raises
    what a work raises, ExchangeError."""
    with contextlib.suppress(Closed):
        await first_of(*works, _closing(channel))


async def _closing(channel: Channel) -> NoReturn:
    if await channel.message() is not None:
        raise ExchangeError("config", "a listener takes no requests")
    raise Closed


def _listening(user: User, fd: int) -> socket.socket | None:
    """The socket of a file descriptor, which it owns; None if that is no listening TCP socket."""
    try:
        sock = socket.socket(fileno=fd)
    except OSError:
        close_soon(user, [fd])
        return None
    listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if listens and sock.family in (socket.AF_INET, socket.AF_INET6):
        return sock
    close_soon(user, [sock.detach()])
    return None
