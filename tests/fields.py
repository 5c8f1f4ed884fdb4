"""The reference's dataclasses as the dictionaries that tests.native.bindings takes and gives."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from tests.reference.session import Params
from tests.reference.wire import Packet


def of_params(params: Params) -> Any:
    return asdict(params)


def of_packet(packet: Packet) -> Any:
    """Everything but payload and tag."""
    found = {f.name: getattr(packet, f.name) for f in fields(packet)}
    del found["payload"], found["tag"]
    found["ack"] = asdict(packet.ack) if packet.ack else None
    return found


def of_parsed(packet: Packet) -> Any:
    """What bindings.parse() finds."""
    return of_packet(packet) | {"payload": packet.payload, "tag": packet.tag}


def of_opened(pn: int, packet: Packet) -> Any:
    """What bindings.Session.open() finds."""
    return of_packet(packet) | {"payload": packet.payload, "pn": pn}
