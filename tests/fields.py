"""Converts the reference's dataclasses to the dictionaries of tests.native.bindings."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from tests.reference.session import Params
from tests.reference.wire import Packet


def of_params(params: Params) -> Any:
    return asdict(params)


def of_packet(packet: Packet) -> Any:
    """All fields except payload and tag."""
    found = {f.name: getattr(packet, f.name) for f in fields(packet)}
    del found["payload"], found["tag"]
    found["ack"] = asdict(packet.ack) if packet.ack else None
    return found


def of_parsed(packet: Packet) -> Any:
    """The result that bindings.parse() must give."""
    return of_packet(packet) | {"payload": packet.payload, "tag": packet.tag}


def of_opened(pn: int, packet: Packet) -> Any:
    """The result that bindings.Session.open() must give."""
    return of_packet(packet) | {"payload": packet.payload, "pn": pn}
