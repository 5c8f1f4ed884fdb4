"""`srdma bench targets`: measures all performance goals of srdma and prints one table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srdma.cli.options import Json
from srdma.cli.output import console, print_json
from srdma.errors import LocalError
from srdma_bench.cli.bench import chosen, steps

if TYPE_CHECKING:
    from srdma_bench.targets.ratios import Line


@dataclass(frozen=True)
class Extent:
    """The selected rows, and the extent of the measurements."""

    only: Annotated[
        list[str] | None, typer.Option(help="Measure this row, such as P3. May be repeated.")
    ] = None
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and shorter runs: takes minutes.")
    ] = False
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Minimal runs, to check that everything works.")
    ] = False
    vm: Annotated[
        bool, typer.Option("--vm", help="Measure P11 too: SoftRoCE in a virtual machine, minutes.")
    ] = False


def targets(
    extent: Extent,
    out: Annotated[
        Path, typer.Option(help="Folder of the values; an interrupted run continues there.")
    ] = Path("build/targets"),
    results: Annotated[
        Path | None, typer.Option(help="Also write the page to this file: bench/RESULTS.md.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure all performance goals.

    These are the goals of bench/RESULTS.md. Each value is compared with its bound.
    """
    from srdma_bench.folder import Folder
    from srdma_bench.primitives import program
    from srdma_bench.targets import measure as how
    from srdma_bench.targets import ratios as table
    from srdma_bench.targets.rows import ROWS

    names = chosen(extent.only, [row.name for row in ROWS])
    effort = how.SMOKE if extent.smoke else how.QUICK if extent.quick else how.FULL
    for name in ("ladder", "tls_echo"):
        program(name)
    if results is not None and not results.parent.is_dir():
        raise LocalError(f"--results {results}: the folder {results.parent} does not exist")
    logging.getLogger("srdma").setLevel(logging.ERROR)  # levels none and header are intended
    folder = Folder(out, table.run_facts(effort))
    with steps(quiet=json) as tell:
        run = table.Run(folder, effort, ROWS, tell)
        tell.total = len(ROWS)
        run.measure(names, ["--vm"] if extent.vm else [])
    text = run.publish()
    if results is not None:
        try:
            results.write_text(text)
        except OSError as error:
            raise LocalError(
                f"{results} cannot be written ({error.strerror}): name another file"
            ) from None
    _show([line for line in run.lines() if line.row.name in names], json)


def _show(lines: Sequence[Line], json: bool) -> None:
    if json:
        for line in lines:
            print_json(dict(line.plain()))
        return
    from rich.markup import escape
    from rich.table import Table

    from srdma_bench.targets.page import SECTION, WHY

    shown = Table("#", "", "goal", "median [quartiles]", "", title="docs/performance.md")
    before = ""
    for line in lines:
        if before not in ("", line.row.name):
            shown.add_section()
        cells = (line.goal.name, line.goal.text, line.measured, line.verdict)
        shown.add_row("" if before == line.row.name else line.row.name, *map(escape, cells))
        before = line.row.name
    console().print(shown)
    if any(line.short for line in lines):
        console().print(f"Reasons for missed goals: {WHY}#{SECTION}", markup=False)
