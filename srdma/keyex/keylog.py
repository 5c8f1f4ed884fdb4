"""The key log (agent.md 7): secrets of a process, for tests and for reading captures.

Its lines are those of SSLKEYLOGFILE for TLS, and for the secrets S of QPs:

    SRDMA_SECRET <QPN, 6 hex digits> <tx or rx> <generation, 16> <S, 32 or 64>

S is named by the local QP and its direction. In key mode `pd` the agent knows S of `tx` only.
"""

from __future__ import annotations

import os
from pathlib import Path

_fd = -1  # of the file; -1: no log


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


def secret(qpn: int, direction: str, generation: bytes, value: bytes | bytearray) -> None:
    """S of a QP; direction: "tx" or "rx". Without a value the worker derived it itself."""
    if _fd >= 0 and any(value):
        line = f"SRDMA_SECRET {qpn:06x} {direction} {generation.hex()} {value.hex()}\n"
        os.write(_fd, line.encode())
