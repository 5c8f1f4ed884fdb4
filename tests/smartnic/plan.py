"""Machines and cables of the stand: two hosts, each with a NIC that is another computer.

        host 0 ==leg0==== NIC 0            a host and its NIC
               --control0-                 the same, like tmfifo_net0 of a BlueField
                            |
                          wire             the NICs
                            |
        host 1 ==leg1==== NIC 1
               --control1-

Host and NIC see different names of ports and devices. Each port with an rxe device has two
addresses, and the first is in a subnet of its own: the other end has no route to it. With two
machines for the hosts, the cable `test` joins these for the commands of the test.
"""

from __future__ import annotations

from tests.rxe.ports import Port

NICS = 2
ROCE_MTU = 4300  # of a port, bytes: room for a RoCE packet of MTU 4096
MTU = 1500
SERVICE_PORT = 80
FORWARD_PORT = 81  # of host 1 in the network of the test: the service of NIC 1
NIC_LEG_DEVICE, NIC_WIRE_DEVICE = "pcie0", "uplink0"
# A NIC that has just started may have no idea of the time. Seconds since 1970, None: right.
CLOCKS = (None, 86400)

Cables = dict[str, Port]  # of a machine, by the name of the cable


def nic_leg_address(number: int) -> str:
    """The address at which the host reaches its NIC for RDMA."""
    return f"10.90.{number}.2"


def wire_address(number: int) -> str:
    return f"10.91.0.{number + 1}"


def service_address(number: int) -> str:
    """The address at which the host reaches its NIC for control."""
    return f"192.168.{100 + number}.2"


def test_address(number: int) -> str:
    """The address of a host's machine in the network of the test."""
    return f"10.99.0.{number + 1}"


def nic(number: int) -> Cables:
    n, mac = number, f"52:54:00:90:{number:02}"
    lone, leg = f"172.17.{n}.1/24", f"{nic_leg_address(n)}/24"
    lone_wire, wire = f"172.18.{n}.1/24", f"{wire_address(n)}/24"
    return {
        f"leg{n}": Port("pf0hpf", f"{mac}:01", (lone, leg), NIC_LEG_DEVICE),
        "wire": Port("p0", f"{mac}:02", (lone_wire, wire), NIC_WIRE_DEVICE),
        f"control{n}": Port("tmfifo_net0", f"{mac}:03", (f"{service_address(n)}/24",)),
    }


def host(number: int) -> Cables:
    n, mac = number, f"52:54:00:91:{number:02}"
    addresses = f"172.16.{n}.1/24", f"10.90.{n}.1/24"
    return {
        f"leg{n}": Port(f"slot{n}", f"{mac}:01", addresses, f"hca{n}"),
        f"control{n}": Port(f"tmfifo_net{n}", f"{mac}:03", (f"192.168.{100 + n}.1/24",)),
    }


def hosts(machines: int) -> list[Cables]:
    """The ports of each x86 machine: one has both hosts, or each has one."""
    if machines == 1:
        return [{**host(0), **host(1)}]
    return [
        {**host(n), "test": Port("test", f"52:54:00:92:{n:02}:01", (f"{test_address(n)}/24",))}
        for n in range(NICS)
    ]


def options(cable: str, port: Port, netdev: str) -> list[str]:
    """QEMU's options for a port. netdev: the argument of -netdev, with the cable's name as id."""
    mtu = MTU if port.device == "-" else ROCE_MTU
    device = f"virtio-net-pci,netdev={cable},mac={port.mac},host_mtu={mtu},romfile="
    return ["-netdev", netdev, "-device", device]
