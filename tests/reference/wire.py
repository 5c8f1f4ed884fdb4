"""Packets (protocol.md 2): conversion between fields and bytes, with every check of 2.5."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

from . import ack
from .reasons import RefusedError

MAX_PAYLOAD = 4096
TAG_CODES = {0: 0, 12: 1, 16: 2, 20: 3, 28: 4, 32: 5, 48: 6, 64: 7}
LOW24 = 0xFFFFFF
Fields = dict[str, Any]

_BTH = struct.Struct(">BBHIBBH")
_STH = struct.Struct(">II")
_PROOF = struct.Struct(">B3xI16s")
_RETH = struct.Struct(">QII")
_ATOMIC = struct.Struct(">QIQQ")
BTH_LEN = _BTH.size
STH_LEN = _STH.size
MIN_LEN = BTH_LEN + STH_LEN
PROOF_AT = 16  # offset in a long STH


class Op(IntEnum):
    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_LAST_IMM = 0x03
    SEND_ONLY = 0x04
    SEND_ONLY_IMM = 0x05
    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMM = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMM = 0x0B
    READ_REQUEST = 0x0C
    READ_RESPONSE_FIRST = 0x0D
    READ_RESPONSE_MIDDLE = 0x0E
    READ_RESPONSE_LAST = 0x0F
    READ_RESPONSE_ONLY = 0x10
    ACKNOWLEDGE = 0x11
    ATOMIC_ACKNOWLEDGE = 0x12
    COMPARE_SWAP = 0x13
    FETCH_ADD = 0x14
    SEND_LAST_INV = 0x16
    SEND_ONLY_INV = 0x17


class Flag(IntFlag):
    PROOF = 0x80
    HOLDER = 0x40
    ACK_NOW = 0x20
    BARE = 0x10


class Payload(IntEnum):
    NONE = 0
    ANY = 1
    SOME = 2


@dataclass(frozen=True)
class Row:
    """One row of table 2.2."""

    headers: tuple[str, ...]
    payload: Payload
    request: bool  # the packet names a request of the sender (4.2)
    proof: bool  # flag P is legal (2.3)


def _rows() -> dict[Op, Row]:
    none, any_, some = Payload
    reth, imm, aeth = ("RETH",), ("Imm",), ("AETH",)
    return {
        Op.SEND_FIRST: Row((), some, True, False),
        Op.SEND_MIDDLE: Row((), some, True, False),
        Op.SEND_LAST: Row((), some, True, False),
        Op.SEND_LAST_IMM: Row(imm, some, True, False),
        Op.SEND_ONLY: Row((), any_, True, False),
        Op.SEND_ONLY_IMM: Row(imm, any_, True, False),
        Op.WRITE_FIRST: Row(reth, some, True, True),
        Op.WRITE_MIDDLE: Row((), some, True, True),
        Op.WRITE_LAST: Row((), some, True, True),
        Op.WRITE_LAST_IMM: Row(imm, some, True, True),
        Op.WRITE_ONLY: Row(reth, any_, True, True),
        Op.WRITE_ONLY_IMM: Row(reth + imm, any_, True, True),
        Op.READ_REQUEST: Row(reth, none, True, True),
        Op.READ_RESPONSE_FIRST: Row(aeth, some, False, False),
        Op.READ_RESPONSE_MIDDLE: Row((), some, False, False),
        Op.READ_RESPONSE_LAST: Row(aeth, some, False, False),
        Op.READ_RESPONSE_ONLY: Row(aeth, any_, False, False),
        Op.ACKNOWLEDGE: Row(aeth, none, False, False),
        Op.ATOMIC_ACKNOWLEDGE: Row((*aeth, "AtomicAck"), none, False, False),
        Op.COMPARE_SWAP: Row(("Atomic",), none, True, True),
        Op.FETCH_ADD: Row(("Atomic",), none, True, True),
        Op.SEND_LAST_INV: Row(imm, some, True, False),  # IETH: 4 bytes as ImmDt
        Op.SEND_ONLY_INV: Row(imm, any_, True, False),
    }


ROWS = _rows()
SIZES = {"RETH": _RETH.size, "Atomic": _ATOMIC.size, "AETH": 4, "AtomicAck": 8, "Imm": 4}


@dataclass(frozen=True)
class Packet:
    """A packet as fields. Fields that the opcode does not carry stay zero."""

    opcode: int
    qpn: int = 0  # SRC QPN of the receiver
    psn: int = 0
    epoch: int = 0  # the 2 bits
    request_id: int = 0  # 64 bits; the parser returns the low 24
    flags: int = 0
    offset: int = 0
    depth: int = 0
    expiry: int = 0
    proof: bytes = bytes(16)
    va: int = 0
    rkey: int = 0
    dma_len: int = 0
    swap_add: int = 0
    compare: int = 0
    original: int = 0
    imm: int = 0  # ImmDt or IETH
    ack: ack.AckBody | None = None
    payload: bytes = b""
    tag: bytes = b""

    @property
    def row(self) -> Row:
        return ROWS[Op(self.opcode)]


@dataclass(frozen=True)
class Layout:
    """The parts of a packet in wire order, as bytes."""

    bth: bytes
    extension: bytes
    sth: bytes
    tag: bytes
    body: bytes
    payload: bytes
    pad: bytes

    def join(self) -> bytes:
        before = self.bth + self.extension + self.sth + self.tag
        return before + self.body + self.payload + self.pad


def layout(p: Packet) -> Layout:
    pad = bytes(-len(p.payload) % 4)
    return Layout(
        bth=_bth(p, len(pad)),
        extension=b"".join(_extension(p, name) for name in p.row.headers),
        sth=_sth(p),
        tag=p.tag,
        body=p.ack.encode() if p.ack else b"",
        payload=p.payload,
        pad=pad,
    )


def build(p: Packet) -> bytes:
    """Returns the datagram of `p`. ValueError if the parser would refuse it."""
    data = layout(p).join()
    try:
        parse(data, len(p.tag))
    except RefusedError as refused:
        raise ValueError(f"not a legal {Op(p.opcode).name}: {refused}") from refused
    return data


def _bth(p: Packet, pad: int) -> bytes:
    bits = TAG_CODES[len(p.tag)] << 4 | p.epoch << 2
    return _BTH.pack(p.opcode, pad << 4, 0xFFFF, p.qpn, bits, p.psn >> 16, p.psn & 0xFFFF)


def _sth(p: Packet) -> bytes:
    sth = _STH.pack((p.request_id & LOW24) << 8 | p.flags, p.offset)
    return sth + (_PROOF.pack(p.depth, p.expiry, p.proof) if p.flags & Flag.PROOF else b"")


def _extension(p: Packet, name: str) -> bytes:
    if name == "RETH":
        return _RETH.pack(p.va, p.rkey, p.dma_len)
    if name == "Atomic":
        return _ATOMIC.pack(p.va, p.rkey, p.swap_add, p.compare)
    if name == "AETH":
        syndrome = p.ack.syndrome if p.ack else 0x1F
        return struct.pack(">I", syndrome << 24 | p.request_id & LOW24)
    if name == "AtomicAck":
        return struct.pack(">Q", p.original)
    return struct.pack(">I", p.imm)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def peek(self, n: int) -> bytes:
        if len(self.data) - self.at < n:
            raise RefusedError("short", f"cut at byte {len(self.data)}, inside a header")
        return self.data[self.at : self.at + n]

    def take(self, n: int) -> bytes:
        found = self.peek(n)
        self.at += n
        return found


def parse(data: bytes, tag_len: int, mtu: int = MAX_PAYLOAD) -> Packet:
    """Returns the fields of a datagram. RefusedError names the first check that failed."""
    if len(data) < MIN_LEN:
        raise RefusedError("short", f"{len(data)} bytes, a packet has at least {MIN_LEN}")
    if data[0] not in ROWS:
        raise RefusedError("opcode", f"opcode {data[0]:#04x} is not in table 2.2")
    row = ROWS[Op(data[0])]
    reader = _Reader(data)
    fields, pad_count = _parse_bth(reader.take(BTH_LEN), tag_len)
    extension = reader.take(sum(SIZES[name] for name in row.headers))
    sth = reader.take(STH_LEN)
    if sth[3] & Flag.PROOF:
        sth += reader.take(_PROOF.size)
    tag = reader.take(tag_len)
    body = b""
    if data[0] == Op.ACKNOWLEDGE:
        body = reader.take(ack.body_length(reader.peek(ack.FIXED_LEN)[2]))
    fields |= _parse_sth(sth, Op(data[0]))
    payload = _parse_payload(data[reader.at :], pad_count, row, mtu)
    fields |= {"payload": payload, "tag": tag, "ack": _parse_body(body, fields)}
    aeth = extension[:4] if "AETH" in row.headers else b""
    fields |= _parse_extension(extension, row)
    packet = Packet(**fields)
    if aeth and aeth != _extension(packet, "AETH"):
        raise RefusedError("header", "AETH is not that of its opcode, request id or kind")
    return packet


def _parse_bth(bth: bytes, tag_len: int) -> tuple[Fields, int]:
    opcode, bits, pkey, qpn, low, psn_high, psn_low = _BTH.unpack(bth)
    if bits & 0xCF or pkey != 0xFFFF or low & 0x83:
        raise RefusedError("header", "SE, M, TVer, P_Key, AckReq or reserved bits")
    if low >> 4 != TAG_CODES[tag_len]:
        raise RefusedError("tag_code", f"size code {low >> 4}, this QP's tags have {tag_len} bytes")
    fields = {
        "opcode": opcode,
        "qpn": qpn & LOW24,  # routers may change byte 4
        "psn": psn_high << 16 | psn_low,
        "epoch": low >> 2 & 3,
    }
    return fields, bits >> 4 & 3


def _parse_sth(sth: bytes, op: Op) -> Fields:
    row = ROWS[op]
    first, offset = _STH.unpack_from(sth)
    flags = first & 0xFF
    if flags & 0x0F:
        raise RefusedError("opcode", f"unknown STH flags {flags & 0x0F:#04x}")
    if flags & Flag.BARE and op != Op.ACKNOWLEDGE:
        raise RefusedError("opcode", "flag B on another opcode than ACKNOWLEDGE")
    if flags & Flag.HOLDER and not flags & Flag.PROOF:
        raise RefusedError("opcode", "flag H without P")
    if flags & Flag.PROOF and not row.proof:
        raise RefusedError("opcode", "flag P on an opcode that names no memory")
    fields = {"request_id": first >> 8, "flags": flags, "offset": offset}
    if flags & Flag.PROOF:
        if any(sth[9:12]):
            raise RefusedError("header", "bytes 9 to 11 of the STH are not zero")
        depth, expiry, proof = _PROOF.unpack_from(sth, STH_LEN)
        fields |= {"depth": depth, "expiry": expiry, "proof": proof}
    return fields


def _parse_payload(rest: bytes, pad_count: int, row: Row, mtu: int) -> bytes:
    length = len(rest) - pad_count
    lowest, highest = int(row.payload == Payload.SOME), mtu if row.payload else 0
    if not lowest <= length <= highest:
        raise RefusedError("length", f"{length} bytes of payload, {lowest} to {highest} are legal")
    if pad_count != -length % 4:
        raise RefusedError("pad", f"PadCnt {pad_count} with {length} bytes of payload")
    if any(rest[length:]):
        raise RefusedError("pad", "pad bytes are not zero")
    return rest[:length]


def _parse_body(body: bytes, fields: Fields) -> ack.AckBody | None:
    if not body:
        return None
    found = ack.decode(body)
    if (found.request_id & LOW24, found.offset) != (fields["request_id"], fields["offset"]):
        raise RefusedError("ack_body", "its position is not that of the STH")
    return found


def _parse_extension(data: bytes, row: Row) -> Fields:
    fields: Fields = {}
    for name in row.headers:
        part, data = data[: SIZES[name]], data[SIZES[name] :]
        if name == "RETH":
            fields |= zip(("va", "rkey", "dma_len"), _RETH.unpack(part), strict=True)
        elif name == "Atomic":
            names = ("va", "rkey", "swap_add", "compare")
            fields |= zip(names, _ATOMIC.unpack(part), strict=True)
        elif name == "AtomicAck":
            fields["original"] = int.from_bytes(part, "big")
        elif name == "Imm":
            fields["imm"] = int.from_bytes(part, "big")
    return fields
