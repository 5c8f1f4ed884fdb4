"""SoftRoCE (rxe): kernel modules, and two RDMA devices joined by a veth pair.

Traffic inside one rxe device never reaches its network device. A pair therefore has one rxe device
on each end of a veth pair in one network namespace: all traffic passes over the veth, where
tcpdump and netem see it (RDMA across namespaces does not work on Linux 6.1). The active side of
rdma_cm must bind its source address; otherwise the kernel puts both sides on one device. All
functions need root.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

MODULES = ("ib_uverbs", "rdma_rxe", "rdma_ucm", "veth")
VETH_MTU = 4200  # room for a RoCE packet of MTU 4096
DELETE_SECONDS = 5
SYSCTL = Path("/proc/sys/net/ipv4/conf")


class RxeError(RuntimeError):
    """An rxe device cannot be created here; the text has the reason."""


@dataclass(frozen=True)
class End:
    """One end of a pair: RDMA device, the network device below it, its address."""

    device: str
    netdev: str
    address: str


def unavailable() -> str | None:
    """Why rxe devices cannot be made here, or None if they can."""
    if os.geteuid() != 0:
        return "only root can create rxe devices: run as root"
    for program, package in (("modprobe", "kmod"), ("rdma", "iproute2")):
        if shutil.which(program) is None:
            return f"the program {program} is missing: install the package {package}"
    try:
        load()
    except RxeError as error:
        return str(error)
    return None


def load() -> None:
    """Load the kernel modules that rxe, verbs, rdma_cm and pair() need. Raises RxeError."""
    done = subprocess.run(["modprobe", "-a", *MODULES], capture_output=True, text=True)
    missing = [m for m in MODULES if not Path("/sys/module", m).exists()]
    if missing:
        kernel, why = os.uname().release, done.stderr.strip().splitlines()[-1:]
        raise RxeError(f"kernel {kernel} cannot load {', '.join(missing)}: {''.join(why)}")


@contextmanager
def pair(name: str = "srdma", network: str = "10.77.0", mtu: int = VETH_MTU) -> Iterator[list[End]]:
    """Two rxe devices, NAMErxe0 and NAMErxe1, over the veth pair NAMEv0, NAMEv1.

    Their addresses are NETWORK.1 and NETWORK.2; mtu: bytes. Devices of an earlier run with that
    name are replaced. All devices are removed at the end. Raises RxeError.
    """
    load()
    ends = [End(f"{name}rxe{i}", f"{name}v{i}", f"{network}.{i + 1}") for i in (0, 1)]
    with IPRoute() as ip, ExitStack() as undo:
        _remove(ip, ends)
        undo.callback(_remove, ip, ends)
        _make_veth(ip, ends, mtu)
        for end in ends:
            _accept_local(undo, end.netdev)
            _rdma("link", "add", end.device, "type", "rxe", "netdev", end.netdev)
        _accept_local(undo, "all")
        yield ends


def _make_veth(ip: IPRoute, ends: list[End], mtu: int) -> None:
    ip.link("set", index=_index(ip, "lo"), state="up")
    ip.link("add", ifname=ends[0].netdev, kind="veth", peer={"ifname": ends[1].netdev})
    for end in ends:
        index = _index(ip, end.netdev)
        ip.link("set", index=index, mtu=mtu, state="up")
        ip.addr("add", index=index, address=end.address, prefixlen=24)


def _index(ip: IPRoute, netdev: str) -> int:
    index: int = ip.link_lookup(ifname=netdev)[0]
    return index


def _accept_local(undo: ExitStack, netdev: str) -> None:
    """Accept packets that arrive with a source address of this host."""
    for setting, value in (("accept_local", "1"), ("rp_filter", "0")):
        path = SYSCTL / netdev / setting
        if netdev == "all":
            undo.callback(path.write_text, path.read_text())
        path.write_text(value)


def _remove(ip: IPRoute, ends: list[End]) -> None:
    """Remove the devices. The kernel deletes a device only after its last user closed it, and
    librdmacm keeps it open until the process ends: after DELETE_SECONDS the removal is left to
    the next run."""
    for end in ends:
        if Path("/sys/class/infiniband", end.device).exists():
            try:
                subprocess.Popen(["rdma", "link", "delete", end.device]).wait(DELETE_SECONDS)
            except subprocess.TimeoutExpired:
                return
    with suppress(NetlinkError, IndexError):
        ip.link("del", index=_index(ip, ends[0].netdev))


def _rdma(*args: str) -> None:
    """The rdma command of iproute2: pyroute2 has no RDMA netlink family."""
    done = subprocess.run(["rdma", *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise RxeError(f"rdma {' '.join(args)}: {done.stderr.strip()}")
