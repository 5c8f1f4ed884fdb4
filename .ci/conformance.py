"""Compares docs/rfc5042.md with the tags of code and tests: `python .ci/conformance.py [ROOT]`.

A tag is a comment `RFC 5042 ID, ID` or `review ID` (docs/style.md). Each row that is met needs the
files that it names, with its tag; a row that is not met needs a reason. Prints each fault; exit
code 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PAGE, SECURITY = "docs/rfc5042.md", "docs/security.md"
CODE = ("csrc/", "offload/", "host/", "control/", "include/", "srdma/")
TESTS = ("tests/",)
SUFFIXES = {".c", ".h", ".py", ".pyx"}
STATES = ("met", "met in part", "not met", "not applicable")
MUST = ("MUST", "MUST NOT")
ROW = re.compile(r"`([\w.-]+)` ([^,:]+), ([^:]+): (.*)")
ITEM = re.compile(r"`(A\d+)` weakness: (.*)")
ID = r"[RAX][\w.-]*\w"
TAG = re.compile(rf"\b(RFC 5042|review) ({ID}(?:, {ID})*)")
IS_COMMENT = re.compile(r"\s*(/\*|\*|//|#)")


@dataclass
class Row:
    """A requirement or attack; level "" for a review item."""

    id: str
    level: str
    state: str
    text: str
    code: set[str] = field(default_factory=set)
    tests: set[str] = field(default_factory=set)

    @property
    def kind(self) -> str:
        return "RFC 5042" if self.level else "review"


def entries(text: str) -> Iterator[str]:
    """The list entries of the page, each on one line."""
    for block in re.split(r"\n(?=\* |\n|#)", text):
        if block.startswith("* `"):
            yield " ".join(block[2:].split())


def rows_of(text: str) -> Iterator[Row]:
    for entry in entries(text):
        if found := ITEM.fullmatch(entry):
            row = Row(found[1], "", "", found[2])
        elif found := ROW.fullmatch(entry):
            row = Row(*found.groups())
        else:
            row = Row(entry.split("`")[1], "?", "?", entry)
        for name in re.findall(r"`([\w./-]+/[\w./-]+)`", row.text):
            (row.tests if name.startswith(TESTS) else row.code).add(name)
        yield row


def tags_of(root: Path) -> dict[tuple[str, str], set[str]]:
    """The files of each tag, by kind and id."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in files_of(root):
        for line in (root / path).read_text(errors="replace").splitlines():
            for kind, ids in TAG.findall(line) if IS_COMMENT.match(line) else ():
                for one in ids.split(", "):
                    found.setdefault((kind, one), set()).add(path)
    return found


def files_of(root: Path) -> list[str]:
    paths = (path for top in (*CODE, *TESTS) for path in (root / top).rglob("*"))
    return sorted(str(p.relative_to(root)) for p in paths if p.suffix in SUFFIXES)


def faults(root: Path) -> Iterator[str]:
    text = (root / PAGE).read_text()
    rows, tags = list(rows_of(text)), tags_of(root)
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if (row.kind, row.id) in seen:
            yield f"{row.id}: two rows"
        seen.add((row.kind, row.id))
        yield from missing_files(root, row, tags.get((row.kind, row.id), set()))
        yield from (judge_row if row.level else judge_item)(root, row)
    for (kind, one), paths in sorted(tags.items()):
        if (kind, one) not in seen:
            yield f"{min(paths)}: the tag {kind} {one} names no row of {PAGE}"
    if not any(row.level in MUST for row in rows):
        yield f"{PAGE}: no row with a MUST"


def missing_files(root: Path, row: Row, tagged: set[str]) -> Iterator[str]:
    for name in sorted(row.code | row.tests):
        if not (root / name).is_file():
            yield f"{row.id}: {name} does not exist"
        elif name not in tagged:
            yield f"{row.id}: {name} has no tag {row.kind} {row.id}"


def judge_row(_: Path, row: Row) -> Iterator[str]:
    if row.state not in STATES:
        yield f"{row.id}: the state {row.state!r} is none of {', '.join(STATES)}"
    if row.state != "met" and not re.search(r"Reason: \S", row.text):
        yield f"{row.id}: {row.state} without a reason"
    if row.state in ("met", "met in part"):
        if not row.tests:
            yield f"{row.id}: no test"
        if not row.code:
            yield f"{row.id}: no code"


def judge_item(root: Path, row: Row) -> Iterator[str]:
    paragraph = re.search(r"Not stopped: \[security\.md\]\(security\.md\), \*([^*]+)\*", row.text)
    if paragraph and f"**{paragraph[1]}.**" not in (root / SECURITY).read_text():
        yield f"{row.id}: {SECURITY} has no paragraph **{paragraph[1]}.**"
    if not paragraph and not row.tests:
        yield f"{row.id}: neither a test nor a paragraph of {SECURITY}"


def main(root: Path) -> int:
    found = list(faults(root))
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
