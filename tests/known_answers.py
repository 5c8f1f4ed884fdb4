"""Known answers of others (Wycheproof, NIST, RFCs) through the C suites.

A vector whose key, nonce or tag form no suite has must be refused by an
exception, never computed; such vectors are counted by the reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from srdma import _native
from srdma.policy import tag_sizes

ROWS = {row["name"]: row for row in _native.suites()}


@dataclass(frozen=True)
class Answer:
    suite: str
    key: bytes
    nonce: bytes
    ad: bytes
    text: bytes
    sealed: bytes  # for a MAC the text
    tag: bytes
    valid: bool


def unsupported(answer: Answer) -> str | None:
    """Why no suite of the table has the form of this vector, by the table alone."""
    row = ROWS.get(answer.suite)
    if row is None:
        return "no such suite"
    if len(answer.key) != row["key_len"]:
        return "key length"
    if len(answer.nonce) != row["iv_len"]:
        return "nonce length"
    if len(answer.tag) not in tag_sizes(row):
        return "tag length"
    return None


def seal(answer: Answer) -> tuple[bytes, bytes]:
    suite = _native.Suite(answer.suite, answer.key, len(answer.tag))
    return suite.seal(answer.nonce, answer.ad, answer.text)


def check(answer: Answer) -> str:
    """Hold C against one vector; returns what to count it under."""
    reason = unsupported(answer)
    if reason:
        with pytest.raises(ValueError):
            seal(answer)
        return f"refused: {reason}"
    suite = _native.Suite(answer.suite, answer.key, len(answer.tag))
    if not answer.valid:
        assert seal(answer) != (answer.sealed, answer.tag)
        with pytest.raises(_native.RefusedError, match="tag"):
            suite.open(answer.nonce, answer.ad, answer.sealed, answer.tag)
        return "invalid, found so"
    assert seal(answer) == (answer.sealed, answer.tag)
    assert suite.open(answer.nonce, answer.ad, answer.sealed, answer.tag) == answer.text
    return "valid, equal"


def report(capsys: pytest.CaptureFixture[str], title: str, counts: Counter[str]) -> None:
    line = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    with capsys.disabled():
        print(f"\n{title}: {line}", end=" ")
