"""Ranges of GIDs in a policy, of which the narrowest one with a GID counts."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from srdma import gid as gids

MAPPED = 96  # bits before the address in an IPv4-mapped one


class _Ranged(Protocol):
    @property
    def range(self) -> ipaddress.IPv6Network: ...


E = TypeVar("E", bound=_Ranged)


class Ranges(Generic[E]):
    """Entries of a policy by their ranges. entries: the narrowest first."""

    def __init__(self, name: str, entries: Sequence[E]) -> None:
        """name: of the entries, as in the policy. Raises ValueError if two have the same range."""
        self.entries = sorted(entries, key=lambda entry: -entry.range.prefixlen)
        # Number of bits of the ranges -> these bits -> entry.
        self._by_bits: dict[int, dict[int, E]] = {}
        for entry in self.entries:
            bits = entry.range.prefixlen
            of_size = self._by_bits.setdefault(bits, {})
            if of_size.setdefault(_first(entry.range.network_address, bits), entry) is not entry:
                raise ValueError(f"two entries {name} have the gid {range_text(entry.range)}")

    def at(self, gid: bytes) -> E | None:
        """The entry of a GID."""
        address = ipaddress.IPv6Address(gid)
        for bits, of_size in self._by_bits.items():
            if found := of_size.get(_first(address, bits)):
                return found
        return None


def _first(address: ipaddress.IPv6Address, bits: int) -> int:
    """The first bits of an address."""
    return int(address) >> (address.max_prefixlen - bits)


def range_of(value: object, entry: str) -> ipaddress.IPv6Network:
    """The `gid` of an entry: an address or a range, IPv4 as IPv4-mapped. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{entry} needs a gid: an address, or a range such as 10.0.0.0/24")
    found = ipaddress.ip_network(value)
    bits = found.prefixlen + (MAPPED if found.version == 4 else 0)
    return ipaddress.IPv6Network((gids.of_address(found.network_address), bits))


def range_text(gid_range: ipaddress.IPv6Network) -> str:
    """An address, or a range in CIDR notation."""
    bits = gid_range.prefixlen
    first = gid_range.network_address
    text = gids.text_of(first.packed)
    if bits == first.max_prefixlen:
        return text
    return f"{text}/{bits - MAPPED if first.ipv4_mapped else bits}"
