"""`srdma bench kvs`: a key-value store over srdma and its clients, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srdma.cli.options import Json
from srdma.cli.output import console, print_json
from srdma.errors import LocalError

if TYPE_CHECKING:
    from srdma_bench.kvs.store import Kvs, KvsResult, Mix
    from srdma_bench.stand import Shape

CHECKED = "checked"


@dataclass(frozen=True)
class Asking:
    """The requests of the clients."""

    mix: Annotated[str, typer.Option(help="Mix of requests: a, b, c, d (YCSB), get, put.")] = "a"
    theta: Annotated[float, typer.Option(help="Zipf exponent of the keys; 0: uniform.")] = 0.99
    keys: Annotated[int, typer.Option(help="Number of keys in the store at the start.")] = 1 << 23
    connections: Annotated[int, typer.Option("-q", "--connections", help="Clients.")] = 8
    depth: Annotated[int, typer.Option("-t", "--depth", help="Outstanding requests, each.")] = 8
    seconds: Annotated[float, typer.Option("-D", "--seconds", help="Duration of a run.")] = 1.0
    rounds: Annotated[int, typer.Option(help="Number of runs.")] = 7


@dataclass(frozen=True)
class Guarding:
    """The protection, and the option of the workers that determines its cost."""

    suite: Annotated[str, typer.Option(help="Name of the suite.")] = ""
    level: Annotated[str, typer.Option(help="Level: aead, packet, header or none.")] = "aead"
    mode: Annotated[str, typer.Option(help="Key mode: basic, pd, mem or pd+mem.")] = "basic"
    key_cache: Annotated[
        int | None, typer.Option(help="Size of the workers' key cache; 0: no cache.")
    ] = None
    compare: Annotated[
        bool, typer.Option("--compare", help="Also measure without protection, in turn.")
    ] = False


def kvs(
    asking: Asking,
    guarding: Guarding,
    check: Annotated[
        bool, typer.Option("--check", help="First compare all responses with a model.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure a key-value store over srdma.

    The results are requests per second, latency, and the CPU time per request of each process.
    """
    from srdma_bench.kvs.store import KvsServer, Mix, Store
    from srdma_bench.series import in_turn
    from srdma_bench.stand import Settings, Stand

    mix = Mix(asking.mix, asking.theta)
    store = Store(asking.keys, asking.connections, asking.depth)
    if not asking.seconds > 0:
        raise LocalError(f"--seconds {asking.seconds}: give more than 0")
    if check:
        store.check_checkable()
    with ExitStack() as stack:
        settings = Settings(unprotected=True, key_cache=guarding.key_cache)
        stand = stack.enter_context(Stand(settings=settings))
        server = stack.enter_context(KvsServer(stand))
        opened = {
            name: stack.enter_context(server.connect(shape, store))
            for name, shape in _shapes(guarding).items()
        }
        if check:
            _check(opened, mix, asking.seconds, json)
        runs = {
            name: lambda kvs=kvs: kvs.measure(mix, asking.seconds) for name, kvs in opened.items()
        }
        _show(in_turn(runs, asking.rounds), json)


def _shapes(guarding: Guarding) -> dict[str, Shape]:
    from srdma_bench.stand import Shape

    if guarding.level == "none":
        if guarding.compare or guarding.suite or guarding.mode != "basic":
            raise LocalError("--level none: omit --suite, --mode and --compare")
        return {"none": Shape("none")}
    suite = guarding.suite or ("aes-128-gcm" if guarding.level == "aead" else "aes-128-gmac")
    shape = Shape(guarding.level, suite, guarding.mode)
    shapes = {"none": Shape("none")} if guarding.compare else {}
    return shapes | {f"{suite}, {guarding.level}, {guarding.mode}": shape}


def _check(opened: dict[str, Kvs], mix: Mix, seconds: float, json: bool) -> None:
    for name, kvs in opened.items():
        requests = kvs.check(mix, seconds)
        if json:
            print_json({CHECKED: name, "requests": requests})
        else:
            console().print(
                f"{name}: {requests} responses are correct, the final values of all keys included",
                markup=False,
            )


def _show(results: dict[str, list[KvsResult]], json: bool) -> None:
    from srdma_bench.series import ratios

    if json:
        for run in (run for runs in results.values() for run in runs):
            print_json(asdict(run) | {"rate": run.rate})
    else:
        console().print(_table(results))
    if len(results) == 2:
        plain, secure = results.values()
        rate = ratios([r.rate for r in secure], [r.rate for r in plain])
        cpu = ratios([r.cpu_workers for r in secure], [r.cpu_workers for r in plain])
        if json:
            print_json({"rate_ratio": asdict(rate), "worker_cpu_ratio": asdict(cpu)})
        else:
            console().print(
                f"secure / plain: requests/s x{rate:.2f}, CPU of the workers x{cpu:.2f}",
                markup=False,
            )


ROWS: dict[str, Callable[[KvsResult], float]] = {
    "thousand requests/s": lambda run: run.rate / 1000,
    "latency, median, us": lambda run: run.p50_us,
    "latency, 99 %, us": lambda run: run.p99_us,
    "CPU of clients, ns/request": lambda run: run.cpu_client,
    "of worker A": lambda run: run.cpu_worker_a,
    "of worker B": lambda run: run.cpu_worker_b,
    "of server": lambda run: run.cpu_server,
    "packets sealed or verified": lambda run: run.packets,
}


def _table(results: dict[str, list[KvsResult]]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    from srdma_bench.series import spread

    table = Table("", *results, title="Medians, with quartiles")
    for name, value in ROWS.items():
        shown = [f"{spread(value(run) for run in runs):.1f}" for runs in results.values()]
        table.add_row(name, *map(escape, shown))
    return table
