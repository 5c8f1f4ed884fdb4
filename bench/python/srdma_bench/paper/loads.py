"""Figures 6 to 10 of the paper: loads between two hosts, at each level and in each key mode.

For one suite at one level the connections of all key modes and one without protection exist at the
same time. Every value is measured on all of them in turn, so that ratios compare neighbouring runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from srdma_bench.device import Device
from srdma_bench.folder import Folder, Table
from srdma_bench.perf.measure import Plan, Result
from srdma_bench.series import in_turn, ratios, spread
from srdma_bench.stand import Link, Settings, Shape, Stand

PLAIN, COLD, WARM = Settings(unprotected=True), Settings(key_cache=0), Settings()
NONE, BASIC = "none", "basic"
CACHED = ", cached"  # suffix of a mode that derives keys, with the workers' key cache
# Line of the plots -> settings of the workers, key mode.
MODES: dict[str, tuple[Settings, str]] = {
    NONE: (PLAIN, "basic"),
    BASIC: (WARM, "basic"),
    "pd": (COLD, "pd"),
    "mem": (COLD, "mem"),
    "pd+mem": (COLD, "pd+mem"),
    f"pd{CACHED}": (WARM, "pd"),
    f"mem{CACHED}": (WARM, "mem"),
    f"pd+mem{CACHED}": (WARM, "pd+mem"),
}
MACS = ("hmac-sha256", "hmac-sha512", "aes-128-cmac", "poly1305", "aes-128-gmac")
PROTECTIONS = (
    *(("header", suite) for suite in MACS),
    *(("packet", suite) for suite in MACS),
    ("aead", "aes-128-gcm"),
    ("aead", "chacha20-poly1305"),
)
MIXED = ("aes-128-cmac", "aes-128-gcm")  # suites of figure 10
MIXES = (0, 5, 50, 95, 100)  # percent of READs
KEYS = ("op", "level", "suite", "mode", "x")


@dataclass(frozen=True)
class Row:
    """One value, and its ratio to the value without protection in the same rounds."""

    op: str
    level: str
    suite: str
    mode: str
    x: float
    median: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    rounds: int
    packets: int  # sealed and verified in its runs


@dataclass(frozen=True)
class Effort:
    """The extent of the measurement."""

    protections: Sequence[tuple[str, str]] = PROTECTIONS
    modes: Sequence[str] = tuple(MODES)
    rounds: int = 7
    iterations: int = 1000  # of a latency run
    seconds: float = 0.25  # of a bandwidth run
    sizes: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    qps: Sequence[int] = (1, 2, 4, 8)
    mixes: Sequence[int] = MIXES


@dataclass(frozen=True)
class Sheet:
    """One value of a figure, measured in all modes in turn."""

    figure: str
    op: str
    x: float
    plan: Plan
    value: Callable[[Result], float]


def latency(result: Result) -> float:
    """Median latency, in microseconds."""
    return result.quantile(0.5)


def goodput(result: Result) -> float:
    """Payload, in Gbit/s."""
    return result.gigabytes * 8


def rate(result: Result) -> float:
    """Thousand requests per second."""
    return result.messages / result.ns * 1e6


def sheets(level: str, suite: str, effort: Effort) -> Iterator[Sheet]:
    """The sheets of one suite at one level, figure by figure."""
    figure, sizes = ("fig6", [32]) if level == "header" else ("fig7", [*effort.sizes])
    for op in ("WRITE", "READ"):
        for size in sizes:
            plan = Plan(f"{op.lower()}_lat", size, effort.iterations)
            yield Sheet(figure, op, size, plan, latency)
    for op, figure in (("WRITE", "fig8"), ("READ", "fig9")):
        for qps in effort.qps:
            plan = Plan(f"{op.lower()}_bw", 2048, seconds=effort.seconds, qps=qps)
            yield Sheet(figure, op, qps, plan, goodput)
    if suite in MIXED:
        for reads in effort.mixes:
            plan = Plan("write_bw", 2048, seconds=effort.seconds, reads=reads, qps=1)
            yield Sheet("fig10", "mixed", reads, plan, rate)


class Loads:
    """The runs of figures 6 to 10. tell: reports progress (sheets done, text)."""

    def __init__(
        self, folder: Folder, effort: Effort, device: Device, tell: Callable[[int, str], None],
    ) -> None:  # fmt: skip
        self._effort, self._device, self._tell = effort, device, tell
        self._stack = ExitStack()
        self._stands: dict[Settings, Stand] = {}
        self._plain: Link | None = None
        self.tables = {
            name: folder.table(name, Row, KEYS)
            for name in ("fig6", "fig7", "fig8", "fig9", "fig10")
        }

    @property
    def total(self) -> int:
        return sum(len([*sheets(*which, self._effort)]) for which in self._effort.protections)

    def run(self, figures: Sequence[str]) -> None:
        """Measure all rows that the tables of these figures lack."""
        with self._stack:
            for level, suite in self._effort.protections:
                every = [*sheets(level, suite, self._effort)]
                todo = [
                    sheet
                    for sheet in every
                    if sheet.figure in figures and self._missing(sheet, level, suite)
                ]
                self._tell(len(every) - len(todo), f"{suite}, {level}")
                if todo:
                    self._protection(level, suite, todo)

    def _table(self, sheet: Sheet) -> Table[Row]:
        return self.tables[sheet.figure]

    def _missing(self, sheet: Sheet, level: str, suite: str) -> list[str]:
        """The modes that have no row for this sheet."""
        table = self._table(sheet)
        key = {"op": sheet.op, "level": level, "suite": suite, "x": sheet.x}
        return [mode for mode in self._effort.modes if table.get(mode=mode, **key) is None]

    def _stand(self, settings: Settings) -> Stand:
        """The stand with these settings, started at its first use. An unused stand sleeps."""
        if settings not in self._stands:
            stand = self._stack.enter_context(Stand(self._device, settings))
            self._stands[settings] = stand
        return self._stands[settings]

    def _protection(self, level: str, suite: str, todo: Sequence[Sheet]) -> None:
        qps = max(self._effort.qps)
        if self._plain is None:
            shape = Shape("none", qps=qps)
            self._plain = self._stack.enter_context(self._stand(PLAIN).connect(shape))
        with ExitStack() as stack:
            links = {NONE: self._plain}
            for mode in self._effort.modes:
                if mode != NONE:
                    settings, name = MODES[mode]
                    shape = Shape(level, suite, name, qps=qps)
                    links[mode] = stack.enter_context(self._stand(settings).connect(shape))
            for sheet in todo:
                self._sheet(sheet, level, suite, links)
                self._tell(1, f"{suite}, {level}: {sheet.figure} {sheet.op}")

    def _sheet(self, sheet: Sheet, level: str, suite: str, links: dict[str, Link]) -> None:
        runs = {mode: _run(link, sheet.plan) for mode, link in links.items()}
        results = in_turn(runs, self._effort.rounds)
        values = {mode: [sheet.value(r) for r in results[mode]] for mode in results}
        for mode in self._missing(sheet, level, suite):
            own, ratio = spread(values[mode]), ratios(values[mode], values[NONE])
            self._table(sheet).add(
                Row(
                    sheet.op, level, suite, mode, sheet.x, own.median, own.low, own.high,
                    ratio.median, ratio.low, ratio.high, own.rounds,
                    sum(result.packets for result in results[mode]),
                )
            )  # fmt: skip


def _run(link: Link, plan: Plan) -> Callable[[], Result]:
    return lambda: link.measure(plan)
