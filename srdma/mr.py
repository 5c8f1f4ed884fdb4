"""Memory regions: registered host memory, and the names by which peers use it (protocol.md 6)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime
from enum import IntFlag
from typing import TYPE_CHECKING, TypedDict

from srdma._engine.resource import Resource
from srdma.capability import NO_RIGHT, Capability, CapabilityError, Right, bearer_of, names_of
from srdma.control import TIMEOUT, CapabilityRequest
from srdma.errors import BoundsError, LocalError
from srdma.native import constants
from srdma.native.leg import Pinned
from srdma.wr import SGE

if TYPE_CHECKING:
    from srdma.pd import PD
    from srdma.scope import Holders

BLOCK_SIZE = 4096
DEPTH_LIMIT = constants.DEPTH_MAX

_REMOTE = struct.Struct(">QIQ")
_PREFIX = "srdma-mr"
_kept: list[Pinned] = []  # never freed: deregistration failed, DMA may still use it


class Access(IntFlag):
    """Rights of a region, as in enum ibv_access_flags (protocol.md 6)."""

    NONE = 0
    LOCAL_WRITE = constants.ACCESS_LOCAL_WRITE
    REMOTE_WRITE = constants.ACCESS_REMOTE_WRITE
    REMOTE_READ = constants.ACCESS_REMOTE_READ
    REMOTE_ATOMIC = constants.ACCESS_REMOTE_ATOMIC
    SHARED = constants.ACCESS_SHARED  # regions of other programs may expose the same bytes


REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


class Proving(TypedDict, total=False):
    """Keywords of `PD.reg_mr()` and `PD.alloc()`: the fields of `Proofs`."""

    proof: bool
    block_size: int
    depth_limit: int


@dataclass(frozen=True, slots=True)
class Proofs:
    """Memory proofs of a region (protocol.md 6.1). proof: each remote access needs a capability.

    block_size: bytes, a power of two from 64 to 2^30; ranges of capabilities consist of blocks.
    depth_limit: largest depth of the region's key tree, 1 to 48. A lower limit makes keys cheaper
    to derive, and ranges coarser.
    """

    proof: bool = False
    block_size: int = BLOCK_SIZE
    depth_limit: int = DEPTH_LIMIT

    def __post_init__(self) -> None:
        if not self.proof and (self.block_size, self.depth_limit) != (BLOCK_SIZE, DEPTH_LIMIT):
            raise LocalError("block_size= and depth_limit= are legal with proof=True only")
        if not 64 <= self.block_size <= 1 << 30 or self.block_size & (self.block_size - 1):
            raise LocalError(f"block_size={self.block_size}: a power of two from 64 to 2^30")
        if not 1 <= self.depth_limit <= DEPTH_LIMIT:
            raise LocalError(f"depth_limit={self.depth_limit}: 1 to {DEPTH_LIMIT} are legal")

    def granule(self, length: int) -> int:
        """Unit in bytes of capability ranges in a region of `length` bytes: a block, or more if
        the depth limit ends the tree above the blocks."""
        height = (-(-length // self.block_size) - 1).bit_length()
        return self.block_size << max(height - self.depth_limit, 0)


@dataclass(frozen=True, slots=True)
class RemoteMR:
    """Address, rkey and length in bytes of a peer's region.

    The peer makes it by `MR.remote()`; the application transfers it.
    """

    address: int
    rkey: int
    length: int

    def to_bytes(self) -> bytes:
        """20 bytes, big-endian: address 8, rkey 4, length 8."""
        return _REMOTE.pack(self.address, self.rkey, self.length)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> RemoteMR:
        """Inverse of to_bytes(). Raises LocalError for another length."""
        if len(data) != _REMOTE.size:
            raise LocalError(f"an encoded remote region has {_REMOTE.size} bytes, not {len(data)}")
        return cls(*_REMOTE.unpack(data))

    def __str__(self) -> str:
        return f"{_PREFIX}:{self.address:016x}:{self.rkey:08x}:{self.length:x}"

    @classmethod
    def parse(cls, text: str) -> RemoteMR:
        """Inverse of str(). Raises LocalError for any other text."""
        prefix, *numbers = text.strip().split(":")
        try:
            address, rkey, length = (int(n, 16) for n in numbers)
            remote = cls(address, rkey, length)
            remote.to_bytes()  # raises if a number is out of range
        except (ValueError, struct.error):
            prefix = ""
        if prefix != _PREFIX:
            raise LocalError(f"{text!r} is no remote region: {_PREFIX}:ADDRESS:RKEY:LENGTH, in hex")
        return remote


class MR(Resource):
    """A registered memory region. It keeps its buffer alive and in place until it is closed.

    `mr[a:b]` is an SGE for a work request; `mr.buf` is a memoryview of the bytes. lkey and rkey
    are the same number, which the worker chose.
    """

    def __init__(self, pd: PD, memory: Pinned, access: Access, proofs: Proofs) -> None:
        super().__init__(pd)
        self.pd = pd
        self.access = access
        self.proofs = proofs
        self.addr = memory.addr
        self.length = memory.length
        self.lkey = self.rkey = self._host_rkey = 0
        self._memory = memory
        self._buf = memoryview(memory)

    def register(self, holders: Holders, fd: int | None = None) -> MR:
        """Register with the worker; called once, by the PD. On an error the MR is closed."""
        try:
            self._host_rkey, self.lkey = self.pd.register(self, holders, fd)
        except BaseException:
            self.close()
            raise
        self.rkey = self.lkey
        return self

    @property
    def buf(self) -> memoryview:
        """The bytes of the region."""
        self.ensure_alive()
        return self._buf

    def sge(self, offset: int = 0, length: int | None = None) -> SGE:
        """SGE of `length` bytes at `offset`; length None: up to the end. Raises BoundsError."""
        self.ensure_alive()
        size = self.length - offset if length is None else length
        if offset < 0 or size < 0 or offset + size > self.length:
            raise BoundsError(
                f"{size} bytes at offset {offset} are not inside a region of {self.length} bytes"
            )
        return SGE(self.addr + offset, size, self.lkey, self)

    def __getitem__(self, piece: slice) -> SGE:
        if not isinstance(piece, slice) or piece.step not in (None, 1):
            raise LocalError("an SGE of a region is mr[start:stop], without a step")
        start = 0 if piece.start is None else piece.start
        stop = self.length if piece.stop is None else piece.stop
        return self.sge(start, stop - start)

    def __len__(self) -> int:
        return self.length

    def remote(self) -> RemoteMR:
        """The values by which a peer names the region. Raises LocalError without remote rights."""
        self.ensure_alive()
        if not self.access & REMOTE:
            raise LocalError(
                "the region has no right REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC, or was "
                "withdrawn: no peer could use it"
            )
        return RemoteMR(self.addr, self.rkey, self.length)

    # Capabilities --------------------------------------------------------------------

    @property
    def proof(self) -> bool:
        """True if each remote access needs a capability."""
        return self.proofs.proof

    @property
    def block_size(self) -> int:
        """Unit in bytes of the ranges of capability(). Inside a revoked range it may be smaller
        (protocol.md 6.3). Ranges of revoke() consist of blocks of proofs.block_size."""
        return self.proofs.granule(self.length)

    def capability(
        self,
        offset: int = 0,
        length: int | None = None,
        *,
        rights: Right | int = Right.READ,
        holder: str | None = None,
        expires: int | datetime | None = None,
    ) -> Capability:
        """Make a capability for `length` bytes at `offset`; length None: up to the end.

        rights: at most those that the region's access gives to peers. holder: URI of the only
        identity that can use it; None: any. expires: the first second at which it is void, in Unix
        time or as an aware datetime; None: never. Without holder and expires the capability is
        open: its bearer can narrow and seal it (protocol.md 6.2). Raises LocalError unless the
        region was registered with proof=True, BoundsError, CapabilityError or RefusedError.
        """
        self._check_proof()
        size = self.length - offset if length is None else length
        self._check_range(offset, size)
        self._check_rights(Right(rights))
        who, until = bearer_of(holder, expires)
        request = CapabilityRequest(
            leg=self.pd.leg,
            key=self.lkey,
            offset=offset,
            length=size,
            expiry=until,
            rights=int(rights),
            holder=who,
        )
        return Capability.from_bytes(self.pd.control.capability(request))

    # RFC 5042 R6.2.2-1, RA-1, A6.2.2
    def withdraw(self, *, timeout: float = TIMEOUT) -> memoryview:
        """End all remote rights, then return the bytes of the region, for reading.

        To be called before the program examines what a peer wrote: when this returns, each access
        of a peer is complete or refused, so that no peer changes the bytes between their check and
        their use. The region stays registered for the program's own requests. A RECV that the
        program posted into it still takes a message. timeout: in seconds; after a Timeout the
        rights have ended, but DMA may be in progress: call it again. The rights do not come back:
        another `PD.reg_mr()` or `PD.alloc()` exposes memory under another rkey.
        """
        self.ensure_alive()
        self.access &= ~(REMOTE | Access.SHARED)
        self.pd.control.withdraw(self.pd.leg, self.lkey, timeout)
        return self._buf.toreadonly()

    # RFC 5042 R6.2.2-1, RA-1
    def revoke(
        self, offset: int = 0, length: int | None = None, *, timeout: float = TIMEOUT
    ) -> None:
        """Revoke all capabilities of the region (default), or what they grant inside a range.

        Returns when the revoked access is refused and no DMA of it is in progress. timeout: in
        seconds; after a Timeout the access is refused, but DMA may be in progress. Data that a
        READ fetched before may still reach the peer. At most 64 ranges of a region can be revoked
        one by one; beyond that, revoke the whole region (protocol.md 6.3).
        """
        self._check_proof()
        if length is None and offset == 0:
            length = 0  # REVOKE with offset and length 0 means the whole region
        else:
            length = self.length - offset if length is None else length
            self._check_range(offset, length)
        self.pd.control.revoke(self.pd.leg, self.lkey, offset, length, timeout)

    def _check_proof(self) -> None:
        self.ensure_alive()
        if not self.proof:
            raise LocalError(
                "the region was registered without proof=True: it has no capabilities. Peers that "
                "know its rkey have access until close()"
            )

    def _check_range(self, offset: int, length: int) -> None:
        """Check against the region only; the worker checks against revoked ranges."""
        end, block = offset + length, self.proofs.block_size
        if offset < 0 or length < 1 or end > self.length:
            raise BoundsError(
                f"{length} bytes at offset {offset}: empty, or not inside a region of "
                f"{self.length} bytes"
            )
        if offset % block or (end % block and end != self.length):
            raise CapabilityError(
                f"{length} bytes at offset {offset}: begin at a multiple of the block size, "
                f"{block} bytes, and end at one or at the end of the region"
            )

    def _check_rights(self, rights: Right) -> None:
        if not rights:
            raise CapabilityError(NO_RIGHT)
        has = Right(0)
        if self.access & Access.REMOTE_READ:
            has |= Right.READ
        if self.access & Access.REMOTE_WRITE:
            has |= Right.WRITE
        if self.access & Access.REMOTE_ATOMIC:
            has |= Right.ATOMIC
        if not has:
            raise CapabilityError("the region was withdrawn: it has no rights to grant")
        if rights & ~has:
            raise CapabilityError(
                f"the region's access permits {names_of(has)} to peers: a capability cannot grant "
                f"{names_of(rights & ~has)}"
            )

    def _release(self) -> None:
        if self.lkey:
            try:
                self.pd.deregister(self.lkey, self._host_rkey)
            except BaseException:
                _kept.append(self._memory)
                raise
        self._buf = memoryview(b"")
        self._memory.close()
