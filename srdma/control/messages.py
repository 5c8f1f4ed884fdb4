"""Messages of a worker's control socket: kinds, layouts, bodies (protocol.md 10).

The owner of these formats in Python; csrc/ctl.c is in C. A row of the tables below is a body.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar, TypeVar

from srdma.errors import LocalError

VERSION = 1
MAX_MESSAGE = 8192
ALLOW_UNPROTECTED = 1  # flag of HELLO's answer
SHARED = 1  # flag of OPEN
GROUP_KEY_LEN = 48
HOLDER_LEN = 16  # of an identity, in capabilities
TOKEN_MIN, TOKEN_MAX = 88, 4584  # of a capability (protocol.md 6.2)
WIRE_LEN, IDENTITY_LEN = 64, 256  # of padded texts, the last zero included

HEADER = struct.Struct(">HHII")


class Kind(IntEnum):
    """Of a message."""

    HELLO = 1
    OPEN = 2
    ATTACH = 3
    REG_MR = 4
    DEREG_MR = 5
    INIT = 6
    KEYS = 7
    WAIT = 8
    DESTROY = 9
    STATS = 10
    KEY = 11
    CAP = 12
    INSTALL = 13
    UNINSTALL = 14
    REVOKE = 15
    ROTATE = 16
    REKEY = 17
    EXPIRE = 18
    END = 19


class Direction(IntEnum):
    """Of a secret that REKEY brings."""

    BOTH = 0  # none is brought: does one wait?
    RX = 1
    TX = 2


class HostKind(IntEnum):
    """How hosts reach the worker."""

    SHM = 1
    VERBS = 2


class QPState(IntEnum):
    """Of a QP at its worker (protocol.md 7)."""

    INIT = 1
    RTR = 2
    RTS = 3
    ERR = 4


REQUEST = {
    Kind.HELLO: struct.Struct(">I"),
    Kind.OPEN: struct.Struct(">II"),
    Kind.ATTACH: struct.Struct(">16s"),
    Kind.REG_MR: struct.Struct(">IIQQIIQBB2x"),
    Kind.DEREG_MR: struct.Struct(">II"),
    Kind.INIT: struct.Struct(">IIIII"),
    Kind.KEYS: struct.Struct(">IBBBBBB2x8s16sIQIII64s256s32s32s48s"),
    Kind.WAIT: struct.Struct(">I"),
    Kind.DESTROY: struct.Struct(">I"),
    Kind.STATS: struct.Struct(""),
    Kind.KEY: struct.Struct(">IBB2x8s16sI"),
    Kind.CAP: struct.Struct(">IIQQIB3x16s"),
    Kind.INSTALL: struct.Struct(">I"),  # and the token
    Kind.UNINSTALL: struct.Struct(">II"),
    Kind.REVOKE: struct.Struct(">IIQQ"),
    Kind.ROTATE: struct.Struct(">II"),
    Kind.REKEY: struct.Struct(">IBB2x32s"),
    Kind.EXPIRE: struct.Struct(">I"),
    Kind.END: struct.Struct(">II"),
}
ANSWER = {
    Kind.HELLO: struct.Struct(">IIII64s64s64s32sII"),
    Kind.OPEN: struct.Struct(">I16s64s"),
    Kind.ATTACH: struct.Struct(">I"),
    Kind.REG_MR: struct.Struct(">I"),
    Kind.INIT: struct.Struct(">I16sQIII32s64s"),
    Kind.WAIT: struct.Struct(">II"),
    Kind.KEY: struct.Struct(">32s48s"),
    Kind.INSTALL: struct.Struct(">I"),
    Kind.ROTATE: struct.Struct(">II"),
}
_NOTHING = struct.Struct("")
_A = TypeVar("_A", bound="_Answer")


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode()


class _Answer:
    """A dataclass whose fields stand in the order of the body; str is padded text."""

    kind: ClassVar[Kind]

    @classmethod
    def decode(cls: type[_A], body: bytes | bytearray) -> _A:
        values: tuple[Any, ...] = ANSWER[cls.kind].unpack(body)
        texts = [f.type == "str" for f in fields(cls)]  # type: ignore[arg-type]
        return cls(*(_text(v) if t else v for v, t in zip(values, texts, strict=True)))


@dataclass(frozen=True)
class Hello(_Answer):
    """What a worker says of itself."""

    kind: ClassVar[Kind] = Kind.HELLO
    version: int
    flags: int
    host_kind: int
    pid: int
    host_device: str
    wire: str
    name: str
    suite_ids: bytes
    threads: int
    thread: int  # whose control socket this is

    @property
    def suites(self) -> tuple[int, ...]:
        """Ids of the suites that the worker has: the recommended ones first, by their speed."""
        return tuple(self.suite_ids.rstrip(b"\0"))

    @property
    def allow_unprotected(self) -> bool:
        return bool(self.flags & ALLOW_UNPROTECTED)


@dataclass(frozen=True, repr=False)
class LegInfo(_Answer):
    """A leg: its token admits a verbs leg, or another control connection. Never shown."""

    kind: ClassVar[Kind] = Kind.OPEN
    leg: int
    token: bytes
    address: str


@dataclass(frozen=True)
class QPInfo(_Answer):
    """What INIT gives, and END of protocol.md 8.2 tells the peer."""

    kind: ClassVar[Kind] = Kind.INIT
    qpn: int
    eid: bytes
    pn: int
    mtu: int
    window: int
    reads: int
    random: bytes
    wire: str


@dataclass(frozen=True)
class MRRequest:
    """Body of REG_MR, in its order."""

    leg: int
    access: int
    address: int
    length: int
    host_rkey: int = 0
    scope_qpn: int = 0
    fd_offset: int = 0
    log2_block: int = 0  # with PROOF: of its tree (protocol.md 6.1)
    depth: int = 0


@dataclass(frozen=True)
class QPRequest:
    """Body of INIT, in its order."""

    leg: int
    sq: int
    rq: int
    timeout_ms: int = 0
    mtu: int = 0


@dataclass(frozen=True, repr=False)
class Keys:
    """Body of KEYS, in its order. The secrets may be bytearrays, to be wiped; they never show."""

    qpn: int
    role: int
    suite: int
    level: int
    tag_len: int
    mode: int
    secret_len: int
    generation: bytes
    peer_eid: bytes
    peer_qpn: int
    peer_pn: int
    peer_mtu: int
    peer_window: int
    peer_reads: int
    peer_wire: str
    peer_identity: str
    tx_secret: bytes | bytearray
    rx_secret: bytes | bytearray
    group_key: bytes | bytearray = b""


@dataclass(frozen=True)
class Rotation(_Answer):
    """Which K_PD a leg has now, and how many keys of its QPs hang on the one before."""

    kind: ClassVar[Kind] = Kind.ROTATE
    serial: int
    behind: int


@dataclass(frozen=True)
class KeyRequest:
    """What KEY asks for: S of `size` bytes, of the direction from the peer to this QP."""

    qpn: int
    size: int
    generation: bytes
    peer_eid: bytes
    peer_qpn: int
    group: bool = False  # and the key of the trust group


@dataclass(frozen=True, kw_only=True)
class CapabilityRequest:
    """Body of CAP, in its order. offset, length: from the region's start; no holder: anybody."""

    leg: int
    key: int
    offset: int
    length: int
    expiry: int
    rights: int
    holder: bytes = b""


def pack(kind: Kind, *values: Any) -> bytearray:
    """Body of a request; a value that the layout cannot hold is a LocalError."""
    layout = REQUEST[kind]
    body = bytearray(layout.size)
    try:
        layout.pack_into(body, 0, *(v.encode() if isinstance(v, str) else v for v in values))
    except struct.error as e:
        raise LocalError(f"{kind.name}: a value is outside what the message can hold: {e}") from e
    return body


def pack_fields(kind: Kind, request: MRRequest | QPRequest | Keys | CapabilityRequest) -> bytearray:
    """Body of a request that is a dataclass."""
    return pack(kind, *(getattr(request, f.name) for f in fields(request)))


def fits(kind: Kind, size: int) -> bool:
    """Is this the size of an answer's body? What is inside is for those who take it apart."""
    if kind is Kind.STATS:
        return size % 8 == 0
    if kind is Kind.CAP:
        return TOKEN_MIN <= size <= TOKEN_MAX
    return size == ANSWER.get(kind, _NOTHING).size
