"""CBOR without tags: a short message never stands for a large value."""

from __future__ import annotations

import cbor2
import pytest

from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import decode
from srdma.plain_cbor import DEPTH, loads

SHARE, REFERENCE = b"\xd8\x1c", b"\xd8\x1d"


def doubling(levels: int) -> bytes:
    """A map of a list whose last item has 2^levels leaves, by references to earlier items."""
    items = [SHARE + b"\x81\x00"]
    for n in range(levels):
        items.append(SHARE + b"\x82" + 2 * (REFERENCE + cbor2.dumps(n)))
    return b"\xa1\x65ready" + bytes([0x98, len(items)]) + b"".join(items)


@pytest.mark.parametrize(
    "raw",
    [
        doubling(60),
        b"\xd9\x01\x00\x82\x64aaaa\xd8\x19\x00",  # 256: a string reference
        *(cbor2.dumps({"a": cbor2.CBORTag(tag, "1")}) for tag in (0, 2, 30, 35, 55799, 1 << 60)),
        cbor2.dumps({"a": 1 << 70}),
        cbor2.dumps({(1, 2): 3}),
    ],
)
def test_tags_are_refused(raw: bytes) -> None:
    with pytest.raises(cbor2.CBORDecodeError):
        loads(raw)
    with pytest.raises(ExchangeError, match="not CBOR"):
        decode(raw)


def test_plain_values() -> None:
    value = {"a": [1, -1, b"x", "y", True, None, {"b": [(1 << 64) - 1]}]}
    assert loads(cbor2.dumps(value)) == value


def test_depth() -> None:
    nested = b"\x81" * (DEPTH + 1)
    with pytest.raises(cbor2.CBORDecodeError, match="nesting"):
        loads(nested + b"\x80")
