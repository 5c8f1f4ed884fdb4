"""RoCEv2 datagrams and their ICRC (protocol.md 11a). The CRC is computed bit by bit."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import ip_address

ONES = b"\xff"
UDP_LEN, ICRC_LEN = 8, 4
PROTOCOL_UDP, DF = 17, 0x4000
POLYNOMIAL = 0xEDB88320  # 0x04C11DB7 with its bits reflected


def crc32(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@dataclass(frozen=True)
class Datagram:
    """tos: ToS or traffic class; ttl: TTL or hop limit. bare: over IPv4, zero in place of the ICRC,
    and a UDP checksum; identification: then any."""

    source: tuple[str, int]  # address, port
    target: tuple[str, int]
    packet: bytes
    tos: int = 0
    ttl: int = 64
    flow: int = 0  # flow label, IPv6 only
    bare: bool = False
    identification: int = 0

    @property
    def covered(self) -> list[tuple[str, bytes]]:
        """The parts of the input of the CRC. Fields that routers change are ones."""
        packet = self.packet[:4] + ONES + self.packet[5:]
        return [
            ("link", 8 * ONES),
            ("IP", self._ip(0xFF, 0xFF, 0xFFFFF, ONES * 2)),
            ("UDP", self._udp(ONES * 2)),
            ("packet", packet),
        ]

    @property
    def icrc(self) -> bytes:
        if self.bare:
            return bytes(ICRC_LEN)
        return crc32(b"".join(part for _, part in self.covered)).to_bytes(4, "little")

    @property
    def sent(self) -> list[tuple[str, bytes]]:
        """The parts of the datagram, from the IP header on."""
        checksum = _checksum(self._ip(self.tos, self.ttl, self.flow, bytes(2)))
        parts = [self._ip(self.tos, self.ttl, self.flow, checksum), self._udp(self._udp_checksum())]
        names = ("IP", "UDP", "packet", "ICRC")
        return list(zip(names, [*parts, self.packet, self.icrc], strict=True))

    @property
    def _addresses(self) -> tuple[bytes, bytes]:
        source, target = self.source[0], self.target[0]
        return ip_address(source).packed, ip_address(target).packed

    @property
    def _udp_len(self) -> int:
        return UDP_LEN + len(self.packet) + ICRC_LEN

    def _ip(self, tos: int, ttl: int, flow: int, checksum: bytes) -> bytes:
        source, target = self._addresses
        if len(source) == 16:
            first = 6 << 28 | tos << 20 | flow
            front = struct.pack(">IHBB", first, self._udp_len, PROTOCOL_UDP, ttl)
        else:
            size = 20 + self._udp_len
            front = struct.pack(
                ">BBHHHBB", 0x45, tos, size, self.identification, DF, ttl, PROTOCOL_UDP
            )
            front += checksum
        return front + source + target

    def _udp(self, checksum: bytes) -> bytes:
        ports = struct.pack(">HHH", self.source[1], self.target[1], self._udp_len)
        return ports + checksum

    def _udp_checksum(self) -> bytes:
        """0 over IPv4 unless it is bare; RFC 768, RFC 8200 8.1 over IPv6."""
        source, target = self._addresses
        if len(source) == 4 and not self.bare:
            return bytes(2)
        pseudo = source + target + struct.pack(">II", self._udp_len, PROTOCOL_UDP)
        found = _checksum(pseudo + self._udp(bytes(2)) + self.packet + self.icrc)
        return found if any(found) else ONES * 2


def _checksum(data: bytes) -> bytes:
    """The Internet checksum (RFC 1071) of an even number of bytes."""
    total = sum(number for (number,) in struct.iter_unpack(">H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")
