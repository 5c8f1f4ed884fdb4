"""UDP datagrams in frames of several link types (srdma/inspect/datagram.py)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srdma.errors import LocalError
from srdma.inspect import datagram
from srdma.inspect.datagram import Datagram, decode
from tests.captures import A, B, ethernet, ip4, ip6, udp

FOUR, SIX = ip4(udp(b"hello")), ip6(udp(b"hello"))
LINKS = [1, 113, 276, 0, 108, 12, 14, 101, 228, 229]


def in_link(link: int, packet: bytes) -> bytes:
    kind = ethernet(packet)[12:14]
    fronts = {113: bytes(14) + kind, 276: kind + bytes(18), 0: bytes(4), 108: bytes(4)}
    return ethernet(packet) if link == 1 else fronts.get(link, b"") + packet


@pytest.mark.parametrize("link", LINKS)
def test_link_types(link: int) -> None:
    datagram.check_link(link)
    assert decode(link, in_link(link, FOUR)) == Datagram(A, B, 4791, b"hello", True, 49152)
    found = decode(link, in_link(link, SIX))
    assert found is not None and found.payload == b"hello" and len(found.source) == 16


def test_an_unknown_link_type_is_an_error() -> None:
    with pytest.raises(LocalError, match=r"link type 105 .* not supported"):
        datagram.check_link(105)


def test_vlan_tags_are_skipped() -> None:
    tags = b"\x88\xa8\0\1\x81\0\0\2"
    frame = bytes(12) + tags + b"\x08\x00" + FOUR
    assert decode(1, frame) == Datagram(A, B, 4791, b"hello", True, 49152)


def test_bytes_behind_the_datagram_are_not_payload() -> None:
    found = decode(1, ethernet(FOUR) + bytes(20))
    assert found is not None and found.payload == b"hello" and found.whole


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_datagram_that_the_capture_cut_is_not_whole(cut: int) -> None:
    for packet in (FOUR, SIX):
        found = decode(101, packet[:-cut])
        assert found is not None and not found.whole and found.port == 4791


def test_fragments() -> None:
    """The first one is seen and not whole; the others have no UDP header."""
    more, offset = 0x2000, 0x2001
    first = decode(101, ip4(udp(b"hello"), field=more))
    assert first is not None and not first.whole
    assert decode(101, ip4(udp(b"hello"), field=offset)) is None
    for field, seen in ((1, True), (8, False), (0, True)):
        packet = ip6(struct.pack(">BBHI", 17, 0, field, 9) + udp(b"hello"), following=44)
        found = decode(101, packet)
        assert (found is not None) == seen
        assert found is None or found.whole == (field == 0)


def test_extension_headers_of_ipv6_are_skipped() -> None:
    hop = bytes([43, 1]) + bytes(14)
    routing = bytes([17, 0]) + bytes(6)
    found = decode(101, ip6(hop + routing + udp(b"hello"), following=0))
    assert found is not None and found.payload == b"hello"


def test_a_length_of_zero_means_the_rest_of_the_frame() -> None:
    packet = bytearray(FOUR)
    packet[2:4] = bytes(2)
    assert decode(101, bytes(packet)) == Datagram(A, B, 4791, b"hello", True, 49152)


OTHERS = {
    "TCP": ip4(udp(b"hello"), protocol=6),
    "TCP over IPv6": ip6(udp(b"hello"), following=6),
    "version 5": b"\x55" + FOUR[1:],
    "a header of 16 bytes": b"\x44" + FOUR[1:],
    "UDP length of 7": ip4(struct.pack(">HHHH", 1, 4791, 7, 0) + b"hello"),
    "empty": b"",
}


@pytest.mark.parametrize("packet", OTHERS.values(), ids=OTHERS)
def test_other_packets_have_no_datagram(packet: bytes) -> None:
    assert decode(101, packet) is None
    assert decode(1, ethernet(packet)) is None


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(LINKS), st.sampled_from([FOUR, SIX]), st.data())
def test_any_frame_is_decoded_or_ignored(link: int, packet: bytes, data: st.DataObject) -> None:
    frame = bytearray(in_link(link, packet))
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=5)):
        frame[at] = data.draw(st.integers(0, 255))
    found = decode(link, bytes(frame[: data.draw(st.integers(0, len(frame)))]))
    assert found is None or len(found.payload) <= len(frame)
