"""dissect() of each opcode: its fields are the bytes of the reference's packets, in order."""

from __future__ import annotations

import json

import pytest

from srdma.inspect.dissect import dissect
from srdma.native.packet import parse
from tests.reference.make_vectors import VECTORS
from tests.reference.wire import Op

CASE = json.loads((VECTORS / "packets-aes-128-gcm-aead.json").read_text())
TAG_LEN = CASE["client"]["tag_len"]
PACKETS = {
    op: [bytes.fromhex(s["datagram"]) for s in CASE["steps"] if s["fields"]["opcode"] == op]
    for op in Op
}


@pytest.mark.parametrize("op", Op, ids=lambda op: op.name)
def test_fields_cover_every_packet_of_the_opcode(op: Op) -> None:
    assert PACKETS[op]
    for packet in PACKETS[op]:
        fields = dissect(packet, TAG_LEN, encrypted=True)
        assert b"".join(field.data for field in fields) == packet
        by_name = {field.name: field for field in fields}
        assert by_name["opcode"].meaning == op.name
        parsed = parse(packet, TAG_LEN)
        assert by_name["tag"].data == parsed["tag"]
        if parsed["payload"]:
            assert by_name["payload"].data == parsed["payload"]
