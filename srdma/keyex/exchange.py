"""The key exchange of srdma-1 without I/O (protocol.md 8).

Theory of operation. One `Exchange` is one end, client or server, of one exchange. Its inputs are
the peer's messages (`receive`) and the results of the local worker (`derived`, `keyed`,
`running`). Each call returns a list of events: bytes to send and actions for the caller. The
caller (`agent/setup.py`) owns TLS, the sockets and the connection to the worker.

    client                                     server
    start  OFFER ->        offered             listening
                           offered             chosen      <- CHOICE    Agreed at both ends
           Derive          deriving            chosen
           CONFIRM ->      confirming          chosen
                           confirming          deriving    Derive
                           confirming          keying      Install: KEYS to the worker
                           keying              connecting  <- CONFIRM (armed)
           Install: KEYS   connecting                      worker connects, sends OPEN
           READY ->        ready, when the QPs are RTS     <- READY
                           done, when the peer's READY has arrived as well

In key mode `pd` a CONFIRM carries secrets (`handed_over`). The event Derive names the form of
this end's CONFIRM; the local worker makes the secrets (KEY). The exchange keeps them until the
local worker has taken the KEYS of Install. They are wiped then, or when the exchange fails.

The table below is the only definition of which message is legal in which state. An event that is
not in the table raises ExchangeError and changes nothing. The peer's ERROR is legal in every
state and raises ExchangeError as well. An exchange that failed by a message of the peer remains
in state `failed`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Literal, TypeVar

from srdma.keyex.fields import ExchangeError, bad
from srdma.keyex.messages import (
    NOTHING,
    Choice,
    Confirm,
    ErrorMessage,
    Form,
    Handover,
    Message,
    Offer,
    Ready,
    decode,
    encode,
)
from srdma.keyex.offers import MODE_PD, MODES, End, Suite, To, level_name
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

# Content of a CONFIRM, for error texts.
CARRIED: dict[Form, str] = {
    "": "the hash alone",
    "secrets": "the hash and one secret per QP",
    "kpd": "the hash and the key of a trust group",
}

# The missing event in each state, for error texts ("... waiting for X").
WAITING = {
    "offered": "the peer's CHOICE",
    "listening": "the peer's OFFER",
    "confirming": "the peer to arm its worker",
    "chosen": "the peer's CONFIRM",
    "connecting": "the local worker to reach the peer's worker, and the peer's READY",
    "awaited": "the local worker to reach the peer's worker",
    "ready": "the peer's READY, sent when its QPs are in RTS",
}


@dataclass(frozen=True)
class Send:
    """Send these bytes to the peer, as one message."""

    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Agreed:
    """The values of both ends are known: suite, the peer's ends and data, mode and group."""

    suite: Suite
    ends: tuple[End, ...]
    data: bytes
    mode: int = 0
    group: str = ""  # trust group of both ends in modes with `pd`; "" in other modes


@dataclass(frozen=True)
class Derive:
    """Let the local worker make the secrets of this end's CONFIRM; then call `derived`.

    form: "" if the CONFIRM carries the hash alone; the worker is not needed then.
    """

    form: Form


@dataclass(frozen=True)
class Install:
    """The peer computed the same hash: send KEYS to the local worker, then call `keyed`.

    handover: the secrets of the peer's CONFIRM, or the key of the trust group. The exchange owns
    and wipes them.
    """

    handover: Handover


@dataclass(frozen=True)
class Done:
    """The QPs of both ends are in RTS."""


Event = Send | Agreed | Derive | Install | Done


@dataclass(frozen=True)
class Parameters:
    """The values of this end: suites and modes in order of preference, random (32 bytes), ends,
    data (at most 256 bytes), trust group ("" for none) and QPs of the rendezvous, if it is one.

    `certificates`: SHA-256 of the client's and of the server's certificate (DER).
    """

    suites: tuple[Suite, ...]
    random: bytes
    ends: tuple[End, ...]
    data: bytes
    certificates: tuple[bytes, bytes]
    modes: tuple[int, ...] = (0,)
    group: str = ""
    to: To | None = None


def generation(transcript: bytes, qp: int) -> bytes:
    """Generation of QP number `qp` of the session with this transcript hash; 8 bytes (8.3)."""
    return hashlib.sha256(transcript + qp.to_bytes(4, "big")).digest()[:8]


