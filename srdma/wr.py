"""Work requests, with the names and values of verbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


class SendWR:
    """A request: of one SGE, or of `data` (at most 448 bytes) copied at posting.

    imm_data is a number, the same at both ends; it is present by the opcode.
    """

    def __init__(
        self,
        wr_id: int = 0,
        opcode: WROpcode = WROpcode.SEND,
        sg: Sequence[SGE] = (),
        *,
        data: Buffer | None = None,
        imm_data: int = 0,
        send_flags: int = SendFlag.SIGNALED,
    ) -> None:
        if len(sg) > 1:
            raise LocalError(f"{len(sg)} SGEs: this version takes one per work request")
        if sg and data is not None:
            raise LocalError("both an SGE and data: a work request sends one of them")
        self.wr_id = wr_id
        self.opcode = WROpcode(opcode)
        self.sge = sg[0] if sg else None
        self.data = data
        self.imm_data = imm_data
        self.send_flags = SendFlag(send_flags)
        self.remote_addr = 0
        self.rkey = 0

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


class RecvWR:
    """A receive into one SGE, or of no bytes."""

    def __init__(self, wr_id: int = 0, sg: Sequence[SGE] = ()) -> None:
        if len(sg) > 1:
            raise LocalError(f"{len(sg)} SGEs: this version takes one per work request")
        self.wr_id = wr_id
        self.sge = sg[0] if sg else None
