"""The configuration of a proxy (control-link.md 1.1)."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srdma.agent.accounts import MODE, uid_of
from srdma.agent.remote.entries import address_of, exact_identity
from srdma.agent.settings import stamps
from srdma.errors import LocalError
from srdma.identity import Credentials, IdentityError

KEYS = {"socket", "mode", "nic", "control", "peer", "identity"}
IDENTITY_KEYS = {"name", "users"}


class ProxyFile:
    """The file, as it was read last. Raises LocalError.

    nic: address of the NIC's agent; peer: its identity; control: credentials of this end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.load()

    def load(self) -> None:
        """Read the file and the credentials that it names. On an error nothing changes."""
        try:
            fields = tomllib.loads(self.path.read_text())
            _check_keys("the file", fields, KEYS)
            socket = Path(_text(fields, "socket"))
            mode = fields.get("mode", MODE)
            if type(mode) is not int or not 0 <= mode <= 0o777:
                raise ValueError("mode must be 0 to 0o777")
            nic = address_of("nic", fields.get("nic"))
            files = self.path.parent / _text(fields, "control")
            control = Credentials.named(files)
            peer = exact_identity("peer", fields.get("peer"))
            users = dict(_granted(entry) for entry in _entries(fields))
        except OSError as error:
            raise LocalError(f"cannot read {self.path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise LocalError(f"{self.path} is not TOML: {error}") from None
        except (IdentityError, ValueError) as error:
            raise LocalError(f"{self.path}: {error}") from None
        self.socket, self.mode, self.nic = socket, mode, nic
        self.control, self.peer = control, peer
        self._files, self._users = files, users

    def permits(self, name: object, uid: int) -> bool:
        """True if programs of this user may use the identity."""
        return isinstance(name, str) and uid in self._users.get(name, ())

    def stamp(self) -> tuple[int, ...]:
        """A value that changes when the file, or a file of the control identity, is replaced."""
        return stamps([self.path, *Credentials.files(self._files)])

    def summary(self) -> dict[str, str]:
        """The identities, each with its users, for people."""
        found = {"socket": str(self.socket), "nic": f"{self.nic[0]}:{self.nic[1]}: {self.peer}"}
        for name, users in self._users.items():
            found[name] = "for users " + ", ".join(map(str, sorted(users)))
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


def _check_keys(where: str, fields: Mapping[str, Any], keys: set[str]) -> None:
    if unknown := sorted(set(fields) - keys):
        raise ValueError(
            f"{where} has the unknown key {unknown[0]!r}: known are {', '.join(sorted(keys))}"
        )


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is missing, or is not a text")
    return value
