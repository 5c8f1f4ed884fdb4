"""TLS 1.3 of the key exchange: mutual, ALPN srdma/2 or srdma/1, without TLS session resumption,
with exporter (protocol.md 8).

Messages stand behind their length. `Outer` is a TLS connection over TCP in an event loop. `Inner`
is one without a socket: the caller carries its records in messages of an Outer (8.5).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from cryptography import x509
from OpenSSL import SSL, crypto

from srdma.gid import plain_address
from srdma.identity import (
    Credentials,
    IdentityError,
    fingerprint,
    identity_of,
    parse_certificates,
    parse_crl,
    parse_key,
    server_name,
)
from srdma.keyex import keylog
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import MESSAGE_MAX
from srdma.keyex.tls_texts import ALERTS, NO_PROTOCOL, VERIFY_ERRORS

ALPN = {b"srdma/2": 2, b"srdma/1": 1}  # name -> version, in order of preference
GROUPS = {"x25519mlkem768", "x25519", "secp256r1", "prime256v1", "p-256"}
LENGTH = 4
STREAM_LEN = 4  # bytes of the number of a stream, before a message with srdma/2
CHUNK = 16_384  # maximum bytes of inner records in one message
UNSENT_MAX = 64 << 20  # bytes that a peer with srdma/2 may leave unread

INNER_ENDED = "the peer ended the inner connection"

FAREWELL = 1.0  # seconds for the last message to reach the peer
# Keep-alive probes after 5 s of silence, every 5 s; the connection ends after 24 h without one.
_TCP_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 24 * 3600 * 1000),
)
REACHABLE = 15.0  # seconds
_ESTABLISHED = 1  # tcpi_state, the first byte of struct tcp_info
_LAST_ACK, _LAST_ACK_AT = struct.Struct("=I"), 56  # tcpi_last_ack_recv of struct tcp_info, ms


async def no_wait() -> None:
    """A turn that comes at once."""


class PeerClosed(Exception):  # noqa: N818 - an event, not a fault
    """The peer ended the TLS connection."""


class Truncated(PeerClosed):
    """The TCP connection ended without close_notify; anyone on the network path can cause that.

    error: of the connection, if one was told (8.7).
    """

    error: ExchangeError | None = None


Choose = Callable[[str], Credentials | None]


@dataclass
class _State:
    """Of one connection, for the callbacks of OpenSSL. names: of ALPN; error: of the peer's
    certificate; choose: gives the credentials of a server for an SNI, "" without one; chosen: by
    it."""

    names: tuple[bytes, ...]
    error: str = ""
    choose: Choose | None = None
    chosen: Credentials | None = None


class _End:
    """Common part of Outer and Inner: one end of a TLS connection, without its transport."""

    def __init__(self, role: str, credentials: Credentials) -> None:
        self.version = 0  # 1 or 2 (ALPN), once the handshake is complete
        self._most = MESSAGE_MAX  # bytes of a message
        self._buffer = bytearray()
        self.credentials = credentials
        names = tuple(self.protocols())
        self._tls = SSL.Connection(_context(credentials, names), None)
        self._state = _State(names)
        self._tls.set_app_data(self._state)
        self._hashes: tuple[bytes, bytes] | None = None
        self._not_after: dt.datetime | None = None
        if role == "client":
            self._tls.set_connect_state()
        else:
            self._tls.set_accept_state()

    def protocols(self) -> Mapping[bytes, int]:
        """ALPN names and versions, in order of preference."""
        return ALPN

    def peer_certificate(self) -> x509.Certificate:
        """The certificate of the peer. Raises ExchangeError (`identity`) without one."""
        certificate = self._tls.get_peer_certificate(as_cryptography=True)
        if certificate is None:
            raise ExchangeError("identity", "the peer has no certificate")
        return certificate

    def certificate_hashes(self) -> tuple[bytes, bytes]:
        """SHA-256 of the local and of the peer's certificate (DER)."""
        if self._hashes is None:
            own = self._tls.get_certificate(as_cryptography=True)
            if own is None:
                raise ExchangeError("identity", "this end has no certificate")
            self._hashes = fingerprint(own), fingerprint(self.peer_certificate())
        return self._hashes

    def not_after(self) -> dt.datetime:
        """The earliest end of validity among the certificates that both ends presented."""
        if self._not_after is None:
            own = parse_certificates(self.credentials.cert, "the certificate")
            # The verified chain: a peer may have sent other certificates besides.
            peers = self._tls.get_verified_chain(as_cryptography=True) or [self.peer_certificate()]
            self._not_after = min(each.not_valid_after_utc for each in [*own, *peers])
        return self._not_after

    def export(self, label: bytes, context: bytes, size: int) -> bytes:
        """The TLS exporter (RFC 8446 7.5): `size` bytes."""
        return self._tls.export_keying_material(label, size, context)

    def receive(self) -> bytes | None:
        """The next complete message, or None if none has arrived. Raises PeerClosed after the
        peer's close, ExchangeError for a TLS error or an oversized message."""
        while (message := self._take()) is None:
            try:
                self._buffer += self._tls.recv(16_384)
            except SSL.WantReadError:
                return None
            except SSL.ZeroReturnError:
                raise PeerClosed from None
            except (SSL.Error, OSError) as error:
                raise self._failure(error) from None
        return message

    # Internal ---------------------------------------------------------------

    def _checked(self) -> tuple[str, str]:
        """Check a completed handshake. Returns the peer's identity and the key exchange group."""
        version = self.protocols().get(self._tls.get_alpn_proto_negotiated())
        if not version:
            raise ExchangeError("tls", NO_PROTOCOL)
        self.version = version
        group = self._tls.get_group_name() or "unknown"
        if group != "unknown" and group.lower() not in GROUPS:
            raise ExchangeError("tls", f"key exchange group {group} is not one of {GROUPS}")
        try:
            return identity_of(self.peer_certificate()), group
        except IdentityError as error:
            raise ExchangeError("identity", f"the peer has {error}") from None

    def _seal(self, message: bytes) -> None:
        """Encrypt a message after its length."""
        data = memoryview(len(message).to_bytes(LENGTH, "big") + message)
        while data:
            data = data[self._tls.send(data) :]

    def _failure(self, error: Exception) -> Exception:
        """The exception to raise for a TLS or socket error."""
        if self._state.error:
            return ExchangeError("identity", self._state.error)
        if isinstance(error, SSL.SysCallError | OSError):
            return Truncated()
        reason = ", ".join(str(part) for entry in error.args[0] for part in entry[2:])
        known = next((text for word, text in ALERTS.items() if word in reason), None)
        if known:
            return ExchangeError("tls", f"TLS failed: {known}", from_peer="alert" in reason)
        return ExchangeError("tls", f"TLS failed: {reason}")

    def _take(self) -> bytes | None:
        if len(self._buffer) < LENGTH:
            return None
        size = int.from_bytes(self._buffer[:LENGTH], "big")
        if size > self._most:
            raise ExchangeError(
                "format", f"a message has {size} bytes: at most {self._most} are permitted"
            )
        if len(self._buffer) < LENGTH + size:
            return None
        message = bytes(self._buffer[LENGTH : LENGTH + size])
        self._buffer[: LENGTH + size] = bytes(LENGTH + size)  # wiped: a CONFIRM has secrets
        del self._buffer[: LENGTH + size]
        return message


