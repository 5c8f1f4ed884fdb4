"""`srdma perf`: latency and bandwidth, with the names, flags and columns of perftest."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from srdma.cli.options import Ends
from srdma.cli.output import console, print_json
from srdma.cli.transfer import ReceiverProcess, end_options, open_worker
from srdma.embedded import Embedded, Worker
from srdma.errors import LocalError
from srdma_bench.gid import gid_address

if TYPE_CHECKING:
    from srdma.pd import PD
    from srdma_bench.perf.measure import Client, Place, Plan, Result
    from srdma_bench.perf.report import Form, Report

PORT = 18515  # perftest's
REGION = 1 << 20
SIZES = [1 << n for n in range(1, 24)]  # message sizes of -a, as in perftest
LEAST = 5  # minimum of iterations, as in perftest
DAY = 86400.0  # seconds
COMPARED = 7  # pairs of runs of --compare
LOOK = 0.02  # seconds of waiting for one client if there are several
OUT_JSON = Path("perftest_out.json")  # perftest's
FOREIGN = {  # flags of perftest that have no meaning here
    "-c --connection": "QPs are RC",
    "-e --events": "a waiting host polls briefly, then sleeps",
    "-i --ib-port": "a worker uses the first port of its device",
    "-I --inline_size": "payload is read from registered memory",
    "-l --post_list -Q --cq-mod": "C posts one request at a time, Python posts batches in which "
    "the last request completes",
    "-m --mtu": "the worker sets the MTU: srdma-offload --mtu",
    "-o --outs": "the worker limits outstanding READs: srdma-offload --reads",
    "-r --rx-depth": "receive queues are as deep as send queues: -t",
    "-R --rdma_cm -z --com_rdma_cm": "hosts connect by mutual TLS over TCP, at -p",
    "-u --qp-timeout": "lost packets are retransmitted until the deadline of their request",
    "-H --report-histogram -U --report-unsorted": "there is no histogram",
}


class Command(TyperCommand):
    """Explains flags of perftest that this program does not have. Raises typer.BadParameter."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for flag in (arg.partition("=")[0] for arg in args):
            for names, why in FOREIGN.items():
                if flag in names.split():
                    raise typer.BadParameter(f"{flag} is not supported, omit it: {why}.", ctx=ctx)
        return super().parse_args(ctx, args)


@dataclass(frozen=True)
class Run:
    """The measurement; flags of perftest."""

    size: Annotated[
        int | None,
        typer.Option("-s", "--size", help="Bytes of a message  [default: 65536; latency: 2]"),
    ] = None
    all_sizes: Annotated[bool, typer.Option("-a", "--all", help="Sizes 2 bytes to 8 MiB.")] = False
    iters: Annotated[
        int | None, typer.Option("-n", "--iters", help="Messages  [default: 1000; write_bw: 5000]")
    ] = None
    duration: Annotated[
        float | None, typer.Option("-D", "--duration", help="Seconds of a run, instead of -n.")
    ] = None
    qp: Annotated[int, typer.Option("-q", "--qp", help="Number of QPs (bandwidth only).")] = 1
    tx_depth: Annotated[
        int, typer.Option("-t", "--tx-depth", help="Outstanding messages per QP.")
    ] = 128
    bidirectional: Annotated[
        bool, typer.Option("-b", "--bidirectional", help="Both ends send.")
    ] = False
    cpu_freq: Annotated[
        bool, typer.Option("-F", "--CPU-freq", help="Ignored: CPU frequencies are not checked.")
    ] = False
    region: Annotated[
        int, typer.Option(help="Bytes of memory; messages use all of it in turn.")
    ] = REGION
    report_gbits: Annotated[
        bool, typer.Option("--report_gbits", help="Report Gbit/s, not MiB/s.")
    ] = False
    out_json: Annotated[
        bool, typer.Option("--out_json", help=f"Write the results as JSON to {OUT_JSON}.")
    ] = False
    out_json_file: Annotated[
        Path | None,
        typer.Option("--out_json_file", metavar="FILE", help="Write the results as JSON to FILE."),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds without a completion until the run fails  [default: 60]"),
    ] = None
    python: Annotated[bool, typer.Option("--python", help="Post and poll in Python, not in C.")] = (
        False
    )
    compare_python: Annotated[
        bool, typer.Option("--compare-python", help="Measure in C and in Python, in turn.")
    ] = False

    @property
    def file(self) -> Path | None:
        return self.out_json_file or (OUT_JSON if self.out_json else None)

    def ranges(self) -> list[tuple[str, float | None, tuple[float, float]]]:
        """The numbers: flag, value, minimum and maximum."""
        return [
            ("-s", self.size, (1, 1 << 30)),
            ("-n", self.iters, (LEAST, 1 << 30)),
            ("-D", self.duration, (0.001, DAY)),
            ("-q", self.qp, (1, 255)),
            ("-t", self.tx_depth, (1, 4096)),
            ("--region", self.region, (1, 1 << 30)),
            ("--timeout", self.timeout, (0.1, DAY)),
        ]


