"""The Python reference by itself, and the page against it."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from tests.reference import example, host, make_vectors, numbers, random_packets, wire
from tests.reference.kdf import kdf
from tests.reference.protect import associated_data
from tests.reference.reasons import RefusedError
from tests.reference.session import Params, Session
from tests.reference.suites import Level
from tests.reference.wire import Op, Packet

HALF = 1 << 23


def test_page_shows_the_example() -> None:
    _, listing, _ = example.in_page(example.PAGE.read_text())
    wanted = example.text(json.loads(example.JSON.read_text()))
    assert listing == wanted, "run python -m tests.reference.example"
    assert listing.count("\n") < 230


def test_example_has_every_packet_type() -> None:
    packets = json.loads(example.JSON.read_text())["connections"][0]["packets"]
    assert [packet["name"] for packet in packets] == [op.name for op in Op]


@pytest.mark.parametrize(
    ("low", "expected", "number"),
    [
        (0, 0, 0),
        (0xFFFFFF, 0, None),  # would lie below 0
        (HALF, 0, HALF),
        (HALF + 1, 0, None),  # nearer to the number below 0
        (0xFFFFFF, 1 << 24, 0xFFFFFF),
        (0, 0xFFFFFF, 1 << 24),
        (HALF, 1 << 24, (1 << 24) + HALF),
        (HALF + 1, 1 << 24, HALF + 1),
        (0, 1 << 62, None),  # 63 bits
        (0xFFFFFF, (1 << 62) - 1, (1 << 62) - 1),
    ],
)
def test_infer(low: int, expected: int, number: int | None) -> None:
    assert numbers.infer(low, expected) == number


def test_window_slides_and_remembers() -> None:
    window = numbers.Window(first=100, size=64)
    window.move(window.candidate(200))
    assert window.candidate(137) == 137  # 63 behind
    with pytest.raises(RefusedError, match="replay"):
        window.candidate(136)
    with pytest.raises(RefusedError, match="replay"):
        window.candidate(200)
    window.move(137)
    with pytest.raises(RefusedError, match="replay"):
        window.candidate(137)


@pytest.mark.parametrize("size", [0, 15, 24, 33])
def test_kdf_refuses_other_parents(size: int) -> None:
    with pytest.raises(ValueError, match="16 or 32"):
        kdf(bytes(size), "traffic", b"", 16)


def params() -> Params:
    return random_packets.params(Random("reference"), 0x01, Level.AEAD)


def test_replay_and_reflection_are_refused() -> None:
    client = params()
    a, b = Session(client), Session(client.mirrored())
    data = a.seal(Packet(Op.SEND_ONLY, payload=b"once"))
    with pytest.raises(RefusedError):
        a.open(data)  # reflected
    assert b.open(data)[1].payload == b"once"
    with pytest.raises(RefusedError, match="replay"):
        b.open(data)


def test_packet_limit_stops_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(params())
    monkeypatch.setattr(session, "_left", 1)
    session.seal(Packet(Op.SEND_ONLY))
    with pytest.raises(RuntimeError, match="limit"):
        session.seal(Packet(Op.SEND_ONLY))


def test_associated_data_is_injective_on_the_example() -> None:
    """No two packets of the conversation vectors share it, and none is longer than 255."""
    seen = set()
    forms = random_packets.forms()[:-1]
    for form in forms:
        for step in make_vectors.packets(*form)["steps"]:
            assert len(step["ad"]) <= 2 * 255
            seen.add((form, step["ad"]))
    assert len(seen) == len(forms) * len(list(make_vectors.conversation(Random(0))))


def test_routers_bits_are_not_in_the_associated_data() -> None:
    way = params().directions()[0]
    packet = Packet(Op.SEND_ONLY, qpn=way.receiver.qpn, request_id=5)
    found = associated_data(way, 9, packet)
    assert found[72] == 0
    assert found != associated_data(way, 9, replace(packet, request_id=5 + (1 << 24)))


@pytest.mark.parametrize(
    "packet",
    [
        Packet(Op.SEND_FIRST),  # needs payload
        Packet(Op.READ_REQUEST, payload=b"x"),
        Packet(Op.SEND_ONLY, flags=wire.Flag.PROOF),
        Packet(Op.SEND_ONLY, flags=0x01),
        Packet(Op.WRITE_ONLY, flags=wire.Flag.HOLDER),
        Packet(Op.ACKNOWLEDGE),  # no body
    ],
)
def test_build_refuses(packet: Packet) -> None:
    with pytest.raises(ValueError, match=Op(packet.opcode).name):
        wire.build(packet)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"opcode": 6}, "opcode"),
        ({"flags": 0x08}, "flags"),
        ({"flags": 0x04, "opcode": host.DescriptorOp.READ}, "INLINE"),
        ({"flags": 0x04, "length": 449}, "do not fit"),
        ({"length": (1 << 30) + 1}, "at most"),
        ({"capability": 1, "opcode": host.DescriptorOp.SEND}, "no remote memory"),
        ({"capability": 1, "opcode": host.DescriptorOp.RECV}, "no remote memory"),
    ],
)
def test_descriptor_refused(change: dict[str, int], why: str) -> None:
    slot = replace(host.Descriptor(host.DescriptorOp.WRITE), **change).encode() + bytes(448)
    with pytest.raises(ValueError, match=why):
        host.decode_descriptor(slot)


def test_descriptor_zeros_and_length() -> None:
    slot = host.Descriptor(host.DescriptorOp.RECV, length=7).encode()
    assert host.decode_descriptor(slot).length == 7
    for at in (2, 3, *range(56, 64)):
        with pytest.raises(ValueError, match="zero"):
            host.decode_descriptor(slot[:at] + b"\1" + slot[at + 1 :])
    for wrong in (slot[:-1], slot + bytes(449)):
        with pytest.raises(ValueError, match="slot"):
            host.decode_descriptor(wrong)
