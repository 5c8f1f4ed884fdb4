"""Writes docs/worked-examples.md, its JSON and its C header:
`python -m tests.reference.make_examples`.

The text of the page is written by hand. Each fenced block whose first line is "```text NAME" is the
listing NAME, and is replaced in place.
"""

from __future__ import annotations

import re
from pathlib import Path

from . import worked
from .make_vectors import VECTORS, dump

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "worked-examples.md"
JSON = VECTORS / "worked-examples.json"
HEADER = next((ROOT / "tests" / "c").rglob("icrc_examples.h"))
BLOCK = re.compile(r"^```text ([a-z0-9-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def names(page: str) -> list[str]:
    return [match[1] for match in BLOCK.finditer(page)]


def in_page(page: str, listings: dict[str, str]) -> str:
    """The page with every block replaced. KeyError for a block that has no listing."""
    return BLOCK.sub(lambda match: f"```text {match[1]}\n{listings[match[1]]}```", page)


def main() -> None:
    found = worked.contents()
    JSON.write_text(dump(found))
    PAGE.write_text(in_page(PAGE.read_text(), worked.blocks(found)))
    HEADER.write_text(worked.header(found))


if __name__ == "__main__":
    main()
