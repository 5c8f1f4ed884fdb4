"""The control link between a host and its NIC (docs/control-link.md 7): srdma-control on the NIC,
`srdma agent --proxy` with `forward` on the host."""

from __future__ import annotations

import time
from pathlib import Path

from srdma.identity import create_ca, issue
from tests.smartnic import plan
from tests.smartnic.service import Program, Service, Shell

PORT = 4794
WORKER = "/run/worker.ctl"  # control socket of a NIC's worker
FILES = "/run/control"  # folder on each machine
NIC, HOST = "spiffe://stand/nic{}", "spiffe://stand/host{}/control"
PROXY = """forward = "{forward}"
worker = "{worker}"
nic = "{nic}:{port}"
control = "host{number}"
peer = "{peer}"
"""


def make_identities(folder: Path) -> None:
    """A CA, and identities of both NICs and of the proxies of both hosts."""
    create_ca(folder, "stand")
    for number in range(plan.NICS):
        issue(folder, NIC.format(number), folder / f"nic{number}")
        issue(folder, HOST.format(number), folder / f"host{number}")


def _give(machine: Shell, folder: Path, name: str) -> None:
    """Copies the identity `name` and the CA to a machine."""
    machine.run(f"mkdir -p {FILES}")
    for file in (f"{name}.pem", f"{name}.key", "ca.pem"):
        machine.write(f"{FILES}/{file}", (folder / file).read_bytes())


def set_clock(nic: Service) -> None:
    """As a time service does."""
    nic.run(f"date -s @{int(time.time())}")


def start_control(nic: Service, number: int, folder: Path) -> Program:
    """folder: that of make_identities()."""
    _give(nic, folder, f"nic{number}")
    name = f"{FILES}/nic{number}"
    listen = ["--listen", f"{plan.service_address(number)}:{PORT}", "--control", WORKER]
    own = ["--cert", f"{name}.pem", "--key", f"{name}.key", "--ca", f"{FILES}/ca.pem"]
    return nic.start("control", "srdma-control", *listen, *own, "--peer", HOST.format(number))


def proxy_file(host: Shell, number: int, folder: Path, forward: Path) -> str:
    """Writes the file of the proxy of a host. Returns its path. forward: the control socket."""
    _give(host, folder, f"host{number}")
    text = PROXY.format(
        forward=forward,
        worker=WORKER,
        number=number,
        nic=plan.service_address(number),
        port=PORT,
        peer=NIC.format(number),
    )
    path = f"{FILES}/proxy{number}.toml"
    host.write(path, text.encode())
    return path
