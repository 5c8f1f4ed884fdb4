"""The performance goals of srdma (docs/performance.md): measured values, and whether they are met.

The rows are in `rows.py`, the measuring functions in `measure.py`.

    run = Run(Folder(Path("build/targets"), run_facts(QUICK)), QUICK, ROWS)
    run.measure(["P1"])
    run.publish()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from srdma_bench.device import EMBEDDED
from srdma_bench.facts import facts_here
from srdma_bench.folder import Folder
from srdma_bench.series import Spread, spread
from srdma_bench.targets.measure import Effort, NotMeasuredError
from srdma_bench.targets.rows import Goal, Target, number

KEYS = ("row", "goal")


@dataclass(frozen=True)
class Value:
    """The measured value of a goal. load: load average of the machine at the end; when: UTC."""

    row: str
    goal: str
    median: float
    low: float
    high: float
    rounds: int
    load: float
    when: str
    note: str

    @property
    def spread(self) -> Spread:
        return Spread(self.median, self.low, self.high, self.rounds)


Tell = Callable[[int, str], None]


def run_facts(effort: Effort) -> dict[str, Any]:
    """The facts that all values of a folder share."""
    return facts_here(EMBEDDED) | {"effort": effort.name}


class Run:
    """One run into a folder; rows that it contains are not measured again. tell: reports progress
    (rows done, text)."""

    def __init__(
        self,
        folder: Folder,
        effort: Effort,
        rows: Sequence[Target],
        tell: Tell = lambda done, text: None,
    ) -> None:
        self.folder, self.effort, self.rows, self._tell = folder, effort, rows, tell
        self.missing: dict[str, str] = {}  # row -> why it has no value
        self._table = folder.table("targets", Value, KEYS)

    def measure(self, names: Sequence[str], asked: Sequence[str] = ()) -> None:
        """Measure the rows `names`. asked: enabling flags of rows that the user gave."""
        for row in self.rows:
            if row.name not in names:
                self.missing[row.name] = "not selected by --only"
            elif row.asked and row.asked not in asked:
                self.missing[row.name] = f"needs the flag {row.asked}"
            elif any(self.value(row, goal) is None for goal in row.goals):
                self._tell(0, f"{row.name}: {row.what}")
                self._measure(row)
            self._tell(1, row.name)

    def _measure(self, row: Target) -> None:
        try:
            found = row.measure(self.effort)
        except NotMeasuredError as why:
            self.missing[row.name] = str(why)
            return
        now = datetime.now(UTC).isoformat(timespec="minutes")
        self.missing[row.name] = found.lacks
        for goal in row.goals:
            if goal.name in found.values and self.value(row, goal) is None:
                s = spread(found.values[goal.name])
                values = s.median, s.low, s.high, s.rounds
                load = round(os.getloadavg()[0], 1)
                self._table.add(Value(row.name, goal.name, *values, load, now, found.note))

    def value(self, row: Target, goal: Goal) -> Value | None:
        return self._table.get(row=row.name, goal=goal.name)

    def lines(self) -> Iterator[Line]:
        """One line per goal of every row."""
        for row in self.rows:
            why = self.missing.get(row.name, "")
            for goal in row.goals:
                yield Line(row, goal, self.value(row, goal), why)

    def publish(self) -> str:
        """Write the page of all values in the folder, also those of earlier runs. Returns it."""
        from srdma_bench.targets.page import page

        text = page([*self.lines()], self.folder.facts)
        self.folder.write("RESULTS.md", text)
        return text


@dataclass(frozen=True)
class Line:
    """A goal and its measured value. missing: why there is no value."""

    row: Target
    goal: Goal
    value: Value | None
    missing: str = ""

    @property
    def measured(self) -> str:
        if self.value is None:
            return "-"
        low, middle, high = (
            number(x) for x in (self.value.low, self.value.median, self.value.high)
        )
        return f"{middle} [{low}, {high}]{self.goal.unit}"

    @property
    def held(self) -> bool:
        return self.value is not None and not self.goal.short(self.value.median)

    @property
    def verdict(self) -> str:
        if self.value is None:
            return f"not measured: {self.missing}"
        if self.held:
            return "met"
        by = 100 * self.goal.short(self.value.median)
        return f"missed by {by:.0f} %" if by >= 1 else "missed by less than 1 %"

    @property
    def short(self) -> bool:
        return self.value is not None and not self.held

    def plain(self) -> Mapping[str, Any]:
        """The line as a map for JSON."""
        value = asdict(self.value) if self.value is not None else {}
        return {
            "row": self.row.name, "goal": self.goal.name, "bound": self.goal.text,
            "held": self.held, "verdict": self.verdict,
            "command": self.row.command,
        } | value  # fmt: skip
