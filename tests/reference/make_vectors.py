"""Writes tests/vectors/*.json: `python -m tests.reference.make_vectors`.

Each run writes the same files: all random values come from seeds named here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from . import ack, numbers, protect, random_packets, wire, worked
from .epoch_vectors import epoch_vectors
from .example import example
from .host import ATOMIC_LEN, ATOMICS, NAME_MEMORY, Descriptor, DescriptorOp, Record
from .jsonform import to_json
from .kdf import kdf
from .memory_vectors import memory_vectors
from .mode_vectors import pd_vectors, proof_vectors
from .revocation_vectors import revocation_vectors
from .session import Session
from .suites import SUITES, Level
from .wire import Op, Packet

VECTORS = Path(__file__).parents[1] / "vectors"
WRAP = (1 << 24) - 5  # a first packet number whose low 24 bits soon wrap


def form_name(suite: int, level: Level) -> str:
    return f"{SUITES[suite].name}-{level.name.lower()}" if suite else "none"


def conversation(rng: Random) -> Iterator[tuple[int, Packet]]:
    """Yields (sender, packet): every opcode from both ends, ids beyond 24
    bits, pads, gaps, proofs."""
    last_id = [0, 0]
    for turn in range(2 * len(Op)):
        sender, op = turn % 2, list(Op)[turn // 2]
        row = wire.ROWS[op]
        if row.request:
            last_id[sender] += rng.choice((0, 1, 2, 0x700001))
        request_id = last_id[sender if row.request else 1 - sender]
        payload = random_packets.payload_for(rng, op, turn % 7)
        yield sender, random_packets.packet(rng, op, request_id, payload, proof=turn % 4 > 1)
    for kind in ack.Kind:
        position, offset = last_id[1] + 1, rng.getrandbits(32)
        body = random_packets.ack_body(rng, position, offset, kind)
        yield 0, Packet(Op.ACKNOWLEDGE, request_id=position, offset=offset, ack=body)


def packets(suite: int, level: Level) -> dict[str, Any]:
    rng = Random(f"srdma-1 {form_name(suite, level)}")
    client = replace(random_packets.params(rng, suite, level), tx_pn=WRAP)
    ends = Session(client), Session(client.mirrored())
    steps = [_step(ends, sender, packet) for sender, packet in conversation(rng)]
    return {
        "suite": suite,
        "name": SUITES[suite].name if suite else "none",
        "client": to_json(client) | {"suite": suite},
        "keys": [dict(zip(("key", "iv"), _hex(end.tx.keys), strict=True)) for end in ends],
        "steps": steps,
    }


def _hex(parts: tuple[bytes, ...]) -> list[str]:
    return [part.hex() for part in parts]


def _step(ends: tuple[Session, Session], sender: int, packet: Packet) -> dict[str, Any]:
    end = ends[sender]
    pn = end.next_pn
    full = replace(packet, qpn=end.tx.receiver.qpn, psn=pn & wire.LOW24)
    datagram = end.seal(packet)
    opened_pn, opened = ends[1 - sender].open(datagram)
    assert (opened_pn, replace(opened, tag=b"")) == (pn, full), (
        "the reference does not open its own packet"
    )
    protected = end.params.level != Level.NONE
    return {
        "from": sender,
        "pn": pn,
        "fields": to_json(packet),
        "payload": packet.payload.hex(),
        "nonce": protect.nonce(end.tx, end.tx.keys[1], pn).hex(),
        "ad": protect.associated_data(end.tx, pn, full).hex() if protected else "",
        "datagram": datagram.hex(),
    }


def kdf_vectors() -> list[dict[str, Any]]:
    rng = Random("srdma-1 kdf")
    cases = [
        (size, context, n)
        for size in (16, 32)
        for context in (0, 17, 64)
        for n in (1, 16, 28, 44, 255)
    ]
    found = []
    for size, context_len, n in cases:
        parent, context = rng.randbytes(size), rng.randbytes(context_len)
        out = kdf(parent, "traffic", context, n)
        found.append(
            {
                "parent": parent.hex(),
                "label": "traffic",
                "context": context.hex(),
                "n": n,
                "out": out.hex(),
            }
        )
    return found


def number_vectors() -> list[dict[str, Any]]:
    half, top = 1 << 23, 1 << 62
    expected = [
        0,
        1,
        half - 1,
        half,
        half + 1,
        (1 << 24) - 1,
        1 << 24,
        3 << 23,
        (1 << 40) + 5,
        top - half,
        top - 2,
        top - 1,
    ]
    lows = [0, 1, half - 1, half, half + 1, (1 << 24) - 1]
    rng = Random("srdma-1 numbers")
    cases = [(low, e) for e in expected for low in lows]
    cases += [(rng.getrandbits(24), rng.getrandbits(rng.randrange(63))) for _ in range(64)]
    return [{"low": low, "expected": e, "number": numbers.infer(low, e)} for low, e in cases]


def refused_vectors() -> list[dict[str, Any]]:
    """Packets that the parser must refuse, with one fault each (2.5)."""
    write = wire.build(
        Packet(Op.WRITE_ONLY, qpn=5, rkey=7, dma_len=5, payload=b"hello", tag=bytes(16))
    )
    body = ack.AckBody(ack.Kind.ACK, request_id=9, offset=4)
    acked = wire.build(
        Packet(Op.ACKNOWLEDGE, qpn=5, request_id=9, offset=4, ack=body, tag=bytes(16))
    )
    nak = wire.build(
        Packet(Op.ACKNOWLEDGE, qpn=5, ack=ack.AckBody(ack.Kind.NAK, reason=10), tag=bytes(16))
    )
    middle = wire.build(Packet(Op.SEND_MIDDLE, qpn=5, payload=bytes(4), tag=bytes(16)))
    faults = [
        ("short", write, write[:19]),
        ("short", write, write[:51]),
        ("short", acked, acked[:67]),
        ("opcode", write, b"\x15" + write[1:]),
        ("opcode", write, b"\xff" + write[1:]),
        ("header", write, _set(write, 1, 0x80)),
        ("header", write, _set(write, 1, 0x40)),
        ("header", write, _set(write, 1, 0x01)),
        ("header", write, _set(write, 3, 0x01)),
        ("header", write, _set(write, 8, 0x80)),
        ("header", write, _set(write, 8, 0x01)),
        ("opcode", write, _set(write, 31, 0x01)),
        ("opcode", write, _set(write, 31, 0x40)),
        ("opcode", middle, _set(middle, 15, 0x80) + bytes(24)),
        ("header", acked, _set(acked, 12, 0x3F)),
        ("header", acked, _set(acked, 15, 0x01)),
        ("tag_code", write, _set(write, 8, 0x50)),
        ("tag_code", write, _set(write, 8, 0x20)),
        ("length", middle, middle[:-4]),
        ("length", acked, acked + bytes(4)),
        ("pad", write, write[:-1]),
        ("pad", write, _set(write, -1, 0x01)),
        ("pad", write, write + b"\0"),
        ("ack_body", acked, _set(acked, 40, 0x03)),
        ("ack_body", acked, _set(acked, 41, 0x01)),
        ("ack_body", acked, _set(acked, 42, 0x0D)),
        ("ack_body", acked, _set(acked, 43, 0x01)),
        ("ack_body", acked, _set(acked, 47, 0x01)),
        ("ack_body", acked, _set(acked, 51, 0x01)),
        ("ack_body", nak, _set(nak, 64, 0x80)),
        ("ack_body", nak, _set(nak, 67, 0x01)),
    ]
    return [
        {"refusal": name, "tag_len": 16, "legal": legal.hex(), "datagram": bad.hex()}
        for name, legal, bad in faults
    ]


def _set(data: bytes, at: int, flip: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= flip
    return bytes(changed)


def host_vectors() -> dict[str, Any]:
    rng = Random("srdma-1 host")
    descriptors = []
    for op in DescriptorOp:
        d = Descriptor(
            op,
            rng.choice((0, 1, 2, 3)),
            0,
            *(rng.getrandbits(n) for n in (24, 64, 32, 30, 64, 32, 32, 64, 32)),
        )
        d = replace(d, qpn=0) if op == DescriptorOp.CREDIT else d
        d = replace(d, capability=rng.getrandbits(32)) if op in NAME_MEMORY else d
        if op in ATOMICS:
            compare = rng.getrandbits(64) if op == DescriptorOp.COMPARE_SWAP else 0
            d = replace(d, length=ATOMIC_LEN, swap_add=rng.getrandbits(64), compare=compare)
        descriptors.append({"fields": to_json(d), "bytes": d.encode().hex()})
    records = []
    for opcode in (0, 1, 2, 3, 4, 128, 129, 255):
        r = Record(
            rng.getrandbits(64),
            rng.getrandbits(24),
            opcode,
            rng.getrandbits(4),
            rng.getrandbits(1),
            *(rng.getrandbits(n) for n in (5, 30, 32, 32)),
        )
        records.append({"fields": to_json(r), "bytes": r.encode().hex()})
    return {"descriptors": descriptors, "records": records}


def all_vectors() -> dict[str, Any]:
    """Maps file names to contents."""
    of_forms = {
        f"packets-{form_name(*form)}.json": packets(*form) for form in random_packets.forms()
    }
    return of_forms | {
        "kdf.json": kdf_vectors(),
        "numbers.json": number_vectors(),
        "refused.json": refused_vectors(),
        "host.json": host_vectors(),
        "memory.json": memory_vectors(),
        "pd.json": pd_vectors(),
        "epochs.json": epoch_vectors(),
        "proofs.json": proof_vectors(),
        "revocation.json": revocation_vectors(),
        "example.json": example(),
        "worked-examples.json": worked.contents(),
    }


def dump(contents: Any) -> str:
    return json.dumps(contents, indent=1) + "\n"


def main() -> None:
    VECTORS.mkdir(exist_ok=True)
    for name, contents in all_vectors().items():
        (VECTORS / name).write_text(dump(contents))


if __name__ == "__main__":
    main()
