"""Key logs of agents (keyex/keylog.py) as a reader of captures uses them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from srdma.errors import LocalError
from srdma.keyex.keylog import Secret, Session
from srdma.keyex.offers import LEVELS, MODES, Suite
from srdma.keyex.policy import secret_size

LINE_MAX = 8192
SESSIONS_MAX = 1 << 20
EID_LEN = 16
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass
class Way:
    """One direction of a session: its numbers, and S of the first epoch and of renewals."""

    session: Session
    sender: tuple[bytes, int]
    receiver: tuple[bytes, int]
    direction: int
    pn: int
    secrets: list[bytes] = field(default_factory=list, repr=False)


@dataclass(eq=False)
class Known:
    """A session of the log. identities: of client and server, "" if unknown; ways: by direction."""

    session: Session
    identities: list[str]
    ways: tuple[Way, Way]


class KeyLog:
    """The sessions of one or several logs, which may grow."""

    def __init__(self, paths: list[Path]) -> None:
        """Raises LocalError."""
        self.warnings: list[str] = []
        self._known: dict[tuple[bytes, frozenset[tuple[bytes, int]]], Known] = {}
        self._by_qpn: dict[int, list[Way]] = {}
        self._logs = [_Log(path) for path in paths]
        for log in self._logs:
            if log.mode & _OTHERS:
                self.warnings.append(
                    f"{log.path} can be read or written by others than its owner, who can then read"
                    f" and forge all packets: chmod 600 {log.path}"
                )
        self.refresh()

    def __len__(self) -> int:
        return len(self._known)

    def refresh(self) -> bool:
        """Read what was appended. True if there was something. Raises LocalError."""
        more = False
        for log in self._logs:
            for record in log.more():
                more = True
                self._add(log, record)
        return more

    def ways(self, qpn: int) -> list[Way]:
        """The directions whose receiver has this QPN."""
        return self._by_qpn.get(qpn, [])

    def known(self, way: Way) -> Known:
        return self._known[_key(way.session)]

    def close(self) -> None:
        for log in self._logs:
            log.close()

    def _add(self, log: _Log, record: Session | Secret) -> None:
        if isinstance(record, Session):
            self._add_session(record)
            log.local[record.qpn, record.generation] = record
            return
        session = log.local.get((record.qpn, record.generation))
        if session is None:
            return  # its session is in a log of another agent's life
        own = session.role if record.direction == "tx" else 1 - session.role
        way = self._known[_key(session)].ways[own]
        told = log.told.setdefault(id(way), [])
        told.append(record.value)
        if len(told) > len(way.secrets):
            way.secrets.append(record.value)

    def _add_session(self, s: Session) -> None:
        found = self._known.get(_key(s))
        names = (s.identity, s.peer_identity)[:: -1 if s.role else 1]
        if found is not None:
            found.identities = [a or b for a, b in zip(found.identities, names, strict=True)]
            return
        if len(self._known) == SESSIONS_MAX:
            raise LocalError(f"the key logs have more than {SESSIONS_MAX} sessions: split them")
        here, there = (s.eid, s.qpn), (s.peer_eid, s.peer_qpn)
        ends = (here, there)[:: -1 if s.role else 1]
        numbers = (s.pn, s.peer_pn)[:: -1 if s.role else 1]
        ways = tuple(Way(s, ends[d], ends[1 - d], d, numbers[d]) for d in (0, 1))
        self._known[_key(s)] = Known(s, list(names), (ways[0], ways[1]))
        for way in ways:
            self._by_qpn.setdefault(way.receiver[1], []).append(way)


def _key(s: Session) -> tuple[bytes, frozenset[tuple[bytes, int]]]:
    return s.generation, frozenset(((s.eid, s.qpn), (s.peer_eid, s.peer_qpn)))


def _checked(s: Session) -> Session:
    """Raises ValueError or LookupError for values that the protocol does not have."""
    known = s.level in LEVELS.values() and s.mode in MODES.values() and s.role in (0, 1)
    secret_size(Suite(s.suite, s.level, s.tag_len))
    if not known or {len(s.eid), len(s.peer_eid)} != {EID_LEN}:
        raise ValueError("a value is out of range")
    return s


class _Log:
    """One file. local: its sessions by QPN and generation; told: secrets so far, by direction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = open(path, "rb", opener=lambda p, f: os.open(p, f | os.O_NONBLOCK))  # noqa: SIM115
        except OSError as error:
            raise LocalError(f"cannot read the key log {path}: {error.strerror}") from None
        self.mode = os.fstat(self._file.fileno()).st_mode
        if not stat.S_ISREG(self.mode):
            self.close()
            raise LocalError(f"the key log {path} is not a regular file")
        self.local: dict[tuple[int, bytes], Session] = {}
        self.told: dict[int, list[bytes]] = {}
        self._number = 0
        self._part = b""

    def more(self) -> Iterator[Session | Secret]:
        while line := self._file.readline(LINE_MAX):
            line = self._part + line
            self._part = b""
            if not line.endswith(b"\n"):
                if len(line) >= LINE_MAX:
                    raise LocalError(f"{self.path}:{self._number + 1}: the line is too long")
                self._part = line
                return
            self._number += 1
            record = self._parse(line)
            if record is not None:
                yield record

    def _parse(self, line: bytes) -> Session | Secret | None:
        words = line.decode("ascii", "replace").split()
        try:
            if words[:1] == ["SRDMA_SESSION"]:
                return _checked(Session.of_fields(words[1:]))
            if words[:1] == ["SRDMA_SECRET"]:
                return Secret.of_fields(words[1:])
        except (ValueError, LookupError):
            raise LocalError(
                f"{self.path}:{self._number}: not a line of a key log of srdma: give the file of "
                "srdma agent --key-log"
            ) from None
        return None

    def close(self) -> None:
        self._file.close()
