"""The messages of the key exchange: bytes to checked values and back (protocol.md 8.2).

Every message is a deterministic CBOR map with text keys. Decoding is total: for any bytes the
result is a message whose fields are in range, or an ExchangeError that names the field, its value
and the permitted values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import cbor2

from srdma.keyex.fields import ExchangeError, bad, exactly, integer, octets, plain_map, text
from srdma.keyex.groups import Ask, Members, ask_of, members_of
from srdma.keyex.offers import (
    MODE_BASIC,
    QPS_MAX,
    End,
    Suite,
    To,
    data_of,
    ends_of,
    group_of,
    is_unprotected,
    mode_of,
    modes_of,
    random_of,
    suite_of,
    suites_of,
    to_of,
)
from srdma.keyex.talks import Say, Talk, port_of, say_of, talk_of
from srdma.native.constants import GROUP_KEY_LEN

VERSION = 1
MESSAGE_MAX = 65_536
TEXT_MAX = 512
PROOF_LEN = 32  # bytes, of a RESUME
COUNT_MAX = 2**32 - 1  # exchanges of one connection: 4 bytes in the exporter's context


Form = Literal["", "secrets", "kpd"]  # field of a CONFIRM besides the hash; "": none


@dataclass(frozen=True)
class Offer:
    """OFFER (8.2): the client's suites and modes in order of preference, trust group ("" for
    none), random (32 bytes), ends, and data of the application (at most 256 bytes)."""

    suites: tuple[Suite, ...]
    modes: tuple[int, ...]
    group: str
    random: bytes
    ends: tuple[End, ...]
    data: bytes = b""
    to: To | None = None  # of a rendezvous (8.8)


@dataclass(frozen=True)
class Choice:
    """CHOICE (8.2): the selected suite and mode, and the server's values as in an Offer."""

    suite: Suite
    mode: int
    group: str
    random: bytes
    ends: tuple[End, ...]
    data: bytes = b""


@dataclass(frozen=True)
class Handover:
    """The secrets in a CONFIRM: one S per QP, or the key of a trust group, or none.

    They are bytearrays, so that `wipe` can overwrite them; `repr` does not show them.
    """

    secrets: tuple[bytearray, ...] = field(default=(), repr=False)
    group_key: bytearray = field(default_factory=bytearray, repr=False)

    @property
    def form(self) -> Form:
        return "secrets" if self.secrets else "kpd" if self.group_key else ""

    def wipe(self) -> None:
        """Overwrite all secrets with zeros."""
        for secret in (*self.secrets, self.group_key):
            secret[:] = bytes(len(secret))


NOTHING = Handover()


@dataclass(frozen=True)
class Confirm:
    """CONFIRM (8.3): the transcript hash (32 bytes), and the secrets of the sender."""

    hash: bytes
    handover: Handover = field(default_factory=Handover)


@dataclass(frozen=True)
class Ready:
    """READY (8.1): the QPs of the sender are in RTS."""


@dataclass(frozen=True)
class ErrorMessage:
    """ERROR (8.1): the sender stops; both ends destroy the QPs."""

    code: str
    text: str


@dataclass(frozen=True)
class Rekey:
    """TLS records of an inner connection (8.5). Empty: the server asks for an exchange."""

    records: bytes = field(repr=False)


@dataclass(frozen=True)
class Renew:
    """In the inner connection: the number of the exchange and the secrets of the sender (8.5)."""

    hash: bytes
    count: int
    handover: Handover = field(default_factory=Handover)


@dataclass(frozen=True)
class Taken:
    """In the inner connection: the sender's worker has its new receive secrets (8.5)."""

    count: int


@dataclass(frozen=True)
class Resume:
    """RESUME (8.6): the transcript hash of a session (32 bytes), the number of the last exchange
    that the sender began, and per QP how many REKEY tx its worker accepted and its proof (32 bytes,
    or empty if the QP has ended)."""

    hash: bytes
    count: int
    given: tuple[int, ...]
    proofs: tuple[bytes, ...]


@dataclass(frozen=True)
class Wake:
    """WAKE (8.6): the server of the session with this transcript hash (32 bytes) wants an exchange,
    and the session has no connection."""

    hash: bytes


@dataclass(frozen=True)
class ClosedMessage:
    """CLOSED (8.6): the sender ends the session and its QPs."""


@dataclass(frozen=True)
class Hello:
    """HELLO (8.7): the first message of each end with srdma/2; the TCP port of the sender's agent,
    or 0. groups: it knows ASK and MEMBERS."""

    agent: int
    groups: bool = False

    def as_map(self) -> dict[str, Any]:
        return {"agent": self.agent, **({"groups": True} if self.groups else {})}


