"""The rights of programs at an agent (agent.md 6): the file agent.toml, or a private agent's rule.

The file is the operator's. A program can only narrow what it grants.
"""

from __future__ import annotations

import os
import pwd
import tomllib
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srdma.agent.settings import Current, Identity, malformed, stamps
from srdma.errors import LocalError
from srdma.identity import Credentials, IdentityError
from srdma.keyex.fields import ExchangeError

POLICY = "policy"  # code of an error: the policy does not grant it
MODE = 0o600
KEYS = {"worker", "socket", "mode", "key_log", "identity"}
IDENTITY_KEYS = {"name", "path", "users", "peers"}


class PolicyError(LocalError):
    """A policy file cannot be read, or is not legal."""


class Private:
    """The rule of a private agent: its program may use any identity whose files it can read."""

    def current(self, settings: Mapping[str, Any], uid: int) -> Current:
        return Current(settings)

    def worker_at(self, path: Path) -> Path:
        """Any worker: the program itself is a client of it."""
        return path

    def check_user(self, uid: int) -> None:
        """The program is the one that started this agent."""


@dataclass(frozen=True)
class Grant:
    """An entry [[identity]]. users: uids; peers: patterns of identities, empty for any."""

    name: str
    path: Path
    users: frozenset[int]
    peers: tuple[str, ...]


class Policy:
    """The policy of a system agent. Raises PolicyError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._used: weakref.WeakSet[Identity] = weakref.WeakSet()
        self.load()

    def load(self) -> None:
        """Read the file and the credentials that it names. On an error nothing changes."""
        try:
            fields = _read(self.path)
            grants = {g.name: g for g in _grants(self.path, fields)}
            credentials = {g.name: _credentials(self.path, g) for g in grants.values()}
        except (AttributeError, OSError, TypeError, ValueError) as error:
            raise PolicyError(f"{self.path}: a value is not legal: {error}") from None
        self.worker = Path(_text(self.path, fields, "worker"))
        self.socket = Path(_text(self.path, fields, "socket"))
        self.mode = fields.get("mode", MODE)
        self.key_log = fields.get("key_log", False)
        self._grants, self._credentials = grants, credentials
        for identity in self._used:
            if identity.name in credentials:
                identity.credentials = credentials[identity.name]
                identity.granted = grants[identity.name].peers

    def summary(self) -> dict[str, str]:
        """Identity names, each with its URI and users, for people."""
        return {
            name: f"{self._credentials[name].identity} for users "
            + ", ".join(map(str, sorted(grant.users)))
            for name, grant in self._grants.items()
        }

    def stamp(self) -> tuple[int, ...]:
        """A value that changes when the file, or a file of an identity, is replaced."""
        files = [self.path]
        for grant in self._grants.values():
            files += Credentials.files(grant.path)
        return stamps(files)

    def permits(self, name: str, uid: int) -> bool:
        """True if programs of this user may use the identity."""
        grant = self._grants.get(name)
        return grant is not None and uid in grant.users

    def check_user(self, uid: int) -> None:
        """Raise ExchangeError (`policy`) unless programs of this user may use some identity."""
        if not any(uid in grant.users for grant in self._grants.values()):
            raise ExchangeError(POLICY, f"the policy grants nothing to programs of user {uid}")

    def identity(self, settings: Mapping[str, Any], uid: int) -> Identity:
        """The identity that a program asks for. Raises ExchangeError (`policy`, `config`)."""
        name = settings.get("identity")
        if not isinstance(name, str) or "/" in name:
            raise ExchangeError(
                POLICY,
                "this agent takes identities by their names in its policy: give identity=NAME "
                "without a slash; files are for a private agent",
            )
        if not self.permits(name, uid):
            raise ExchangeError(
                POLICY, f"the policy grants no identity {name!r} to programs of user {uid}"
            )
        try:
            allowed = Identity.patterns(settings["peer"])
        except (KeyError, TypeError) as error:
            raise malformed(error) from None
        found = Identity(self._credentials[name], allowed, self._grants[name].peers, name)
        self._used.add(found)
        return found

    def current(self, settings: Mapping[str, Any], uid: int) -> Callable[[], Identity]:
        """As identity(); load() replaces its credentials."""
        found = self.identity(settings, uid)
        return lambda: found

    def worker_at(self, path: Path) -> Path:
        """The control socket, by the policy's path, of the process of the policy's worker that a
        program names. Raises ExchangeError (`policy`) if it names another worker."""
        name, own = path.name, self.worker.name
        of_process = name.startswith(f"{own}.") and name[len(own) + 1 :].isdigit()
        # resolve() makes a system call per folder; most programs give the policy's own path.
        elsewhere = path.parent != self.worker.parent and (
            path.parent.resolve() != self.worker.parent.resolve()
        )
        if elsewhere or (name != own and not of_process):
            raise ExchangeError(
                POLICY, f"this agent serves the worker at {self.worker}, not the one at {path}"
            )
        return self.worker.with_name(name)


def _read(path: Path) -> dict[str, Any]:
    try:
        fields = tomllib.loads(path.read_text())
    except OSError as error:
        raise PolicyError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path} is not TOML: {error}") from None
    _known(path, "the file", fields, KEYS)
    mode = fields.get("mode", MODE)
    if type(mode) is not int or not 0 <= mode <= 0o777:
        raise PolicyError(f"{path}: mode must be 0 to 0o777")
    if type(fields.get("key_log", False)) is not bool:
        raise PolicyError(f"{path}: key_log must be true or false")
    return fields


def _known(path: Path, where: str, fields: Mapping[str, Any], keys: set[str]) -> None:
    if unknown := sorted(set(fields) - keys):
        raise PolicyError(
            f"{path}: {where} has the unknown key {unknown[0]!r}: known are "
            f"{', '.join(sorted(keys))}"
        )


def _text(path: Path, fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise PolicyError(f"{path}: {key} is missing, or is not a text")
    return value


def _grants(path: Path, fields: Mapping[str, Any]) -> list[Grant]:
    entries = fields.get("identity", [])
    if not isinstance(entries, list) or not entries:
        raise PolicyError(f"{path} has no [[identity]]: no program could use this agent")
    grants = [_grant(path, entry) for entry in entries]
    names = [grant.name for grant in grants]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise PolicyError(f"{path}: two entries [[identity]] have the name {twice!r}")
    return grants


def _grant(path: Path, entry: Mapping[str, Any]) -> Grant:
    _known(path, "[[identity]]", entry, IDENTITY_KEYS)
    name = _text(path, entry, "name")
    if "/" in name:
        raise PolicyError(f"{path}: the identity name {name!r} has a slash")
    users = entry.get("users", [os.getuid()])
    if not isinstance(users, list) or not users:
        raise PolicyError(f"{path}: users of {name!r} is no list of users")
    try:
        peers = Identity.patterns(entry.get("peers", []))
    except TypeError:
        raise PolicyError(f"{path}: peers of {name!r} is no list of patterns") from None
    return Grant(
        name,
        path.parent / _text(path, entry, "path"),
        frozenset(_uid(path, user) for user in users),
        peers,
    )


def _uid(path: Path, user: object) -> int:
    if type(user) is int and user >= 0:
        return user
    try:
        return pwd.getpwnam(str(user)).pw_uid
    except KeyError:
        raise PolicyError(f"{path}: there is no user {user!r}") from None


def _credentials(path: Path, grant: Grant) -> Credentials:
    try:
        return Credentials.named(grant.path)
    except IdentityError as error:
        raise PolicyError(f"{path}: identity {grant.name!r}: {error}") from None
