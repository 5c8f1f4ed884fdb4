"""`srdma bench flood`: goodput beside floods (docs/performance.md)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from srdma.cli.options import Json
from srdma.cli.output import console, print_json
from srdma.errors import LocalError

if TYPE_CHECKING:
    from srdma_bench.flood import Flooded

CLOSED = ", closed port"


def flood(
    size: Annotated[int, typer.Option("-s", "--size", help="Bytes of a WRITE.")] = 2048,
    duration: Annotated[float, typer.Option("-D", "--duration", help="Seconds of a run.")] = 2.0,
    rounds: Annotated[int, typer.Option(help="Rounds, in turn.")] = 7,
    json: Json = False,
) -> None:
    """Measure WRITEs over UDP while a worker's wire gets forged packets.

    The floods are forged packets of a live QP, one and ten for each genuine packet, packets for
    2^20 QPNs, and garbage. Each is compared with the same flood to a closed port. Needs
    CAP_NET_RAW.
    """
    from srdma_bench.device import UDP
    from srdma_bench.flood import FLOODS, measure
    from srdma_bench.perf.measure import Plan
    from srdma_bench.series import in_turn
    from srdma_bench.stand import Shape, Stand

    for flag, given, most in (
        ("-s", size, 1 << 20), ("-D", duration, 3600), ("--rounds", rounds, 1000)
    ):  # fmt: skip
        if not 0 < given <= most:
            raise LocalError(f"{flag} {given:g}: give more than 0, and at most {most}")
    plan = Plan("write_bw", size, seconds=duration)
    with Stand(UDP) as stand, stand.connect(Shape("aead", "aes-128-gcm")) as link:
        run = partial(measure, stand, link, plan)
        runs = {"": partial(run, None, closed=False)}
        for each in FLOODS:
            runs[each.name] = partial(run, each, closed=False)
            runs[each.name + CLOSED] = partial(run, each, closed=True)
        found = in_turn(runs, rounds)
    for each in FLOODS:
        _show(each.name, found, json=json)


def _show(name: str, found: dict[str, list[Flooded]], *, json: bool) -> None:
    from srdma_bench.series import ratios, spread

    goodput = {key: [run.goodput for run in runs] for key, runs in found.items()}
    runs = found[name]
    refused = sum((Counter(run.refused) for run in runs), Counter[str]())
    sent, memory, log = (sum(getattr(run, of) for run in runs) for of in ("sent", "memory", "log"))
    here = spread(goodput[name])
    over_none, over_closed = (
        ratios(goodput[name], goodput[other]) for other in ("", name + CLOSED)
    )
    rate = spread(run.sent / run.seconds for run in runs)
    if json:
        spreads = {
            "goodput": here, "over_none": over_none, "over_closed": over_closed, "per_second": rate
        }  # fmt: skip
        totals = {"sent": sent, "refused": dict(refused), "memory": memory, "log": log}
        print_json({"flood": name, **{k: asdict(v) for k, v in spreads.items()}, **totals})
        return
    counts = ", ".join(f"{what} {count}" for what, count in refused.items())
    console().print(
        f"{name}: {here:.3f} GB/s; over that without a flood {over_none:.2f}, over that beside a "
        f"closed port {over_closed:.2f}; {rate:.0f} datagrams/s, {sent} in all; {counts}; memory "
        f"{memory:+d} bytes, log {log:+d} bytes",
        markup=False,
    )
