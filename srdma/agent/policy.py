"""The rights of programs at an agent (agent.md 6): the file agent.toml, or a private agent's rule.

The file is the operator's. A program can only narrow what it grants.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from srdma.agent.accounts import MODE, User, doors_of, host_of, uid_of
from srdma.agent.clock import CONTROL, DEMANDS, PLAUSIBLE, ClockRule, HostTime, SystemClock
from srdma.agent.groups import Group, Groups
from srdma.agent.peers import Peer, Peers
from srdma.agent.quota import limits_of, summary
from srdma.agent.quotas import quotas_of
from srdma.agent.ranges import range_text
from srdma.agent.remote.entries import HostEntry, address_of, control_of, hosts_of, teller_of
from srdma.agent.settings import Current, Identity, malformed, stamps
from srdma.agent.wires import Network, networks_of
from srdma.control import Limits
from srdma.control.quotas import Quota
from srdma.errors import LocalError
from srdma.identity import Credentials, IdentityError
from srdma.keyex.fields import ExchangeError
from srdma.keyex.offers import LEVELS, REQUIRED

POLICY = "policy"  # code of an error: the policy does not grant it
KEYS = {
    "worker", "worker_user", "worker_remote", "socket", "mode", "key_log", "clock", "listen",
    "quota", "container", "identity", "peer", "group", "control", "host", "require",
}  # fmt: skip
PATH_MAX = 1024  # characters of the path of a worker: each part of it costs a system call
IDENTITY_KEYS = {"name", "path", "users", "peers", "wire", "require"}


class PolicyError(LocalError):
    """A policy file cannot be read, or is not legal."""


class Private:
    """The rule of a private agent: its program may use any identity whose files it can read.

    It has no GIDs: a rendezvous needs a system agent.
    """

    worker_user: int | None = None
    worker_remote = False

    def __init__(self, clock: SystemClock | None = None) -> None:
        self._clock = ClockRule(clock=clock or SystemClock())

    def current(self, settings: Mapping[str, Any], user: User) -> Current:
        return Current(settings, self._clock)

    def worker_at(self, path: Path) -> Path:
        """Any worker: the program itself is a client of it."""
        return path

    def peer_at(self, gid: bytes) -> Peer:
        raise ExchangeError(POLICY, "a rendezvous needs a system agent: give agent= to Context")

    def group_at(self, gid: bytes) -> Group:
        raise ExchangeError(POLICY, "a multicast group needs a system agent")

    def check_user(self, user: User) -> None:
        """The program is the one that started this agent."""

    def limits(self, user: User) -> Limits:
        return Limits()

    def host_at(self, user: User) -> HostEntry:
        raise ExchangeError(POLICY, "no listening TCP socket beside the message")


@dataclass(frozen=True)
class Grant:
    """An entry [[identity]]. users: uids; peers: patterns of identities, wires: networks of wire
    addresses, both empty for any; require: the lowest level of suites."""

    name: str
    path: Path
    users: frozenset[int]
    peers: tuple[str, ...]
    wires: tuple[Network, ...]
    require: int


class Policy:
    """The policy of a system agent. Raises PolicyError."""

    def __init__(self, path: Path, clock: SystemClock | None = None) -> None:
        self.path, self._system = path, clock or SystemClock()
        self.host_time = HostTime(self._system)
        self._used: weakref.WeakSet[Identity] = weakref.WeakSet()
        self._fixed: tuple[Path, bool] | None = None
        self.load()

    def load(self) -> None:
        """Read the file and the credentials that it names. On an error nothing changes."""
        try:
            fields = _read(self.path)
            grants = {g.name: g for g in _grants(self.path, fields)}
            credentials = {g.name: _credentials(self.path, g) for g in grants.values()}
            quotas = quotas_of(fields.get("quota", {}))
            doors = doors_of(fields.get("container", []), quotas.users, set(grants))
            worker_user = uid_of(fields["worker_user"]) if "worker_user" in fields else None
            where = fields.get("listen", "")
            listen = None if where == "" else address_of("listen", where)
            peers = Peers(fields.get("peer", []))
            if peers.entries and not listen:
                raise ValueError("[[peer]] needs `listen`: peers call at the port of the agent")
            groups = Groups(fields.get("group", []), peers, set(grants))
            hosts = hosts_of(fields.get("host", []), quotas.users, set(grants))
            quotas = quotas.with_entries(doors, hosts.values())
            control = control_of(self.path, fields.get("control"))
            if bool(hosts) != bool(control):
                raise ValueError("[control] and [[host]] need each other")
            demand = fields.get("clock", PLAUSIBLE)
            teller = teller_of(hosts) if demand == CONTROL else ""
        except PolicyError:
            raise
        except (AttributeError, OSError, TypeError, ValueError) as error:
            raise PolicyError(f"{self.path}: a value is not legal: {error}") from None
        worker = Path(_text(self.path, fields, "worker"))
        self._fix(worker, fields.get("worker_remote", False))
        self.socket = Path(_text(self.path, fields, "socket"))
        self.mode = fields.get("mode", MODE)
        self.key_log = fields.get("key_log", False)
        self.listen = listen
        self.peers, self.groups = peers, groups
        self.worker_user = worker_user
        self.doors = doors
        self.control, self.hosts = control, hosts
        self.quotas, self._doors = quotas, {door.name: door for door in doors}
        self._clock = ClockRule(demand, (self.path,), self._system, self.host_time, teller)
        self._grants, self._credentials = grants, credentials
        for identity in self._used:
            if identity.name in credentials:
                identity.credentials = credentials[identity.name]
                identity.granted = grants[identity.name].peers
                identity.wires = grants[identity.name].wires
                identity.clock = self._clock
                identity.require = grants[identity.name].require

    def _fix(self, worker: Path, remote: bool) -> None:
        """Set the entries that take effect at the start. Raises PolicyError if one changed."""
        if self._fixed not in (None, (worker, remote)):
            raise PolicyError(
                f"{self.path}: worker and worker_remote take effect at the start of the agent: "
                "start it again"
            )
        self.worker, self.worker_remote = self._fixed = worker, remote

    def summary(self) -> dict[str, str]:
        """Identity names, each with its URI and users, for people."""
        return (
            {
                name: f"{self._credentials[name].identity} for users "
                + ", ".join(map(str, sorted(grant.users)))
                for name, grant in self._grants.items()
            }
            | {
                f"[{door.name}]": f"{door.socket} for {', '.join(sorted(door.identities))}; "
                + summary(door.quota)
                for door in self.doors
            }
            | {
                f"[{range_text(peer.range)}]": peer.identity
                + (" with this address in its certificate" if peer.san else "")
                for peer in self.peers.entries
            }
            | self.groups.summary()
            | {
                f"[{host.name}]": f"{host.identity} for {', '.join(sorted(host.identities))}; "
                + f"listens at {', '.join(map(str, host.listen)) or 'nothing'}; "
                + summary(Quota(limits=asdict(host.limits)))
                + (f"; together {summary(host.total)}" if host.total else "")
                for host in self.hosts.values()
            }
            | self.quotas.summary()
        )

    def stamp(self) -> tuple[int, ...]:
        """A value that changes when the file, or a file of an identity, is replaced."""
        files = [self.path]
        for grant in self._grants.values():
            files += Credentials.files(grant.path)
        if self.control:
            files += Credentials.files(self.control.path)
        return stamps(files)

    def permits(self, name: str, user: User) -> bool:
        """True if programs of this user may use the identity."""
        if host := host_of(user):
            entry = self.hosts.get(host)
            return entry is not None and name in entry.identities and name in self._grants
        if isinstance(user, str):
            door = self._doors.get(user)
            return door is not None and name in door.identities and name in self._grants
        grant = self._grants.get(name)
        return grant is not None and user in grant.users

    def peer_at(self, gid: bytes) -> Peer:
        """See Peers.at()."""
        return self.peers.at(gid)

    def group_at(self, gid: bytes) -> Group:
        """See Groups.at()."""
        return self.groups.at(gid)

    def check_user(self, user: User) -> None:
        """Raise ExchangeError (`policy`) unless programs of this user may use some identity."""
        if not any(self.permits(name, user) for name in self._grants):
            raise ExchangeError(POLICY, f"the policy grants nothing to programs of user {user}")

    def limits(self, user: User) -> Limits:
        """Limits of a user at the worker."""
        if host := self.hosts.get(host_of(user)):
            return host.limits
        if isinstance(user, int):
            return limits_of(self.quotas.of_user(user))
        door = self._doors.get(user)
        return limits_of(door.quota if door else self.quotas.users)

    def host_at(self, user: User) -> HostEntry:
        """The host of a program. Raises ExchangeError (`policy`) for a local one, and if the entry
        was removed."""
        if entry := self.hosts.get(host_of(user)):
            return entry
        raise ExchangeError(POLICY, "only programs of a [[host]] listen at an address of the agent")

    def control_identity(self) -> Identity:
        """The identity of this end of control links, with the hosts that may connect."""
        assert self.control
        hosts = tuple(host.identity for host in self.hosts.values())
        clock = ClockRule(PLAUSIBLE, (self.path,), self._system)
        return Identity(self.control.credentials, (), hosts, clock=clock)

    def host_named(self, identity: str) -> HostEntry | None:
        """The entry [[host]] with this identity."""
        return next((host for host in self.hosts.values() if host.identity == identity), None)

    def identity(self, settings: Mapping[str, Any], user: User) -> Identity:
        """The identity that a program asks for. Raises ExchangeError (`policy`, `config`)."""
        name = settings.get("identity")
        if not isinstance(name, str) or "/" in name:
            raise ExchangeError(
                POLICY,
                "this agent takes identities by their names in its policy: give identity=NAME "
                "without a slash; files are for a private agent",
            )
        if not self.permits(name, user):
            raise ExchangeError(
                POLICY, f"the policy grants no identity {name!r} to programs of user {user}"
            )
        try:
            allowed = Identity.patterns(settings["peer"])
        except (KeyError, TypeError) as error:
            raise malformed(error) from None
        grant = self._grants[name]
        found = Identity(
            self._credentials[name],
            allowed,
            grant.peers,
            name,
            self._clock,
            grant.wires,
            grant.require,
        )
        self._used.add(found)
        return found

    def granted(self) -> list[Identity]:
        """All identities, with the peers that the policy grants them."""
        return [
            Identity(
                self._credentials[grant.name],
                (),
                grant.peers,
                grant.name,
                self._clock,
                grant.wires,
                grant.require,
            )
            for grant in self._grants.values()
        ]

    def current(self, settings: Mapping[str, Any], user: User) -> Callable[[], Identity]:
        """As identity(); load() replaces its credentials."""
        found = self.identity(settings, user)
        return lambda: found

    def worker_at(self, path: Path) -> Path:
        """The control socket, without symbolic links, of the process of the policy's worker that a
        program names. Raises ExchangeError (`policy`) if it names another worker."""
        if (length := len(os.fspath(path))) > PATH_MAX:
            raise ExchangeError(
                POLICY, f"the path of a worker has at most {PATH_MAX} characters, not {length}"
            )
        with contextlib.suppress(ValueError):  # a NUL in a path
            own = os.path.realpath(self.worker)
            name = own if path == self.worker else os.path.realpath(path)
            if name == own or (name.startswith(f"{own}.") and name[len(own) + 1 :].isdigit()):
                return Path(name)
        raise ExchangeError(
            POLICY, f"this agent serves the worker at {self.worker}, not the one at {path}"
        )


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
    for name in ("key_log", "worker_remote"):
        if type(fields.get(name, False)) is not bool:
            raise PolicyError(f"{path}: {name} must be true or false")
    if fields.get("clock", PLAUSIBLE) not in DEMANDS:
        raise PolicyError(f"{path}: clock must be one of {', '.join(DEMANDS)}")
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
    grants = [_grant(path, entry, fields.get("require")) for entry in entries]
    names = [grant.name for grant in grants]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise PolicyError(f"{path}: two entries [[identity]] have the name {twice!r}")
    return grants


def _grant(path: Path, entry: Mapping[str, Any], require: object) -> Grant:
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
    except ExchangeError as error:
        raise PolicyError(f"{path}: peers of {name!r}: {error}") from None
    try:
        wires = networks_of(entry["wire"]) if "wire" in entry else ()
    except ValueError as error:
        raise PolicyError(f"{path}: wire of {name!r}: {error}") from None
    return Grant(
        name,
        path.parent / _text(path, entry, "path"),
        frozenset(_uid(path, user) for user in users),
        peers,
        wires,
        _level(path, entry.get("require", require)),
    )


def _level(path: Path, value: object) -> int:
    """The number of a level that may be required; None: any level."""
    if value is None:
        return LEVELS["none"]
    if value not in REQUIRED:
        raise PolicyError(f"{path}: require must be one of {', '.join(REQUIRED)}")
    return LEVELS[str(value)]


def _uid(path: Path, user: object) -> int:
    try:
        return uid_of(user)
    except ValueError as error:
        raise PolicyError(f"{path}: {error}") from None


def _credentials(path: Path, grant: Grant) -> Credentials:
    try:
        return Credentials.named(grant.path)
    except IdentityError as error:
        raise PolicyError(f"{path}: identity {grant.name!r}: {error}") from None
