"""`srdma attack`: runs attacks in the laboratory and prints a table of their outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from srdma.cli.commands import Command
from srdma.cli.options import Json
from srdma.cli.output import complain, console, print_json
from srdma.errors import LocalError
from srdma_attack.against_plain.machine import findings, is_inside
from srdma_attack.attack import Attack, Finding, KitError, Settings, Target
from srdma_attack.goodput import WAYS, beside
from srdma_attack.table import HEADINGS, cells, markdown, named

GOODPUT = "goodput"  # in place of the names of attacks


class Targets(StrEnum):
    SRDMA = "srdma"
    PLAIN = "plain"
    BOTH = "both"


def attack(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Attacks; or `goodput`  [default: all attacks]"),
    ] = None,
    target: Annotated[Targets, typer.Option(help="What is attacked.")] = Targets.SRDMA,
    full: Annotated[
        bool, typer.Option("--full", help="Sweep all 2^24 packet numbers, which takes minutes.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the attacks; run none.")] = False,
    markdown_: Annotated[
        bool, typer.Option("--markdown", help="With --list: the table of docs/attacks.md.")
    ] = False,
    json: Json = False,
) -> int:
    """Attack srdma, and plain RoCE, in a laboratory on this machine.

    Exit code 0: every outcome is the expected one, and its counter rose. `srdma attack goodput`
    measures instead what a tenant gets while QPs of another one misbehave.
    """
    try:
        if names == [GOODPUT]:
            _show_goodput(json)
            return 0
        chosen = named(names or [])
        if list_:
            _print_list(chosen, markdown_, json)
            return 0
        return _show(list(_results(chosen, target, Settings(full))), json)
    except KitError as error:
        raise LocalError(str(error)) from error


ATTACK = Command(attack)


def _show_goodput(json: bool) -> None:
    for way in WAYS:
        found = beside(way)
        if json:
            print_json(asdict(found))
            continue
        refused = ", ".join(f"{name} {count}" for name, count in found.refused.items())
        console().print(
            f"{way.name}: {found.goodput:.0f} MB/s of {found.control:.0f}; of its fair share "
            f"{found.of_fair_share:.2f}, of all {found.of_all:.2f}; {found.sent} packets; "
            f"{refused or 'none refused'}",
            markup=False,
        )


def _print_list(chosen: tuple[Attack, ...], as_markdown: bool, json: bool) -> None:
    if as_markdown:
        typer.echo(markdown(), nl=False)
        return
    if json:
        for one in chosen:
            print_json(dict(zip(HEADINGS, cells(one), strict=True)))
        return
    _print_table([HEADINGS, *map(cells, chosen)])


def _results(
    chosen: Sequence[Attack], targets: Targets, settings: Settings
) -> Iterator[dict[str, Any]]:
    """Runs the attacks; one result for each attack that applies to one of the targets."""
    runs = [target for target in Target if targets in (Targets.BOTH, target.value)]
    on_plain: Mapping[str, Finding] = {}
    if Target.PLAIN in runs and not is_inside():
        on_plain = findings([one.name for one in chosen if one.plain], settings)
    for one in chosen:
        result: dict[str, Any] = {"attack": one.name, "attacker": one.attacker.value}
        result |= {"plain": "-", "srdma": "-", "counter": "-", "rose": 0, "expected": True}
        for target in runs:
            if run := one.run_of(target):
                known = on_plain.get(one.name) if target is Target.PLAIN else None
                _enter(result, one, target, known or run(settings))
        if any(one.run_of(target) for target in runs):
            yield result


def _enter(result: dict[str, Any], one: Attack, target: Target, found: Finding) -> None:
    result[target.value] = found.outcome.value
    result[f"note_{target.value}"] = found.note
    result["expected"] &= one.as_expected(target, found)
    if target is Target.SRDMA:
        result |= {"counter": one.counter, "rose": found.counters.get(one.counter, 0)}


def _show(results: list[dict[str, Any]], json: bool) -> int:
    """Prints results. Returns 1 if one is not as expected."""
    if json:
        for result in results:
            print_json(result)
    else:
        names = ("attack", "attacker", "plain", "srdma", "counter", "rose")
        _print_table([names, *([str(result[name]) for name in names] for result in results)])
    wrong = [result["attack"] for result in results if not result["expected"]]
    if wrong:
        complain(f"not as expected: {', '.join(wrong)}")
    return int(bool(wrong))


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        console().print(line.rstrip(), markup=False)
