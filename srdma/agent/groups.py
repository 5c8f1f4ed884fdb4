"""The multicast groups that a policy permits: its entries [[group]] (agent.md 14)."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass

from srdma import gid as gids
from srdma.agent.peers import Peers
from srdma.agent.ranges import Ranges, range_of, range_text
from srdma.keyex.fields import ExchangeError
from srdma.keyex.groups import RANGES

GROUP_KEYS = {"gid", "identities", "hosts"}
ENTRIES_MAX = 256
HOSTS_MAX = 64


@dataclass(frozen=True)
class Group:
    """An entry [[group]]. range: of groups; identities: names of those whose programs may use them;
    hosts: the GIDs whose agents are asked for members, and may ask."""

    range: ipaddress.IPv6Network
    identities: frozenset[str]
    hosts: tuple[bytes, ...]

    def check_own(self, name: str) -> None:
        """Raise ExchangeError (`policy`) unless programs with an identity may use the group."""
        if name not in self.identities:
            raise ExchangeError(
                "policy",
                f"the policy does not permit {name!r} the group {range_text(self.range)}: "
                "`identities` of its [[group]] lacks it",
            )

    def check_host(self, gid: bytes) -> None:
        """Raise ExchangeError (`policy`) unless the agent of a GID may ask for members."""
        if gid not in self.hosts:
            raise ExchangeError(
                "policy",
                f"{gids.text_of(gid)} is no host of the group {range_text(self.range)}: `hosts` of "
                "its [[group]] lacks it",
                told="the policy does not permit this group to your GID",
            )


class Groups:
    """All entries [[group]] of a policy."""

    def __init__(self, entries: object, peers: Peers, identities: Collection[str]) -> None:
        """entries: the value of the key `group`. identities: of the policy. Raises ValueError."""
        if not isinstance(entries, list) or len(entries) > ENTRIES_MAX:
            raise ValueError(f"group must be entries [[group]], at most {ENTRIES_MAX}")
        made = [_group(entry, peers, identities) for entry in entries]
        self._ranges = Ranges("[[group]]", made)

    def at(self, gid: bytes) -> Group:
        """The narrowest entry with a group. Raises ExchangeError (`policy`)."""
        if found := self._ranges.at(gid):
            return found
        raise ExchangeError(
            "policy",
            f"the policy of this agent has no [[group]] with the gid {gids.text_of(gid)}",
            told="the policy does not permit this group to your GID",
        )

    def summary(self) -> dict[str, str]:
        """For people."""
        return {
            f"[{range_text(group.range)}]": f"for {', '.join(sorted(group.identities))}; hosts "
            + ", ".join(map(gids.text_of, group.hosts))
            for group in self._ranges.entries
        }


def _group(entry: object, peers: Peers, identities: Collection[str]) -> Group:
    if not isinstance(entry, dict):
        raise ValueError("group must be entries [[group]]")
    if unknown := sorted(set(entry) - GROUP_KEYS):
        raise ValueError(f"[[group]] has the unknown key {unknown[0]!r}")
    where = entry.get("gid")
    groups = range_of(where, "[[group]]")
    if not any(groups.subnet_of(each) for each in RANGES):
        raise ValueError(f"[[group]] {where} must be in 224.0.0.0/4 or ff00::/8")
    names = entry.get("identities")
    if not isinstance(names, list) or not names or not all(name in identities for name in names):
        raise ValueError(
            f"identities of [[group]] {where} must be names of entries [[identity]], one at least"
        )
    return Group(groups, frozenset(names), _hosts(where, entry.get("hosts"), peers))


def _hosts(where: object, value: object, peers: Peers) -> tuple[bytes, ...]:
    """value: None for all entries [[peer]] that have one GID."""
    if value is None:
        single = (peer.range for peer in peers.entries if peer.range.prefixlen == 128)
        found = [each.network_address.packed for each in single]
    elif isinstance(value, list) and all(isinstance(text, str) for text in value):
        found = [gids.parse(text) for text in value]
    else:
        raise ValueError(f"hosts of [[group]] {where} is no list of GIDs")
    if not 1 <= len(found) <= HOSTS_MAX:
        raise ValueError(
            f"[[group]] {where} has {len(found)} hosts: name 1 to {HOSTS_MAX} GIDs by `hosts`"
        )
    for gid in found:
        _check_known(where, gid, peers)
    return tuple(sorted(set(found)))


def _check_known(where: object, gid: bytes, peers: Peers) -> None:
    try:
        peers.at(gid)
    except ExchangeError as error:
        raise ValueError(f"hosts of [[group]] {where}: {error}") from None
