"""The addresses of a leg over verbs: the worker's, and that of this host's own device.

Without a name of a device rdma_cm takes the device and the source address of the kernel's route. To
use a named device its source address is given. Otherwise the kernel could choose another device.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from srdma.errors import DeviceError

INFINIBAND = Path("/sys/class/infiniband")
ROCE_V2 = "RoCE v2"
DISCARD_PORT = 9  # no packet is sent to it

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Gid:
    """An address (RoCE v2) of an RDMA device, and the network device that has it."""

    address: _Address
    netdev: str


class Route(NamedTuple):
    """Texts for rdma_getaddrinfo(3). source: None for the source of the kernel's route."""

    source: str | None
    target: str


def route(peer: str, device: str | None) -> Route:
    """The addresses for a leg to the IP address `peer`; device: a name, or None.

    Raises DeviceError for an unknown device, one without an address of the family, and a
    link-local address that several network devices could reach.
    """
    target = ipaddress.ip_address(peer)
    if device is not None:
        return _from_device(target, device)
    if not _needs_scope(target):
        return Route(None, peer)
    netdevs = {gid.netdev for name in devices() for gid in _like(target, name)}
    if len(netdevs) != 1:
        raise DeviceError(
            f"{peer} is a link-local address, and {len(netdevs)} network devices with RDMA have "
            "link-local addresses here: choose the RDMA device by device= or $SRDMA_HOST_DEVICE"
        )
    return Route(None, f"{peer}%{netdevs.pop()}")


def netdev_of(chosen: Route, device: str | None) -> str | None:
    """The network device of a result of route(); None: that of the kernel's route."""
    _, percent, scope = (chosen.source or chosen.target).partition("%")
    if percent or device is None:
        return scope or None
    return next(gid.netdev for gid in gids(device) if str(gid.address) == chosen.source)


def _from_device(target: _Address, device: str) -> Route:
    if device not in (names := devices()):
        raise DeviceError(
            f"{device!r} is no RDMA device of this host, which has {', '.join(names) or 'none'}: "
            "name another one by device= or $SRDMA_HOST_DEVICE (`rdma link` lists them)"
        )
    own = _like(target, device)
    if not own:
        kind = f"{'link-local ' if _needs_scope(target) else ''}IPv{target.version}"
        raise DeviceError(
            f"{device} has no {kind} address to reach {target} from: assign one to its interface, "
            "or choose another device"
        )
    if _needs_scope(target):
        return Route(f"{own[0].address}%{own[0].netdev}", f"{target}%{own[0].netdev}")
    addresses = {gid.address for gid in own}
    for netdev in dict.fromkeys(gid.netdev for gid in own):
        source = _source(netdev, target)
        if source in addresses:
            return Route(str(source), str(target))
    return Route(str(own[0].address), str(target))  # rdma_cm reports what its route lacks


def _source(netdev: str, target: _Address) -> _Address | None:
    """The source address of the kernel's route over netdev; None: there is no route."""
    family = socket.AF_INET if target.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as end, contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, netdev.encode())
        end.connect((str(target), DISCARD_PORT))
        return ipaddress.ip_address(end.getsockname()[0])
    return None


def _needs_scope(address: _Address) -> bool:
    """True for a link-local address, which means nothing without a network interface."""
    return address.version == 6 and address.is_link_local


def devices() -> list[str]:
    """Names of the RDMA devices of this machine."""
    return sorted(place.name for place in INFINIBAND.iterdir()) if INFINIBAND.is_dir() else []


def _like(target: _Address, device: str) -> list[Gid]:
    """The addresses of a device that can reach target: of its family, and link-local if it is."""
    return [
        gid
        for gid in gids(device)
        if gid.address.version == target.version
        and _needs_scope(gid.address) == _needs_scope(target)
    ]


def gids(device: str) -> Iterator[Gid]:
    """The addresses of a device, in the order of the GID table of each port."""
    for port in sorted((INFINIBAND / device / "ports").iterdir()):
        for place in sorted((port / "gids").iterdir(), key=lambda entry: int(entry.name)):
            with contextlib.suppress(OSError):  # a type without an entry cannot be read
                gid = ipaddress.IPv6Address(place.read_text().strip())
                if int(gid) and _read(port / "gid_attrs/types" / place.name) == ROCE_V2:
                    netdev = _read(port / "gid_attrs/ndevs" / place.name)
                    yield Gid(gid.ipv4_mapped or gid, netdev)


def _read(place: Path) -> str:
    return place.read_text().strip()
