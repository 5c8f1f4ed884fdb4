"""Judging the packets of a wire (srdma/inspect/proof.py, verifier.py)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srdma.errors import LocalError
from srdma.inspect import proof as proof_module
from srdma.inspect.capture_file import Captured
from srdma.inspect.keys import KeyLog
from srdma.inspect.proof import Proof
from srdma.inspect.verifier import Tag
from tests import captures
from tests.key_lines import both, lines
from tests.reference import wire
from tests.reference.ack import AckBody, Kind
from tests.reference.jsonform import params_from_json
from tests.reference.make_vectors import VECTORS
from tests.reference.protect import Mode
from tests.reference.session import Params
from tests.reference.session import Session as Reference

FILES = sorted(p.name for p in VECTORS.glob("packets-*.json") if p.name != "packets-none.json")
GCM = "packets-aes-128-gcm-aead.json"
SEND, ONLY, WRITE, ACK = 0x00, 0x04, 0x0A, 0x11


def load(name: str) -> tuple[Params, list[bytes]]:
    contents = json.loads((VECTORS / name).read_text())
    packets = [bytes.fromhex(step["datagram"]) for step in contents["steps"]]
    return params_from_json(contents["client"]), packets


def proof(folder: Path | None = None, text: str = "", **options: Any) -> Proof:
    if folder is None:
        return Proof(**options)
    path = folder / "keys"
    path.touch(0o600)
    path.write_text(text)
    return Proof(KeyLog([path]), **options)


def fed(it: Proof, frames: Iterable[bytes]) -> Proof:
    for frame in frames:
        it.frame(Captured(1, frame, len(frame)))
    it.finish()
    return it


@pytest.mark.parametrize("name", FILES)
def test_every_suite_and_level_is_verified(name: str, tmp_path: Path) -> None:
    params, packets = load(name)
    header = params.level == 1
    it = fed(proof(tmp_path, both(params)), map(captures.frame, packets))
    assert it.sth == it.tags[Tag.RIGHT] == len(packets) and not it.plain
    assert (it.exposed > 0) == header and bool(it.faults()) == header
    it.allow_header = True
    report = it.report()
    assert report["protected"] and report["tags"]["verified"] == len(packets)
    (session,) = report["sessions"]
    assert session["identities"] == ["spiffe://test/a", "spiffe://test/b"]
    assert session["mode"] == "basic" and session["epochs"] == [[0], [0]]
    for secret in (params.tx_secret, params.rx_secret):
        assert secret.hex() not in json.dumps(report)
    it.close()


def test_packets_without_a_key_log_are_counted_by_qpn() -> None:
    params, packets = load(GCM)
    it = fed(proof(), map(captures.frame, packets))
    report = it.report()
    assert report["protected"] and report["sth"] == len(packets) and report["tags"] is None
    assert {row["qpn"] for row in report["qpns"]} == {
        f"{params.local_qpn:06x}", f"{params.peer_qpn:06x}",
    }  # fmt: skip
    assert all(row["tag_lengths"] == [16] for row in report["qpns"])


def test_nothing_seen_is_a_fault() -> None:
    it = fed(proof(), [captures.frame(b"x" * 40, port=53)])
    assert it.other == 1
    assert it.faults() == ["no packet was seen: check interface, port and capture"]


def flipped(packet: bytes, at: int) -> bytes:
    changed = bytearray(packet)
    changed[at] ^= 1
    return bytes(changed)


def test_a_flipped_bit_is_a_wrong_tag(tmp_path: Path) -> None:
    params, packets = load(GCM)
    packets[20] = flipped(packets[20], 13)  # the request id
    it = fed(proof(tmp_path, both(params)), map(captures.frame, packets))
    assert it.tags == {Tag.RIGHT: len(packets) - 1, Tag.WRONG: 1}
    assert it.faults() == ["1 tags are wrong"]


@pytest.mark.parametrize("at", [0, 1, 2, 5, 8, 9, 12, 16, 21, -1])
def test_a_flipped_bit_is_a_fault_wherever_it_is(tmp_path: Path, at: int) -> None:
    params, packets = load(GCM)
    whole = next(p for p in packets if len(p) > 40)
    packets.insert(3, flipped(whole, at))
    it = fed(proof(tmp_path, both(params)), map(captures.frame, packets))
    assert it.faults()


def test_byte_4_may_change_on_the_way(tmp_path: Path) -> None:
    params, packets = load(GCM)
    it = fed(proof(tmp_path, both(params)), [captures.frame(flipped(p, 4)) for p in packets])
    assert not it.faults()


def test_a_repeated_packet_is_no_fault(tmp_path: Path) -> None:
    params, packets = load(GCM)
    it = fed(proof(tmp_path, both(params)), map(captures.frame, [*packets, packets[-1]]))
    assert it.tags[Tag.REPEATED] == 1 and not it.faults()


def test_a_stripped_sth_is_a_plain_packet(tmp_path: Path) -> None:
    """BTH, RETH and payload of a sealed WRITE, as plain RoCE has them."""
    params, packets = load(GCM)
    sealed = next(p for p in packets if p[0] == WRITE)
    bare = bytearray(sealed[:28] + sealed[28 + 8 + 16 :])
    bare[8] &= 0x8F
    for keys in (proof(), proof(tmp_path, both(params))):
        it = fed(keys, map(captures.frame, [*packets, bytes(bare)]))
        assert it.plain == {"WRITE": 1} and it.sth == len(packets)
        assert it.faults() == ["1 packets without a valid STH"]


def test_a_packet_that_claims_a_tag_must_have_a_valid_sth() -> None:
    _, packets = load(GCM)
    it = fed(proof(), [captures.frame(flipped(packets[0], 1)), captures.frame(packets[0][:19])])
    assert it.plain == {"no valid STH (header)": 1, "no valid STH (short)": 1}


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [(0x06, "WRITE"), (0x0A, "WRITE"), (0x0C, "READ"), (0x10, "READ"), (0x12, "ATOMIC"),
     (0x14, "ATOMIC"), (0x17, "INVALIDATE"), (0x64, "opcode 0x64"), (ACK, "ACK")],
)  # fmt: skip
def test_operations_of_plain_rdma_are_faults(opcode: int, kind: str) -> None:
    _, packets = load(GCM)
    it = fed(proof(), [*map(captures.frame, packets), captures.rc(opcode, b"hello")])
    assert it.plain == {kind: 1} and it.faults() == ["1 packets without a valid STH"]


def test_transport_is_counted_apart() -> None:
    _, packets = load(GCM)
    transport = [
        captures.rc(ACK, b"\x1f\0\0\1"),
        captures.rc(0x64, b"a datagram of the connection manager", qpn=1),
        captures.rc(0x81, bytes(16)),
    ]
    it = fed(proof(), [*map(captures.frame, packets), *transport])
    assert it.transport == {"ACK": 1, "CM": 1, "CNP": 1} and not it.faults()
    assert fed(proof(), transport).faults()  # they alone prove nothing


def as_sends(packet: bytes, psn: int, mtu: int = 32) -> list[bytes]:
    """A packet as the SENDs of a verbs wire."""
    parts = [packet[at : at + mtu] for at in range(0, len(packet), mtu)]
    codes = [ONLY] if len(parts) == 1 else [SEND, *[1] * (len(parts) - 2), 2]
    return [
        captures.rc(c, part, psn + n) for n, (c, part) in enumerate(zip(codes, parts, strict=True))
    ]


def test_packets_of_a_verbs_wire_are_reassembled(tmp_path: Path) -> None:
    params, packets = load(GCM)
    frames: list[bytes] = []
    for packet in packets:
        frames += as_sends(packet, len(frames))
    it = fed(proof(tmp_path, both(params)), frames)
    assert it.tags == {Tag.RIGHT: len(packets)} and not it.faults()
    missing = fed(proof(), [*frames[:5], *frames[6:]])
    assert any("miss frames" in fault for fault in missing.faults())
    plain = fed(proof(), [*frames, captures.rc(ONLY, b"a plain message", len(frames))])
    assert plain.plain.total() == 1 and plain.faults()


def test_a_capture_with_cut_frames_is_a_fault() -> None:
    _, packets = load(GCM)
    whole = captures.frame(packets[0])
    for size in (14, 30, 60, len(whole) - 1):
        it = fed(proof(), map(captures.frame, packets))
        it.frame(Captured(1, whole[:size], len(whole)))
        assert it.faults() == ["1 packets are not whole in the capture: capture whole frames"]


def test_lost_frames_are_a_fault() -> None:
    _, packets = load(GCM)
    it = fed(proof(), map(captures.frame, packets))
    it.lost = 3
    assert it.faults() == ["3 frames were lost by the capture"]


def test_a_datagram_too_short_for_a_bth_is_plain() -> None:
    assert fed(proof(), [captures.ethernet(captures.ip4(captures.udp(b"x")))]).plain == {
        "too short": 1
    }


def test_ports() -> None:
    _, packets = load(GCM)
    it = fed(proof(ports=(5000,)), [captures.frame(packets[0], 5000), captures.frame(b"x" * 40)])
    assert it.sth == 1 and it.other == 1


def test_a_session_without_its_log_is_unverifiable(tmp_path: Path) -> None:
    params, packets = load(GCM)
    it = fed(proof(tmp_path), map(captures.frame, packets))
    assert it.tags == {Tag.UNKNOWN: len(packets)} and it.faults()
    assert it.report()["sessions"] == []
    one = fed(proof(tmp_path, lines(params, tx=[params.tx_secret])), map(captures.frame, packets))
    assert one.tags[Tag.RIGHT] > 0 and one.tags[Tag.UNKNOWN] > 0
    assert one.tags.total() == len(packets)


def test_another_session_with_the_same_qpn_does_not_matter(tmp_path: Path) -> None:
    params, packets = load(GCM)
    other = replace(params, generation=bytes(8), local_eid=bytes(16), tx_secret=bytes(16))
    text = lines(other, tx=[b"x" * 16], rx=[b"y" * 16]) + both(params)
    it = fed(proof(tmp_path, text), map(captures.frame, packets))
    assert it.tags == {Tag.RIGHT: len(packets)}


def test_values_of_a_log_that_do_not_agree_are_an_error(tmp_path: Path) -> None:
    params, packets = load(GCM)
    it = proof(tmp_path, lines(params, tx=[b"x" * 15], rx=[b"y" * 15]))
    with pytest.raises(LocalError, match="do not agree"):
        it.packet(packets[0])


def test_a_link_type_that_is_not_supported_is_an_error() -> None:
    with pytest.raises(LocalError, match="link type 105"):
        proof().frame(Captured(105, b"", 0))


# Epochs, renewals, and captures that begin late ------------------------------------


class Sender:
    """Makes the packets of a client."""

    def __init__(self, mode: int = Mode.BASIC, pn: int = 1 << 23) -> None:
        params, _ = load(GCM)
        self.params = replace(params, mode=mode, tx_pn=pn, rekey_packets=1)
        self.session = Reference(self.params)
        self.id = 0

    def packet(self, payload: bytes = b"data") -> bytes:
        p = wire.Packet(opcode=ONLY, request_id=self.id, payload=payload)
        self.id += 1
        return self.session.seal(p)

    def next_epoch(self, secret: bytes | None = None) -> None:
        if secret is not None:
            self.session.renew(2, secret)
        assert self.session.advance(1, self.session.next_pn - 1) == 1

    def ack(self) -> bytes:
        body = AckBody(kind=Kind.ACK, request_id=self.id, highest_pn=0)
        return self.session.seal(wire.Packet(opcode=ACK, request_id=self.id & 0xFFFFFF, ack=body))


@pytest.mark.parametrize("mode", list(range(4)))
def test_epochs_and_renewals_are_followed(mode: int, tmp_path: Path) -> None:
    sender = Sender(mode)
    secrets = [sender.params.tx_secret, b"1" * 16, b"2" * 16]
    packets = []
    for secret in (None, secrets[1], None, secrets[2], None):
        packets += [sender.packet(), sender.packet()]
        sender.next_epoch(secret)
    it = fed(proof(tmp_path, lines(sender.params, tx=secrets)), map(captures.frame, packets))
    assert it.tags == {Tag.RIGHT: len(packets)}
    assert it.report()["sessions"][0]["epochs"] == [[0, 1, 2, 3, 4], []]


def test_a_renewal_is_read_from_a_log_that_grows(tmp_path: Path) -> None:
    sender = Sender()
    it = proof(tmp_path, "")
    first = sender.packet()
    sender.next_epoch(b"1" * 16)
    (tmp_path / "keys").write_text(lines(sender.params, tx=[sender.params.tx_secret]))
    it.packet(first)
    with open(tmp_path / "keys", "a") as file:
        generation = sender.params.generation.hex()
        file.write(f"SRDMA_SECRET {sender.params.local_qpn:06x} tx {generation} {'31' * 16}\n")
    it.packet(sender.packet())
    assert it.tags == {Tag.RIGHT: 2}


@pytest.mark.parametrize(("epochs", "cycles", "mode"), [(70, 0, 0), (9, 3, 0), (500, 0, 1)])
def test_a_capture_may_begin_late(epochs: int, cycles: int, mode: int, tmp_path: Path) -> None:
    sender = Sender(mode, pn=(1 << 23) + (cycles << 24))
    sender.id = cycles << 24
    for _ in range(epochs):
        sender.packet()
        sender.next_epoch()
    text = lines(replace(sender.params, tx_pn=1 << 23), tx=[sender.params.tx_secret])
    it = fed(proof(tmp_path, text), map(captures.frame, [sender.packet(), sender.packet()]))
    assert it.tags == {Tag.RIGHT: 2}
    assert it.report()["sessions"][0]["epochs"][0] == [epochs]


def test_a_capture_may_begin_after_a_renewal(tmp_path: Path) -> None:
    sender = Sender()
    secrets = [sender.params.tx_secret, b"1" * 16, b"2" * 16]
    for secret in (None, None, secrets[1], None, None):
        sender.packet()
        sender.next_epoch(secret)
    packets = [sender.packet()]
    sender.next_epoch(secrets[2])
    packets += [sender.packet(), sender.ack()]
    it = fed(proof(tmp_path, lines(sender.params, tx=secrets)), map(captures.frame, packets))
    assert it.tags == {Tag.RIGHT: 3}


def test_forged_packets_cost_few_searches(tmp_path: Path) -> None:
    """The place of a capture is sought for two packets of a direction, not for each."""
    sender = Sender()
    forged = flipped(sender.packet(), -1)
    it = proof(tmp_path, lines(sender.params, tx=[sender.params.tx_secret]))
    for _ in range(3):
        it.packet(forged)
    (flow,) = it._flows.values()
    assert flow._searches == 2 and it.tags == {Tag.WRONG: 3}
    it.packet(sender.packet())
    assert it.tags == {Tag.WRONG: 3, Tag.RIGHT: 1}


# Bounds --------------------------------------------------------------------------------


def test_qpns_of_a_stranger_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_module, "QPNS_MAX", 2)
    _, packets = load(GCM)
    it = proof()
    for qpn in range(1, 6):
        it.packet(packets[0][:5] + struct.pack(">I", qpn)[1:] + packets[0][8:])
    rows = it.report()["qpns"]
    assert [(row["qpn"], row["packets"]) for row in rows] == [
        ("others", 3), ("000001", 1), ("000002", 1),
    ]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_frame_is_judged(data: st.DataObject) -> None:
    """Each frame is counted once, and a damaged one never makes the wire look protected."""
    _, packets = load(GCM)
    packet = data.draw(st.sampled_from(packets))
    frame = bytearray(data.draw(st.sampled_from([captures.frame(packet), *as_sends(packet, 5)])))
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=6)):
        frame[at] = data.draw(st.integers(0, 255))
    it = fed(proof(), [bytes(frame)])
    counted = it.judged + it.cut + it.other + it.transport.total() + it.incomplete
    assert counted <= 1 and (counted == 1 or it.faults())
