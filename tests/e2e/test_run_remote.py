"""Unmodified programs of hosts whose agents are on other computers (control-link.md): all but the
leg, which needs an RDMA device (near_agent.py)."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from srdma.agent.client import message_of
from srdma.control import Control
from srdma.errors import NoWorkerError
from tests import daemon
from tests.e2e.agents import Agent, gid_hosts
from tests.e2e.nic import HOST, LEFT, RIGHT, Nic, Proxy, make_files
from tests.e2e.test_run import LIBRARY, Hosts, runs_protected, sees_the_end
from tests.e2e.test_run_cm import receiver, send_until_they_end, udaddy
from tests.e2e.test_run_cm import runs_protected as runs_protected_by_cm
from tests.ports import free_port
from tests.unix_server import UnixServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LIBRARY.exists(), reason="no build/run/libibverbs.so.1: make run"),
]

CONTROL = '[control]\nlisten = "127.0.0.1:{port}"\npath = "nic"\n'
ENDS = {"a": ("left", LEFT), "b": ("right", RIGHT)}  # name of a NIC -> its host


@dataclass
class FarHosts(Hosts):
    """Hosts whose programs have a proxy as their agent."""

    proxies: list[Proxy] = field(default_factory=list)

    def config(self, name: str, **narrowed: str) -> Path:
        proxy = self.folder / f"{ENDS[name][0]}.sock"
        return super().config(name, **{"agent": str(proxy)} | narrowed)


def far(agent: Agent, name: str, port: int) -> None:
    """The agent becomes that of a NIC."""
    host, identity = ENDS[name]
    agent.kill()
    more = HOST.format(name=name, host=host, identity=identity, more="")
    agent.policy.write_text(agent.policy.read_text() + CONTROL.format(port=port) + more)
    command = [sys.executable, "-m", "tests.e2e.near_agent", str(agent.policy)]
    agent.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert agent.process.stderr
    while json.loads(agent.process.stderr.readline())["event"] != "started":
        pass


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarHosts]:
    files, folder = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("far")
    make_files(files)
    for file in files.glob("*.*"):
        (folder / file.name).write_bytes(file.read_bytes())
    with gid_hosts(files, folder) as place, contextlib.ExitStack() as stack:
        hosts = FarHosts(place, folder)
        for name, agent in zip("ab", place.agents, strict=True):
            port = free_port()
            far(agent, name, port)
            nic = Nic(name, folder, Path(), port, agent, stack)
            hosts.proxies.append(nic.proxy(ENDS[name][0]))
        yield hosts


@pytest.mark.parametrize(
    "words",
    [
        "ibv_ud_pingpong -g 0 -n 50",
        pytest.param("ib_send_lat -c UD -n 100", marks=pytest.mark.soak),
        pytest.param("ib_send_bw -c UD -q 4 -n 500", marks=pytest.mark.soak),
        pytest.param("ib_write_bw -n 100", marks=pytest.mark.soak),
    ],
)
def test_programs_run_protected(hosts: Hosts, words: str) -> None:
    runs_protected(hosts, words.split())


@pytest.mark.soak
def test_ud_by_rdma_cm(hosts: Hosts) -> None:
    runs_protected_by_cm(hosts, *udaddy())


def test_members_whose_links_end(hosts: FarHosts) -> None:
    """A multicast group. They serve their UD QPs and use the group again by the next links
    (control-link.md 2.5)."""
    receivers = [receiver(hosts, name) for name in ("b", "a")]
    for proxy in hosts.proxies:
        proxy.kill()
        proxy.start()
    send_until_they_end(hosts, receivers)


@pytest.mark.soak
def test_end_of_a_worker_to_which_programs_come_back(hosts: Hosts, tmp_path: Path) -> None:
    """Another connection is tried for 30 s (control-link.md 2.5). Connections to the worker, which
    the program does not find, come from an agent of the test."""
    with daemon.worker(tmp_path, "gone", "--gid", "127.0.0.9") as worker:

        def pass_on(program: socket.socket) -> None:
            with program, contextlib.suppress(NoWorkerError):
                program.recv(4096)
                with contextlib.closing(Control.connect(worker.control)) as control:
                    opened = {"event": "opened", "lasting": True}
                    socket.send_fds(program, [message_of(opened)], [control.fileno()])

        with contextlib.closing(UnixServer(tmp_path / "agent.sock", pass_on)):
            narrowed = {"worker": "/nic/worker.sock", "agent": str(tmp_path / "agent.sock")}
            sees_the_end(hosts, "worker_waits pd", worker, **narrowed)
