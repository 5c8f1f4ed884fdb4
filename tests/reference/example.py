"""The worked example (protocol.md 14): made here, stored in tests/vectors/example.json, and
printed into the page by `python -m tests.reference.example`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import example_modes, protect, wire
from .ack import AckBody, Kind
from .jsonform import packet_from_json, params_from_json, to_json
from .kdf import cmac, fixed_data, secret_size, traffic_context
from .session import Params
from .suites import SUITES, Level
from .wire import Flag, Op, Packet

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "protocol.md"
JSON = ROOT / "tests" / "vectors" / "example.json"
BEGIN, END = "<!-- example:begin -->\n", "<!-- example:end -->"

WIDTH = 118  # characters of a line of the listing
FIRST_ID = 1 << 32  # ids with more bits than the packet carries
VALUES = {
    "RETH": {"va": 0x00007F0011223340, "rkey": 0x8BADF00D, "dma_len": 6},
    "Atomic": {"va": 0x00007F0011223340, "rkey": 0x8BADF00D, "swap_add": 1, "compare": 2},
    "AtomicAck": {"original": 2},
    "Imm": {"imm": 0x0A0B0C0D},
    "AETH": {},
}
# The example has one packet of each type under the default suite, and a WRITE_ONLY in these forms.
OTHER_FORMS = ((0x30, Level.PACKET), (0x12, Level.HEADER), (0, Level.NONE))


def example() -> dict[str, Any]:
    main = _connection(0x01, Level.AEAD, [_packet(op, i) for i, op in enumerate(Op)])
    others = [_connection(*form, [_packet(Op.WRITE_ONLY, 0)]) for form in OTHER_FORMS]
    proven = example_modes.connection(_params(0x01, Level.AEAD))
    return {"connections": [main, *others, proven]}


def _params(suite: int, level: Level) -> Params:
    row = SUITES.get(suite)
    size = secret_size(row) if row else 0
    return Params(
        role=0,
        suite=suite,
        level=level,
        tag_len=row.tag_size if row else 0,
        generation=bytes.fromhex("a0a1a2a3a4a5a6a7"),
        local_eid=bytes(range(0x10, 0x20)),
        peer_eid=bytes(range(0x20, 0x30)),
        local_qpn=0x00C11E47,
        peer_qpn=0x005E12E2,
        tx_pn=(1 << 24) - 3,
        rx_pn=1 << 23,
        tx_secret=bytes(range(0x40, 0x40 + size)),
        rx_secret=bytes(range(0x60, 0x60 + size)),
    )


def _packet(op: Op, i: int) -> Packet:
    row = wire.ROWS[op]
    fields: dict[str, Any] = {}
    for name in row.headers:
        fields |= VALUES[name]
    offset = 0 if op.name.endswith(("FIRST", "ONLY", "ONLY_IMM", "ONLY_INV")) else 6
    if not row.payload:
        offset = 0
    if op == Op.ACKNOWLEDGE:
        offset = 6
        fields["ack"] = AckBody(
            Kind.ACK,
            request_id=FIRST_ID + i & 0xFFFFFFFF,
            offset=offset,
            highest_pn=0x01000009,
            recv_credit=7,
            request_credit=0x40,
        )
    return Packet(
        op,
        request_id=FIRST_ID + i,
        offset=offset,
        payload=b"srdma!" if row.payload else b"",
        flags=Flag.ACK_NOW if op in (Op.SEND_LAST, Op.WRITE_LAST) else 0,
        **fields,
    )


def _connection(suite: int, level: Level, packets: list[Packet]) -> dict[str, Any]:
    client = _params(suite, level)
    ways = client.directions()
    next_pn = [client.tx_pn, client.rx_pn]
    entries = []
    for packet in packets:
        sender = 0 if packet.row.request else 1
        entries.append(_entry(ways[sender], next_pn[sender], packet))
        next_pn[sender] += 1
    return {
        "suite": SUITES[suite].name if suite else "none",
        "level": level.name.lower(),
        "client": to_json(client) | {"suite": suite},
        "keys": [_keys(way) for way in ways] if level else [],
        "packets": entries,
    }


def _keys(way: protect.Direction) -> dict[str, str]:
    key, iv = way.keys
    context = traffic_context(
        way.generation, way.direction, way.epoch, (SUITES[way.suite], way.level, way.tag_len)
    )
    k0 = cmac(way.secret, fixed_data("traffic", context, len(key) + len(iv)))
    parts = {"context": context, "k0": k0, "key": key, "iv": iv}
    return {name: part.hex() for name, part in parts.items()}


def _entry(way: protect.Direction, pn: int, packet: Packet) -> dict[str, Any]:
    full = replace(packet, qpn=way.receiver.qpn, psn=pn & wire.LOW24)
    return {
        "name": Op(packet.opcode).name,
        "from": way.direction,
        "pn": pn,
        "fields": to_json(packet),
        "payload": packet.payload.hex(),
        "nonce": protect.nonce(way, way.keys[1], pn).hex(),
        "ad": protect.associated_data(way, pn, full).hex() if way.level else "",
        "datagram": protect.seal(way, pn, packet).hex(),
    }


def text(contents: dict[str, Any]) -> str:
    """The listing of section 14."""
    lines = [line for c in contents["connections"] for line in _any_text(c)]
    return (
        "\n".join(["```", *(part for line in lines[1:] for part in _wrapped(line)), "```"]) + "\n"
    )


def _wrapped(line: str) -> list[str]:
    """Lines of at most WIDTH characters: text breaks between words, bytes anywhere."""
    if len(line) <= WIDTH:
        return [line]
    at = line.rfind(" ") + 1
    if len(line) - at <= WIDTH // 2:
        return textwrap.wrap(line, WIDTH, subsequent_indent=" " * 4, break_on_hyphens=False)
    room = WIDTH - at & ~1
    pieces = [line[i : i + room] for i in range(at, len(line), room)]
    return [line[:at] + pieces[0], *(" " * at + piece for piece in pieces[1:])]


def _any_text(c: dict[str, Any]) -> Iterator[str]:
    return example_modes.text(c) if "memory" in c else _connection_text(c)


def _connection_text(c: dict[str, Any]) -> Iterator[str]:
    p = params_from_json(c["client"])
    yield ""
    suite, level = f"{c['suite']} ({p.suite:#04x})", f"{c['level']} ({p.level})"
    yield f"=== suite {suite}, level {level}, tag {p.tag_len}"
    if p.suite == 0x01:
        yield f"generation {p.generation.hex()}, key mode 0, epoch 0"
        yield f"client     endpoint id {p.local_eid.hex()}, SRC QPN {p.local_qpn:#08x}"
        yield f"server     endpoint id {p.peer_eid.hex()}, SRC QPN {p.peer_qpn:#08x}"
    for i, (way, secret) in enumerate((("client", p.tx_secret), ("server", p.rx_secret))):
        if secret and any(packet["from"] == i for packet in c["packets"]):
            keys = c["keys"][i]
            yield f"{way} ->  S   {secret.hex()}"
            yield f"           context {keys['context']}  K(0) {keys['k0']}"
            yield f"           key {keys['key']}  iv {keys['iv'] or '(none)'}"
    for packet in c["packets"]:
        yield from _packet_text(packet)


def _packet_text(packet: dict[str, Any]) -> Iterator[str]:
    p = packet_from_json(packet["fields"], packet["payload"])
    sender = ("client", "server")[packet["from"]]
    inputs = [f"pn {packet['pn']:#x}", f"request id {p.request_id:#x}", f"offset {p.offset}"]
    inputs += [f"{name} {value:#x}" for name, value in _named(packet["fields"])]
    if packet["payload"]:
        inputs.append(f"payload {packet['payload']}")
    yield ""
    yield f"{packet['name']}, {sender} ->: " + ", ".join(inputs)
    if p.ack:
        yield "  body  " + ", ".join(f"{k} {v:#x}" for k, v in packet["fields"]["ack"].items())
    if packet["nonce"]:
        yield f"  nonce {packet['nonce']}"
    if packet["ad"]:
        yield f"  AD    {packet['ad'][:136]}"
        yield f"        {packet['ad'][136:]}"
    yield f"  out   {packet['datagram']}"


def _named(fields: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in fields.items():
        if isinstance(value, int) and name not in ("opcode", "request_id", "offset"):
            yield name, value


def in_page(page: str) -> tuple[str, str, str]:
    """Returns (before, listing, after) of the page."""
    before, rest = page.split(BEGIN)
    listing, after = rest.split(END)
    return before + BEGIN, listing, END + after


def main() -> None:
    before, _, after = in_page(PAGE.read_text())
    PAGE.write_text(before + text(json.loads(JSON.read_text())) + after)


if __name__ == "__main__":
    main()
