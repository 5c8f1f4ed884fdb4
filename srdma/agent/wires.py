"""The wire addresses that a peer's worker may name (agent.md 6): `wire` of an [[identity]]."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from srdma.keyex.fields import ExchangeError
from srdma.keyex.offers import End

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks_of(value: object) -> tuple[Network, ...]:
    """Networks in a file. Raises ValueError, also for an empty list, which would permit nothing."""
    if not isinstance(value, list) or not value or not all(isinstance(n, str) for n in value):
        raise ValueError('wire is no list of networks such as "10.0.0.0/24"')
    return tuple(ipaddress.ip_network(text) for text in value)


def check_wires(ends: Iterable[End], networks: tuple[Network, ...]) -> None:
    """Raise ExchangeError (`worker`) unless the wire address of each end is in one of the networks.
    No network: any address."""
    for end in ends if networks else ():
        if not _is_in(end.wire, networks):
            raise ExchangeError(
                "worker",
                f"the policy does not permit the wire address {end.wire!r} of the peer: it permits "
                f"{', '.join(map(str, networks))}",
            )


def _is_in(wire: str, networks: tuple[Network, ...]) -> bool:
    host, colon, _ = wire.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return bool(colon) and any(address in network for network in networks)
