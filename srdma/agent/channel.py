"""The agent's end of a channel (agent.md 2): CBOR maps behind their length on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Any, cast

import cbor2

from srdma import plain_cbor
from srdma.agent.accounts import User
from srdma.keyex.fields import ExchangeError

LENGTH = 4
MESSAGE_MAX = 1 << 17
FIRST = 65536  # bytes of the first read
UNSENT_MAX = 1 << 20  # bytes of events that a program may leave unread


class Channel:
    """See the description of the module. open() makes one; it owns its socket.

    uid: user of the program, or the name of its container (accounts.User). listening: the listening
    TCP socket that came beside the first message, or None; the channel owns it.
    """

    def __init__(
        self,
        ends: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        uid: User,
        listening: socket.socket | None,
    ) -> None:
        self._reader, self._writer = ends
        self.uid = cast(int, uid)  # the users of this class only compare and pass it on
        self.listening = listening

    @classmethod
    async def open(cls, sock: socket.socket, uid: User) -> Channel:
        """Wait for the beginning of the first message. Raises OSError."""
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        begun = asyncio.Event()
        loop.add_reader(sock, begun.set)
        try:
            await begun.wait()
        finally:
            loop.remove_reader(sock)
        data, fds, _, _ = socket.recv_fds(sock, FIRST, 1)
        listening = _listening(fds[0]) if fds else None
        # A reader that has the first bytes before the transport adds the next ones.
        reader = asyncio.StreamReader(MESSAGE_MAX)
        if data:
            reader.feed_data(data)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.create_unix_connection(lambda: protocol, sock=sock)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        return cls((reader, writer), uid, listening)

    async def message(self) -> dict[str, Any] | None:
        """The next message; None when the program closed the channel.

        Raises ExchangeError (`config`) for a malformed one.
        """
        try:
            size = int.from_bytes(await self._reader.readexactly(LENGTH), "big")
            if size > MESSAGE_MAX:
                raise ExchangeError(
                    "config", f"a message of {size} bytes: at most {MESSAGE_MAX} are permitted"
                )
            body = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
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
        """Send an event. The channel of a program that does not read its events is closed."""
        raw = cbor2.dumps({"event": event, **fields}, canonical=True)
        if self.unread() > UNSENT_MAX:
            self._writer.transport.abort()
        else:
            self._writer.write(len(raw).to_bytes(LENGTH, "big") + raw)

    def pass_on(self, event: str, fd: int) -> None:
        """Send an event with a file descriptor beside it, before any other event. Raises OSError.

        A new socket has room for it.
        """
        raw = cbor2.dumps({"event": event}, canonical=True)
        message = len(raw).to_bytes(LENGTH, "big") + raw
        with socket.socket(fileno=os.dup(self._writer.get_extra_info("socket").fileno())) as sock:
            socket.send_fds(sock, [message], [fd])

    def unread(self) -> int:
        """Bytes of events that the socket did not take because the program does not read them."""
        return self._writer.transport.get_write_buffer_size()

    async def close(self) -> None:
        if self.listening:
            self.listening.close()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Absent:
    """In place of the channel of a program that has not come back after a restart of its agent.

    returned: the program's new channel, once it is back.
    """

    def __init__(self, uid: User) -> None:
        self.uid = cast(int, uid)
        self.returned: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()

    def report(self, event: str, **fields: Any) -> None:
        """Nobody is there to hear it."""


def _listening(fd: int) -> socket.socket | None:
    """The socket of a file descriptor, which it owns; None if that is no listening TCP socket."""
    try:
        sock = socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        return None
    listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if listens and sock.family in (socket.AF_INET, socket.AF_INET6):
        return sock
    sock.close()
    return None
