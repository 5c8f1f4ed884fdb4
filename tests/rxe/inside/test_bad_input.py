"""Wrong devices and addresses, too little locked memory, and a peer that cannot be reached."""

from __future__ import annotations

import subprocess

import pytest

import srdma
from srdma.demo.rxe_stage import worker_options
from srdma.embedded import find_worker
from tests.rxe.inside.conftest import A, B
from tests.rxe.inside.netem import CUT, netem

# Makes a root process subject to its limit of locked memory.
WITHOUT_IPC_LOCK = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]


@pytest.fixture
def refused(stage, tmp_path):
    """Returns a function that starts a worker with wrong options and returns its error text."""

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
    assert f"{there.address}:0 is not an address of {here.device}" in words
    assert "192.0.2.1:0" in refused(*options, "--wire-listen", "192.0.2.1:0")
    assert "is not IP:PORT" in refused(*options, "--wire-listen", "here")


def test_worker_with_too_little_locked_memory(stage, refused):
    limit = ("prlimit", "--memlock=65536", *WITHOUT_IPC_LOCK, "--")
    assert "ulimit -l" in refused(*worker_options(stage.ends[0]), before=limit)


def test_unreachable_nic_of_the_peer(stage, host_b, pd, connected):
    """The cable is cut. Afterwards NIC B accepts a new leg, and the same hosts connect.

    netem cuts it, because rxe needs its interface to be up even for local traffic
    (docs/rdma.md).
    """
    options = {"timeout": stage.patience}
    theirs = {"peer": A, "identity": str(stage.identities / "host-b"), **options}
    worker = stage.secure.b
    listening = host_b.ask("listen", worker=str(worker), options=theirs, size=4096)
    host_b.request("accept")
    with netem(stage.ends, CUT), pytest.raises(srdma.Error, match="WIRE_LOST"):
        address, identity = tuple(listening["address"]), stage.identities / "host-a"
        srdma.connect(address, pd, peer=B, identity=identity, **options)
    with pytest.raises(srdma.DeviceError, match=r"host B: .*(WIRE_LOST|peer reports)"):
        host_b.answer()
    with srdma.Context(worker) as ctx, srdma.PD(ctx, 64):
        pass
    with connected(pd, size=4096) as (connection, remote):
        connection.qp.write(b"again", remote)
        assert connection.qp.read(remote, 0, 5) == b"again"