@dataclass(frozen=True)
class Where:
    """The ends of the measurement."""

    port: Annotated[int, typer.Option("-p", "--port", help="TCP port of the server.")] = PORT
    device: Annotated[
        str | None,
        typer.Option(
            "-d",
            "--ib-dev",
            metavar="DEVICE",
            help="RDMA device; starts a worker on it. With --embedded two devices: A,B.",
        ),
    ] = None
    gid: Annotated[
        int | None,
        typer.Option("-x", "--gid-index", metavar="INDEX", help="GID index of -d: its address."),
    ] = None
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Start two workers and a server on this machine.")
    ] = False


@dataclass(frozen=True)
class Guard:
    """The protection in force during the measurement."""

    level: Annotated[str, typer.Option(help="Level: aead, packet, header or none.")] = ""
    compare: Annotated[
        bool, typer.Option("--compare", help="Measure without and with protection, in turn.")
    ] = False

    @property
    def levels(self) -> list[str]:
        """The level of each connection, the measured one last."""
        return ["none", self.level] if self.compare else [self.level]


@dataclass(frozen=True)
class Job:
    """A command line, with checked values. The constructor raises LocalError."""

    test: str
    end: Ends
    run: Run
    guard: Guard
    where: Where

    def __post_init__(self) -> None:
        from srdma_bench.perf.measure import TESTS

        run, latency = self.run, self.test.endswith("_lat")
        if self.test not in TESTS:
            raise LocalError(f"unknown test {self.test!r}: give one of {', '.join(TESTS)}")
        for flag, given, (least, most) in run.ranges():
            if given is not None and not least <= given <= most:
                raise LocalError(f"{flag} {given}: give {least:g} to {most:.15g}")
        if latency and (run.duration or run.bidirectional or run.qp != 1):
            raise LocalError("-D, -b and -q need a bandwidth test: omit them for a latency")
        self._check_together()

    def _check_together(self) -> None:
        from srdma_bench.perf.measure import ring_entries

        ring_entries({"qps": 1 + self.run.qp, "sq": self.run.tx_depth, "rq": self.run.tx_depth})
        if self.run.file is not None:
            check_file(self.run.file)
        if self.guard.compare and self.guard.level == "none":
            raise LocalError("--compare compares a protection with level none: omit --level none")
        if self.guard.compare and self.run.compare_python:
            raise LocalError("--compare and --compare-python exclude each other: give one of them")
        if self.where.gid is not None and self.where.device is None:
            raise LocalError("-x needs a device: give -d DEVICE")
        if self.where.device and self.end.worker:
            raise LocalError("-d starts a worker, --worker uses a running one: give one of them")

    @property
    def sizes(self) -> list[int]:
        return SIZES if self.run.all_sizes else [self.run.size or self._usual_size]

    @property
    def _usual_size(self) -> int:
        return 2 if self.test.endswith("_lat") else 65536

    @property
    def plans(self) -> Iterator[Plan]:
        from srdma_bench.perf.measure import TESTS, Plan

        run = self.run
        iterations = 0 if run.duration else run.iters or TESTS[self.test].iterations
        host = "Python" if run.python else "C"
        for size in self.sizes:
            seconds, both = run.duration or 0.0, run.bidirectional
            yield Plan(self.test, size, iterations, seconds, both, host=host)

    @property
    def patience(self) -> float:
        from srdma_bench.perf.hosts import PATIENCE

        return PATIENCE if self.run.timeout is None else self.run.timeout

    @property
    def unprotected(self) -> bool:
        """True if the workers must permit level none."""
        return "none" in self.guard.levels

    def options(self, level: str) -> dict[str, Any]:
        """Keywords of connect() and listen(): one QP for control messages, the others for load."""
        chosen = end_options(self.end) | {"level": level, "qps": 1 + self.run.qp}
        chosen |= {"sq": self.run.tx_depth, "rq": self.run.tx_depth}
        if level == "header":
            chosen["unprotected_payload"] = True
        if level == "none":
            chosen |= {"suites": (), "mode": ()}
        return chosen

    @contextmanager
    def place(self, level: str) -> Iterator[tuple[PD, Place]]:
        """The PD and memory of one end. Memory needs proofs if all offered modes have them."""
        from srdma_bench.perf.measure import Place, ring_entries

        modes = self.end.mode or ()
        proof = level != "none" and bool(modes) and all("mem" in mode for mode in modes)
        with ExitStack() as stack:
            pd = open_worker(stack, self.end.worker, ring_entries(self.options(level)))
            place = Place(pd, max(self.run.region, *self.sizes), proof=proof)
            yield pd, stack.enter_context(closing(place))

    def words(self) -> list[str]:
        """The flags that both ends must agree on."""
        run, end = self.run, self.end
        words = [self.test, "-q", str(run.qp), "-t", str(run.tx_depth), "--region", str(run.region)]
        words += ["-a"] if run.all_sizes else []
        words += ["-s", str(run.size)] if run.size is not None else []
        words += ["--level", self.guard.level] if self.guard.level else []
        words += ["--compare"] if self.guard.compare else []
        words += ["--timeout", str(run.timeout)] if run.timeout is not None else []
        words += [word for suite in end.suite or () for word in ("--suite", suite)]
        return words + [word for mode in end.mode or () for word in ("--mode", mode)]


