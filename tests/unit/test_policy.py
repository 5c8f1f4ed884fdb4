"""The policy of an end: suites by name, identities by pattern."""

from __future__ import annotations

import pytest

from srdma.keyex.fields import ExchangeError
from srdma.keyex.offers import UNPROTECTED, Suite
from srdma.keyex.policy import (
    check_identity,
    check_suite,
    describe,
    recommended,
    secret_size,
    suite_named,
)


@pytest.mark.parametrize(
    ("args", "suite", "secret"),
    [
        (("aes-128-gcm",), (0x01, 3, 16), 16),
        (("aes-256-gcm",), (0x03, 3, 16), 32),
        (("chacha20-poly1305",), (0x07, 3, 16), 32),
        (("hmac-sha256",), (0x12, 2, 32), 32),
        (("aes-128-cmac", "header"), (0x20, 1, 16), 16),
        (("aes-128-cmac", "packet", 12), (0x20, 2, 12), 16),
        (("aes-128-gmac", "packet"), (0x30, 2, 16), 16),
        (("aes-192-ocb",), (0x05, 3, 16), 32),
        (("hmac-sha1", "packet"), (0x10, 2, 20), 32),
        (("hmac-sha3-512", "header", 48), (0x18, 1, 48), 32),
        (("poly1305",), (0x38, 2, 16), 32),
        (("none",), (0, 0, 0), 0),
    ],
)
def test_suite_named(args: tuple, suite: tuple, secret: int) -> None:
    assert suite_named(*args) == suite
    assert secret_size(Suite(*suite)) == secret


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("des",), "unknown suite 'des': give one of aes-128-gcm, "),
        (("aes-128-gcm", "packet"), "aes-128-gcm does not support level 2: give 3"),
        (("aes-128-cmac", "aead"), "aes-128-cmac does not support level 3: give 1 or 2"),
        (("aes-128-cmac", "both"), "unknown level 'both': give one of none, header"),
        (("aes-128-gcm", "aead", 12), r"tag of 12 bytes: give one of \[16\]"),
        (("hmac-sha256", "packet", 13), r"tag of 13 bytes: give one of \[12, 16, 20, 28, 32\]"),
    ],
)
def test_error_for_an_unknown_suite_lists_the_known(args: tuple, text: str) -> None:
    with pytest.raises(ExchangeError, match=text):
        suite_named(*args)


def test_unknown_id() -> None:
    with pytest.raises(ExchangeError, match="unknown suite id 8: give one of 1 aes-128-gcm"):
        check_suite(Suite(8, 3, 16))


def test_recommended() -> None:
    """SHA-1, and suites that exist for comparison only, are not recommended."""
    aead = ["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"]
    gmac = ["aes-128-gmac", "aes-256-gmac", "poly1305"]
    assert recommended(3) == aead
    assert (
        recommended(2) == recommended(1) == ["hmac-sha256", "aes-128-cmac", "aes-256-cmac", *gmac]
    )
    assert recommended(0) == []


def test_description() -> None:
    assert describe(suite_named("aes-128-gcm")) == "aes-128-gcm, level aead, 128 bit tag"
    assert "NOT protected" in describe(UNPROTECTED)


@pytest.mark.parametrize(
    ("allowed", "good"),
    [
        ([], True),
        (["spiffe://x/a"], True),
        (["spiffe://x/b", "spiffe://x/*"], True),
        (["spiffe://x/b"], False),
        (["spiffe://x/*a*"], True),
        ([""], False),
        (["spiffe://x/?"], False),
        (["spiffe://x/[a-z]"], False),
        (["spiffe://x/."], False),
        (["spiffe://x/a\n"], False),
        (["spiffe://X/A"], False),
        (["x/a"], False),
    ],
)
def test_identity(allowed: list[str], good: bool) -> None:
    if good:
        check_identity("spiffe://x/a", allowed)
        return
    with pytest.raises(ExchangeError, match="the peer is spiffe://x/a, which is not allowed"):
        check_identity("spiffe://x/a", allowed)


@pytest.mark.parametrize("pattern", ["spiffe://x/*", "spiffe://x/a*"])
def test_star_does_not_match_a_slash(pattern: str) -> None:
    with pytest.raises(ExchangeError):
        check_identity("spiffe://x/a/b", [pattern])
    check_identity("spiffe://x/a/b", ["spiffe://x/*/b"])
