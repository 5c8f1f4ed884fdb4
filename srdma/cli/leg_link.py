"""The link of a leg, from this host to the worker of its NIC: whether other computers reach it.

A leg is not encrypted, and its first packet has the token that admits it (docs/smartnic.md 1). This
machine can see the device of the route, but not the switch inside the NIC.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from srdma._engine.host_device import netdev_of, route
from srdma.cli.finding import SYS, Finding, read
from srdma.errors import Error

NAME = "leg's link"
NET = SYS / "class/net"
KINDS = {"1": "Ethernet", "32": "InfiniBand"}  # linux/if_arp.h
LOCAL = 2  # RTN_LOCAL, linux/rtnetlink.h
# PCI vendor and device of the functions that a NIC with cores of its own has on its host.
SMART_NICS = {
    "15b3:a2d2": "BlueField",
    "15b3:a2d3": "BlueField",
    "15b3:a2d6": "BlueField-2",
    "15b3:a2dc": "BlueField-3",
    "15b3:a2df": "BlueField-4",
    "14e4:d800": "Stingray",
    "14e4:d802": "Stingray",
    "14e4:d804": "Stingray",
}


@dataclass(frozen=True)
class Hop:
    """The first hop of a route. gateway: its address, or ""."""

    netdev: str
    gateway: str = ""
    local: bool = False


@dataclass(frozen=True)
class Function:
    """A device with an entry of a bus. id: VENDOR:DEVICE, in hex."""

    id: str
    driver: str


def leg_link(peer: str, device: str | None) -> Finding:
    """peer: IP address of the leg at the NIC. device: RDMA device of this host, or None for that of
    the kernel's route."""
    try:
        chosen = route(peer, device)
        hop = first_hop(chosen.target.partition("%")[0], netdev_of(chosen, device))
    except Error as error:
        return Finding(NAME, "note", str(error), "docs/rdma.md, Addresses and devices")
    except (ImportError, OSError) as error:
        return Finding(
            NAME, "note", f"no route to the leg's address {peer}: {error}",
            "give the host's function of the NIC an address of the same subnet",
        )  # fmt: skip
    return judge(peer, hop, NET)


def first_hop(address: str, netdev: str | None) -> Hop:
    """The kernel's route. netdev: the network device that it must use. Raises OSError, ImportError
    without pyroute2."""
    # All other commands do without it.
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    with IPRoute() as ip:
        over = {"oif": ip.link_lookup(ifname=netdev)[0]} if netdev else {}
        try:
            (message,) = ip.route("get", dst=address, **over)
        except NetlinkError as error:
            raise OSError(error.code, str(error)) from None
        (link,) = ip.get_links(message.get_attr("RTA_OIF"))
        gateway = message.get_attr("RTA_GATEWAY") or ""
        return Hop(link.get_attr("IFLA_IFNAME"), str(gateway), message["type"] == LOCAL)


def judge(peer: str, hop: Hop, net: Path) -> Finding:
    """net: /sys/class/net."""
    if hop.local:
        return Finding(NAME, "ok", f"{peer} is an address of this machine")
    found = list(functions(hop.netdev, net))
    drivers = ", ".join(sorted({each.driver for each in found})) or "no hardware"
    over = f"{peer} over {hop.netdev} ({drivers})"
    names = {SMART_NICS.get(each.id) for each in found}
    if hop.gateway:
        why = f"the gateway {hop.gateway} and its networks see the leg"
    elif len(names) == 1 and None not in names:
        return Finding(NAME, "ok", f"{over}, a function of this {names.pop()}")
    else:
        kind = KINDS.get(read(net / hop.netdev / "type").strip(), "a network")
        why = f"{kind}, and not known as a function of a SmartNIC: others may reach it"
    return Finding(
        NAME, "note", f"{over}: {why}; the data and the token of a leg are visible there",
        "use a function of the NIC whose bridge has no uplink, or a link of host and NIC only",
    )  # fmt: skip


def functions(netdev: str, net: Path) -> Iterator[Function]:
    """The hardware below a network device: several for a bond or bridge, none for software. For a
    virtual function: its physical function, if this machine has it."""
    lower = [each.name.removeprefix("lower_") for each in sorted((net / netdev).glob("lower_*"))]
    for each in lower:
        yield from functions(each, net)
    if lower:
        return
    place = (net / netdev / "device").resolve()
    for folder in (place, *place.parents):  # a scalable function has no vendor of its own
        if (folder / "vendor").is_file():
            own = folder / "physfn" if (folder / "physfn").exists() else folder
            numbers = [read(own / name).strip().removeprefix("0x") for name in ("vendor", "device")]
            yield Function(":".join(numbers), (folder / "driver").resolve().name)
            return