def perf(
    test: Annotated[
        str, typer.Argument(help="write_lat write_bw read_lat read_bw send_lat send_bw")
    ],
    end: Ends,
    run: Run,
    guard: Guard,
    where: Where,
    server: Annotated[
        str | None, typer.Argument(metavar="[HOST]", help="Host of the server.")
    ] = None,
) -> None:
    """Measure latency or bandwidth.

    Without HOST and --embedded this end is the server of one client.
    """
    job = Job(test, end, run, guard, where)
    if where.embedded:
        _embedded(job)
        return
    with ExitStack() as stack:
        if where.device:
            nics = stack.enter_context(Embedded())
            worker = _start(nics, f"perf-{os.getpid()}", where.device, job)
            job = replace(
                job, end=replace(end, worker=str(worker.control)), where=Where(where.port)
            )
        if server is None:
            _serve(job)
        else:
            ports = [where.port + number for number, _ in enumerate(guard.levels)]
            _measure(job, (server, ports))


def check_file(path: Path) -> None:
    """Raise LocalError if the file cannot be written; called before the measurement."""
    try:
        open(path, "a").close()
    except OSError as error:
        raise LocalError(
            f"{path} cannot be written ({error.strerror}): name another file"
        ) from None


# Ends ------------------------------------------------------------------------------


def _start(nics: Embedded, name: str, device: str | None, job: Job) -> Worker:
    """Start a worker on shared memory (device None) or on an RDMA device."""
    if device is None:
        return nics.start(name, unprotected=job.unprotected)
    words = ["--host-dev", device, "--wire-dev", device]
    if job.where.gid is not None:
        words += ["--wire-listen", f"{gid_address(device, job.where.gid)}:0"]
    return nics.launch(name, [*words, *(["--allow-unprotected"] if job.unprotected else [])])


