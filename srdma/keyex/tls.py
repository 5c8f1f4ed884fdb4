"""TLS 1.3 of the key exchange: mutual, ALPN srdma/1, never resumed, with exporter (protocol.md 8).

`Channel` carries length-prefixed messages over a non-blocking pyOpenSSL connection. It waits by
the caller's `wait`, so that deadlines and other events stay in one place. `Inner` is the same
without a socket: its records are the caller's to carry, in messages of a Channel (8.5).
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
from srdma.keyex.messages import MESSAGE_MAX, ExchangeError

ALPN = b"srdma/1"
GROUPS = {"x25519mlkem768", "x25519", "secp256r1", "prime256v1", "p-256"}
LENGTH = 4
CHUNK = 16_384  # bytes of records in one message

# Of the peer's certificate: OpenSSL's verify error -> what is wrong.
VERIFY_ERRORS = {
    9: "is not valid yet: look at the clocks of both hosts",
    10: "has expired: issue a new one",
    18: "is signed by itself and not by the configured CA",
    19: "comes from another CA than the configured one",
    20: "comes from another CA than the configured one",
    21: "comes from another CA than the configured one",
    7: "has a wrong signature: its CA is not the configured one",
    26: "is not made for TLS clients and servers (extended key usage)",
}
# Alerts by which the peer refuses this end: part of OpenSSL's reason -> what to say.
ALERTS = {
    "certificate expired": "it says that this end's certificate has expired",
    "bad certificate": "it does not accept this end's certificate (not valid yet, or no good)",
    "unknown ca": "this end's certificate comes from another CA than the one configured there",
    "certificate required": "it wants a certificate of this end, which has none",
    "no application protocol": "it does not speak srdma/1 (ALPN)",
    "unsupported certificate": "it does not accept this kind of certificate (key usage)",
    "protocol version": "it does not speak TLS 1.3",
    "wrong version number": "it does not speak TLS",
    "packet length too long": "it does not speak TLS",
    "record layer failure": "it does not speak TLS",
}

INNER_ENDED = "the peer ended the inner connection"

T = TypeVar("T")
Wait = Callable[[bool], None]  # True: until writable, False: until readable


class PeerClosed(Exception):  # noqa: N818 - an event, not a fault
    """The peer ended the TLS connection."""


class Truncated(PeerClosed):
    """It ended, and the peer did not say so: anybody on the path can do that."""


class _End:
    """What both kinds have in common: one end of a TLS connection, with or without a socket."""

    def __init__(self, role: str, credentials: Credentials, sock: socket.socket | None) -> None:
        self._verify_error = ""
        self._buffer = bytearray()
        self._tls = SSL.Connection(self._context(credentials), sock)
        if role == "client":
            self._tls.set_connect_state()
        else:
            self._tls.set_accept_state()

    def peer_certificate(self) -> x509.Certificate:
        certificate = self._tls.get_peer_certificate(as_cryptography=True)
        if certificate is None:
            raise ExchangeError("identity", "the peer has no certificate")
        return certificate

    def certificate_hashes(self) -> tuple[bytes, bytes]:
        """SHA-256 of the own and of the peer's certificate (DER)."""
        own = self._tls.get_certificate(as_cryptography=True)
        if own is None:
            raise ExchangeError("identity", "this end has no certificate")
        return fingerprint(own), fingerprint(self.peer_certificate())

    def export(self, label: bytes, context: bytes, size: int) -> bytes:
        return self._tls.export_keying_material(label, size, context)

    def receive(self) -> bytes | None:
        """A message that is there, or None; PeerClosed when there will be none."""
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

    # Inside ----------------------------------------------------------------

    def _checked(self) -> tuple[str, str]:
        """The handshake is done: the peer's identity and the group that made the keys."""
        if self._tls.get_alpn_proto_negotiated() != ALPN:
            raise ExchangeError("tls", "the peer does not speak srdma/1 (ALPN)")
        group = self._tls.get_group_name() or "unknown"
        if group != "unknown" and group.lower() not in GROUPS:
            raise ExchangeError("tls", f"key exchange group {group}: it must be one of {GROUPS}")
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
        """What a TLS or socket error means."""
        if self._verify_error:
            return ExchangeError("identity", self._verify_error)
        if isinstance(error, SSL.SysCallError | OSError):
            return Truncated()
        reason = ", ".join(str(part) for entry in error.args[0] for part in entry[2:])
        known = next((text for word, text in ALERTS.items() if word in reason), None)
        if known:
            return ExchangeError("tls", f"the peer refused: {known}", from_peer="alert" in reason)
        return ExchangeError("tls", f"TLS failed: {reason}")

    def _take(self) -> bytes | None:
        if len(self._buffer) < LENGTH:
            return None
        size = int.from_bytes(self._buffer[:LENGTH], "big")
        if size > MESSAGE_MAX:
            raise ExchangeError("format", f"a message of {size} bytes: at most {MESSAGE_MAX}")
        if len(self._buffer) < LENGTH + size:
            return None
        message = bytes(self._buffer[LENGTH : LENGTH + size])
        self._buffer[: LENGTH + size] = bytes(LENGTH + size)  # a CONFIRM has secrets
        del self._buffer[: LENGTH + size]
        return message


