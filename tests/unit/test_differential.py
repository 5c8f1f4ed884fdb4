"""C and the Python reference on the same random packets must give the same bytes and verdicts.

20,000 packets in all suites, levels and tag lengths. Both implementations seal each packet and open
each datagram. Before the datagram, both get a damaged copy of it. Some datagrams arrive late or
twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import fields
from tests.differential import (
    FORMS,
    Conversation,
    ends,
    flip,
    random_params,
    random_workers,
    verdict,
)
from tests.native import bindings
from tests.reference import host, random_packets, wire
from tests.reference.ack import AckBody
from tests.reference.protect import Mode
from tests.reference.suites import Level
from tests.reference.wire import Op, Packet

PACKETS = 20_000


@pytest.mark.parametrize("number", range(len(FORMS)), ids=lambda n: str(FORMS[n]))
def test_random_packets(number: int) -> None:
    form, packets = FORMS[number], PACKETS // len(FORMS) + 1
    rng = Random(f"differential {form}")
    workers = random_workers(rng, shared=False, contexts=(0, 0))
    conversation = Conversation(rng, form, ends(random_params(rng, form), workers))
    for _ in range(packets):
        conversation.packet()
    counts = conversation.counts
    assert counts["accepted"] > packets * (0.8 if form[1] > Level.HEADER else 0.3)
    assert counts["replay"] > 0
    if form[1] > Level.NONE:
        assert counts["advance 1"] > packets / 300


@pytest.mark.parametrize("mode", [Mode.BASIC, Mode.PD])
@pytest.mark.parametrize("first", range(6))
def test_changing_epochs(first: int, mode: Mode) -> None:
    """One long connection, whose epochs end by the limit of packets or of time."""
    form = (1, Level.AEAD, 16)
    rng = Random(f"epochs {first}")
    workers = random_workers(rng, shared=False, contexts=(0, 5))
    params = replace(random_params(rng, form, mode), tx_pn=(1 << 24) + first)
    params = replace(params, rekey_packets=(3, 40)[first % 2], rekey_ns=(10**9, 30)[first // 3])
    conversation = Conversation(rng, form, ends(params, workers))
    for _ in range(1000):
        conversation.packet()
    counts = conversation.counts
    assert all(counts[what] for what in ("advance 1", "advance -1", "epoch", "renewed"))
    assert counts["accepted"] > 800
    assert min(conversation.pair[0].native.epochs) > 10


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
    """Returns the datagram with the bytes that routers may change set to fixed values."""
    return data[:4] + b"\0" + data[5:]


def parsed(data: bytes, tag_len: int, mtu: int) -> Any:
    """Returns the common result of both parsers."""
    in_c = verdict(lambda d: bindings.parse(d, tag_len, mtu), data)
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
    """If the parser accepts a damaged datagram, building it again gives the same bits."""
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
    """Returns the decoded descriptor, or that it was refused."""
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
    d = host.Descriptor(opcode, rng.getrandbits(3), 0, *numbers)
    if opcode in host.ATOMICS:
        size = rng.choice((8, 8, 8, 8, d.length))
        compare = rng.choice((0, rng.getrandbits(64)))
        d = replace(d, length=size, swap_add=rng.getrandbits(64), compare=compare)
    sgl = [
        (rng.getrandbits(64), rng.getrandbits(9), rng.getrandbits(32))
        for _ in range(rng.choice((0, 1, 2, 28, 29)))
    ]
    if sgl and rng.getrandbits(3):
        d = replace(d, sges=len(sgl), length=sum(sge[1] for sge in sgl))
        if opcode in host.ATOMICS:
            sgl = []
    else:
        sgl = []
    slot = d.encode() + host.encode_sgl(sgl) + bytes(456)
    slot = (flip(rng, slot) if rng.getrandbits(1) else slot)[:length]
    found = descriptor(bindings.decode_descriptor, slot)
    assert found == descriptor(lambda s: asdict(host.decode_descriptor(s)), slot)
    if found != "refused":
        again = bindings.encode_descriptor(found)
        assert again == slot[: len(again)]
