"""One of two virtual machines whose only network is a cable through tests/rxe/two_vms.py.

Machine 0 has 10.81.0.1 and machine 1 has 10.81.0.2, on the devices with the MACs that QEMU set.
Each has an rxe device on that interface, a worker, and identities from its scratch folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srdma.demo import rxe
from srdma.demo.rxe_stage import worker_options
from srdma.embedded import Embedded, Worker
from tests.rxe.ports import Port, configure

IDENTITIES = Path(os.environ.get("SRDMA_VM_SCRATCH", "."), "identities")


def address(machine: int) -> str:
    return f"10.81.0.{machine + 1}"


def mac(machine: int) -> str:
    return f"52:54:00:81:00:0{machine + 1}"


def rdma(machine: int) -> rxe.End:
    return rxe.End("rxe0", "cable", address(machine))


@contextmanager
def worker(machine: int) -> Iterator[Worker]:
    """Runs this machine's worker on its device."""
    end = rdma(machine)
    configure([Port(end.netdev, mac(machine), (f"{end.address}/24",), end.device)])
    with Embedded() as nics:
        yield nics.launch(f"nic{machine}", worker_options(end))
