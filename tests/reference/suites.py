"""Suites and levels (protocol.md 3.3, 4.5)."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC

TAG_SIZES = (12, 16, 20, 28, 32, 48, 64)


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
    tag_min: int  # shortest that may be asked for
    packets: int  # hard stop per key
    aead: type[AESGCM] | type[ChaCha20Poly1305] | None = None
    mac: Callable[[bytes, bytes, bytes], bytes] | None = None  # key, nonce, data

    @property
    def tag_sizes(self) -> list[int]:
        return [n for n in TAG_SIZES if self.tag_min <= n <= self.tag_size]

    @property
    def levels(self) -> tuple[Level, ...]:
        return (Level.AEAD,) if self.aead else (Level.HEADER, Level.PACKET)


def _hmac_sha256(key: bytes, _nonce: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _aes_cmac(key: bytes, _nonce: bytes, data: bytes) -> bytes:
    mac = CMAC(AES(key))
    mac.update(data)
    return mac.finalize()


def _aes_gmac(key: bytes, nonce: bytes, data: bytes) -> bytes:
    return AESGCM(key).encrypt(nonce, b"", data)


SUITES = {
    suite.id: suite
    for suite in (
        Suite(0x01, "aes-128-gcm", 16, 12, 16, 16, 2**26, aead=AESGCM),
        Suite(0x03, "aes-256-gcm", 32, 12, 16, 16, 2**26, aead=AESGCM),
        Suite(0x07, "chacha20-poly1305", 32, 12, 16, 16, 2**40, aead=ChaCha20Poly1305),
        Suite(0x12, "hmac-sha256", 32, 0, 32, 12, 2**40, mac=_hmac_sha256),
        Suite(0x20, "aes-128-cmac", 16, 0, 16, 12, 2**40, mac=_aes_cmac),
        Suite(0x30, "aes-128-gmac", 16, 12, 16, 16, 2**26, mac=_aes_gmac),
    )
}


@dataclass(frozen=True)
class Key:
    """A keyed suite at one level."""

    suite: Suite
    level: Level
    key: bytes
    tag_len: int

    def seal(self, nonce: bytes, ad: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """(payload on the wire, tag)"""
        if self.suite.aead:
            sealed = self.suite.aead(self.key).encrypt(nonce, payload, ad)
            return sealed[: len(payload)], sealed[len(payload) :]
        return payload, self._mac(nonce, ad, payload)

    def open(self, nonce: bytes, ad: bytes, wire: bytes, tag: bytes) -> bytes | None:
        """The payload; None if the tag is not that of the rest."""
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
