"""All quotas of a policy (agent.md 12), as the worker gets them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from srdma.agent.accounts import Door, account, uid_of
from srdma.agent.quota import NONE, USERS, quota_of, summary
from srdma.agent.remote.entries import HostEntry, exact_identity
from srdma.control.quotas import NAMES_MAX, REMOTE, Account, AccountKind, Quota

TABLES = ("user", "processes", "peers", "peer")  # of [quota], beside its own values
EVERY_USER = AccountKind.PROGRAM, ""


@dataclass(frozen=True)
class Quotas:
    """kinds: of accounts without one of their own, with the name "". named: of single accounts."""

    kinds: Mapping[Account, Quota]
    named: Mapping[Account, Quota] = field(default_factory=dict)

    @property
    def users(self) -> Quota:
        """The quota of a user without a table."""
        return self.kinds[EVERY_USER]

    def of_user(self, uid: int) -> Quota:
        return self.named.get((AccountKind.PROGRAM, account(uid)), self.users)

    def with_entries(self, doors: Iterable[Door], hosts: Iterable[HostEntry]) -> Quotas:
        """These and those of [[container]] and [[host]]. Raises ValueError."""
        named = dict(self.named)
        named |= {(AccountKind.PROGRAM, account(door.name)): door.quota for door in doors}
        named |= {(AccountKind.GROUP, host.group): host.total for host in hosts if host.total}
        if len(named) > NAMES_MAX:
            raise ValueError(
                f"quotas of {len(named)} users, containers, hosts and identities: a worker has "
                f"at most {NAMES_MAX}"
            )
        return Quotas(self.kinds, named)

    def all(self) -> list[tuple[Account, Quota]]:
        """All, those of kinds last: a worker refuses none of these for lack of room."""
        return [*self.named.items(), *self.kinds.items()]

    def summary(self) -> dict[str, str]:
        """The quotas of [quota], for people."""
        titles = {
            AccountKind.PROGRAM: "users", AccountKind.PROCESS: "processes",
            AccountKind.IDENTITY: "peers",
        }  # fmt: skip
        found = {
            f"[quota {titles[kind]}]": quota
            for (kind, _), quota in self.kinds.items()
            if kind in titles and quota not in (NONE, USERS)
        }
        found |= {
            f"[quota {name}]": quota
            for (kind, name), quota in self.named.items()
            if kind is AccountKind.IDENTITY or name.startswith("uid ")
        }
        return {title: summary(quota) for title, quota in found.items()}


def quotas_of(entry: object) -> Quotas:
    """From [quota] of a policy. Raises ValueError."""
    if not isinstance(entry, dict):
        raise ValueError("quota is not a table")
    own = {name: value for name, value in entry.items() if name not in TABLES}
    users = quota_of("quota", own, USERS)
    processes = quota_of("quota.processes", entry.get("processes", {}))
    peers = quota_of("quota.peers", entry.get("peers", {}), resources=REMOTE)
    kinds = {
        EVERY_USER: users,
        (AccountKind.PROCESS, ""): processes,
        (AccountKind.GROUP, ""): NONE,
        (AccountKind.IDENTITY, ""): peers,
    }
    named = {
        (AccountKind.IDENTITY, exact_identity("a name of [quota.peer]", uri)): quota_of(
            f"quota.peer.{uri!r}", table, peers, REMOTE
        )
        for uri, table in _tables(entry, "peer").items()
    }
    return Quotas(kinds, _of_users(_tables(entry, "user"), users) | named)


def _of_users(tables: Mapping[str, Any], base: Quota) -> dict[Account, Quota]:
    found = dict[Account, Quota]()
    for name, table in tables.items():
        key = AccountKind.PROGRAM, account(uid_of(int(name) if name.isdecimal() else name))
        if key in found:
            raise ValueError(f"quota.user.{name} is one of two tables of {key[1]}: give one")
        found[key] = quota_of(f"quota.user.{name}", table, base)
    return found


def _tables(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    tables = entry.get(name, {})
    if not isinstance(tables, dict):
        raise ValueError(f"quota.{name} has no tables [quota.{name}.NAME]")
    return tables