class Exchange:
    """One end of one key exchange; see the description of the module."""

    def __init__(self, role: Role, mine: Parameters) -> None:
        self.role = role
        self.state = "idle"
        self._mine = mine
        self._offer = b""
        self.hash = b""
        self.agreed: Agreed | None = None
        self._handover, self._peers = NOTHING, NOTHING

    @property
    def done(self) -> bool:
        return self.state == "done"

    # Calls of the caller ----------------------------------------------------

    def start(self) -> list[Event]:
        """Begin. The client returns its OFFER; the server returns nothing and waits for one."""
        self._advance("start")
        if self.role == "server":
            return []
        mine = self._mine
        self._offer = encode(
            Offer(mine.suites, mine.modes, mine.group, mine.random, mine.ends, mine.data, mine.to)
        )
        return [Send(self._offer)]

    def receive(self, raw: bytes, message: Message | None = None) -> list[Event]:
        """Process one message of the peer. After an ExchangeError the exchange is in `failed`.

        message: decode(raw), if it is known.
        """
        try:
            message = message or decode(raw)
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
        """Take the secrets of this end. The client sends its CONFIRM; the server first installs
        KEYS at its worker and sends its CONFIRM in `keyed`. The exchange owns `handover`."""
        self._check_turn("derived")
        self._check_handover(self.role, handover)
        self._handover = handover
        self._advance("derived")
        if self.role == "client":
            return [Send(encode(Confirm(self.hash, handover)))]
        return [Install(handover if handover.form == "kpd" else self._peers)]

    def keyed(self) -> list[Event]:
        """The local worker took KEYS. The server then sends CONFIRM: its worker is armed."""
        self._advance("keyed")
        events: list[Event] = []
        if self.role == "server":
            events.append(Send(encode(Confirm(self.hash, self._handover))))
        self.forget()
        return events

    def running(self) -> list[Event]:
        """All QPs of the local worker are in RTS."""
        self._advance("running")
        events: list[Event] = [Send(encode(Ready()))]
        return [*events, Done()] if self.done else events

    def forget(self) -> None:
        """Wipe the secrets of both CONFIRMs."""
        self._handover.wipe()
        self._peers.wipe()

    # Inputs of the key derivation --------------------------------------------

    def generation(self, qp: int) -> bytes:
        """Generation of QP number `qp`, counted from 0; 8 bytes (8.3)."""
        return generation(self.hash, qp)

    def exporter_context(self, qp: int) -> bytes:
        """Context of the TLS exporter for QP number `qp`, counted from 0 (8.4)."""
        return self.hash + qp.to_bytes(4, "big")

    # The table and the messages ------------------------------------------------

    def _check_turn(self, event: str) -> str:
        try:
            return TABLE[self.role][self.state][event]
        except KeyError:
            legal = ", ".join(TABLE[self.role][self.state]) or "nothing"
            raise ExchangeError(
                "state",
                f"{event} is not legal in state {self.state} of the {self.role}; legal: {legal}",
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
        if offer.to != mine.to:
            raise ExchangeError("format", "OFFER has `to` without a rendezvous, or of another one")
        check_levels(offer.suites, mine.suites)
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
                "suite", f"the peer chose {tuple(choice.suite)}, which this end did not offer"
            )
        if choice.mode not in mine.modes:
            raise ExchangeError(
                "mode", f"the peer chose {mode_name(choice.mode)}, which this end did not offer"
            )
        if mine.to and choice.ends[0].qpn != mine.to.qpn:
            raise bad("qpn", choice.ends[0].qpn, f"that of the rendezvous, {mine.to.qpn}")
        group = self._check_group(choice.mode, choice.group)
        self.hash = transcript(self._offer, raw, mine.certificates)
        self.agreed = Agreed(choice.suite, choice.ends, choice.data, choice.mode, group)
        return [self.agreed, Derive(handed_over(self.role, self.agreed))]

    # RFC 5042 A5.0
    def _on_confirm(self, confirm: Confirm) -> list[Event]:
        assert self.agreed is not None
        if not compare_digest(confirm.hash, self.hash):
            raise ExchangeError(
                "hash", "the peer's transcript hash differs: OFFER or CHOICE was changed on the way"
            )
        self._check_handover("server" if self.role == "client" else "client", confirm.handover)
        self._check_reflection(confirm.handover)
        self._peers = confirm.handover
        if self.role == "client":
            return [Install(self._peers)]
        return [Derive(handed_over(self.role, self.agreed))]

    def _check_handover(self, role: Role, handover: Handover) -> None:
        """Check form, number and size of the secrets. Error texts never contain a secret."""
        assert self.agreed is not None
        agreed, size = self.agreed, secret_size(self.agreed.suite)
        right = handed_over(role, agreed)
        if handover.form != right:
            raise ExchangeError(
                "format",
                f"CONFIRM of the {role} carries {CARRIED[handover.form]}; in mode "
                f"{mode_name(agreed.mode)}{' with a trust group' if agreed.group else ''} it must "
                f"carry {CARRIED[right]}",
            )
        if len(handover.secrets) not in (0, len(agreed.ends)):
            raise ExchangeError(
                "count",
                f"{len(handover.secrets)} secrets for {len(agreed.ends)} QPs: one per QP is needed",
            )
        if any(len(secret) != size for secret in handover.secrets):
            raise ExchangeError(
                "value", f"a secret of the {role} has a wrong size: the suite needs {size} bytes"
            )

    def _check_reflection(self, handover: Handover) -> None:
        if any(secret in self._handover.secrets for secret in handover.secrets):
            raise ExchangeError(
                "value", "a secret of the peer equals one of this end: a reflection attack"
            )

    def _check_group(self, mode: int, group: str) -> str:
        """The trust group of both ends in modes with `pd`, else "". Raises if they differ."""
        if not mode & MODE_PD:
            return ""
        if group != self._mine.group:
            raise ExchangeError(
                "group",
                f"the peer declares {group_name(group)}, this end declares "
                f"{group_name(self._mine.group)}: mode {mode_name(mode)} needs the same trust "
                "group at both ends",
            )
        return group

    def _check_peer(self, random: bytes, ends: Sequence[End]) -> None:
        mine = self._mine
        if len(ends) != len(mine.ends):
            raise ExchangeError(
                "count",
                f"the peer has {len(ends)} QPs, this end has {len(mine.ends)}: "
                "give the same number at both ends",
            )
        if random == mine.random:
            raise ExchangeError("value", "the peer's random equals this end's: a reflection attack")
        own = {(e.eid, e.qpn) for e in mine.ends}
        if any((e.eid, e.qpn) in own for e in ends):
            raise ExchangeError(
                "value", "an end of the peer equals one of ours: a reflection attack"
            )


