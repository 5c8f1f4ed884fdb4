"""One style of plots: panels of lines with error bars or of bars, and the paper's values as marks.

A plot is drawn from `Point`s, the rows of the CSVs, as PNG and as SVG.
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import util
from typing import TYPE_CHECKING, Any

from srdma.errors import LocalError
from srdma_bench.series import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

KEYS = ("panel", "line", "x")  # unique key of a point in a figure
WIDTH, HEIGHT = 3.4, 2.7  # inches of a panel
LEGEND = 0.42  # inches of the legend
DPI = 130
BEYOND = 8  # values above BEYOND times the axis's median are outliers, not drawn to scale
BEHIND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4}  # box of a mark
GREY, INK = "#8a8f98", "#22262c"
# Palette of Okabe and Ito, distinguishable by colour-blind readers. Further lines are dashed.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5c00", "#9a86d8")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 8.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "svg.fonttype": "none",
    "svg.hashsalt": "srdma",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True)
class Point:
    """One measured value: a row of a figure's CSV. packets: sealed and verified in its runs."""

    panel: str
    line: str
    x: float
    median: float
    low: float
    high: float
    rounds: int
    packets: int = 0

    @property
    def spread(self) -> Spread:
        return Spread(self.median, self.low, self.high, self.rounds)


@dataclass(frozen=True)
class Mark:
    """A value of the paper: at x, or a line across the panel (x None). panel "": all panels."""

    text: str
    y: float
    x: float | None = None
    panel: str = ""


@dataclass(frozen=True)
class Figure:
    """The layout of a picture. Panels and lines have the order of `lines`, or of measurement.

    ticks: names of the positions 0, 1, ... on the x axis.
    """

    name: str
    title: str
    xlabel: str
    ylabel: str
    bars: bool = False
    logx: bool = False
    logy: bool = False
    columns: int = 3
    width: float = 1  # of a panel, in units of WIDTH
    shared: bool = True  # one y axis for the panels of a row
    ticks: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()  # baseline lines, drawn in INK and dashed
    marks: tuple[Mark, ...] = field(default=())


def check_library() -> None:
    """Raise LocalError without matplotlib; to be called before a measurement starts."""
    if util.find_spec("matplotlib") is None:
        raise LocalError("no matplotlib, which plots need: install it with .ci/setup bench")


