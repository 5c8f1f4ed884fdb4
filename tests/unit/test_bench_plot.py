"""Plots and the page: they show everything that was measured, and refer to nothing outside."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from srdma.errors import LocalError
from srdma_bench import plot
from srdma_bench.page import Grid, Page, Section, inline
from srdma_bench.plot import COLOURS, Figure, Mark, Point, draw

pytestmark = pytest.mark.slow

PNG = b"\x89PNG\r\n\x1a\n"


def points(panels=2, lines=3, xs=(1, 2, 4)):
    return [
        Point(f"panel {p}", f"line {n}", x, x * (n + 1), x * (n + 0.9), x * (n + 1.3), 5)
        for p in range(panels)
        for n in range(lines)
        for x in xs
    ]


def texts(svg: bytes) -> list[str]:
    root = ET.fromstring(svg)
    return ["".join(node.itertext()).strip() for node in root.iter() if node.tag.endswith("}text")]


@pytest.fixture
def drawn():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: run .ci/setup test")
    return draw


@pytest.mark.parametrize("bars", [False, True])
def test_everything_is_drawn(drawn, bars):
    ticks = ("a", "b", "c") if bars else ()
    marks = (Mark("the paper", 7.0), Mark("a star", 3.0, 2, "panel 1"))
    figure = Figure(
        "fig", "Title", "x here", "y here", bars=bars, ticks=ticks, marks=marks, plain=("line 0",)
    )
    files = drawn(figure, points(xs=(0, 1, 2)))
    assert set(files) == {"fig.png", "fig.svg"}
    assert files["fig.png"].startswith(PNG)
    said = texts(files["fig.svg"])
    for text in ("panel 0", "panel 1", "line 0", "line 1", "line 2", "x here", *ticks):
        assert text in said
    assert said.count("the paper") == 2 and said.count("a star") == 1


def test_same_input_gives_the_same_plot(drawn):
    figure = Figure("fig", "Title", "x", "y", logx=True, logy=True)
    assert drawn(figure, points())["fig.svg"] == drawn(figure, points())["fig.svg"]


def test_more_lines_than_colours(drawn):
    lines = len(COLOURS) + 3
    svg = drawn(Figure("fig", "Title", "x", "y"), points(panels=1, lines=lines))["fig.svg"]
    assert {f"line {n}" for n in range(lines)} <= {*texts(svg)}


def test_lines_in_the_order_of_the_figure(drawn):
    figure = Figure("fig", "Title", "x", "y", lines=("line 2", "absent", "line 0"))
    said = [text for text in texts(drawn(figure, points())["fig.svg"]) if text.startswith("line")]
    assert said == ["line 2", "line 0", "line 1"]


def test_outliers_do_not_stretch_the_axis(drawn):
    found = points(panels=1)
    far = [replace(p, median=5000.0, high=6000.0) for p in found[:2]]
    figure = Figure("fig", "Title", "x", "y", marks=(Mark("the paper", 20.0),))
    said = texts(drawn(figure, far + found[2:])["fig.svg"])
    assert "2 above" in said and "20" in said and "4000" not in said
    wide = [replace(found[0], high=6000.0)]
    said = texts(drawn(figure, wide + found[1:])["fig.svg"])
    assert "4000" not in said and not any("above" in text for text in said)


def test_incomplete_last_row_of_panels(drawn):
    said = texts(drawn(Figure("fig", "Title", "x", "y", columns=2), points(panels=3))["fig.svg"])
    assert [text for text in said if text.startswith("panel")] == [f"panel {n}" for n in range(3)]


def test_missing_library(monkeypatch):
    monkeypatch.setattr(plot.util, "find_spec", lambda name: None)
    with pytest.raises(LocalError, match=r"no matplotlib.*\.ci/setup bench"):
        plot.check_library()


# The page ----------------------------------------------------------------------------


SVG = b"""<?xml version="1.0"?><!DOCTYPE svg>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">
<metadata>who
made it</metadata><defs><path id="p1" d="M0 0"/></defs>
<use xlink:href="#p1" clip-path="url(#p1)"/></svg>"""


def test_ids_of_svgs_are_unique_on_a_page():
    one = inline(SVG, "fig1")
    assert one.startswith("<svg") and one.endswith("</svg>")
    assert 'id="fig1-p1"' in one and '"#fig1-p1"' in one and "url(#fig1-p1)" in one
    assert "made it" not in one
    ET.fromstring(one)


class Reader(HTMLParser):
    """Collects the open tags, external references, ids and words."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.words = ""

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [given[k] for k in ("href", "src", "xlink:href") if k in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag not in ("meta", "path", "use"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("path", "use"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def test_page_is_complete_and_valid():
    sections = [
        Section("fig1", "Figure 1: a < b", "The paper says <this>.", ["here & there"], "Caption.",
                SVG, files=["fig1.csv"]),
        Section("table1", "Table 1: sizes", "Paper.", [], "Caption.",
                grid=Grid(("mode", "bytes"), [("pd", "16")])),
    ]  # fmt: skip
    facts = {"cpu": "A <CPU>", "memory_gib": 4}
    text = Page("Title", "Lead.", facts, "srdma bench paper", sections).html()
    reader = Reader()
    reader.feed(text)
    assert reader.open == [] and len(set(reader.ids)) == len(reader.ids)
    local = {f"#{name}" for name in reader.ids} | {"fig1.csv"}
    assert {*reader.links} <= local
    for words in ("a < b", "says <this>", "here & there", "A <CPU>", "memory gib", "pd", "16",
                  "srdma bench paper", "Lead."):  # fmt: skip
        assert words in reader.words
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
