"""bench/RESULTS.md: the machine, and a table of goals with measured values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from srdma_bench.targets.ratios import Line

COMMAND = "srdma bench targets"
WHY, SECTION = "docs/performance.md", "why-rows-fall-short"
HEAD = f"""\
# Measured

`{COMMAND} --results bench/RESULTS.md` generates this file; do not edit it. `{COMMAND} --only P1`
measures one row, and the commands below measure its parts. [{WHY}](../{WHY}) explains the rows and
their costs.

Every value is the median of rounds that ran in turn, with its quartiles [first, third]; a ratio
compares runs of the same round. In every run the named protection is in force, and the run ends
with an error if the workers' counters of sealed and verified packets do not match its messages.
"""


def page(lines: Sequence[Line], facts: Mapping[str, Any]) -> str:
    """The text of the whole page."""
    parts = [HEAD, _machine(lines, facts), _table(lines)]
    notes = _notes(lines)
    return "\n".join([*parts, notes] if notes else parts)


def _machine(lines: Sequence[Line], facts: Mapping[str, Any]) -> str:
    rows = ["| environment | |", "|---|---|"]
    rows += [f"| {name.replace('_', ' ')} | {_cell(str(value))} |" for name, value in facts.items()]
    values = [line.value for line in lines if line.value is not None]
    if values:
        first, last = (f(value.when for value in values) for f in (min, max))
        least, most = (f(value.load for value in values) for f in (min, max))
        rounds = sorted({value.rounds for value in values})
        rows.append(f"| measured | {_range(first, last)} |")
        load = _range(f"{least:g}", f"{most:g}") + _busy(most, facts)
        rows.append(f"| load average of the machine | {load} |")
        rows.append(f"| rounds | {', '.join(map(str, rounds))} |")
    return "\n".join(rows) + "\n"


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _busy(load: float, facts: Mapping[str, Any]) -> str:
    """A remark for a load that exceeds that of the runs, which use all cores at times."""
    cores = int(facts.get("cores", 1))
    if load <= 2 * cores:
        return ""
    return f" on {cores} cores: a shared machine, so other work influenced these values"


def _table(lines: Sequence[Line]) -> str:
    held = sum(line.held for line in lines)
    text = f"{held} of {len(lines)} goals are met."
    if any(line.short for line in lines):
        text += f" [{WHY}](../{WHY}#{SECTION}) explains the goals that are not met."
    rows = [
        f"{text}\n",
        "| # | measure | | goal | median [quartiles] | | command |",
        "|---|---|---|---|---|---|---|",
    ]
    before = ""
    for line in lines:
        again = line.row.name == before
        before = line.row.name
        cells = [
            "" if again else line.row.name, "" if again else line.row.what, line.goal.name,
            line.goal.text, line.measured, line.verdict,
            "" if again else f"`{line.row.command}`",
        ]  # fmt: skip
        rows.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(rows) + "\n"


def _notes(lines: Sequence[Line]) -> str:
    found = {line.row.name: line.value.note for line in lines if line.value and line.value.note}
    return "".join(f"* {name}: {note}.\n" for name, note in found.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