class Channel(_End):
    """Messages over TLS on a connected TCP socket, which it owns."""

    def __init__(
        self, sock: socket.socket, role: str, credentials: Credentials, wait: Wait
    ) -> None:
        self._sock = sock
        self._wait = wait
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # not TCP
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(role, credentials, sock)

    def fileno(self) -> int:
        return self._sock.fileno()

    def handshake(self) -> tuple[str, str]:
        """Do it; the peer's identity and the group that made the keys."""
        self._retry(self._tls.do_handshake)
        return self._checked()

    def send(self, message: bytes) -> None:
        data = memoryview(len(message).to_bytes(LENGTH, "big") + message)
        while data:
            data = data[self._retry(partial(self._tls.send, data)) :]

    def close(self) -> None:
        """Say goodbye, as far as that goes without waiting."""
        with contextlib.suppress(SSL.Error, OSError):
            self._tls.shutdown()
        self._sock.close()

    def abort(self, message: bytes) -> None:
        """Tell the peer why, then wait for its end: a reset would overtake the message."""
        unreachable = SSL.Error, OSError, ExchangeError, PeerClosed
        with contextlib.suppress(*unreachable):  # after a failed handshake there is an alert
            self.send(message)
            self._tls.shutdown()
        with contextlib.suppress(*unreachable):
            self._sock.shutdown(socket.SHUT_WR)
            self._drain()
        self._sock.close()

    # Inside ----------------------------------------------------------------

    def _drain(self) -> None:
        """Until its end, or the caller's deadline, however much it sends."""
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
    """A TLS connection inside another one: records in by feed(), out by records()."""

    def __init__(self, role: str, credentials: Credentials) -> None:
        super().__init__(role, credentials, None)

    def feed(self, records: bytes) -> None:
        self._tls.bio_write(records)

    def shake(self) -> str:
        """Go on with the handshake, as far as the records go; the peer's identity in its end."""
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
        """A message that is there, or None."""
        try:
            return super().receive()
        except PeerClosed:
            raise ExchangeError("tls", INNER_ENDED) from None

    def say(self, message: bytes) -> None:
        data = memoryview(len(message).to_bytes(LENGTH, "big") + message)
        while data:
            data = data[self._tls.send(data) :]

    def records(self) -> bytes:
        """Some for the peer, at most CHUNK bytes; none: no more at this time."""
        try:
            return self._tls.bio_read(CHUNK)
        except SSL.WantReadError:
            return b""


def fingerprint(certificate: x509.Certificate) -> bytes:
    return certificate.fingerprint(hashes.SHA256())
