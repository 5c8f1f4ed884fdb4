"""`srdma doctor` about a NIC with an agent, and about a host with a proxy (docs/smartnic.md 6)."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srdma import errors
from srdma._engine import host_device
from srdma.agent.clock import ClockRule, SystemClock
from srdma.agent.settings import Identity
from srdma.cli import doctor_host, doctor_nic, leg_link
from srdma.cli.finding import Finding
from srdma.cli.leg_link import Hop
from srdma.control import HostKind
from srdma.identity import Credentials, create_ca, issue, parse_certificates

ADDRESS = "10.9.0.2"
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/smartnic.md"


# The link of a leg --------------------------------------------------------------------


def netdev(net: Path, name: str, kind: str = "1") -> Path:
    (net / name).mkdir(parents=True)
    (net / name / "type").write_text(f"{kind}\n")
    return net / name


def function(tmp_path: Path, slot: str, ids: str, driver: str) -> Path:
    """A PCI function in a tree like that of /sys/devices."""
    folder = tmp_path / "devices/pci0000:00" / slot
    folder.mkdir(parents=True)
    for name, value in zip(("vendor", "device"), ids.split(":"), strict=True):
        (folder / name).write_text(f"0x{value}\n")
    (tmp_path / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    (folder / "driver").symlink_to(tmp_path / "drivers" / driver)
    return folder


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """Network devices: `nic`, a function of a SmartNIC; `vf` and `sf`, its virtual and scalable
    function; `plain`, another NIC; `bond`, `mixed` and `vlan` above them; `veth`."""
    net = tmp_path / "net"
    nic = function(tmp_path, "0000:03:00.0", "15b3:a2d6", "mlx5_core")
    vf = function(tmp_path, "0000:03:00.2", "15b3:101e", "mlx5_core")
    (vf / "physfn").symlink_to(nic)
    sf = nic / "mlx5_core.sf.2"
    sf.mkdir()
    plain = function(tmp_path, "0000:04:00.0", "15b3:101d", "mlx5_core")
    for name, folder in (("nic", nic), ("vf", vf), ("sf", sf), ("plain", plain)):
        (netdev(net, name) / "device").symlink_to(folder)
    for name, lower in (("bond", ("nic", "vf")), ("mixed", ("nic", "plain")), ("vlan", ("nic",))):
        folder = netdev(net, name)
        for each in lower:
            (folder / f"lower_{each}").symlink_to(net / each)
    netdev(net, "veth")
    (netdev(net, "ib", "32") / "device").symlink_to(plain)
    return net


@pytest.mark.parametrize("name", ["nic", "vf", "sf", "bond", "vlan"])
def test_function_of_a_smartnic(net: Path, name: str) -> None:
    found = leg_link.judge(ADDRESS, Hop(name), net)
    text = f"{ADDRESS} over {name} (mlx5_core), a function of this BlueField-2"
    assert found == Finding("leg's link", "ok", text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain", "plain (mlx5_core): Ethernet, and not known as a function of a SmartNIC"),
        ("mixed", "mixed (mlx5_core): Ethernet, and not known"),
        ("veth", "veth (no hardware): Ethernet, and not known"),
        ("ib", "ib (mlx5_core): InfiniBand, and not known"),
        ("gone", "gone (no hardware): a network, and not known"),
    ],
)
def test_link_that_others_may_reach(net: Path, name: str, text: str) -> None:
    found = leg_link.judge(ADDRESS, Hop(name), net)
    assert found.state == "note" and found.remedy
    assert text in found.detail
    assert "the data and the token of a leg are visible there" in found.detail


def test_gateway_on_the_way_to_the_leg(net: Path) -> None:
    found = leg_link.judge(ADDRESS, Hop("nic", "10.8.0.1"), net)
    assert found.state == "note" and "the gateway 10.8.0.1" in found.detail


def test_leg_of_this_machine() -> None:
    assert leg_link.leg_link("127.0.0.1", None) == Finding(
        "leg's link", "ok", "127.0.0.1 is an address of this machine"
    )


def test_no_route_to_the_leg(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_hop(address: str, name: str | None) -> Hop:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(leg_link, "first_hop", first_hop)
    found = leg_link.leg_link(ADDRESS, None)
    assert found.state == "note" and "no route to the leg's address 10.9.0.2" in found.detail


def test_unknown_device_of_the_host() -> None:
    found = leg_link.leg_link(ADDRESS, "no-such-device")
    assert found.state == "note" and "'no-such-device' is no RDMA device" in found.detail


@pytest.mark.parametrize(
    ("peer", "device", "wanted"),
    [
        (ADDRESS, None, (ADDRESS, None)),
        (ADDRESS, "mlx5_0", (ADDRESS, "eth2")),
        ("fe80::2", "mlx5_0", ("fe80::2", "eth1")),
        ("fe80::2", None, ("fe80::2", "eth1")),
    ],
)
def test_device_of_the_route(
    peer: str, device: str | None, wanted: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The route is asked for at the network device whose address the leg will have."""
    gids = (("10.8.0.1", "eth1"), ("10.9.0.1", "eth2"), ("fe80::1", "eth1"))
    table = [host_device.Gid(ipaddress.ip_address(each), name) for each, name in gids]
    monkeypatch.setattr(host_device, "devices", lambda: ["mlx5_0"])
    monkeypatch.setattr(host_device, "gids", lambda _: iter(table))
    routes = {"eth2": table[1].address}
    monkeypatch.setattr(host_device, "_source", lambda name, _: routes.get(name))
    asked: list[tuple[str, str | None]] = []
    monkeypatch.setattr(leg_link, "first_hop", lambda *args: asked.append(args) or Hop("eth2"))
    assert leg_link.leg_link(peer, device).state == "note"
    assert asked == [wanted]


