"""Many processes under `srdma run` that connect to each other, all to all (docs/run.md)."""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import gid_hosts
from tests.e2e.test_run import LIBRARY, Hosts

MESH = Path("build/tests/e2e/verbs/mesh").resolve()
LIMIT = 500  # seconds; each process ends itself before
COUNT = 100  # processes of one host
MOST = 16  # of them that are connected all to all

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (LIBRARY.exists() and MESH.exists()),
        reason="no build/run/libibverbs.so.1 or mesh: make run host-tests",
    ),
]


@pytest.fixture
def hosts(pki: Path, tmp_path: Path) -> Iterator[Hosts]:
    with gid_hosts(pki, tmp_path) as place:
        yield Hosts(place, tmp_path)


def mesh(hosts: Hosts, folder: Path, names: str) -> list[subprocess.Popen[str]]:
    """A process on each named host; they connect to each other."""
    folder.mkdir()
    return [
        hosts.start(name, [str(MESH), str(folder), str(rank), str(len(names))])
        for rank, name in enumerate(names)
    ]


def ended(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Their outputs; all must succeed."""
    outputs = [process.communicate(timeout=LIMIT)[0] for process in processes]
    for process, out in zip(processes, outputs, strict=True):
        assert process.returncode == 0, out
    return outputs


def test_processes_of_two_hosts_all_to_all(hosts: Hosts, tmp_path: Path) -> None:
    before = hosts.sealed()
    ended(mesh(hosts, tmp_path / "mesh", "abab"))
    assert all(now > then for now, then in zip(hosts.sealed(), before, strict=True))


@pytest.mark.soak
def test_a_hundred_processes_of_one_host(hosts: Hosts, tmp_path: Path) -> None:
    pairs = [mesh(hosts, tmp_path / str(n), "aa") for n in range((COUNT - MOST) // 2)]
    outputs = ended(mesh(hosts, tmp_path / "mesh", "a" * MOST))
    for processes in pairs:
        outputs += ended(processes)
    assert len(outputs) == COUNT
    for what, unit in (("connected after", "s"), ("memory", "KiB")):
        values = sorted(float(out.split(what)[1].split()[0]) for out in outputs)
        print(f"{what}: median {values[COUNT // 2]:.3f} {unit}, most {values[-1]:.3f} {unit}")
    print(f"memory of the worker: {_memory_of(hosts)}")


def _memory_of(hosts: Hosts) -> str:
    """VmHWM of the worker of host a."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(str(hosts.place.a.ctx.path))
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, _, _ = struct.unpack("3i", credentials)
    status = Path(f"/proc/{pid}/status").read_text()
    return status.split("VmHWM:")[1].split("\n")[0].strip()
