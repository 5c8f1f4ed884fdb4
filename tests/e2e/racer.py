"""An attacker on the cable between two workers who sees packets and sends, but drops none.

Run in the middle namespace of tests/e2e/cable.py. Each datagram from a to b is copied: the copy
leaves at once from the attacker's own address, with a right ICRC, and the original 0.5 ms later.
The end of the standard input ends the program, which then prints its counts.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
import zlib
from collections import deque

ADDRESS = "10.47.91.66"
MAC = "02:00:00:00:00:66"
AHEAD = 0.0005  # seconds
PORT = 4791
ETH, IP, UDP, ICRC = 14, 20, 8, 4
ALL_FRAMES = 3  # ETH_P_ALL


def open_end(device: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_FRAMES))
    end.bind((device, 0))
    return end


def is_packet(frame: bytes) -> bool:
    """Whether the frame has a datagram of the UDP wire over IPv4."""
    start = ETH + IP
    return (
        len(frame) > start + UDP + ICRC
        and frame[12:14] == b"\x08\x00"
        and frame[ETH + 9] == socket.IPPROTO_UDP
        and struct.unpack_from("!H", frame, start + 2)[0] == PORT
    )


def size_of(frame: bytes) -> int:
    """Bytes of the datagram, from the BTH to the ICRC."""
    return int(struct.unpack_from("!H", frame, ETH + IP + 4)[0]) - UDP


def checksum(header: bytes) -> bytes:
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


def from_attacker(frame: bytes) -> bytes:
    """The same packet from the attacker's address (protocol.md 11a)."""
    ip = bytearray(frame[ETH : ETH + IP])
    ip[10:12], ip[12:16] = bytes(2), socket.inet_aton(ADDRESS)
    udp = bytearray(frame[ETH + IP : ETH + IP + UDP])
    packet = frame[ETH + IP + UDP : ETH + IP + UDP + size_of(frame) - ICRC]
    covered_ip, covered_udp, covered = bytearray(ip), bytearray(udp), bytearray(packet)
    covered_ip[1] = covered_ip[8] = covered[4] = 0xFF
    covered_ip[10:12] = covered_udp[6:8] = b"\xff\xff"
    icrc = zlib.crc32(8 * b"\xff" + covered_ip + covered_udp + covered).to_bytes(4, "little")
    ip[10:12] = checksum(bytes(ip))
    mac = bytes.fromhex(MAC.replace(":", ""))
    return frame[:6] + mac + frame[12:14] + bytes(ip) + bytes(udp) + packet + icrc


def main() -> None:
    left, right = open_end("va"), open_end("vb")
    own = socket.inet_aton(ADDRESS)
    late: deque[tuple[float, bytes]] = deque()
    counts = {"raced": 0, "sent": 0, "received": 0}
    print("ready", flush=True)
    while True:
        wait = max(0.0, late[0][0] - time.monotonic()) if late else None
        ready = select.select([left, right, sys.stdin], [], [], wait)[0]
        while late and late[0][0] <= time.monotonic():
            right.send(late.popleft()[1])
        if sys.stdin in ready:
            break
        for end in (e for e in ready if e is not sys.stdin):
            frame, source = end.recvfrom(65536)
            if source[2] == socket.PACKET_OUTGOING:
                continue
            if end is left and is_packet(frame):
                counts["raced"] += 1
                counts["sent"] += size_of(frame)
                right.send(from_attacker(frame))
                late.append((time.monotonic() + AHEAD, frame))
            elif end is right and is_packet(frame) and frame[ETH + 16 : ETH + 20] == own:
                counts["received"] += size_of(frame)
            else:
                (right if end is left else left).send(frame)
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
