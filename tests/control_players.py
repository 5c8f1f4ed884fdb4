"""A peer of the control link that sends any frames (control-link.md 2)."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import cbor2

from srdma.agent.remote.link import PROTOCOLS, Type
from srdma.identity import Credentials
from srdma.keyex.tls import STREAM_LEN
from tests.tls_players import BlockingTLS

HELLO = {"name": "peer", "time": 5}

Frame = tuple[int, int, bytes | dict[str, Any]]


class RawPeer(BlockingTLS):
    """TLS of a control link with blocking calls. Messages carry their stream numbers."""

    def __init__(self, sock: socket.socket, role: str, credentials: Credentials) -> None:
        super().__init__(sock, role, credentials)
        self.raw = True

    def protocols(self) -> Mapping[bytes, int]:
        return PROTOCOLS

    def frame(self, number: int, kind: int, body: bytes | dict[str, Any] = b"") -> None:
        """Send a frame."""
        if isinstance(body, dict):
            body = cbor2.dumps(body, canonical=True)
        self.send_on(number, bytes((kind,)) + body)

    def take(self) -> tuple[int, int, bytes]:
        """The next frame but HEARTBEAT: stream, type, body."""
        while True:
            frame = self.message()
            number = int.from_bytes(frame[:STREAM_LEN], "big")
            if frame[STREAM_LEN] != Type.HEARTBEAT:
                return number, frame[STREAM_LEN], frame[STREAM_LEN + 1 :]


def illegal_frames(opening: dict[str, Any]) -> list[tuple[list[Frame], str]]:
    """Frames of a proxy that end the link, and a part of the reason. opening: an OPEN that the
    agent accepts."""
    return [
        ([(0, Type.HEARTBEAT, b"")], "the first frame must be HELLO"),
        ([(1, Type.HELLO, HELLO)], "the first frame must be HELLO"),
        ([(0, Type.HELLO, b"x")], "CBOR"),
        ([(0, Type.HELLO, {"name": "x"})], "HELLO lacks 'time'"),
        ([(0, Type.HELLO, {"time": 1})], "HELLO lacks 'name'"),
        ([(0, Type.HELLO, {"name": "x" * 65, "time": 1})], "name is"),
        ([(0, Type.HELLO, {"name": "x", "time": -1})], "time is"),
        ([(0, Type.HELLO, HELLO), (0, Type.HELLO, {"time": 1})], "HELLO lacks 'name'"),
        ([(0, Type.HELLO, HELLO), (0, Type.HEARTBEAT, b"x")], "type 1 is not legal"),
        ([(0, Type.HELLO, HELLO), (2, Type.OPEN, opening)], "type 2 is not legal"),
        ([(0, Type.HELLO, HELLO), (0, Type.OPEN, opening)], "type 2 is not legal"),
        ([(0, Type.HELLO, HELLO), (1, Type.OPEN, b"\xa0\xa0")], "CBOR"),
        ([(0, Type.HELLO, HELLO), (1, Type.DATA, b"x")], "type 4 is not legal"),
        (
            [(0, Type.HELLO, HELLO), (1, Type.OPEN, opening), (1, Type.OPEN, opening)],
            "type 2 is not",
        ),
        ([(0, Type.HELLO, HELLO), (1, Type.OPEN, opening), (1, Type.OPENED, b"")], "type 3 is not"),
        ([(0, Type.HELLO, HELLO), (1, Type.OPEN, opening), (1, Type.DATA, b"")], "type 4 is not"),
        ([(0, Type.HELLO, HELLO), (1, Type.OPEN, opening), (1, Type.END, b"x")], "CBOR"),
        ([(0, Type.HELLO, HELLO), (1, Type.OPEN, opening), (1, Type.END, {"code": 1})], "no code"),
        ([(0, Type.HELLO, HELLO), (0, 7, b"")], "type 7 is not legal"),
    ]
