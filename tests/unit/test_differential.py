"""C and the Python reference on the same random packets: the same bytes, the same verdicts.

20,000 packets in all suites, levels and tag lengths. Both ends seal each packet, both open
each datagram; before that both are shown it damaged, and now and then late or twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srdma import _native
from tests import fields
from tests.reference import host, random_packets, wire
from tests.reference.ack import AckBody
from tests.reference.reasons import RefusedError
from tests.reference.session import Params, Session
from tests.reference.suites import SUITES, Level
from tests.reference.wire import Op, Packet

PACKETS = 20_000
HELD = 0.08  # share of datagrams that arrive late
TWICE = 0.05


def forms() -> list[tuple[int, Level, int]]:
    """Every suite, level and tag length."""
    found = [(0, Level.NONE, 0)]
    for suite in SUITES.values():
        found += [(suite.id, level, n) for level in suite.levels for n in suite.tag_sizes]
    return found


FORMS = forms()


@dataclass
class End:
    """One end of a connection, in both implementations, that must agree."""

    native: _native.Session
    reference: Session
    last_id: int = 0

    def seal(self, packet: Packet) -> bytes:
        sealed = self.native.seal(fields.of_packet(packet), packet.payload)
        assert sealed == self.reference.seal(packet), packet
        return sealed

    def open(self, data: bytes) -> Any:
        """What both found, or the counter of both refusals."""
        in_c = verdict(self.native.open, data)
        in_python = verdict(lambda d: fields.of_opened(*self.reference.open(d)), data)
        assert in_c == in_python, data.hex()
        return in_c


def verdict(opener: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return opener(data)
    except (RefusedError, _native.RefusedError) as refused:
        return refused.counter


def ends(params: Params) -> list[End]:
    both = params, params.mirrored()
    return [End(_native.Session(fields.of_params(p)), Session(p)) for p in both]


def random_params(rng: Random, form: tuple[int, Level, int]) -> Params:
    suite, level, tag_len = form
    params = random_packets.params(rng, suite, level, rng.getrandbits(1), tag_len)
    first = rng.choice((1 << 24, 1 << 32, 1 << 61)) - rng.randrange(1, 999)
    return replace(params, tx_pn=first, window=rng.choice((64, 1024)))


def next_packet(rng: Random, sender: End, receiver: End) -> Packet:
    op = rng.choice(list(Op))
    size = rng.choice((0, 1, 2, 3, 4, rng.randrange(200), rng.randrange(4097), 4096))
    payload = random_packets.payload_for(rng, op, size)
    if wire.ROWS[op].request:
        sender.last_id += rng.choice((0, 1, 2)) if rng.random() < 0.98 else rng.getrandbits(22)
        request_id = sender.last_id
    else:
        request_id = max(receiver.last_id - rng.choice((0, 1, rng.getrandbits(21))), 0)
    return random_packets.packet(rng, op, request_id, payload, proof=rng.random() < 0.3)


def flip(rng: Random, data: bytes) -> bytes:
    """One bit, in the headers three times out of four."""
    end = len(data) if rng.random() < 0.25 else min(len(data), 140)
    changed = bytearray(data)
    changed[rng.randrange(end)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def damage(rng: Random, data: bytes) -> bytes:
    kind = rng.randrange(8)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        return data + rng.randbytes(rng.randrange(1, 65))
    if kind == 2:
        at = rng.randrange(len(data))
        return data[:at] + rng.randbytes(4) + data[at + 4 :]
    return flip(rng, data)


def promised(level: Level, tag_len: int, data: bytes, damaged: bytes) -> bool:
    """Is this damage none of the protocol's promise: a router's byte, or unprotected payload?"""
    if len(damaged) != len(data) or level == Level.NONE:
        return level != Level.NONE
    free = {4}
    if level == Level.HEADER:
        packet = wire.parse(data, tag_len)
        start = len(data) - len(packet.payload) - -len(packet.payload) % 4
        free |= set(range(start, start + len(packet.payload)))
    return any(a != b for i, (a, b) in enumerate(zip(data, damaged, strict=True)) if i not in free)


def arrivals(rng: Random, held: list[bytes], data: bytes) -> Iterator[bytes]:
    """What arrives when `data` was sent: perhaps later, perhaps twice."""
    if rng.random() < HELD:
        held.append(data)
    else:
        yield data
    if rng.random() < TWICE:
        yield data
    while held and rng.random() < 0.02:
        yield held.pop(rng.randrange(len(held)))


def converse(rng: Random, form: tuple[int, Level, int], packets: int) -> Counter[str]:
    """`packets` packets between two ends; what became of all that arrived."""
    pair = ends(random_params(rng, form))
    held: tuple[list[bytes], list[bytes]] = ([], [])
    counts: Counter[str] = Counter()
    for _ in range(packets):
        sender = rng.getrandbits(1)
        receiver = pair[1 - sender]
        data = pair[sender].seal(next_packet(rng, pair[sender], receiver))
        damaged = damage(rng, data)
        found = receiver.open(damaged)
        if damaged != data and promised(form[1], form[2], data, damaged):
            assert isinstance(found, str), f"accepted damage {damaged.hex()} of {data.hex()}"
        for arriving in arrivals(rng, held[sender], data):
            found = receiver.open(arriving)
            counts[found if isinstance(found, str) else "accepted"] += 1
    return counts


@pytest.mark.parametrize("number", range(len(FORMS)), ids=lambda n: str(FORMS[n]))
def test_random_packets(number: int) -> None:
    packets = PACKETS // len(FORMS) + 1
    counts = converse(Random(f"differential {FORMS[number]}"), FORMS[number], packets)
    assert counts["accepted"] > packets * (0.8 if FORMS[number][1] > Level.HEADER else 0.3)
    assert counts["replay"] > 0


# --- the parser ---------------------------------------------------------------

TAG_LENS = st.sampled_from(sorted(wire.TAG_CODES))


@st.composite
def legal(draw: st.DrawFn) -> Packet:
    rng = Random(draw(st.integers(0, 2**64)))
    op = draw(st.sampled_from(list(Op)))
    payload = random_packets.payload_for(rng, op, draw(st.integers(0, 70)))
    packet = random_packets.packet(rng, op, rng.getrandbits(24), payload, draw(st.booleans()))
    return replace(
        packet,
        qpn=rng.getrandbits(24),
        psn=rng.getrandbits(24),
        epoch=rng.getrandbits(2),
        tag=rng.randbytes(draw(TAG_LENS)),
    )


def canonical(data: bytes) -> bytes:
    """Without what routers may change."""
    return data[:4] + b"\0" + data[5:]


def parsed(data: bytes, tag_len: int, mtu: int) -> Any:
    """What both parsers say."""
    in_c = verdict(lambda d: _native.parse(d, tag_len, mtu), data)
    in_python = verdict(lambda d: fields.of_parsed(wire.parse(d, tag_len, mtu)), data)
    assert in_c == in_python
    return in_c


@given(legal())
@settings(max_examples=400, deadline=None)
def test_parse_is_the_inverse_of_build(packet: Packet) -> None:
    assert parsed(wire.build(packet), len(packet.tag), 4096) == fields.of_parsed(packet)


@given(legal(), st.data())
@settings(max_examples=800, deadline=None)
def test_build_is_the_inverse_of_parse(packet: Packet, data: st.DataObject) -> None:
    """Of a damaged datagram that the parser still takes, no bit is lost or doubled."""
    changed = bytearray(wire.build(packet))
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, min(len(changed), 150) - 1))] = data.draw(
            st.integers(0, 255)
        )
    tag_len = data.draw(st.sampled_from((len(packet.tag), 0, 16)))
    found = parsed(bytes(changed), tag_len, data.draw(st.sampled_from((256, 4096, 20))))
    if not isinstance(found, str):
        again = Packet(**found | {"ack": found["ack"] and AckBody(**found["ack"])})
        assert wire.build(again) == canonical(bytes(changed))


@given(st.binary(max_size=300), TAG_LENS)
@settings(max_examples=400, deadline=None)
def test_parsers_agree_on_anything(data: bytes, tag_len: int) -> None:
    parsed(data, tag_len, 4096)


# --- the host leg's descriptors -------------------------------------------------


def descriptor(decoder: Callable[[bytes], Any], slot: bytes) -> Any:
    """What it found, or that it refused."""
    try:
        return decoder(slot)
    except (ValueError, OSError):
        return "refused"


@given(st.integers(0, 2**64), st.integers(0, 520), st.booleans())
@settings(max_examples=400, deadline=None)
def test_descriptors(seed: int, length: int, legal_op: bool) -> None:
    rng = Random(seed)
    numbers = [rng.getrandbits(n) for n in (32, 64, 32, 9, 64, 32, 32, 64, 32)]
    opcode = rng.choice(list(host.DescriptorOp)) if legal_op else rng.getrandbits(8)
    slot = host.Descriptor(opcode, rng.getrandbits(3), *numbers).encode() + bytes(456)
    slot = (flip(rng, slot) if rng.getrandbits(1) else slot)[:length]
    found = descriptor(_native.decode_descriptor, slot)
    assert found == descriptor(lambda s: asdict(host.decode_descriptor(s)), slot)
    if found != "refused":
        assert _native.encode_descriptor(found) == slot[:64]
