"""Memory regions: registered host memory, and its address for a peer (protocol.md 6)."""

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

BLOCK_SIZE = 4096
DEPTH_LIMIT = constants.DEPTH_MAX

_REMOTE = struct.Struct(">QIQ")
_PREFIX = "srdma-mr"
_kept: list[Pinned] = []  # memory that a worker would not let go: never freed


class Access(IntFlag):
    """Rights of a region, of enum ibv_access_flags."""

    NONE = 0
    LOCAL_WRITE = constants.ACCESS_LOCAL_WRITE
    REMOTE_WRITE = constants.ACCESS_REMOTE_WRITE
    REMOTE_READ = constants.ACCESS_REMOTE_READ
    REMOTE_ATOMIC = constants.ACCESS_REMOTE_ATOMIC


REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


class Proving(TypedDict, total=False):
    """Keywords of `PD.reg_mr()` and `PD.alloc()`: the fields of `Proofs`."""

    proof: bool
    block_size: int
    depth_limit: int


@dataclass(frozen=True, slots=True)
class Proofs:
    """Whether peers must prove by a capability what they do to a region (protocol.md 6.1).

    block_size: what ranges of capabilities are made of. depth_limit: of the region's tree; a lower
    one makes tokens shorter to derive, and ranges coarser.
    """

    proof: bool = False
    block_size: int = BLOCK_SIZE
    depth_limit: int = DEPTH_LIMIT

    def __post_init__(self) -> None:
        if not self.proof and (self.block_size, self.depth_limit) != (BLOCK_SIZE, DEPTH_LIMIT):
            raise LocalError("block_size= and depth_limit= go with proof=True only")
        if not 64 <= self.block_size <= 1 << 30 or self.block_size & (self.block_size - 1):
            raise LocalError(f"block_size={self.block_size}: a power of two from 64 to 2^30")
        if not 1 <= self.depth_limit <= DEPTH_LIMIT:
            raise LocalError(f"depth_limit={self.depth_limit}: 1 to {DEPTH_LIMIT} are legal")

    def granule(self, length: int) -> int:
        """What ranges of a region of that length are made of: more than a block if the depth
        limit does not reach down to blocks."""
        height = (-(-length // self.block_size) - 1).bit_length()
        return self.block_size << max(height - self.depth_limit, 0)


@dataclass(frozen=True, slots=True)
class RemoteMR:
    """A peer's region, as `MR.remote()` made it there; the application passes it on."""

    address: int
    rkey: int
    length: int

    def to_bytes(self) -> bytes:
        """20 bytes."""
        return _REMOTE.pack(self.address, self.rkey, self.length)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> RemoteMR:
        if len(data) != _REMOTE.size:
            raise LocalError(f"a remote region has {_REMOTE.size} bytes, these are {len(data)}")
        return cls(*_REMOTE.unpack(data))

    def __str__(self) -> str:
        return f"{_PREFIX}:{self.address:016x}:{self.rkey:08x}:{self.length:x}"

    @classmethod
    def parse(cls, text: str) -> RemoteMR:
        """Read what str() printed."""
        prefix, *numbers = text.strip().split(":")
        try:
            address, rkey, length = (int(n, 16) for n in numbers)
            remote = cls(address, rkey, length)
            remote.to_bytes()  # are they in range?
        except (ValueError, struct.error):
            prefix = ""
        if prefix != _PREFIX:
            raise LocalError(f"{text!r} is no remote region: {_PREFIX}:ADDRESS:RKEY:LENGTH, hex")
        return remote


class MR(Resource):
    """A registered region; keeps its buffer alive and in place until closed.

    `mr[a:b]` is an SGE for a work request, `mr.buf` the bytes.
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

    def register(self, scope_qpn: int = 0, fd: int | None = None) -> MR:
        """Called once by the PD; a refusal leaves nothing behind."""
        try:
            self._host_rkey, self.lkey = self.pd.register(self, scope_qpn, fd)
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
        """A piece for a work request; all that follows offset by default."""
        self.ensure_alive()
        size = self.length - offset if length is None else length
        if offset < 0 or size < 0 or offset + size > self.length:
            raise BoundsError(
                f"{size} bytes at offset {offset} are not inside a region of {self.length} bytes"
            )
        return SGE(self.addr + offset, size, self.lkey, self)

    def __getitem__(self, piece: slice) -> SGE:
        if not isinstance(piece, slice) or piece.step not in (None, 1):
            raise LocalError("a region gives pieces as mr[start:stop]")
        start = 0 if piece.start is None else piece.start
        stop = self.length if piece.stop is None else piece.stop
        return self.sge(start, stop - start)

    def __len__(self) -> int:
        return self.length

    def remote(self) -> RemoteMR:
        """What the peer needs to READ or WRITE this region, or to count in it."""
        self.ensure_alive()
        if not self.access & REMOTE:
            raise LocalError(
                "the region was registered without REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC: "
                "no peer could use it"
            )
        return RemoteMR(self.addr, self.rkey, self.length)

    # Capabilities --------------------------------------------------------------------

    @property
    def proof(self) -> bool:
        """Must peers prove what they do to it?"""
        return self.proofs.proof

    @property
    def block_size(self) -> int:
        """What ranges of capabilities are made of, unless a part was revoked; revoke() takes those
        of proofs.block_size too."""
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
        """Rights over a range, all that follows offset by default, for whoever gets the result.

        holder: the only identity that can use it. expires: the first second, Unix time or an aware
        datetime, at which it is void. Without both it is open: its bearer can narrow and seal it.
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

    def revoke(
        self, offset: int = 0, length: int | None = None, *, timeout: float = TIMEOUT
    ) -> None:
        """Take back what was granted: every capability, or what they grant inside a range.

        Returns when nobody can do any more what was revoked, and no DMA of it is under way. What a
        peer's READ fetched before may still reach it. At most 64 ranges of a region can be revoked
        by themselves; then revoke() all of it.
        """
        self._check_proof()
        if length is None and offset == 0:
            length = 0  # which no range has: all of it (protocol.md 10)
        else:
            length = self.length - offset if length is None else length
            self._check_range(offset, length)
        self.pd.control.revoke(self.pd.leg, self.lkey, offset, length, timeout)

    def _check_proof(self) -> None:
        self.ensure_alive()
        if not self.proof:
            raise LocalError(
                "the region was registered without proof=True: it has no capabilities, and "
                "whoever knows its rkey may use it; close() takes it from them"
            )

    def _check_range(self, offset: int, length: int) -> None:
        """Against the region alone: what was revoked the worker knows."""
        end, block = offset + length, self.proofs.block_size
        if offset < 0 or length < 1 or end > self.length:
            raise BoundsError(
                f"{length} bytes at offset {offset} are not inside a region of {self.length} "
                "bytes, or are none"
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
        if rights & ~has:
            raise CapabilityError(
                f"the region's access lets peers {names_of(has)}: a capability cannot grant "
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
