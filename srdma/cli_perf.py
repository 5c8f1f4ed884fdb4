"""`srdma perf`: latency and bandwidth, with the names, flags and columns of perftest."""

from __future__ import annotations

import json as jsonlib
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .cli_options import Ends
from .cli_output import console, print_json
from .cli_transfer import ReceiverProcess, end_options, open_worker
from .embedded import Embedded
from .errors import LocalError

if TYPE_CHECKING:
    from .connection import Connection
    from .pd import PD
    from .perf import Client, Place, Plan, Result

PORT = 18515  # perftest's
REGION = 1 << 20
SIZES = [1 << n for n in range(1, 24)]  # of -a, as in perftest
COMPARED = 7  # rounds of --compare


@dataclass(frozen=True)
class Run:
    """What is measured; flags of perftest."""

    size: Annotated[int | None, typer.Option("-s", "--size", help="Bytes of a message.")] = None
    all_sizes: Annotated[bool, typer.Option("-a", "--all", help="2 bytes to 8 MiB.")] = False
    iters: Annotated[int | None, typer.Option("-n", "--iters", help="Messages.")] = None
    duration: Annotated[
        float | None, typer.Option("-D", "--duration", help="Seconds, instead of -n.")
    ] = None
    qp: Annotated[int, typer.Option("-q", "--qp", help="QPs (bandwidth).")] = 1
    tx_depth: Annotated[int, typer.Option("-t", "--tx-depth", help="Outstanding, per QP.")] = 128
    bidirectional: Annotated[bool, typer.Option("-b", "--bidirectional")] = False
    region: Annotated[int, typer.Option(help="Bytes of memory that are used in turn.")] = REGION
    report_gbits: Annotated[bool, typer.Option("--report_gbits", help="Gbit/s.")] = False
    out_json: Annotated[
        Path | None, typer.Option("--out_json", metavar="FILE", help="Results as JSON.")
    ] = None


@dataclass(frozen=True)
class Where:
    """Which ends there are."""

    port: Annotated[int, typer.Option("-p", "--port", help="TCP port of the server.")] = PORT
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Two workers and a server on this machine.")
    ] = False


@dataclass(frozen=True)
class Guard:
    """The protection under which it is measured."""

    level: Annotated[str, typer.Option(help="aead, packet, header or none.")] = ""
    compare: Annotated[
        bool, typer.Option("--compare", help="Also without protection, in turn.")
    ] = False


def perf(
    test: Annotated[
        str, typer.Argument(help="write_lat write_bw read_lat read_bw send_lat send_bw")
    ],
    end: Ends,
    run: Run,
    guard: Guard,
    where: Where,
    server: Annotated[
        str | None, typer.Argument(metavar="[HOST]", help="Where the server runs.")
    ] = None,
) -> None:
    """Measure; without HOST and --embedded this end is the server of one client."""
    from .perf import TESTS

    if test not in TESTS:
        raise LocalError(f"{test!r}: there are {', '.join(TESTS)}")
    if run.size is not None and not 1 <= run.size <= 1 << 30:
        raise LocalError(f"-s {run.size}: 1 to {1 << 30} would be right")
    plans, levels = list(_plans(test, run)), _levels(guard)
    if where.embedded:
        _embedded(plans, end, run, guard)
    elif server is None:
        _serve(end, run, guard, where.port)
    else:
        ports = [where.port + number for number, _ in enumerate(levels)]
        _measure(plans, end, run, guard, (server, ports))


# Ends ------------------------------------------------------------------------------


def _options(end: Ends, run: Run, guard: Guard) -> list[dict[str, Any]]:
    """Of each connection; it has one QP for talk, and those that are measured."""
    qps = {"qps": 1 + run.qp, "sq": run.tx_depth, "rq": run.tx_depth}
    return [_protection(end, level) | qps for level in _levels(guard)]


def _protection(end: Ends, level: str) -> dict[str, Any]:
    chosen = end_options(end)
    chosen["level"] = level
    if level == "header":
        chosen["unprotected_payload"] = True
    if level == "none":
        chosen |= {"suites": (), "mode": ()}
    return chosen


def _levels(guard: Guard) -> list[str]:
    """Of the connections, the measured one last."""
    if guard.compare and guard.level == "none":
        raise LocalError("--compare compares a protection with none: leave --level none out")
    return ["none", guard.level] if guard.compare else [guard.level]


