"""Messages of a worker's control socket (protocol.md 10): kinds, and bodies as dataclasses.

The fields of a dataclass stand in the order of the body. The layouts belong to csrc/ctl_layout.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, TypeVar

from srdma.native import constants, control


class Kind(IntEnum):
    """Kind of a message."""

    HELLO = control.HELLO
    OPEN = control.OPEN
    ATTACH = control.ATTACH
    REG_MR = control.REG_MR
    DEREG_MR = control.DEREG_MR
    INIT = control.INIT
    KEYS = control.KEYS
    WAIT = control.WAIT
    DESTROY = control.DESTROY
    STATS = control.STATS
    KEY = control.KEY
    CAP = control.CAP
    INSTALL = control.INSTALL
    UNINSTALL = control.UNINSTALL
    REVOKE = control.REVOKE
    ROTATE = control.ROTATE
    REKEY = control.REKEY
    EXPIRE = control.EXPIRE
    END = control.END


class Direction(IntEnum):
    """Direction of the secret in REKEY."""

    BOTH = 0  # no secret: only asks whether one waits
    RX = constants.DIRECTION_RX
    TX = constants.DIRECTION_TX


class HostKind(IntEnum):
    """How hosts reach the worker."""

    SHM = constants.HOST_SHM
    VERBS = constants.HOST_VERBS


class QPState(IntEnum):
    """State of a QP at its worker (protocol.md 7)."""

    INIT = constants.QP_INIT
    RTR = constants.QP_RTR
    RTS = constants.QP_RTS
    ERR = constants.QP_ERR


_A = TypeVar("_A", bound="_Answer")


class _Answer:
    """A dataclass of an answer."""

    @classmethod
    def of(cls: type[_A], values: Sequence[Any]) -> _A:
        """From the values of control.decode()."""
        return cls(*(bytes(v) if isinstance(v, bytearray) else v for v in values))


@dataclass(frozen=True)
class Hello(_Answer):
    """Answer to HELLO: what a worker is."""

    version: int
    flags: int
    host_kind: int
    pid: int
    host_device: str
    wire: str
    name: str
    suite_ids: bytes
    threads: int
    thread: int  # thread of this control socket

    @property
    def suites(self) -> tuple[int, ...]:
        """Ids of the suites that the worker has: the recommended ones first, by their speed."""
        return tuple(self.suite_ids.rstrip(b"\0"))

    @property
    def allow_unprotected(self) -> bool:
        return bool(self.flags & control.ALLOW_UNPROTECTED)


@dataclass(frozen=True, repr=False)
class LegInfo(_Answer):
    """A leg: its token admits a verbs leg, or another control connection. Never shown."""

    leg: int
    token: bytes
    address: str


@dataclass(frozen=True)
class QPInfo(_Answer):
    """What INIT gives, and END of protocol.md 8.2 tells the peer."""

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


def values_of(request: MRRequest | QPRequest | Keys | CapabilityRequest) -> list[Any]:
    """The values of a request that is a dataclass, for control.encode()."""
    return [getattr(request, f.name) for f in fields(request)]
