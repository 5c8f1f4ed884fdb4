"""Deterministic CBOR (RFC 8949 4.2) of the types that messages have: encoding and a listing.

The key exchange uses the library cbor2; this encoder is written from the RFC.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Major types.
UNSIGNED, BYTES, TEXT, ARRAY, MAP, SIMPLE = 0, 2, 3, 4, 5, 7
FALSE, TRUE = 20, 21
INDENT = "  "


def head(major: int, number: int) -> bytes:
    """The major type and its argument in the shortest form."""
    if number < 24:
        return bytes([major << 5 | number])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * size:
            return bytes([major << 5 | code]) + number.to_bytes(size, "big")
    raise ValueError(f"{number} has more than 64 bits")


def encode(value: Any) -> bytes:
    match value:
        case bool():
            return head(SIMPLE, TRUE if value else FALSE)
        case int():
            return head(UNSIGNED, value)
        case bytes():
            return head(BYTES, len(value)) + value
        case str():
            return head(TEXT, len(value.encode())) + value.encode()
        case list():
            return head(ARRAY, len(value)) + b"".join(map(encode, value))
        case dict():
            return head(MAP, len(value)) + b"".join(k + encode(v) for k, v in _pairs(value))
    raise ValueError(f"{type(value).__name__} is not a type of srdma-1")


def _pairs(value: dict[str, Any]) -> list[tuple[bytes, Any]]:
    """Encoded keys and values, in bytewise order of the encoded keys."""
    return sorted((encode(key), entry) for key, entry in value.items())


def listing(value: Any, label: str = "", depth: int = 0, key: bytes = b"") -> Iterator[str]:
    """Lines of one item each: the bytes of its key, its own bytes, and its meaning."""
    match value:
        case dict():
            yield _line(depth, key + head(MAP, len(value)), f"{label}map, pairs: {len(value)}")
            for name, entry in _pairs(value):
                text = name[1:].decode()
                yield from listing(entry, f'"{text}": ', depth + 1, name)
        case list() if any(isinstance(entry, dict | list | bytes) for entry in value):
            yield _line(depth, key + head(ARRAY, len(value)), f"{label}array, items: {len(value)}")
            for entry in value:
                yield from listing(entry, "", depth + 1)
        case bytes() if value:
            yield _line(depth, key + head(BYTES, len(value)), f"{label}bytes, {len(value)}")
            for at in range(0, len(value), 48):
                yield INDENT * (depth + 1) + value[at : at + 48].hex()
        case _:
            yield _line(depth, key + encode(value), label + _shown(value))


def _line(depth: int, data: bytes, meaning: str) -> str:
    return f"{INDENT * depth + data.hex():<44} {meaning}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value > 0xFFFF:
        return f"{value:#x}"
    if isinstance(value, str):
        return f'"{value}"'
    return "h''" if value == b"" else str(value)
