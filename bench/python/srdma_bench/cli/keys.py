"""`srdma bench keys` and `srdma bench sessions`: the cost of agents (docs/performance.md)."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from srdma.cli.options import Json
from srdma.cli.output import console, print_json
from srdma.errors import LocalError
from srdma.keyex.offers import QPS_MAX
from srdma_bench.cli.bench import Where

MOST_CONNECTIONS, MOST_PEERS = 16_000, 16_000
KINDS = ("system", "private")
Agents = Annotated[str, typer.Option(help="system or private agents.")]


def _check(flag: str, given: float, most: float, least: float = 1) -> None:
    if not least <= given <= most:
        raise LocalError(f"{flag} {given:g}: give {least:g} to {most:g}")


def _check_kind(agents: str) -> None:
    if agents not in KINDS:
        raise LocalError(f"--agents {agents}: give one of {', '.join(KINDS)}")


def keys(
    device: Where = "embedded",
    agents: Agents = "system",
    serial: Annotated[int, typer.Option(help="Connections one after the other.")] = 100,
    many: Annotated[int, typer.Option(help="Connections, or QPs, at the same time.")] = QPS_MAX,
    rounds: Annotated[int, typer.Option(help="Rounds, in turn.")] = 7,
    json: Json = False,
) -> None:
    """Measure key set-up between two agents.

    Connections of one QP are made one after the other and at the same time, then one connection of
    many QPs. The CPU time is that of the agents.
    """
    from srdma_bench.device import opened
    from srdma_bench.keys.setup import Extent, measure
    from srdma_bench.series import spread

    _check_kind(agents)
    for flag, given, most in (
        ("--serial", serial, 10_000), ("--many", many, QPS_MAX), ("--rounds", rounds, 1000)
    ):  # fmt: skip
        _check(flag, given, most)
    with opened(device) as there:
        found = measure(agents, there, Extent(serial, many, rounds))  # type: ignore[arg-type]
    for name, runs in found.items():
        columns = {
            key: spread(asdict(run)[key] for run in runs)
            for key in ("seconds", "median", "p99", "cpu_a", "cpu_b", "program_a")
        }
        columns["rate"] = spread(run.rate for run in runs)
        one = {"name": name, "connections": runs[0].connections, "qps": runs[0].qps}
        if json:
            print_json(one | {key: asdict(values) for key, values in columns.items()})
            continue
        shown = (
            f"{columns['seconds']:.3f} s, each {columns['median']:.1f} ms, p99 "
            f"{columns['p99']:.1f} ms; CPU ms per QP: agents {columns['cpu_a']:.2f}, "
            f"{columns['cpu_b']:.2f}; QPs/s of one core and end {columns['rate']:.0f}"
        )
        console().print(f"{name} ({one['qps']} QPs): {shown}", markup=False)


@dataclass(frozen=True)
class Many:
    """The connections, and the work with them."""

    connections: Annotated[int, typer.Option(help="Number of connections.")] = 100
    qps: Annotated[int, typer.Option(help="QPs of each connection.")] = 100
    peers: Annotated[int, typer.Option(help="Peers that the connections have in turn.")] = 100
    idle: Annotated[float, typer.Option(help="Seconds without work before the renewals.")] = 70.0
    at_once: Annotated[int, typer.Option(help="Connections that are made at the same time.")] = 48
    renew: Annotated[bool, typer.Option(help="Renew all secrets at the end.")] = True

    def check(self) -> None:
        """Raise LocalError for a value that is not permitted."""
        from srdma_bench.keys.setup import MAX_QPS

        for flag, given, most in (
            ("--connections", self.connections, MOST_CONNECTIONS), ("--qps", self.qps, QPS_MAX),
            ("--peers", self.peers, MOST_PEERS), ("--at-once", self.at_once, MOST_CONNECTIONS),
        ):  # fmt: skip
            _check(flag, given, most)
        _check("--idle", self.idle, 86_400, 0)
        if self.connections * self.qps > MAX_QPS:
            raise LocalError(
                f"--connections {self.connections} --qps {self.qps}: give at most {MAX_QPS} QPs"
            )


def sessions(
    many: Many, device: Where = "embedded", agents: Agents = "system", json: Json = False
) -> None:
    """Measure many sessions of one agent.

    These are its memory, its CPU time and the duration of renewals of all sessions.
    """
    from srdma_bench.device import opened
    from srdma_bench.keys.sessions import Crowd, measure
    from srdma_bench.keys.setup import Pair

    _check_kind(agents)
    many.check()
    peers = min(many.peers, many.connections)
    crowd = Crowd(many.connections, peers, many.qps, many.idle, many.renew, many.at_once)
    with opened(device) as there, Pair(agents, crowd.load, there) as pair:  # type: ignore[arg-type]
        found = asyncio.run(measure(pair, crowd))
    if json:
        print_json(asdict(found))
        return
    for name, value in asdict(found).items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        console().print(f"{name:<12} {shown}", markup=False)
