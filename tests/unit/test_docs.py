"""The documents against the code and against themselves."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from srdma.native.leg import counter_names

DOCS = Path(__file__).parents[2] / "docs"
CITATION = re.compile(r"(protocol|local-interface)\.md\)? (\d+[a-z]?(?:\.\d+)?)")
OUTPUT = re.compile(r"<!-- output:begin -->.*?<!-- output:end -->", re.DOTALL)  # of a program
HEADING = re.compile(r"^#+ (\d+[a-z]?(?:\.\d+)?)\.? ", re.MULTILINE)


COUNTERS = counter_names()
UNUSED = COUNTERS.index("")  # the place before the refusals
REFUSED = [name for name in COUNTERS if name.startswith("refused_")]
FIRST_REASON = UNUSED + 1 + len(REFUSED)


def test_stats_are_in_the_order_of_the_table() -> None:
    text = (DOCS / "local-interface.md").read_text()
    section = text.partition("\n### 3.7 ")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section, re.MULTILINE)
    assert rows == [(str(i), name) for i, name in enumerate(COUNTERS[:UNUSED])]
    for row in (
        f"| {UNUSED} | | 0 |",
        f"| {UNUSED + 1}..{FIRST_REASON - 1} | `refused_` ",
        f"| {FIRST_REASON}..{len(COUNTERS) - 1} | `reason_` ",
        f" at {FIRST_REASON} + code |",
    ):
        assert row in text
    assert f"Today there are {len(COUNTERS)}." in " ".join(text.split())


def test_dropped_packets_are_in_the_order_of_stats() -> None:
    text = (DOCS / "protocol.md").read_text().partition("### 13.2 ")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert [f"refused_{name}" for name in rows] == REFUSED == COUNTERS[UNUSED + 1 : FIRST_REASON]


@pytest.mark.parametrize("page", sorted(p.name for p in DOCS.glob("*.md")))
def test_cited_sections_exist(page: str) -> None:
    headings = {
        f"{name}.md": set(HEADING.findall((DOCS / f"{name}.md").read_text()))
        for name in ("protocol", "local-interface")
    }
    for name, section in CITATION.findall((DOCS / page).read_text()):
        assert section in headings[f"{name}.md"], f"{name}.md {section}"


SOURCES = ("csrc", "include", "host", "examples", "offload", "srdma", "bench", "attack", "tests")
SECTION = r"\d+[a-z]?(?:\.\d+)?"
IN_SOURCES = re.compile(
    rf"(protocol|local-interface)\.md[\s*#]+({SECTION}(?:(?:,| and| to)[\s*#]+{SECTION})*)"
)


@pytest.mark.parametrize("folder", SOURCES)
def test_sections_cited_by_sources_exist(folder: str) -> None:
    headings = {
        name: set(HEADING.findall((DOCS / f"{name}.md").read_text()))
        for name in ("protocol", "local-interface")
    }
    absent = [
        f"{path}: {name}.md {section}"
        for path in sorted((DOCS.parent / folder).rglob("*"))
        if path.suffix in (".c", ".h", ".py", ".pyx", ".pxd", ".pyi")
        for name, sections in IN_SOURCES.findall(path.read_text())
        for section in re.findall(SECTION, sections)
        if section not in headings[name]
    ]
    assert absent == []


@pytest.mark.parametrize("page", sorted(p.name for p in DOCS.glob("*.md")))
def test_lines_have_at_most_120_characters(page: str) -> None:
    text = OUTPUT.sub("", (DOCS / page).read_text())
    assert [line for line in text.splitlines() if len(line) > 120] == []


NODE = re.compile(r"^\t+(\w+) \[label = \"([^\"]*)\"", re.MULTILINE)


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").glob("*.dot")), ids=lambda p: p.stem)
def test_picture_shows_its_text(picture: Path) -> None:
    """`make pictures` draws a picture again after its text has changed."""
    drawn = html.unescape(picture.with_suffix(".svg").read_text()).replace("\xa0", " ")
    nodes = NODE.findall(picture.read_text())
    assert nodes
    for name, label in nodes:
        assert f"<title>{name}</title>" in drawn
        assert [line for line in label.split("\\n") if f">{line}</text>" not in drawn] == []


def test_picture_of_folders_shows_the_layers() -> None:
    layers = (DOCS.parent / "csrc/layers.txt").read_text()
    folders = set(re.findall(r"^(\w+)(?:/srdma)?:", layers, re.MULTILINE))
    nodes = {name for name, _ in NODE.findall((DOCS / "pictures/folders.dot").read_text())}
    assert nodes == folders | {"srdma"}
