"""Nonce, associated data, and stateless sealing and opening of one packet (protocol.md 4.3-4.5)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntFlag
from functools import cached_property

from . import memory, wire
from .kdf import traffic_keys
from .suites import SUITES, Key, Level

_FRONT = struct.Struct(">BBBBBBHIQ16sI16sIQ")
VERSION = 1


class Mode(IntFlag):
    """Key modes (3.4)."""

    BASIC = 0
    PD = 1
    MEM = 2


@dataclass(frozen=True)
class End:
    eid: bytes
    qpn: int


@dataclass(frozen=True)
class Direction:
    """The shared state of both ends for one direction."""

    suite: int
    level: int
    tag_len: int
    direction: int  # 0: packets of the client, 1: of the server
    sender: End
    receiver: End
    generation: bytes
    secret: bytes
    mode: int = Mode.BASIC
    epoch: int = 0

    @cached_property
    def keys(self) -> tuple[bytes, bytes]:
        """Returns (key, iv); two empty strings at level none."""
        if self.level == Level.NONE:
            return b"", b""
        form = (SUITES[self.suite], self.level, self.tag_len)
        return traffic_keys(self.secret, self.generation, self.direction, self.epoch, form)


def nonce(d: Direction, iv: bytes, pn: int) -> bytes:
    number = (d.direction << 63 | pn).to_bytes(12, "big")
    return bytes(a ^ b for a, b in zip(iv, number, strict=True)) if iv else b""


def associated_data(d: Direction, pn: int, p: wire.Packet) -> bytes:
    """`p` must have its 64-bit request id. Its tag does not matter."""
    parts = wire.layout(replace(p, tag=bytes(d.tag_len)))
    return _before_sth(d, pn, p, parts) + parts.sth + parts.body + parts.pad


def proof_data(d: Direction, pn: int, p: wire.Packet) -> bytes:
    """Data that a memory proof covers: the generation, and a part of the associated data (6.1)."""
    parts = wire.layout(replace(p, tag=bytes(d.tag_len)))
    return d.generation + _before_sth(d, pn, p, parts) + parts.sth[: wire.PROOF_AT]


def _before_sth(d: Direction, pn: int, p: wire.Packet, parts: wire.Layout) -> bytes:
    front = _FRONT.pack(
        VERSION,
        d.suite,
        d.level,
        d.mode,
        d.tag_len,
        d.direction,
        len(p.payload),
        d.epoch,
        pn,
        d.sender.eid,
        d.sender.qpn,
        d.receiver.eid,
        d.receiver.qpn,
        p.request_id,
    )
    return front + parts.bth[:4] + b"\0" + parts.bth[5:] + parts.extension


def seal(d: Direction, pn: int, p: wire.Packet, access_key: bytes | None = None) -> bytes:
    """Computes the proof if a K_access is given, and otherwise keeps the proof of `p`."""
    p = complete(d, pn, p, access_key)
    if d.level == Level.NONE:
        return wire.build(replace(p, tag=b""))
    key, iv = d.keys
    keyed = Key(SUITES[d.suite], Level(d.level), key, d.tag_len)
    payload, tag = keyed.seal(nonce(d, iv, pn), associated_data(d, pn, p), p.payload)
    return wire.build(replace(p, payload=payload, tag=tag))


def complete(d: Direction, pn: int, p: wire.Packet, access_key: bytes | None = None) -> wire.Packet:
    """Returns `p` with all that the sender's numbers and keys add, except the tag."""
    p = replace(p, qpn=d.receiver.qpn, psn=pn & wire.LOW24, epoch=d.epoch & 3)
    if access_key is None:
        return p
    return replace(p, proof=memory.proof(access_key, proof_data(d, pn, p)))


def unseal(d: Direction, pn: int, p: wire.Packet) -> wire.Packet | None:
    """Returns `p` as parsed, with its 64-bit request id, or None if its tag does not verify."""
    if d.level == Level.NONE:
        return p
    key, iv = d.keys
    keyed = Key(SUITES[d.suite], Level(d.level), key, d.tag_len)
    plain = keyed.open(nonce(d, iv, pn), associated_data(d, pn, p), p.payload, p.tag)
    return None if plain is None else replace(p, payload=plain)
