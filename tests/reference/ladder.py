"""The first connection (protocol.md 16) with its bytes, printed into the page by
`python -m tests.reference.ladder`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2

from . import protect, wire
from .ack import AckBody, Kind
from .session import Params
from .suites import Level
from .wire import Flag, Op, Packet

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
BEGIN, END = "<!-- ladder:begin -->\n", "<!-- ladder:end -->"
WIDTH = 96  # hexadecimal digits of a line

CLIENT_PN, SERVER_PN = 0xC0FFEE, 0x800000
CLIENT_QPN, SERVER_QPN = 0xC11E47, 0x5E12E2
CLIENT_EID, SERVER_EID = bytes(range(0x10, 0x20)), bytes(range(0x20, 0x30))
CERTIFICATES = (bytes(range(0xC0, 0xE0)), bytes(range(0xD0, 0xF0)))  # SHA-256 of them
SUITE = [1, 3, 16]  # aes-128-gcm, aead, a tag of 16 bytes
CLIENT_RECVS, RECVS, CREDIT = 4, 16, 1024
WRITE = Packet(
    Op.WRITE_ONLY,
    va=0x7F0011223340,
    rkey=0x8BADF00D,
    dma_len=6,
    payload=b"srdma!",
    flags=Flag.ACK_NOW,
)


def _end(eid: bytes, qpn: int, pn: int, wire_address: str) -> dict[str, Any]:
    limits = {"mtu": 4096, "window": 512, "reads": 16}
    return {"eid": eid, "qpn": qpn, "pn": pn, "wire": wire_address} | limits


def _message(fields: dict[str, Any]) -> bytes:
    return cbor2.dumps(fields, canonical=True)


STREAM_LEN = 4  # bytes of the number of a stream (8.7)
HELLO = _message({"agent": 0})
CLIENT_END = _end(CLIENT_EID, CLIENT_QPN, CLIENT_PN, "nic-a")
SERVER_END = _end(SERVER_EID, SERVER_QPN, SERVER_PN, "nic-b")
BOTH = {"v": 1, "group": "", "data": b""}
OFFER = _message(
    BOTH
    | {"qps": 1, "suites": [SUITE], "modes": [0], "random": bytes([0xA5] * 32)}
    | {"ends": [CLIENT_END]}
)
CHOICE = _message(
    BOTH | {"suite": SUITE, "mode": 0, "random": bytes([0x5A] * 32), "ends": [SERVER_END]}
)


def transcript() -> bytes:
    digest = hashlib.sha256(b"srdma-1 transcript\0")
    for message in (OFFER, CHOICE):
        digest.update(len(message).to_bytes(4, "big") + message)
    for certificate in CERTIFICATES:
        digest.update(certificate)
    return digest.digest()


def client() -> Params:
    return Params(
        role=0,
        suite=1,
        level=Level.AEAD,
        tag_len=16,
        generation=hashlib.sha256(transcript() + bytes(4)).digest()[:8],
        local_eid=CLIENT_EID,
        peer_eid=SERVER_EID,
        local_qpn=CLIENT_QPN,
        peer_qpn=SERVER_QPN,
        tx_pn=CLIENT_PN,
        rx_pn=SERVER_PN,
        tx_secret=bytes(range(0x40, 0x50)),
        rx_secret=bytes(range(0x60, 0x70)),
    )


def _ack(kind: Kind, position: int, highest: int, recvs: int) -> Packet:
    body = AckBody(
        kind,
        request_id=position,
        highest_pn=highest,
        recv_credit=recvs,
        request_credit=position + CREDIT,
    )
    flags = Flag.ACK_NOW if kind in (Kind.OPEN, Kind.PING) else 0
    return Packet(Op.ACKNOWLEDGE, request_id=position, flags=flags, ack=body)


# Name, sender (0: the client), packet, and why it is sent.
PACKETS = (
    (
        "OPEN",
        0,
        _ack(Kind.OPEN, 0, SERVER_PN - 1, CLIENT_RECVS),
        "asks for an ack: the client is in RTR",
    ),
    ("ACK", 1, _ack(Kind.ACK, 0, CLIENT_PN, RECVS), "the server is in RTS; now the client is too"),
    ("WRITE_ONLY", 0, WRITE, "request 0, measured by flag A"),
    ("ACK", 1, _ack(Kind.ACK, 1, CLIENT_PN + 1, RECVS), "position (1, 0): request 0 is executed"),
    (
        "PING",
        0,
        _ack(Kind.PING, 0, SERVER_PN + 1, CLIENT_RECVS),
        "receives are posted, and nothing was verified for 5 s",
    ),
    ("ACK", 1, _ack(Kind.ACK, 1, CLIENT_PN + 2, RECVS), "a sign of life"),
)


def text() -> str:
    return "\n".join(["```", *_lines(), "```"]) + "\n"


def _lines() -> Iterator[str]:
    digest = transcript()
    yield "client                                                        server"
    yield "  |  TCP, TLS 1.3 with both certificates, ALPN srdma/2          |"
    for sender in (0, 1):
        yield from _message_text(sender, "HELLO", HELLO, stream=0)
    yield from _message_text(0, "OFFER", OFFER)
    yield from _message_text(1, "CHOICE", CHOICE)
    yield f"     H           {digest.hex()}"
    yield f"     generation  {client().generation.hex()}"
    yield from _message_text(0, "CONFIRM", _message({"hash": digest}))
    yield "                                                 KEYS: armed, RTR"
    yield from _message_text(1, "CONFIRM", _message({"hash": digest}))
    yield "  KEYS: RTR"
    yield from _keys()
    ways = client().directions()
    numbers = [CLIENT_PN, SERVER_PN]
    for name, sender, packet, why in PACKETS:
        yield from _sealed(ways[sender], numbers[sender], packet, (name, why))
        numbers[sender] += 1
        if name == "ACK" and numbers[1] == SERVER_PN + 1:
            yield from _message_text(0, "READY", _message({"ready": True}))
            yield from _message_text(1, "READY", _message({"ready": True}))


def _arrow(sender: int, name: str) -> str:
    return (
        f"  |-- {name} " + "-" * (56 - len(name)) + ">|"
        if sender == 0
        else ("  |<" + "-" * (56 - len(name)) + f" {name} --|")
    )


def _message_text(sender: int, name: str, message: bytes, stream: int = 1) -> Iterator[str]:
    yield ""
    yield _arrow(sender, f"{name}, in TLS")
    yield f"     length      {STREAM_LEN + len(message):08x}"
    yield f"     stream      {stream:08x}"
    for at in range(0, len(message), WIDTH // 2):
        yield f"     {'message' if not at else '':<11} {message[at : at + WIDTH // 2].hex()}"


def _keys() -> Iterator[str]:
    for name, way in zip(("client", "server"), client().directions(), strict=True):
        key, iv = way.keys
        yield f"     {name} ->   S {way.secret.hex()}  key {key.hex()}  iv {iv.hex()}"


def _sealed(
    way: protect.Direction, pn: int, packet: Packet, said: tuple[str, str]
) -> Iterator[str]:
    out = protect.seal(way, pn, packet)
    full = replace(packet, qpn=way.receiver.qpn, psn=pn & wire.LOW24)
    yield ""
    yield _arrow(way.direction, f"{said[0]}, pn {pn:#x}")
    yield f"     {said[1]}"
    for name, value in _pieces(packet, out):
        yield f"     {name:<11} {value.hex()}"
    yield f"     {'nonce':<11} {protect.nonce(way, way.keys[1], pn).hex()}"
    ad = protect.associated_data(way, pn, full).hex()
    for at in range(0, len(ad), WIDTH):
        yield f"     {'AD' if not at else '':<11} {ad[at : at + WIDTH]}"


def _pieces(packet: Packet, out: bytes) -> Iterator[tuple[str, bytes]]:
    sizes = [("BTH", wire.BTH_LEN)]
    sizes += [(name, wire.SIZES[name]) for name in packet.row.headers]
    sizes += [("STH", wire.STH_LEN), ("tag", 16)]
    sizes += [("ack body", 28)] if packet.ack else [("ciphertext", len(packet.payload)), ("pad", 2)]
    at = 0
    for name, size in sizes:
        yield name, out[at : at + size]
        at += size
    assert at == len(out)


def in_page(page: str) -> tuple[str, str, str]:
    """(before, listing, after) of the page."""
    before, rest = page.split(BEGIN)
    listing, after = rest.split(END)
    return before + BEGIN, listing, END + after


def main() -> None:
    before, _, after = in_page(PAGE.read_text())
    PAGE.write_text(before + text() + after)


if __name__ == "__main__":
    main()
