"""One quota of a policy (agent.md 12): a table with limits, minima and idle time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields

from srdma.control import Limits
from srdma.control.quotas import LOCAL, Quota

RESTRICTED = tuple(field.name for field in fields(Limits))  # limits that RESTRICT has
_NARROW = {name for name in RESTRICTED if name != "bytes"}  # RESTRICT has 32 bits for them
_IDLE_MAX = (1 << 32) - 1
_OTHER_KEYS = "minimum", "idle"

NONE = Quota()
USERS = Quota(limits=asdict(Limits()))  # of users without a table


def limits_of(quota: Quota) -> Limits:
    """The limits for RESTRICT, of a quota that has these of USERS at least."""
    return Limits(**{name: quota.limits[name] for name in RESTRICTED})


def quota_of(
    what: str, entry: object, base: Quota = NONE, resources: Sequence[str] = LOCAL
) -> Quota:
    """From a table of a policy. Limits and idle time that it lacks are those of `base`; minima that
    it lacks are those that the worker has of `base`, as the default of the kind. Raises
    ValueError."""
    table = _table(what, entry, (*resources, *_OTHER_KEYS))
    minima = _units(f"{what}: minimum", table.pop("minimum", {}), resources)
    idle = _number(what, "idle", table.pop("idle", base.idle), _IDLE_MAX)
    limits = {**base.limits, **_units(what, table, resources)}
    if above := [name for name in minima if minima[name] > limits.get(name, minima[name])]:
        name = above[0]
        raise ValueError(
            f"{what}: the minimum of {name} is {minima[name]}, above its limit of {limits[name]}"
        )
    return Quota(minima, limits, idle)


def only_limits_of(
    what: str, entry: object, base: Quota = NONE, resources: Sequence[str] = LOCAL
) -> Quota:
    """As quota_of(), of a table that has neither minima nor idle time."""
    return Quota(limits={**base.limits, **_units(what, entry, resources)})


def summary(quota: Quota) -> str:
    """The quota, for people."""
    parts = [", ".join(f"{most} {name}" for name, most in quota.limits.items()) or "no limits"]
    if quota.minima:
        parts.append("at least " + ", ".join(f"{n} {name}" for name, n in quota.minima.items()))
    if quota.idle:
        parts.append(f"idle QPs end after {quota.idle} s")
    return "; ".join(parts)


def _table(what: str, entry: object, keys: Iterable[str]) -> dict[str, object]:
    if not isinstance(entry, dict):
        raise ValueError(f"{what} is not a table")
    known = tuple(keys)
    if unknown := [name for name in entry if name not in known]:
        raise ValueError(f"{what} has the unknown key {unknown[0]!r}: known are {', '.join(known)}")
    return dict(entry)


def _units(what: str, entry: object, resources: Iterable[str]) -> dict[str, int]:
    return {
        name: _number(what, name, value, (1 << (32 if name in _NARROW else 63)) - 1)
        for name, value in _table(what, entry, resources).items()
    }


def _number(what: str, name: str, value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{what}: {name} must be 0 to {most}")
    return value