class Outer(_End):
    """Messages over TLS on a connected TCP socket in an event loop; open() makes one. With srdma/2
    a message begins with the number of its stream (8.7)."""

    def __init__(
        self,
        role: str,
        credentials: Credentials,
        ends: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        super().__init__(role, credentials)
        self._reader, self._writer = ends
        self._peer = self._host("peername")

    @classmethod
    async def open(
        cls,
        sock: socket.socket,
        role: str,
        credentials: Credentials,
        *,
        choose: Choose | None = None,
        expected: str = "",
    ) -> Self:
        """A connection on this socket, which it owns from now on.

        choose: a server's credentials for an SNI; None refuses the client. expected: the identity
        that a client asks for by SNI.
        """
        for level, option, value in _TCP_OPTIONS:
            with contextlib.suppress(OSError):  # a socket that is not TCP
                sock.setsockopt(level, option, value)
        made = cls(role, credentials, await asyncio.open_connection(sock=sock))
        made._state.choose = choose
        if expected:
            made._tls.set_tlsext_host_name(server_name(expected).encode())
        return made

    async def handshake(self, turn: Callable[[], Awaitable[None]] = no_wait) -> tuple[str, str]:
        """Complete the handshake. Returns the peer's identity and the key exchange group.

        turn: awaited before each step, which takes some ms of the processor. Raises ExchangeError
        (`tls`, `identity`) and PeerClosed.
        """
        while True:
            await turn()
            try:
                self._tls.do_handshake()
                break
            except SSL.WantReadError:
                self._flush()
                await self._read()
            except SSL.ZeroReturnError:
                raise PeerClosed from None
            except (SSL.Error, OSError) as error:
                self._flush()  # the alert
                raise self._failure(error) from None
        self._flush()
        self.credentials = self._state.chosen or self.credentials
        checked = self._checked()
        if self.version > 1:
            self._most = MESSAGE_MAX + STREAM_LEN
        return checked

    def send(self, message: bytes) -> None:
        """Send a message after its length. It never blocks: what TCP does not take yet waits.

        If TLS has failed, message() reports it.
        """
        with contextlib.suppress(SSL.Error):
            self._seal(message)
        self._flush()

    async def message(self) -> bytes:
        """The next message. Raises as receive(), and Truncated. A cancelled call loses nothing."""
        while (message := self.receive()) is None:
            # Answers of TLS itself, such as a KeyUpdate. A peer that does not read them is not
            # read either.
            self._flush()
            await self._room()
            await self._read()
        return message

    def reachable(self, seconds: float = REACHABLE) -> bool:
        """True if the peer's host acknowledged a segment or a keep-alive probe in the last
        `seconds` (TCP_INFO).

        True for a socket that is not TCP.
        """
        sock = self._writer.get_extra_info("socket")
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:
            return True
        (ago,) = _LAST_ACK.unpack_from(info, _LAST_ACK_AT)
        return bool(ago < seconds * 1000)

    def address(self) -> str:
        """The peer's IP address, IPv4 also if the socket is one of IPv6; "" without one."""
        return self._peer

    def local(self) -> str:
        """The IP address of this end, IPv4 also if the socket is one of IPv6; "" without one."""
        return self._host("sockname")

    def _host(self, which: str) -> str:
        found = self._writer.get_extra_info(which)
        return plain_address(str(found[0])) if isinstance(found, tuple) else ""

    def connected(self) -> bool:
        """False once either end has closed the TCP connection, whether or not bytes still wait.

        True for a socket that is not TCP.
        """
        if self._writer.is_closing():
            return False
        sock = self._writer.get_extra_info("socket")
        try:
            state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:
            return True
        return bool(state == _ESTABLISHED)

    async def close(self) -> None:
        """Send close_notify and close the socket."""
        with contextlib.suppress(SSL.Error, OSError):
            self._tls.shutdown()
            self._flush()
        self._writer.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), FAREWELL)
        self.drop()  # a peer that does not read has no claim to the socket

    def drop(self) -> None:
        """Close the socket at once."""
        if self._writer.get_extra_info("socket").fileno() >= 0:  # asyncio aborts no closed socket
            self._writer.transport.abort()

    async def abort(self, message: bytes) -> None:
        """Send `message`, an ERROR, then wait at most FAREWELL seconds for the peer's close,
        because a reset would discard the message at the peer."""
        with contextlib.suppress(SSL.Error, OSError):  # after a failed handshake an alert was sent
            self._seal(message)
            self._tls.shutdown()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            self._flush()
            self._writer.write_eof()
            await asyncio.wait_for(self._drain(), FAREWELL)
        await self.close()

    # Internal ---------------------------------------------------------------

    @property
    def unsent(self) -> int:
        """Bytes that TCP has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    async def drained(self) -> None:
        """Wait until TCP has taken most of the bytes that wait. Raises OSError."""
        await self._writer.drain()

    async def _room(self) -> None:
        """Limit the bytes that the peer does not read. With srdma/2 the sessions of both ends share
        the connection: this end reads on, because the peer might wait for that too."""
        if self.version > 1:
            if self.unsent > UNSENT_MAX:
                raise Truncated("the peer does not read")
            return
        with contextlib.suppress(OSError):
            await self.drained()

    def _flush(self) -> None:
        with contextlib.suppress(SSL.WantReadError):
            while records := self._tls.bio_read(CHUNK):
                self._writer.write(records)
                if len(records) < CHUNK:
                    break  # the next call would raise WantReadError, which takes some time

    async def _read(self) -> None:
        """Wait for bytes of the peer. Raises Truncated at the end of the TCP connection."""
        try:
            data = await self._reader.read(CHUNK)
        except OSError:
            data = b""
        if not data:
            raise Truncated
        self._tls.bio_write(data)

    async def _drain(self) -> None:
        """Discard received bytes until the peer's close."""
        while await self._reader.read(CHUNK):
            pass


