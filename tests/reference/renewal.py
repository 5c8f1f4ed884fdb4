"""The renewal key and the proofs made with it (protocol.md 8.6)."""

from __future__ import annotations

from .kdf import kdf

CLIENT, SERVER = 0, 1


def renewal_key(to_server: bytes, to_client: bytes, generation: bytes) -> bytes:
    """From the secrets of the first epoch of both directions."""
    other = kdf(to_client, "renew", generation, 32)
    return kdf(to_server, "renew", generation + other, 32)


def proof(key: bytes, role: int, context: bytes) -> bytes:
    """The proof of the end with this role for 32 bytes of context."""
    return kdf(key, "proof", bytes([role]) + context, 32)
