"""A system agent with a port, in threads of a test, with a worker that only responds."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

from srdma.agent import port as agent_port
from srdma.agent.policy import Policy
from srdma.agent.service import Service
from srdma.agent.takeover import Keeper
from srdma.identity import Credentials
from srdma.keyex.streams import Link
from tests.keyex_players import FakeWorker, Wire, config
from tests.ports import free_port
from tests.thread_agent import ServiceThread

TOKEN = bytes(range(16))
ASKED = 0  # direction of REKEY
POLICY = """
worker = "{worker}"
socket = "agent.sock"
listen = "{address}:{port}"
clock = "trusted"
"""
IDENTITY = """
[[identity]]
name = "{name}"
path = "{name}"
users = [{uid}]
"""


class Host:
    """A system agent with a port, its worker, and its programs."""

    def __init__(
        self,
        folder: Path,
        *names: str,
        port: int | None = None,
        gid: bytes = b"",
        peers: str = "",
        address: str = "127.0.0.1",
    ) -> None:
        """names: of its identities. port: 0 for none; by default a free one. gid: of its worker.
        peers: entries [[peer]] of the policy. address: at which it listens."""
        self.worker = FakeWorker()
        self.worker.tokens, self.worker.gid = {TOKEN}, gid
        self.port = free_port() if port is None else port
        file = folder / f"{'-'.join(names)}.toml"
        text = POLICY.format(worker=self.worker.path, address=address, port=self.port)
        if not self.port:
            text = "".join(line for line in text.splitlines(True) if "listen" not in line)
        uid = os.getuid()
        self.file = file
        file.write_text(text + "".join(IDENTITY.format(name=n, uid=uid) for n in names) + peers)
        self.policy = Policy(file)
        self.audit: list[dict[str, Any]] = []
        self.wires: list[Wire] = []
        self.agent: Any = None
        self.start()

    def start(self) -> None:
        def make() -> Service:
            self._keeper = Keeper()
            service = Service(self.policy, self._tell, self._keeper, self.policy.listen)
            self._task = None
            if self.policy.listen:
                work = service.serve_port(agent_port.bound(self.policy.listen), self.policy)
                self._task = asyncio.ensure_future(work)
            return service

        self.agent = ServiceThread(make)
        self.agent.run(self.agent.service.take_over(self.worker.path))

    def _tell(self, event: str, **fields: Any) -> None:
        self.audit.append({"event": event, **fields})

    def told(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.audit if line["event"] == event]

    def open(self, settings: dict[str, Any], listening: Any = None) -> Wire:
        wire = Wire(self.agent.open())
        self.wires.append(wire)
        wire.tell(settings, [listening.fileno()] if listening else [])
        return wire

    def settings(self, role: str, name: str, qpn: int) -> dict[str, Any]:
        made = config(role, Credentials(b"", b"", b""), limit=60.0)
        for field in ("role", "cert", "key", "ca"):
            del made[field]
        made["qps"] = [made["qps"][0] | {"qpn": qpn}]
        return made | {"identity": name, "worker": str(self.worker.path), "token": TOKEN}

    def listen(self, name: str) -> tuple[Wire, tuple[str, int]]:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            wire = self.open({"do": "listen", "identity": name, "peer": []}, sock)
            assert wire.event() == {"event": "listening"}
            return wire, sock.getsockname()

    def links(self) -> list[Link]:
        return self.agent.call(lambda: [*self.agent.service.links._links])

    def completed(self) -> int:
        """How many exchanges have taken effect; sessions have one QP."""
        return sum(body[1] == ASKED for body in [*self.worker.rekeys])

    def stop(self) -> None:
        if self._task:
            self.agent.call(self._task.cancel)
        self.agent.run(self.agent.service.close(restart=True))
        self.agent.call(self._keeper.close)
        self.agent.close()

    def close(self) -> None:
        self.stop()
        for wire in self.wires:
            wire.sock.close()
        self.worker.close()
        assert not self.told("fault") and not self.agent.faults, self.audit


def session(
    a: Host, b: Host, name: str = "b", qpn: int = 0x100, client: str = "a"
) -> tuple[Wire, Wire, Wire]:
    """A session of a, the client, with an identity of b. The third wire is b's listener."""
    listener, address = b.listen(name)
    left = a.open(a.settings("client", client, qpn) | {"do": "connect", "address": [*address]})
    arrival = listener.event()["arrival"]
    right = b.open(b.settings("server", name, qpn) | {"do": "accept", "arrival": arrival})
    for wire in (left, right):
        assert [wire.event()["event"], wire.event()["event"]] == ["peer", "ready"]
    return left, right, listener


def renews(wire: Wire, wish: int) -> None:
    wire.tell({"do": "renew", "wish": wish})
    event = wire.event()
    assert (event["event"], event["wish"]) == ("renewed", wish)


def cut(host: Host) -> None:
    for link in host.links():
        host.agent.call(link.drop)
