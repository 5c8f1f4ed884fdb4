"""A packet as a list of named fields with their bytes (protocol.md 2).

The opcode determines the lengths; the parser in C gives the values.
"""

from __future__ import annotations

from typing import NamedTuple

from srdma.native.packet import RefusedError, parse

BTH = (
    ("opcode", 1),
    ("SE M PadCnt TVer", 1),
    ("P_Key", 2),
    ("FECN BECN", 1),
    ("DestQP", 3),
    ("tag code, epoch", 1),
    ("PSN", 3),
)
RETH = (("RETH.va", 8), ("RETH.rkey", 4), ("RETH.DMALen", 4))
IMM = (("ImmDt", 4),)
AETH = (("AETH.syndrome", 1), ("AETH.MSN", 3))
ATOMIC = (
    ("AtomicETH.va", 8),
    ("AtomicETH.rkey", 4),
    ("AtomicETH.swap or add", 8),
    ("AtomicETH.compare", 8),
)
ATOMIC_ACK = (("AtomicAckETH.original value", 8),)
IETH = (("IETH.rkey", 4),)
STH = (("STH.request id", 3), ("STH.flags", 1), ("STH.offset", 4))
PROOF = (("STH.depth", 1), ("STH.zero", 3), ("STH.expiry", 4), ("STH.proof", 16))  # flag P only
FLAG_P = 0x80
ACK = (
    ("ack.kind", 1),
    ("ack.reason", 1),
    ("ack.gaps", 1),
    ("ack.skips", 1),
    ("ack.position", 4),
    ("ack.offset", 4),
    ("ack.highest PN", 4),
    ("ack.RECV credit", 4),
    ("ack.request credit", 4),
    ("ack.path", 4),
)
ACKNOWLEDGE = 0x11
OPCODES = {
    0x00: ("SEND_FIRST", ()),
    0x01: ("SEND_MIDDLE", ()),
    0x02: ("SEND_LAST", ()),
    0x03: ("SEND_LAST_IMM", IMM),
    0x04: ("SEND_ONLY", ()),
    0x05: ("SEND_ONLY_IMM", IMM),
    0x06: ("WRITE_FIRST", RETH),
    0x07: ("WRITE_MIDDLE", ()),
    0x08: ("WRITE_LAST", ()),
    0x09: ("WRITE_LAST_IMM", IMM),
    0x0A: ("WRITE_ONLY", RETH),
    0x0B: ("WRITE_ONLY_IMM", (*RETH, *IMM)),
    0x0C: ("READ_REQUEST", RETH),
    0x0D: ("READ_RESPONSE_FIRST", AETH),
    0x0E: ("READ_RESPONSE_MIDDLE", ()),
    0x0F: ("READ_RESPONSE_LAST", AETH),
    0x10: ("READ_RESPONSE_ONLY", AETH),
    ACKNOWLEDGE: ("ACKNOWLEDGE", AETH),
    0x12: ("ATOMIC_ACKNOWLEDGE", (*AETH, *ATOMIC_ACK)),
    0x13: ("COMPARE_SWAP", ATOMIC),
    0x14: ("FETCH_ADD", ATOMIC),
    0x16: ("SEND_LAST_INV", IETH),
    0x17: ("SEND_ONLY_INV", IETH),
}


class Field(NamedTuple):
    """A field of a packet: its name, its bytes and their meaning."""

    name: str
    data: bytes
    meaning: str


def dissect(packet: bytes, tag_len: int, *, encrypted: bool) -> list[Field]:
    """All fields of a packet in order; tag_len: bytes. Raises RefusedError if it is malformed."""
    found = parse(packet, tag_len)
    name, extension = OPCODES[found["opcode"]]
    sth = (*STH, *PROOF) if found["flags"] & FLAG_P else STH
    layout: list[tuple[str, int]] = [*BTH, *extension, *sth, ("tag", tag_len)]
    if found["opcode"] == ACKNOWLEDGE:
        layout += [*ACK, ("ack.gap", 12 * packet[_size(layout) + 2])]
    layout.append(("payload", len(found["payload"])))
    pad = len(packet) - _size(layout)
    layout.append(("pad", pad))
    meanings = {
        "opcode": name,
        "SE M PadCnt TVer": f"{pad} bytes of pad",
        "FECN BECN": "routers may change it: the only byte that the tag does not cover",
        "tag code, epoch": f"epoch {found['epoch']}",
        "STH.offset": "offset of this packet in its message",
        "DestQP": "SRC QPN of the receiver",
        "PSN": "low 24 bits of the packet number",
        "STH.request id": f"request {found['request_id']}",
        "RETH.va": "address in the memory of the target",
        "RETH.rkey": "wire rkey",
        "RETH.DMALen": f"{found.get('dma_len', 0)} bytes",
        "tag": f"{8 * tag_len} bits, over all of the packet except FECN BECN",
        "payload": "ciphertext" if encrypted else "plaintext",
    }
    return list(_cut(packet, layout, meanings))


def is_srdma(packet: bytes, tag_len: int) -> bool:
    """Whether the packet has a valid Secure Transport Header with a tag of that length."""
    try:
        parse(packet, tag_len)
    except RefusedError:
        return False
    return True


def _size(layout: list[tuple[str, int]]) -> int:
    return sum(size for _, size in layout)


def _cut(packet: bytes, layout: list[tuple[str, int]], meanings: dict[str, str]) -> list[Field]:
    fields, at = [], 0
    for name, size in layout:
        if size:
            fields.append(Field(name, packet[at : at + size], meanings.get(name, "")))
        at += size
    return fields
