"""`srdma perf` when a process ends during the run: it reports the cause soon, and nothing hangs.

Goal: after kill -9 of the local worker, the peer's worker or the peer, and after any signal, in
C and in Python, both ends exit by themselves with the exit code of the end that failed.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import srdma
from srdma.cli import app as cli
from srdma.embedded import Embedded, Worker, spawn, stop
from tests.e2e.conftest import A, B
from tests.e2e.leftovers import place

LIMIT = 60.0  # seconds until a process counts as hung
BUSY = 500  # packets after which the run counts as started
LONG = ["-D", "600"]
ROUNDS = ["-n", "2000000"]
RUNS = {
    "write_bw": LONG, "read_bw": LONG, "send_bw": LONG, "write_lat": ROUNDS, "read_lat": ROUNDS,
    "send_lat": ROUNDS,
}  # fmt: skip
HOSTS: dict[str, list[str]] = {"C": [], "Python": ["--python"]}
CODES = {signal.SIGINT: cli.INTERRUPTED, signal.SIGTERM: 128 + signal.SIGTERM}


@dataclass
class Ends:
    """A server and a client during a run, and their workers."""

    a: Worker
    b: Worker
    server: subprocess.Popen[bytes]
    client: subprocess.Popen[bytes]

    def ended(self, who: str) -> tuple[int, str]:
        """Returns exit code and standard error of a process that ends by itself."""
        process = getattr(self, who)
        _, err = process.communicate(timeout=LIMIT)
        return process.returncode, err.decode()


Begin = Callable[[str, str], Ends]


@pytest.fixture
def begin(pki: Path) -> Iterator[Begin]:
    """begin(test, host of the client) starts a run with new workers."""
    children: list[subprocess.Popen[bytes]] = []

    def perf(*words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "srdma", "perf", *words]
        children.append(spawn(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return children[-1]

    with Embedded() as nics:

        def start(test: str, host: str) -> Ends:
            a, b = (nics.start(name) for name in "ab")
            ends = ["--worker", str(b.control), "--identity", str(pki / "b"), "--peer", A]
            server = perf(test, *ends, "-p", "0", "--json")
            assert server.stdout
            (port,) = json.loads(server.stdout.readline())["listening"]
            ends = ["--worker", str(a.control), "--identity", str(pki / "a"), "--peer", B]
            words = [*RUNS[test], *HOSTS[host], "-p", str(port), "127.0.0.1"]
            client = perf(test, *words, *ends)
            wait_until_busy(a, client)
            return Ends(a, b, server, client)

        try:
            yield start
        finally:
            for child in children:
                stop(child)
                child.communicate()


def wait_until_busy(worker: Worker, client: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + LIMIT
    with srdma.Context(worker.control) as ctx:
        while ctx.stats()["packets_sealed"] < BUSY:
            assert client.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("whose", "other", "test", "host"),
    [
        *(("client", "server", test, "C") for test in RUNS),
        ("client", "server", "write_bw", "Python"),
        ("server", "client", "send_bw", "C"),
        ("server", "client", "write_lat", "Python"),
    ],
)
def test_worker_is_killed(begin: Begin, whose: str, other: str, test: str, host: str) -> None:
    ends = begin(test, host)
    (ends.a if whose == "client" else ends.b).process.kill()
    code, err = ends.ended(whose)
    assert code == cli.DEVICE and re.search("worker (is gone|(at .* )?ended)|WORKER_GONE", err), err
    code, err = ends.ended(other)
    assert code == cli.REMOTE and "WIRE_LOST" in err, err


@pytest.mark.parametrize(("test", "host"), [("read_bw", "C"), ("send_lat", "Python")])
@pytest.mark.parametrize(("victim", "other"), [("server", "client"), ("client", "server")])
def test_peer_is_killed(begin: Begin, test: str, host: str, victim: str, other: str) -> None:
    ends = begin(test, host)
    getattr(ends, victim).kill()
    code, err = ends.ended(other)
    assert code == cli.REMOTE and "PEER_" in err, err


@pytest.mark.parametrize(
    ("test", "host", "who", "number"),
    [
        ("write_bw", "C", "client", signal.SIGINT),
        ("write_lat", "C", "client", signal.SIGTERM),
        ("read_bw", "Python", "client", signal.SIGTERM),
        ("write_bw", "C", "server", signal.SIGTERM),
        ("send_bw", "C", "server", signal.SIGINT),
        ("write_lat", "Python", "server", signal.SIGTERM),
    ],
)
def test_signal_to_one_end(
    begin: Begin, test: str, host: str, who: str, number: signal.Signals
) -> None:
    ends = begin(test, host)
    getattr(ends, who).send_signal(number)
    code, err = ends.ended(who)
    assert code == CODES[number], err
    code, err = ends.ended("client" if who == "server" else "server")
    assert code == cli.REMOTE and "PEER_" in err, err


@pytest.mark.parametrize("words", [[], ["--compare"]])
@pytest.mark.parametrize("number", CODES)
def test_signal_to_the_process_group(words: list[str], number: signal.Signals) -> None:
    """With --embedded the command has workers and a server of its own. They end too, and leave no
    file."""
    command = [sys.executable, "-m", "srdma", "perf", "write_bw", "--embedded", "--json", *LONG]
    pipe = subprocess.PIPE
    with place() as here:
        child = subprocess.Popen([*command, *words], env=here.env, stdout=pipe, stderr=pipe)
        try:
            assert child.stdout and json.loads(child.stdout.readline())["test_info"]
            child.send_signal(number)
            _, err = child.communicate(timeout=LIMIT)
        finally:
            stop(child)
            child.communicate()
        assert child.returncode == CODES[number], err
