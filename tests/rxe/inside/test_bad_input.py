"""Wrong devices and addresses, too little locked memory, and a peer that cannot be reached."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest
from pyroute2 import IPRoute

import srdma
from srdma.demo_rxe import worker_options
from srdma.demo_stage import HostProcess
from srdma.embedded import find_worker
from tests.rxe.inside.conftest import A, B

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


def test_peers_nic_cannot_be_reached(stage):
    """Between hosts of its own: their legs, on the same devices, may not live through the cut."""
    with (
        srdma.Context(stage.secure.a) as ctx,
        srdma.PD(ctx, 512) as pd,
        closing(HostProcess("tests.rxe.inside.host_b")) as host_b,
    ):
        host_b.wait_until_up()
        options = {"timeout": stage.patience}
        theirs = {"peer": A, "identity": str(stage.identities / "host-b"), **options}
        listening = host_b.ask("listen", worker=str(stage.secure.b), options=theirs, size=4096)
        host_b.request("accept")
        with cut_wire(stage), pytest.raises(srdma.Error, match="WIRE_LOST"):
            address, identity = tuple(listening["address"]), stage.identities / "host-a"
            srdma.connect(address, pd, peer=B, identity=identity, **options)
        with pytest.raises(srdma.DeviceError, match="host B: "):
            host_b.answer()
