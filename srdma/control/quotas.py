"""Quotas of accounts, and what they and QPs use (local-interface.md 3.10)."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from srdma.control.messages import Kind, QPState
from srdma.errors import RefusedError
from srdma.native import control

if TYPE_CHECKING:
    from srdma.control.client import Control

RESOURCES = control.RESOURCES
LOCAL = control.LOCAL_RESOURCES  # of local programs
REMOTE = control.REMOTE_RESOURCES  # of identities of peers
COUNTS = control.count_names()
NO_LIMIT = 2**64 - 1
NAMES_MAX = control.QUOTAS_MAX  # quotas with a name

_NOT_GIVEN = 2**64 - 1
_QUOTA = struct.Struct(">QQ")
_USAGE = struct.Struct(">4Q")


class AccountKind(IntEnum):
    """Kind of an account."""

    PROGRAM = control.PROGRAM  # restricted connections with one account text
    PROCESS = control.PROCESS  # a process of the worker's own user, or of root
    GROUP = control.GROUP  # a user or a host: limits only
    IDENTITY = control.IDENTITY  # of remote peers


def resources_of(kind: AccountKind) -> tuple[str, ...]:
    """Names of the resources that accounts of a kind have."""
    return REMOTE if kind is AccountKind.IDENTITY else LOCAL


Account = tuple[AccountKind, str]  # its kind and name


@dataclass(frozen=True)
class Quota:
    """Minima and limits by the name of the resource; the others are those of the kind.

    idle: seconds after which an idle QP may be ended when QPs run out; 0: never.
    """

    minima: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    idle: int = 0

    def pack(self) -> bytes:
        """The table of QUOTA. Raises ValueError for an unknown resource or a value out of range."""
        unknown = (self.minima.keys() | self.limits.keys()) - set(RESOURCES)
        if unknown:
            raise ValueError(
                f"unknown resources: {', '.join(sorted(unknown))}; "
                f"this version has {', '.join(RESOURCES)}"
            )
        given = [*self.minima.values(), *self.limits.values()]
        if any(not 0 <= value < _NOT_GIVEN for value in given):
            raise ValueError("a minimum or a limit must be 0 to 2^64 - 2")
        table = b"".join(_QUOTA.pack(*self._place(name)) for name in RESOURCES)
        return table.ljust(control.RESOURCE_PLACES * _QUOTA.size, b"\0")

    def _place(self, name: str) -> tuple[int, int]:
        """Minimum and limit of a resource. Two zeros would be an absent place: a limit of 0 needs
        no minimum."""
        limit = self.limits.get(name, _NOT_GIVEN)
        return self.minima.get(name, _NOT_GIVEN) if limit else _NOT_GIVEN, limit


@dataclass(frozen=True)
class Use:
    """Use of a resource by an account. minimum: the guaranteed units; refused: charges."""

    used: int
    minimum: int
    limit: int  # NO_LIMIT: none
    refused: int


@dataclass(frozen=True)
class Usage:
    """An account (USAGE). group: "" if it has none. counts: by the names of COUNTS."""

    serial: int
    kind: AccountKind
    idle: int
    name: str
    group: str
    uses: dict[str, Use]
    counts: dict[str, int]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Usage:
        """From the values of control.decode()."""
        serial, kind, idle, name, group, table, *counts = values
        uses = (Use(*found) for found in _USAGE.iter_unpack(table))
        return cls(
            serial,
            AccountKind(kind),
            idle,
            name,
            group,
            dict(zip(RESOURCES, uses, strict=False)),
            dict(zip(COUNTS, counts, strict=True)),
        )


@dataclass(frozen=True)
class QPUse:
    """A QP (QPS). idle: ns since it last worked; identity: of the peer, "" before its keys."""

    qpn: int
    leg: int
    state: QPState
    reason: int
    idle: int
    identity: str
    counts: dict[str, int]

    @classmethod
    def of(cls, values: Sequence[Any]) -> QPUse:
        """From the values of control.decode() behind `next`."""
        qpn, leg, state, reason, idle, identity, *counts = values
        return cls(
            qpn,
            leg,
            QPState(state),
            reason,
            idle,
            identity,
            dict(zip(COUNTS, counts, strict=True)),
        )


def set_quota(
    worker: Control,
    account: Account,
    quota: Quota,
    revision: int = 0,
    *,
    last: bool = False,
) -> None:
    """Set the quota of an account, or with the name "" the default of its kind.

    last: the quotas of names with another revision are removed. Needs Control.agent().
    """
    worker.request(Kind.QUOTA, _values(account, quota, revision, last=last))


def set_quotas(
    worker: Control, quotas: Sequence[tuple[Account, Quota]], revision: int
) -> list[tuple[Account, RefusedError]]:
    """Set all quotas, at least one; those of names with another revision are removed. Returns what
    the worker refused. Needs Control.agent()."""
    calls = [
        (Kind.QUOTA, _values(account, quota, revision, last=n == len(quotas)))
        for n, (account, quota) in enumerate(quotas, 1)
    ]
    answers = zip(quotas, worker.requests(calls), strict=True)
    return [(account, refused) for (account, _), refused in answers if refused]


def _values(account: Account, quota: Quota, revision: int, *, last: bool) -> list[Any]:
    """The body of QUOTA."""
    flags = control.QUOTA_LAST if last else 0
    return [account[0], flags, revision, quota.idle, account[1], quota.pack()]


def _further(worker: Control, kind: Kind, cursor: int) -> Sequence[Any] | None:
    """An answer behind the cursor; None: there is no more."""
    try:
        return worker.request(kind, [cursor])[0]
    except RefusedError as refused:
        if refused.errno == errno.ENOENT:
            return None
        raise


def accounts(worker: Control) -> Iterator[Usage]:
    """All accounts, in the order of their creation. RefusedError on a restricted connection."""
    after = 0
    while (values := _further(worker, Kind.USAGE, after)) is not None:
        found = Usage.of(values)
        yield found
        after = found.serial


def qps(worker: Control) -> Iterator[QPUse]:
    """All QPs; on a restricted connection those that it may use."""
    at = 0
    while (values := _further(worker, Kind.QPS, at)) is not None:
        at, qpn = values[:2]
        if qpn:
            yield QPUse.of(values[1:])
