"""UCX, libfabric and Open MPI of Debian, unmodified, over `srdma run` (docs/run.md 6.3)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import cable, test_run
from tests.e2e.agents import gid_hosts
from tests.e2e.conftest import A, B
from tests.e2e.test_run import LIMIT, Ended, Hosts, _listens, ended, needs, runs_protected
from tests.ports import free_port

# libfabric uses a device only if a network interface, other than the loopback, has its address;
# to look for devices it binds to 127.0.0.1.
GIDS = {"a": ("127.0.1.1", A), "b": ("127.0.1.2", B)}
SOURCES = Path(__file__).parent / "stack"
PINGPONG_PORT = 47592  # of fi_pingpong

pytestmark = test_run.pytestmark
run_hosts = test_run.hosts


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A network namespace with an interface that has the GIDs of both hosts."""
    if reason := cable.why_not():
        pytest.skip(reason)
    name = f"srdma-stack-{os.getpid()}"
    _ip("netns", "add", name)
    try:
        _ip("-n", name, "link", "add", "v", "type", "veth", "peer", "name", "w")
        for gid, _ in GIDS.values():
            _ip("-n", name, "address", "add", f"{gid}/32", "dev", "v")
        for device in ("v", "w", "lo"):
            _ip("-n", name, "link", "set", device, "up")
        yield name
    finally:
        _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture(scope="module")
def hosts(pki: Path, tmp_path_factory: pytest.TempPathFactory, namespace: str) -> Iterator[Hosts]:
    """Hosts whose programs are in the namespace. They reach worker and agent by Unix sockets."""
    folder = tmp_path_factory.mktemp("stacks")
    with gid_hosts(pki, folder, gids=GIDS) as place:
        yield Hosts(place, folder, inside=("nsenter", f"--net=/run/netns/{namespace}"))


def _all_good(hosts: Hosts, before: list[int], *results: Ended) -> None:
    """All programs succeeded, and each worker has sealed packets since."""
    for code, out in results:
        assert code == 0, out
    assert all(now > then for now, then in zip(hosts.sealed(), before, strict=True))


