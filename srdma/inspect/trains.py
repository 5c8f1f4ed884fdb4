"""Trains of datagrams that a capture shows as one (docs/protocol.md 11a, verify-wire.md 1).

A capture has no length of the datagrams in a train. Over IPv6 it is found by the ICRC, which each
has, and over IPv4 by the zeros in place of it and the BTHs that follow them.
"""

from __future__ import annotations

import zlib

from srdma.inspect.datagram import Datagram

_BTH, _ICRC, _UDP, _IPV6 = 12, 4, 8, 16
_SHORTEST, _LONGEST = 24, 4228  # bytes of a datagram: BTH, STH, ICRC; the longest packet and ICRC
_PROTOCOL_UDP = 17
_PKEY, _PKEY_AT, _RESERVED_AT = b"\xff\xff", 2, 4
_PAD_BITS, _CODE_AT, _CODE_BITS, _ZERO_BITS = 0x30, 8, 0x70, 0x83


def split(found: Datagram) -> list[Datagram]:
    """The datagrams of a train, in order. A datagram that is no train, or of which no part has a
    right ICRC, is returned as it is."""
    data = found.payload
    begins = _is_right if len(found.source) == _IPV6 else _is_bare
    if data[_PKEY_AT:][:2] != _PKEY or (begins is _is_right and _is_right(found, len(data))):
        return [found]
    for size in range(_SHORTEST, min(len(data), _LONGEST + 1), 4):
        if begins(found, size):
            pieces = (data[at : at + size] for at in range(0, len(data), size))
            return [found._replace(payload=piece) for piece in pieces]
    return [found]


def _is_bare(found: Datagram, size: int) -> bool:
    """True if the payload is bare datagrams of `size` bytes, but that the last may be shorter: each
    ends with zeros, and begins with a BTH."""
    data = found.payload
    if data[size - _ICRC : size] != bytes(_ICRC) or data[-_ICRC:] != bytes(_ICRC):
        return False
    return all(
        data[at - _ICRC : at] == bytes(_ICRC) and _is_bth(data[at : at + _BTH])
        for at in range(size, len(data), size)
    )


def _is_bth(bth: bytes) -> bool:
    """True for a BTH of a packet with a tag, by its constant fields."""
    return (
        len(bth) == _BTH
        and not bth[1] & ~_PAD_BITS
        and bth[_PKEY_AT : _PKEY_AT + 2] == _PKEY
        and not bth[_CODE_AT] & _ZERO_BITS
        and bth[_CODE_AT] & _CODE_BITS != 0
    )


def _is_right(found: Datagram, size: int) -> bool:
    """True if the first `size` bytes end with the ICRC of a datagram of this length."""
    length = (_UDP + size).to_bytes(2, "big")
    ports = found.source_port.to_bytes(2, "big") + found.port.to_bytes(2, "big")
    ip = b"\x6f\xff\xff\xff" + length + bytes([_PROTOCOL_UDP, 0xFF])
    bth = found.payload[:_RESERVED_AT] + b"\xff" + found.payload[_RESERVED_AT + 1 : _BTH]
    front = bytes(8 * b"\xff") + ip + found.source + found.destination
    crc = zlib.crc32(front + ports + length + b"\xff\xff" + bth)
    end = size - _ICRC
    crc = zlib.crc32(memoryview(found.payload)[_BTH:end], crc)
    return found.payload[end:size] == crc.to_bytes(_ICRC, "little")
