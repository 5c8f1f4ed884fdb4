"""The key exchange of srdma-1 without I/O (protocol.md 8).

Theory of operation. One `Exchange` is one end, client or server, of one exchange. It takes
the peer's messages (`receive`) and news of the own worker (`derived`, `keyed`, `running`), and
answers with the bytes to send and the events that the caller acts upon. TLS, sockets and the
worker are the caller's (`program.py`).

    client                                     server
    start  OFFER ->        offered             listening
                           offered             chosen      <- CHOICE    Agreed on both sides
           Derive          deriving            chosen
           CONFIRM ->      confirming          chosen
                           confirming          deriving    Derive
                           confirming          keying      Install: KEYS to the worker
                           keying              connecting  <- CONFIRM (armed)
           Install: KEYS   connecting                      worker connects, sends OPEN
           READY ->        ready, when the worker is RTS   <- READY
                           done, when the peer's READY is there too

In key mode `pd` a CONFIRM hands secrets over (`handed_over`): Derive says what this end's shall
have, which the own worker makes (KEY). They are here from then on until the own worker has what
Install gives it; then, or at a failure, they are wiped.

Which message may come in which state is the table below and nothing else. An event that is not
in it raises and changes nothing; the peer's ERROR is legal in every state and raises as well.
After an error of the peer the exchange is failed and stays so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Literal, TypeVar

from srdma.keyex.messages import (
    MODE_PD,
    MODES,
    Choice,
    Confirm,
    End,
    ErrorMessage,
    ExchangeError,
    Form,
    Handover,
    Message,
    Offer,
    Ready,
    Suite,
    decode,
    encode,
)
from srdma.keyex.policy import secret_size

Role = Literal["client", "server"]
T = TypeVar("T")

CLIENT_DIRECTION, SERVER_DIRECTION = 0, 1
EXPORTER_LABELS = (b"EXPORTER-srdma-1 client", b"EXPORTER-srdma-1 server")

# role -> state -> event -> next state
TABLE: dict[str, dict[str, dict[str, str]]] = {
    "client": {
        "idle": {"start": "offered"},
        "offered": {"CHOICE": "deriving"},
        "deriving": {"derived": "confirming"},
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
        "chosen": {"CONFIRM": "deriving"},
        "deriving": {"derived": "keying"},
        "keying": {"keyed": "connecting"},
        "connecting": {"running": "ready", "READY": "awaited"},
        "awaited": {"running": "done"},
        "ready": {"READY": "done"},
        "done": {},
        "failed": {},
    },
}

# What stands in a CONFIRM beside the hash, for people.
CARRIED: dict[Form, str] = {
    "": "the hash alone",
    "secrets": "the hash and secrets",
    "kpd": "the hash and the key of a group",
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

    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Agreed:
    """Both sides' values are known: the suite, the peer's ends and its data, mode and group."""

    suite: Suite
    ends: tuple[End, ...]
    data: bytes
    mode: int = 0
    group: str = ""  # of both, in modes with `pd`; else ""


@dataclass(frozen=True)
class Derive:
    """Let the own worker make what this end hands over, if anything; then call `derived`."""

    form: Form


@dataclass(frozen=True)
class Install:
    """The peer computed the same hash: give KEYS to the own worker, then call `keyed`.

    With them go the secrets that the peer handed over, or the group's key.
    """

    handover: Handover


@dataclass(frozen=True)
class Done:
    """Both ends run."""


Event = Send | Agreed | Derive | Install | Done


@dataclass(frozen=True)
class Parameters:
    """What this end brings: its suites in order of preference, random, ends and data, its modes
    in order of preference, and its trust group.

    `certificates`: SHA-256 of the client's and of the server's certificate (DER).
    """

    suites: tuple[Suite, ...]
    random: bytes
    ends: tuple[End, ...]
    data: bytes
    certificates: tuple[bytes, bytes]
    modes: tuple[int, ...] = (0,)
    group: str = ""


class Exchange:
    """One end of one key exchange; see the module's text."""

    def __init__(self, role: Role, mine: Parameters) -> None:
        self.role = role
        self.state = "idle"
        self._mine = mine
        self._offer = b""
        self.hash = b""
        self.agreed: Agreed | None = None
        self._handover, self._peers = Handover(), Handover()

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
        self._offer = encode(
            Offer(mine.suites, mine.modes, mine.group, mine.random, mine.ends, mine.data)
        )
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
            self.forget()
            raise

    def derived(self, handover: Handover) -> list[Event]:
        """What this end hands over. The client sends it; the server's worker comes first."""
        self._check_turn("derived")
        self._check_handover(self.role, handover)
        self._handover = handover
        self._advance("derived")
        if self.role == "client":
            return [Send(encode(Confirm(self.hash, handover)))]
        return [Install(handover if handover.form == "kpd" else self._peers)]

    def keyed(self) -> list[Event]:
        """The own worker took KEYS. The server tells the peer so: it is armed."""
        self._advance("keyed")
        events: list[Event] = []
        if self.role == "server":
            events.append(Send(encode(Confirm(self.hash, self._handover))))
        self.forget()
        return events

    def running(self) -> list[Event]:
        """The own worker's QPs are all RTS."""
        self._advance("running")
        events: list[Event] = [Send(encode(Ready()))]
        return [*events, Done()] if self.done else events

    def forget(self) -> None:
        """Wipe the secrets that were handed over."""
        self._handover.wipe()
        self._peers.wipe()

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
        suite = choose("suite", offer.suites, mine.suites, _suite_name)
        mode = choose("mode", offer.modes, mine.modes, mode_name)
        group = self._check_group(mode, offer.group)
        choice = encode(Choice(suite, mode, mine.group, mine.random, mine.ends, mine.data))
        self.hash = transcript(raw, choice, mine.certificates)
        self.agreed = Agreed(suite, offer.ends, offer.data, mode, group)
        return [Send(choice), self.agreed]

    def _on_choice(self, choice: Choice, raw: bytes) -> list[Event]:
        mine = self._mine
        self._check_peer(choice.random, choice.ends)
        if choice.suite not in mine.suites:
            raise ExchangeError(
                "suite", f"the peer chose {tuple(choice.suite)}, which was not offered"
            )
        if choice.mode not in mine.modes:
            raise ExchangeError(
                "mode", f"the peer chose {mode_name(choice.mode)}, which was not offered"
            )
        group = self._check_group(choice.mode, choice.group)
        self.hash = transcript(self._offer, raw, mine.certificates)
        self.agreed = Agreed(choice.suite, choice.ends, choice.data, choice.mode, group)
        return [self.agreed, Derive(handed_over(self.role, self.agreed))]

    def _on_confirm(self, confirm: Confirm) -> list[Event]:
        assert self.agreed is not None
        if not compare_digest(confirm.hash, self.hash):
            raise ExchangeError(
                "hash", "the peer's transcript hash differs: offer or choice was changed on its way"
            )
        self._check_handover("server" if self.role == "client" else "client", confirm.handover)
        self._check_reflection(confirm.handover)
        self._peers = confirm.handover
        if self.role == "client":
            return [Install(self._peers)]
        return [Derive(handed_over(self.role, self.agreed))]

    def _check_handover(self, role: Role, handover: Handover) -> None:
        """What an end hands over is what the mode wants; never shown."""
        assert self.agreed is not None
        agreed, size = self.agreed, secret_size(self.agreed.suite)
        right = handed_over(role, agreed)
        if handover.form != right:
            raise ExchangeError(
                "format",
                f"CONFIRM of the {role} with {CARRIED[handover.form]}: in mode "
                f"{mode_name(agreed.mode)}{' with a group' if agreed.group else ''} it has "
                f"{CARRIED[right]}",
            )
        if len(handover.secrets) not in (0, len(agreed.ends)):
            raise ExchangeError(
                "count", f"{len(handover.secrets)} secrets for {len(agreed.ends)} QPs"
            )
        if any(len(secret) != size for secret in handover.secrets):
            raise ExchangeError(
                "value", f"secrets of the {role} that are not the {size} bytes of the suite"
            )

    def _check_reflection(self, handover: Handover) -> None:
        if any(secret in self._handover.secrets for secret in handover.secrets):
            raise ExchangeError("value", "a secret of the peer is this end's own: a reflection")

    def _check_group(self, mode: int, group: str) -> str:
        """The group of both ends, in modes with `pd`."""
        if not mode & MODE_PD:
            return ""
        if group != self._mine.group:
            raise ExchangeError(
                "group",
                f"the peer declares {group_name(group)}, this end {group_name(self._mine.group)}:"
                f" mode {mode_name(mode)} needs the same at both ends",
            )
        return group

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


def handed_over(role: Role, agreed: Agreed) -> Form:
    """What stands in the CONFIRM of this end beside the hash (8.3)."""
    if not agreed.mode & MODE_PD:
        return ""
    if not agreed.group:
        return "secrets"
    return "kpd" if role == "server" else ""


def choose(what: str, offered: Sequence[T], allowed: Sequence[T], name: Callable[[T], str]) -> T:
    """The first offered entry that is allowed."""
    for entry in offered:
        if entry in allowed:
            return entry
    raise ExchangeError(
        what,
        f"no common {what}: the client offers {', '.join(map(name, offered))},"
        f" the server allows {', '.join(map(name, allowed))}",
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


def mode_name(mode: int) -> str:
    return next(name for name, number in MODES.items() if number == mode)


def group_name(group: str) -> str:
    """For people."""
    return f"the trust group {group!r}" if group else "no trust group"


def _suite_name(suite: Suite) -> str:
    return str(list(suite))
