"""The messages by which agents ask each other for the members of a multicast group (protocol.md
8.10)."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from srdma import gid as gids
from srdma.keyex.fields import ExchangeError, bad, exactly, integer, octets
from srdma.keyex.offers import qpn_of

MEMBERS_MAX = 64  # UD QPs at a GID
ASKS_MAX = (1 << 32) - 1
RANGES = tuple(ipaddress.IPv6Network(text) for text in ("ff00::/8", "::ffff:224.0.0.0/100"))


@dataclass(frozen=True)
class Ask:
    """ASK: the only message of the end that opens a stream, for programs at the GID `of`: which UD
    QPs at `gid` are members of a group now, and from now on?"""

    group: bytes
    of: bytes
    gid: bytes

    def as_map(self) -> dict[str, Any]:
        return {"multicast": self.group, "from": self.of, "gid": self.gid}


@dataclass(frozen=True)
class Members:
    """MEMBERS: the QPNs of all members, in ascending order. asks: the number of ASKs in the stream
    before it."""

    qpns: tuple[int, ...]
    asks: int = 1

    def as_map(self) -> dict[str, Any]:
        return {"members": list(self.qpns), "asks": self.asks}


def ask_of(fields: Mapping[str, Any]) -> Ask:
    """Raises ExchangeError."""
    exactly(fields, "ASK", {"multicast", "from", "gid"})
    of, gid = (octets(fields, name, gids.LEN, gids.LEN) for name in ("from", "gid"))
    return Ask(group_of(fields, "multicast"), of, gid)


def group_of(fields: Mapping[str, Any], name: str) -> bytes:
    """The GID of a multicast group (IBA 4.1.1; RoCEv2: 224.0.0.0/4 as IPv4-mapped addresses).
    Raises ExchangeError."""
    group = octets(fields, name, gids.LEN, gids.LEN)
    if not any(ipaddress.IPv6Address(group) in each for each in RANGES):
        raise ExchangeError(
            "value", f"{name} is {gids.text_of(group)}: it must be in 224.0.0.0/4 or ff00::/8"
        )
    return group


def members_of(fields: Mapping[str, Any]) -> Members:
    """Raises ExchangeError."""
    exactly(fields, "MEMBERS", {"members", "asks"})
    value = fields["members"]
    if not isinstance(value, list) or len(value) > MEMBERS_MAX:
        raise bad("members", value, f"a list of at most {MEMBERS_MAX} QPNs")
    qpns = tuple(qpn_of("members", qpn) for qpn in value)
    if any(one >= other for one, other in itertools.pairwise(qpns)):
        raise bad("members", value, "a list of QPNs in ascending order")
    return Members(qpns, integer("asks", fields["asks"], 1, ASKS_MAX))
