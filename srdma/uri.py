"""The grammar of identities, and of patterns for them.

An identity is a URI with an authority. One with the scheme `spiffe` is a SPIFFE ID (SPIFFE-ID
standard, section 2): `spiffe://` trust domain `/` segments. Identities are compared byte by byte,
so that a URI in another spelling is another identity.
"""

from __future__ import annotations

import re

IDENTITY_MAX = 255  # bytes; KEYS has a field of 256 bytes with a final zero
SPIFFE = "spiffe"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_TRUST_DOMAIN = re.compile(r"[a-z0-9._-]+")
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
# RFC 3986: unreserved, sub-delims and escapes; the parts may have more characters.
_PLAIN = r"[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}"
_HOST = re.compile(rf"(?:(?:{_PLAIN})+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?")
_PATH = re.compile(rf"(?:/(?:{_PLAIN}|[:@])*)*")


def check(uri: str) -> None:
    """Raise ValueError, with the fault as text, unless the URI can be an identity."""
    if len(uri.encode(errors="replace")) > IDENTITY_MAX:
        raise ValueError(f"it has more than {IDENTITY_MAX} bytes")
    scheme, authority, path = _split(uri)
    if scheme.lower() == SPIFFE:
        _check_spiffe(scheme, authority, path)
        return
    if "@" in authority:
        raise ValueError("its authority has a user before an @")
    if not _HOST.fullmatch(authority):
        raise ValueError(f"{authority!r} is no host, nor a host and a port")
    if not _PATH.fullmatch(path):
        raise ValueError(f"its path {path!r} has characters that RFC 3986 does not permit there")


def check_pattern(pattern: str) -> None:
    """Raise ValueError unless the pattern is an identity with any number of `*` in its path.

    `*` stands for any characters of one segment of the path, see matches().
    """
    if "*" in pattern:
        _, _, path = _split(pattern)
        if "*" in pattern.removesuffix(path):
            raise ValueError("* may stand in the path only, behind the host or trust domain")
    check(pattern.replace("*", "x"))


def matches(uri: str, pattern: str) -> bool:
    """`*` matches any characters of one segment, never `/`; every other character is literal."""
    have, want = uri.split("/"), pattern.split("/")
    return len(have) == len(want) and all(map(_segment_matches, have, want))


def _segment_matches(text: str, pattern: str) -> bool:
    """The time is linear in both lengths, whatever number of `*` a program gives."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _split(uri: str) -> tuple[str, str, str]:
    """Scheme, authority and path of a URI without query and fragment. Raises ValueError."""
    scheme, colon, rest = uri.partition("://")
    if not colon or not _SCHEME.fullmatch(scheme):
        raise ValueError("it does not begin with a scheme and ://")
    if "?" in rest or "#" in rest:
        raise ValueError("it has a query or a fragment")
    authority, slash, path = rest.partition("/")
    return scheme, authority, slash + path


def _check_spiffe(scheme: str, domain: str, path: str) -> None:
    if scheme != SPIFFE:
        raise ValueError(f"the scheme of a SPIFFE ID is {SPIFFE!r}, in lower case")
    if not _TRUST_DOMAIN.fullmatch(domain):
        raise ValueError(
            f"{domain!r} is no trust domain: it consists of a-z, 0-9, dots, hyphens and "
            "underscores, without a user and a port"
        )
    if not path:
        raise ValueError("a SPIFFE ID of a peer has a path behind the trust domain")
    for segment in path[1:].split("/"):
        if segment in ("", ".", "..") or not _SEGMENT.fullmatch(segment):
            raise ValueError(
                f"its path has the segment {segment!r}: a segment consists of letters, digits, "
                "dots, hyphens and underscores, and is not empty, '.' or '..'"
            )
