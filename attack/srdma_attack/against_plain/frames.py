"""RoCEv2 frames of IPv4, as a man in the middle reads and changes them. A changed frame gets right
lengths, checksums and ICRC: none of them needs a key."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from ipaddress import ip_address

from tests.reference.icrc import ICRC_LEN, PROTOCOL_UDP, Datagram

LINK, IPV4, UDP, BTH, RETH = 14, 20, 8, 12, 16  # bytes of the headers
ETHERTYPE = b"\x08\x00"
PORT = 4791
SHORTEST = LINK + IPV4 + UDP + BTH + ICRC_LEN


@dataclass(frozen=True)
class Frame:
    link: bytes
    datagram: Datagram

    @classmethod
    def parse(cls, data: bytes) -> Frame | None:
        """None: it is no RoCEv2 frame of IPv4 without options."""
        if len(data) < SHORTEST or data[12:15] != ETHERTYPE + b"\x45":
            return None
        tos, size, ttl, protocol = struct.unpack_from(">xBH4xBB", data, LINK)
        source, target = (str(ip_address(data[at : at + 4])) for at in (LINK + 12, LINK + 16))
        ports = struct.unpack_from(">HH", data, LINK + IPV4)
        if protocol != PROTOCOL_UDP or ports[1] != PORT:
            return None
        if not SHORTEST - LINK <= size <= len(data) - LINK:
            return None
        packet = data[LINK + IPV4 + UDP : LINK + size - ICRC_LEN]
        return cls(
            data[:LINK], Datagram((source, ports[0]), (target, ports[1]), packet, tos=tos, ttl=ttl)
        )

    def build(self) -> bytes:
        return self.link + b"".join(part for _, part in self.datagram.sent)

    @property
    def packet(self) -> bytes:
        """From the BTH on, without the ICRC."""
        return self.datagram.packet

    @property
    def opcode(self) -> int:
        return self.packet[0]

    @property
    def target(self) -> int:
        """QPN of the receiver."""
        return int.from_bytes(self.packet[5:8], "big")

    def with_packet(self, packet: bytes) -> Frame:
        return replace(self, datagram=replace(self.datagram, packet=packet))

    # WRITE ONLY: BTH, RETH, payload

    @property
    def payload(self) -> bytes:
        return self.packet[BTH + RETH :]

    def with_payload(self, payload: bytes) -> Frame:
        """With the length in the RETH."""
        length = struct.pack(">I", len(payload))
        return self.with_packet(self.packet[: BTH + RETH - 4] + length + payload)

    def with_number_of(self, other: Frame) -> Frame:
        """With the PSN of the other frame, and its request for an ack."""
        return self.with_packet(self.packet[:8] + other.packet[8:BTH] + self.packet[BTH:])
