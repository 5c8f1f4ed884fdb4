"""New secrets for QPs in RTS, without I/O (protocol.md 8.5).

Theory of operation. One `Renewal` is one end of all exchanges of a session that follow the first
one. Each exchange is a further TLS handshake inside that connection, the *inner*
one, and four messages in the inner connection:

    client                                   server
    begin   Begin                  idle
            REKEY ->        shaking          Begin, when the first records arrive
            shaken          deriving  Derive: ROTATE, KEY (key mode `pd`)
    derived RENEW ->        offered          <- RENEW
            Take            taking           Take: REKEY rx, the worker's new receive secret
    taken   TAKEN ->        said             <- TAKEN
            Give            idle             Give: REKEY tx, the worker's new send secret

Take at one end precedes Give at the other end. No worker therefore seals with a secret that the
receiving worker does not have yet. The caller (`renew.py`) owns TLS, the sockets and the
connection to the worker.

The server asks for an exchange by a REKEY without records (`Wanted` at the client). A client with
an exchange under way ignores the request, unless the server's RENEW has already arrived: then the
request is for a further exchange.

The table below is the only definition of which message is legal in which state. Every other
message raises ExchangeError, and so does the peer's ERROR. After an error the renewal remains in
state `failed`. If the TLS connection is lost, `lost` ends the exchange under way, and `resumed`
continues the count in another connection (8.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hmac import compare_digest

from srdma.keyex.agreement import Agreement
from srdma.keyex.exchange import CARRIED, Role, Send, printable
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import (
    COUNT_MAX,
    NOTHING,
    ClosedMessage,
    ErrorMessage,
    Form,
    Handover,
    Message,
    Rekey,
    Renew,
    Taken,
    decode,
    encode,
)
from srdma.keyex.offers import MODE_PD

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

# The missing event in each state, for error texts ("... waiting for X").
WAITING = {
    "shaking": "the peer's messages of the inner TLS handshake",
    "offered": "the peer's RENEW",
    "taking": "the local worker to take a new secret",
    "said": "the peer's worker to take a new secret",
    "heard": "the local worker to take a new secret",
}


@dataclass(frozen=True)
class Begin:
    """Make an inner TLS connection in the role of this end."""


@dataclass(frozen=True)
class Feed:
    """TLS records of the peer for the inner connection. The caller calls `shaken` when the inner
    handshake is complete."""

    records: bytes = field(repr=False)


@dataclass(frozen=True)
class Derive:
    """Let the local worker make the secrets of this end's RENEW; then call `derived`.

    form: "" if the RENEW carries no secrets.
    """

    form: Form


@dataclass(frozen=True)
class Say:
    """Send these bytes in the inner connection."""

    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Take:
    """Send REKEY rx to the local worker; then call `taken`."""


@dataclass(frozen=True)
class Give:
    """Send REKEY tx to the local worker with the secrets of the peer's RENEW.

    The caller owns `handover` and wipes it afterwards. No further message of this exchange
    follows.
    """

    handover: Handover


@dataclass(frozen=True)
class Wanted:
    """The server asks for an exchange."""


class Goodbye(Exception):  # noqa: N818 - an event, not a fault
    """The peer ended the session by CLOSED (8.6)."""


Event = Begin | Feed | Derive | Say | Take | Give | Wanted | Send


class Renewal:
    """One end; see the description of the module.

    `count`: number of the exchange under way, or of the last one; 0 before the first.
    """

    __slots__ = ("_agreement", "_hash", "_mine", "_peers", "count", "role", "state")

    def __init__(self, agreement: Agreement, count: int = 0) -> None:
        """count: number of the last exchange."""
        self.role: Role = agreement.role
        self.state = "idle"
        self.count = count
        self._agreement = agreement
        self._hash = agreement.hash
        self._mine, self._peers = NOTHING, NOTHING

    @property
    def idle(self) -> bool:
        return self.state == "idle"

    # Calls of the caller ----------------------------------------------------

    def begin(self) -> list[Event]:
        """Start an exchange; legal at the client only."""
        self._advance("begin")
        return self._begun()

    def ask(self) -> list[Event]:
        """The server's request for an exchange: a REKEY without records."""
        return [Send(encode(Rekey(b"")))]

    def lost(self) -> None:
        """The connection is lost: an exchange under way is over."""
        self.state = "idle"
        self.forget()

    def resumed(self, count: int) -> None:
        """Continue in another connection; count: that of the peer's RESUME."""
        self.count = max(self.count, count)

    def receive(self, raw: bytes, version: int = 1) -> list[Event]:
        """Process a message of the outer connection, of ALPN srdma/`version`. After an
        ExchangeError the state is `failed`. Raises Goodbye."""
        try:
            match decode(raw):
                case Rekey(records):
                    return self._on_records(records)
                case ClosedMessage() if version > 1:
                    raise Goodbye
                case ErrorMessage(code, text):
                    raise ExchangeError(printable(code), printable(text), from_peer=True)
                case message:
                    raise ExchangeError(
                        "state", f"{_name(message)} is not legal after READY; legal: REKEY"
                    )
        except ExchangeError:
            self._fail()
            raise

    def shaken(self, identity: str) -> list[Event]:
        """The inner handshake is complete and proved `identity`, which must be the peer's first."""
        if identity != self._agreement.identity:
            self._fail()
            raise ExchangeError(
                "identity",
                f"the peer's identity changed from {self._agreement.identity} to {identity}: "
                "a connection has one peer identity",
                told=f"this end's identity changed to {identity} during the connection",
            )
        self._advance("shaken")
        return [Derive(self._form)]

    def derived(self, handover: Handover) -> list[Event]:
        """Take the secrets of this end, which go into its RENEW. The renewal owns `handover`."""
        self._check_turn("derived")
        self._check_handover(handover)
        self._mine = handover
        self._advance("derived")
        return [Say(encode(Renew(self._hash, self.count, handover)))]

    def hear(self, raw: bytes) -> list[Event]:
        """Process a message of the inner connection. After an ExchangeError the state is
        `failed`."""
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
                        "state",
                        f"{_name(message)} is not legal in the inner connection; legal: RENEW, "
                        "TAKEN",
                    )
        except ExchangeError:
            self._fail()
            raise

    def taken(self) -> list[Event]:
        """The local worker took REKEY rx."""
        self._advance("taken")
        return [Say(encode(Taken(self.count))), *self._given()]

    def forget(self) -> None:
        """Wipe the secrets of an unfinished exchange."""
        self._mine.wipe()
        self._peers.wipe()

    def exporter_context(self, qp: int) -> bytes:
        """Context of the inner connection's exporter for QP number `qp`, counted from 0."""
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
            raise ExchangeError("value", "rekey is empty: a client must send TLS records")
        return [] if self.state in ("shaking", "deriving", "offered") else [Wanted()]

    def _begun(self) -> list[Event]:
        if self.count == COUNT_MAX:
            raise ExchangeError(
                "value", f"exchange {COUNT_MAX} was the last one of this connection: connect again"
            )
        self.count += 1
        return [Begin()]

    def _given(self) -> list[Event]:
        """In state idle both workers have the receive secrets: the caller gets the handover."""
        if not self.idle:
            return []
        handover, self._peers = self._peers, NOTHING
        return [Give(handover)]

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

    def _fail(self) -> None:
        self.state = "failed"
        self.forget()

    def _check_renew(self, renew: Renew) -> None:
        if not compare_digest(renew.hash, self._hash):
            raise ExchangeError("hash", "RENEW carries the transcript hash of another connection")
        self._check_count(renew.count)
        self._check_handover(renew.handover)
        if _overlap(renew.handover.secrets, self._mine.secrets):
            raise ExchangeError(
                "value", "a secret of the peer equals one of this end: a reflection attack"
            )

    def _check_count(self, count: int) -> None:
        if count != self.count:
            raise ExchangeError("value", f"count is {count}: it must be {self.count}")

    @property
    def _form(self) -> Form:
        """The form of a RENEW: that of a CONFIRM, but "" in a trust group, whose key stays."""
        return "secrets" if self._agreement.mode & MODE_PD and not self._agreement.group else ""

    def _check_handover(self, handover: Handover) -> None:
        """Check form, number and size of the secrets. Error texts never contain a secret."""
        if handover.form != self._form:
            raise ExchangeError(
                "format",
                f"RENEW carries {CARRIED[handover.form]}; it must carry {CARRIED[self._form]}",
            )
        qps = len(self._agreement.qpns)
        if len(handover.secrets) not in (0, qps):
            raise ExchangeError(
                "count", f"{len(handover.secrets)} secrets for {qps} QPs: one per QP is needed"
            )
        size = self._agreement.secret_size
        if any(len(secret) != size for secret in handover.secrets):
            raise ExchangeError("value", f"a secret has a wrong size: the suite needs {size} bytes")


def _overlap(some: Sequence[bytearray], others: Sequence[bytearray]) -> bool:
    return any(secret in others for secret in some)


def _name(message: Message) -> str:
    return type(message).__name__.upper()
