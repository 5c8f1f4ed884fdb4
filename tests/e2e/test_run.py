"""Unmodified programs over srdma: `srdma run` with programs of Debian (docs/run.md)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests import daemon
from tests.e2e.agents import Agent, Place, gid_hosts
from tests.e2e.conftest import WAIT, Host
from tests.ports import free_port

LIBRARY = Path("build/run/libibverbs.so.1")
LIMIT = 4 * WAIT  # seconds until a program hangs: perftest polls, and a busy machine is slow
PROGRAMS = Path("build/tests/e2e/verbs")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LIBRARY.exists(), reason="no build/run/libibverbs.so.1: make run"),
]

Ended = tuple[int, str]


@dataclass
class Hosts:
    """Two hosts, and a file run.toml for each. network: of their GIDs. inside: the words of a
    command that starts a program elsewhere, as in a network namespace."""

    place: Place
    folder: Path
    network: str = "127.0.0.0/8"
    inside: tuple[str, ...] = ()
    map_memory: bool = False

    def config(
        self,
        name: str,
        *,
        allow: str = "spiffe://test/*",
        gid: str = "",
        worker: str = "",
        agent: str = "",
    ) -> Path:
        host, own = self._of(name)
        gid = gid or self.network
        worker, agent = worker or str(host.ctx.path), agent or str(own.socket)
        path = self.folder / f"run-{name}.toml"
        path.write_text(
            f'worker = "{worker}"\nagent = "{agent}"\nidentity = "host-{name}"\n'
            f"map_memory = {str(self.map_memory).lower()}\n"
            f'[[peer]]\ngid = "{gid}"\nallow = ["{allow}"]\n'
        )
        path.chmod(0o600)
        return path

    def start(self, name: str, words: list[str], **narrowed: str) -> subprocess.Popen[str]:
        """`srdma run` on a host."""
        command = [*self.inside, *self.command(name, words, **narrowed)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def command(self, name: str, words: list[str], **narrowed: str) -> list[str]:
        """The words of `srdma run`."""
        config = self.config(name, **narrowed)
        return [sys.executable, "-m", "srdma", "run", "--config", str(config), "--", *words]

    def pair(self, words: list[str], **narrowed: str) -> tuple[Ended, Ended]:
        """A program on both hosts: the server on b, then the client on a."""
        port = ["-p", str(free_port())]
        server = self.start("b", [words[0], *port, *words[1:]])
        _listens(server, int(port[1]))
        client = self.start("a", [words[0], *port, *words[1:], "127.0.0.1"], **narrowed)
        return ended(client), ended(server)

    def sealed(self) -> list[int]:
        """Packets that were sealed by each worker."""
        return [host.ctx.stats()["packets_sealed"] for host in (self.place.a, self.place.b)]

    def _of(self, name: str) -> tuple[Host, Agent]:
        at = "ab".index(name)
        return (self.place.a, self.place.b)[at], self.place.agents[at]


def _listens(process: subprocess.Popen[str], port: int) -> None:
    """Waits until a process listens at this port of TCP, or ends."""
    entry, net = f":{port:04X} ", Path(f"/proc/{process.pid}/net")
    while process.poll() is None:
        lines = [line for name in ("tcp", "tcp6") for line in _lines(net / name)]
        if any(entry in line and " 0A " in line for line in lines):
            return


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # the process has ended, or there is no IPv6
        return []


def ended(process: subprocess.Popen[str]) -> Ended:
    try:
        out, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        raise AssertionError(f"it hangs: {out}") from None
    return process.returncode, out


@pytest.fixture(scope="module")
def hosts(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("run")
    with gid_hosts(pki, folder) as place:
        yield Hosts(place, folder)


def needs(program: str, package: str = "perftest ibverbs-utils") -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program}: apt-get install {package}")


@pytest.mark.parametrize(
    "words",
    [
        "ib_write_bw -q 2 -n 100",
        "ib_read_lat -n 100",
        "ib_send_bw -e -n 200",
        "ib_atomic_bw -n 100",
        "ibv_rc_pingpong -e -g 0 -n 50",
        "ibv_srq_pingpong -g 0 -q 1 -n 50",
        "ibv_ud_pingpong -g 0 -n 50",
        "ibv_uc_pingpong -g 0 -n 50",
        "ib_write_bw -c UC -n 100",
        "ib_send_bw -c UD -s 4096 -n 500",
        "ib_send_lat -c UD -n 100",
    ],
)
def test_programs_run_protected(hosts: Hosts, words: str) -> None:
    runs_protected(hosts, words.split())


# Options that each program of perftest has.
BANDWIDTH, LATENCY = ("", "-q 8", "-b", "-D 2"), ("", "-D 2")
UD = ("-c UD -e -n 500", "-c UD -D 2")
UC = ("-c UC -a -n 50", "-c UC -D 2")
UD_BANDWIDTH = (*UD, "-c UD -b -s 1024 -n 500", "-c UD -q 8 -n 500", "-c UD -I 64 -s 64 -n 500")
PERFTEST = {
    "ib_write_bw": (*BANDWIDTH, *UC, "-a -n 50", "-I 64"),
    "ib_read_bw": (*BANDWIDTH, "-a -n 50", "-e"),
    "ib_send_bw": (*BANDWIDTH, *UC, *UD_BANDWIDTH, "-a -n 50", "-e", "-I 64"),
    "ib_atomic_bw": (*BANDWIDTH, "-e"),
    "ib_write_lat": (*LATENCY, *UC, "-a -n 50", "-I 64"),
    "ib_read_lat": (*LATENCY, "-a -n 50", "-e"),
    "ib_send_lat": (*LATENCY, *UC, *UD, "-a -n 50", "-e", "-I 64"),
    "ib_atomic_lat": (*LATENCY, "-e"),
}


@pytest.mark.soak
@pytest.mark.parametrize(
    "words", [f"{program} {option}" for program in PERFTEST for option in PERFTEST[program]]
)
def test_perftest(hosts: Hosts, words: str) -> None:
    runs_protected(hosts, words.split())


@pytest.mark.soak
@pytest.mark.parametrize("options", ["-e", "-q 8 -r 10", "-q 4 -s 100000 -r 64"])
def test_shared_receives(hosts: Hosts, options: str) -> None:
    runs_protected(hosts, ["ibv_srq_pingpong", "-g", "0", *options.split()])


def runs_protected(hosts: Hosts, words: list[str]) -> None:
    needs(words[0])
    before = hosts.sealed()
    for code, out in hosts.pair(words):
        assert code == 0, out
    assert all(now > then for now, then in zip(hosts.sealed(), before, strict=True))


@pytest.mark.parametrize("words", ["ib_write_bw -q 2 -n 100", "ib_atomic_bw -n 100"])
def test_memory_that_the_worker_maps(hosts: Hosts, words: str) -> None:
    """docs/run.md 4.2."""
    runs_protected(replace(hosts, map_memory=True), words.split())


def test_memory_is_moved(hosts: Hosts) -> None:
    program = PROGRAMS / "mapped"
    if not program.exists():
        pytest.skip(f"no {program}: make host-tests")
    code, out = ended(replace(hosts, map_memory=True).start("a", [str(program)]))
    assert code == 0, out


def test_device_is_shown(hosts: Hosts) -> None:
    needs("ibv_devinfo")
    code, out = ended(hosts.start("a", ["ibv_devinfo", "-v"]))
    assert code == 0, out
    assert "srdma0" in out
    assert "node_guid:\t\t\t0000:ffff:7f00:0001" in out
    assert "PORT_ACTIVE" in out


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("name", ["refusals", "extended", "loopback", "srq", "ud", "uc", "mcast"])
def test_functions(hosts: Hosts, name: str, mapped: bool) -> None:
    program, hosts = PROGRAMS / name, replace(hosts, map_memory=mapped)
    if not program.exists():
        pytest.skip(f"no {program}: make host-tests")
    code, out = ended(hosts.start("a", [str(program)]))
    assert code == 0, out


@pytest.mark.parametrize("words", ["worker_gone", "worker_waits", "worker_waits pd"])
def test_end_of_the_worker(hosts: Hosts, tmp_path: Path, words: str) -> None:
    with daemon.worker(tmp_path, "gone", "--gid", "127.0.0.9") as worker:
        sees_the_end(hosts, words, worker, worker=str(worker.control))


def sees_the_end(hosts: Hosts, words: str, mortal: daemon.Worker, **narrowed: str) -> None:
    """A program on host a ends well after the end of its worker."""
    name, *more = words.split()
    program = PROGRAMS / name
    if not program.exists():
        pytest.skip(f"no {program}: make host-tests")
    process = hosts.start("a", [str(program), *more], **narrowed)
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "ready\n":
        assert line, "it has ended"
    mortal.process.kill()
    code, out = ended(process)
    assert code == 0, out


def test_check_says_what_a_program_gets(hosts: Hosts) -> None:
    command = [sys.executable, "-m", "srdma", "run", "--check", "--config", str(hosts.config("a"))]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "127.0.0.0/8  spiffe://test/*" in text
    found = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    )
    assert found["gid"] == "127.0.0.1"
    assert found["protection"] == "aead"


@pytest.mark.parametrize(
    "narrowed", [{"allow": "spiffe://test/other"}, {"gid": "127.0.0.9"}], ids=["identity", "gid"]
)
def test_peer_that_the_policy_refuses(hosts: Hosts, narrowed: dict[str, str]) -> None:
    needs("ib_write_bw")
    before = hosts.sealed()
    (client, out), (server, _) = hosts.pair(["ib_write_bw", "-n", "10"], **narrowed)
    assert client != 0, out
    assert server != 0
    assert hosts.sealed() == before


@pytest.mark.parametrize("end", ["a", "b"])
def test_datagrams_that_the_policy_of_an_end_refuses(hosts: Hosts, end: str) -> None:
    """They are dropped, which a line on stderr says, and both programs wait without an end."""
    needs("ibv_ud_pingpong")
    before = hosts.sealed()
    port = str(free_port())
    words = ["ibv_ud_pingpong", "-g", "0", "-p", port]
    allow = {name: "spiffe://test/other" if name == end else "spiffe://test/*" for name in "ab"}
    server = hosts.start("b", words, allow=allow["b"])
    _listens(server, int(port))
    client = hosts.start("a", [*words, "127.0.0.1"], allow=allow["a"])
    assert client.stdout is not None
    while "drops messages: no session with the peer" not in (line := client.stdout.readline()):
        assert line, "it has ended"
    for process in (client, server):
        assert process.poll() is None
        process.kill()
        process.communicate()
    assert hosts.sealed() == before


def test_datagrams_go_on_when_agents_start_again(hosts: Hosts) -> None:
    needs("ib_send_lat")
    words = ["ib_send_lat", "-p", str(free_port()), "-c", "UD", "-D", "8"]
    server = hosts.start("b", words)
    _listens(server, int(words[2]))
    client = hosts.start("a", [*words, "127.0.0.1"])
    before = hosts.sealed()[0]
    while hosts.sealed()[0] < before + 100:
        assert client.poll() is None
    for agent in hosts.place.agents:
        agent.restart(signal.SIGTERM)
    for process in (client, server):
        code, out = ended(process)
        assert code == 0, out
        assert "drops messages" not in out


def test_without_policy_there_is_no_device(hosts: Hosts) -> None:
    needs("ibv_devinfo")
    environment = dict(os.environ, LD_LIBRARY_PATH=str(LIBRARY.parent.resolve()))
    environment.pop("SRDMA_RUN", None)
    found = subprocess.run(
        ["ibv_devinfo"], env=environment, capture_output=True, text=True, timeout=WAIT
    )
    assert found.returncode != 0
    assert "srdma: no RDMA device: SRDMA_RUN: not set" in found.stderr


def test_without_worker_there_is_no_device(hosts: Hosts) -> None:
    needs("ibv_devinfo")
    config = hosts.config("a")
    config.write_text(config.read_text().replace("worker = ", 'worker = "/nowhere" #'))
    command = [sys.executable, "-m", "srdma", "run", "--config", str(config), "--", "ibv_devinfo"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert found.returncode != 0
    assert "srdma: no RDMA device: /nowhere" in found.stderr


def test_killed_peer_ends_the_other(hosts: Hosts) -> None:
    needs("ib_write_bw")
    port = str(free_port())
    server = hosts.start("b", ["ib_write_bw", "-p", port, "-D", "60"])
    _listens(server, int(port))
    client = hosts.start("a", ["ib_write_bw", "-p", port, "-D", "60", "127.0.0.1"])
    before = hosts.sealed()[0]
    while hosts.sealed()[0] < before + 100:
        assert client.poll() is None
    server.send_signal(signal.SIGKILL)
    server.communicate()
    code, out = ended(client)
    assert code not in (0, -signal.SIGKILL), out
