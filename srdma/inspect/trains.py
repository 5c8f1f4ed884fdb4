"""Trains of datagrams that a capture shows as one (docs/protocol.md 11a, verify-wire.md 1).

A capture has no length of the datagrams in a train. It is found by the ICRC, which each has.
"""

from __future__ import annotations

import zlib

from srdma.inspect.datagram import Datagram

_BTH, _ICRC, _UDP, _IPV6 = 12, 4, 8, 16
_SHORTEST, _LONGEST = 24, 4228  # bytes of a datagram: BTH, STH, ICRC; the longest packet and ICRC
_PROTOCOL_UDP = 17
_PKEY, _PKEY_AT, _RESERVED_AT = b"\xff\xff", 2, 4


def split(found: Datagram) -> list[Datagram]:
    """The datagrams of a train, in order. A datagram that is no train, or of which no part has a
    right ICRC, is returned as it is."""
    data = found.payload
    if len(found.source) != _IPV6 or data[_PKEY_AT:][:2] != _PKEY or _is_right(found, len(data)):
        return [found]
    for size in range(_SHORTEST, min(len(data), _LONGEST + 1), 4):
        if _is_right(found, size):
            pieces = (data[at : at + size] for at in range(0, len(data), size))
            return [found._replace(payload=piece) for piece in pieces]
    return [found]


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
