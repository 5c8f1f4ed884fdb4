"""The exporter of TLS 1.3 (RFC 8446 7.5), from HMAC alone. srdma.keyex uses that of OpenSSL."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass


@dataclass(frozen=True)
class Exported:
    """An output of the exporter, with the intermediate values."""

    label_secret: bytes  # Derive-Secret(exporter_secret, label, "")
    hkdf_label: bytes  # the input of the last HKDF-Expand
    out: bytes


def _expand(secret: bytes, info: bytes, n: int, digest: str) -> bytes:
    """HKDF-Expand (RFC 5869 2.3)."""
    found, block = b"", b""
    for i in range(1, -(-n // hashlib.new(digest).digest_size) + 1):
        block = hmac.digest(secret, block + info + bytes([i]), digest)
        found += block
    return found[:n]


def hkdf_label(label: bytes, context: bytes, n: int) -> bytes:
    """struct HkdfLabel (RFC 8446 7.1)."""
    full = b"tls13 " + label
    return n.to_bytes(2, "big") + bytes([len(full)]) + full + bytes([len(context)]) + context


def export(secret: bytes, label: bytes, context: bytes, n: int, digest: str) -> Exported:
    """`secret` is the exporter_secret of the connection, `digest` the hash of its cipher suite."""
    empty = hashlib.new(digest).digest()
    inner = _expand(secret, hkdf_label(label, empty, len(empty)), len(empty), digest)
    info = hkdf_label(b"exporter", hashlib.new(digest, context).digest(), n)
    return Exported(inner, info, _expand(inner, info, n, digest))
