"""The worked examples beside those of protocol.md 14: the contents of
tests/vectors/worked-examples.json, and the listings of docs/worked-examples.md by name."""

from __future__ import annotations

from typing import Any

from . import worked_datagrams, worked_exchange, worked_packets


def first_packet(connections: list[dict[str, Any]]) -> bytes:
    """OPEN, the first packet of the connection over UDP."""
    return bytes.fromhex(connections[0]["steps"][0]["datagram"])


def contents() -> dict[str, Any]:
    connections = worked_packets.contents()
    return {
        "exchange": worked_exchange.contents(),
        "datagrams": worked_datagrams.contents(first_packet(connections)),
        "connections": connections,
    }


def blocks(found: dict[str, Any]) -> dict[str, str]:
    """Name to listing."""
    connections = found["connections"]
    listings = worked_exchange.blocks()
    listings |= worked_datagrams.blocks(first_packet(connections))
    listings |= worked_packets.blocks(connections)
    return {name: "\n".join(lines).strip("\n") + "\n" for name, lines in listings.items()}


def header(found: dict[str, Any]) -> str:
    """The contents of tests/c/wire/icrc_examples.h."""
    return worked_datagrams.header(first_packet(found["connections"]))
