"""What an end allows: suites and peers' identities.

The facts about suites are the C table's (srdma.native.suites); this module repeats none of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from srdma.keyex.messages import LEVELS, UNPROTECTED, ExchangeError, Suite
from srdma.native.suites import suites

if TYPE_CHECKING:
    from srdma.native.suites import SuiteRow

TAG_SIZES = (12, 16, 20, 28, 32, 48, 64)  # protocol.md 2.1


@cache
def _rows() -> dict[int, SuiteRow]:
    return {row["id"]: row for row in suites()}


def suite_named(name: str, level: str | None = None, tag_len: int | None = None) -> Suite:
    """The suite of this name, at its highest level and with its own tag where none is named."""
    if name == "none":
        return UNPROTECTED
    row = next((r for r in _rows().values() if r["name"] == name), None)
    if row is None:
        names = ", ".join(r["name"] for r in _rows().values())
        raise ExchangeError("suite", f"unknown suite {name!r}: this version has {names}")
    if level is not None and level not in LEVELS:
        raise ExchangeError("suite", f"unknown level {level!r}: there are {', '.join(LEVELS)}")
    number = max(row["levels"]) if level is None else LEVELS[level]
    suite = Suite(row["id"], number, row["tag_len"] if tag_len is None else tag_len)
    check_suite(suite)
    return suite


def check_suite(suite: Suite) -> None:
    """Refuse what this version does not have, saying what it has."""
    if suite == UNPROTECTED:
        return
    row = _rows().get(suite.id)
    if row is None:
        known = ", ".join(f"{r['id']} {r['name']}" for r in _rows().values())
        raise ExchangeError("suite", f"unknown suite id {suite.id}: this version has {known}")
    if suite.level not in row["levels"]:
        levels = " or ".join(str(n) for n in row["levels"])
        raise ExchangeError("suite", f"{row['name']} at level {suite.level}: it has {levels}")
    if suite.tag_len not in tag_sizes(row):
        raise ExchangeError(
            "suite", f"{row['name']} with a tag of {suite.tag_len} bytes: it takes {tag_sizes(row)}"
        )


def tag_sizes(row: SuiteRow) -> list[int]:
    """Bytes of the tags that a suite may be used with."""
    return [n for n in TAG_SIZES if row["tag_min"] <= n <= row["tag_len"]]


def recommended(level: int) -> list[str]:
    """Suites of this level that may be picked by speed alone (`auto`)."""
    return [r["name"] for r in _rows().values() if r["recommended"] and level in r["levels"]]


def secret_size(suite: Suite) -> int:
    """Bytes of a direction's secret (protocol.md 3.2); 0 for `none`."""
    if suite == UNPROTECTED:
        return 0
    return 16 if _rows()[suite.id]["key_len"] <= 16 else 32


def describe(suite: Suite) -> str:
    """The suite for people: name, level and tag."""
    if suite == UNPROTECTED:
        return "none (NOT protected)"
    level = next(name for name, number in LEVELS.items() if number == suite.level)
    return f"{_rows()[suite.id]['name']}, level {level}, {8 * suite.tag_len} bit tag"


def check_identity(identity: str, allowed: Sequence[str]) -> None:
    """Refuse a peer that no pattern names; without patterns everybody of the CA may come."""
    if allowed and not any(_matches(identity, pattern) for pattern in allowed):
        raise ExchangeError(
            "identity",
            f"the peer is {identity}, which is not allowed: only {', '.join(allowed)}",
            told=f"this is {identity}, which is not allowed",  # who is, is not its business
        )


def _matches(identity: str, pattern: str) -> bool:
    """`*` stands for any characters but `/`, of one segment; all else for itself."""
    return bool(re.fullmatch("[^/]*".join(map(re.escape, pattern.split("*"))), identity))
