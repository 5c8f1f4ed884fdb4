"""New secrets for QPs that run, without I/O (protocol.md 8.5).

Theory of operation. One `Renewal` is one end of all exchanges that follow the first one over the
same TLS connection. Each is a further TLS handshake inside it, the *inner* one, and four messages
in the inner connection:

    client                                   server
    begin   Begin                  idle
            REKEY ->        shaking          Begin, when its first records come
            shaken          deriving  Derive: ROTATE, KEY (key mode `pd`)
    derived RENEW ->        offered          <- RENEW
            Take            taking           Take: the worker learns what it receives with
    taken   TAKEN ->        said             <- TAKEN
            Give            idle             Give: the worker learns what it sends with

Take comes before Give at the other end: so nobody seals with a secret that the receiver's worker
does not have yet. TLS, sockets and the worker are the caller's (`renew.py`).

The server asks for an exchange by a REKEY without records (`Wanted` at the client). A client that
is at one takes no notice, unless the server's RENEW was there first: then it wants another one.

Which message may come in which state is the table below and nothing else; all else raises, and so
does the peer's ERROR. After an error the renewal is failed and stays so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hmac import compare_digest

from srdma.keyex.exchange import CARRIED, Agreed, Exchange, Role, Send, handed_over, printable
from srdma.keyex.messages import (
    COUNT_MAX,
    ErrorMessage,
    ExchangeError,
    Form,
    Handover,
    Message,
    Rekey,
    Renew,
    Taken,
    decode,
    encode,
)
from srdma.keyex.policy import secret_size

_FROM_SHAKING = {
    "shaking": {"REKEY": "shaking", "shaken": "deriving"},
    "deriving": {"derived": "offered"},
    "offered": {"REKEY": "offered", "RENEW": "taking"},
    "taking": {"REKEY": "taking", "taken": "said", "TAKEN": "heard"},
    "said": {"REKEY": "said", "TAKEN": "idle"},
    "heard": {"taken": "idle"},
    "failed": {},
}

# role -> state -> event -> next state
TABLE: dict[str, dict[str, dict[str, str]]] = {
    "client": {"idle": {"begin": "shaking"}, **_FROM_SHAKING},
    "server": {"idle": {"REKEY": "shaking"}, **_FROM_SHAKING},
}

# What an end waits for in each state, for people.
WAITING = {
    "shaking": "the peer's part of a further TLS handshake",
    "offered": "the peer's RENEW",
    "taking": "the own worker to take a new secret",
    "said": "the peer's worker to take a new secret",
    "heard": "the own worker to take a new secret",
}


@dataclass(frozen=True)
class Begin:
    """Make an inner connection, of this end's role."""


@dataclass(frozen=True)
class Feed:
    """Records of the peer for the inner connection; then call `shaken` when that is done."""

    records: bytes = field(repr=False)


@dataclass(frozen=True)
class Derive:
    """Let the own worker make what this end hands over, if anything; then call `derived`."""

    form: Form


@dataclass(frozen=True)
class Say:
    """Send these bytes in the inner connection."""

    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Take:
    """REKEY rx on the own worker; then call `taken`."""


@dataclass(frozen=True)
class Give:
    """REKEY tx on the own worker, with what the peer handed over, which the caller wipes then.

    Between the ends the exchange is over.
    """

    handover: Handover


@dataclass(frozen=True)
class Wanted:
    """The server asks for an exchange."""


Event = Begin | Feed | Derive | Say | Take | Give | Wanted | Send


