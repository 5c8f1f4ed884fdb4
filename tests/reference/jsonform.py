"""Dataclasses of the reference as JSON: bytes in hex, fields at their default left out."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from .ack import AckBody
from .session import Params
from .wire import Packet


def to_json(value: Any) -> dict[str, Any]:
    found = {f.name: getattr(value, f.name) for f in fields(value) if f.name != "payload"}
    defaults = {f.name: f.default for f in fields(value)}
    return {name: _plain(v) for name, v in found.items() if v != defaults[name]}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, AckBody):
        return to_json(value)
    if isinstance(value, tuple):
        return [list(gap) for gap in value]
    return int(value)


def packet_from_json(data: dict[str, Any], payload: str) -> Packet:
    data = dict(data)
    if "proof" in data:
        data["proof"] = bytes.fromhex(data["proof"])
    if "ack" in data:
        gaps = tuple(tuple(gap) for gap in data["ack"].get("gaps", ()))
        data["ack"] = AckBody(**{**data["ack"], "gaps": gaps})
    return Packet(**data, payload=bytes.fromhex(payload))


def params_from_json(data: dict[str, Any]) -> Params:
    found: dict[str, Any] = dict(data)
    found |= {k: bytes.fromhex(v) for k, v in data.items() if isinstance(v, str)}
    return Params(**found)