class Inner(_End):
    """A TLS connection inside another one: feed() takes its records, records() returns them."""

    def feed(self, records: bytes) -> None:
        """Take TLS records of the peer."""
        self._tls.bio_write(records)

    def shake(self) -> str:
        """Continue the handshake with the records received so far. Returns the peer's identity
        once the handshake is complete, else ""."""
        try:
            self._tls.do_handshake()
        except SSL.WantReadError:
            return ""
        except SSL.ZeroReturnError:
            raise ExchangeError("tls", INNER_ENDED) from None
        except (SSL.Error, OSError) as error:
            raise self._failure(error) from None
        return self._checked()[0]

    def receive(self) -> bytes | None:
        """The next complete message, or None. Raises ExchangeError if the peer ended it."""
        try:
            return super().receive()
        except PeerClosed:
            raise ExchangeError("tls", INNER_ENDED) from None

    def say(self, message: bytes) -> None:
        """Encrypt a message after its length; records() returns the TLS records."""
        self._seal(message)

    def records(self) -> bytes:
        """Records for the peer, at most CHUNK bytes; b"" if no record waits."""
        try:
            return self._tls.bio_read(CHUNK)
        except SSL.WantReadError:
            return b""


@lru_cache(maxsize=256)
def _context(credentials: Credentials, names: tuple[bytes, ...]) -> SSL.Context:
    """Settings of all TLS connections with these credentials and names of ALPN."""
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.set_options(SSL.OP_NO_TICKET)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # of an idle connection: 29 of 75 KB
    store = context.get_cert_store()
    assert store is not None
    for authority in parse_certificates(credentials.ca, "the CA"):
        store.add_cert(crypto.X509.from_cryptography(authority))
    if credentials.crl:
        store.add_crl(parse_crl(credentials.crl, "the revocation list"))
        store.set_flags(crypto.X509StoreFlags.CRL_CHECK)
    leaf, *rest = parse_certificates(credentials.cert, "the certificate")
    context.use_certificate(leaf)
    for certificate in rest:
        context.add_extra_chain_cert(certificate)
    context.use_privatekey(parse_key(credentials.key, "the key"))
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _verified)
    context.set_tlsext_servername_callback(_named)
    if keylog.begun():
        context.set_keylog_callback(lambda _, line: keylog.tls(line))
    context.set_alpn_protos([*names])
    context.set_alpn_select_callback(
        lambda _, offered: next(
            (name for name in names if name in offered), SSL.NO_OVERLAPPING_PROTOCOLS
        )
    )
    return context


# RFC 5042 A5.1.1b
def _verified(
    connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, ok: int
) -> bool:
    if not ok:
        what = VERIFY_ERRORS.get(error, f"does not verify (X509 error {error})")
        who = "the peer's certificate" if depth == 0 else "the CA of the peer's certificate"
        connection.get_app_data().error = f"{who} {what}"
    return bool(ok)


def _named(connection: SSL.Connection) -> None:
    """Use the credentials that the client asks for; a context without any fails the handshake."""
    state = connection.get_app_data()
    if state.choose:
        name = connection.get_servername() or b""
        state.chosen = state.choose(name.decode("ascii", "replace"))
        found = state.chosen
        connection.set_context(_context(found, state.names) if found else _nobody())


@lru_cache(maxsize=1)
def _nobody() -> SSL.Context:
    return SSL.Context(SSL.TLS_METHOD)
