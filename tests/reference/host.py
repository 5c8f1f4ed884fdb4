"""Host leg (local-interface.md 2): descriptors and completion records."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from enum import IntEnum, IntFlag

_DESCRIPTOR = struct.Struct(">BBBBIQIIQIIQIIQ")
_OPERANDS = struct.Struct(">QQ")
_SGE = struct.Struct(">QII")
_RECORD = struct.Struct(">QIBBHIIII")
DESCRIPTOR_LEN = _DESCRIPTOR.size
RECORD_LEN = _RECORD.size
MAX_IMMEDIATE = 448
MAX_MESSAGE = 1 << 30
ATOMIC_LEN = 8


class DescriptorOp(IntEnum):
    WRITE = 1
    WRITE_IMM = 2
    READ = 3
    SEND = 4
    SEND_IMM = 5
    COMPARE_SWAP = 6
    FETCH_ADD = 7
    RECV = 16
    CREDIT = 17


CARRY_PAYLOAD = frozenset(DescriptorOp) & {1, 2, 4, 5}
ATOMICS = frozenset(DescriptorOp) & {6, 7}
NAME_MEMORY = frozenset(DescriptorOp) & {1, 2, 3} | ATOMICS


class DescriptorFlag(IntFlag):
    SIGNALED = 0x01
    FENCE = 0x02
    INLINE = 0x04


@dataclass(frozen=True)
class Descriptor:
    opcode: int
    flags: int = 0
    sges: int = 0
    qpn: int = 0
    id: int = 0
    consumed: int = 0
    length: int = 0
    local_addr: int = 0
    local_key: int = 0
    rkey: int = 0
    remote_addr: int = 0
    imm: int = 0
    capability: int = 0
    swap_add: int = 0  # atomics
    compare: int = 0

    def encode(self) -> bytes:
        """Encodes the descriptor. An atomic is followed by its operands."""
        opcode, flags, sges, *rest, swap_add, compare = astuple(self)
        behind = _OPERANDS.pack(swap_add, compare) if opcode in ATOMICS else b""
        return _DESCRIPTOR.pack(opcode, flags, sges, 0, *rest, 0) + behind


def decode_descriptor(slot: bytes) -> Descriptor:
    """Raises ValueError with what is wrong with the slot."""
    if not DESCRIPTOR_LEN <= len(slot) <= DESCRIPTOR_LEN + MAX_IMMEDIATE:
        raise ValueError(f"{len(slot)} bytes in a slot, {DESCRIPTOR_LEN} to 512 are legal")
    opcode, flags, sges, zero, *rest, zeros = _DESCRIPTOR.unpack_from(slot)
    if opcode not in set(DescriptorOp):
        raise ValueError(f"opcode {opcode}")
    if flags & ~0x07 or zero or zeros:
        raise ValueError("unknown flags, or bytes that must be zero are not")
    d = Descriptor(opcode, flags, sges, *rest)
    if d.capability and opcode not in NAME_MEMORY:
        raise ValueError("a capability on a descriptor that names no remote memory")
    if opcode in ATOMICS:
        return _with_operands(d, slot[DESCRIPTOR_LEN:])
    if sges:
        _check_sgl(d, slot[DESCRIPTOR_LEN:])
    if d.length > MAX_MESSAGE:
        raise ValueError(f"a message has at most {MAX_MESSAGE} bytes")
    inline = d.length if flags & DescriptorFlag.INLINE else 0
    if flags & DescriptorFlag.INLINE and opcode not in CARRY_PAYLOAD:
        raise ValueError("INLINE on a descriptor that carries no payload")
    if len(slot) < DESCRIPTOR_LEN + inline:
        raise ValueError(f"{inline} bytes of inline data do not fit")
    return d


def encode_sgl(sgl: Sequence[tuple[int, int, int]]) -> bytes:
    """The list of SGEs (address, length, key) behind a descriptor."""
    return b"".join(_SGE.pack(*sge) for sge in sgl)


def _check_sgl(d: Descriptor, behind: bytes) -> None:
    if d.flags & DescriptorFlag.INLINE or d.opcode == DescriptorOp.CREDIT:
        raise ValueError("an SGL on a descriptor that has inline data or no data")
    if d.sges * _SGE.size > len(behind):
        raise ValueError(f"{d.sges} SGEs do not fit")
    sgl = _SGE.iter_unpack(behind[: d.sges * _SGE.size])
    if sum(length for _, length, _ in sgl) != d.length:
        raise ValueError("the length of the message is not that of its SGEs")


def _with_operands(d: Descriptor, behind: bytes) -> Descriptor:
    if d.sges:
        raise ValueError("an atomic has no SGL")
    if d.length != ATOMIC_LEN or d.flags & DescriptorFlag.INLINE or len(behind) < _OPERANDS.size:
        raise ValueError(
            "an atomic has 8 bytes, 16 bytes of operands after the descriptor and no inline data"
        )
    swap_add, compare = _OPERANDS.unpack_from(behind)
    if compare and d.opcode == DescriptorOp.FETCH_ADD:
        raise ValueError("FETCH_ADD compares nothing")
    return replace(d, swap_add=swap_add, compare=compare)


@dataclass(frozen=True)
class Record:
    id: int
    qpn: int
    opcode: int
    status: int
    flags: int
    vendor_err: int
    byte_len: int
    imm: int
    sequence: int

    def encode(self) -> bytes:
        return _RECORD.pack(*astuple(self))


def decode_record(data: bytes) -> Record:
    return Record(*_RECORD.unpack(data))
