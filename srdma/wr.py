"""Work requests, with the names and values of verbs (local-interface.md 2.1)."""

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
MAX_SGES = constants.MAX_SGES
ATOMIC_LENGTH = constants.ATOMIC_LEN


class WROpcode(IntEnum):
    """The opcodes of enum ibv_wr_opcode that srdma-1 supports."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4
    ATOMIC_CMP_AND_SWP = 5
    ATOMIC_FETCH_AND_ADD = 6

    @property
    def right(self) -> Right:
        """Right that a capability must grant for this opcode; 0 for a SEND."""
        return _RIGHTS.get(self, Right(0))

    @property
    def descriptor(self) -> int:
        """Opcode in a descriptor (local-interface.md 2.1)."""
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
    """Flags of enum ibv_send_flags. INLINE is implied by SendWR.data.

    FENCE: the request starts when all earlier READs and atomics of the QP are complete. SIGNALED:
    success makes a completion; a failure always does.
    """

    FENCE = 1
    SIGNALED = 2


@dataclass(frozen=True, slots=True)
class SGE:
    """`length` bytes of registered local memory at virtual address `addr`; `mr[a:b]` makes one."""

    addr: int
    length: int
    lkey: int
    mr: MR | None = None


@dataclass(slots=True)
class SendWR:
    """A work request for the send queue: `sg`, or `data` as inline data of at most 448 bytes.

    sg: at most 28 SGEs of any regions of the PD; a message is gathered from them, and the bytes of
    a READ are scattered to them, in their order. Inline data is copied when the request is posted.
    imm_data: 32-bit immediate data, a number with the same value at both ends; sent if the opcode
    is one with immediate data. capability: capability to use; the remote address is its first byte
    unless set_remote() or set_wr_rdma() sets another.

    An atomic works on 8 bytes at a remote address that is a multiple of 8, a number in the byte
    order of the remote machine. Its only SGE, of 8 bytes, receives the original value in the byte
    order of this machine. compare_add: the number to add, or to compare with; swap: the new value
    if the comparison holds.

    Raises LocalError for parts that do not fit together.
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
            raise LocalError("both SGEs and data: give a work request one of them")
        if self.data is not None and (self.opcode == WROpcode.RDMA_READ or self.opcode.is_atomic):
            raise LocalError("READs and atomics have no data: give an SGE for the result")
        if self.capability is not None:
            self.set_wr_rdma(self.capability.rkey, self.capability.address)

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """Set rkey and remote virtual address, as in pyverbs; the peer's worker checks them."""
        self.rkey, self.remote_addr = rkey, addr

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        """Set rkey, remote virtual address and operands of an atomic, as in pyverbs."""
        self.set_wr_rdma(rkey, addr)
        self.compare_add, self.swap = compare_add, swap

    def set_remote(self, remote: RemoteMR | Capability, offset: int = 0) -> None:
        """Set the remote bytes at `offset` of `remote`. Raises BoundsError if they are outside."""
        check_inside(self.length, remote, offset)
        self.set_wr_rdma(remote.rkey, remote.address + offset)
        self.capability = remote if isinstance(remote, Capability) else None

    def check_capability(self) -> None:
        """Raise LocalError if the capability, where given, does not grant this request."""
        if self.capability is None:
            return
        if not self.opcode.right:
            raise LocalError("a SEND names no memory of the peer: give it no capability")
        self.capability.check_right(self.opcode.right)
        if self.rkey != self.capability.rkey:
            raise LocalError(
                f"rkey {self.rkey:#x} is not {self.capability.rkey:#x}, the capability's"
            )
        check_inside(self.length, self.capability, self.remote_addr - self.capability.address)

    @property
    def operands(self) -> tuple[int, int]:
        """Operands of an atomic in the order of its descriptor: (swap or add, compare)."""
        if len(self.sg) != 1 or self.length != ATOMIC_LENGTH:
            raise LocalError(
                f"an atomic with {len(self.sg)} SGEs of {self.length} bytes: the original value "
                f"needs one of {ATOMIC_LENGTH} bytes"
            )
        if self.opcode is WROpcode.ATOMIC_FETCH_AND_ADD:
            return self.compare_add, 0
        return self.swap, self.compare_add

    @property
    def length(self) -> int:
        """Length of the message in bytes."""
        if self.data is not None:
            return memoryview(self.data).nbytes
        return sum(sge.length for sge in self.sg)


@dataclass(slots=True)
class RecvWR:
    """A receive into at most 28 SGEs, which the message fills in their order.

    Without SGEs it takes a message of 0 bytes.
    """

    wr_id: int = 0
    sg: Sequence[SGE] = ()

    def __post_init__(self) -> None:
        _check_sg(self.sg)


def check_inside(length: int, remote: RemoteMR | Capability, offset: int) -> None:
    """Raise BoundsError if a message of `length` bytes at `offset` is not inside `remote`."""
    if offset < 0 or offset + length > remote.length:
        kind = "capability" if isinstance(remote, Capability) else "remote memory region"
        raise BoundsError(
            f"a message of {length} bytes at offset {offset} does not fit into the {kind} "
            f"of {remote.length} bytes"
        )


def _check_sg(sg: Sequence[SGE]) -> None:
    if len(sg) > MAX_SGES:
        raise LocalError(f"{len(sg)} SGEs: give a work request at most {MAX_SGES}")
