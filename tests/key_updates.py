"""A TLS 1.3 client that makes KeyUpdates (RFC 8446 4.6.3), for which pyOpenSSL has no call."""

from __future__ import annotations

import socket
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from OpenSSL import SSL

from srdma.identity import Credentials
from srdma.keyex import tls
from tests.tls_players import BlockingTLS

APPLICATION_DATA, HANDSHAKE = 23, 22  # types of records
KEY_UPDATE = bytes([24, 0, 0, 1, 1])  # with update_requested
SECRET = "CLIENT_TRAFFIC_SECRET_0"


def expand(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label with an empty context (RFC 8446 7.1)."""
    info = struct.pack(">HB", size, 6 + len(label)) + b"tls13 " + label + b"\0"
    return HKDFExpand(SHA384(), size, info).derive(secret)


class Sender:
    """The sending direction of TLS_AES_256_GCM_SHA384."""

    def __init__(self, secret: bytes) -> None:
        self._use(secret)

    def _use(self, secret: bytes) -> None:
        self._secret, self._sequence = secret, 0
        self._aead, self._iv = AESGCM(expand(secret, b"key", 32)), expand(secret, b"iv", 12)

    def record(self, kind: int, content: bytes) -> bytes:
        plain = content + bytes([kind])
        head = struct.pack(">BHH", APPLICATION_DATA, 0x303, len(plain) + 16)
        nonce = int.from_bytes(self._iv, "big") ^ self._sequence
        self._sequence += 1
        return head + self._aead.encrypt(nonce.to_bytes(12, "big"), plain, head)

    def key_update(self) -> bytes:
        record = self.record(HANDSHAKE, KEY_UPDATE)
        self._use(expand(self._secret, b"traffic upd", 48))
        return record

    def message(self, message: bytes) -> bytes:
        """A message of the key exchange, behind its length."""
        return self.record(APPLICATION_DATA, len(message).to_bytes(tls.LENGTH, "big") + message)


def connected(sock: socket.socket, credentials: Credentials) -> Sender:
    """Complete a handshake as a client. From now on only the sender may send."""
    secrets: dict[str, bytes] = {}

    def log(_: SSL.Connection, line: bytes) -> None:
        label, _, secret = line.decode().split()
        secrets[label] = bytes.fromhex(secret)

    tls._context.cache_clear()
    tls._context(credentials, tuple(tls.ALPN)).set_keylog_callback(log)
    peer = BlockingTLS(sock, "client", credentials)
    peer.raw = True  # no HELLO
    tls._context.cache_clear()  # so that no other connection is logged
    peer.handshake()
    assert peer._tls.get_cipher_name() == "TLS_AES_256_GCM_SHA384"
    return Sender(secrets[SECRET])