def _serve(job: Job) -> None:
    """Serve one client, with one connection per level. Both ends need the same flags, also
    --compare."""
    from srdma import connection
    from srdma_bench.perf.measure import Server, offered

    port, options = job.where.port, [job.options(level) for level in job.guard.levels]
    with ExitStack() as stack:
        listeners, places = [], []
        for number, level in enumerate(job.guard.levels):
            pd, place = stack.enter_context(job.place(level))
            where = ("0.0.0.0", port + number if port else 0)
            listener = connection.listen(where, pd, data=place.offer(), **options[number])
            listeners.append(stack.enter_context(listener))
            places.append(place)
        ports = [listener.address[1] for listener in listeners]
        _tell(job.end.json, {"listening": ports}, f"listening at port {ports[0]}")
        there = [stack.enter_context(listener.accept()) for listener in listeners]
        served = [
            stack.enter_context(closing(Server(one, place, offered(one.data), job.patience)))
            for one, place in zip(there, places, strict=True)
        ]
        look = LOOK if len(served) > 1 else None
        while served:  # all in the main thread, so that a signal ends them
            served = [one for one in served if one.turn(look)]


def _measure(job: Job, where: tuple[str, list[int]]) -> None:
    from srdma import connection
    from srdma_bench.perf.measure import Client, offered
    from srdma_bench.perf.report import Report

    host, ports = where
    with ExitStack() as stack:
        clients = []
        for level, port in zip(job.guard.levels, ports, strict=True):
            pd, place = stack.enter_context(job.place(level))
            options = job.options(level)
            there = connection.connect((host, port), pd, data=place.offer(), **options)
            stack.enter_context(there)
            client = Client(there, place, offered(there.data), job.patience)
            clients.append(stack.enter_context(closing(client)))
        report = Report(_form(job), clients[-1])
        for plan in job.plans:
            _report(report, job, clients, plan)
        report.close()
        for client in clients:
            client.finish()


def _form(job: Job) -> Form:
    from srdma_bench.perf.report import Form

    run = job.run
    return Form(
        job.test, run.tx_depth, run.region, "C and Python" if run.compare_python else
        next(job.plans).host, run.bidirectional, run.report_gbits, job.end.json, run.file,
    )  # fmt: skip


def _report(report: Report, job: Job, clients: Sequence[Client], plan: Plan) -> None:
    if job.run.compare_python:
        slow = replace(plan, host="Python")
        report.compared(("C", "Python"), *_alternated((clients[0], plan), (clients[0], slow)))
    elif job.guard.compare:
        plain, secure = clients
        report.compared(("plain", "secure"), *_alternated((plain, plan), (secure, plan)))
    else:
        report.one(clients[0].measure(plan))


def _alternated(
    first: tuple[Client, Plan], second: tuple[Client, Plan]
) -> tuple[list[Result], list[Result]]:
    """Run both plans in turn, so that noise of the machine affects both."""
    from srdma_bench.series import in_turn

    runs = {n: partial(client.measure, plan) for n, (client, plan) in enumerate((first, second))}
    done = in_turn({str(n): run for n, run in runs.items()}, COMPARED)
    return done["0"], done["1"]


def _embedded(job: Job) -> None:
    """Start two workers and a server as a child; this process is the client."""
    from srdma.demo.stage import make_identities

    end = job.end
    if end.identity or end.peer or end.worker:
        raise LocalError(
            "--embedded creates workers and identities: omit --identity, --peer and --worker"
        )
    devices: list[str | None] = [None, None]
    if job.where.device:
        devices = [*job.where.device.split(",")]
    if len(devices) != 2:
        raise LocalError(f"-d {job.where.device} with --embedded: give two devices, A,B")
    with Embedded() as nics:
        folder = make_identities(nics.folder / "identities")
        nic_a, nic_b = (
            _start(nics, name, device, job)
            for name, device in zip(("nica", "nicb"), devices, strict=True)
        )
        command = [sys.executable, "-m", "srdma", "perf", *job.words()]
        command += ["--json", "-p", "0", "--identity", str(folder / "host-b")]
        command += ["--worker", str(nic_b.control), "--peer", "spiffe://demo/host-a"]
        identity, peer = folder / "host-a", ["spiffe://demo/host-b"]
        mine = replace(end, identity=identity, peer=peer, worker=str(nic_a.control))
        with closing(ReceiverProcess(command)) as server:
            ports = server.line()["listening"]
            try:
                _measure(replace(job, end=mine, where=Where()), ("127.0.0.1", ports))
            finally:
                server.finish()


def _tell(json: bool, values: dict[str, Any], text: str) -> None:
    if json:
        print_json(values)
    else:
        console().print(text, markup=False)
