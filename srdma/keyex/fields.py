"""Checks of the fields of a key exchange message, and the error that they raise (protocol.md 8.2).

Each function raises ExchangeError, which names the field, its value and the permitted values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cbor2

from srdma import plain_cbor
from srdma.errors import Error


class ExchangeError(Error):
    """The key exchange failed. `code` is a code of protocol.md 8.1; `text` gives the reason.

    `from_peer`: the peer sent this as its ERROR, so no ERROR is sent back. `told`: the text of
    the ERROR to the peer, if it differs from `text`.
    """

    def __init__(
        self, code: str, text: str, *, from_peer: bool = False, told: str | None = None
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.from_peer = from_peer
        self.told = text if told is None else told


def exactly(fields: Mapping[str, Any], what: str, keys: set[str]) -> None:
    if missing := keys - set(fields):
        raise ExchangeError("format", f"{what} lacks {', '.join(sorted(missing))}")
    if extra := set(fields) - keys:
        names = ", ".join(f"{name!r:.22}" for name in sorted(extra)[:5])
        raise ExchangeError("format", f"{what} has unknown fields: {names}")


def integer(name: str, value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise bad(name, value, f"{least} to {most}")
    return value


def octets(fields: Mapping[str, Any], name: str, least: int, most: int) -> bytes:
    value = fields[name]
    if not isinstance(value, bytes) or not least <= len(value) <= most:
        size = str(most) if least == most else f"{least} to {most}"
        raise bad(name, value, f"{size} bytes")
    return value


def text(name: str, value: object, most: int) -> str:
    if not isinstance(value, str) or len(value.encode()) > most:
        raise bad(name, value, f"text of at most {most} bytes")
    return value


def bad(name: str, value: object, right: str) -> ExchangeError:
    shown = f"{len(value)} bytes" if isinstance(value, bytes) else f"{value!r:.80}"
    return ExchangeError("value", f"{name} is {shown}: it must be {right}")


def plain_map(raw: bytes, most: int) -> dict[str, Any]:
    """The map in a message of at most `most` bytes, in deterministic encoding."""
    if len(raw) > most:
        raise ExchangeError(
            "format", f"a message has {len(raw)} bytes: at most {most} are permitted"
        )
    try:
        value = plain_cbor.loads(raw)
        again = cbor2.dumps(value, canonical=True) if _is_plain(value) else b""
    except Exception as error:  # hostile bytes may raise any exception in the decoder
        raise ExchangeError("format", f"a message is not CBOR: {type(error).__name__}") from None
    if not isinstance(value, dict) or again != raw:
        raise ExchangeError(
            "format", "a message is not exactly one deterministic CBOR map (RFC 8949 4.2)"
        )
    return value


def _is_plain(value: object) -> bool:
    """True if only types of srdma-1 occur: maps with text keys, lists, integers, bytes, text,
    bool."""
    if isinstance(value, bytes | str):
        return True
    if isinstance(value, int):
        return abs(value) < 1 << 64  # a bignum is a tag
    if isinstance(value, dict):
        return all(type(name) is str for name in value) and all(map(_is_plain, value.values()))
    return isinstance(value, list) and all(map(_is_plain, value))
