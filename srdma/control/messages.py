"""Messages of a worker's control socket (local-interface.md 3): kinds, and bodies as dataclasses.

The fields of a dataclass are in the order of the body. csrc/relay/ctl_layout.c defines the layouts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, TypeVar

from srdma.native import constants, control

_KEPT_QP = struct.Struct(">II16s")  # qpn, index 1 | peer qpn 3, peer eid


class Kind(IntEnum):
    """Kind of a message."""

    HELLO = control.KINDS["HELLO"]
    OPEN = control.KINDS["OPEN"]
    ATTACH = control.KINDS["ATTACH"]
    REG_MR = control.KINDS["REG_MR"]
    DEREG_MR = control.KINDS["DEREG_MR"]
    INIT = control.KINDS["INIT"]
    KEYS = control.KINDS["KEYS"]
    WAIT = control.KINDS["WAIT"]
    DESTROY = control.KINDS["DESTROY"]
    STATS = control.KINDS["STATS"]
    KEY = control.KINDS["KEY"]
    CAP = control.KINDS["CAP"]
    INSTALL = control.KINDS["INSTALL"]
    UNINSTALL = control.KINDS["UNINSTALL"]
    REVOKE = control.KINDS["REVOKE"]
    ROTATE = control.KINDS["ROTATE"]
    REKEY = control.KINDS["REKEY"]
    EXPIRE = control.KINDS["EXPIRE"]
    END = control.KINDS["END"]
    LIFE = control.KINDS["LIFE"]
    AGENT = control.KINDS["AGENT"]
    PROVE = control.KINDS["PROVE"]
    KEEP = control.KINDS["KEEP"]
    ADOPT = control.KINDS["ADOPT"]
    RESTRICT = control.KINDS["RESTRICT"]
    QUOTA = control.KINDS["QUOTA"]
    USAGE = control.KINDS["USAGE"]
    QPS = control.KINDS["QPS"]
    WITHDRAW = control.KINDS["WITHDRAW"]
    MODIFY = control.KINDS["MODIFY"]
    SHARE = control.KINDS["SHARE"]
    RESET = control.KINDS["RESET"]
    REINIT = control.KINDS["REINIT"]
    REPLACE = control.KINDS["REPLACE"]


class Direction(IntEnum):
    """Direction of the secret in REKEY."""

    BOTH = 0  # no secret: only asks whether one waits
    RX = constants.DIRECTION_RX
    TX = constants.DIRECTION_TX
    WITHDRAW = constants.DIRECTION_WITHDRAW  # no secret: takes back the one that waits in RX


@dataclass(frozen=True)
class Limits:
    """Limits of an account (RESTRICT). bytes: of registered memory."""

    connections: int = 64
    legs: int = 16
    qps: int = 1024
    regions: int = 1024
    bytes: int = 1 << 30


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
    """Answer to HELLO: the properties of a worker."""

    version: int
    flags: int
    host_kind: int
    pid: int
    host_device: str
    wire: str
    name: str
    suite_ids: bytes
    threads: int
    thread: int  # number of the worker process of this control socket
    gid: bytes  # of the worker, 16 bytes; an IPv4 address is mapped; zeros: none

    @property
    def suites(self) -> tuple[int, ...]:
        """Ids of the suites that the worker has; the recommended ones first, fastest first."""
        return tuple(self.suite_ids.rstrip(b"\0"))

    @property
    def allow_unprotected(self) -> bool:
        """True if the worker permits level "none"."""
        return bool(self.flags & control.ALLOW_UNPROTECTED)


@dataclass(frozen=True, repr=False)
class LegInfo(_Answer):
    """Answer to OPEN. token: 16 secret bytes that admit a verbs leg or an ATTACH; not in repr()."""

    leg: int
    token: bytes
    address: str


@dataclass(frozen=True)
class QPInfo(_Answer):
    """Answer to INIT; also sent to the peer as its end (protocol.md 8.2)."""

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
    """Body of REG_MR. Lengths in bytes; access: rights of protocol.md 6."""

    leg: int
    access: int
    address: int
    length: int
    host_rkey: int = 0
    scope_qpn: int = 0
    fd_offset: int = 0
    log2_block: int = 0  # with PROOF: log2 of the block size (protocol.md 6.1)
    depth: int = 0
    identity: str = ""  # of the peers that may use it; "": any
    bias: int = 0  # address in the host minus address in requests, modulo 2^64


@dataclass(frozen=True)
class QPRequest:
    """Body of INIT. mtu: bytes, 0: the worker's; timeout_ms 0: 30 s."""

    leg: int
    sq: int
    rq: int
    timeout_ms: int = 0
    mtu: int = 0


@dataclass(frozen=True, repr=False)
class Keys:
    """Body of KEYS. Secrets may be bytearrays, which can be wiped; repr() hides them."""

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
    """Answer to ROTATE: serial number of K_PD; number of QP keys that depend on the former one."""

    serial: int
    behind: int


@dataclass(frozen=True)
class Proof(_Answer):
    """Answer to PROVE. tx, rx: number of new secrets that the QP accepted for each direction,
    without those withdrawn. proof: of this end; zeros if the peer's was checked."""

    tx: int
    rx: int
    proof: bytes


@dataclass(frozen=True)
class KeptQP:
    """A QP in the answer to ADOPT. index: its place in KEEP."""

    qpn: int
    index: int
    peer_qpn: int
    peer_eid: bytes


@dataclass(frozen=True, repr=False)
class Kept:
    """Answer to ADOPT: the data of a KEEP, and those of its QPs that are in RTR or RTS."""

    serial: int
    leg: int
    qps: tuple[KeptQP, ...]
    data: bytes

    @classmethod
    def of(cls, values: Sequence[Any]) -> Kept:
        """From the values of control.decode()."""
        serial, leg, n, length, qps, data = values
        found = (
            KeptQP(qpn, place >> 24, place & 0xFFFFFF, eid)
            for qpn, place, eid in _KEPT_QP.iter_unpack(qps[: n * control.KEPT_QP_LEN])
        )
        return cls(serial, leg, tuple(found), bytes(data[:length]))


@dataclass(frozen=True)
class KeyRequest:
    """Body of KEY: requests the secret S (`size` bytes) with which the peer sends to this QP."""

    qpn: int
    size: int
    generation: bytes
    peer_eid: bytes
    peer_qpn: int
    group: bool = False  # also request the key of the trust group


@dataclass(frozen=True, kw_only=True)
class CapabilityRequest:
    """Body of CAP. offset: from the start of the region; holder b"": any; expiry 0: never."""

    leg: int
    key: int
    offset: int
    length: int
    expiry: int
    rights: int
    holder: bytes = b""


def values_of(request: MRRequest | QPRequest | Keys | CapabilityRequest | Limits) -> list[Any]:
    """Fields of a request in order, for control.encode()."""
    return [getattr(request, f.name) for f in fields(request)]
