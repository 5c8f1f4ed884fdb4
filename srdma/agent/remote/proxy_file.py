"""The configuration of a proxy (control-link.md 1.1)."""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srdma.agent.accounts import MODE, REMOTE_NAME_MAX, Door, User, doors_of, uid_of
from srdma.agent.quota import NONE
from srdma.agent.remote.entries import address_of, exact_identity
from srdma.agent.serving import Place
from srdma.agent.settings import stamps
from srdma.control import thread_path
from srdma.errors import LocalError
from srdma.identity import Credentials, IdentityError
from srdma.native import constants

KEYS = {"socket", "mode", "nic", "control", "peer", "identity", "container"}
FORWARD_KEYS = {"forward", "worker", "processes", "nic", "control", "peer"}
IDENTITY_KEYS = {"name", "users"}


@dataclass(frozen=True)
class Way:
    """A control socket that stands for one of the worker's (control-link.md 7)."""

    socket: Path
    mode: int = 0o600


class ProxyFile:
    """The file, as it was read last. Raises LocalError.

    nic: address of the NIC's agent; peer: its identity; control: credentials of this end.
    socket: where programs connect. forward: True if that is a control socket (control-link.md 7),
    worker then is the path on the NIC of what it stands for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fixed: tuple[object, ...] = ()  # entries that take effect at the start
        self.load()

    def load(self) -> None:
        """Read the file and the credentials that it names. On an error nothing changes."""
        try:
            fields = tomllib.loads(self.path.read_text())
            forward = "forward" in fields
            _check_keys("the file", fields, FORWARD_KEYS if forward else KEYS)
            path = Path(_text(fields, "forward" if forward else "socket"))
            worker = Path(_text(fields, "worker")) if forward else Path()
            processes = _number(fields, "processes", 1, 1, constants.PROCESSES)
            mode = _number(fields, "mode", MODE, 0, 0o777)
            nic = address_of("nic", fields.get("nic"))
            files = self.path.parent / _text(fields, "control")
            control = Credentials.named(files)
            peer = exact_identity("peer", fields.get("peer"))
            users = {} if forward else dict(_granted(entry) for entry in _entries(fields))
            doors = _doors(fields, set(users))
        except OSError as error:
            raise LocalError(f"cannot read {self.path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise LocalError(f"{self.path} is not TOML: {error}") from None
        except (IdentityError, ValueError) as error:
            raise LocalError(f"{self.path}: {error}") from None
        fixed = (forward, path, mode, worker, processes)
        if self._fixed and fixed != self._fixed:
            raise LocalError(
                f"{self.path}: socket, mode, forward, worker and processes take effect at the "
                "start of the proxy: start it again"
            )
        self._fixed = fixed
        self.socket, self.mode, self.nic = path, mode, nic
        self.forward, self.worker, self._processes = forward, worker, processes
        self.control, self.peer = control, peer
        self._files, self._users = files, users
        self.doors = {door.name: door for door in doors}

    @property
    def way(self) -> tuple[object, ...]:
        """A value that changes when a link should lead elsewhere."""
        return self.nic, self.peer

    @property
    def kind(self) -> int:
        """Type of the listening sockets."""
        return socket.SOCK_SEQPACKET if self.forward else socket.SOCK_STREAM

    def places(self) -> list[Place]:
        """The listening sockets."""
        if self.forward:
            return [Way(path) for path in self._paths(self.socket)]
        return [self, *self.doors.values()]

    def worker_paths(self) -> list[Path]:
        """Paths on the NIC, in the order of places()."""
        return self._paths(self.worker)

    def _paths(self, first: Path) -> list[Path]:
        return [thread_path(first, number) for number in range(self._processes)]

    def permits(self, name: object, user: User) -> bool:
        """True if programs of this user, or of the container of this name, may use the identity."""
        if not isinstance(name, str):
            return False
        if isinstance(user, str):
            return user in self.doors and name in self.doors[user].identities
        return user in self._users.get(name, ())

    def stamp(self) -> tuple[int, ...]:
        """A value that changes when the file, or a file of the control identity, is replaced."""
        return stamps([self.path, *Credentials.files(self._files)])

    def summary(self) -> dict[str, str]:
        """The identities, each with its users, for people."""
        found = {"socket": str(self.socket), "nic": f"{self.nic[0]}:{self.nic[1]}: {self.peer}"}
        if self.forward:
            found["worker"] = ", ".join(map(str, self.worker_paths()))
        for name, users in self._users.items():
            found[name] = "for users " + ", ".join(map(str, sorted(users)))
        for door in self.doors.values():
            found[f"[{door.name}]"] = f"{door.socket} for {', '.join(sorted(door.identities))}"
        return found


def _entries(fields: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = fields.get("identity")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("there is no [[identity]]: no program could use this proxy")
    return entries


def _granted(entry: Mapping[str, Any]) -> tuple[str, frozenset[int]]:
    _check_keys("[[identity]]", entry, IDENTITY_KEYS)
    users = entry.get("users", [os.getuid()])
    if not isinstance(users, list) or not users:
        raise ValueError("users of an [[identity]] is no list of users")
    return _text(entry, "name"), frozenset(uid_of(user) for user in users)


def _doors(fields: Mapping[str, Any], identities: set[str]) -> tuple[Door, ...]:
    doors = doors_of(entries := fields.get("container", []), NONE, identities)
    for door, entry in zip(doors, entries, strict=True):
        if len(door.name) > REMOTE_NAME_MAX:
            raise ValueError(f"[[container]] {door.name!r}: at most {REMOTE_NAME_MAX} letters")
        if "quota" in entry:
            raise ValueError(
                f"[[container]] {door.name!r}: its limits are those of [[host]] at the NIC: "
                "give quota there"
            )
    return doors


def _check_keys(where: str, fields: Mapping[str, Any], keys: set[str]) -> None:
    if unknown := sorted(set(fields) - keys):
        raise ValueError(
            f"{where} has the unknown key {unknown[0]!r}: known are {', '.join(sorted(keys))}"
        )


def _number(fields: Mapping[str, Any], key: str, usual: int, least: int, most: int) -> int:
    value = fields.get(key, usual)
    if type(value) is not int or not least <= value <= most:
        shown = "0o777" if most == 0o777 else most
        raise ValueError(f"{key} must be {least} to {shown}")
    return value


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is missing, or is not a text")
    return value
