"""One of two virtual machines whose only network is a cable through tests/rxe/two_vms.py.

Machine 0 has 10.81.0.1 and machine 1 has 10.81.0.2, on the devices with the MACs that QEMU set.
Each has an rxe device on that interface, a worker, and identities from its scratch folder.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srdma.demo import rxe
from srdma.demo.rxe_stage import worker_options
from srdma.embedded import Embedded, Worker

IDENTITIES = Path(os.environ.get("SRDMA_VM_SCRATCH", "."), "identities")
CONTROL_PORT = 7001  # of host B, for requests


def address(machine: int) -> str:
    return f"10.81.0.{machine + 1}"


def mac(machine: int) -> str:
    return f"52:54:00:81:00:0{machine + 1}"


def netdev(machine: int) -> str:
    folders = Path("/sys/class/net").iterdir()
    found = [f.name for f in folders if (f / "address").read_text().strip() == mac(machine)]
    assert found, f"no network device has {mac(machine)}"
    return found[0]


@contextmanager
def worker(machine: int) -> Iterator[Worker]:
    """Runs this machine's worker on its device."""
    rxe.load()
    subprocess.run(["modprobe", "virtio_net"], check=True)
    end = rxe.End("rxe0", netdev(machine), address(machine))
    for words in (
        "ip link set lo up",
        f"ip addr add {end.address}/24 dev {end.netdev}",
        f"ip link set {end.netdev} up",
        f"rdma link add {end.device} type rxe netdev {end.netdev}",
    ):
        subprocess.run(words.split(), check=True)
    with Embedded() as nics:
        yield nics.launch(f"nic{machine}", worker_options(end))
