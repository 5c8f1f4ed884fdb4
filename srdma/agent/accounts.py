"""Users of a system agent, the sockets of containers, and limits at the worker (agent.md 9).

A program counts as its uid, or as the socket through which it came: the uids in the user namespace
of a container mean nothing outside. A program of another computer counts as the name of its host
with its uid or its container there (control-link.md 3).
"""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srdma.agent.quota import quota_of
from srdma.control import Control, Limits
from srdma.control.quotas import Quota
from srdma.keyex.fields import ExchangeError
from srdma.native.constants import KEEP_LEGS

# A uid, the name of a [[container]], or of a [[host]]: NAME:UID, or NAME/CONTAINER.
User = int | str

MODE = 0o600
NAME = re.compile(r"[A-Za-z0-9._-]{1,48}")
REMOTE_NAME_MAX = 16  # of a container of another computer: an account has 63 bytes
KEYS = {"name", "path", "mode", "owner", "group", "identities", "quota"}


@dataclass(frozen=True)
class Door:
    """An entry [[container]]. owner, group: -1 for those of the agent."""

    name: str
    socket: Path
    mode: int
    owner: int
    group: int
    identities: frozenset[str]
    quota: Quota


def remote_user(host: str, user: User) -> User:
    """A program of a [[host]]. user: its uid there, or the name of its container.

    Names of containers and hosts have neither a colon nor a slash.
    """
    return f"{host}:{user}" if isinstance(user, int) else f"{host}/{user}"


def host_of(user: User) -> str:
    """Name of the [[host]] of a program; "" for a local one."""
    host, *rest = re.split("[:/]", user) if isinstance(user, str) else [""]
    return host if rest else ""


def account(user: User) -> str:
    """Name of the account of a user at the worker."""
    if isinstance(user, int):
        return f"uid {user}"
    host = host_of(user)
    if not host:
        return f"container {user}"
    return f"host {host} uid {user[len(host) + 1 :]}" if user[len(host)] == ":" else f"host {user}"


def group(user: User) -> str:
    """Name of the account of all users of the host of a program; "" for a local one."""
    return group_of_host(host) if (host := host_of(user)) else ""


def group_of_host(host: str) -> str:
    """The same, of a [[host]] with this name."""
    return f"host {host}"


def check_owner(user: User, opener: int, charged: str) -> None:
    """Raises ExchangeError unless the leg of a token is of a program of this user.

    opener: the uid that connected to the worker. charged: the account of the leg; empty if its
    program connected without the agent.
    """
    own = charged == account(user) if charged else opener == user
    if not own:
        raise ExchangeError(
            "policy",
            f"the leg of this token is not of {account(user)}: open it by a connection to the "
            "worker of the same user, or of the same container",
        )


def restricted(
    path: Path, trusted: int | None, user: User, limits: Limits, *, keep: bool
) -> Control:
    """A connection to a worker process for a program of this user; the caller closes it.

    trusted: see Control.connect(). keep: its legs outlive it. Raises NoWorkerError, RefusedError.
    """
    control = Control.connect(path, user=trusted)
    try:
        control.agent()
        control.restrict(account(user), limits, KEEP_LEGS if keep else 0, group(user))
    except BaseException:
        control.close()
        raise
    return control


def uid_of(user: object) -> int:
    """uid of a user name or number. Raises ValueError."""
    return _id(user, "user", lambda name: pwd.getpwnam(name).pw_uid)


def _gid_of(group: object) -> int:
    return _id(group, "group", lambda name: grp.getgrnam(name).gr_gid)


def _id(value: object, what: str, find: Callable[[str], int]) -> int:
    if type(value) is int and 0 <= value < (1 << 32) - 1:
        return value
    try:
        return find(str(value))
    except KeyError:
        raise ValueError(f"there is no {what} {value!r}") from None


def doors_of(entries: object, defaults: Quota, identities: set[str]) -> tuple[Door, ...]:
    """From [[container]] of a policy with these identities. Raises ValueError."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("container is no list of tables [[container]]")
    doors = tuple(_door(entry, defaults, identities) for entry in entries)
    for what in ("name", "socket"):
        values = [getattr(door, what) for door in doors]
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise ValueError(f"two entries [[container]] have the same {what}: {twice}")
    return doors


def _door(entry: Mapping[str, Any], defaults: Quota, identities: set[str]) -> Door:
    if unknown := sorted(set(entry) - KEYS):
        raise ValueError(
            f"[[container]] has the unknown key {unknown[0]!r}: known are {', '.join(sorted(KEYS))}"
        )
    name, path = entry.get("name"), entry.get("path")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError("a name of a [[container]] has 1 to 48 letters, digits, '.', '_' and '-'")
    if not isinstance(path, str) or not path:
        raise ValueError(f"[[container]] {name!r} has no path")
    mode = entry.get("mode", MODE)
    if type(mode) is not int or not 0 <= mode <= 0o777:
        raise ValueError(f"[[container]] {name!r}: mode must be 0 to 0o777")
    allowed = entry.get("identities")
    if not isinstance(allowed, list) or not allowed:
        raise ValueError(f"[[container]] {name!r}: identities is no list of names")
    if unknown := sorted({str(one) for one in allowed} - identities):
        raise ValueError(f"[[container]] {name!r}: there is no [[identity]] {unknown[0]!r}")
    return Door(
        name,
        Path(path),
        mode,
        uid_of(entry["owner"]) if "owner" in entry else -1,
        _gid_of(entry["group"]) if "group" in entry else -1,
        frozenset(allowed),
        quota_of(f"[[container]] {name!r}: quota", entry.get("quota", {}), defaults),
    )
