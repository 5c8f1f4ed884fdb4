"""The key log (agent.md 7): secrets of a process, for tests and for reading captures.

Its lines are those of SSLKEYLOGFILE for TLS, and for each QP what `Session` and `Secret` have.
Secrets are named by the local QP, the generation and a direction. In key mode `pd` the agent knows
S of `tx` only, in a trust group none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

_fd = -1  # of the file; -1: no log
_SAFE = ":/@!$&'()*+,;=~-._"  # characters of an identity that are written as they are


class Session(NamedTuple):
    """`SRDMA_SESSION`, then the fields in this order: the public values of a QP and of its peer's
    (protocol.md 4.4). role: 0 client, 1 server; tag_len: bytes."""

    qpn: int
    generation: bytes
    role: int
    suite: int
    level: int
    tag_len: int
    mode: int
    eid: bytes
    pn: int
    peer_qpn: int
    peer_eid: bytes
    peer_pn: int
    identity: str
    peer_identity: str

    def line(self) -> str:
        values = [
            f"{self.qpn:06x} {self.generation.hex()} {self.role}",
            f"{self.suite:02x} {self.level} {self.tag_len} {self.mode}",
            f"{self.eid.hex()} {self.pn} {self.peer_qpn:06x} {self.peer_eid.hex()} {self.peer_pn}",
            *(quote(name, safe=_SAFE) or "-" for name in (self.identity, self.peer_identity)),
        ]
        return " ".join(["SRDMA_SESSION", *values])

    @classmethod
    def of_fields(cls, words: list[str]) -> Session:
        """The words after `SRDMA_SESSION`. Raises ValueError."""
        if len(words) != len(cls._fields):
            raise ValueError(f"{len(words)} fields")
        role, suite, level, tag_len, mode = (
            int(words[2]),
            int(words[3], 16),
            *map(int, words[4:7]),
        )
        identity, peer_identity = (unquote(word).strip("-") for word in words[12:])
        return cls(
            int(words[0], 16), bytes.fromhex(words[1]), role, suite, level, tag_len, mode,
            bytes.fromhex(words[7]), int(words[8]), int(words[9], 16), bytes.fromhex(words[10]),
            int(words[11]), identity, peer_identity,
        )  # fmt: skip


class Secret(NamedTuple):
    """`SRDMA_SECRET`, then the fields in this order: S of a QP. direction: "tx" or "rx"."""

    qpn: int
    direction: str
    generation: bytes
    value: bytes

    @classmethod
    def of_fields(cls, words: list[str]) -> Secret:
        """The words after `SRDMA_SECRET`. Raises ValueError, whose text has no secret."""
        if len(words) != len(cls._fields) or words[1] not in ("tx", "rx"):
            raise ValueError(f"{len(words)} fields")
        try:
            value = bytes.fromhex(words[3])
        except ValueError:
            raise ValueError("S is not hexadecimal") from None
        return cls(int(words[0], 16), words[1], bytes.fromhex(words[2]), value)


def begin(path: Path) -> None:
    """Append the secrets from now on to a file that only its owner can read. Raises OSError."""
    global _fd
    _fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.fchmod(_fd, 0o600)


def begun() -> bool:
    return _fd >= 0


def tls(line: bytes) -> None:
    """A line in the format of SSLKEYLOGFILE."""
    if _fd >= 0:
        os.write(_fd, line + b"\n")


def session(values: Session) -> None:
    """The public values of a QP, before its secrets."""
    if _fd >= 0:
        os.write(_fd, values.line().encode() + b"\n")


def secret(qpn: int, direction: str, generation: bytes, value: bytes | bytearray) -> None:
    """S of a QP; direction: "tx" or "rx". Without a value the worker derived it itself."""
    if _fd >= 0 and any(value):
        line = f"SRDMA_SECRET {qpn:06x} {direction} {generation.hex()} {value.hex()}\n"
        os.write(_fd, line.encode())
