"""Hosts and NICs (tests/smartnic/plan.py). This machine has host 0, and host 1 or not."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

import srdma
from srdma.demo.stage import HostProcess
from tests.rxe.inside.conftest import connected, memory, pd  # noqa: F401
from tests.rxe.ports import configure
from tests.rxe.tcp_host import PORT as TCP_PORT
from tests.rxe.tcp_host import TcpHost
from tests.smartnic import control, identities, plan
from tests.smartnic.capture import Capture
from tests.smartnic.service import PATIENCE, Here, Program, ScriptError, Service, Shell

SCRATCH = Path(os.environ.get("SRDMA_VM_SCRATCH", "."))
LISTENERS = "rdma resource show cm_id"
RPING = "rping -V -S 4096 -C 4 -p 7174"
HOST_B = "tests.rxe.inside.host_b"
EPOCH = 500  # packets of a QP until its key changes; srdma-offload's default needs gigabytes
PROXIES = [Path(f"/run/nic{number}.sock") for number in range(plan.NICS)]  # their sockets

Host = TypeVar("Host", HostProcess, TcpHost)


@pytest.fixture(scope="session")
def options() -> dict[str, Any]:
    """The options of stand.py."""
    file = SCRATCH / "stand.json"
    if not file.exists():
        pytest.skip("needs the machines of tests/smartnic/stand.py")
    return json.loads(file.read_text())


@pytest.fixture(scope="session")
def hosts(options: dict[str, Any]) -> list[Shell]:
    """The machine of each host; both are this one if there is only one x86 machine."""
    machines = options["hosts"]
    configure(plan.hosts(machines)[0].values())
    identities.install(SCRATCH)
    if machines == 1:
        return [Here()] * 2
    far = Service(plan.test_address(1))
    far.wait_until_up()
    return [Here(), far]


@pytest.fixture(scope="session")
def nics(hosts: list[Shell]) -> list[Service]:
    """The services of the NICs."""
    found = [Service(plan.service_address(number)) for number in range(plan.NICS)]
    if isinstance(hosts[1], Service):
        found[1] = Service(plan.test_address(1), plan.FORWARD_PORT)
    for nic in found:
        nic.wait_until_up()
    return found


@pytest.fixture(scope="session")
def clocks(nics: list[Service]) -> list[int]:
    """The times of day of the NICs before `stage` sets them."""
    return [int(nic.run("date +%s")) for nic in nics]


@pytest.fixture
def wire() -> Capture:
    """The frames between the NICs from now on."""
    return Capture(SCRATCH / "wire.pcap")


@pytest.fixture(scope="session")
def workers(nics: list[Service]) -> list[Program]:
    """A worker on each NIC. They answer."""
    return [start_worker(nic, number) for number, nic in enumerate(nics)]


def start_worker(nic: Service, number: int) -> Program:
    """Starts a worker, and waits until it answers."""
    devices = ["--host-dev", plan.NIC_LEG_DEVICE, "--wire-dev", plan.NIC_WIRE_DEVICE]
    listen = ["--host-listen", plan.nic_leg_address(number)]
    listen += ["--wire-listen", f"{plan.wire_address(number)}:0"]
    own = ["--name", f"nic{number}", "--control", control.WORKER, "--rekey-packets", str(EPOCH)]
    worker = nic.start("worker", "srdma-offload", *own, *devices, *listen)
    eventually("the worker answers", partial(nic.run, f"hello {control.WORKER}"), worker)
    return worker


class Pair(NamedTuple):
    """The workers as programs of their hosts name them: control sockets of proxies, or of NICs."""

    a: Path
    b: Path


class NicStage(NamedTuple):
    """As srdma.demo.rxe_stage.RxeStage, for the fixtures of tests/rxe/inside.

    identities: their folder, or none if programs give names. agent: the place of the agents, "host"
    or "nic".
    """

    secure: Pair
    identities: Path
    agent: str
    patience: float = 120.0


@pytest.fixture(scope="session")
def stage(
    options: dict[str, Any],
    hosts: list[Shell],
    nics: list[Service],
    workers: list[Program],
    clocks: list[int],
) -> NicStage:
    """The workers of the NICs, as their hosts see them."""
    agent = options["agent"]
    for number, socket in enumerate(PROXIES):
        control.set_clock(nics[number])
        control.start(nics[number], number, agent)
        file = control.proxy_file(hosts[number], number, agent, socket)
        words = [sys.executable, "-m", "srdma", "agent", "--proxy", file]
        proxy = start_here(hosts[number], f"proxy{number}", *words)
        eventually("the proxy is linked", partial(is_linked, proxy), proxy)
    if agent == "host":
        return NicStage(Pair(*PROXIES), identities.ON_HOST / "programs", agent)
    os.environ["SRDMA_AGENT"] = str(PROXIES[0])
    return NicStage(Pair(*[Path(control.WORKER)] * plan.NICS), Path(), agent)


def is_linked(proxy: Program) -> bool:
    return '"linked"' in proxy.log() and '"started"' in proxy.log()


@pytest.fixture(scope="session")
def host_b(hosts: list[Shell], stage: NicStage) -> Iterator[HostProcess | TcpHost]:
    """Host B in the machine of host 1."""
    if hosts[0] is hosts[1]:
        with closing(HostProcess(HOST_B)) as host:
            host.wait_until_up()
            yield with_agent(host, stage)
        return
    python = f"{sys.executable} -m {HOST_B}"
    start_here(hosts[1], "host_b", *f"busybox nc -ll -p {TCP_PORT} -e {python}".split())
    with closing(TcpHost(plan.test_address(1), PATIENCE, PATIENCE)) as far:
        far.answer()  # it is up
        yield with_agent(far, stage)


def with_agent(host: Host, stage: NicStage) -> Host:
    """Host B, which uses the agent of its NIC if that is there."""
    if stage.agent == "nic":
        host.ask("use_agent", path=str(PROXIES[1]))
    return host


def start_here(host: Shell, name: str, *words: str) -> Program:
    """Starts a program with the modules of the source tree, which every x86 machine has."""
    return host.start(name, "env", f"PYTHONPATH={os.getcwd()}", *words)


def eventually(what: str, check: Callable[[], object], program: Program | None = None) -> None:
    """Waits until check() is true and raises no error of a script or of srdma. After PATIENCE the
    error has the log of the program."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if check():
                return
            why = ""
        except (ScriptError, srdma.Error) as error:
            why = str(error)
        if time.monotonic() > deadline:
            log = program.log() if program else ""
            pytest.fail(f"not within {PATIENCE} s: {what} {why}\n{log}")
        time.sleep(0.5)


def rping(client: Shell, nic: Service, address: str) -> None:
    """Data goes back and forth between the client and an address of the NIC, over an RC connection.

    A NIC that booted again has the QPNs of its former connections. Their other end refuses them
    (stale connection) while it has these, and ends these then. So an attempt may fail.
    """

    def attempt() -> str:
        server = nic.start("rping", *f"{RPING} -s -a {address}".split())
        try:
            eventually("rping listens", lambda: "LISTEN" in nic.run(LISTENERS), server)
            return client.run(f"{RPING} -c -a {address} && echo done")
        finally:
            server.kill()

    eventually("rping connects", attempt)
