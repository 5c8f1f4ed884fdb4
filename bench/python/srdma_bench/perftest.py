"""Unmodified programs of perftest by `srdma run`, and `srdma perf` of the same (docs/run.md 6).

    with Hosts("apart") as hosts:
        hosts.compare(iterations=1000, rounds=7)["latency"]["srdma run"]

Two workers with a GID and an agent each. All workers and programs are pinned.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from srdma import run_policy
from srdma.context import Context
from srdma.embedded import Closing, Embedded, spawn, stop
from srdma.errors import DeviceError, LocalError
from srdma_bench.keys.agents import Agent, free_port, make_identities, policy_of
from srdma_bench.peers.servers import on
from srdma_bench.perf.counts import check_counts, gained
from srdma_bench.perf.measure import Plan, Result
from srdma_bench.series import in_turn
from srdma_bench.stand import Cores, Shape, pin, placement

AEAD = Shape("aead", "aes-128-gcm")
GIDS = {"a": "127.0.0.1", "b": "127.0.0.2"}  # name of a host, and of its identity -> GID
PEER = '[[peer]]\ngid = "{gid}"\nagent = {port}\nidentity = "spiffe://bench/{name}"\n'
RUN = (
    'worker = "{worker}"\nagent = "{agent}"\nidentity = "{name}"\nmap_memory = {mapped}\n'
    '[[peer]]\ngid = "127.0.0.0/30"\nallow = ["spiffe://bench/*"]\n'
)
LIMIT = 120.0  # seconds of a run


@dataclass(frozen=True)
class Work:
    """A test of perftest with its message size in bytes. column: of the result in its line; key: of
    the same value in the JSON of `srdma perf`; unit: its unit. weight: messages of a run for each
    of an iteration."""

    test: str
    size: int
    column: int
    key: str
    unit: str
    weight: int = 1

    @property
    def program(self) -> str:
        return f"ib_{self.test}"

    def words(self, port: int, messages: int) -> list[str]:
        """The arguments that both programs have."""
        return ["-p", str(port), "-s", str(self.size), "-n", str(messages), "-F"]

    def result(self, output: str) -> float:
        """The result in the output of the program. Raises DeviceError if it has none."""
        for line in output.splitlines():
            fields = line.split()
            if fields[:1] == [str(self.size)] and len(fields) > self.column:
                return float(fields[self.column])
        raise DeviceError(f"{self.program} printed no result: {_last(output)}")


BANDWIDTH = Work("write_bw", 65536, 3, "BW_average", "MiB/s", 10)
LATENCY = Work("write_lat", 32, 4, "t_typical", "us")  # median of half rounds
WORKS = {"bandwidth": BANDWIDTH, "latency": LATENCY}
PERF, DEFAULT, MAPPED = "srdma perf", "srdma run", "srdma run, map_memory"
WAYS = PERF, DEFAULT, MAPPED
BESIDE, APART = "beside", "apart"
PLACES = BESIDE, APART  # of programs, to their workers


def cores_of(place: str, cores: Sequence[int]) -> Cores:
    """Each process gets a core if there are four. Else each program shares the core of its worker,
    or the workers share the first core and the programs the second."""
    if place == BESIDE or not 2 <= len(cores) < 4:
        return placement(cores)
    workers, programs = frozenset(cores[:1]), frozenset(cores[1:2])
    return Cores(workers, programs, workers, programs)


def missing() -> str:
    """The reason why nothing can be measured here; "" if it can."""
    for work in WORKS.values():
        if not shutil.which(work.program):
            return f"{work.program} is not installed: install the package perftest"
    return ""


class Hosts(Closing):
    """Two workers and agents. place: one of PLACES. The constructor raises LocalError if a program
    is not installed."""

    def __init__(self, place: str) -> None:
        if why := missing():
            raise LocalError(why)
        run_policy.find_library()
        self._cores = cores_of(place, sorted(os.sched_getaffinity(0)))
        with ExitStack() as stack:
            nics = stack.enter_context(Embedded())
            self._folder = nics.folder
            make_identities(nics.folder, list(GIDS))
            port = free_port()
            peers = "".join(PEER.format(gid=g, port=port, name=n) for n, g in GIDS.items())
            self._controls: dict[str, Path] = {}
            self._agents: dict[str, Path] = {}
            self._contexts: list[Context] = []
            for name, gid in GIDS.items():
                worker = nics.start(f"nic{name}", options=["--gid", gid])
                pin(worker.pid, self._cores.worker_a if name == "a" else self._cores.worker_b)
                lines = policy_of([name], f"{gid}:{port}") + peers
                agent = Agent(nics.folder, name, worker.control, lines)
                stack.callback(agent.close)
                self._controls[name], self._agents[name] = worker.control, agent.socket
                self._contexts.append(stack.enter_context(Context(worker.control)))
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def compare(self, iterations: int, rounds: int) -> dict[str, dict[str, list[float]]]:
        """All works in all ways, in turn: name of the work -> way -> one result per round."""
        runs = {
            (name, way): partial(self.measure, way, work, iterations * work.weight)
            for name, work in WORKS.items()
            for way in WAYS
        }
        done = in_turn(runs, rounds)
        return {name: {way: done[name, way] for way in WAYS} for name in WORKS}

    def measure(self, way: str, work: Work, messages: int) -> float:
        """One run. way: one of WAYS. Raises IntegrityError if the workers' counters do not match
        the messages, DeviceError if a program fails."""
        if way == PERF:
            return self.perf(work, messages)
        return self.perftest(work, messages, mapped=way == MAPPED)

    def perftest(self, work: Work, messages: int, *, mapped: bool = False) -> float:
        """The unmodified program. mapped: with `map_memory` in run.toml."""

        def command(name: str, port: int) -> list[str]:
            run = [
                sys.executable,
                "-m",
                "srdma",
                "run",
                "--config",
                str(self._config(name, mapped)),
            ]
            return [*run, "--", work.program, *work.words(port, messages)]

        return work.result(self._run(command, work, messages))

    def perf(self, work: Work, messages: int) -> float:
        """`srdma perf` of the same test."""
        file = self._folder / "perf.json"

        def command(name: str, port: int) -> list[str]:
            perf = [sys.executable, "-m", "srdma", "perf", work.test, *work.words(port, messages)]
            words = ["--identity", name, "--worker", str(self._controls[name])]
            return [*perf, *words, *(["--out_json_file", str(file)] if name == "a" else [])]

        self._run(command, work, messages)
        return float(json.loads(file.read_text())["results"][work.key])

    def _config(self, name: str, mapped: bool) -> Path:
        path = self._folder / f"run-{name}.toml"
        path.write_text(
            RUN.format(
                worker=self._controls[name], agent=self._agents[name], name=name,
                mapped=str(mapped).lower(),
            )
        )  # fmt: skip
        path.chmod(0o600)
        return path

    def _run(self, command: Callable[[str, int], list[str]], work: Work, messages: int) -> str:
        """Run the server at host B and the client at host A. Returns what the client printed."""
        before, start, port = self._stats(), time.monotonic_ns(), free_port()
        server = self._start("b", command("b", port))
        try:
            _wait_listening(server, port)
            client = self._start("a", [*command("a", port), "127.0.0.1"])
            try:
                output = _output(client)
            finally:
                stop(client)
            _output(server)
        finally:
            stop(server)
        took = time.monotonic_ns() - start
        counts = [gained(*pair) for pair in zip(before, self._stats(), strict=True)]
        check_counts(AEAD, Result(Plan(work.test, work.size), messages, took), *counts)
        return output

    def _stats(self) -> list[dict[str, int]]:
        return [context.stats() for context in self._contexts]

    def _start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        cores = self._cores.host_a if name == "a" else self._cores.host_b
        with on(cores):
            return spawn(
                ["env", f"SRDMA_AGENT={self._agents[name]}", *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )


def _last(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else "no output"


def _output(process: subprocess.Popen[bytes]) -> str:
    """All output of a process at its end. Raises DeviceError if it fails or does not end."""
    try:
        output = process.communicate(timeout=LIMIT)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        raise DeviceError(f"a run did not end in {LIMIT:g} s") from None
    if process.returncode:
        raise DeviceError(f"a program ended with {process.returncode}: {_last(output)}")
    return output


def _wait_listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the TCP port has a listener. Raises DeviceError if the process ends before, or if
    it takes too long."""
    deadline = time.monotonic() + LIMIT
    while not _listens(port):
        if process.poll() is not None:
            raise DeviceError(f"the server ended without a client: {_last(_output(process))}")
        if time.monotonic() > deadline:
            raise DeviceError(f"the server did not listen in {LIMIT:g} s")
        time.sleep(0.01)


def _listens(port: int) -> bool:
    """A connection would be taken by the program as that of its client, so the kernel is asked."""
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        if (path := Path("/proc/net") / name).exists()
        for line in path.read_text().splitlines()
    ]
    return any(words[1].endswith(f":{port:04X}") and words[3] == "0A" for words in lines)
