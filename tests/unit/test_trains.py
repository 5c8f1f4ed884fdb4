"""Trains of datagrams that a capture shows as one (srdma/inspect/trains.py).

The ICRCs are those of tests/reference/icrc.py, which computes them bit by bit."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srdma.inspect.capture_file import Captured
from srdma.inspect.datagram import Datagram, decode
from srdma.inspect.proof import Proof
from srdma.inspect.trains import split
from tests import captures
from tests.reference.icrc import Datagram as Reference

FROM, TO = ("::1", 49152), ("::2", 4791)  # those of captures.ip6


def sealed(packet: bytes) -> bytes:
    return packet + Reference(FROM, TO, packet).icrc


def packet(size: int, number: int = 0) -> bytes:
    """A BTH of RC WRITE ONLY, and what is no valid STH."""
    return b"\x0a\0\xff\xff\0\0\0\x11\0" + number.to_bytes(3, "big") + bytes(size - 12)


def shown(payload: bytes) -> Datagram:
    found = decode(captures.RAW, captures.ip6(captures.udp(payload)))
    assert found is not None
    return found


@pytest.mark.parametrize("size", [24, 28, 116, 1148, 4228])
@pytest.mark.parametrize("number", [2, 3, 15])
@pytest.mark.parametrize("shorter", [0, 4])
def test_trains_are_split(size: int, number: int, shorter: int) -> None:
    sizes = [size] * (number - 1) + [max(size - shorter, 24)]
    parts = [sealed(packet(size - 4, i)) for i, size in enumerate(sizes)]
    found = split(shown(b"".join(parts)))
    assert [each.payload for each in found] == parts
    assert all(each._replace(payload=b"") == shown(b"") for each in found)


def test_a_datagram_with_a_right_icrc_is_no_train() -> None:
    """The payload of a genuine datagram is not taken apart, even if it is a whole train."""
    inner = sealed(packet(40)) + sealed(packet(40))
    whole = sealed(inner)
    assert [each.payload for each in split(shown(whole))] == [whole]


def test_what_follows_a_train_is_judged_too() -> None:
    """A datagram behind the first one need not be genuine."""
    parts = [sealed(packet(40)), bytes(44), b"x" * 43]
    assert [each.payload for each in split(shown(b"".join(parts)))] == parts


def bare(size: int, number: int = 0) -> bytes:
    """A datagram over IPv4 without ICRC, to a QPN that is the number."""
    data = bytearray(packet(size - 4, number) + bytes(4))
    data[5:8], data[8] = number.to_bytes(3, "big"), 0x20
    return bytes(data)


def shown4(payload: bytes) -> Datagram:
    found = decode(captures.RAW, captures.ip4(captures.udp(payload)))
    assert found is not None
    return found


@pytest.mark.parametrize("size", [24, 28, 116, 1148, 4228])
@pytest.mark.parametrize("sizes", [(0, 0), (0, -4), (0, 0, 0), (0,) * 15, (0,) * 14 + (-20,)])
def test_trains_of_bare_datagrams_are_split(size: int, sizes: tuple[int, ...]) -> None:
    parts = [bare(max(24, size + less), i + 1) for i, less in enumerate(sizes)]
    assert [each.payload for each in split(shown4(b"".join(parts)))] == parts


BROKEN = {
    "an ICRC": (-1, 1),
    "no zeros between": (99, 1),
    "SE": (101, 0x80),
    "TVer": (101, 0x01),
    "P_Key": (102, 0),
    "AckReq": (108, 0xA0),
    "reserved": (108, 0x21),
    "no tag": (108, 0),
}


@pytest.mark.parametrize(("at", "value"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_train_of_bare_datagrams_is_judged_as_one(at: int, value: int) -> None:
    train = bytearray(bare(100, 1) + bare(100, 2))
    train[at] = value
    assert split(shown4(bytes(train))) == [shown4(bytes(train))]


def test_a_bare_datagram_alone_is_no_train() -> None:
    assert split(shown4(bare(100, 1))) == [shown4(bare(100, 1))]


def test_ipv4_has_no_trains_with_icrcs() -> None:
    data = sealed(packet(40)) + sealed(packet(40))
    found = decode(captures.RAW, captures.ip4(captures.udp(data)))
    assert found is not None and split(found) == [found]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 11, 12, 16, 23, 24, 5000, 65_000])
def test_no_right_icrc_is_no_train(size: int) -> None:
    for data in (bytes(size), packet(max(size, 12))[:size], b"\xff" * size):
        assert split(shown(data)) == [shown(data)]


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300))
def test_any_datagram_is_split_without_loss(data: bytes) -> None:
    assert b"".join(each.payload for each in split(shown(data))) == data


def test_each_packet_of_a_train_is_judged() -> None:
    train = b"".join(sealed(packet(100, i)) for i in range(5)) + os.urandom(50)
    frame = captures.ethernet(captures.ip6(captures.udp(train)))
    it = Proof()
    it.frame(Captured(captures.ETHERNET, frame, len(frame)))
    it.finish()
    assert it.plain["WRITE"] == 5 and it.plain.total() + it.sth == 6
