"""CBOR (RFC 8949) of messages: maps with text keys, arrays, numbers, bytes, text, simple values.

Tags are refused before they are decoded. Some of them (28 and 29, shared values; 256, string
references) let a short message stand for a value of any size.
"""

from __future__ import annotations

from typing import Any, NoReturn

import cbor2

DEPTH = 16  # of nested maps and arrays


def _refuse(*_: object) -> NoReturn:
    raise ValueError("a tag")


# Tags that cbor2 decodes itself; the others go to the tag hook.
_TAGS = dict.fromkeys((*range(1024), 43000, 55799), _refuse)


def loads(raw: bytes) -> Any:
    """The value of a message. Wrong bytes may raise any exception of the decoder."""
    return cbor2.loads(
        raw,
        tag_hook=_refuse,
        semantic_decoders=_TAGS,
        max_depth=DEPTH,
        strict_hashable_types=True,
    )