def handed_over(role: Role, agreed: Agreed) -> Form:
    """The form of the CONFIRM of the end `role`: its fields besides the hash (8.3)."""
    if not agreed.mode & MODE_PD:
        return ""
    if not agreed.group:
        return "secrets"
    return "kpd" if role == "server" else ""


def choose(what: str, offered: Sequence[T], allowed: Sequence[T], name: Callable[[T], str]) -> T:
    """The first offered entry that is allowed. Raises ExchangeError with code `what`."""
    for entry in offered:
        if entry in allowed:
            return entry
    raise ExchangeError(
        what,
        f"no common {what}: the client offers {', '.join(map(name, offered))},"
        f" the server allows {', '.join(map(name, allowed))}",
    )


def check_levels(offered: Sequence[Suite], allowed: Sequence[Suite]) -> None:
    """Raise ExchangeError (`level`) if the suites of both ends have no level in common."""
    levels = [sorted({suite.level for suite in suites}) for suites in (offered, allowed)]
    if not {*levels[0]} & {*levels[1]}:
        client, server = (" or ".join(map(level_name, each)) for each in levels)
        raise ExchangeError(
            "level",
            f"no common suite, because the client offers level {client} and the server permits "
            f"level {server}",
        )


# RFC 5042 R5.4.4-1
def transcript(offer: bytes, choice: bytes, certificates: tuple[bytes, bytes]) -> bytes:
    """The transcript hash H, 32 bytes (8.3), over the exact bytes that were sent."""
    digest = hashlib.sha256(b"srdma-1 transcript\0")
    for message in (offer, choice):
        digest.update(len(message).to_bytes(4, "big") + message)
    for certificate in certificates:
        digest.update(certificate)
    return digest.digest()


def printable(text: str) -> str:
    """Text of a peer, made safe for a terminal and a log: printable, at most 512 characters."""
    return "".join(c if c.isprintable() else "?" for c in text)[:512]


def _name(message: Message) -> str:
    return type(message).__name__.upper()


def mode_name(mode: int) -> str:
    """The name of a key mode (3.4)."""
    return next(name for name, number in MODES.items() if number == mode)


def group_name(group: str) -> str:
    """The trust group for error texts."""
    return f"the trust group {group!r}" if group else "no trust group"


def _suite_name(suite: Suite) -> str:
    return str(list(suite))