class Renewal:
    """One end; see the module's text. `count`: of the exchange under way, or the last one."""

    def __init__(self, exchange: Exchange, identity: str) -> None:
        """exchange: the first one, which is done; identity: of the peer, as it proved it then."""
        assert exchange.agreed is not None
        self.role: Role = exchange.role
        self.state = "idle"
        self.count = 0
        self._hash = exchange.hash
        self._agreed: Agreed = exchange.agreed
        self._identity = identity
        self._mine, self._peers = Handover(), Handover()

    @property
    def idle(self) -> bool:
        return self.state == "idle"

    # What the caller does ---------------------------------------------------

    def begin(self) -> list[Event]:
        """The client starts an exchange."""
        self._advance("begin")
        return self._begun()

    def ask(self) -> list[Event]:
        """The server asks for one."""
        return [Send(encode(Rekey(b"")))]

    def receive(self, raw: bytes) -> list[Event]:
        """A message of the outer connection. Raises ExchangeError, and then is failed."""
        try:
            match decode(raw):
                case Rekey(records):
                    return self._on_records(records)
                case ErrorMessage(code, text):
                    raise ExchangeError(printable(code), printable(text), from_peer=True)
                case message:
                    raise ExchangeError("state", f"{_name(message)} after READY: legal is REKEY")
        except ExchangeError:
            self._fail()
            raise

    def shaken(self, identity: str) -> list[Event]:
        """The inner handshake is done, and proved who the peer is."""
        if identity != self._identity:
            self._fail()
            raise ExchangeError(
                "identity",
                f"the peer is {identity} now, and was {self._identity}: a connection is with one",
                told=f"this is {identity}, which is not who this connection began with",
            )
        self._advance("shaken")
        return [Derive(self._form)]

    def derived(self, handover: Handover) -> list[Event]:
        """What this end hands over."""
        self._check_turn("derived")
        self._check_handover(handover)
        self._mine = handover
        self._advance("derived")
        return [Say(encode(Renew(self._hash, self.count, handover)))]

    def hear(self, raw: bytes) -> list[Event]:
        """A message of the inner connection. Raises ExchangeError, and then is failed."""
        try:
            match decode(raw):
                case Renew() as renew:
                    self._check_turn("RENEW")
                    self._check_renew(renew)
                    self._advance("RENEW")
                    self._mine.wipe()
                    self._peers = renew.handover
                    return [Take()]
                case Taken(count):
                    self._check_turn("TAKEN")
                    self._check_count(count)
                    self._advance("TAKEN")
                    return self._given()
                case message:
                    raise ExchangeError(
                        "state", f"{_name(message)} in the inner connection: RENEW or TAKEN"
                    )
        except ExchangeError:
            self._fail()
            raise

    def taken(self) -> list[Event]:
        """The own worker has what it receives with."""
        self._advance("taken")
        return [Say(encode(Taken(self.count))), *self._given()]

    def forget(self) -> None:
        """Wipe what is here of an exchange that did not end."""
        self._mine.wipe()
        self._peers.wipe()

    def exporter_context(self, qp: int) -> bytes:
        """Context of the inner connection's exporter for QP number `qp`."""
        return self._hash + self.count.to_bytes(4, "big") + qp.to_bytes(4, "big")

    # The table and the messages ------------------------------------------------

    def _on_records(self, records: bytes) -> list[Event]:
        if not records:
            return self._on_request()
        first = self.idle
        self._advance("REKEY")
        return [*(self._begun() if first else []), Feed(records)]

    def _on_request(self) -> list[Event]:
        if self.role == "server":
            raise ExchangeError("value", "rekey is 0 bytes: a client sends TLS records")
        return [] if self.state in ("shaking", "deriving", "offered") else [Wanted()]

    def _begun(self) -> list[Event]:
        if self.count == COUNT_MAX:
            raise ExchangeError("value", f"exchange number {COUNT_MAX} of a connection is the last")
        self.count += 1
        return [Begin()]

    def _given(self) -> list[Event]:
        """Both workers can receive: the exchange is over, and what was handed over the caller's."""
        if not self.idle:
            return []
        handover, self._peers = self._peers, Handover()
        return [Give(handover)]

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

    def _fail(self) -> None:
        self.state = "failed"
        self.forget()

    def _check_renew(self, renew: Renew) -> None:
        if not compare_digest(renew.hash, self._hash):
            raise ExchangeError("hash", "RENEW with the transcript hash of another connection")
        self._check_count(renew.count)
        self._check_handover(renew.handover)
        if _meet(renew.handover.secrets, self._mine.secrets):
            raise ExchangeError("value", "a secret of the peer is this end's own: a reflection")

    def _check_count(self, count: int) -> None:
        if count != self.count:
            raise ExchangeError("value", f"count is {count}: this is exchange {self.count}")

    @property
    def _form(self) -> Form:
        """What is handed over: as in a CONFIRM, but of a group, whose key stays."""
        form = handed_over(self.role, self._agreed)
        return form if form == "secrets" else ""

    def _check_handover(self, handover: Handover) -> None:
        """Never shown."""
        if handover.form != self._form:
            raise ExchangeError(
                "format",
                f"RENEW with {CARRIED[handover.form]}: here it has {CARRIED[self._form]}",
            )
        if len(handover.secrets) not in (0, len(self._agreed.ends)):
            raise ExchangeError(
                "count", f"{len(handover.secrets)} secrets for {len(self._agreed.ends)} QPs"
            )
        size = secret_size(self._agreed.suite)
        if any(len(secret) != size for secret in handover.secrets):
            raise ExchangeError("value", f"secrets that are not the {size} bytes of the suite")


def _meet(some: Sequence[bytearray], others: Sequence[bytearray]) -> bool:
    return any(secret in others for secret in some)


def _name(message: Message) -> str:
    return type(message).__name__.upper()
