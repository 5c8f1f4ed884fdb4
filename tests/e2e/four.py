"""Two hosts with traffic and two workers. Each of the four can be killed and is then replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from srdma._engine.frames import ask, read_frame, write_frame
from srdma.demo.stage import make_identities
from srdma.embedded import Embedded, Worker
from tests.e2e.leftovers import place
from tests.e2e.traffic import CONNECT, LIMIT, QP_TIMEOUT

LATE = 5.0  # seconds after the deadline; long enough for a busy machine


class HostProcess:
    """One host with traffic."""

    def __init__(self, env: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.traffic"],
            env=env,
            stdin=pipe,
            stdout=pipe,
            cwd=Path(__file__).parents[2],
        )
        assert self.process.stdin and self.process.stdout
        self.fds = self.process.stdin.fileno(), self.process.stdout.fileno()
        assert self.next() == {"up": True}

    def next(self) -> dict[str, Any]:
        frame = read_frame(self.fds[1], CONNECT + LIMIT + 20)
        assert frame is not None
        return frame

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


class Four:
    """The four processes. A process that was killed is replaced."""

    def __init__(
        self, env: dict[str, str], identities: Path, start_worker: Callable[[str], Worker],
        qp_timeout: float = QP_TIMEOUT,
    ) -> None:  # fmt: skip
        """start_worker(end) starts the worker of end "A" or "B". A successor may have another
        name."""
        self._env = env
        self._identities = identities
        self._start_worker = start_worker
        self.qp_timeout = qp_timeout
        self.workers: dict[str, Worker] = {}
        self.hosts: dict[str, HostProcess] = {}
        for end in "AB":
            self._renew(f"NIC {end}")
            self._renew(f"host {end}")

    def _renew(self, who: str) -> None:
        kind, end = who.split()
        if kind == "NIC":
            self.workers[end] = self._start_worker(end)
            return
        if end in self.hosts:
            self.hosts[end].close()
        self.hosts[end] = HostProcess(self._env)

    def pid(self, who: str) -> int:
        kind, end = who.split()
        return self.workers[end].pid if kind == "NIC" else self.hosts[end].process.pid

    def start(self) -> None:
        """Starts the traffic of both hosts and waits until data flows at both."""
        words = {
            end: {
                "worker": str(self.workers[end].control),
                "identity": str(self._identities / f"host-{end.lower()}"),
                "qp_timeout": self.qp_timeout,
            }
            for end in "AB"
        }
        address = ask(self.hosts["B"].fds, {"do": "listen", **words["B"]})["address"]
        write_frame(self.hosts["B"].fds[0], {"do": "run"})
        write_frame(self.hosts["A"].fds[0], {"do": "run", "address": address, **words["A"]})
        for host in self.hosts.values():
            assert (said := host.next()) == {"running": True}, said

    def kill(self, who: str) -> dict[str, dict[str, Any]]:
        """Kills a process. Returns the reports of the surviving hosts about their work requests."""
        os.kill(self.pid(who), signal.SIGKILL)
        alive = [end for end in "AB" if who != f"host {end}"]
        ends = {end: self.hosts[end].next() for end in alive}
        self._renew(who)
        return ends

    def descriptors(self, who: str) -> int:
        return len(os.listdir(f"/proc/{self.pid(who)}/fd"))

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()


Start = Callable[[Embedded, str], Worker]  # starts the worker of an end


def start_shm(nics: Embedded, end: str) -> Worker:
    return nics.start(f"nic{end.lower()}")


def start_udp(nics: Embedded, end: str) -> Worker:
    """Starts a worker at a loopback address that only this process uses."""
    high, low = divmod(os.getpid() & 0xFFFF, 256)
    words = ["--wire-dev", "udp", "--wire-listen", f"127.{100 + ord(end)}.{high}.{low}"]
    return nics.launch(f"nic{end.lower()}", words)


@contextmanager
def embedded_four(start: Start, qp_timeout: float = QP_TIMEOUT) -> Iterator[tuple[Four, Embedded]]:
    """The four on this machine. At the end none of their processes or files may be left."""
    with place() as here, pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("TMPDIR", str(here.folder))
        patch.setattr(tempfile, "tempdir", str(here.folder))
        nics = stack.enter_context(Embedded())
        identities = make_identities(nics.folder / "identities")
        four = Four(here.env, identities, lambda end: start(nics, end), qp_timeout)
        stack.callback(four.close)
        yield four, nics


def judge(said: dict[str, Any], reasons: set[str], qp_timeout: float = QP_TIMEOUT) -> int:
    """Checks a host's report: each work request completed once and in time, and the QP failed with
    one of `reasons`.

    Returns how many requests failed. This may be 0, if all had just completed when the QP failed.
    """
    assert "failed" not in said, said
    assert said["outstanding"] == 0 and said["twice"] == 0, said
    assert said["reason"] in reasons, said
    assert said["slowest"] < qp_timeout + LATE, said
    return sum(n for status, n in said["ends"].items() if status != "SUCCESS")
