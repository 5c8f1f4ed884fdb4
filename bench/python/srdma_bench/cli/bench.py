"""`srdma bench`: measurements that are stored and shown (docs/performance.md). The commands import
the measuring modules at their call, so that `srdma --help` is quick."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from srdma.cli.options import Json
from srdma.cli.output import console, print_json
from srdma.errors import LocalError

Where = Annotated[
    str,
    typer.Option("--device", help="embedded, udp, rxe, or two RDMA devices: mlx5_0,mlx5_1."),
]
MOST_TIMES = 100_000_000  # maximum number of latencies in a round
SILENCE = 10.0  # seconds between lines of progress without a terminal


def machine(device: Where = "embedded", json: Json = False) -> None:
    """Show the environment of results.

    It consists of the machine, the commit, the programs and the crypto provider.
    """
    from srdma_bench.device import opened
    from srdma_bench.facts import facts_here

    with opened(device) as there:
        found = facts_here(there)
    if json:
        print_json(found)
        return
    for name, value in found.items():
        console().print(f"{name:<12} {value}", markup=False)


def waiting(
    device: Where = "embedded",
    rate: Annotated[
        list[int] | None, typer.Option(help="WRITEs per second. May be repeated.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of each rate, in turn.")] = 7,
    duration: Annotated[float, typer.Option("-D", "--duration", help="Seconds of a round.")] = 2.0,
    json: Json = False,
) -> None:
    """Measure the cost of waiting workers.

    These are the CPU time of idle workers and at low rates of 32-byte WRITEs, and latencies.
    """
    from srdma_bench.device import opened
    from srdma_bench.series import in_turn, spread
    from srdma_bench.stand import Shape, Stand
    from srdma_bench.waiting import measure

    for flag, given, most in [
        *(("--rate", each, 1_000_000) for each in rate or []),
        ("--rounds", rounds, 10_000), ("-D", duration, 86_400),
    ]:  # fmt: skip
        if not 0 < given <= most:
            raise LocalError(f"{flag} {given}: give more than 0, and at most {most}")
    rates = list(dict.fromkeys([0, *(rate or [1000])]))
    if max(rates) * duration > MOST_TIMES:
        raise LocalError(
            f"--rate {max(rates)} -D {duration:g}: give at most {MOST_TIMES} WRITEs per round"
        )
    with ExitStack() as stack:
        there = stack.enter_context(opened(device))
        there.check_shared("bench waiting")
        stand = stack.enter_context(Stand(there))
        link = stack.enter_context(stand.connect(Shape("aead", "aes-128-gcm")))
        runs = {str(each): partial(measure, stand, link, each, duration) for each in rates}
        results = in_turn(runs, rounds)
    for of_rate in results.values():
        columns = {f.name: spread(getattr(r, f.name) for r in of_rate) for f in fields(of_rate[0])}
        if json:
            print_json({name: asdict(values) for name, values in columns.items()})
            continue
        shown = (f"{name} {values:.4g}" for name, values in columns.items() if name != "rate")
        console().print(f"{of_rate[0].rate}/s: {', '.join(shown)}", markup=False)


def paper(
    device: Where = "embedded",
    out: Annotated[
        Path, typer.Option(help="Folder of the results; an interrupted run continues there.")
    ] = Path("build/paper"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and shorter runs: takes minutes.")
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Minimal runs, to check that everything works.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Measure this item, such as fig6. May be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure tables and figures of the paper.

    These are tables 2 and 3 and figures 2 and 5 to 11. The results are CSV, PNG, SVG and HTML.
    """
    from srdma_bench.device import opened
    from srdma_bench.folder import Folder
    from srdma_bench.paper import run as papers
    from srdma_bench.plot import check_library
    from srdma_bench.primitives import program

    names = chosen(only, list(papers.ITEMS))
    scale = papers.SMOKE if smoke else papers.QUICK if quick else papers.FULL
    program("primitives")
    check_library()
    logging.getLogger("srdma").setLevel(logging.ERROR)  # levels none and header are intended
    with opened(device) as there, steps(quiet=json) as tell:
        names = papers.of_device(names, there)
        run = papers.Run(Folder(out, papers.run_facts(there, scale)), scale, there, tell)
        tell.total = run.steps(names)
        run.measure(names)
    page = run.publish(" ".join(["srdma", *sys.argv[1:]]))
    if json:
        print_json({"page": str(out / "index.html"), "items": [s.name for s in page.sections]})
        return
    for section in page.sections:
        console().print(f"[bold]{escape(section.title)}[/]")
        for text in section.here:
            console().print(f"  {text}", markup=False)
    console().print(f"\n{out / 'index.html'}", markup=False)


def chosen(only: list[str] | None, known: list[str]) -> list[str]:
    """The names that --only selects; all names without it. Raises LocalError for an unknown one."""
    wrong = [name for name in only or [] if name not in known]
    if wrong:
        raise LocalError(f"--only {wrong[0]} is unknown: give one of {', '.join(known)}")
    return [name for name in known if not only or name in only]


class Steps:
    """Progress: called with the number of steps just done, and the current work."""

    def __init__(self, show: Callable[[int, int, str], None]) -> None:
        self._show = show
        self.total = self.done = 0

    def __call__(self, done: int, text: str) -> None:
        self.done += done
        self._show(self.done, self.total, text)


@contextmanager
def steps(*, quiet: bool) -> Iterator[Steps]:
    """A progress bar on standard error, or a line every SILENCE seconds without a terminal."""
    err = Console(stderr=True, soft_wrap=True, highlight=False)
    if quiet or not err.is_terminal:
        yield Steps(_lines(err, quiet=quiet))
        return
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, "{task.description}", console=err, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield Steps(
            lambda done, total, text: bar.update(
                task, completed=done, total=total, description=escape(text)
            )
        )


def _lines(err: Console, *, quiet: bool) -> Callable[[int, int, str], None]:
    last = time.monotonic()

    def show(done: int, total: int, text: str) -> None:
        nonlocal last
        if not quiet and time.monotonic() - last >= SILENCE:
            last = time.monotonic()
            err.print(f"{done}/{total} {text}", markup=False)

    return show
