"""redis and memcached with TLS, and their clients in bench/, all on this machine.

The servers run as children of this process with the certificates of a stand, without system
services and without data files.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import resource
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srdma.embedded import spawn, stop
from srdma.errors import DeviceError
from srdma_bench.perf.measure import cpu_ns
from srdma_bench.primitives import program, said

START_TIMEOUT = 10.0
HOST = "127.0.0.1"
SUITE = "TLS_AES_128_GCM_SHA256"
LOADING = 64  # outstanding requests while keys are loaded


@dataclass(frozen=True)
class Measured:
    """One run. rate: requests or round trips per second; for a stream bytes per second. cpu: ns of
    all processes per request, round trip or message."""

    rate: float
    p50_us: float
    p99_us: float
    cpu: float


@contextmanager
def on(cores: frozenset[int]) -> Iterator[None]:
    """Pin this thread, and thereby processes that it starts, to these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# TLS alone ---------------------------------------------------------------------------


def tls_echo(folder: Path, kind: str, size: int, how: Sequence[str], seconds: float) -> Measured:
    """Run bench/tls_echo. kind: echo or stream; size: bytes; how: block or spin, and the cores of
    both ends (-1: any)."""
    run = json.loads(said([program("tls_echo"), folder, kind, str(size), str(seconds), *how]))
    count = run["rounds"] * (size if kind == "stream" else 1)
    return _measured(run, count, run["cpu_client"] + run["cpu_server"])


def _measured(run: dict[str, Any], count: int, cpu: float) -> Measured:
    rate = count / run["ns"] * 1e9
    return Measured(rate, run["p50_ns"] / 1000, run["p99_ns"] / 1000, cpu / run["rounds"])


# Stores ------------------------------------------------------------------------------


class Store:
    """A server with keys loaded. The constructor raises DeviceError if it does not start."""

    name: str
    program: str

    def __init__(self, folder: Path, keys: int) -> None:
        self.folder, self.keys = folder, keys
        self.port = _free_port()
        self._log = open(folder / f"{self.name}.log", "wb")  # noqa: SIM115, close() closes it
        self._process = spawn(self._command(folder / "host-b"), stdout=self._log, stderr=self._log)
        try:
            self._wait_until_up()
            self.load(1, LOADING, reads=0, seconds=0)
        except BaseException:
            self.close()
            raise

    @classmethod
    def missing(cls) -> str:
        """The reason why it cannot run here; "" if it can."""
        if shutil.which(cls.program):
            return ""
        return f"{cls.program} is not installed (.ci/setup bench)"

    def _command(self, own: Path) -> list[str | Path]:
        raise NotImplementedError

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection((HOST, self.port)).close()
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                words = Path(self._log.name).read_text(errors="replace").strip()[-300:]
                raise DeviceError(f"{self.name} did not start: {words or 'its log is empty'}")
            time.sleep(0.01)

    def load(self, connections: int, depth: int, reads: int, seconds: float) -> Measured:
        """Run bench/tls_load, one process with all clients. reads: percent; seconds 0: SET each
        key once."""
        server = (self.port, self._process.pid, self.name)
        words = (*server, connections, depth, self.keys, reads, seconds)
        run = json.loads(said([program("tls_load"), self.folder, *(str(w) for w in words)]))
        return _measured(run, run["rounds"], run["cpu_client"] + run["cpu_server"])

    def close(self) -> None:
        stop(self._process)
        self._log.close()


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Redis(Store):
    """redis with its default of one thread."""

    name, program = "redis", "redis-server"

    def _command(self, own: Path) -> list[str | Path]:
        return [
            self.program, "--port", "0", "--bind", HOST, "--tls-port", str(self.port),
            "--tls-cert-file", f"{own}.pem", "--tls-key-file", f"{own}.key",
            "--tls-ca-cert-file", own.with_name("ca.pem"), "--tls-auth-clients", "yes",
            "--tls-protocols", "TLSv1.3", "--tls-ciphersuites", SUITE, "--save", "",
            "--appendonly", "no", "--dir", own.parent,
        ]  # fmt: skip

    def benchmark(self, connections: int, depth: int, seconds: float, rate: float) -> Measured:
        """Run redis-benchmark with GETs only. It sends `depth` requests together and waits for all
        responses; its CPU time includes its TLS handshakes. rate: expected requests per second,
        which determines the number of requests."""
        own, before = self.folder / "host-a", cpu_ns(self._process.pid)
        children, requests = _children_cpu(), max(1000, int(rate * seconds))
        command: list[str | Path] = [
            "redis-benchmark", "--tls", "--tls-ciphersuites", SUITE, "--cert", f"{own}.pem",
            "--key", f"{own}.key", "--cacert", own.with_name("ca.pem"), "-h", HOST,
            "-p", str(self.port), "-c", str(connections), "-P", str(depth),
            "-r", str(self.keys), "-t", "get",
            "-n", str(requests), "--csv",
        ]  # fmt: skip
        *_, row = csv.DictReader(said(command).splitlines())
        rps = float(row["rps"])
        spent = cpu_ns(self._process.pid) - before + _children_cpu() - children
        p50, p99 = (float(row[f"{name}_latency_ms"]) * 1000 for name in ("p50", "p99"))
        return Measured(rps, p50, p99, spent / requests)


def _children_cpu() -> float:
    """CPU time of all children that have ended, in ns."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e9


class Memcached(Store):
    """memcached with two threads, because two cores are available for it."""

    name, program = "memcached", "memcached"

    def _command(self, own: Path) -> list[str | Path]:
        tls = {
            "ssl_chain_cert": f"{own}.pem", "ssl_key": f"{own}.key",
            "ssl_ca_cert": own.with_name("ca.pem"), "ssl_verify_mode": 2, "ssl_min_version": 3,
        }  # fmt: skip
        return [
            self.program, "-u", "root", "-l", HOST, "-p", str(self.port), "-U", "0", "-t", "2",
            "-m", "4096", "-Z", "-o", ",".join(f"{name}={value}" for name, value in tls.items()),
        ]  # fmt: skip
