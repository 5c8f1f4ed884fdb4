"""TLS 1.3 of the key exchange: mutual, ALPN srdma/1, never resumed, with exporter (protocol.md 8).

`Channel` carries length-prefixed messages over a non-blocking pyOpenSSL connection. It blocks
only in the caller's `wait`, so that deadlines and other events are handled in one place. `Inner`
is a TLS connection without a socket: the caller carries its records in messages of a Channel (8.5).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from OpenSSL import SSL, crypto

from srdma.identity import Credentials, IdentityError, identity_of, parse_certificates, parse_key
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import MESSAGE_MAX

ALPN = b"srdma/1"
GROUPS = {"x25519mlkem768", "x25519", "secp256r1", "prime256v1", "p-256"}
LENGTH = 4
CHUNK = 16_384  # maximum bytes of inner records in one message

# OpenSSL's verify error -> text that continues "the peer's certificate".
VERIFY_ERRORS = {
    9: "is not valid yet: compare the clocks of both hosts",
    10: "has expired: issue a new one",
    18: "is self-signed, not issued by the configured CA",
    19: "was issued by another CA than the configured one",
    20: "was issued by another CA than the configured one",
    21: "was issued by another CA than the configured one",
    7: "has a wrong signature: its CA is not the configured one",
    26: "does not permit TLS clients and servers (extended key usage)",
}
# Part of OpenSSL's reason, mostly of the peer's alert -> text after "TLS failed: ".
ALERTS = {
    "certificate expired": "this end's certificate has expired: issue a new one",
    "bad certificate": "this end's certificate is not accepted (not valid yet, or malformed)",
    "unknown ca": "this end's certificate was issued by another CA than the peer's configured one",
    "certificate required": "the peer requires a certificate, and this end sent none",
    "no application protocol": "the peer does not support srdma/1 (ALPN)",
    "unsupported certificate": "this kind of certificate is not accepted (key usage)",
    "protocol version": "the peer does not support TLS 1.3",
    "wrong version number": "the peer does not use TLS: check the address and port",
    "packet length too long": "the peer does not use TLS: check the address and port",
    "record layer failure": "the peer does not use TLS: check the address and port",
}

INNER_ENDED = "the peer ended the inner connection"

T = TypeVar("T")
Wait = Callable[[bool], None]  # blocks until writable (True) or readable (False)


class PeerClosed(Exception):  # noqa: N818 - an event, not a fault
    """The peer ended the TLS connection."""


class Truncated(PeerClosed):
    """The TCP connection ended without close_notify; anyone on the network path can cause that."""


class _End:
    """Common part of Channel and Inner: one end of a TLS connection, with or without a socket."""

    def __init__(self, role: str, credentials: Credentials, sock: socket.socket | None) -> None:
        self._verify_error = ""
        self._buffer = bytearray()
        self._tls = SSL.Connection(self._context(credentials), sock)
        if role == "client":
            self._tls.set_connect_state()
        else:
            self._tls.set_accept_state()

    def peer_certificate(self) -> x509.Certificate:
        """The certificate of the peer. Raises ExchangeError (`identity`) without one."""
        certificate = self._tls.get_peer_certificate(as_cryptography=True)
        if certificate is None:
            raise ExchangeError("identity", "the peer has no certificate")
        return certificate

    def certificate_hashes(self) -> tuple[bytes, bytes]:
        """SHA-256 of the local and of the peer's certificate (DER)."""
        own = self._tls.get_certificate(as_cryptography=True)
        if own is None:
            raise ExchangeError("identity", "this end has no certificate")
        return fingerprint(own), fingerprint(self.peer_certificate())

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
        if self._tls.get_alpn_proto_negotiated() != ALPN:
            raise ExchangeError("tls", "the peer does not support srdma/1 (ALPN)")
        group = self._tls.get_group_name() or "unknown"
        if group != "unknown" and group.lower() not in GROUPS:
            raise ExchangeError("tls", f"key exchange group {group} is not one of {GROUPS}")
        try:
            return identity_of(self.peer_certificate()), group
        except IdentityError as error:
            raise ExchangeError("identity", f"the peer has {error}") from None

    def _context(self, credentials: Credentials) -> SSL.Context:
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_min_proto_version(SSL.TLS1_3_VERSION)
        context.set_options(SSL.OP_NO_TICKET)
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        store = context.get_cert_store()
        assert store is not None
        for authority in parse_certificates(credentials.ca, "the CA"):
            store.add_cert(crypto.X509.from_cryptography(authority))
        leaf, *rest = parse_certificates(credentials.cert, "the certificate")
        context.use_certificate(leaf)
        for certificate in rest:
            context.add_extra_chain_cert(certificate)
        context.use_privatekey(parse_key(credentials.key, "the key"))
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, self._verified)
        context.set_alpn_protos([ALPN])
        context.set_alpn_select_callback(
            lambda _, offered: ALPN if ALPN in offered else SSL.NO_OVERLAPPING_PROTOCOLS
        )
        return context

    def _verified(
        self, _: SSL.Connection, certificate: crypto.X509, error: int, depth: int, ok: int
    ) -> bool:
        if not ok:
            what = VERIFY_ERRORS.get(error, f"does not verify (X509 error {error})")
            who = "the peer's certificate" if depth == 0 else "the CA of the peer's certificate"
            self._verify_error = f"{who} {what}"
        return bool(ok)

    def _failure(self, error: Exception) -> Exception:
        """The exception to raise for a TLS or socket error."""
        if self._verify_error:
            return ExchangeError("identity", self._verify_error)
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
        if size > MESSAGE_MAX:
            raise ExchangeError(
                "format", f"a message has {size} bytes: at most {MESSAGE_MAX} are permitted"
            )
        if len(self._buffer) < LENGTH + size:
            return None
        message = bytes(self._buffer[LENGTH : LENGTH + size])
        self._buffer[: LENGTH + size] = bytes(LENGTH + size)  # wiped: a CONFIRM has secrets
        del self._buffer[: LENGTH + size]
        return message


