"""Changed inputs of other parties: exchange messages, frames of the control link, policies.

Each is refused by the one exception of its parser, or accepted. `SRDMA_FUZZ` is the number of
changes of each input; `make soak` uses more. Other inputs have tests beside those of their parser
(tests/unit/test_capture_file.py, test_datagram.py) or libFuzzer programs (tests/fuzz).
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import cbor2
import pytest

from srdma.agent.policy import Policy, PolicyError
from srdma.agent.remote.link import Link, Type, Wire
from srdma.errors import LocalError
from srdma.identity import create_ca, issue
from srdma.keyex.fields import ExchangeError
from srdma.keyex.groups import Ask, Members
from srdma.keyex.messages import (
    ClosedMessage,
    Confirm,
    ErrorMessage,
    Handover,
    Hello,
    Ready,
    Rekey,
    Renew,
    Resume,
    Taken,
    Wake,
    decode,
    encode,
)
from srdma.keyex.streams import STREAM_LEN
from tests.exchange_players import offer

CHANGES = int(os.environ.get("SRDMA_FUZZ", "300"))
HASH = bytes(range(32))
MESSAGES = [
    offer(),
    offer(3),
    encode(Confirm(HASH, Handover((bytearray(16), bytearray(16))))),
    encode(Renew(HASH, 2, Handover((bytearray(16),)))),
    encode(Resume(HASH, 3, (0, 7), (HASH, b""))),
    encode(ErrorMessage("code", "text")),
    *map(encode, (Ready(), Rekey(b"records"), Taken(1), Wake(HASH), ClosedMessage(), Hello(7))),
    encode(Hello(7, groups=True)),
    encode(Ask(bytes([255] * 16), bytes(16), bytes(16))),
    encode(Members((1, 2), 3)),
]
# Values that have another type or size than a field.
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 23, 24, 255, 256, 2**31, 2**32, 2**63, 2**64 - 1, -(2**64), 1.5,
    "", "none", "x" * 300, "\0", "\ud7ff", b"", b"x" * 15, b"x" * 16, b"x" * 33, [], [[]], {},
    {"v": 1}, [0] * 300, {1: 2}, cbor2.CBORTag(2, b"\1"), cbor2.undefined,
]  # fmt: skip


def changed(raw: bytes, chance: random.Random) -> bytes:
    """The bytes with a few of them changed, lost, doubled or cut off."""
    data = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[at : at + chance.randint(1, 8)]
            case 2:
                data[at:at] = data[at : at + chance.randint(1, 8)]
            case _:
                data = data[: at + 1]
    return bytes(data)


def replaced(value: Any, chance: random.Random) -> Any:
    """The value with one part of it, at any depth, replaced, removed or added."""
    if isinstance(value, dict | list) and value and chance.random() < 0.8:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, copy = chance.choice(keys), value.copy()
        match chance.randrange(6):
            case 0:
                del copy[key]
            case 1 if isinstance(copy, dict):
                copy[chance.choice(["v", "to", "extra", "error", ""])] = chance.choice(ODD)
            case _:
                copy[key] = replaced(value[key], chance)
        return copy
    return chance.choice(ODD)


def changes_of(raw: bytes, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    for _ in range(CHANGES):
        yield changed(raw, chance)
        yield cbor2.dumps(replaced(cbor2.loads(raw), chance), canonical=True)


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_changed_exchange_message_is_refused_or_complete(number: int) -> None:
    raw = MESSAGES[number]
    assert encode(decode(raw)) == raw
    for other in changes_of(raw, number):
        try:
            message = decode(other)
        except ExchangeError as error:
            assert error.code and str(error)
            continue
        # further fields of HELLO are ignored (protocol.md 8.7)
        assert encode(message) == other or isinstance(message, Hello)


class Streams:
    """The end of a link that takes every stream that a proxy opens."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.link = Link(
            cast(Wire, SimpleNamespace(send=self.sent.append, unsent=0, abort=lambda: None))
        )
        self.link.opened = self._opened
        self.bytes = 0

    def _opened(self, number: int, fields: dict[str, Any]) -> None:
        if not self.link.accept(number, cast(Any, self)):
            return

    def opened(self) -> None:
        raise AssertionError("only a proxy gets OPENED")

    def data(self, body: bytes) -> None:
        self.bytes += len(body)

    def ended(self, reason: ExchangeError | None, *, lost: bool = False) -> None:
        assert reason is None or reason.code


def frame(number: int, kind: Type, body: bytes = b"") -> bytes:
    return number.to_bytes(STREAM_LEN, "big") + bytes([kind]) + body


FRAMES = [
    frame(0, Type.HELLO, cbor2.dumps({"name": "proxy", "time": 1}, canonical=True)),
    frame(1, Type.OPEN, cbor2.dumps({"to": "agent", "uid": 1}, canonical=True)),
    frame(1, Type.DATA, b"bytes"),
    frame(1, Type.END, cbor2.dumps({"code": "busy", "error": "text"}, canonical=True)),
    frame(0, Type.HEARTBEAT),
]


@pytest.mark.parametrize("number", range(len(FRAMES)))
def test_changed_frame_ends_the_link_or_is_taken(number: int) -> None:
    chance = random.Random(number)
    for _ in range(CHANGES):
        end = Streams()
        try:
            for at, message in enumerate(FRAMES):
                end.link._frame(changed(message, chance) if at == number else message)
        except ExchangeError as error:
            assert error.code and str(error)
        assert len(end.link._streams) <= 1


POLICY = """
worker = "/run/w.ctl"
socket = "agent.sock"
mode = 0o600
clock = "plausible"
listen = "10.0.0.1:7000"
[[identity]]
name = "host-a"
path = "a"
peers = ["spiffe://test/*"]
require = "aead"
users = [0]
[quota]
qps = 64
bytes = 1073741824
[[container]]
name = "web"
path = "web.sock"
identities = ["host-a"]
quota = { qps = 64 }
[[peer]]
gid = "10.0.0.2"
agent = "10.0.0.2:4793"
identity = "spiffe://test/b"
"""
VALUES = [
    "1",
    "-1",
    "0.5",
    "nan",
    '""',
    '"a"',
    '"/"',
    "[]",
    "[1]",
    "{}",
    "true",
    "1979-05-27",
    "9" * 30,
]


def changed_policy(chance: random.Random) -> str:
    """A line without its value, with another one, twice or not at all; or changed bytes."""
    lines = POLICY.splitlines()
    at = chance.randrange(len(lines))
    match chance.randrange(4):
        case 0:
            lines[at] = re.sub("=.*", f"= {chance.choice(VALUES)}", lines[at])
        case 1:
            lines.insert(at, chance.choice(lines))
        case 2:
            del lines[at]
        case _:
            return changed(POLICY.encode(), chance).decode(errors="surrogateescape")
    return "\n".join(lines)


def test_changed_policy_is_refused_or_loaded(tmp_path: Path) -> None:
    chance = random.Random(1)
    create_ca(tmp_path, "test")
    issue(tmp_path, "spiffe://test/a", tmp_path / "a")
    file = tmp_path / "agent.toml"
    file.write_text(POLICY)
    Policy(file)
    for _ in range(CHANGES):
        file.write_text(changed_policy(chance), errors="surrogateescape")
        try:
            Policy(file)
        except (PolicyError, LocalError) as error:
            assert str(error)
