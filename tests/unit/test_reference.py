"""The Python reference alone, and protocol.md compared with it."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.reference import (
    example,
    host,
    make_vectors,
    memory,
    numbers,
    random_packets,
    target,
    wire,
)
from tests.reference.epoch import LAST_WORDS
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
    assert listing.count("\n") < 330
    assert max(map(len, listing.splitlines())) <= 120


def test_example_has_every_packet_type() -> None:
    packets = json.loads(example.JSON.read_text())["connections"][0]["packets"]
    assert [packet["name"] for packet in packets] == [op.name for op in Op]


@pytest.mark.parametrize(
    ("low", "expected", "number"),
    [
        (0, 0, 0),
        (0xFFFFFF, 0, None),  # the nearest number would be negative
        (HALF, 0, HALF),
        (HALF + 1, 0, None),  # nearer to a negative number
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
    assert window.candidate(137) == 137  # 63 behind the highest
    with pytest.raises(RefusedError, match="replay"):
        window.candidate(136)
    with pytest.raises(RefusedError, match="replay"):
        window.candidate(200)
    window.move(137)
    with pytest.raises(RefusedError, match="replay"):
        window.candidate(137)


@pytest.mark.parametrize("size", [0, 15, 24, 33])
def test_kdf_refuses_other_key_lengths(size: int) -> None:
    with pytest.raises(ValueError, match="16 or 32"):
        kdf(bytes(size), "traffic", b"", 16)


def params() -> Params:
    return random_packets.params(Random("reference"), 0x01, Level.AEAD)


def test_replay_and_reflection_are_refused() -> None:
    client = params()
    a, b = Session(client), Session(client.mirrored())
    data = a.seal(Packet(Op.SEND_ONLY, payload=b"once"))
    with pytest.raises(RefusedError):
        a.open(data)  # reflected to its sender
    assert b.open(data)[1].payload == b"once"
    with pytest.raises(RefusedError, match="replay"):
        b.open(data)


def test_packet_limit_stops_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(params())
    monkeypatch.setattr(session.outgoing, "left", 1 + LAST_WORDS)
    session.seal(Packet(Op.SEND_ONLY))
    with pytest.raises(RuntimeError, match="limit"):
        session.seal(Packet(Op.SEND_ONLY))


def test_associated_data_is_injective_on_the_example() -> None:
    """No two packets of the conversation vectors have the same data, and none
    is longer than 255."""
    seen = set()
    forms = random_packets.forms()[:-1]
    for form in forms:
        for step in make_vectors.packets(*form)["steps"]:
            assert len(step["ad"]) <= 2 * 255
            seen.add((form, step["ad"]))
    assert len(seen) == len(forms) * len(list(make_vectors.conversation(Random(0))))


def test_associated_data_excludes_the_bits_of_routers() -> None:
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
        ({"opcode": 8}, "opcode"),
        ({"opcode": 6, "length": 7}, "8 bytes"),
        ({"opcode": 7, "length": 8, "flags": 0x04}, "8 bytes"),
        ({"opcode": 7, "length": 8, "compare": 1}, "compares nothing"),
        ({"flags": 0x08}, "flags"),
        ({"flags": 0x04, "opcode": host.DescriptorOp.READ}, "INLINE"),
        ({"flags": 0x04, "length": 449}, "do not fit"),
        ({"length": (1 << 30) + 1}, "at most"),
        ({"capability": 1, "opcode": host.DescriptorOp.SEND}, "no remote memory"),
        ({"capability": 1, "opcode": host.DescriptorOp.RECV}, "no remote memory"),
        ({"sges": 1, "flags": 0x04}, "SGL"),
        ({"sges": 1, "opcode": host.DescriptorOp.CREDIT}, "SGL"),
        ({"sges": 1, "opcode": host.DescriptorOp.FETCH_ADD, "length": 8}, "no SGL"),
        ({"sges": 29}, "do not fit"),
        ({"sges": 1, "length": 1}, "that of its SGEs"),
    ],
)
def test_descriptor_refused(change: dict[str, int], why: str) -> None:
    slot = replace(host.Descriptor(host.DescriptorOp.WRITE), **change).encode() + bytes(448)
    with pytest.raises(ValueError, match=why):
        host.decode_descriptor(slot[:512])


def test_descriptor_zeros_and_length() -> None:
    slot = host.Descriptor(host.DescriptorOp.RECV, length=7).encode()
    assert host.decode_descriptor(slot).length == 7
    for at in (3, *range(56, 64)):
        with pytest.raises(ValueError, match="zero"):
            host.decode_descriptor(slot[:at] + b"\1" + slot[at + 1 :])
    for wrong in (slot[:-1], slot + bytes(449)):
        with pytest.raises(ValueError, match="slot"):
            host.decode_descriptor(wrong)


# --- the target -----------------------------------------------------------------

BOTH = target.Access.REMOTE_READ | target.Access.REMOTE_WRITE
ATOMIC = target.Access.REMOTE_ATOMIC
REGION = target.Registered(
    pd=1,
    pd_key=bytes(16),
    rkey=7,
    access=BOTH | target.Access.PROOF,
    tree=target.Tree(memory.Region(4096, 3 * 4096), bytes(16)),
    scope=5,
)
PLAIN = replace(REGION, access=BOTH)
PEER = target.Peer(pd=1, qpn=5, proves=True)
ALICE = memory.holder_id("spiffe://example.org/alice")
CLAIM = target.Claim(depth=0, holder=bytes(16), expiry=0, proof=bytes(16), data=b"")


def want(right: int = memory.WRITE, rkey: int = 7, start: int = 4096, length: int = 9) -> Any:
    return target.Want(right, rkey, start, length)


@pytest.mark.parametrize(
    ("region", "peer", "wanted", "claim", "reason"),
    [
        (PLAIN, PEER, want(), None, "NONE"),
        (PLAIN, PEER, want(length=8192), None, "NONE"),
        (PLAIN, PEER, want(rkey=8), None, "BAD_RKEY"),
        (PLAIN, replace(PEER, pd=2), want(), None, "WRONG_PD"),
        (PLAIN, replace(PEER, qpn=6), want(), None, "QP_SCOPE"),
        (replace(PLAIN, scope=0), replace(PEER, qpn=6), want(), None, "NONE"),
        (replace(PLAIN, scope_holder=bytes(15) + b"a"), PEER, want(), None, "QP_SCOPE"),
        (replace(PLAIN, scope_holder=ALICE), replace(PEER, holder=ALICE), want(), None, "NONE"),
        (replace(PLAIN, access=2), PEER, want(memory.READ), None, "NO_RIGHT"),
        (replace(PLAIN, access=4), PEER, want(memory.WRITE), None, "NO_RIGHT"),
        (PLAIN, PEER, want(memory.ATOMIC, length=8), None, "NO_RIGHT"),
        (replace(PLAIN, access=ATOMIC), PEER, want(memory.ATOMIC, length=8), None, "NONE"),
        (replace(PLAIN, access=ATOMIC), PEER, want(memory.READ), None, "NO_RIGHT"),
        (PLAIN, PEER, want(memory.ATOMIC, start=4100, length=8), None, "MISALIGNED"),
        (PLAIN, PEER, want(memory.ATOMIC, rkey=8, start=1, length=8), None, "MISALIGNED"),
        (PLAIN, PEER, want(start=4095), None, "OUT_OF_BOUNDS"),
        (PLAIN, PEER, want(start=3 * 4096 - 8), None, "OUT_OF_BOUNDS"),
        (PLAIN, PEER, want(length=0, rkey=8), None, "NONE"),
        (REGION, PEER, want(length=0), None, "NONE"),
        (REGION, PEER, want(), None, "PROOF_REQUIRED"),
        (REGION, replace(PEER, proves=False), want(), None, "PROOF_REQUIRED"),
        (REGION, replace(PEER, proves=False), want(), CLAIM, "PROOF_UNSUPPORTED"),
        (PLAIN, PEER, want(), CLAIM, "PROOF_UNSUPPORTED"),
        (PLAIN, replace(PEER, proves=False), want(), CLAIM, "PROOF_UNSUPPORTED"),
        (REGION, PEER, want(start=4095), CLAIM, "OUT_OF_BOUNDS"),
        (REGION, PEER, want(), CLAIM, "PROOF_WRONG"),
        (REGION, PEER, want(), replace(CLAIM, depth=2), "PROOF_RANGE"),
        (REGION, PEER, want(start=8190), replace(CLAIM, depth=1), "PROOF_RANGE"),
        (REGION, PEER, want(), replace(CLAIM, expiry=100), "PROOF_EXPIRED"),
    ],
)
def test_verdict_of_the_target(
    region: Any, peer: Any, wanted: Any, claim: Any, reason: str
) -> None:
    assert target.judge({7: region}, peer, wanted, claim, 100).name == reason


def test_bytes_that_a_packet_accesses() -> None:
    first = Packet(Op.WRITE_FIRST, va=100, rkey=7, dma_len=30, payload=bytes(9))
    last = Packet(Op.WRITE_LAST, offset=9, payload=bytes(21))
    part = Packet(Op.READ_REQUEST, va=100, rkey=7, offset=65536, dma_len=5)
    assert target.want(first, first) == want(start=100, length=9)
    assert target.want(last, first) == want(start=109, length=21)
    assert target.want(part, part) == want(memory.READ, start=65636, length=5)
    for op in (Op.COMPARE_SWAP, Op.FETCH_ADD):
        atomic = Packet(op, va=104, rkey=7, swap_add=1)
        assert target.want(atomic, atomic) == want(memory.ATOMIC, start=104, length=8)
    holder = replace(PEER, holder=b"h" * 16)
    assert target.Claim.of(part, holder, b"") is None
    for flags, named in ((wire.Flag.PROOF, bytes(16)), (0xC0, holder.holder)):
        claim = target.Claim.of(replace(part, flags=flags), holder, b"")
        assert claim and claim.holder == named
