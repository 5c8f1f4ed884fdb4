"""Memory regions: registered host memory, and its address for a peer (protocol.md 6)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING

from srdma._leg import Pinned
from srdma.errors import BoundsError, LocalError
from srdma.resource import Resource
from srdma.wr import SGE

if TYPE_CHECKING:
    from srdma.pd import PD

_REMOTE = struct.Struct(">QIQ")
_PREFIX = "srdma-mr"
_kept: list[Pinned] = []  # memory that a worker would not let go: never freed


class Access(IntFlag):
    """Rights of a region, of enum ibv_access_flags."""

    NONE = 0
    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4


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

    def __init__(self, pd: PD, memory: Pinned, access: Access) -> None:
        super().__init__(pd)
        self.pd = pd
        self.access = access
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
        """What the peer needs to READ or WRITE this region."""
        self.ensure_alive()
        if not self.access & (Access.REMOTE_READ | Access.REMOTE_WRITE):
            raise LocalError(
                "the region was registered without REMOTE_READ or REMOTE_WRITE: "
                "no peer could use it"
            )
        return RemoteMR(self.addr, self.rkey, self.length)

    def _release(self) -> None:
        if self.lkey:
            try:
                self.pd.deregister(self.lkey, self._host_rkey)
            except BaseException:
                _kept.append(self._memory)
                raise
        self._buf = memoryview(b"")
        self._memory.close()
