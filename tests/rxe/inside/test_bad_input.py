"""Wrong devices and addresses, too little locked memory, and a peer that cannot be reached."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import pytest
from pyroute2 import IPRoute

import srdma
from srdma.demo_rxe import worker_options
from srdma.embedded import find_worker

# A process that may not lock memory beyond its limit, though it is root's.
WITHOUT_IPC_LOCK = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]


@pytest.fixture
def refused(stage, tmp_path):
    """The words of a worker that does not start with these options."""

    def run(*options: str, before: tuple[str, ...] = ()) -> str:
        command = [*before, str(find_worker()), "--name", "x", "--control", f"{tmp_path}/x.ctl"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1, done
        return done.stderr

    return run


def test_unknown_device(stage, refused):
    device = stage.ends[0].device
    for options in (["nix0", device], [device, "nix0"]):
        words = refused("--host-dev", options[0], "--wire-dev", options[1])
        assert "no RDMA device nix0" in words
        assert "rdma link" in words


def test_address_of_another_device(stage, refused):
    here, there = stage.ends
    options = ["--host-dev", here.device, "--wire-dev", here.device]
    words = refused(*options, "--wire-listen", f"{there.address}:0")
    assert f"{there.address}:0 is no address of {here.device}" in words
    assert "192.0.2.1:0" in refused(*options, "--wire-listen", "192.0.2.1:0")
    assert "is no IP:PORT" in refused(*options, "--wire-listen", "here")


def test_worker_with_too_little_locked_memory(stage, refused):
    limit = ("prlimit", "--memlock=65536", *WITHOUT_IPC_LOCK, "--")
    assert "ulimit -l" in refused(*worker_options(stage.ends[0]), before=limit)


@contextlib.contextmanager
def cut_wire(stage) -> Iterator[None]:
    """The cable of NIC B is pulled. TCP between the hosts does not use it."""
    with IPRoute() as ip:
        index = ip.link_lookup(ifname=stage.ends[1].netdev)[0]
        ip.link("set", index=index, state="down")
        try:
            yield
        finally:
            ip.link("set", index=index, state="up")


def test_peers_nic_cannot_be_reached(stage, connected, pd):
    with connected(pd, size=4096):
        pass  # both hosts have their legs: what is cut is the wire between the NICs
    with cut_wire(stage), pytest.raises(srdma.Error, match="WIRE_LOST"), connected(pd, size=4096):
        pass
