"""`srdma bench perftest`: unmodified programs over `srdma perf` (docs/performance.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from srdma.cli.options import Json
from srdma.cli.output import console, print_json
from srdma.errors import LocalError

LEAST, MOST = 5, 1_000_000  # messages; the least of perftest
MOST_ROUNDS = 1000


def perftest(
    iters: Annotated[
        int, typer.Option("-n", "--iters", help="Messages of a latency; ten times for bandwidth.")
    ] = 2000,
    rounds: Annotated[int, typer.Option(help="Rounds, in turn.")] = 9,
    place: Annotated[
        str, typer.Option(help="Programs beside their workers, or apart from them (2, 3 cores).")
    ] = "beside",
    json: Json = False,
) -> None:
    """Compare unmodified programs with `srdma perf`.

    These are ib_write_bw and ib_write_lat of the package perftest, by `srdma run`. All programs
    are pinned.
    """
    from srdma_bench.perftest import PERF, PLACES, WORKS, Hosts
    from srdma_bench.series import ratios, spread

    for flag, given, least, most in (
        ("-n", iters, LEAST, MOST),
        ("--rounds", rounds, 1, MOST_ROUNDS),
    ):
        if not least <= given <= most:
            raise LocalError(f"{flag} {given}: give {least} to {most}")
    if place not in PLACES:
        raise LocalError(f"--place {place}: give one of {', '.join(PLACES)}")
    with Hosts(place) as hosts:
        found = hosts.compare(iters, rounds)
    for name, runs in found.items():
        for way, values in runs.items():
            one, over = spread(values), ratios(values, runs[PERF])
            if json:
                row = {"name": name, "way": way, "unit": WORKS[name].unit}
                print_json(row | {"value": asdict(one), "ratio": asdict(over)})
                continue
            shown = (
                f"{one.median:.4g} [{one.low:.4g}, {one.high:.4g}] {WORKS[name].unit}, "
                f"x{over.median:.3g} [{over.low:.3g}, {over.high:.3g}]"
            )
            console().print(f"{name}, {way}: {shown}", markup=False)
