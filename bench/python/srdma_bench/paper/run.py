"""The paper's tables 2 and 3 and figures 2 and 5 to 11, measured here: runs, plots and page.

An item is a row of ITEMS. Loads (figures 6 to 10) are in `loads.py`, the key-value store (figure
11) in `kvs.py`, tables in `state.py`, and the texts of the page in `words.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from srdma_bench import primitives
from srdma_bench.device import Device
from srdma_bench.facts import facts_here
from srdma_bench.folder import Folder, Table
from srdma_bench.page import Grid, Page, Section
from srdma_bench.paper import state as paper_state
from srdma_bench.paper import words as paper_words
from srdma_bench.paper.kvs import KvsEffort, Stores
from srdma_bench.paper.loads import MACS, MIXES, MODES, NONE, Effort, Loads, Row
from srdma_bench.plot import KEYS, Figure, Mark, Point, draw
from srdma_bench.series import Spread, spread

NO_PROTECTION = "no protection"
LATENCY, THROUGHPUT = "latency (µs)", "throughput (thousand keys/s)"
FASTEST = "fastest provider"
PROVIDERS = {FASTEST: "", "openssl": "openssl"}
FIG5_SUITES = (
    "aes-128-cmac", "aes-192-cmac", "aes-256-cmac", "aes-128-gmac", "poly1305", "hmac-sha1",
    "hmac-sha256", "hmac-sha512",
)  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """The extent of a run."""

    name: str
    loads: Effort = field(default_factory=Effort)
    stores: KvsEffort = field(default_factory=KvsEffort)
    rounds: int = 7  # of primitives
    ms: int = 20  # CPU time of each primitive, ms
    blocks: Sequence[int] = (64, 128, 256, 512, 1024, 2048, 4096)
    depths: Sequence[int] = tuple(range(3, 19))


FULL = Scale("full")
QUICK = Scale(
    "quick",
    Effort(
        protections=(
            *(("header", suite) for suite in ("hmac-sha256", "aes-128-cmac", "aes-128-gmac")),
            *(("packet", suite) for suite in ("hmac-sha256", "aes-128-cmac", "poly1305")),
            ("aead", "aes-128-gcm"),
            ("aead", "chacha20-poly1305"),
        ),
        rounds=3, iterations=200, seconds=0.03, sizes=(16, 128, 1024, 4096), qps=(1, 4),
    ),
    KvsEffort(keys=1 << 17, rounds=3, seconds=0.05),
    rounds=3,
    ms=2,
)  # fmt: skip
SMOKE = Scale(
    "smoke",
    Effort(
        protections=(("header", "aes-128-cmac"), ("aead", "aes-128-gcm")),
        modes=(NONE, "basic", "pd+mem"),
        rounds=1, iterations=20, seconds=0.01, sizes=(32,), qps=(1,), mixes=(50,),
    ),
    KvsEffort(
        stores=(("aead", "aes-128-gcm"),), modes=(NONE, "basic"), keys=1 << 10, rounds=1,
        seconds=0.02,
    ),
    rounds=1,
    ms=1,
    blocks=(64,),
    depths=(3, 18),
)  # fmt: skip

Tell = Callable[[int, str], None]


class Run:
    """One run into a folder. tell: reports progress (steps done, text)."""

    def __init__(self, folder: Folder, scale: Scale, device: Device, tell: Tell) -> None:
        self.folder, self.scale, self.device, self.tell = folder, scale, device, tell
        self.loads = Loads(folder, scale.loads, device, tell)
        self.stores = Stores(folder, scale.stores, device, tell)

    def points(self, name: str) -> Table[Point]:
        return self.folder.table(name, Point, KEYS)

    def measure(self, names: Sequence[str]) -> None:
        if {"table2", "table3"} & {*names}:
            paper_state.measure(self.folder, self.tell)
        if "fig2" in names:
            self._fig2()
        if "fig5" in names:
            self._fig5()
        if {*self.loads.tables} & {*names}:
            self.loads.run(names)
        if "fig11" in names:
            self.stores.run()

    def steps(self, names: Sequence[str]) -> int:
        """The maximum number of steps that `tell` reports."""
        count = 13 if {"table2", "table3"} & {*names} else 0
        count += len(_threads()) * (
            ("fig2" in names) + ("fig5" in names) * len(PROVIDERS) * len(self.scale.blocks)
        )
        count += self.stores.total * ("fig11" in names)
        return count + (self.loads.total if {*self.loads.tables} & {*names} else 0)

    # Primitives ----------------------------------------------------------------------

    def _fig2(self) -> None:
        table = self.points("fig2")
        for threads in _threads():
            cells = {f"depth:{depth}": depth for depth in self.scale.depths}
            line = paper_words.plural(threads, "thread")
            missing = [what for what, x in cells.items()
                       if table.get(panel=THROUGHPUT, line=line, x=x) is None]  # fmt: skip
            for what, found in self._primitives(missing, threads).items():
                if threads == 1 and table.get(panel=LATENCY, line=line, x=cells[what]) is None:
                    _add(table, LATENCY, line, cells[what], [cell.ns / 1e3 for cell in found])
                rates = [cell.per_second / 1e3 for cell in found]
                _add(table, THROUGHPUT, line, cells[what], rates)
            self.tell(1, f"fig2: {line}")

    def _fig5(self) -> None:
        table = self.points("fig5")
        for threads in _threads():
            for provider, chosen in PROVIDERS.items():
                panel = f"{provider}, {paper_words.plural(threads, 'thread')}"
                for size in self.scale.blocks:
                    missing = [
                        f"{suite}:{size}"
                        for suite in FIG5_SUITES
                        if table.get(panel=panel, line=suite, x=size) is None
                    ]
                    for what, found in self._primitives(missing, threads, chosen).items():
                        values = [cell.per_second * size * 8 / 1e9 for cell in found]
                        _add(table, panel, what.split(":")[0], size, values)
                    self.tell(1, f"fig5: {panel}, {size} bytes")

    def _primitives(
        self, cells: Sequence[str], threads: int, provider: str = ""
    ) -> dict[str, list[primitives.Cell]]:
        found: dict[str, list[primitives.Cell]] = {cell: [] for cell in cells}
        for _ in range(self.scale.rounds if cells else 0):
            for cell in primitives.measure(
                cells, threads=threads, ms=self.scale.ms, provider=provider
            ):
                found[cell.what].append(cell)
        return found

    # Plots and page -------------------------------------------------------------------

    def publish(self, command: str) -> Page:
        """Write the plots and the page of all rows in the folder, also those of earlier runs."""
        sections = [section for name, item in ITEMS.items() if (section := item(self, name))]
        page = Page(
            "srdma: the paper's evaluation, measured here",
            "Each table and figure on performance or cost of “sRDMA: Efficient NIC-based "
            "Authentication and Encryption for Remote Direct Memory Access” (USENIX ATC 2020). "
            "Values are medians with quartiles of rounds that ran in turn; grey stars and dotted "
            "lines are values of the paper, from 8 ARM A72 cores and a link of 25 Gbit/s. In every "
            "run the named protection was in force, and the workers' counters of sealed and "
            "verified packets matched the run.",
            self.folder.facts,
            command,
            sections,
        )
        self.folder.write("index.html", page.html())
        return page

    def plot(self, figure: Figure, points: Sequence[Point]) -> tuple[bytes, list[str]]:
        """Draw a figure into the folder. Returns the SVG and the names of the files."""
        files = draw(figure, points)
        for name, data in files.items():
            self.folder.write(name, data)
        return files[f"{figure.name}.svg"], [*files, f"{figure.name}.csv"]


def _add(table: Table[Point], panel: str, line: str, x: float, values: Sequence[float]) -> None:
    s = spread(values)
    table.add(Point(panel, line, x, s.median, s.low, s.high, s.rounds))


def _threads() -> list[int]:
    """Numbers of threads: 1, 2, 4, ... up to the number of cores, at most 8."""
    cores = len(os.sched_getaffinity(0))
    return [1 << n for n in range(cores.bit_length()) if 1 << n <= min(cores, 8)]


MODE_TICKS = tuple(mode.replace(", ", ",\n") for mode in MODES)

# The items -------------------------------------------------------------------------

FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "fig2", "Figure 2: keys of memory ranges, by the depth of the tree",
            "depth of the tree", "", columns=2, shared=False,
            marks=(Mark("paper: 4 steps, 2 µs", 2.0, 4, LATENCY),),
        ),
        Figure(
            "fig5", "Figure 5: MACs of blocks, by suite and threads", "block (bytes)",
            "Gbit/s of CPU time", logx=True, logy=True, columns=2, lines=FIG5_SUITES,
            marks=(
                Mark("paper: AES", 8.0, 64, f"{FASTEST}, 1 thread"),
                Mark("paper: AES", 8.0, 64, "openssl, 1 thread"),
                Mark("paper's link: 20.6", 20.6),
            ),
        ),
        Figure(
            "fig6", "Figure 6: latency of header authentication, 32 bytes", "", "µs (median)",
            bars=True, columns=1, width=2.4, ticks=MODE_TICKS, lines=(NO_PROTECTION, *MACS),
            plain=(NO_PROTECTION,),
            marks=(
                Mark("paper: 9.55", 9.55, 0, "WRITE, half a round trip"),
                Mark("paper: 10.45", 10.45, 1, "WRITE, half a round trip"),
                Mark("paper: 18.2", 18.2, 0, "READ, full round trip"),
            ),
        ),
        Figure(
            "fig7", "Figure 7: latency of packet authentication and encryption", "payload (bytes)",
            "µs (median)", logx=True, columns=4, lines=(NO_PROTECTION, *MODES),
            plain=(NO_PROTECTION,),
            marks=tuple(
                Mark("paper: 15", 15.0, 2048, f"WRITE, packet: {suite}")
                for suite in ("hmac-sha256", "aes-128-cmac", "poly1305")
            ),
        ),
        Figure(
            "fig8", "Figure 8: goodput of WRITE, 2 KiB, 96 outstanding per QP",
            "QPs (one worker thread)", "Gbit/s", logx=True, columns=3, plain=(NO_PROTECTION,),
            lines=(NO_PROTECTION, *MACS),
            marks=(
                Mark("paper: no protection, 1 thread", 8.0, 1, "header, basic"),
                Mark("paper: no protection, 8 threads", 20.5, 8, "header, basic"),
                Mark("paper: AES, 8 threads", 19.6, 8, "packet, basic"),
                Mark("paper: SHA512, 8 threads", 13.0, 8, "packet, basic"),
                Mark("paper: AES, 8 threads", 19.0, 8, "aead, basic"),
            ),
        ),
        Figure(
            "fig9", "Figure 9: goodput of READ, 2 KiB, 96 outstanding per QP",
            "QPs (one worker thread)", "Gbit/s", logx=True, columns=3, plain=(NO_PROTECTION,),
            lines=(NO_PROTECTION, *MACS),
        ),
        Figure(
            "fig10", "Figure 10: READs and WRITEs mixed, 2 KiB", "READs / WRITEs (%)",
            "thousand requests/s", columns=3, lines=(NO_PROTECTION, *MODES),
            plain=(NO_PROTECTION,), ticks=tuple(f"{r}/{100 - r}" for r in MIXES),
        ),
        Figure(
            "fig11", "Figure 11: a key-value store, 16 byte keys, 32 byte values", "",
            "thousand requests/s", bars=True, columns=1, width=2.4, ticks=MODE_TICKS,
            lines=(NO_PROTECTION, "header", "packet", "aead"), plain=(NO_PROTECTION,),
            marks=(
                Mark("paper: 475", 475, 0, "GET"),
                Mark("paper, AEAD: -7.3 %", 475 * (1 - 0.073), 1, "GET"),
                Mark("paper: -21 %", 475 * (1 - 0.21), 2, "GET"),
                Mark("paper: 492", 492, 0, "PUT"),
                Mark("paper, AEAD: -7.3 %", 492 * (1 - 0.073), 1, "PUT"),
                Mark("paper: -21 %", 492 * (1 - 0.21), 2, "PUT"),
            ),
        ),
    )
}  # fmt: skip


def _line(mode: str) -> str:
    return NO_PROTECTION if mode == NONE else mode


def _point(panel: str, line: str, x: float, row: Row) -> Point:
    return Point(panel, line, x, row.median, row.low, row.high, row.rounds, row.packets)


def _plain(panel: str, x: float, rows: Iterable[Row]) -> Point:
    """The point without protection, over all rounds in which it was measured with others."""
    have = [*rows]
    between = spread(row.median for row in have)
    one = Spread(have[0].median, have[0].low, have[0].high, have[0].rounds)
    s = one if len(have) == 1 else between
    return Point(panel, NO_PROTECTION, x, s.median, s.low, s.high, sum(r.rounds for r in have))


def fig6_points(rows: Sequence[Row]) -> Iterator[Point]:
    panels = {"WRITE": "WRITE, half a round trip", "READ": "READ, full round trip"}
    for op, panel in panels.items():
        here = [row for row in rows if row.op == op]
        if plain := [row for row in here if row.mode == NONE]:
            yield _plain(panel, 0, plain)
        for x, mode in enumerate(MODES):
            if mode != NONE:
                yield from (_point(panel, r.suite, x, r) for r in here if r.mode == mode)


def fig7_points(rows: Sequence[Row]) -> Iterator[Point]:
    for row in rows:
        yield _point(f"{row.op}, {row.level}: {row.suite}", _line(row.mode), row.x, row)


def goodput_points(rows: Sequence[Row]) -> Iterator[Point]:
    """One panel per mode and level, arranged as in the paper: a row per mode, a column per
    level."""
    levels = list(dict.fromkeys(row.level for row in rows))
    for mode in dict.fromkeys(row.mode for row in rows if row.mode != NONE):
        for level in levels:
            yield from _goodput_panel([row for row in rows if row.level == level], level, mode)


def _goodput_panel(rows: Sequence[Row], level: str, mode: str) -> Iterator[Point]:
    panel = f"{level}, {mode}"
    here = [row for row in rows if row.mode == mode]
    yield from (_point(panel, row.suite, row.x, row) for row in here)
    for x in sorted({row.x for row in here}):
        yield _plain(panel, x, [row for row in rows if row.mode == NONE and row.x == x])


def fig10_points(rows: Sequence[Row]) -> Iterator[Point]:
    for row in rows:
        panel = f"{row.level}: {row.suite}"
        yield _point(panel, _line(row.mode), MIXES.index(int(row.x)), row)


def fig11_points(rows: Sequence[Row]) -> Iterator[Point]:
    for op in dict.fromkeys(row.op for row in rows):
        here = [row for row in rows if row.op == op]
        yield _plain(op, 0, [row for row in here if row.mode == NONE])
        for x, mode in enumerate(MODES):
            if mode != NONE:
                yield from (_point(op, r.level, x, r) for r in here if r.mode == mode)


GOODPUT = ("fig8", "fig9")
LOADS: dict[str, Callable[[Sequence[Row]], Iterator[Point]]] = {
    "fig6": fig6_points, "fig7": fig7_points, "fig8": goodput_points, "fig9": goodput_points,
    "fig10": fig10_points, "fig11": fig11_points,
}  # fmt: skip


def _load_section(run: Run, name: str) -> Section | None:
    rows = [*(run.stores.table if name == "fig11" else run.loads.tables[name])]
    return _section(run, name, [*LOADS[name](rows)], paper_words.of_loads(name, rows))


def _primitive_section(run: Run, name: str) -> Section | None:
    points = [*run.points(name)]
    return _section(run, name, points, paper_words.of_points(name, points))


def _section(run: Run, name: str, points: Sequence[Point], here: Sequence[str]) -> Section | None:
    if not points:
        return None
    figure = FIGURES[name]
    if name in GOODPUT:  # one column per level
        figure = replace(figure, columns=len({point.panel.split(", ")[0] for point in points}))
    svg, files = run.plot(figure, points)
    return Section(
        name, figure.title, paper_words.PAPER[name], here, paper_words.CAPTIONS[name], svg,
        files=files,
    )  # fmt: skip


def _table2(run: Run, name: str) -> Section | None:
    rows = [*run.folder.table(name, paper_state.Sth, ("tag",))]
    grid = Grid(
        ("tag code in the BTH", "tag", "bytes that plain RoCEv2 does not have", "packet"),
        [(str(r.code), f"{r.tag} B", f"{r.sth} B", f"{r.packet} B") for r in rows],
    )
    return _table(name, "Table 2: sizes of the Secure Transport Header", grid)


def _table3(run: Run, name: str) -> Section | None:
    rows = [*run.folder.table(name, paper_state.State, ("mode", "policy"))]
    grid = Grid(
        ("mode", "keys", "paper", "numbers and IVs", "paper", "header", "paper"),
        [
            (
                r.mode if r.policy == "owner" else f"{r.mode}, shared",
                paper_words.of_keys(r.qp_keys, r.shared_keys), paper_words.PAPER_KEYS[r.mode],
                f"{r.qp_numbers} N", "10 N", f"{r.header} B", "16 B",
            )
            for r in rows
        ],
    )  # fmt: skip
    return _table(name, "Table 3: bytes for N QPs with AES-128-GCM", grid)


def _table(name: str, title: str, grid: Grid) -> Section | None:
    if not grid.rows:
        return None
    return Section(
        name, title, paper_words.PAPER[name], paper_words.HERE[name], paper_words.CAPTIONS[name],
        grid=grid, files=[f"{name}.csv"],
    )  # fmt: skip


ITEMS: dict[str, Callable[[Run, str], Section | None]] = {
    "table2": _table2,
    "table3": _table3,
    "fig2": _primitive_section,
    "fig5": _primitive_section,
    **dict.fromkeys(LOADS, _load_section),
}


def of_device(names: Sequence[str], device: Device) -> list[str]:
    """The items among `names` that the device can measure. Raises LocalError if only fig11 was
    requested and the device cannot."""
    if [*names] == ["fig11"]:
        device.check_shared("fig11")
    return [name for name in names if name != "fig11" or device.shared]


def run_facts(device: Device, scale: Scale) -> dict[str, Any]:
    """The facts that all rows of a folder share."""
    return facts_here(device) | {"effort": scale.name}
