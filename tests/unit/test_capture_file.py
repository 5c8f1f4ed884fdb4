"""Reading pcap and pcapng files, damaged ones too (srdma/inspect/capture_file.py)."""

from __future__ import annotations

import contextlib
import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srdma.inspect.capture_file import FRAME_MAX, Captured, CaptureError, read
from tests.captures import block, pcap, pcapng

FRAMES = [b"one", b"", b"three" * 100]
WANTED = [Captured(1, data, len(data)) for data in FRAMES]
FORMS = {
    "pcap": pcap(FRAMES),
    "pcap, big-endian": pcap(FRAMES, order=">"),
    "pcap, nanoseconds": pcap(FRAMES, magic=0xA1B23C4D),
    "pcapng": pcapng(FRAMES),
    "pcapng, big-endian": pcapng(FRAMES, order=">"),
    "pcapng, simple packets": pcapng(FRAMES, simple=True),
    "pcapng, two sections": pcapng(FRAMES[:1]) + pcapng(FRAMES[1:], order=">"),
}


def packets(data: bytes) -> list[Captured]:
    return list(read(io.BytesIO(data)))


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_packets_are_read(data: bytes) -> None:
    assert packets(data) == WANTED


@pytest.mark.parametrize("form", [pcap, pcapng])
def test_a_cut_packet_keeps_its_length(form) -> None:
    assert packets(form([b"x" * 100], snap=40)) == [Captured(1, b"x" * 40, 100)]


def test_a_simple_packet_is_cut_at_the_snapshot_length() -> None:
    assert packets(pcapng([b"x" * 100], simple=True, snap=40)) == [Captured(1, b"x" * 40, 100)]


@pytest.mark.parametrize("form", [pcap, pcapng])
def test_link_type(form) -> None:
    assert packets(form([b"x"], link=101))[0].link == 101


@pytest.mark.parametrize(("form", "parts"), [("pcap", 3), ("pcapng", 5)])
def test_a_truncated_file_is_an_error_behind_its_packets(form: str, parts: int) -> None:
    """Between two of its parts (header, blocks, packets) a cut cannot be seen."""
    data = FORMS[form]
    whole = 0
    for size in range(len(data)):
        try:
            assert packets(data[:size]) == WANTED[: len(packets(data[:size]))]
            whole += 1
        except CaptureError as error:
            assert "ends inside" in str(error)
    assert whole == parts


SECTION = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
START = block(0x0A0D0D0A, SECTION)
INTERFACE = block(1, struct.pack("<HHI", 1, 0, 0))
DAMAGED = [
    (b"", "ends inside"),
    (b"#!/bin/sh", "neither pcap nor pcapng"),
    (b"\x1f\x8b\x08\x00 gzip", "neither pcap nor pcapng"),
    (struct.pack("<IHHIIII", 0xA1B2C3D4, 3, 0, 0, 0, 9, 1), "version 3"),
    (pcap([]) + struct.pack("<IIII", 0, 0, FRAME_MAX + 1, 9), "packet 1 has 262145 bytes"),
    (pcap([]) + struct.pack("<IIII", 0, 0, 0xFFFFFFFF, 9), "packet 1 has"),
    (b"\x0a\x0d\x0d\x0a" + bytes(24), "no byte order"),
    (START + struct.pack("<II", 5, 11), "a block has 11 bytes"),
    (START + struct.pack("<II", 5, 13), "a block has 13 bytes"),
    (START + struct.pack("<II", 5, 0xFFFFFFFC), "the file is damaged"),
    (START + block(6, bytes(20)), "packet 1 names interface 0"),
    (START + block(3, bytes(4)), "packet 1 names interface 0"),
    (START + INTERFACE + block(6, bytes(16)), "a block is too short"),
    (START + block(1, bytes(4)), "a block is too short"),
    (START + INTERFACE + block(2, bytes(20)), "obsolete form"),
    (START + INTERFACE + block(6, struct.pack("<IIIII", 0, 0, 0, 1, 1)), "longer than its block"),
    (START + INTERFACE * 4097, "more than 4096 interfaces"),
    (START + block(5, b"")[:-4] + bytes(4), "ends with another length"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "text"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_an_error_that_says_why(data: bytes, text: str) -> None:
    with pytest.raises(CaptureError, match=text):
        packets(data)


def test_a_length_allocates_nothing_before_the_bytes_are_there() -> None:
    """A block may claim 256 MiB: it is skipped in pieces."""
    claim = struct.pack("<II", 77, 1 << 28) + bytes(1000)
    with pytest.raises(CaptureError, match="ends inside"):
        packets(START + claim)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_bytes_give_packets_or_an_error(data: st.DataObject) -> None:
    base = bytearray(data.draw(st.sampled_from(sorted(FORMS.values()))))
    for at in data.draw(st.lists(st.integers(0, len(base) - 1), max_size=6)):
        base[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(base)))
    with contextlib.suppress(CaptureError):
        for found in read(io.BytesIO(bytes(base[:end]))):
            assert len(found.data) <= FRAME_MAX


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_behind_a_legal_beginning(data: bytes) -> None:
    for start in (pcap([]), START, START + INTERFACE):
        with contextlib.suppress(CaptureError):
            packets(start + data)
