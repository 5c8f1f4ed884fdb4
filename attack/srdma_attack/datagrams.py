"""RoCEv2 datagrams between sockets of 127.0.0.1: addresses and the ICRC."""

from __future__ import annotations

import socket
import zlib

from srdma_attack.attack import KitError
from tests.reference.icrc import ICRC_LEN, Datagram

Address = tuple[str, int]

LOOPBACK = "127.0.0.1"
ROOM = 4 << 20  # bytes of a socket's receive buffer
LONGEST = 5000

_SO_RCVBUFFORCE = 33


def parse_address(text: str) -> Address:
    """The address of a worker. KitError if it is not on the loopback interface."""
    host, _, port = text.rpartition(":")
    if host != LOOPBACK:
        raise KitError(f"{text} is not an address on {LOOPBACK}: the kit attacks no other")
    return host, int(port)


def open_socket() -> socket.socket:
    """A UDP socket with an unused port of 127.0.0.1."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, ROOM)
        except PermissionError:
            continue
    sock.bind((LOOPBACK, 0))
    return sock


def send(sock: socket.socket, packet: bytes, to: Address) -> None:
    """Sends a packet with a right ICRC."""
    sock.sendto(with_icrc(sock, packet, to), to)


def with_icrc(sock: socket.socket, packet: bytes, to: Address) -> bytes:
    """The packet, as the socket sends it to that address."""
    own = sock.getsockname()
    parts = Datagram((LOOPBACK, own[1]), to, packet).covered
    return packet + zlib.crc32(b"".join(part for _, part in parts)).to_bytes(ICRC_LEN, "little")