class Channel(_End):
    """Messages over TLS on a connected TCP socket, which the channel owns and closes."""

    def __init__(
        self, sock: socket.socket, role: str, credentials: Credentials, wait: Wait
    ) -> None:
        self._sock = sock
        self._wait = wait
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # tests use sockets other than TCP
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(role, credentials, sock)

    def fileno(self) -> int:
        return self._sock.fileno()

    def handshake(self) -> tuple[str, str]:
        """Complete the handshake. Returns the peer's identity and the key exchange group.

        Raises ExchangeError (`tls`, `identity`), PeerClosed, and the exceptions of `wait`.
        """
        self._retry(self._tls.do_handshake)
        return self._checked()

    def send(self, message: bytes) -> None:
        """Send a message after its length. Raises as handshake()."""
        data = memoryview(len(message).to_bytes(LENGTH, "big") + message)
        while data:
            data = data[self._retry(partial(self._tls.send, data)) :]

    def close(self) -> None:
        """Send close_notify if that does not block, and close the socket."""
        with contextlib.suppress(SSL.Error, OSError):
            self._tls.shutdown()
        self._sock.close()

    def abort(self, message: bytes) -> None:
        """Send `message`, an ERROR, then wait for the peer's close, because a reset would discard
        the message at the peer."""
        unreachable = SSL.Error, OSError, ExchangeError, PeerClosed
        with contextlib.suppress(*unreachable):  # after a failed handshake an alert was sent
            self.send(message)
            self._tls.shutdown()
        with contextlib.suppress(*unreachable):
            self._sock.shutdown(socket.SHUT_WR)
            self._drain()
        self._sock.close()

    # Internal ---------------------------------------------------------------

    def _drain(self) -> None:
        """Discard received bytes until the peer's close or the deadline of `wait`."""
        while True:
            self._wait(False)
            with contextlib.suppress(BlockingIOError):
                if not self._sock.recv(65_536):
                    return

    def _retry(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except SSL.WantReadError:
                self._wait(False)
            except SSL.WantWriteError:
                self._wait(True)
            except SSL.ZeroReturnError:
                raise PeerClosed from None
            except (SSL.Error, OSError) as error:
                raise self._failure(error) from None


class Inner(_End):
    """A TLS connection inside another one: feed() takes its records, records() returns them."""

    def __init__(self, role: str, credentials: Credentials) -> None:
        super().__init__(role, credentials, None)

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
        data = memoryview(len(message).to_bytes(LENGTH, "big") + message)
        while data:
            data = data[self._tls.send(data) :]

    def records(self) -> bytes:
        """Records for the peer, at most CHUNK bytes; b"" if no record waits."""
        try:
            return self._tls.bio_read(CHUNK)
        except SSL.WantReadError:
            return b""


def fingerprint(certificate: x509.Certificate) -> bytes:
    """SHA-256 of the certificate (DER), 32 bytes."""
    return certificate.fingerprint(hashes.SHA256())
