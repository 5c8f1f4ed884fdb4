# cython: language_level=3, embedsignature=True
"""The table of suites (csrc/crypto/suite.h)."""

from srdma.native.csrc cimport *


cdef dict row(const srdma_suite *s):
    return {
        "id": s.id, "name": s.name.decode(), "key_len": s.key_len, "iv_len": s.iv_len,
        "tag_len": s.tag_len, "tag_min": s.tag_min, "packets": s.packets,
        "forgeries": s.forgeries, "recommended": bool(s.recommended),
        "levels": tuple(level for level in range(4) if s.levels >> level & 1),
    }


def suites():
    """The suites of protocol.md 3.3, one dictionary per row; lengths in bytes."""
    found, i = [], 0
    while srdma_suite_at(i) != NULL:
        found.append(row(srdma_suite_at(i)))
        i += 1
    return found


def selftest(str name):
    """True if a suite passes its known-answer test in OpenSSL. ValueError for an unknown name."""
    cdef const srdma_suite *found = srdma_suite_by_name(name.encode())
    if found == NULL:
        raise ValueError(f"unknown suite {name!r}")
    return srdma_suite_selftest(found, NULL) == 0
