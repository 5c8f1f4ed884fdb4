"""Messages, transcript and secrets of the key exchange (protocol.md 8.2 to 8.6)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from .cbor import encode

RESUME_LABEL = b"EXPORTER-srdma-2 resume"  # 8.6
LABELS = (b"EXPORTER-srdma-1 client", b"EXPORTER-srdma-1 server")  # by direction
Message = dict[str, Any]


def framed(message: bytes) -> bytes:
    """The message after its length (4 bytes, big-endian), as TLS carries it."""
    return len(message).to_bytes(4, "big") + message


@dataclass(frozen=True)
class Transcript:
    offer: Message
    choice: Message
    certificates: tuple[bytes, bytes]  # SHA-256 of the client's and of the server's (DER)

    @property
    def data(self) -> bytes:
        """The input of the hash."""
        both = framed(encode(self.offer)) + framed(encode(self.choice))
        return b"srdma-1 transcript\0" + both + b"".join(self.certificates)

    @property
    def hash(self) -> bytes:
        return hashlib.sha256(self.data).digest()

    def generation(self, qp: int) -> bytes:
        return hashlib.sha256(self.hash + qp.to_bytes(4, "big")).digest()[:8]

    def context(self, qp: int, count: int = 0) -> bytes:
        """The context of the exporter. count: that of the RENEW, or 0 in the first exchange."""
        counted = count.to_bytes(4, "big") if count else b""
        return self.hash + counted + qp.to_bytes(4, "big")