def _compile(compiler: str, name: str, folder: Path, *libraries: str) -> str:
    """A program of stack/ for a library that the build does not need."""
    words = [compiler, "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]
    source, program = SOURCES / f"{name}.c", folder / name
    subprocess.run([*words, "-o", str(program), str(source), *libraries], check=True)
    return str(program)


# UCX ----------------------------------------------------------------------------


def _ucx(run_hosts: Hosts, words: str) -> None:
    needs("ucx_perftest", "ucx-utils")
    device = "-d srdma0:1 -x rc_verbs -n 1000 -w 10"
    runs_protected(run_hosts, ["ucx_perftest", *device.split(), *words.split()])


def test_ucx(run_hosts: Hosts) -> None:
    _ucx(run_hosts, "-t put_lat")


@pytest.mark.soak
@pytest.mark.parametrize(
    "words",
    [
        "-t am_lat",
        "-t am_bw -s 8000 -D bcopy",
        "-t am_bw -s 8000 -D zcopy",
        "-t put_bw -s 400",
        "-t put_bw -s 8000 -D bcopy",
        "-t put_bw -s 1000000 -n 100 -D zcopy",
        "-t get -s 8000 -D bcopy",
        "-t get -s 1000000 -n 100 -D zcopy",
        "-t add_mr -s 8",
        "-t fadd -s 8",
        "-t cswap -s 8",
    ],
)
def test_ucx_operations(run_hosts: Hosts, words: str) -> None:
    _ucx(run_hosts, words)


# Endpoints by the address of a worker: UD is for the messages that connect them.
WORKER = "UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=srdma0:1"


def _by_address_of_worker(run_hosts: Hosts, words: str) -> None:
    needs("ucx_perftest", "ucx-utils")
    before = run_hosts.sealed()
    port = str(free_port())
    program = ["env", *WORKER.split(), "ucx_perftest", "-p", port, "-w", "10", *words.split()]
    server = run_hosts.start("b", program)
    _listens(server, int(port))
    client = run_hosts.start("a", [*program, "127.0.0.1"])
    _all_good(run_hosts, before, ended(client), ended(server))


def test_ucp_by_address_of_worker(run_hosts: Hosts) -> None:
    _by_address_of_worker(run_hosts, "-t tag_lat -n 1000")


@pytest.mark.soak
@pytest.mark.parametrize(
    "words",
    [
        "-t tag_bw -n 1000 -s 8000",
        "-t tag_bw -n 100 -s 1000000",
        "-t ucp_put_lat -n 1000",
        "-t ucp_put_bw -n 1000 -s 8000",
        "-t ucp_get -n 100 -s 100000",
        "-t stream_bw -n 1000 -s 8000",
        "-t ucp_am_lat -n 1000",
        "-t ucp_fadd -n 1000",
        "-t ucp_cswap -n 1000",
    ],
)
def test_ucp_operations(run_hosts: Hosts, words: str) -> None:
    _by_address_of_worker(run_hosts, words)


# Endpoints by the address of a listener. The messages that connect them go by RDMA-CM, or by TCP.
BY_CM = "env UCX_TLS=rc_verbs,self UCX_NET_DEVICES=srdma0:1 UCX_SOCKADDR_TLS_PRIORITY=rdmacm"
BY_TCP = (
    "env UCX_TLS=rc_verbs,self,tcp UCX_NET_DEVICES=srdma0:1,lo UCX_SOCKADDR_TLS_PRIORITY=tcp "
    "UCX_MAX_EAGER_RAILS=1 UCX_MAX_RNDV_RAILS=1"
)
LENGTH = 1 << 20  # of ucp.c


@pytest.mark.parametrize(
    ("words", "address"),
    [(BY_CM, "127.0.0.2"), pytest.param(BY_TCP, "127.0.0.1", marks=pytest.mark.soak)],
    ids=["RDMA-CM", "TCP"],
)
def test_ucp(run_hosts: Hosts, tmp_path: Path, words: str, address: str) -> None:
    """Nothing of the data goes over TCP: the workers seal at least as many bytes."""
    if not Path("/usr/include/ucp/api/ucp.h").exists():
        pytest.skip("no headers of UCX: apt-get install libucx-dev")
    program = _compile("gcc", "ucp", tmp_path, "-lucp", "-lucs")
    workers = (run_hosts.place.a.ctx, run_hosts.place.b.ctx)
    before = [worker.stats()["bytes_sealed"] for worker in workers]
    for code, out in _server_and_client(run_hosts, words.split(), program, address):
        assert code == 0, out
    client, server = (
        worker.stats()["bytes_sealed"] - then for worker, then in zip(workers, before, strict=True)
    )
    assert client > 2 * LENGTH  # a message and a PUT
    assert server > LENGTH  # the answer to a GET


def _server_and_client(
    hosts: Hosts, words: list[str], program: str, address: str
) -> tuple[Ended, Ended]:
    """A program of stack/ on both hosts: its server on b, then its client on a."""
    port = str(free_port())
    server = hosts.start("b", [*words, program, "server", address, port])
    assert server.stdout is not None
    while (line := server.stdout.readline()) != "listening\n":
        assert line, "it has ended"
    client = hosts.start("a", [*words, program, "client", address, port])
    return ended(client), ended(server)


# libfabric ----------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize(
    "options",
    ["-p verbs -e msg", "-p verbs;ofi_rxm -e rdm", "-p verbs;ofi_rxm -e rdm -m tagged"],
)
def test_libfabric_pingpong(hosts: Hosts, options: str) -> None:
    needs("fi_pingpong", "libfabric-bin")
    before = hosts.sealed()
    words = ["fi_pingpong", "-c", "-I", "100", *options.split()]
    server = hosts.start("b", words)
    _listens(server, PINGPONG_PORT)
    client = hosts.start("a", [*words, GIDS["b"][0]])
    _all_good(hosts, before, ended(client), ended(server))


@pytest.mark.soak
def test_libfabric_write_and_read(hosts: Hosts, tmp_path: Path) -> None:
    if not Path("/usr/include/rdma/fi_rma.h").exists():
        pytest.skip("no headers of libfabric: apt-get install libfabric-dev")
    program = _compile("gcc", "rma", tmp_path, "-lfabric")
    before = hosts.sealed()
    _all_good(hosts, before, *_server_and_client(hosts, [], program, GIDS["b"][0]))


# Open MPI -----------------------------------------------------------------------

MPIRUN = "mpirun --allow-run-as-root --oversubscribe --mca btl self"
BY_LIBFABRIC = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm"
BY_UCX = "--mca pml ucx -x " + WORKER.replace(" ", " -x ")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("names", "options"),
    [("aabb", BY_LIBFABRIC), ("aaaa", BY_LIBFABRIC), ("aabb", BY_UCX), ("aaaa", BY_UCX)],
    ids=["two hosts", "one host", "two hosts by UCX", "one host by UCX"],
)
def test_open_mpi(hosts: Hosts, tmp_path: Path, names: str, options: str) -> None:
    needs("mpirun", "openmpi-bin")
    needs("mpicc", "libopenmpi-dev")
    program = _compile("mpicc", "mpi", tmp_path)
    words = [*hosts.inside, *MPIRUN.split(), *options.split()]
    for at, name in enumerate(names):
        words += [":"] * (at > 0) + ["-n", "1", *hosts.command(name, [program])]
    before = hosts.sealed()
    found = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    assert found.returncode == 0, found.stdout + found.stderr
    assert sorted(found.stdout.splitlines()) == [f"{rank} ok" for rank in range(len(names))]
    for at in {"ab".index(name) for name in names}:
        assert hosts.sealed()[at] > before[at]
