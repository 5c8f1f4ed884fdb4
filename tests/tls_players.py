"""One end of the key exchange's TLS connection with blocking calls on a socket, for tests in which
a peer of srdma deviates from the protocol."""

from __future__ import annotations

import contextlib
import socket
import struct

from OpenSSL import SSL

from srdma.agent.resumption import REPLACED
from srdma.identity import Credentials
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, Hello, encode
from srdma.keyex.tls import INNER_ENDED, STREAM_LEN, Inner, Truncated

CHUNK = 16_384


HELLO = encode(Hello(0, groups=True))
IDLE = encode(ErrorMessage("idle", "it was idle"))
MOVED = encode(ErrorMessage("resume", REPLACED))  # in a stream that the peer has given up


class BlockingTLS(Inner):
    """The TLS of srdma on a connected socket, which it owns. With srdma/2 its messages are those of
    the first stream of a client, behind HELLO (protocol.md 8.7).

    stream: its number; raw: messages carry their numbers.
    """

    def __init__(self, sock: socket.socket, role: str, credentials: Credentials) -> None:
        super().__init__(role, credentials)
        self.sock = sock
        self.stream, self.raw = 1, False
        self._most += STREAM_LEN

    def handshake(self) -> tuple[str, str]:
        """Complete the handshake. Returns the peer's identity and the key exchange group."""
        try:
            while not (identity := self.shake()):
                self._flush()
                self._read()
        finally:
            self._flush()
        if self.version > 1 and not self.raw:
            self.send_on(0, HELLO)
        return identity, self._tls.get_group_name() or ""

    def send_on(self, stream: int, message: bytes) -> None:
        """Send a message in a stream."""
        self.say(stream.to_bytes(STREAM_LEN, "big") + message)
        self._flush()

    def send(self, message: bytes) -> None:
        """Send a message after its length, and the number of its stream."""
        if self.version > 1 and not self.raw:
            self.send_on(self.stream, message)
        else:
            self.say(message)
            self._flush()

    def message(self) -> bytes:
        """The next message. Raises Truncated, or ExchangeError after the peer's close_notify."""
        while True:
            message = self._frame()
            if self.version == 1 or self.raw:
                return message
            number, message = int.from_bytes(message[:STREAM_LEN], "big"), message[STREAM_LEN:]
            if number == self.stream:
                return message
            assert message in (HELLO, IDLE, MOVED), message

    def _frame(self) -> bytes:
        while (message := self.receive()) is None:
            self._read()
        return message

    def until_closed(self) -> None:
        """Drop messages until the peer has closed the connection with close_notify."""
        try:
            while True:
                self.message()
        except ExchangeError as error:
            assert error.text == INNER_ENDED, error.text

    def close(self) -> None:
        """Send close_notify and close the socket."""
        if self.sock.fileno() >= 0:
            with contextlib.suppress(SSL.Error, OSError):
                self._tls.shutdown()
                self._flush()
            self.sock.close()

    def cut(self, *, reset: bool = False) -> None:
        """Close the socket without close_notify, by FIN or RST."""
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def _flush(self) -> None:
        while records := self.records():
            with contextlib.suppress(ConnectionError):  # the answer tells why the peer closed
                self.sock.sendall(records)

    def _read(self) -> None:
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self.sock.recv(CHUNK)
        if not data:
            raise Truncated
        self.feed(data)
