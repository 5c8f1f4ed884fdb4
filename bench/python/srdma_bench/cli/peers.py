"""`srdma bench peers`: srdma compared with TLS, redis and memcached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srdma.cli.options import Json
from srdma.cli.output import console, print_json
from srdma.errors import LocalError

if TYPE_CHECKING:
    from srdma_bench.folder import Folder, Table
    from srdma_bench.peers.compare import Compared, Peers, Row
    from srdma_bench.series import Spread

MOST_SECONDS = 3600  # limit of bench/tls_echo and bench/tls_load


@dataclass(frozen=True)
class Effort:
    """The extent of the measurement."""

    keys: Annotated[int, typer.Option(help="Number of keys in each store.")] = 1 << 20
    seconds: Annotated[float, typer.Option("-D", "--seconds", help="Duration of a run.")] = 1.0
    rounds: Annotated[int, typer.Option(help="Runs of each peer.")] = 7
    quick: Annotated[
        bool, typer.Option("--quick", help="Minimal runs, to check that everything works.")
    ] = False
    only: Annotated[
        list[str] | None,
        typer.Option(help="Compare with this peer: tls, redis, memcached. May be repeated."),
    ] = None


def peers(
    effort: Effort,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the rows (CSV) and a plot (PNG, SVG).")
    ] = None,
    json: Json = False,
) -> None:
    """Compare srdma, TLS, redis, memcached.

    All do the same work, in turn on the same cores.
    """
    from srdma_bench.peers.compare import KINDS, Peers, Row, compared

    if effort.quick:
        effort = replace(effort, keys=10_000, seconds=0.1, rounds=1)
    if not 0 < effort.seconds <= MOST_SECONDS:
        raise LocalError(
            f"--seconds {effort.seconds}: give more than 0, and at most {MOST_SECONDS}"
        )
    if effort.rounds < 1:
        raise LocalError(f"--rounds {effort.rounds}: give at least 1")
    folder = _folder(out, effort) if out is not None else None
    table = None if folder is None else folder.table("peers", Row, ("work", "peer", "round"))
    with Peers(effort.keys, effort.only or KINDS) as there:
        skipped = there.skipped
        rows = _rows(there, effort, table)
    _show(compared(rows), json)
    for name, reason in skipped.items():
        _tell(json, {"skipped": name, "reason": reason}, f"{name} was skipped: {reason}")
    if folder is not None and table is not None:
        _draw(folder, list(table))
    if not json:
        _legend({row.peer for row in rows})


def _folder(out: Path, effort: Effort) -> Folder:
    from srdma_bench.device import EMBEDDED
    from srdma_bench.facts import facts_here
    from srdma_bench.folder import Folder
    from srdma_bench.plot import check_library

    check_library()
    kept = {name: value for name, value in asdict(effort).items() if name != "only"}
    return Folder(out, facts_here(EMBEDDED) | kept)


def _rows(there: Peers, effort: Effort, table: Table[Row] | None) -> list[Row]:
    """The rows of all works; the rows of each work are stored as soon as it is measured."""
    if not there.works:
        why = "; ".join(f"{name}: {reason}" for name, reason in there.skipped.items())
        raise LocalError(f"no peer can run here: {why}")
    kept: dict[str, list[Row]] = {work: [] for work in there.works}
    if table is not None:
        kept = {work: there.kept(work, effort.rounds, table) for work in kept}
    for work in (work for work, rows in kept.items() if not rows):
        kept[work] = there.compare(work, effort.seconds, effort.rounds)
        if table is not None:
            for row in kept[work]:
                table.add(row)
    return [row for rows in kept.values() for row in rows]


def _tell(json: bool, values: dict[str, Any], text: str) -> None:
    if json:
        print_json(values)
    else:
        console().print(text, markup=False)


def _show(found: Sequence[Compared], json: bool) -> None:
    if json:
        for one in found:
            print_json(asdict(one))
        return
    from rich.markup import escape
    from rich.table import Table

    names = ("a second", "p50 us", "p99 us", "CPU ns", "ahead")
    table = Table(
        "",
        *names,
        title="Medians, with quartiles; CPU ns of all processes per request; "
        "ahead: rate of srdma with AEAD over the peer's",
    )
    works = dict.fromkeys(one.work for one in found)
    for work in works:
        table.add_row(f"[bold]{work}[/]")
        for one in (one for one in found if one.work == work):
            cells = [_short(one.rate), "", "", f"{one.cpu_ns.median:.0f}", f"x{_short(one.ahead)}"]
            if one.p50_us.median:
                cells[1:3] = f"{one.p50_us.median:.1f}", f"{one.p99_us.median:.0f}"
            table.add_row(one.peer, *map(escape, cells))
        table.add_section()
    console().print(table)


def _short(of: Spread) -> str:
    """A spread with three or more digits, in units, thousands (k) or millions (M)."""
    by, unit = next(
        (by, unit) for by, unit in ((1e6, "M"), (1e3, "k"), (1, "")) if of.median >= by or by == 1
    )
    digits = 1 if of.median / by >= 10 else 2
    return (
        f"{of.median / by:.{digits}f}{unit} [{of.low / by:.{digits}f}, {of.high / by:.{digits}f}]"
    )


def _legend(names: set[str]) -> None:
    from srdma_bench.peers.compare import ABOUT

    console().print("\nProtection and way of waiting of each:")
    for name, (protects, waits) in ABOUT.items():
        if name in names:
            console().print(f"  {name}: {protects}. {waits[0].upper()}{waits[1:]}.", markup=False)


def _draw(folder: Folder, rows: Sequence[Row]) -> None:
    from srdma_bench import plot
    from srdma_bench.peers import compare as peers

    figure = plot.Figure(
        "peers", "srdma compared with other programs", "", "thousand per second; streams: MB/s",
        bars=True, shared=False, lines=tuple(peers.ABOUT), ticks=("",),
    )  # fmt: skip
    points = []
    for one in peers.compared(rows):
        rate = one.rate.scaled(1e-6 if one.work.startswith("stream") else 1e-3)
        points.append(plot.Point(one.work, one.peer, 0, *asdict(rate).values()))
    for name, data in plot.draw(figure, points).items():
        folder.write(name, data)
    console().print(f"{folder.path}: peers.csv, peers.png, peers.svg", markup=False)