@contextmanager
def _place(end: Ends, run: Run) -> Iterator[tuple[PD, Place]]:
    from .perf import Place

    largest = max(_sizes(run, latency=False))
    with ExitStack() as stack:
        pd = open_worker(stack, end.worker, ring=65536)
        place = stack.enter_context(closing(Place(pd, max(run.region, largest))))
        yield pd, place


def _serve(end: Ends, run: Run, guard: Guard, port: int) -> None:
    """One client, on a connection per level; --compare is said at both ends, as all flags."""
    from . import connection
    from .perf import Server, offered

    with ExitStack() as stack:
        listeners, places = [], []
        for number, options in enumerate(_options(end, run, guard)):
            pd, place = stack.enter_context(_place(end, run))
            where = ("0.0.0.0", port + number if port else 0)
            listener = connection.listen(where, pd, data=place.offer(), **options)
            listeners.append(stack.enter_context(listener))
            places.append(place)
        ports = [listener.address[1] for listener in listeners]
        _tell(end.json, {"listening": ports}, f"waiting at port {ports[0]}")
        there = [stack.enter_context(listener.accept()) for listener in listeners]
        served = [
            stack.enter_context(closing(Server(one, place, offered(one.data))))
            for one, place in zip(there, places, strict=True)
        ]
        with ThreadPoolExecutor(len(served)) as pool:
            list(pool.map(Server.serve, served))


def _measure(
    plans: list[Plan], end: Ends, run: Run, guard: Guard, where: tuple[str, list[int]]
) -> None:
    from . import connection
    from .perf import Client, offered

    host, ports = where
    with ExitStack() as stack:
        clients = []
        for options, port in zip(_options(end, run, guard), ports, strict=True):
            pd, place = stack.enter_context(_place(end, run))
            there = connection.connect((host, port), pd, data=place.offer(), **options)
            stack.enter_context(there)
            clients.append(stack.enter_context(closing(Client(there, place, offered(there.data)))))
        report = Report(plans[0].test, clients[-1].there, run, end.json)
        for plan in plans:
            if guard.compare:
                report.compared(*_alternated(clients, plan))
            else:
                report.one(clients[0].measure(plan))
        report.close()
        for client in clients:
            client.finish()


