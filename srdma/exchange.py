"""The key exchange of srdma-1 without I/O and without secrets (protocol.md 8).

Theory of operation. One `Exchange` is one end, client or server, of one exchange. It takes
the peer's messages (`receive`) and news of the own worker (`keyed`, `running`), and answers
with the bytes to send and the events that the caller acts upon. TLS, sockets, secrets and the
worker are the caller's (`keyex.py`).

    client                                     server
    start  OFFER ->        offered             listening
                           offered             chosen      <- CHOICE    Agreed on both sides
           CONFIRM ->      confirming          chosen
                           confirming          keying      Install: KEYS to the worker
                           keying              connecting  <- CONFIRM (armed)
           Install: KEYS   connecting                      worker connects, sends OPEN
           READY ->        ready, when the worker is RTS   <- READY
                           done, when the peer's READY is there too

Which message may come in which state is the table below and nothing else. An event that is not
in it raises and changes nothing; the peer's ERROR is legal in every state and raises as well.
After an error of the peer the exchange is failed and stays so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Literal

from .exchange_messages import (
    Choice,
    Confirm,
    End,
    ErrorMessage,
    ExchangeError,
    Message,
    Offer,
    Ready,
    Suite,
    decode,
    encode,
)

Role = Literal["client", "server"]
CLIENT_DIRECTION, SERVER_DIRECTION = 0, 1
EXPORTER_LABELS = (b"EXPORTER-srdma-1 client", b"EXPORTER-srdma-1 server")

# role -> state -> event -> next state
TABLE: dict[str, dict[str, dict[str, str]]] = {
    "client": {
        "idle": {"start": "offered"},
        "offered": {"CHOICE": "confirming"},
        "confirming": {"CONFIRM": "keying"},
        "keying": {"keyed": "connecting"},
        "connecting": {"running": "ready", "READY": "awaited"},
        "awaited": {"running": "done"},
        "ready": {"READY": "done"},
        "done": {},
        "failed": {},
    },
    "server": {
        "idle": {"start": "listening"},
        "listening": {"OFFER": "chosen"},
        "chosen": {"CONFIRM": "keying"},
        "keying": {"keyed": "connecting"},
        "connecting": {"running": "ready", "READY": "awaited"},
        "awaited": {"running": "done"},
        "ready": {"READY": "done"},
        "done": {},
        "failed": {},
    },
}

# What an end waits for in each state, for people.
WAITING = {
    "offered": "the peer's CHOICE",
    "listening": "the peer's OFFER",
    "confirming": "the peer to arm its worker",
    "chosen": "the peer's CONFIRM",
    "connecting": "the own worker to reach the peer's, and the peer",
    "awaited": "the own worker to reach the peer's",
    "ready": "the peer's worker",
}


@dataclass(frozen=True)
class Send:
    """Send these bytes to the peer."""

    data: bytes


@dataclass(frozen=True)
class Agreed:
    """Both sides' values are known: the suite, the peer's ends and its data."""

    suite: Suite
    ends: tuple[End, ...]
    data: bytes


@dataclass(frozen=True)
class Install:
    """The peer computed the same hash: give KEYS to the own worker, then call `keyed`."""


@dataclass(frozen=True)
class Done:
    """Both ends run."""


Event = Send | Agreed | Install | Done


@dataclass(frozen=True)
class Parameters:
    """What this end brings: its suites in order of preference, random, ends and data.

    `certificates`: SHA-256 of the client's and of the server's certificate (DER).
    """

    suites: tuple[Suite, ...]
    random: bytes
    ends: tuple[End, ...]
    data: bytes
    certificates: tuple[bytes, bytes]


class Exchange:
    """One end of one key exchange; see the module's text."""

    def __init__(self, role: Role, mine: Parameters) -> None:
        self.role = role
        self.state = "idle"
        self._mine = mine
        self._offer = b""
        self.hash = b""
        self.agreed: Agreed | None = None

    @property
    def done(self) -> bool:
        return self.state == "done"

    # What the caller does ---------------------------------------------------

    def start(self) -> list[Event]:
        """The client's OFFER; the server only listens from here on."""
        self._advance("start")
        if self.role == "server":
            return []
        mine = self._mine
        self._offer = encode(Offer(mine.suites, mine.random, mine.ends, mine.data))
        return [Send(self._offer)]

    def receive(self, raw: bytes) -> list[Event]:
        """One message of the peer. Raises ExchangeError, after which the exchange is failed."""
        try:
            message = decode(raw)
            if isinstance(message, ErrorMessage):
                raise ExchangeError(
                    printable(message.code), printable(message.text), from_peer=True
                )
            self._check_turn(_name(message))
            events = self._on(message, raw)
            self._advance(_name(message))
            return [*events, Done()] if self.done else events
        except ExchangeError:
            self.state = "failed"
            raise

    def keyed(self) -> list[Event]:
        """The own worker took KEYS. The server tells the peer so: it is armed."""
        self._advance("keyed")
        return [Send(encode(Confirm(self.hash)))] if self.role == "server" else []

    def running(self) -> list[Event]:
        """The own worker's QPs are all RTS."""
        self._advance("running")
        events: list[Event] = [Send(encode(Ready()))]
        return [*events, Done()] if self.done else events

    # What secrets hang on ----------------------------------------------------

    def generation(self, qp: int) -> bytes:
        """Generation of QP number `qp` (8.3)."""
        return hashlib.sha256(self.hash + qp.to_bytes(4, "big")).digest()[:8]

    def exporter_context(self, qp: int) -> bytes:
        """Context of the TLS exporter for QP number `qp` (8.4)."""
        return self.hash + qp.to_bytes(4, "big")

    # The table and the messages ------------------------------------------------

    def _check_turn(self, event: str) -> str:
        try:
            return TABLE[self.role][self.state][event]
        except KeyError:
            legal = ", ".join(TABLE[self.role][self.state]) or "nothing"
            raise ExchangeError(
                "state", f"{event} in state {self.state} of the {self.role}: legal is {legal}"
            ) from None

    def _advance(self, event: str) -> None:
        self.state = self._check_turn(event)

    def _on(self, message: Message, raw: bytes) -> list[Event]:
        match message:
            case Offer():
                return self._on_offer(message, raw)
            case Choice():
                return self._on_choice(message, raw)
            case Confirm():
                return self._on_confirm(message)
            case _:
                return []

    def _on_offer(self, offer: Offer, raw: bytes) -> list[Event]:
        mine = self._mine
        self._check_peer(offer.random, offer.ends)
        suite = choose(offer.suites, mine.suites)
        choice = encode(Choice(suite, mine.random, mine.ends, mine.data))
        self.hash = transcript(raw, choice, mine.certificates)
        self.agreed = Agreed(suite, offer.ends, offer.data)
        return [Send(choice), self.agreed]

    def _on_choice(self, choice: Choice, raw: bytes) -> list[Event]:
        mine = self._mine
        self._check_peer(choice.random, choice.ends)
        if choice.suite not in mine.suites:
            raise ExchangeError(
                "suite", f"the peer chose {tuple(choice.suite)}, which was not offered"
            )
        self.hash = transcript(self._offer, raw, mine.certificates)
        self.agreed = Agreed(choice.suite, choice.ends, choice.data)
        return [Send(encode(Confirm(self.hash))), self.agreed]

    def _on_confirm(self, confirm: Confirm) -> list[Event]:
        if not compare_digest(confirm.hash, self.hash):
            raise ExchangeError(
                "hash", "the peer's transcript hash differs: offer or choice was changed on its way"
            )
        return [Install()]

    def _check_peer(self, random: bytes, ends: Sequence[End]) -> None:
        mine = self._mine
        if len(ends) != len(mine.ends):
            raise ExchangeError(
                "count", f"the peer has {len(ends)} QPs: this end has {len(mine.ends)}"
            )
        if random == mine.random:
            raise ExchangeError("value", "the peer's random is this end's own: a reflection")
        own = {(e.eid, e.qpn) for e in mine.ends}
        if any((e.eid, e.qpn) in own for e in ends):
            raise ExchangeError("value", "an end of the peer is this end's own: a reflection")


def choose(offered: Sequence[Suite], allowed: Sequence[Suite]) -> Suite:
    """The first offered entry that is allowed."""
    for suite in offered:
        if suite in allowed:
            return suite
    raise ExchangeError(
        "suite",
        f"no common suite: the client offers {_listed(offered)},"
        f" the server allows {_listed(allowed)}",
    )


def transcript(offer: bytes, choice: bytes, certificates: tuple[bytes, bytes]) -> bytes:
    """The transcript hash H (8.3) over the exact bytes sent."""
    digest = hashlib.sha256(b"srdma-1 transcript\0")
    for message in (offer, choice):
        digest.update(len(message).to_bytes(4, "big") + message)
    for certificate in certificates:
        digest.update(certificate)
    return digest.digest()


def printable(text: str) -> str:
    """Text of a peer, fit for a terminal and a log."""
    return "".join(c if c.isprintable() else "?" for c in text)[:512]


def _name(message: Message) -> str:
    return type(message).__name__.upper()


def _listed(suites: Sequence[Suite]) -> str:
    return ", ".join(str(list(s)) for s in suites)
