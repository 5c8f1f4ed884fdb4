"""OCB (RFC 7253) from single AES blocks. Independent of OpenSSL, whose OCB both the C suites and
`cryptography` use."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import reduce
from operator import xor

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

BLOCK, TAG = 16, 16
ONES, HALF = (1 << 128) - 1, (1 << 64) - 1


def _double(x: int) -> int:
    return (x << 1 & ONES) ^ (0x87 if x >> 127 else 0)


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Returns (whole blocks, remainder)."""
    at = len(data) // BLOCK * BLOCK
    return data[:at], data[at:]


def _numbers(whole: bytes) -> list[int]:
    return [int.from_bytes(whole[at : at + BLOCK], "big") for at in range(0, len(whole), BLOCK)]


def _join(numbers: list[int]) -> bytes:
    return b"".join(number.to_bytes(BLOCK, "big") for number in numbers)


def _padded(rest: bytes) -> int:
    return int.from_bytes((rest + b"\x80").ljust(BLOCK, b"\0"), "big")


def _xor(a: bytes, b: bytes) -> bytes:
    """XOR of the length of `a`, which is at most that of `b`."""
    number = int.from_bytes(a, "big") ^ int.from_bytes(b[: len(a)], "big")
    return number.to_bytes(len(a), "big")


class OCB:
    """Has the interface of the AEAD classes of `cryptography`. Nonces have 12 bytes, tags 16."""

    def __init__(self, key: bytes) -> None:
        cipher = Cipher(AES(key), ECB())
        self._encipher = cipher.encryptor().update
        self._decipher = cipher.decryptor().update
        self._star = self._aes(0)
        self._dollar = _double(self._star)
        self._l = [_double(self._dollar)]

    def encrypt(self, nonce: bytes, data: bytes, ad: bytes) -> bytes:
        sealed, offset = self._text(nonce, data, self._encipher)
        return sealed + self._tag(data, offset, ad)

    def decrypt(self, nonce: bytes, data: bytes, ad: bytes) -> bytes:
        sealed, tag = data[:-TAG], data[-TAG:]
        plain, offset = self._text(nonce, sealed, self._decipher)
        if not hmac.compare_digest(self._tag(plain, offset, ad), tag):
            raise InvalidTag
        return plain

    def _aes(self, number: int) -> int:
        return int.from_bytes(self._encipher(number.to_bytes(BLOCK, "big")), "big")

    def _start(self, nonce: bytes) -> int:
        """Offset_0"""
        top = TAG * 8 % 128 << 121 | 1 << 96 | int.from_bytes(nonce, "big")
        k_top = self._aes(top & ~63)
        stretch = k_top << 64 | (k_top >> 64 ^ k_top >> 56) & HALF
        return stretch >> 64 - (top & 63) & ONES

    def _offsets(self, start: int, blocks: int) -> list[int]:
        """Offset_0 .. Offset_m"""
        found = [start]
        for i in range(1, blocks + 1):
            zeros = (i & -i).bit_length() - 1
            while len(self._l) <= zeros:
                self._l.append(_double(self._l[-1]))
            found.append(found[-1] ^ self._l[zeros])
        return found

    def _text(self, nonce: bytes, data: bytes, aes: Callable[[bytes], bytes]) -> tuple[bytes, int]:
        """Returns (data enciphered or deciphered, the last offset)."""
        whole, rest = _split(data)
        offsets = self._offsets(self._start(nonce), len(whole) // BLOCK)
        masks = _join(offsets[1:])
        out = _xor(aes(_xor(whole, masks)), masks)
        if not rest:
            return out, offsets[-1]
        offset = offsets[-1] ^ self._star
        return out + _xor(rest, _join([self._aes(offset)])), offset

    def _tag(self, plain: bytes, offset: int, ad: bytes) -> bytes:
        whole, rest = _split(plain)
        checksum = reduce(xor, _numbers(whole), _padded(rest) if rest else 0)
        return _join([self._aes(checksum ^ offset ^ self._dollar) ^ self._hash(ad)])

    def _hash(self, ad: bytes) -> int:
        whole, rest = _split(ad)
        offsets = self._offsets(0, len(whole) // BLOCK)
        found = reduce(xor, _numbers(self._encipher(_xor(whole, _join(offsets[1:])))), 0)
        if rest:
            found ^= self._aes(_padded(rest) ^ offsets[-1] ^ self._star)
        return found