def draw(figure: Figure, points: Iterable[Point]) -> dict[str, bytes]:
    """Draw the figure. Returns file name -> content, for PNG and SVG."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    have = list(points)
    panels = list(dict.fromkeys(point.panel for point in have))
    columns = min(figure.columns, len(panels))
    rows = -(-len(panels) // columns)
    files = {}
    with matplotlib.rc_context(STYLE):
        legend = LEGEND * (1 + len(_lines(figure, have)) // (2 * columns + 2))
        size = (WIDTH * figure.width * columns, HEIGHT * rows + legend)
        canvas = Canvas(figsize=size, dpi=DPI, layout="constrained")
        grid = canvas.subplots(
            rows, columns, squeeze=False, sharey="row" if figure.shared else False
        )
        for number, axes in enumerate(grid.flat):
            if number < len(panels):
                _panel(axes, figure, have, panels[number])
            else:
                axes.set_visible(False)
        if not figure.logy:  # after all panels that share an axis are drawn
            for row in range(rows):
                shown = panels[row * columns : (row + 1) * columns]
                for some in [shown] if figure.shared else [[panel] for panel in shown]:
                    _limit(figure, have, {p: grid.flat[panels.index(p)] for p in some})
        _legend(canvas, figure, have)
        for kind in ("png", "svg"):
            out = io.BytesIO()
            canvas.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
            files[f"{figure.name}.{kind}"] = out.getvalue()
    return files


def _lines(figure: Figure, points: Sequence[Point]) -> list[str]:
    """The lines in one order for all panels, so that a line has one colour."""
    measured = dict.fromkeys(point.line for point in points)
    return [*(line for line in figure.lines if line in measured),
            *(line for line in measured if line not in figure.lines)]  # fmt: skip


def _look(figure: Figure, points: Sequence[Point], line: str) -> dict[str, Any]:
    if line in figure.plain:
        return {"color": INK, "marker": "x", "linestyle": (0, (4, 2))}
    number = [name for name in _lines(figure, points) if name not in figure.plain].index(line)
    again = number // len(COLOURS)
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": ("-", (0, (1, 1)))[again % 2],
    }


def _panel(axes: Axes, figure: Figure, points: Sequence[Point], panel: str) -> None:
    here = [point for point in points if point.panel == panel]
    (_bars if figure.bars else _curves)(axes, figure, points, here)
    for mark in figure.marks:
        if mark.panel in ("", panel):
            _mark(axes, mark, figure)
    axes.set_title(panel)
    axes.set_xlabel(figure.xlabel)
    axes.set_ylabel(figure.ylabel)
    if figure.logy:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    if figure.ticks:
        axes.set_xticks(range(len(figure.ticks)), figure.ticks)
        axes.grid(visible=False, axis="x")


def _limit(figure: Figure, points: Sequence[Point], panels: dict[str, Axes]) -> None:
    """Let the y axis start at 0. Outliers (a busy machine) do not compress the other values."""
    here = [point for point in points if point.panel in panels]
    usual = BEYOND * statistics.median(point.median for point in here)
    top = None
    if max(point.high for point in here) > usual > 0:
        marks = [mark.y for mark in figure.marks if mark.panel in ("", *panels)]
        top = 1.15 * max(marks + [point.median for point in here if point.median <= usual])
    for panel, axes in panels.items():
        axes.set_ylim(0, top)
        beyond = sum(p.panel == panel and p.median > (top or p.median) for p in here)
        if beyond:
            axes.annotate(
                f"{beyond} above", (0.99, 0.97), xycoords="axes fraction", ha="right", va="top",
                fontsize=7, color=GREY, bbox=BEHIND,
            )  # fmt: skip


def _error(points: Sequence[Point]) -> list[list[float]]:
    return [[p.median - p.low for p in points], [p.high - p.median for p in points]]


def _curves(axes: Axes, figure: Figure, points: Sequence[Point], here: Sequence[Point]) -> None:
    for line in _lines(figure, here):
        own = sorted((p for p in here if p.line == line), key=lambda p: p.x)
        look = _look(figure, points, line)
        x, y = [p.x for p in own], [p.median for p in own]
        axes.errorbar(x, y, yerr=_error(own), capsize=2, elinewidth=0.8, label=line, **look)
    if figure.logx:
        axes.set_xscale("log", base=2)
    at = sorted({p.x for p in here})
    if not figure.ticks and len(at) <= 9:
        axes.set_xticks(at, [_short(x) for x in at])
        axes.xaxis.minorticks_off()
    elif not figure.ticks:
        axes.locator_params(axis="x", integer=True)


def _bars(axes: Axes, figure: Figure, points: Sequence[Point], here: Sequence[Point]) -> None:
    """Draw the bars of each x side by side, centred at x."""
    lines = _lines(figure, here)
    width = 0.84 / len([line for line in lines if line not in figure.plain])
    beside = {x: [line for line in lines if any(p.line == line and p.x == x for p in here)]
              for x in {p.x for p in here}}  # fmt: skip
    for line in lines:
        own = [p for p in here if p.line == line]
        at = [p.x + (beside[p.x].index(line) - (len(beside[p.x]) - 1) / 2) * width for p in own]
        colour = _look(figure, points, line)["color"]
        axes.bar(
            at, [p.median for p in own], width * 0.92, color=colour, label=line,
            yerr=_error(own), error_kw={"elinewidth": 0.8, "capsize": 1.5, "ecolor": INK},
        )  # fmt: skip


def _mark(axes: Axes, mark: Mark, figure: Figure) -> None:
    """Draw a star for a value of the paper at one x, else a line."""
    if mark.x is None:
        axes.axhline(mark.y, color=GREY, linewidth=1, linestyle=(0, (1, 1.5)))
        at: tuple[float, float] = (0.99, mark.y)
        axes.annotate(
            mark.text, at, xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=7, color=GREY, bbox=BEHIND, xytext=(0, 1), textcoords="offset points",
        )  # fmt: skip
        return
    axes.plot([mark.x], [mark.y], marker="*", markersize=9, color=GREY, linestyle="", zorder=5)
    low, high = axes.dataLim.intervalx
    right = mark.x > ((low * high) ** 0.5 if figure.logx else (low + high) / 2)
    axes.annotate(
        mark.text, (mark.x, mark.y), ha="right" if right else "left", va="bottom", fontsize=7,
        color=GREY, bbox=BEHIND, xytext=(-4 if right else 4, 4), textcoords="offset points",
    )  # fmt: skip


def _legend(canvas: Canvas, figure: Figure, points: Sequence[Point]) -> None:
    found: dict[str, Any] = {}
    for axes in canvas.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    order = [line for line in _lines(figure, points) if line in found]
    columns = max(2, round(canvas.get_size_inches()[0] / 1.6))
    canvas.legend([found[line] for line in order], order, loc="outside lower center", ncols=columns)


def _short(x: float) -> str:
    return f"{x / 1024:g}K" if x >= 1024 and x % 1024 == 0 else f"{x:g}"
