"""GIDs: the addresses of workers, with which their QPs are named (protocol.md 8.8).

A GID has 16 bytes: an IPv6 address, or an IPv4-mapped one (::ffff:a.b.c.d) for an IPv4 address.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

LEN = 16
NONE = bytes(LEN)  # of a worker that has no GID


class QPName(NamedTuple):
    """A QP: GID of its worker, and its number."""

    gid: bytes
    qpn: int

    def __str__(self) -> str:
        return f"QP {self.qpn:#08x} of {text_of(self.gid)}"


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def of_address(address: Address) -> bytes:
    return (b"\xff\xff" + address.packed if address.version == 4 else address.packed).rjust(
        LEN, b"\0"
    )


def parse(text: str) -> bytes:
    """The GID in an IPv4 or IPv6 address; also in the form of pyverbs, which is IPv6. Raises
    ValueError."""
    return of_address(ipaddress.ip_address(text))


def text_of(gid: bytes) -> str:
    """An IPv4 or IPv6 address."""
    return _plain(ipaddress.IPv6Address(gid))


def plain_address(text: str) -> str:
    """The usual form of an IP address: of IPv4 if it is IPv4-mapped. A scope (%eth0) stays.

    Raises ValueError.
    """
    return _plain(ipaddress.ip_address(text))


def _plain(address: Address) -> str:
    return str(getattr(address, "ipv4_mapped", None) or address)
