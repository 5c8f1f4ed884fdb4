"""Known-answer tests of third parties (Wycheproof, NIST, RFCs) run through the C suites.

A vector whose key, nonce or tag form is in no suite must raise an exception. Such vectors are
counted by the reason.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass

import pytest

from srdma.keyex.policy import tag_sizes
from tests.native import bindings

ROWS = {row["name"]: row for row in bindings.suites()}


def providers() -> list[bindings.Provider | None]:
    """Returns OpenSSL and the other providers of this build and CPU."""
    found: list[bindings.Provider | None] = [None]
    for name in ("ipsec-mb", "nettle"):
        with contextlib.suppress(ValueError, OSError):
            found.append(bindings.Provider(name))
    return found


PROVIDERS = providers()


@dataclass(frozen=True)
class Answer:
    suite: str
    key: bytes
    nonce: bytes
    ad: bytes
    text: bytes
    sealed: bytes  # for a MAC: the text
    tag: bytes
    valid: bool


def unsupported(answer: Answer) -> str | None:
    """Returns why no suite of the table has the form of this vector, or None.
    Uses the table alone."""
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


def check(answer: Answer) -> str:
    """Checks C against one vector with each provider. Returns the category
    under which it is counted."""
    (found,) = {check_by(provider, answer) for provider in PROVIDERS}
    return found


def check_by(provider: bindings.Provider | None, answer: Answer) -> str:
    def keyed() -> bindings.Suite:
        return bindings.Suite(answer.suite, answer.key, len(answer.tag), provider)

    reason = unsupported(answer)
    if reason:
        with pytest.raises(ValueError):
            keyed().seal(answer.nonce, answer.ad, answer.text)
        return f"refused: {reason}"
    suite = keyed()
    sealed = suite.seal(answer.nonce, answer.ad, answer.text)
    if not answer.valid:
        assert sealed != (answer.sealed, answer.tag)
        with pytest.raises(bindings.RefusedError, match="tag"):
            suite.open(answer.nonce, answer.ad, answer.sealed, answer.tag)
        return "invalid, found so"
    assert sealed == (answer.sealed, answer.tag)
    assert suite.open(answer.nonce, answer.ad, answer.sealed, answer.tag) == answer.text
    return "valid, equal"


def report(capsys: pytest.CaptureFixture[str], title: str, counts: Counter[str]) -> None:
    line = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    with capsys.disabled():
        print(f"\n{title}: {line}", end=" ")
