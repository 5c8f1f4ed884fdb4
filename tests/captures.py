"""Makes frames and capture files for tests of srdma/inspect/."""

from __future__ import annotations

import struct
from collections.abc import Iterable

ETHERNET, RAW, NULL = 1, 101, 0
A, B = bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])
PORT = 4791


def udp(payload: bytes, port: int = PORT) -> bytes:
    return struct.pack(">HHHH", 49152, port, 8 + len(payload), 0) + payload


def ip4(
    data: bytes, source: bytes = A, to: bytes = B, *, protocol: int = 17, field: int = 0
) -> bytes:
    """field: flags and offset of a fragment."""
    front = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(data), 0, field, 64, protocol, 0)
    return front + source + to + data


def ip6(data: bytes, following: int = 17) -> bytes:
    return struct.pack(">IHBB", 6 << 28, len(data), following, 64) + bytes(15) + b"\1" + bytes(
        15
    ) + b"\2" + data  # fmt: skip


def ethernet(packet: bytes) -> bytes:
    return bytes(12) + (b"\x86\xdd" if packet[:1] and packet[0] >> 4 == 6 else b"\x08\x00") + packet


def frame(packet: bytes, port: int = PORT) -> bytes:
    """An Ethernet frame with a packet, which an ICRC follows."""
    return ethernet(ip4(udp(packet + b"ICRC", port)))


def rc(
    opcode: int, payload: bytes = b"", psn: int = 7, qpn: int = 0x11, source: bytes = A
) -> bytes:
    """An Ethernet frame of a reliable connection, without an STH."""
    pad = -len(payload) % 4
    bth = bytes([opcode, pad << 4, 0xFF, 0xFF, 0]) + qpn.to_bytes(3, "big")
    bth += b"\x80" + (psn & 0xFFFFFF).to_bytes(3, "big")
    return ethernet(ip4(udp(bth + payload + bytes(pad) + b"ICRC"), source=source))


def pcap(frames: Iterable[bytes], link: int = ETHERNET, order: str = "<", magic: int = 0xA1B2C3D4,
         snap: int = 262_144) -> bytes:  # fmt: skip
    out = struct.pack(order + "IHHIIII", magic, 2, 4, 0, 0, snap, link)
    for data in frames:
        kept = data[:snap]
        out += struct.pack(order + "IIII", 1, 2, len(kept), len(data)) + kept
    return out


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + size + body + size


def pcapng(frames: Iterable[bytes], link: int = ETHERNET, order: str = "<", *, simple: bool = False,
           snap: int = 0) -> bytes:  # fmt: skip
    """simple: by simple packet blocks. A block of an unknown kind stands in front."""
    out = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)
    out += block(5, b"statistics of an interface", order)
    out += block(1, struct.pack(order + "HHI", link, 0, snap), order)
    for data in frames:
        kept = data[:snap] if snap else data
        if simple:
            out += block(3, struct.pack(order + "I", len(data)) + kept, order)
        else:
            front = struct.pack(order + "IIIII", 0, 0, 0, len(kept), len(data))
            out += block(6, front + kept, order)
    return out
