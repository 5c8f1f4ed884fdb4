"""Work requests, with the names and values of verbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

from srdma.capability import Capability, Right
from srdma.errors import BoundsError, LocalError
from srdma.native import constants

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from srdma.mr import MR, RemoteMR

MAX_MESSAGE = constants.MAX_MESSAGE
MAX_INLINE = constants.MAX_INLINE
ATOMIC_LENGTH = constants.ATOMIC_LEN


class WROpcode(IntEnum):
    """Those of enum ibv_wr_opcode that srdma-1 has."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4
    ATOMIC_CMP_AND_SWP = 5
    ATOMIC_FETCH_AND_ADD = 6

    @property
    def right(self) -> Right:
        """What a capability must grant for it; none for a SEND."""
        return _RIGHTS.get(self, Right(0))

    @property
    def descriptor(self) -> int:
        """Opcode of its descriptor (protocol.md 9.1)."""
        return _DESCRIPTORS[self]

    @property
    def with_imm(self) -> bool:
        return self in (WROpcode.RDMA_WRITE_WITH_IMM, WROpcode.SEND_WITH_IMM)

    @property
    def is_atomic(self) -> bool:
        return self in (WROpcode.ATOMIC_CMP_AND_SWP, WROpcode.ATOMIC_FETCH_AND_ADD)


_DESCRIPTORS = {
    WROpcode.RDMA_WRITE: constants.DESC_WRITE,
    WROpcode.RDMA_WRITE_WITH_IMM: constants.DESC_WRITE_IMM,
    WROpcode.RDMA_READ: constants.DESC_READ,
    WROpcode.SEND: constants.DESC_SEND,
    WROpcode.SEND_WITH_IMM: constants.DESC_SEND_IMM,
    WROpcode.ATOMIC_CMP_AND_SWP: constants.DESC_COMPARE_SWAP,
    WROpcode.ATOMIC_FETCH_AND_ADD: constants.DESC_FETCH_ADD,
}
_RIGHTS = {
    WROpcode.RDMA_WRITE: Right.WRITE,
    WROpcode.RDMA_WRITE_WITH_IMM: Right.WRITE,
    WROpcode.RDMA_READ: Right.READ,
    WROpcode.ATOMIC_CMP_AND_SWP: Right.ATOMIC,
    WROpcode.ATOMIC_FETCH_AND_ADD: Right.ATOMIC,
}


class SendFlag(IntFlag):
    """Of enum ibv_send_flags. A SendWR with `data` is inline by itself."""

    FENCE = 1
    SIGNALED = 2


@dataclass(frozen=True, slots=True)
class SGE:
    """A piece of registered local memory; `mr[a:b]` makes one."""

    addr: int
    length: int
    lkey: int
    mr: MR | None = None


@dataclass(slots=True)
class SendWR:
    """A request: of one SGE, or of `data` (at most 448 bytes) copied at posting.

    imm_data is a number, the same at both ends; it is present by the opcode. A
    READ or WRITE with a capability works at its first byte unless set_remote()
    or set_wr_rdma() says where. An atomic works on 8 bytes at an address that is
    a multiple of 8, a number in the byte order of its machine, and what was there
    before arrives in its SGE, of 8 bytes, in the order of this machine:
    compare_add is added, or compared; swap is what is put there if it is equal.
    """

    wr_id: int = 0
    opcode: WROpcode = WROpcode.SEND
    sg: Sequence[SGE] = ()
    _: KW_ONLY
    data: Buffer | None = None
    imm_data: int = 0
    send_flags: SendFlag = SendFlag.SIGNALED
    capability: Capability | None = None
    compare_add: int = 0
    swap: int = 0
    remote_addr: int = field(default=0, init=False)
    rkey: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        _check_sg(self.sg)
        if self.sg and self.data is not None:
            raise LocalError("both an SGE and data: a work request sends one of them")
        if self.data is not None and (self.opcode == WROpcode.RDMA_READ or self.opcode.is_atomic):
            raise LocalError("READs and atomics have no data: give an SGE for what arrives")
        if self.capability is not None:
            self.set_wr_rdma(self.capability.rkey, self.capability.address)

    @property
    def sge(self) -> SGE | None:
        return self.sg[0] if self.sg else None

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """Where a READ or WRITE works, as in pyverbs; the peer's worker checks it."""
        self.rkey, self.remote_addr = rkey, addr

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        """Where an atomic works, and with what, as in pyverbs."""
        self.set_wr_rdma(rkey, addr)
        self.compare_add, self.swap = compare_add, swap

    def set_remote(self, remote: RemoteMR | Capability, offset: int = 0) -> None:
        """Where a READ, WRITE or atomic works; refused here if it is not inside `remote`."""
        check_inside(self.length, remote, offset)
        self.set_wr_rdma(remote.rkey, remote.address + offset)
        self.capability = remote if isinstance(remote, Capability) else None

    def check_capability(self) -> None:
        """Refuse what its capability, if it has one, does not grant."""
        if self.capability is None:
            return
        if not self.opcode.right:
            raise LocalError("a SEND names no memory of the peer: give it no capability")
        self.capability.check_right(self.opcode.right)
        if self.rkey != self.capability.rkey:
            raise LocalError(
                f"rkey {self.rkey:#x} is not the capability's, {self.capability.rkey:#x}"
            )
        check_inside(self.length, self.capability, self.remote_addr - self.capability.address)

    @property
    def operands(self) -> tuple[int, int]:
        """Of an atomic, as its descriptor has them: swap or add, compare."""
        if self.length != ATOMIC_LENGTH:
            raise LocalError(
                f"an atomic with an SGE of {self.length} bytes: what was there has "
                f"{ATOMIC_LENGTH} bytes"
            )
        if self.opcode is WROpcode.ATOMIC_FETCH_AND_ADD:
            return self.compare_add, 0
        return self.swap, self.compare_add

    @property
    def length(self) -> int:
        """Of the message in bytes."""
        if self.data is not None:
            return memoryview(self.data).nbytes
        return self.sge.length if self.sge else 0


@dataclass(slots=True)
class RecvWR:
    """A receive into one SGE, or of no bytes."""

    wr_id: int = 0
    sg: Sequence[SGE] = ()

    def __post_init__(self) -> None:
        _check_sg(self.sg)

    @property
    def sge(self) -> SGE | None:
        return self.sg[0] if self.sg else None


def check_inside(length: int, remote: RemoteMR | Capability, offset: int) -> None:
    """Refuse a message that does not lie inside `remote`."""
    if offset < 0 or offset + length > remote.length:
        kind = "capability" if isinstance(remote, Capability) else "remote memory region"
        raise BoundsError(
            f"a message of {length} bytes at offset {offset} does not fit into the {kind} "
            f"of {remote.length} bytes"
        )


def _check_sg(sg: Sequence[SGE]) -> None:
    if len(sg) > 1:
        raise LocalError(f"{len(sg)} SGEs: this version takes one per work request")
