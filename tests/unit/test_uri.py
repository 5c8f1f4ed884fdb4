"""The grammar of identities and of patterns (SPIFFE-ID standard 2; RFC 3986 for other schemes)."""

from __future__ import annotations

import pytest

import srdma
from srdma.agent.settings import Identity
from srdma.keyex.fields import ExchangeError
from srdma.options import Options
from srdma.uri import IDENTITY_MAX, check, check_pattern, matches

GOOD = [
    "spiffe://example.org/host-a",
    "spiffe://example.org/ns/prod/sa/Api_1.v2",
    "spiffe://a_b-c.1/...",
    "spiffe://x/.a",
    "spiffe://d/" + "x" * (IDENTITY_MAX - 11),
    "https://example.org:8443/a//b/../c;d=1@e",
    "urn+x://[2001:db8::1]/a%20b",
    "https://example.org",
]
BAD = [
    ("", "scheme"),
    ("host-a", "scheme"),
    ("spiffe:host-a", "scheme"),
    ("//example.org/a", "scheme"),
    ("1x://example.org/a", "scheme"),
    ("SPIFFE://example.org/a", "in lower case"),
    ("spiffe://", "no trust domain"),
    ("spiffe:///a", "no trust domain"),
    ("spiffe://Example.org/a", "no trust domain"),
    ("spiffe://me@example.org/a", "no trust domain"),
    ("spiffe://example.org:443/a", "no trust domain"),
    ("spiffe://ex%61mple.org/a", "no trust domain"),
    ("spiffe://[::1]/a", "no trust domain"),
    ("spiffe://ä.org/a", "no trust domain"),
    ("spiffe://example.org", "has a path"),
    ("spiffe://example.org/", "segment ''"),
    ("spiffe://example.org/a/", "segment ''"),
    ("spiffe://example.org/a//b", "segment ''"),
    ("spiffe://example.org/./a", r"segment '\.'"),
    ("spiffe://example.org/a/..", r"segment '\.\.'"),
    ("spiffe://example.org/%61", "segment '%61'"),
    ("spiffe://example.org/a b", "segment 'a b'"),
    ("spiffe://example.org/a\n", "segment"),
    ("spiffe://example.org/ä", "segment"),
    ("spiffe://example.org/a*", "segment"),
    ("spiffe://example.org/a?b", "query or a fragment"),
    ("spiffe://example.org/a#b", "query or a fragment"),
    ("spiffe://d/" + "x" * (IDENTITY_MAX - 10), "more than 255 bytes"),
    ("https://me@example.org/a", "a user"),
    ("https://example.org:port/a", "no host"),
    ("https:///a", "no host"),
    ("https://[::1/a", "no host"),
    ("https://example.org/a b", "RFC 3986"),
    ("https://example.org/%6", "RFC 3986"),
    ("https://example.org/a?b", "query or a fragment"),
    ("https://example.org/\ud800", "RFC 3986"),
]


@pytest.mark.parametrize("uri", GOOD)
def test_identity(uri: str) -> None:
    check(uri)
    check_pattern(uri)
    assert matches(uri, uri)


@pytest.mark.parametrize(("uri", "fault"), BAD)
def test_fault_of_a_uri_is_named(uri: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        check(uri)
    if not uri.endswith("*"):
        with pytest.raises(ValueError, match=fault):
            check_pattern(uri)


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("*", "scheme"),
        ("*://example.org/a", "in the path only|scheme"),
        ("spiffe://*/a", "in the path only"),
        ("spiffe://*.example.org/a", "in the path only"),
        ("https://example.org:*/a", "in the path only"),
        ("https://*@example.org/a", "in the path only"),
        ("spiffe://example.org*", "in the path only"),
        ("https://example.org/a?*", "query"),
        ("spiffe://example.org/*/../a", r"segment '\.\.'"),
        ("spiffe://example.org/[a-z]", "segment"),
    ],
)
def test_star_stands_in_the_path_only(pattern: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        check_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "uri", "fits"),
    [
        ("spiffe://x/*", "spiffe://x/a", True),
        ("spiffe://x/*", "spiffe://x/a/b", False),
        ("spiffe://x/a*/*b", "spiffe://x/a/b", True),
        ("spiffe://x/*", "spiffe://xx/a", False),
        ("spiffe://x.y/a", "spiffe://xzy/a", False),
    ],
)
def test_matching(pattern: str, uri: str, fits: bool) -> None:
    check_pattern(pattern)
    assert matches(uri, pattern) is fits


def test_programs_and_agents_refuse_other_patterns() -> None:
    """A program is told when it makes its options; an agent checks what programs send."""
    for peer in ("spiffe://*/a", ["spiffe://x/a", "host-a"]):
        with pytest.raises(srdma.LocalError, match="is no pattern of identities: "):
            Options(identity="x", peer=peer)
        with pytest.raises(ExchangeError, match="is no pattern of identities: ") as e:
            Identity.patterns([peer] if isinstance(peer, str) else peer)
        assert e.value.code == "config"


def test_many_stars_take_linear_time() -> None:
    """A pattern with k stars that does not match would take len ** k steps by backtracking."""
    assert not matches("spiffe://test/sa/web-frontend", "spiffe://test/sa/" + "*" * 200 + "Q")
    assert matches("spiffe://test/sa/web-frontend", "spiffe://test/sa/" + "*" * 200)


@pytest.mark.parametrize(
    ("text", "pattern", "want"),
    [
        ("ab", "a*b", True), ("aab", "a*ab", True), ("a", "a*a", False), ("aba", "*b*", True),
        ("abcabc", "a*c*c", True), ("abc", "a*c*c", False), ("", "*", True), ("abab", "*ab", True),
        ("axbyc", "a*b*c", True), ("acb", "a*b*c", False),
    ],
)  # fmt: skip
def test_stars_in_a_segment(text: str, pattern: str, want: bool) -> None:
    assert matches(f"x://h/{text}", f"x://h/{pattern}") is want
