"""A host and its NIC for tests: `srdma agent --proxy` of the host, `srdma agent` of the NIC."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from srdma.agent.access import worker_connection
from srdma.agent.client import SystemAgent
from srdma.control import Control
from srdma.errors import NoWorkerError
from srdma.identity import create_ca, issue
from tests.e2e.agents import Agent, launch
from tests.e2e.conftest import WAIT, A, B
from tests.ports import free_port

NIC, LEFT, RIGHT = "spiffe://test/nic", "spiffe://test/left", "spiffe://test/right"

POLICY = """worker = "{worker}"
socket = "{folder}/agent-nic-{name}.sock"
listen = "127.0.0.1:{own}"
[control]
listen = "127.0.0.1:{port}"
path = "nic"
[[identity]]
name = "host-{name}"
path = "{name}"
peers = ["spiffe://test/*"]
{hosts}"""
HOST = """[[host]]
name = "{host}"
identity = "{identity}"
identities = ["host-{name}"]
{more}
"""
PROXY = """socket = "{socket}"
mode = 0o666
nic = "127.0.0.1:{port}"
control = "{name}"
peer = "{peer}"
[[identity]]
name = "{identity}"
users = [{users}]
"""


@dataclass
class Proxy(Agent):
    """A running `srdma agent --proxy`. lines: its audit lines up to `started`."""

    lines: list[dict[str, object]] = field(default_factory=list)

    def start(self, *, wait: bool = True) -> None:
        """wait: until it has tried to reach the NIC."""
        command = [sys.executable, "-m", "srdma", "agent", "--proxy", str(self.policy)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        self.lines = []
        while wait and (not self.lines or self.lines[-1]["event"] != "started"):
            self.lines.append(json.loads(self.process.stderr.readline()))

    def connect(self, worker: Path, timeout: float = WAIT) -> Control:
        """A connection of a program of this host to the worker of the NIC."""
        passed = worker_connection(SystemAgent(self.socket), worker, timeout)
        assert passed.remote and passed.lasting
        return passed.control


@dataclass
class Nic:
    """The computer of a worker, and what its hosts need to reach it."""

    name: str
    folder: Path
    worker: Path
    port: int
    agent: Agent
    undo: contextlib.ExitStack

    def proxy(
        self, name: str = "left", *, peer: str = NIC, users: tuple[int, ...] = (), wait: bool = True
    ) -> Proxy:
        """The proxy of a host, with the files of this name. wait: see Proxy.start()."""
        file, socket = self.folder / f"proxy-{name}.toml", self.folder / f"{name}.sock"
        mine = ", ".join(map(str, users or (os.geteuid(),)))
        values = {"socket": socket, "port": self.port, "name": name, "peer": peer}
        file.write_text(PROXY.format(**values, users=mine, identity=f"host-{self.name}"))
        proxy = Proxy(file, socket, None)  # type: ignore[arg-type]
        proxy.start(wait=wait)
        self.undo.callback(proxy.kill)
        return proxy


def make_files(folder: Path) -> None:
    """Identities of two hosts, their NICs and proxies. One CA issues all."""
    create_ca(folder, "test")
    names = {"nic": NIC, "left": LEFT, "right": RIGHT, "a": A, "b": B}
    for name, identity in names.items():
        issue(folder, identity, folder / name)


@contextlib.contextmanager
def nic_of(folder: Path, name: str, worker: Path, **more: str) -> Iterator[Nic]:
    """The NIC of a worker, for programs with the identity host-NAME of the hosts left and right.
    more: lines of their entries."""
    port = free_port()
    hosts = "".join(
        HOST.format(name=name, host=host, identity=identity, more=more.get(host, ""))
        for host, identity in (("left", LEFT), ("right", RIGHT))
    )
    policy = folder / f"nic-{name}.toml"
    values = {"worker": worker, "folder": folder, "port": port, "name": name, "own": free_port()}
    policy.write_text(POLICY.format(**values, hosts=hosts))
    with contextlib.ExitStack() as stack:
        agent = Agent(policy, folder / f"agent-nic-{name}.sock", launch(policy))
        stack.callback(agent.kill)
        yield Nic(name, folder, worker, port, agent, stack)


def on_another_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process finds no control socket of a worker in its file system."""

    def connect(path: Path, *_: object) -> Control:
        raise NoWorkerError(f"no worker at {path}") from FileNotFoundError(errno.ENOENT, "absent")

    monkeypatch.setattr(Control, "connect", connect)
