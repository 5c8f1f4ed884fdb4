"""The host's own device for a leg over verbs: GID tables, routes and scopes."""

from __future__ import annotations

from pathlib import Path

import pytest

from srdma._engine import host_device
from srdma._engine.host_device import Route, route
from srdma.errors import DeviceError

V2, V1 = "RoCE v2", "IB/RoCE v1"


def mapped(ip: str) -> str:
    parts = [int(part) for part in ip.split(".")]
    return (
        f"0000:0000:0000:0000:0000:ffff:{parts[0]:02x}{parts[1]:02x}:{parts[2]:02x}{parts[3]:02x}"
    )


def device(root: Path, name: str, *gids: tuple[str, str, str]) -> None:
    """Writes /sys/class/infiniband/NAME as the kernel does: (GID, type, network device) each."""
    port = root / name / "ports" / "1"
    for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (port / folder).mkdir(parents=True)
    for number, (gid, kind, netdev) in enumerate(gids):
        (port / "gids" / str(number)).write_text(gid + "\n")
        (port / "gid_attrs/types" / str(number)).write_text(kind + "\n")
        (port / "gid_attrs/ndevs" / str(number)).write_text(netdev + "\n")
    (port / "gids" / str(len(gids))).write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    (port / "gids" / str(len(gids) + 1)).write_text(mapped("10.9.9.9") + "\n")  # without a type


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(host_device, "INFINIBAND", tmp_path)
    return tmp_path


@pytest.fixture
def sources(monkeypatch):
    """The kernel's routes: (network device, target) -> source address."""
    known: dict[tuple[str, str], str] = {}

    def source(netdev, target):
        text = known.get((netdev, str(target)))
        return host_device.ipaddress.ip_address(text) if text else None

    monkeypatch.setattr(host_device, "_source", source)
    return known


@pytest.mark.parametrize("peer", ["10.0.0.1", "2001:db8::1", "169.254.0.1"])
def test_without_a_name_the_kernel_routes(root, peer):
    assert route(peer, None) == Route(None, peer)


def test_unknown_device_is_refused_with_the_names_of_the_others(root):
    device(root, "mlx5_1")
    device(root, "mlx5_0")
    with pytest.raises(
        DeviceError, match=r"'rxe9' is no RDMA device of .* has mlx5_0, mlx5_1: name"
    ):
        route("10.0.0.1", "rxe9")


def test_named_device_on_a_host_without_devices(root):
    root.rmdir()
    with pytest.raises(DeviceError, match=r"'rxe0' is no RDMA device of this host, which has none"):
        route("10.0.0.1", "rxe0")


def test_second_subnet_of_a_device_is_the_source_by_route(root, sources):
    device(
        root,
        "rxe0",
        ("fe80:0000:0000:0000:0000:0000:0000:0001", V2, "eth0"),
        (mapped("192.168.7.1"), V1, "eth0"),
        (mapped("192.168.7.1"), V2, "eth0"),
        (mapped("10.0.0.2"), V2, "eth0"),
    )
    sources["eth0", "10.0.0.1"] = "10.0.0.2"
    assert route("10.0.0.1", "rxe0") == Route("10.0.0.2", "10.0.0.1")


def test_source_of_a_vlan_of_the_device(root, sources):
    gids = (mapped("10.0.0.2"), V2, "eth0"), (mapped("10.7.0.2"), V2, "eth0.7")
    device(root, "rxe0", *gids)
    sources["eth0", "10.7.0.1"] = "10.3.3.3"  # an address that RDMA does not have
    sources["eth0.7", "10.7.0.1"] = "10.7.0.2"
    assert route("10.7.0.1", "rxe0") == Route("10.7.0.2", "10.7.0.1")


def test_device_without_a_route_is_left_to_rdma_cm(root, sources):
    device(root, "rxe0", (mapped("10.0.0.2"), V2, "eth0"))
    assert route("10.5.0.1", "rxe0") == Route("10.0.0.2", "10.5.0.1")


def test_device_without_an_address_of_the_family(root, sources):
    link_local = ("fe80:0000:0000:0000:0000:0000:0000:0001", V2, "eth0")
    device(root, "rxe0", link_local, (mapped("10.0.0.2"), V1, "eth0"))
    device(root, "rxe1", (mapped("10.0.0.2"), V2, "eth0"))
    with pytest.raises(DeviceError, match=r"rxe0 has no IPv4 address to reach 10\.0\.0\.1 from"):
        route("10.0.0.1", "rxe0")
    with pytest.raises(DeviceError, match="rxe0 has no IPv6 address to reach 2001:db8::1"):
        route("2001:db8::1", "rxe0")
    with pytest.raises(DeviceError, match="rxe1 has no link-local IPv6 address"):
        route("fe80::9", "rxe1")


def test_ipv6_gid(root, sources):
    device(
        root,
        "rxe0",
        ("fe80:0000:0000:0000:0000:0000:0000:0001", V2, "eth0"),
        ("2001:0db8:0000:0000:0000:0000:0000:0002", V2, "eth0"),
    )
    sources["eth0", "2001:db8::1"] = "2001:db8::2"
    assert route("2001:db8::1", "rxe0") == Route("2001:db8::2", "2001:db8::1")
    assert route("fe80::9", "rxe0") == Route("fe80::1%eth0", "fe80::9%eth0")


def test_link_local_peer_needs_one_interface_or_a_device(root):
    link_local = "fe80:0000:0000:0000:0000:0000:0000:000{}"
    with pytest.raises(DeviceError, match="and 0 network devices"):
        route("fe80::9", None)
    device(root, "rxe0", (link_local.format(1), V1, "eth0"), (link_local.format(1), V2, "eth0"))
    assert route("fe80::9", None) == Route(None, "fe80::9%eth0")
    device(root, "rxe1", (link_local.format(2), V2, "eth1"))
    with pytest.raises(
        DeviceError, match=r"and 2 network devices .* choose the RDMA device by dev"
    ):
        route("fe80::9", None)


def test_source_address_of_the_kernels_route():
    loopback = host_device.ipaddress.ip_address("127.0.0.1")
    assert host_device._source("lo", loopback) == loopback
    assert host_device._source("nodev", loopback) is None
