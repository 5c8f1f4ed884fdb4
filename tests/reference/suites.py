"""Suites and levels (protocol.md 3.3, 4.5)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC

from .ocb import OCB

TAG_SIZES = (12, 16, 20, 28, 32, 48, 64)
Aead = AESGCM | ChaCha20Poly1305 | OCB
Mac = Callable[[bytes, bytes, bytes], bytes]  # key, nonce, data


class Level(IntEnum):
    NONE = 0
    HEADER = 1
    PACKET = 2
    AEAD = 3


@dataclass(frozen=True)
class Suite:
    id: int
    name: str
    key_size: int
    iv_size: int
    tag_size: int
    tag_min: int  # shortest that may be requested
    packets: int  # hard limit per key
    aead: type[Aead] | None = None
    mac: Mac | None = None

    @property
    def tag_sizes(self) -> list[int]:
        return [n for n in TAG_SIZES if self.tag_min <= n <= self.tag_size]

    @property
    def levels(self) -> tuple[Level, ...]:
        return (Level.AEAD,) if self.aead else (Level.HEADER, Level.PACKET)


def _hmac(digest: str) -> Mac:
    return lambda key, _nonce, data: hmac.digest(key, data, digest)


def _aes_cmac(key: bytes, _nonce: bytes, data: bytes) -> bytes:
    mac = CMAC(AES(key))
    mac.update(data)
    return mac.finalize()


def _mac_of(aead: type[Aead]) -> Mac:
    """Returns the MAC that is the tag of an AEAD with all data as associated data."""
    return lambda key, nonce, data: aead(key).encrypt(nonce, b"", data)


GCM, OCB_LIMIT, LIMIT = 2**26, 2**39, 2**40  # packets per key
AES_SIZES = (16, 24, 32)
HASHES = ("sha1", "sha224", "sha256", "sha384", "sha512") + tuple(
    f"sha3-{bits}" for bits in (224, 256, 384, 512)
)


def _rows() -> Iterator[Suite]:
    for i, n in enumerate(AES_SIZES):
        bits = 8 * n
        yield Suite(0x01 + i, f"aes-{bits}-gcm", n, 12, 16, 16, GCM, aead=AESGCM)
        yield Suite(0x04 + i, f"aes-{bits}-ocb", n, 12, 16, 16, OCB_LIMIT, aead=OCB)
        yield Suite(0x20 + i, f"aes-{bits}-cmac", n, 0, 16, 12, LIMIT, mac=_aes_cmac)
        yield Suite(0x30 + i, f"aes-{bits}-gmac", n, 12, 16, 16, GCM, mac=_mac_of(AESGCM))
    yield Suite(0x07, "chacha20-poly1305", 32, 12, 16, 16, LIMIT, aead=ChaCha20Poly1305)
    yield Suite(0x38, "poly1305", 32, 12, 16, 16, LIMIT, mac=_mac_of(ChaCha20Poly1305))
    for i, name in enumerate(HASHES):
        digest = name.replace("-", "_")
        n = hashlib.new(digest).digest_size
        yield Suite(0x10 + i, f"hmac-{name}", n, 0, n, 12, LIMIT, mac=_hmac(digest))


SUITES = {suite.id: suite for suite in sorted(_rows(), key=lambda suite: suite.id)}


@dataclass(frozen=True)
class Key:
    """A keyed suite at one level."""

    suite: Suite
    level: Level
    key: bytes
    tag_len: int

    def seal(self, nonce: bytes, ad: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """Returns (payload on the wire, tag)."""
        if self.suite.aead:
            sealed = self.suite.aead(self.key).encrypt(nonce, payload, ad)
            return sealed[: len(payload)], sealed[len(payload) :]
        return payload, self._mac(nonce, ad, payload)

    def open(self, nonce: bytes, ad: bytes, wire: bytes, tag: bytes) -> bytes | None:
        """Returns the payload, or None if the tag does not verify."""
        if self.suite.aead:
            try:
                return self.suite.aead(self.key).decrypt(nonce, wire + tag, ad)
            except InvalidTag:
                return None
        return wire if hmac.compare_digest(self._mac(nonce, ad, wire), tag) else None

    def _mac(self, nonce: bytes, ad: bytes, payload: bytes) -> bytes:
        assert self.suite.mac
        covered = ad + payload if self.level == Level.PACKET else ad
        return self.suite.mac(self.key, nonce, covered)[: self.tag_len]