Message = (
    Offer
    | Choice
    | Confirm
    | Ready
    | Rekey
    | Renew
    | Taken
    | Resume
    | Wake
    | ClosedMessage
    | ErrorMessage
    | Hello
    | Talk
    | Say
    | Ask
    | Members
)


# Encoding ------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """The exact bytes of a message; the transcript hash covers them."""
    return cbor2.dumps(_as_map(message), canonical=True)


def _as_map(message: Message) -> dict[str, Any]:
    match message:
        case Offer():
            return {
                "v": VERSION,
                "qps": len(message.ends),
                "suites": [list(s) for s in message.suites],
                "modes": list(message.modes),
                "group": message.group,
                "random": message.random,
                "ends": [e.as_map() for e in message.ends],
                "data": message.data,
                **({"to": message.to.as_map()} if message.to else {}),
            }
        case Choice():
            return {
                "v": VERSION,
                "suite": list(message.suite),
                "mode": message.mode,
                "group": message.group,
                "random": message.random,
                "ends": [e.as_map() for e in message.ends],
                "data": message.data,
            }
        case Confirm():
            return {"hash": message.hash, **_handed_over(message.handover)}
        case Renew():
            return {
                "hash": message.hash,
                "count": message.count,
                **_handed_over(message.handover),
            }
        case Resume():
            return {
                "hash": message.hash,
                "count": message.count,
                "given": list(message.given),
                "proofs": list(message.proofs),
            }
        case ErrorMessage():
            return {"error": message.text[:TEXT_MAX], "code": message.code}
        case Talk() | Ask() | Members() | Hello():
            return message.as_map()
        case _:
            return _as_field(message)


def _as_field(
    message: Ready | Rekey | Taken | Wake | ClosedMessage | Say,
) -> dict[str, Any]:
    """The messages with one field."""
    match message:
        case Ready():
            return {"ready": True}
        case Rekey():
            return {"rekey": message.records}
        case Taken():
            return {"taken": message.count}
        case Wake():
            return {"wake": message.hash}
        case ClosedMessage():
            return {"closed": True}
        case Say():
            return {"say": message.data}


def _handed_over(handover: Handover) -> dict[str, Any]:
    match handover.form:
        case "secrets":
            return {"secrets": list(handover.secrets)}
        case "kpd":
            return {"kpd": handover.group_key}
        case _:
            return {}


# Decoding ------------------------------------------------------------------


def decode(raw: bytes) -> Message:
    """The message in these bytes, with every field checked. Raises ExchangeError."""
    fields = plain_map(raw, MESSAGE_MAX)
    if "error" in fields:
        return _error(fields)
    if "suites" in fields:
        return _offer(fields)
    if "suite" in fields:
        return _choice(fields)
    if "proofs" in fields:
        return _resume(fields)
    if "count" in fields:
        return _renew(fields)
    if "hash" in fields:
        return _confirm(fields)
    for word, read in _SHORT.items():
        if word in fields:
            exactly(fields, word.upper(), {word})
            return read(fields)
    if "members" in fields:
        return members_of(fields)
    if "talk" in fields:
        return talk_of(fields)
    if "multicast" in fields:
        return ask_of(fields)
    if "agent" in fields:
        return Hello(port_of("agent", fields["agent"], 0), fields.get("groups") is True)
    raise ExchangeError(
        "format",
        f"a message with the keys {sorted(fields)!r:.80} is unknown: known are OFFER, CHOICE, "
        "CONFIRM, READY, REKEY, RENEW, TAKEN, RESUME, WAKE, CLOSED, SAY, TALK, ASK, MEMBERS and "
        "HELLO",
    )


def offer_of(fields: Mapping[str, Any]) -> Offer:
    """The OFFER with these fields, besides the version. Raises as decode() of this OFFER does."""
    return _offer({"v": VERSION, **fields})


def _offer(fields: Mapping[str, Any]) -> Offer:
    names = {"v", "qps", "suites", "modes", "group", "random", "ends", "data"}
    exactly(fields, "OFFER", names | fields.keys() & {"to"})
    _version(fields)
    ends = ends_of(fields)
    if integer("qps", fields["qps"], 1, QPS_MAX) != len(ends):
        raise bad("qps", fields["qps"], f"the number of ends, {len(ends)}")
    suites = suites_of(fields["suites"])
    modes = modes_of(fields["modes"])
    if is_unprotected(suites[0]) and modes != (MODE_BASIC,):
        raise bad("modes", fields["modes"], "[0] (basic) with suite `none`")
    group, random, data = group_of(fields), random_of(fields), data_of(fields)
    return Offer(suites, modes, group, random, ends, data, to_of(fields, ends))


