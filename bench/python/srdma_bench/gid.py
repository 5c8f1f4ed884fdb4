"""IPv4 addresses of RDMA devices, by GID index."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from srdma.errors import DeviceError

DEVICES = Path("/sys/class/infiniband")


def gid_address(device: str, index: int) -> str:
    """The IPv4 address of a GID of the device's first port. Raises DeviceError."""
    gids = _addresses(device)
    if index not in gids:
        have = ", ".join(f"{n} ({a})" for n, a in gids.items()) or "none"
        raise DeviceError(
            f"GID {index} of {device} is not an IPv4 address: IPv4 addresses are {have}"
        )
    return gids[index]


def first_address(device: str) -> str:
    """The first IPv4 address of the device's first port. Raises DeviceError."""
    for address in _addresses(device).values():
        return address
    raise DeviceError(f"{device} has no IPv4 address: assign one to its network device")


def _addresses(device: str) -> dict[int, str]:
    """GID index -> IPv4 address."""
    return {n: a for n in _indices(device) if (a := _address(device, n)) is not None}


def _indices(device: str) -> list[int]:
    try:
        return sorted(int(path.name) for path in (DEVICES / device / "ports/1/gids").iterdir())
    except OSError:
        have = sorted(path.name for path in DEVICES.iterdir()) if DEVICES.is_dir() else []
        raise DeviceError(
            f"no RDMA device {device}: there are {', '.join(have) or 'none'}"
        ) from None


def _address(device: str, index: int) -> str | None:
    try:
        gid = (DEVICES / device / "ports/1/gids" / str(index)).read_text().strip()
    except OSError:  # an unused entry of the GID table
        return None
    mapped = ipaddress.IPv6Address(gid).ipv4_mapped
    return None if mapped is None else str(mapped)
