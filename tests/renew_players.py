"""Players for tests of new secrets (protocol.md 8.5): two ends without I/O, and a peer of an agent
that a test steps through the exchange and into which it inserts errors."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Any

from srdma.identity import Credentials
from srdma.keyex.agreement import Agreement
from srdma.keyex.exchange import Derive as FirstDerive
from srdma.keyex.exchange import Exchange, Install, Parameters, Role, Send
from srdma.keyex.exchange_renew import Begin, Derive, Event, Feed, Give, Renewal, Say, Take, Wanted
from srdma.keyex.messages import (
    ErrorMessage,
    Handover,
    Message,
    Rekey,
    Renew,
    Taken,
    decode,
    encode,
)
from srdma.keyex.offers import End, Suite
from srdma.keyex.tls import Inner
from tests.exchange_players import GCM, Player, frozen, made, players, until_keyed
from tests.tls_players import BlockingTLS

IDENTITY = "spiffe://test/peer"


def done(mode: int = 0, group: str = "", suite: Suite = GCM) -> tuple[Player, Player]:
    """Returns two ends that have completed the first exchange."""
    client, server = players(mode, group, suite)
    until_keyed(client, server)
    for one in (client, server):
        one.take(one.exchange.running())
    for one, other in ((client, server), (server, client)):
        one.take(one.exchange.receive(other.sent[-1]))
        assert one.exchange.done
    return client, server


@dataclass
class Renewer:
    """One end of a Renewal. `said` holds its messages in the inner connection."""

    renewal: Renewal
    size: int = 16
    said: list[bytes] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    fed: list[bytes] = field(default_factory=list)
    began: int = 0
    wanted: int = 0
    takes: int = 0
    took: int = 0
    gives: list[Any] = field(default_factory=list)
    made: Handover = field(default_factory=Handover)

    def act(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Begin():
                    self.began += 1
                case Feed(records):
                    self.fed.append(records)
                case Derive(form):
                    self.made = made(form, self.size)
                    self.act(self.renewal.derived(self.made))
                case Say(data):
                    self.said.append(data)
                case Send(data):
                    self.sent.append(data)
                case Take():
                    self.takes += 1
                case Give(handover):
                    self.gives.append(frozen(handover))
                case Wanted():
                    self.wanted += 1

    def shake(self, identity: str = IDENTITY) -> None:
        self.act(self.renewal.shaken(identity))

    def hear(self, *messages: bytes | Message) -> None:
        for message in messages:
            self.act(self.renewal.hear(message if isinstance(message, bytes) else encode(message)))

    def receive(self, message: Message) -> None:
        self.act(self.renewal.receive(encode(message)))

    def taken(self) -> None:
        self.took += 1
        self.act(self.renewal.taken())


def agreement(exchange: Exchange, identity: str = IDENTITY) -> Agreement:
    """The values that remain of a first exchange in state `done`."""
    assert exchange.agreed
    return Agreement.of(exchange, tuple(range(1, len(exchange.agreed.ends) + 1)), identity)


def ends(mode: int = 0, group: str = "", suite: Suite = GCM) -> tuple[Renewer, Renewer]:
    """Returns client and server, both idle."""
    client, server = (
        Renewer(Renewal(agreement(one.exchange)), one.size) for one in done(mode, group, suite)
    )
    return client, server


def until_offered(client: Renewer, server: Renewer) -> None:
    """Runs until both have sent RENEW."""
    client.act(client.renewal.begin())
    server.receive(Rekey(b"hello"))
    client.receive(Rekey(b"hello"))
    client.shake()
    server.shake()


class Peer:
    """The other end of an agent's connection, with blocking calls."""

    def __init__(
        self, sock: socket.socket, role: Role, credentials: Credentials, mode: int = 0
    ) -> None:
        self.role, self.credentials, self.mode = role, credentials, mode
        self.tls = BlockingTLS(sock, role, credentials)
        self.inner = Inner(role, credentials)
        self.suite = GCM
        self.count = 0
        self.refusal: ErrorMessage | None = None

    def connect(self, qps: int = 2) -> None:
        """Runs the first exchange with random secrets."""
        self.identity, _ = self.tls.handshake()
        own, peer = self.tls.certificate_hashes()
        hashes = (own, peer) if self.role == "client" else (peer, own)
        mine = tuple(End(os.urandom(16), 77 + n, 1 << 23, 4096, 64, 16, "peer") for n in range(qps))
        self.exchange = Exchange(
            self.role,
            Parameters((self.suite,), os.urandom(32), mine, b"", hashes, (self.mode,)),
        )
        self._act(self.exchange.start())
        while not self.exchange.done:
            if self.exchange.state == "connecting":
                self._act(self.exchange.running())
            self._act(self.exchange.receive(self.tls.message()))

    def _act(self, events: list[Any]) -> None:
        for event in events:
            match event:
                case Send(data):
                    self.tls.send(data)
                case FirstDerive(form):
                    self._act(self.exchange.derived(made(form)))
                case Install():
                    self._act(self.exchange.keyed())

    def hear(self) -> Message:
        return decode(self.tls.message())

    def say(self, message: Message | bytes) -> None:
        self.tls.send(message if isinstance(message, bytes) else encode(message))

    # The inner connection -----------------------------------------------------

    def flush(self) -> None:
        while records := self.inner.records():
            self.say(Rekey(records))

    def begin(self) -> None:
        """Starts a new inner connection and sends the client's first records."""
        self.count += 1
        self.inner = Inner(self.role, self.credentials)
        if self.role == "client":
            assert not self.inner.shake()
            self.flush()

    def shake(self) -> str:
        """Completes the inner handshake at this end. Returns the identity of the agent's end."""
        while not (identity := self.inner.shake()):
            self.flush()
            if not self.feed():
                return ""
        self.flush()
        return identity

    def feed(self) -> bool:
        """Returns False if an ERROR came instead. error() reads it."""
        message = self.hear()
        if isinstance(message, ErrorMessage):
            self.refusal = message
            return False
        assert isinstance(message, Rekey), message
        self.inner.feed(message.records)
        return True

    def hear_inner(self) -> Message:
        while (message := self.inner.receive()) is None:
            assert self.feed(), self.refusal
        return decode(message)

    def say_inner(self, *messages: Message | bytes) -> None:
        for message in messages:
            self.inner.say(message if isinstance(message, bytes) else encode(message))
        self.flush()

    def renew(self, **changes: Any) -> Renew:
        """Returns this end's RENEW with these changes."""
        form = "secrets" if self.mode & 1 else ""
        values = {"hash": self.exchange.hash, "count": self.count, "handover": made(form)}
        return Renew(**values | changes)

    def exchange_secrets(self) -> None:
        """Runs the whole exchange without errors."""
        self.begin()
        self.shake()
        self.say_inner(self.renew())
        assert isinstance(self.hear_inner(), Renew)
        assert self.hear_inner() == Taken(self.count)
        self.say_inner(Taken(self.count))

    def error(self) -> str:
        """Skips messages until an ERROR and returns its code."""
        while self.refusal is None:
            message = self.hear()
            self.refusal = message if isinstance(message, ErrorMessage) else None
        return self.refusal.code
