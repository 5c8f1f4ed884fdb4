"""The control link between a host and its NIC (docs/control-link.md), with the agents on either
side: `srdma agent` on the NIC, or srdma-control there and agents on the host. On the host it is
`srdma agent --proxy`."""

from __future__ import annotations

import time
from pathlib import Path

from tests.smartnic import plan
from tests.smartnic.identities import ON_HOST, ON_NIC, PROGRAMS, control_uri
from tests.smartnic.service import Program, Service, Shell

PORT, AGENT_PORT = 4794, 4793
LISTEN_PORTS = "7000-7099"  # of a NIC, for the programs of its host
WORKER = "/run/worker.ctl"  # control socket of a NIC's worker
POLICY, KEY_LOG = "/run/agent.toml", "/run/key.log"  # of a NIC's agent
AGENT = """worker = "{worker}"
socket = "/run/agent.sock"
key_log = true
listen = "{wire}:{agent_port}"
[control]
listen = "{nic}:{port}"
path = "{identities}/control/nic{number}"
[[host]]
name = "host{number}"
identity = "{peer}"
identities = ["{program}"]
listen = ["{wire}:{ports}"]
[[identity]]
name = "{program}"
path = "{identities}/programs/{program}"
"""
FORWARD = """forward = "{socket}"
worker = "{worker}"
"""
SOCKET = """socket = "{socket}"
[[identity]]
name = "{program}"
"""
LINK = """nic = "{nic}:{port}"
control = "{identities}/control/host{number}"
peer = "{peer}"
"""


def set_clock(nic: Service) -> None:
    """As a time service does."""
    nic.run(f"date -s @{int(time.time())}")


def start(nic: Service, number: int, agent: str) -> Program:
    """The NIC's end of the link, on a NIC with a worker. agent: as in stand.py."""
    return _start_agent(nic, number) if agent == "nic" else _start_control(nic, number)


def _start_control(nic: Service, number: int) -> Program:
    name = ON_NIC / f"control/nic{number}"
    listen = ["--listen", f"{plan.service_address(number)}:{PORT}", "--control", WORKER]
    own = ["--cert", f"{name}.pem", "--key", f"{name}.key", "--ca", str(name.with_name("ca.pem"))]
    peer = control_uri("host", number)
    return nic.start("control", "srdma-control", *listen, *own, "--peer", peer)


def _start_agent(nic: Service, number: int) -> Program:
    text = AGENT.format(
        **_values(number, "host"),
        identities=ON_NIC,
        wire=plan.wire_address(number),
        agent_port=AGENT_PORT,
        ports=LISTEN_PORTS,
    )
    nic.write(POLICY, text.encode())
    words = ["python3", "-m", "srdma", "agent", "--config", POLICY, "--key-log", KEY_LOG]
    return nic.start("agent", *words)


def _values(number: int, peer: str) -> dict[str, object]:
    """Values in the files of both ends. peer: the kind of the other one."""
    return {
        "number": number,
        "worker": WORKER,
        "nic": plan.service_address(number),
        "port": PORT,
        "peer": control_uri(peer, number),
        "program": PROGRAMS[number],
    }


def proxy_file(host: Shell, number: int, agent: str, socket: Path) -> str:
    """Writes the file of the proxy of a host, which listens at `socket`. Returns its path."""
    text = LINK + (SOCKET if agent == "nic" else FORWARD)
    values = {**_values(number, "nic"), "identities": ON_HOST, "socket": socket}
    path = f"/run/proxy{number}.toml"
    host.write(path, text.format(**values).encode())
    return path
