"""One self-contained HTML page with all figures and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

STYLE = """
:root { --ink: #22262c; --soft: #5d6570; --line: #dde1e6; --tint: #f5f7f9; --mark: #0072b2; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, "DejaVu Sans", sans-serif; color: var(--ink);
  max-width: 72rem; margin: 0 auto; padding: 2.5rem 1.25rem 5rem; background: #fff; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.25rem; margin: 0 0 .6rem; }
p { margin: .4rem 0; max-width: 46rem; }
nav { margin: 1.4rem 0; }
nav a { display: inline-block; margin: 0 .9rem .3rem 0; }
a { color: var(--mark); text-decoration: none; }
a:hover { text-decoration: underline; }
section { border-top: 1px solid var(--line); padding: 2rem 0 1.2rem; }
figure { margin: 1.2rem 0; overflow-x: auto; }
figure svg { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .5rem; max-width: 46rem; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1rem; }
.box { background: var(--tint); border-radius: 6px; padding: .8rem 1rem; }
.box b { display: block; font-size: .78rem; letter-spacing: .05em; text-transform: uppercase;
  color: var(--soft); }
ul { margin: .3rem 0; padding-left: 1.2rem; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 600; }
code { font: .88rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; background: var(--tint);
  padding: .1rem .3rem; border-radius: 3px; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class Grid:
    """A table: the first column is aligned left, the others right."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A figure or table of the paper, and its values measured here."""

    name: str  # also the anchor, and the stem of its files
    title: str
    paper: str  # statements of the paper
    here: Sequence[str]  # sentences about the measured values
    caption: str
    picture: bytes | None = None  # SVG
    grid: Grid | None = None
    files: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    title: str
    lead: str
    facts: Mapping[str, Any]
    command: str
    sections: Sequence[Section]

    def html(self) -> str:
        links = (f'<a href="#{s.name}">{escape(s.title.split(":")[0])}</a>' for s in self.sections)
        facts = Grid(("environment", ""), [(k.replace("_", " "), str(v))
                                              for k, v in self.facts.items()])  # fmt: skip
        return "\n".join(
            [
                '<!doctype html><html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{escape(self.title)}</title><style>{STYLE}</style></head><body>",
                f"<h1>{escape(self.title)}</h1><p>{escape(self.lead)}</p>",
                f"<p>Made by <code>{escape(self.command)}</code></p>",
                f"<nav>{''.join(links)}</nav>{_grid(facts)}",
                *(_section(section) for section in self.sections),
                "</body></html>\n",
            ]
        )


def _section(section: Section) -> str:
    parts = [f'<section id="{section.name}"><h2>{escape(section.title)}</h2>']
    parts += [
        '<div class="two"><div class="box"><b>The paper</b>', f"<p>{escape(section.paper)}</p>",
        '</div><div class="box"><b>Here</b>', _items(section.here), "</div></div>",
    ]  # fmt: skip
    if section.picture is not None or section.grid is not None:
        shown = inline(section.picture, section.name) if section.picture is not None else ""
        table = _grid(section.grid) if section.grid is not None else ""
        files = ", ".join(f'<a href="{escape(name)}">{escape(name)}</a>' for name in section.files)
        caption = f"{escape(section.caption)} {files}".strip()
        parts.append(f"<figure>{shown}{table}<figcaption>{caption}</figcaption></figure>")
    return "".join([*parts, "</section>"])


def _items(texts: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def _grid(grid: Grid) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in grid.heads)
    rows = (f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in grid.rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def inline(svg: bytes, name: str) -> str:
    """The <svg> element alone, with ids made unique by `name`: a page has several."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'((?:xlink:)?href="|url\()#', rf"\1#{name}-", text)
    return re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
