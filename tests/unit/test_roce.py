"""Decoding RoCE frames and reassembling messages (srdma/inspect/roce.py)."""

from __future__ import annotations

import pytest

from srdma.inspect import roce

A, B = bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])
QPN = 0x000011
FIRST, MIDDLE, LAST, ONLY = 0x00, 0x01, 0x02, 0x04


def raw(payload: bytes, opcode: int = ONLY, psn: int = 7, **changes: object) -> bytes:
    """Returns a frame as rxe sends it."""
    v = {"source": A, "qpn": QPN, "port": roce.PORT, "ethertype": 0x0800, "protocol": 17}
    v |= changes
    pad = -len(payload) % 4
    bth = bytes([opcode, pad << 4, 0xFF, 0xFF, 0]) + v["qpn"].to_bytes(3, "big") + b"\x80"
    roce_packet = bth + psn.to_bytes(3, "big") + payload + bytes(pad) + b"ICRC"
    length = 8 + len(roce_packet)
    udp = b"\xc0\x00" + v["port"].to_bytes(2, "big") + length.to_bytes(2, "big") + bytes(2)
    ip = b"\x45\x00" + (20 + length).to_bytes(2, "big") + bytes(5) + bytes([v["protocol"], 0, 0])
    return bytes(12) + v["ethertype"].to_bytes(2, "big") + ip + v["source"] + B + udp + roce_packet


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 4096])
def test_parse(size):
    payload = bytes(range(256)) * 16
    frame = roce.parse(raw(payload[:size]))
    assert frame == roce.Frame((A, B, QPN), ONLY, 7, payload[:size])


def test_ethernet_padding_is_not_payload():
    assert roce.parse(raw(b"abc") + bytes(20)).payload == b"abc"


@pytest.mark.parametrize(
    "other", [{"port": 4790}, {"ethertype": 0x86DD}, {"protocol": 6}], ids=lambda v: next(iter(v))
)
def test_other_frames_are_ignored(other):
    assert roce.parse(raw(b"abc", **other)) is None


def test_short_frames_are_ignored():
    whole = raw(b"")
    assert roce.parse(whole) is not None
    for length in range(len(whole)):
        assert roce.parse(whole[:length]) is None


@pytest.mark.parametrize(
    ("opcode", "qpn", "kind"),
    [
        (FIRST, QPN, "SEND"),
        (0x05, QPN, "SEND"),
        (0x06, QPN, "WRITE"),
        (0x0B, QPN, "WRITE"),
        (0x0C, QPN, "READ"),
        (0x10, QPN, "READ"),
        (0x11, QPN, "ACK"),
        (0x12, QPN, "ATOMIC"),
        (0x14, QPN, "ATOMIC"),
        (0x17, QPN, "INVALIDATE"),
        (0x64, 1, "CM"),
        (0x64, QPN, "opcode 0x64"),
        (0xFF, QPN, "opcode 0xff"),
    ],
)
def test_kinds(opcode, qpn, kind):
    assert roce.kinds([roce.parse(raw(b"", opcode, qpn=qpn))]) == {kind: 1}


def whole(*parts: tuple[int, int, bytes], **changes: object) -> list[bytes]:
    """Returns the messages of frames (opcode, PSN, payload)."""
    return roce.messages(roce.frames(raw(data, code, psn, **changes) for code, psn, data in parts))


def test_messages_in_one_and_in_several_frames():
    parts = [(ONLY, 1, b"one"), (FIRST, 2, b"abcd"), (MIDDLE, 3, b"efgh"), (LAST, 4, b"i")]
    assert whole(*parts) == [b"one", b"abcdefghi"]


def test_psn_wraps():
    parts = [(FIRST, 0xFFFFFF, b"abcd"), (LAST, 0, b"e"), (ONLY, 1, b"f")]
    assert whole(*parts) == [b"abcde", b"f"]


def test_repeated_frames_count_once():
    parts = [(FIRST, 1, b"abcd"), (MIDDLE, 2, b"efgh"), (LAST, 3, b"i"), (ONLY, 4, b"j")]
    assert whole(*parts[:3], *parts[1:]) == [b"abcdefghi", b"j"]


def test_incomplete_messages_are_left_out():
    assert whole((MIDDLE, 1, b"ab"), (LAST, 2, b"c"), (ONLY, 3, b"d")) == [b"d"]
    assert whole((FIRST, 1, b"abcd"), (LAST, 3, b"e"), (ONLY, 4, b"f")) == [b"f"]
    assert whole((FIRST, 1, b"abcd"), (ONLY, 3, b"f"), (FIRST, 4, b"g")) == [b"f"]


def test_directions_and_connections_are_separate():
    found = [raw(b"ab", FIRST, 1), raw(b"cd", FIRST, 1, source=B), raw(b"x", ONLY, 9, qpn=5)]
    found += [raw(b"A", LAST, 2), raw(b"C", LAST, 2, source=B)]
    assert sorted(roce.messages(roce.frames(found))) == [b"abA", b"cdC", b"x"]


def test_acks_and_datagrams_are_not_messages():
    assert whole((0x11, 1, b"abcd"), (0x06, 2, b"abcd")) == []
    assert whole((0x64, 1, b"abcd"), qpn=1) == []
