"""Hosts and NICs (tests/smartnic/plan.py). This machine has host 0, and host 1 or not."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from srdma.demo.stage import make_identities
from tests.rxe.inside.conftest import connected, host_b, pd  # noqa: F401
from tests.rxe.ports import configure
from tests.smartnic import bridge, plan
from tests.smartnic.capture import Capture
from tests.smartnic.service import PATIENCE, Here, Program, ScriptError, Service, Shell

SCRATCH = Path(os.environ.get("SRDMA_VM_SCRATCH", "."))
LISTENERS = "rdma resource show cm_id"
RPING = "rping -V -S 4096 -C 4 -p 7174"
CONTROL = "/run/worker.ctl"  # control socket of a NIC's worker


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


@pytest.fixture
def wire() -> Capture:
    """The frames between the NICs from now on."""
    return Capture(SCRATCH / "wire.pcap")


@pytest.fixture(scope="session")
def workers(nics: list[Service]) -> Iterator[list[Program]]:
    """A worker on each NIC, with control socket CONTROL. They answer."""
    found = [nic.start("worker", *worker_words(number)) for number, nic in enumerate(nics)]
    try:
        for nic, worker in zip(nics, found, strict=True):
            eventually("the worker answers", lambda nic=nic: nic.run(f"hello {CONTROL}"), worker)
        yield found
    finally:
        for worker in found:
            worker.kill()


def worker_words(number: int) -> list[str]:
    devices = ["--host-dev", plan.NIC_LEG_DEVICE, "--wire-dev", plan.NIC_WIRE_DEVICE]
    listen = ["--host-listen", plan.nic_leg_address(number)]
    listen += ["--wire-listen", f"{plan.wire_address(number)}:0"]
    return ["srdma-offload", "--name", f"nic{number}", "--control", CONTROL, *devices, *listen]


class Pair(NamedTuple):
    """The control sockets of the workers at their hosts."""

    a: Path
    b: Path


class NicStage(NamedTuple):
    """As srdma.demo.rxe_stage.RxeStage, for the fixtures of tests/rxe/inside."""

    secure: Pair
    identities: Path
    patience: float = 120.0


@pytest.fixture(scope="session")
def stage(hosts: list[Shell], nics: list[Service], workers: list[Program]) -> NicStage:
    """Hosts reach the workers of their NICs, both by this machine."""
    if hosts[0] is not hosts[1]:
        pytest.skip("host B must be in this machine")
    paths = [Path(f"/run/nic{number}.ctl") for number in range(plan.NICS)]
    for number, path in enumerate(paths):
        nc = f"nc -ll -p {bridge.PORT} -e bridge {CONTROL}"
        nics[number].start("bridge", *nc.split())
        words = [sys.executable, "-m", bridge.__name__, str(path), plan.service_address(number)]
        here = hosts[number].start(f"bridge{number}", *words)
        eventually("the bridge is up", path.exists, here)
    return NicStage(Pair(*paths), make_identities(Path("/run/identities")))


def eventually(what: str, check: Callable[[], object], program: Program | None = None) -> None:
    """Waits until check() is true and raises no ScriptError. After PATIENCE the error has the log
    of the program."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if check():
                return
            why = ""
        except ScriptError as error:
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