def _alternated(clients: list[Client], plan: Plan) -> tuple[list[Result], list[Result]]:
    """Plain and secure in turn, so that a noisy machine hits both."""
    plain, secure = clients
    pairs = [(plain.measure(plan), secure.measure(plan)) for _ in range(COMPARED)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _embedded(plans: list[Plan], end: Ends, run: Run, guard: Guard) -> None:
    """Two workers, a server as a child, and this process as the client."""
    from .demo_stage import make_identities

    if end.identity or end.peer or end.worker:
        raise LocalError("--embedded makes workers and identities itself: name none")
    plain = guard.compare or guard.level == "none"
    with Embedded() as nics:
        folder = make_identities(nics.folder / "identities")
        nic_a = nics.start("nica", unprotected=plain)
        nic_b = nics.start("nicb", unprotected=plain)
        command = [sys.executable, "-m", "srdma", "perf", *_words(plans[0].test, end, run, guard)]
        command += ["--json", "-p", "0", "--identity", str(folder / "host-b")]
        command += ["--worker", str(nic_b.control), "--peer", "spiffe://demo/host-a"]
        mine = replace(
            end,
            identity=folder / "host-a",
            peer=["spiffe://demo/host-b"],
            worker=str(nic_a.control),
        )
        with closing(ReceiverProcess(command)) as server:
            ports = server.line()["listening"]
            try:
                _measure(plans, mine, run, guard, ("127.0.0.1", ports))
            finally:
                server.finish()


def _words(test: str, end: Ends, run: Run, guard: Guard) -> list[str]:
    """The flags that both ends must agree on."""
    words = [test, "-q", str(run.qp), "-t", str(run.tx_depth), "--region", str(run.region)]
    words += ["-a"] if run.all_sizes else []
    words += ["-s", str(run.size)] if run.size is not None else []
    words += ["--level", guard.level] if guard.level else []
    words += ["--compare"] if guard.compare else []
    for suite in end.suite or ():
        words += ["--suite", suite]
    for mode in end.mode or ():
        words += ["--mode", mode]
    return words


# Plans and their results ---------------------------------------------------------------


def _sizes(run: Run, *, latency: bool) -> list[int]:
    if run.all_sizes:
        return SIZES
    return [run.size or (32 if latency else 65536)]


def _plans(test: str, run: Run) -> Iterator[Plan]:
    from .perf import ITERATIONS, ROUNDS, TESTS, Plan

    latency = TESTS[test].latency
    seconds = run.duration or 0.0
    if latency and (seconds or run.bidirectional or run.qp != 1):
        raise LocalError("-D, -b and -q are for bandwidth: a latency is of one message at a time")
    usual = ROUNDS if latency else ITERATIONS
    iterations = 0 if seconds else run.iters or usual
    for size in _sizes(run, latency=latency):
        yield Plan(test, size, iterations, seconds, run.bidirectional)


class Report:
    """Rows as they come, for people or as JSON lines; at the end the file of --out_json."""

    def __init__(self, test: str, there: Connection, run: Run, json: bool) -> None:
        from .perf import TESTS
        from .policy import describe

        self._run, self._json = run, json
        self._latency = TESTS[test].latency
        self._rows: list[dict[str, Any]] = []
        self._head = {
            "test": test, "suite": describe(there.suite), "mode": there.mode, "qps": run.qp,
            "tx_depth": run.tx_depth, "region": run.region,
        }  # fmt: skip
        if json:
            print_json(self._head)
            return
        protection = "NO PROTECTION" if not there.suite.level else self._head["suite"]
        console().print(
            f"srdma {test}: {protection}, key mode {there.mode}, {run.qp} QP, "
            f"depth {run.tx_depth}, region {run.region} bytes",
            markup=False,
        )
        console().print(self._columns(), markup=False)

    def _columns(self) -> str:
        if self._latency:
            return (
                " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
                "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
            )
        unit = "Gb/sec" if self._run.report_gbits else "MB/sec"
        return f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"

    def one(self, result: Result) -> None:
        self._row(result.summary())

    def compared(self, plain: list[Result], secure: list[Result]) -> None:
        """Medians of both, then what the protection costs."""
        for name, results in (("plain", plain), ("secure", secure)):
            self._row({"protection": name, **_median(results).summary()})
        ratios = sorted(
            _per_message(b) / _per_message(a) for a, b in zip(plain, secure, strict=True)
        )
        cost = {
            "overhead": "time", "ratio": statistics.median(ratios), "least": ratios[0],
            "most": ratios[-1], "rounds": len(ratios),
            "cpu_ns": _cpu(secure) - _cpu(plain), "cpu_ratio": _cpu(secure) / _cpu(plain),
        }  # fmt: skip
        self._rows.append(cost)
        if self._json:
            print_json(cost)
            return
        console().print(
            f"   secure / plain: time x{cost['ratio']:.3f} [{cost['least']:.3f}, "
            f"{cost['most']:.3f}] in {len(ratios)} pairs; CPU of both workers "
            f"{cost['cpu_ns']:+.0f} ns per message (x{cost['cpu_ratio']:.2f})",
            markup=False,
        )

    def _row(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if self._json:
            print_json(row)
        else:
            console().print(self._line(row), markup=False)

    def _line(self, row: dict[str, Any]) -> str:
        if self._latency:
            return (
                f" {row['size']:<6} {row['iterations']:<11} {row['t_min']:>14.2f} "
                f"{row['t_max']:>14.2f} {row['t_typical']:>16.2f} {row['t_avg']:>14.2f} "
                f"{row['t_stdev']:>16.2f} {row['t_99']:>22.2f} {row['t_999']:>24.2f}"
            )
        scale = 8 / 1000 if self._run.report_gbits else 1
        return (
            f" {row['size']:<10} {row['iterations']:<12} {row['peak_MBps'] * scale:>18.2f} "
            f"{row['average_MBps'] * scale:>20.2f} {row['Mpps']:>17.6f}"
        )

    def close(self) -> None:
        if self._run.out_json:
            whole = {**self._head, "results": self._rows}
            self._run.out_json.write_text(jsonlib.dumps(whole, indent=2) + "\n")


def _per_message(result: Result) -> float:
    if result.times:
        return result.quantile(0.5)
    return result.ns / result.messages


def _median(results: list[Result]) -> Result:
    return sorted(results, key=_per_message)[len(results) // 2]


def _cpu(results: list[Result]) -> float:
    return statistics.median(r.cpu["worker_cpu"] + r.cpu["peer_worker_cpu"] for r in results)


def _tell(json: bool, values: dict[str, Any], text: str) -> None:
    if json:
        print_json(values)
    else:
        console().print(text, markup=False)
