"""Reads capture files, pcap and pcapng, strictly: an attacker may have made the file.

At most one packet is in memory. A file that is not a capture, or ends in the middle of a record,
raises CaptureError. The formats are those of draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from srdma.errors import LocalError

FRAME_MAX = 262_144  # bytes of one packet: the largest snapshot length of libpcap
_BLOCK_MIN, _BLOCK_MAX = 12, 1 << 28  # bytes of a block of pcapng
_INTERFACES_MAX = 4096  # of one section
_CHUNK = 1 << 16

_PCAP = {0xA1B2C3D4, 0xA1B23C4D}  # time stamps in microseconds, in nanoseconds
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 6
_BYTE_ORDER = 0x1A2B3C4D


class CaptureError(LocalError):
    """The file is not a capture that can be read to its end."""


class Captured(NamedTuple):
    """A packet: link type (of libpcap), its bytes, and its length on the wire."""

    link: int
    data: bytes
    length: int


def read(file: BinaryIO) -> Iterator[Captured]:
    """The packets of a capture file. Raises CaptureError."""
    start = _exactly(file, 4, "the first 4 bytes")
    if int.from_bytes(start, "big") == _SECTION:
        yield from _Sections(file).packets()
        return
    for order in "<>":
        if struct.unpack(order + "I", start)[0] in _PCAP:
            yield from _pcap(file, order)
            return
    raise CaptureError("neither pcap nor pcapng: give a file that tcpdump or dumpcap wrote")


def _exactly(file: BinaryIO, size: int, what: str) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise CaptureError(f"the file ends inside {what}: it was cut, or its capture had not ended")
    return data


def _frame(file: BinaryIO, size: int, number: int) -> bytes:
    if size > FRAME_MAX:
        raise CaptureError(f"packet {number} has {size} bytes: at most {FRAME_MAX} are possible")
    return _exactly(file, size, f"packet {number}")


def _pcap(file: BinaryIO, order: str) -> Iterator[Captured]:
    major, _, _, _, _, link = struct.unpack(
        order + "HHIIII", _exactly(file, 20, "the header of the file")
    )
    if major != 2:
        raise CaptureError(f"version {major} of pcap is unknown: only version 2 is")
    number = 0
    while start := file.read(1):
        number += 1
        header = start + _exactly(file, 15, f"the header of packet {number}")
        _, _, size, length = struct.unpack(order + "IIII", header)
        yield Captured(link & 0xFFFF, _frame(file, size, number), length)


class _Sections:
    """The blocks of a pcapng file; the type of its first block was read already."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._order = "<"
        self._links: list[tuple[int, int]] = []  # link type and snapshot length of interfaces
        self._number = 0  # of the packet

    def packets(self) -> Iterator[Captured]:
        kind = _SECTION
        while True:
            found = self._block(kind)
            if found is not None:
                yield found
            start = self._file.read(1)
            if not start:
                return
            kind = self._int(start + self._read(3, "a block"))

    def _block(self, kind: int) -> Captured | None:
        """One block behind its type."""
        word = self._read(4, "a block")
        if kind == _SECTION:
            self._section(word)
            return None
        size = self._size(word)
        found = None
        if kind == _INTERFACE:
            size -= self._interface(size)
        elif kind in (_ENHANCED, _SIMPLE):
            found, used = self._packet(kind, size)
            size -= used
        elif kind == _OLD_PACKET:
            raise CaptureError(
                "the file has packet blocks of an obsolete form: convert it by editcap"
            )
        self._skip(size)
        self._end(word)
        return found

    def _section(self, word: bytes) -> None:
        magic = self._read(4, "the section header")
        for order in "<>":
            if struct.unpack(order + "I", magic)[0] == _BYTE_ORDER:
                self._order = order
                break
        else:
            raise CaptureError("the section header has no byte order: the file is damaged")
        self._links = []
        self._skip(self._size(word) - 4)
        self._end(word)

    def _size(self, word: bytes) -> int:
        """The bytes of a block between its two length fields."""
        size = self._int(word)
        if size % 4 or not _BLOCK_MIN <= size <= _BLOCK_MAX:
            raise CaptureError(f"a block has {size} bytes: the file is damaged")
        return size - _BLOCK_MIN

    def _interface(self, size: int) -> int:
        link, _, snap = self._fields("HHI", size)
        if len(self._links) == _INTERFACES_MAX:
            raise CaptureError(f"more than {_INTERFACES_MAX} interfaces in one section")
        self._links.append((link, snap))
        return 8

    def _packet(self, kind: int, size: int) -> tuple[Captured, int]:
        """The packet of a block, and how many bytes of the block were read."""
        self._number += 1
        if kind == _ENHANCED:
            interface, _, _, captured, length = self._fields("IIIII", size)
            used = 20
        else:
            (length,) = self._fields("I", size)
            interface, used = 0, 4
        if interface >= len(self._links):
            raise CaptureError(f"packet {self._number} names interface {interface}: there is none")
        link, snap = self._links[interface]
        if kind == _SIMPLE:
            captured = min(length, snap) if snap else length
        if used + captured > size:
            raise CaptureError(f"packet {self._number} is longer than its block")
        data = _frame(self._file, captured, self._number)
        return Captured(link, data, length), used + captured

    def _fields(self, form: str, size: int) -> tuple[int, ...]:
        form = self._order + form
        if struct.calcsize(form) > size:
            raise CaptureError("a block is too short: the file is damaged")
        return struct.unpack(form, self._read(struct.calcsize(form), "a block"))

    def _end(self, word: bytes) -> None:
        if self._read(4, "a block") != word:
            raise CaptureError("a block ends with another length: the file is damaged")

    def _skip(self, size: int) -> None:
        while size > 0:
            size -= len(self._read(min(size, _CHUNK), "a block"))
        if size < 0:
            raise CaptureError("a block is too short: the file is damaged")

    def _read(self, size: int, what: str) -> bytes:
        return _exactly(self._file, size, what)

    def _int(self, word: bytes) -> int:
        return int(struct.unpack(self._order + "I", word)[0])
