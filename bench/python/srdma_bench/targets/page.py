"""bench/RESULTS.md: the machine, and a table of goals with what was measured of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from srdma_bench.targets.ratios import Line

COMMAND = "srdma bench targets"
WHY, SECTION = "docs/performance.md", "why-rows-fall-short"
HEAD = f"""\
# Measured

Made by `{COMMAND} --results bench/RESULTS.md`, not by hand; `{COMMAND} --only P1` measures one row,
and the commands below show its parts. What the rows mean and where the time goes:
[{WHY}](../{WHY}).

Every value is a median of rounds in turn with its quartiles, [first, third]; ratios are of
neighbours in one round. Every run has the protection in force that it names, and ends with an error
where the workers' counters of sealed and verified packets do not match its work.
"""


def page(lines: Sequence[Line], facts: Mapping[str, Any]) -> str:
    """The text, whole."""
    parts = [HEAD, _machine(lines, facts), _table(lines)]
    notes = _notes(lines)
    return "\n".join([*parts, notes] if notes else parts)


def _machine(lines: Sequence[Line], facts: Mapping[str, Any]) -> str:
    rows = ["| what it ran on | |", "|---|---|"]
    rows += [f"| {name.replace('_', ' ')} | {_cell(str(value))} |" for name, value in facts.items()]
    values = [line.value for line in lines if line.value is not None]
    if values:
        first, last = (f(value.when for value in values) for f in (min, max))
        least, most = (f(value.load for value in values) for f in (min, max))
        rounds = sorted({value.rounds for value in values})
        rows.append(f"| measured | {_range(first, last)} |")
        load = _range(f"{least:g}", f"{most:g}") + _busy(most, facts)
        rows.append(f"| load of the machine meanwhile | {load} |")
        rows.append(f"| rounds | {', '.join(map(str, rounds))} |")
    return "\n".join(rows) + "\n"


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _busy(load: float, facts: Mapping[str, Any]) -> str:
    """A run here keeps all cores busy at times; what is beyond is of others."""
    cores = int(facts.get("cores", 1))
    if load <= 2 * cores:
        return ""
    return f" on {cores} cores: a shared machine, whose other work is in these values"


def _table(lines: Sequence[Line]) -> str:
    held = sum(line.held for line in lines)
    text = f"{held} of {len(lines)} goals are held."
    if any(line.short for line in lines):
        text += f" What was found of those that fall short is in [{WHY}](../{WHY}#{SECTION})."
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
