"""Work requests, with the names and values of verbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

from srdma.errors import BoundsError, LocalError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from srdma.mr import MR, RemoteMR

MAX_MESSAGE = 1 << 30
MAX_INLINE = 448


class WROpcode(IntEnum):
    """Those of enum ibv_wr_opcode that srdma-1 has."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4


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

    imm_data is a number, the same at both ends; it is present by the opcode.
    """

    wr_id: int = 0
    opcode: WROpcode = WROpcode.SEND
    sg: Sequence[SGE] = ()
    _: KW_ONLY
    data: Buffer | None = None
    imm_data: int = 0
    send_flags: SendFlag = SendFlag.SIGNALED
    remote_addr: int = field(default=0, init=False)
    rkey: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        _check_sg(self.sg)
        if self.sg and self.data is not None:
            raise LocalError("both an SGE and data: a work request sends one of them")
        if self.data is not None and self.opcode == WROpcode.RDMA_READ:
            raise LocalError("a READ has no data: give an SGE for what arrives")

    @property
    def sge(self) -> SGE | None:
        return self.sg[0] if self.sg else None

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """Where a READ or WRITE works, as in pyverbs; the peer's worker checks it."""
        self.rkey, self.remote_addr = rkey, addr

    def set_remote(self, remote: RemoteMR, offset: int = 0) -> None:
        """Where a READ or WRITE works; refused here if it is not inside `remote`."""
        length = self.length
        if offset < 0 or offset + length > remote.length:
            raise BoundsError(
                f"a message of {length} bytes at offset {offset} does not fit into the remote "
                f"memory region of {remote.length} bytes"
            )
        self.set_wr_rdma(remote.rkey, remote.address + offset)

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


def _check_sg(sg: Sequence[SGE]) -> None:
    if len(sg) > 1:
        raise LocalError(f"{len(sg)} SGEs: this version takes one per work request")
