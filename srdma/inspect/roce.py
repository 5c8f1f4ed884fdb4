"""Frames of a RoCE v2 wire: capture on a network device, parsing and reassembly of messages.

IP | UDP 8 to port 4791 | BTH 12 | payload | pad | ICRC 4 (bytes).
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from srdma.errors import DeviceError
from srdma.inspect import datagram

PORT = 4791
ROOM = 64 << 20  # socket buffer: bytes of frames that the kernel keeps until take()

_ETH_P_ALL = 0x0003
_SO_RCVBUFFORCE, _SOL_PACKET, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 33, 263, 6, 23
_ARPHRD_LOOPBACK, _SO_ATTACH_FILTER = 772, 26
_BPF_RETURN_0 = struct.pack("HBBI", 0x06, 0, 0, 0)  # a filter that keeps no frame
_FRAME_MAX = 1 << 16
_BTH, _ICRC = 12, 4
_SERIAL_HALF, _SERIAL_MASK = 1 << 23, 0xFFFFFF

# The opcodes of a reliable connection by operation (IBTA table 38).
_FIRST, _MIDDLE, _LAST = 0x00, 0x01, 0x02
_RC_SENDS = range(0x06)  # SEND_FIRST to SEND_ONLY_IMM
_RC_KINDS = {
    "SEND": _RC_SENDS,
    "WRITE": range(0x06, 0x0C),
    "READ": range(0x0C, 0x11),
    "ACK": range(0x11, 0x12),
    "ATOMIC": range(0x12, 0x15),
    "INVALIDATE": range(0x16, 0x18),
}
_UD_SEND_ONLY = 0x64  # to QP 1: datagrams of the connection manager
_CM_QPN = 1
_CNP, _CNP_SIZE = 0x81, 16  # congestion notification; its 16 bytes are reserved, 0
_AETH = 4

PASSIVE = frozenset({"SEND", "ACK", "CM"})  # kinds that do not address memory of the other end


class Frame(NamedTuple):
    """A RoCE frame. flow: source address, destination address, destination QPN."""

    flow: tuple[bytes, bytes, int]
    opcode: int
    psn: int
    payload: bytes

    @property
    def kind(self) -> str:
        """SEND, WRITE, READ, ACK, ATOMIC, INVALIDATE, CM, CNP, or the opcode in hex."""
        if self.opcode == _UD_SEND_ONLY and self.flow[2] == _CM_QPN:
            return "CM"
        if self.opcode == _CNP:
            return "CNP"
        found = (kind for kind, codes in _RC_KINDS.items() if self.opcode in codes)
        return next(found, f"opcode 0x{self.opcode:02x}")

    @property
    def is_transport(self) -> bool:
        """True if it carries nothing of a program: a datagram of the connection manager, an ack
        without payload, a notification of congestion."""
        if self.kind == "ACK":
            return len(self.payload) == _AETH
        return self.kind == "CM" or (self.kind == "CNP" and self.payload == bytes(_CNP_SIZE))


def parse(raw: bytes) -> Frame | None:
    """Parse a frame of an Ethernet; None if it is not RoCE v2."""
    found = datagram.decode(datagram.ETHERNET, raw)
    if found is None or found.port != PORT or not found.whole:
        return None
    return frame_of(found)


def frame_of(found: datagram.Datagram) -> Frame | None:
    """The RoCE frame in a datagram; None if it is too short for one."""
    bth = found.payload
    if len(bth) < _BTH + _ICRC:
        return None
    pad = bth[1] >> 4 & 3
    qpn, psn = int.from_bytes(bth[5:8], "big"), int.from_bytes(bth[9:12], "big")
    flow = (found.source, found.destination, qpn)
    return Frame(flow, bth[0], psn, bth[_BTH : len(bth) - _ICRC - pad])


def frames(raw: Iterable[bytes]) -> list[Frame]:
    """The RoCE v2 frames among frames of a network."""
    return [frame for frame in map(parse, raw) if frame is not None]


def kinds(found: Iterable[Frame]) -> Counter[str]:
    """The number of frames of each kind."""
    return Counter(frame.kind for frame in found)


def messages(found: Iterable[Frame]) -> list[bytes]:
    """The messages that SENDs carried over reliable connections; incomplete ones are omitted.

    They are in order per direction of a connection; a retransmitted frame counts once.
    """
    flows: dict[tuple[bytes, bytes, int], dict[int, Frame]] = {}
    for frame in found:
        if frame.opcode in _RC_SENDS:
            flow = flows.setdefault(frame.flow, {})
            start = next(iter(flow.values()), frame).psn
            ahead = (frame.psn - start + _SERIAL_HALF) & _SERIAL_MASK
            flow.setdefault(ahead, frame)
    whole: list[bytes] = []
    for flow in flows.values():
        whole += _joined([flow[ahead] for ahead in sorted(flow)])
    return whole


def _joined(parts: Sequence[Frame]) -> list[bytes]:
    whole: list[bytes] = []
    open_message: bytes | None = None
    expected = -1
    for part in parts:
        continues = part.opcode in (_MIDDLE, _LAST, _LAST + 1)
        if continues and (open_message is None or part.psn != expected):
            open_message = None
            continue
        message = (open_message or b"") + part.payload if continues else part.payload
        expected = (part.psn + 1) & _SERIAL_MASK
        if part.opcode in (_FIRST, _MIDDLE):
            open_message = message
        else:
            whole.append(message)
            open_message = None
    return whole


class Sniffer:
    """Every frame that passes a network device, in both directions. Needs root."""

    def __init__(self, netdev: str) -> None:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except OSError as error:
            raise DeviceError(
                f"cannot capture on {netdev}: {error.strerror}: run as root"
            ) from None
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, ROOM)
            self._socket.setblocking(False)
            self._socket.bind((netdev, _ETH_P_ALL))
            self.hardware: int = self._socket.getsockname()[3]  # ARPHRD_* of the device
            if self.hardware == _ARPHRD_LOOPBACK:  # each frame leaves and arrives
                self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        except OSError as error:
            self.close()
            raise DeviceError(f"cannot capture on {netdev}: {error.strerror}") from None

    def fileno(self) -> int:
        """Readable when a frame waits."""
        return self._socket.fileno()

    def drain(self, most: int | None = None) -> tuple[list[bytes], int]:
        """The waiting frames, at most `most` of them, and the number of frames lost for lack of
        room since last time."""
        taken: list[bytes] = []
        while most is None or len(taken) < most:
            try:
                taken.append(self._socket.recv(_FRAME_MAX))
            except BlockingIOError:
                break
        _, lost = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        return taken, lost

    def forget(self) -> None:
        """Discard all frames so far."""
        self.drain()

    def take(self) -> list[bytes]:
        """The frames since the last call. Raises DeviceError if the kernel dropped any."""
        taken, lost = self.drain()
        if lost:
            raise DeviceError(f"{lost} frames did not fit into {ROOM} bytes: take() more often")
        return taken

    def stop(self) -> None:
        """Capture nothing more. The frames so far remain."""
        nothing = ctypes.create_string_buffer(_BPF_RETURN_0)
        program = struct.pack("@HP", 1, ctypes.addressof(nothing))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def close(self) -> None:
        self._socket.close()
