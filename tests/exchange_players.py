"""Players for tests of the exchange without I/O: two ends, each with a worker
that makes secrets."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from typing import Any

from srdma.keyex.exchange import Derive, Event, Exchange, Install, Parameters, Role, Send
from srdma.keyex.messages import Handover, Offer, encode
from srdma.keyex.offers import MODES, End, Suite

GCM, CHACHA, NONE = Suite(1, 3, 16), Suite(7, 3, 16), Suite(0, 0, 0)
SIZES = {GCM: 16, CHACHA: 32}
BASIC, PD, MEM, PD_MEM = MODES.values()
WAYS = [(mode, group) for mode in MODES.values() for group in ("", "rack 7")]
HASHES = (hashlib.sha256(b"client").digest(), hashlib.sha256(b"server").digest())
QPS = 2


def end(qpn: int, eid: bytes = b"E" * 16, **changes: object) -> End:
    values = {"pn": 1 << 23, "mtu": 4096, "window": 64, "reads": 16, "wire": "nicb", **changes}
    return End(eid=eid, qpn=qpn, **values)  # type: ignore[arg-type]


def parameters(role: str, **changes: Any) -> Parameters:
    letter = role[0].upper().encode()
    ends = tuple(end(100 + i, letter * 16, wire=role) for i in range(QPS))
    mine = Parameters((GCM,), os.urandom(32), ends, b"", HASHES)
    return replace(mine, **changes)


def offer(qps: int = 1) -> bytes:
    """An OFFER that a server accepts."""
    ends = tuple(end(100 + i, os.urandom(16)) for i in range(qps))
    return encode(Offer((GCM,), (0,), "", os.urandom(32), ends))


def form(role: Role, mode: int, group: str) -> str:
    """The rule of protocol.md 8.3, implemented independently of srdma."""
    if mode not in (PD, PD_MEM):
        return ""
    if group:
        return {"client": "", "server": "kpd"}[role]
    return "secrets"


def made(wanted: str, size: int = 16, count: int = QPS) -> Handover:
    if wanted == "secrets":
        return Handover(secrets=tuple(bytearray(os.urandom(size)) for _ in range(count)))
    return Handover(group_key=bytearray(os.urandom(48))) if wanted else Handover()


def frozen(handover: Handover) -> tuple[tuple[bytes, ...], bytes]:
    """Returns a copy of the current contents."""
    return tuple(map(bytes, handover.secrets)), bytes(handover.group_key)


@dataclass
class Player:
    """One end and its worker. It acts on events as `Program` does."""

    role: Role
    exchange: Exchange
    size: int = 16
    sent: list[bytes] = field(default_factory=list)
    derived: tuple[Any, Any] = ((), b"")
    installed: tuple[Any, Any] | None = None
    made: Handover = field(default_factory=Handover)
    waiting: list[Event] = field(default_factory=list)

    def take(self, events: list[Event]) -> None:
        self.sent += [e.data for e in events if isinstance(e, Send)]
        self.waiting += [e for e in events if isinstance(e, Derive | Install)]

    def derive(self) -> None:
        wanted = self.waiting.pop()
        assert isinstance(wanted, Derive)
        self.made = made(wanted.form, self.size)
        self.derived = frozen(self.made)
        self.take(self.exchange.derived(self.made))

    def install(self) -> None:
        install = self.waiting.pop()
        assert isinstance(install, Install)
        self.installed = frozen(install.handover)
        self.take(self.exchange.keyed())

    def work(self) -> None:
        """Executes the outstanding events of its worker."""
        while self.waiting:
            self.work_once()

    def work_once(self) -> None:
        self.derive() if isinstance(self.waiting[-1], Derive) else self.install()


def players(mode: int, group: str, suite: Suite = GCM) -> tuple[Player, Player]:
    changes: dict[str, Any] = {"suites": (suite,), "modes": (mode,), "group": group}
    client = Exchange("client", parameters("client", **changes))
    server = Exchange("server", parameters("server", **changes))
    size = SIZES.get(suite, 0)
    return Player("client", client, size), Player("server", server, size)


def until_confirm(client: Player, server: Player) -> None:
    """Runs until the client has sent CONFIRM."""
    server.take(server.exchange.start())
    client.take(client.exchange.start())
    server.take(server.exchange.receive(client.sent[0]))
    client.take(client.exchange.receive(server.sent[0]))
    client.work()


def until_keyed(client: Player, server: Player) -> None:
    """Runs until both workers have KEYS."""
    until_confirm(client, server)
    for one, other in ((server, client), (client, server)):
        one.take(one.exchange.receive(other.sent[1]))
        one.work()


def expected(player: Player, peer: Player, mode: int, group: str) -> tuple[Any, Any]:
    """Returns what KEYS of this end must carry."""
    if not mode & 1:
        return (), b""
    if group:
        return (), (player if player.role == "server" else peer).derived[1]
    return peer.derived[0], b""