def _choice(fields: Mapping[str, Any]) -> Choice:
    exactly(fields, "CHOICE", {"v", "suite", "mode", "group", "random", "ends", "data"})
    _version(fields)
    suite = suite_of(fields["suite"])
    mode = mode_of(fields["mode"])
    if is_unprotected(suite) and mode != MODE_BASIC:
        raise bad("mode", mode, "0 (basic) with suite `none`")
    ends = ends_of(fields)
    return Choice(suite, mode, group_of(fields), random_of(fields), ends, data_of(fields))


def _confirm(fields: Mapping[str, Any], what: str = "CONFIRM") -> Confirm:
    """Error texts contain no value of the message, because it may carry secrets."""
    form = next((name for name in ("secrets", "kpd") if name in fields), "")
    exactly(fields, what, {"hash", form} - {""})
    digest = octets(fields, "hash", 32, 32)
    if form == "secrets":
        return Confirm(digest, Handover(secrets=_secrets(fields["secrets"])))
    if form == "kpd":
        return Confirm(digest, Handover(group_key=_group_key(fields["kpd"])))
    return Confirm(digest)


def _renew(fields: Mapping[str, Any]) -> Renew:
    """Error texts contain no value of the message, because it may carry secrets."""
    confirm = _confirm({name: value for name, value in fields.items() if name != "count"}, "RENEW")
    return Renew(confirm.hash, _count(fields["count"]), confirm.handover)


def _resume(fields: Mapping[str, Any]) -> Resume:
    exactly(fields, "RESUME", {"hash", "count", "given", "proofs"})
    given = _entries(fields, "given")
    proofs = _entries(fields, "proofs")
    if len(given) != len(proofs):
        raise bad("given", len(given), f"as many entries as proofs, {len(proofs)}")
    if any(not isinstance(proof, bytes) or len(proof) not in (0, PROOF_LEN) for proof in proofs):
        raise ExchangeError("value", f"proofs must be byte strings of 0 or {PROOF_LEN} bytes")
    return Resume(
        octets(fields, "hash", 32, 32),
        integer("count", fields["count"], 0, COUNT_MAX),
        tuple(integer("given", entry, 0, COUNT_MAX) for entry in given),
        tuple(proofs),
    )


def _entries(fields: Mapping[str, Any], name: str) -> list[Any]:
    value = fields[name]
    if not isinstance(value, list) or not 1 <= len(value) <= QPS_MAX:
        raise bad(name, value, f"a list of 1 to {QPS_MAX} entries")
    return value


def _ready(fields: Mapping[str, Any]) -> Ready:
    _true("ready", fields)
    return Ready()


def _wake(fields: Mapping[str, Any]) -> Wake:
    return Wake(octets(fields, "wake", 32, 32))


def _closed(fields: Mapping[str, Any]) -> ClosedMessage:
    _true("closed", fields)
    return ClosedMessage()


def _true(name: str, fields: Mapping[str, Any]) -> None:
    if fields[name] is not True:
        raise bad(name, fields[name], "true")


def _rekey(fields: Mapping[str, Any]) -> Rekey:
    return Rekey(octets(fields, "rekey", 0, MESSAGE_MAX))


def _taken(fields: Mapping[str, Any]) -> Taken:
    return Taken(_count(fields["taken"]))


def _count(value: object) -> int:
    return integer("count", value, 1, COUNT_MAX)


# Readers of the messages with one field, by the name of that field.
_SHORT: dict[str, Callable[[Mapping[str, Any]], Message]] = {
    "ready": _ready,
    "rekey": _rekey,
    "taken": _taken,
    "wake": _wake,
    "closed": _closed,
    "say": say_of,
}


def _secrets(value: object) -> tuple[bytearray, ...]:
    entries = value if isinstance(value, list) else []
    sizes = {len(entry) if isinstance(entry, bytes) else 0 for entry in entries}
    if not 1 <= len(entries) <= QPS_MAX or sizes not in ({16}, {32}):
        raise ExchangeError(
            "value",
            f"secrets must be a list of 1 to {QPS_MAX} entries, all of 16 bytes or all of 32 bytes",
        )
    return tuple(map(bytearray, entries))


def _group_key(value: object) -> bytearray:
    if not isinstance(value, bytes) or len(value) != GROUP_KEY_LEN:
        raise ExchangeError("value", f"kpd must be {GROUP_KEY_LEN} bytes")
    return bytearray(value)


def _error(fields: Mapping[str, Any]) -> ErrorMessage:
    exactly(fields, "ERROR", {"error", "code"})
    return ErrorMessage(text("code", fields["code"], 32), text("error", fields["error"], 4096))


def _version(fields: Mapping[str, Any]) -> None:
    if type(fields["v"]) is not int or fields["v"] != VERSION:
        raise ExchangeError(
            "version", f"version {fields['v']!r:.40} of the peer is unknown: it must be {VERSION}"
        )
