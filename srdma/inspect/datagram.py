"""UDP datagrams in frames of a network: Ethernet, loopback, raw IP and Linux cooked captures."""

from __future__ import annotations

from typing import NamedTuple

from srdma.errors import LocalError

ETHERNET = 1
_IP, _IP6, _VLAN = 0x0800, 0x86DD, (0x8100, 0x88A8, 0x9100)
_UDP, _FRAGMENT = 17, 44
_EXTENSIONS = (0, 43, 60)  # IPv6: hop-by-hop, routing, destination options

# Where the ethertype is, by link type of libpcap: LINKTYPE_ETHERNET, _LINUX_SLL, _LINUX_SLL2.
_TYPED = {ETHERNET: (12, 14), 113: (14, 16), 276: (0, 20)}
# Bytes in front of an IP header whose version is in the header: _NULL, _RAW, _LOOP, _IPV4, _IPV6.
_BARE = {0: 4, 12: 0, 14: 0, 101: 0, 108: 4, 228: 0, 229: 0}


class Datagram(NamedTuple):
    """source, destination: IP addresses; port: that of the destination. whole: False if it is a
    fragment, or the capture has only a part of it. source_port: that of the source."""

    source: bytes
    destination: bytes
    port: int
    payload: bytes
    whole: bool
    source_port: int


def check_link(link: int) -> None:
    """Raises LocalError for a link type that is not supported."""
    if link not in _TYPED and link not in _BARE:
        raise LocalError(
            f"link type {link} of the capture is not supported: capture on an interface with "
            "Ethernet, loopback or raw IP frames"
        )


def decode(link: int, frame: bytes) -> Datagram | None:
    """The UDP datagram in a frame of a supported link type; None if there is none. Of a fragmented
    datagram only the first fragment counts."""
    packet = _network(link, frame)
    if not packet:
        return None
    version = packet[0] >> 4
    if version == 4:
        return _ip4(packet)
    return _ip6(packet) if version == 6 else None


def _network(link: int, frame: bytes) -> bytes:
    """The IP packet of a frame; empty if there is none."""
    if link in _BARE:
        return frame[_BARE[link] :]
    at, end = _TYPED[link]
    kind = int.from_bytes(frame[at : at + 2], "big")
    while kind in _VLAN and link == ETHERNET:
        kind, end = int.from_bytes(frame[end + 2 : end + 4], "big"), end + 4
    if kind not in (_IP, _IP6) or len(frame) <= end or frame[end] >> 4 != (4 if kind == _IP else 6):
        return b""
    return frame[end:]


def _ip4(packet: bytes) -> Datagram | None:
    header, total = (packet[0] & 0xF) * 4, int.from_bytes(packet[2:4], "big")
    total = total or len(packet)  # 0: the kernel gave its length to the device
    if len(packet) < header or header < 20 or packet[9] != _UDP:
        return None
    fragment = int.from_bytes(packet[6:8], "big") & 0x3FFF  # bit 13: more follow
    if fragment & 0x1FFF:
        return None
    return _udp(packet[12:16], packet[16:20], packet[header:total], whole=not fragment)


def _ip6(packet: bytes) -> Datagram | None:
    if len(packet) < 40:
        return None
    following, at, end = packet[6], 40, 40 + int.from_bytes(packet[4:6], "big")
    whole = True
    while following in _EXTENSIONS or following == _FRAGMENT:
        if len(packet) < at + 8:
            return None
        if following == _FRAGMENT:
            field = int.from_bytes(packet[at + 2 : at + 4], "big")
            if field >> 3:
                return None
            whole &= not field & 1
            size = 8
        else:
            size = 8 * (packet[at + 1] + 1)
        following, at = packet[at], at + size
    if following != _UDP:
        return None
    return _udp(packet[8:24], packet[24:40], packet[at:end], whole=whole)


def _udp(source: bytes, destination: bytes, udp: bytes, *, whole: bool) -> Datagram | None:
    if len(udp) < 8:
        return None
    source_port, port, length = (int.from_bytes(udp[i : i + 2], "big") for i in (0, 2, 4))
    if length < 8:
        return None
    whole = whole and length <= len(udp)
    return Datagram(source, destination, port, udp[8:length], whole, source_port)
