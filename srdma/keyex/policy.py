"""The policy of an end: permitted suites and permitted identities of peers.

The properties of suites come from the table in C (srdma.native.suites); this module repeats none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from srdma.keyex.fields import ExchangeError
from srdma.keyex.offers import LEVELS, UNPROTECTED, Suite, level_name
from srdma.native.suites import suites
from srdma.uri import matches

if TYPE_CHECKING:
    from srdma.native.suites import SuiteRow

TAG_SIZES = (12, 16, 20, 28, 32, 48, 64)  # protocol.md 2.1


@cache
def _rows() -> dict[int, SuiteRow]:
    return {row["id"]: row for row in suites()}


def suite_named(name: str, level: str | None = None, tag_len: int | None = None) -> Suite:
    """The suite of this name. Defaults: its highest level, its longest tag (in bytes).

    Raises ExchangeError (`suite`) if the suite does not exist or lacks the level or tag length.
    """
    if name == "none":
        return UNPROTECTED
    row = next((r for r in _rows().values() if r["name"] == name), None)
    if row is None:
        names = ", ".join(r["name"] for r in _rows().values())
        raise ExchangeError("suite", f"unknown suite {name!r}: give one of {names}")
    if level is not None and level not in LEVELS:
        raise ExchangeError("suite", f"unknown level {level!r}: give one of {', '.join(LEVELS)}")
    number = max(row["levels"]) if level is None else LEVELS[level]
    suite = Suite(row["id"], number, row["tag_len"] if tag_len is None else tag_len)
    check_suite(suite)
    return suite


# RFC 5042 R5.1.3-1
def check_suite(suite: Suite) -> None:
    """Raise ExchangeError (`suite`) for a combination that this version does not support."""
    if suite == UNPROTECTED:
        return
    row = _rows().get(suite.id)
    if row is None:
        known = ", ".join(f"{r['id']} {r['name']}" for r in _rows().values())
        raise ExchangeError("suite", f"unknown suite id {suite.id}: give one of {known}")
    if suite.level not in row["levels"]:
        levels = " or ".join(str(n) for n in row["levels"])
        raise ExchangeError(
            "suite", f"{row['name']} does not support level {suite.level}: give {levels}"
        )
    if suite.tag_len not in tag_sizes(row):
        raise ExchangeError(
            "suite",
            f"{row['name']} does not support a tag of {suite.tag_len} bytes: give one of "
            f"{tag_sizes(row)}",
        )


def tag_sizes(row: SuiteRow) -> list[int]:
    """The tag lengths of a suite, in bytes."""
    return [n for n in TAG_SIZES if row["tag_min"] <= n <= row["tag_len"]]


def recommended(level: int) -> list[str]:
    """Names of the suites of this level that `auto` may select by speed alone."""
    return [r["name"] for r in _rows().values() if r["recommended"] and level in r["levels"]]


def secret_size(suite: Suite) -> int:
    """Size of the secret of one direction, in bytes (protocol.md 3.2); 0 for `none`."""
    if suite == UNPROTECTED:
        return 0
    return 16 if _rows()[suite.id]["key_len"] <= 16 else 32


def describe(suite: Suite) -> str:
    """The suite as text: name, level and tag length in bits."""
    if suite == UNPROTECTED:
        return "none (NOT protected)"
    name = _rows()[suite.id]["name"]
    return f"{name}, level {level_name(suite.level)}, {8 * suite.tag_len} bit tag"


def check_identity(identity: str, allowed: Sequence[str]) -> None:
    """Raise ExchangeError (`identity`) for a peer that no pattern matches. Without patterns every
    identity of the CA is permitted."""
    if allowed and not any(matches(identity, pattern) for pattern in allowed):
        raise ExchangeError(
            "identity",
            f"the peer is {identity}, which is not allowed: allowed are {', '.join(allowed)}",
            told=f"this is {identity}, which is not allowed",  # does not reveal the patterns
        )