# The host --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "state", "text"),
    [(60, "ok", "60 s ahead"), (-60, "ok", "60 s behind"), (61, "note", "61 s ahead")],
)
def test_clock_of_the_nic(ahead: int, state: str, text: str) -> None:
    status = {"peer": "spiffe://test/nic", "computer": "dpu", "nic": "10.0.0.2:1", "ahead": ahead}
    found = doctor_host.link_to_nic("/run/agent.sock", status)
    assert (found.state, text in found.detail) == (state, True)


class FakeContext:
    """A Context at a worker over verbs, whose legs are at `address`."""

    device = None

    def __init__(self, address: str) -> None:
        self._address = address
        self.hello = SimpleNamespace(
            name="nica", wire="10.0.0.1:4791", host_device="mlx5_2", threads=4,
            host_kind=HostKind.VERBS,
        )  # fmt: skip

    def connect(self) -> Any:
        info = SimpleNamespace(address=self._address)
        return SimpleNamespace(open=lambda ring: (info, []), close=lambda: None)


@pytest.mark.parametrize(
    ("address", "plain"), [("127.0.0.1:7001", "127.0.0.1"), ("[::1]:7001", "::1")]
)
def test_worker_of_the_nic(address: str, plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def context(worker: Path | None, agent: str) -> Iterator[FakeContext]:
        assert (worker, agent) == (None, "/run/proxy.sock")
        yield FakeContext(address)

    def refused(*_: object) -> None:
        raise errors.DeviceError("no answer in time")

    monkeypatch.setattr(doctor_host, "Context", context)
    monkeypatch.setattr(doctor_host.util, "find_spec", lambda _: object())
    monkeypatch.setattr(doctor_host, "PD", lambda *_: SimpleNamespace(close=lambda: None))
    worker, link, leg = doctor_host.worker_of_nic("/run/proxy.sock")
    assert (worker.name, worker.state) == ("NIC's worker", "ok")
    assert "nica: wire 10.0.0.1:4791, its device for hosts mlx5_2, 4 processes" in worker.detail
    assert (link.state, link.detail) == ("ok", f"{plain} is an address of this machine")
    assert (leg.name, leg.state) == ("leg", "ok")
    monkeypatch.setattr(doctor_host, "PD", refused)
    assert [each.state for each in doctor_host.worker_of_nic("/run/proxy.sock")][2] == "note"
    monkeypatch.setattr(doctor_host.util, "find_spec", lambda _: None)
    *_, leg = doctor_host.worker_of_nic("/run/proxy.sock")
    assert leg.detail == "not tried without pyverbs"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_ca(tmp_path, "test")
    issue(tmp_path, "spiffe://test/a", tmp_path / "a")
    return tmp_path


PROXY = """nic = "127.0.0.1:4794"
control = "a"
peer = "spiffe://test/nic"
"""


def test_file_of_the_proxy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRDMA_AGENT", "/nonexistent/other")
    file = folder / "proxy.toml"
    (found,) = doctor_host.agents(file)
    assert (found.name, found.state) == ("proxy file", "missing")
    file.write_text(PROXY + f'socket = "{folder}/agent.sock"\n[[identity]]\nname = "a"\n')
    found, certificate, agent = doctor_host.agents(file)
    assert [found.state, certificate.state, agent.state] == ["ok", "ok", "note"]
    assert f"no agent at {folder}/agent.sock" in agent.detail
    file.write_text(PROXY + 'forward = "/run/nic.ctl"\nworker = "/run/nic.ctl"\n')
    found, certificate, worker = doctor_host.agents(file)
    assert (found.state, certificate.state, worker.state) == ("note", "ok", "note")
    assert "root of this host sees the private keys of identities" in found.detail
    assert "no worker at /run/nic.ctl" in worker.detail
    assert "this user must be that of the proxy" in worker.remedy


# The NIC -----------------------------------------------------------------------------------


class Clock(SystemClock):
    """A clock that is ahead of the real one."""

    def __init__(self, ahead: dt.timedelta) -> None:
        self._ahead = ahead.total_seconds()

    def time(self) -> float:
        return super().time() + self._ahead


@pytest.mark.parametrize(
    ("left", "state"), [(8.0, "ok"), (6.9, "note"), (-0.1, "missing"), (None, "missing")]
)
def test_certificate(left: float | None, state: str, folder: Path) -> None:
    """left: days until its end; None: the clock is before its beginning."""
    credentials = Credentials.named(folder / "a")
    end = parse_certificates(credentials.cert, "a")[0].not_valid_after_utc
    ahead = dt.timedelta(days=-9999)
    if left is not None:
        ahead = end - dt.datetime.now(dt.UTC) - dt.timedelta(days=left)
    for demand in ("plausible", "control"):
        rule = ClockRule(demand, (), Clock(ahead))
        found = doctor_nic.certificate("a", Identity(credentials, (), clock=rule))
        assert found.state == state
        assert ("the clock of this machine is wrong" in found.detail) == (left is None)


POLICY = """worker = "{folder}/worker.sock"
socket = "{folder}/agent.sock"
[[identity]]
name = "a"
path = "a"
"""
HOSTS = """[control]
listen = "127.0.0.1:4794"
path = "a"
[[host]]
name = "left"
identity = "spiffe://test/left"
identities = ["a"]
"""


def test_policy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "agent.toml"
    (found,) = doctor_nic.nic(file)
    assert (found.name, found.state) == ("policy", "missing")
    file.write_text(POLICY.format(folder=folder))
    found = list(doctor_nic.nic(file))
    assert [(each.name, each.state) for each in found] == [
        ("policy", "note"), ("certificate", "ok"), ("agent", "note"), ("policy's worker", "note"),
    ]  # fmt: skip
    assert "no host can use this worker" in found[0].detail
    file.write_text(POLICY.format(folder=folder) + HOSTS)
    found = list(doctor_nic.nic(file))
    assert found[0] == Finding("policy", "ok", f"{file}: hosts left")
    monkeypatch.setattr(doctor_nic, "proxy_status", lambda *_: {"event": "status"})
    assert f"a proxy is at {folder}/agent.sock" in [each.detail for each in doctor_nic.nic(file)]
    assert [each.detail.partition(":")[0] for each in found[1:3]] == ["a", "[control]"]


def hello(kind: HostKind, device: str, wire: str = "10.0.0.1:7001") -> Any:
    return SimpleNamespace(
        name="nica", pid=1, wire=wire, threads=1, host_kind=kind, host_device=device
    )


@pytest.mark.parametrize(
    ("answer", "hosts", "state", "text"),
    [
        (hello(HostKind.SHM, ""), True, "note", "serves programs of this machine only"),
        (hello(HostKind.SHM, ""), False, "ok", "wire 10.0.0.1:7001"),
        (hello(HostKind.VERBS, "mlx5_3"), True, "note", "legs and wire use the same device mlx5_3"),
        (hello(HostKind.VERBS, "mlx5_2"), True, "ok", "device for hosts mlx5_2"),
        (hello(HostKind.VERBS, "mlx5_3", "[::9]:1"), True, "ok", "device for hosts mlx5_3"),
        (hello(HostKind.VERBS, "mlx5_3", "shm:/x"), True, "ok", "device for hosts mlx5_3"),
    ],
)
def test_worker_of_the_policy(
    answer: Any, hosts: bool, state: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = host_device.Gid(ipaddress.ip_address("10.0.0.1"), "eth3")
    monkeypatch.setattr(host_device, "devices", lambda: ["mlx5_3"])
    monkeypatch.setattr(host_device, "gids", lambda _: iter([wire]))
    monkeypatch.setattr(doctor_nic, "_hellos", lambda *_: iter([answer]))
    policy: Any = SimpleNamespace(worker=Path("/w"), worker_user=None, hosts={"left": hosts})
    policy.hosts = {"left": 1} if hosts else {}
    found = doctor_nic.worker_for_hosts(policy)
    assert (found.state, text in found.detail) == (state, True)


def test_list_of_the_page() -> None:
    """docs/smartnic.md 6 names lines that doctor prints."""
    rows = re.findall(r"^\| (?:NIC|host|both) \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert len(names) > 10
    code = "".join(file.read_text() for file in (ROOT / "srdma/cli").glob("*.py"))
    assert {name for name in names if f'"{name}"' not in code} == set()
