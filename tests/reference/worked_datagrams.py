"""Worked examples of RoCEv2 datagrams and their ICRC (protocol.md 11a), for
tests/vectors/worked-examples.json, docs/worked-examples.md and tests/c/wire/icrc_examples.h."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .icrc import Datagram
from .worked_exchange import CLIENT_WIRE, PORT, SERVER_WIRE, hexes

V6_CLIENT, V6_SERVER = "2001:db8::1", "2001:db8::2"
FECN, CONGESTED = 0x80, 0x03


def datagrams(packet: bytes) -> dict[str, Datagram]:
    ipv4 = Datagram((CLIENT_WIRE, PORT), (SERVER_WIRE, PORT), packet)
    marked = packet[:4] + bytes([packet[4] | FECN]) + packet[5:]
    ipv6 = replace(ipv4, source=(V6_CLIENT, PORT), target=(V6_SERVER, PORT), flow=0x12345)
    return {
        "datagram-ipv4": ipv4,
        "datagram-routed": replace(ipv4, packet=marked, tos=CONGESTED, ttl=61),
        "datagram-ipv6": ipv6,
    }


def contents(packet: bytes) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "source": list(d.source),
            "target": list(d.target),
            "packet": d.packet.hex(),
            "tos": d.tos,
            "ttl": d.ttl,
            "flow": d.flow,
            "covered": b"".join(part for _, part in d.covered).hex(),
            "icrc": d.icrc.hex(),
            "datagram": b"".join(part for _, part in d.sent).hex(),
        }
        for name, d in datagrams(packet).items()
    ]


def blocks(packet: bytes) -> dict[str, list[str]]:
    return {name: list(_datagram(d)) for name, d in datagrams(packet).items()}


def _datagram(d: Datagram) -> Iterator[str]:
    yield "input of the CRC"
    for name, part in d.covered:
        yield from hexes(f"  {name}", part)
    yield "datagram"
    for name, part in d.sent:
        yield from hexes(f"  {name}", part)


def address(end: tuple[str, int]) -> str:
    return f"[{end[0]}]:{end[1]}" if ":" in end[0] else f"{end[0]}:{end[1]}"


def header(packet: bytes) -> str:
    """The datagrams as a table in C."""
    rows = [
        "/*",
        " * The datagrams of docs/worked-examples.md. `make examples` writes this file.",
        " */",
        "#ifndef SRDMA_ICRC_EXAMPLES_H",
        "#define SRDMA_ICRC_EXAMPLES_H",
        "",
        "/* clang-format off */",
        "static const struct {",
        "\tconst char *from, *to, *packet, *icrc;",
        "} icrc_examples[] = {",
    ]
    for d in datagrams(packet).values():
        text = d.packet.hex()
        rows.append(f'\t{{ "{address(d.source)}", "{address(d.target)}",')
        rows += [f'\t  "{text[at : at + 64]}"' for at in range(0, len(text), 64)]
        rows[-1] += ","
        rows.append(f'\t  "{d.icrc.hex()}" }},')
    rows += ["};", "/* clang-format on */", "", "#endif", ""]
    return "\n".join(rows)
