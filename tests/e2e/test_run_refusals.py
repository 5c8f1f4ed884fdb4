"""Unmodified programs without what they need: identity, agent, policy, worker or peer. They get the
errno or the status of docs/run.md 4 and 4.1, do not hang, and send nothing (docs/run.md 2)."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests import daemon
from tests.e2e.agents import gid_hosts
from tests.e2e.conftest import WAIT, B
from tests.e2e.test_run import LIBRARY, LIMIT, PROGRAMS, Hosts, ended, needs
from tests.e2e.test_run_cm import RPING, listen, start, stop
from tests.e2e.test_run_loading import ELSEWHERE
from tests.ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LIBRARY.exists(), reason="no build/run/libibverbs.so.1: make run"),
]

PROGRAM = PROGRAMS / "steps"
SUCCESS, FLUSHED, RETRIES, FATAL = 0, 5, 12, 19  # enum ibv_wc_status
DEVICE_FATAL = 8  # enum ibv_event_type
QPN_MOST = 0xFFFFFF
NO_SESSION = "drops messages: no session with the peer"


class End:
    """A running steps.c on a host."""

    def __init__(
        self, hosts: Hosts, name: str, kind: str, before: Sequence[str] = (), **narrowed: str
    ) -> None:
        """before: words of a command that starts the program."""
        if not PROGRAM.exists():
            pytest.skip(f"no {PROGRAM}: make host-tests")
        self.process = hosts.start(name, [*before, str(PROGRAM), kind], **narrowed)
        self.gid = {"a": "127.0.0.1", "b": "127.0.0.2"}[name]
        self.said: list[str] = []
        self.read = ""
        self.qpn = int(self.line())

    def line(self) -> str:
        """The next line of its output that is not one of the library."""
        deadline = time.monotonic() + LIMIT
        while True:
            line, newline, rest = self.read.partition("\n")
            if not newline:
                self._more(deadline)
                continue
            self.read = rest
            self.said.append(line)
            if not line.startswith("srdma: "):
                return line

    def _more(self, deadline: float) -> None:
        assert self.process.stdout
        pipe, left = self.process.stdout.fileno(), max(0, deadline - time.monotonic())
        assert select.select([pipe], [], [], left)[0], f"it hangs: {self.said}"
        more = os.read(pipe, 4096).decode()
        assert more, f"it has ended: {self.said}"
        self.read += more

    def ask(self, word: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.line()

    def to(self, gid: str, qpn: int) -> str:
        return self.ask(f"to {gid} {qpn}")

    def sends(self) -> str:
        """Posts a message; its completion, or why it was refused."""
        refused = self.ask("send")
        return refused if refused != "0" else self.ask("next")

    def until(self, completion: str) -> None:
        """Other completions come before."""
        while (found := self.ask("next")) != completion:
            assert found.startswith("recv ")

    def says(self, part: str) -> bool:
        return any(part in line for line in self.said)

    def close(self) -> int:
        """It ends its objects, and itself."""
        code, out = ended(self.process)
        self.said.append(out)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def hosts(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("refusals")
    with gid_hosts(pki, folder) as place:
        yield Hosts(place, folder)


@pytest.fixture
def undo() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def end(
    undo: contextlib.ExitStack,
    hosts: Hosts,
    name: str,
    kind: str,
    before: Sequence[str] = (),
    **narrowed: str,
) -> End:
    made = End(hosts, name, kind, before, **narrowed)
    undo.callback(lambda: made.process.poll() is None and made.kill())
    return made


def connected(
    undo: contextlib.ExitStack, hosts: Hosts, kind: str, before: Sequence[str] = ()
) -> tuple[End, End]:
    """Two ends that have exchanged a message."""
    a, b = end(undo, hosts, "a", kind, before), end(undo, hosts, "b", kind)
    assert a.to(b.gid, b.qpn) == b.to(a.gid, a.qpn) == "0"
    assert a.sends() == f"send {SUCCESS}"
    assert b.ask("next") == f"recv {SUCCESS}"
    return a, b


def without_keys(kind: str, a: End) -> None:
    """Its message fails, or is dropped, which a line on stderr says. The program goes on."""
    assert a.sends() == f"send {RETRIES if kind == 'rc' else SUCCESS}"
    assert a.says(NO_SESSION) == (kind == "ud")
    assert a.close() == 0


# Agents and policies --------------------------------------------------------


@pytest.mark.parametrize("kind", ["rc", "ud"])
@pytest.mark.parametrize("error", ["ENOENT", "ECONNREFUSED"])
def test_no_agent(hosts: Hosts, undo: contextlib.ExitStack, kind: str, error: str) -> None:
    before, narrowed = hosts.sealed(), {}
    if error == "ENOENT":
        narrowed["agent"] = "/nowhere"
    else:
        agent = hosts.place.agents[0]
        agent.kill()
        undo.callback(agent.start)
    a = end(undo, hosts, "a", kind, **narrowed)
    if kind == "rc":
        assert a.to("127.0.0.2", 77) == error
        assert a.ask("send") == "EINVAL"  # it stays in INIT
        assert a.close() == 0
    else:
        assert a.to("127.0.0.2", 77) == "0"
        without_keys(kind, a)
    assert hosts.sealed() == before


@pytest.mark.parametrize("kind", ["rc", "ud"])
def test_no_agent_at_the_peer(hosts: Hosts, undo: contextlib.ExitStack, kind: str) -> None:
    before, agent = hosts.sealed(), hosts.place.agents[1]
    agent.kill()
    undo.callback(agent.start)
    a = end(undo, hosts, "a", kind)
    assert a.to("127.0.0.2", QPN_MOST) == "0"  # the lower QPN calls
    without_keys(kind, a)
    assert hosts.sealed() == before


@pytest.mark.soak
def test_peer_that_does_not_call(hosts: Hosts, undo: contextlib.ExitStack) -> None:
    """Its QP has the lower QPN, so the agent here waits for it, for 30 s."""
    a = end(undo, hosts, "a", "rc")
    assert a.to("127.0.0.2", 1) == "0"
    without_keys("rc", a)


@pytest.mark.parametrize("kind", ["rc", "ud"])
@pytest.mark.parametrize(
    ("old", "new"),
    [('gid = "127.0.0.2"', 'gid = "127.0.0.3"'), (f'identity = "{B}"', f'identity = "{B}x"')],
    ids=["gid", "identity"],
)
def test_agent_whose_policy_has_another_peer(
    hosts: Hosts, undo: contextlib.ExitStack, kind: str, old: str, new: str
) -> None:
    """The programs of both ends are refused, though run.toml permits each other."""
    before, agent = hosts.sealed(), hosts.place.agents[0]
    agent.change(old, new)
    undo.callback(lambda: (agent.change(new, old), agent.reload()))
    agent.reload()
    a, b = (end(undo, hosts, name, kind) for name in "ab")
    assert a.to(b.gid, b.qpn) == b.to(a.gid, a.qpn) == "0"
    for one in (a, b):
        without_keys(kind, one)
    assert hosts.sealed() == before


# Ends of peers and workers --------------------------------------------------


def test_killed_peer(hosts: Hosts, undo: contextlib.ExitStack) -> None:
    """UD: messages are dropped. RC: see test_run.py."""
    a, b = connected(undo, hosts, "ud")
    b.kill()
    while not a.says("drops messages: "):
        assert a.sends() == f"send {SUCCESS}"
    assert a.close() == 0


@contextlib.contextmanager
def mortal_hosts(pki: Path, folder: Path) -> Iterator[tuple[Hosts, list[daemon.Worker]]]:
    """Hosts and their workers, which the test may kill."""
    workers = []
    with contextlib.ExitStack() as stack:

        def start_worker(name: str, options: Sequence[str]) -> Path:
            workers.append(stack.enter_context(daemon.worker(folder, name, *options)))
            return workers[-1].control

        with gid_hosts(pki, folder, start_worker) as place:
            yield Hosts(place, folder), workers


@pytest.mark.parametrize("kind", ["rc", "ud"])
def test_end_of_the_worker(
    pki: Path, tmp_path: Path, undo: contextlib.ExitStack, kind: str
) -> None:
    with mortal_hosts(pki, tmp_path) as (hosts, workers):
        a, b = connected(undo, hosts, kind)
        workers[0].process.kill()
        assert a.ask("next") == f"recv {FATAL if kind == 'rc' else FLUSHED}"
        if kind == "rc":
            assert a.ask("send") == "ENOTCONN"
        else:
            assert a.ask("send") == "0"  # a UD QP in error takes requests, and flushes them
            a.until(f"send {FLUSHED}")
        assert a.ask("event") == f"event {DEVICE_FATAL}"
        if kind == "rc":
            assert b.sends() == f"send {RETRIES}"
        while kind == "ud" and not b.says("drops messages: "):
            assert b.sends() == f"send {SUCCESS}"
        assert a.close() == b.close() == 0


# RDMA-CM --------------------------------------------------------------------


def call(hosts: Hosts, port: int, count: int = 1) -> str:
    """The output of a client that fails."""
    code, out = ended(start(hosts, "a", f"{RPING[1]} -C {count}", port))
    assert code != 0, out
    return out


def test_call_to_a_host_without_agent(hosts: Hosts, undo: contextlib.ExitStack) -> None:
    agent = hosts.place.agents[1]
    agent.kill()
    undo.callback(agent.start)
    assert "RDMA_CM_EVENT_UNREACHABLE, error -113" in call(hosts, free_port())


def test_call_that_the_policy_of_an_agent_refuses(hosts: Hosts, undo: contextlib.ExitStack) -> None:
    before, agent = hosts.sealed(), hosts.place.agents[0]
    change = f'identity = "{B}"', f'identity = "{B}x"'
    agent.change(*change)
    undo.callback(lambda: (agent.change(*change[::-1]), agent.reload()))
    agent.reload()
    assert "RDMA_CM_EVENT_CONNECT_ERROR, error -13" in call(hosts, free_port())
    assert hosts.sealed() == before


def test_end_of_the_worker_of_a_connection(pki: Path, tmp_path: Path) -> None:
    with mortal_hosts(pki, tmp_path) as (hosts, workers):
        port = free_port()
        server = listen(hosts, RPING[0], port)
        client = start(hosts, "a", RPING[1], port)
        before = hosts.sealed()[0]
        while hosts.sealed()[0] < before + 100:
            assert client.poll() is None
        stop(hosts, client)
        workers[0].process.kill()
        client.send_signal(signal.SIGCONT)
        code, out = ended(client)
        assert code != 0
        assert f"cq completion failed status {FATAL}" in out
        assert "server DISCONNECT EVENT" in ended(server)[1]


# Programs without srdma run, and what they open ------------------------------


@pytest.mark.parametrize("words", [f"{PROGRAM} rc", f"{RPING[1]} -C 1"], ids=["verbs", "cm"])
def test_without_policy(words: str) -> None:
    command = words.format(port=7000).split()
    needs(command[0])
    environment = dict(os.environ, LD_LIBRARY_PATH=str(LIBRARY.parent.resolve()))
    environment.pop("SRDMA_RUN", None)
    found = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=WAIT,
    )  # fmt: skip
    assert found.returncode != 0
    assert "srdma: no RDMA device: SRDMA_RUN: not set" in found.stderr


def traced(trace: Path) -> list[str]:
    """The words of strace, for paths and sockets."""
    if shutil.which("strace") is None:
        pytest.skip("no strace: apt-get install strace")
    return ["strace", "-f", "-e", "trace=%file,socket", "-o", str(trace)]


def opens_nothing_else(trace: Path) -> None:
    """The program opened the device of srdma, and no other one, and no socket of the Internet."""
    lines = trace.read_text().splitlines()
    assert any("/dev/null" in line for line in lines)
    assert not [line for line in lines if any(path in line for path in ELSEWHERE)]
    assert any("socket(AF_UNIX" in line for line in lines)
    assert not [line for line in lines if "socket(AF_INET" in line]


@pytest.mark.parametrize("kind", ["rc", "ud"])
def test_data_leave_by_the_worker_only(
    hosts: Hosts, undo: contextlib.ExitStack, tmp_path: Path, kind: str
) -> None:
    trace, before = tmp_path / "trace", hosts.sealed()
    a, b = connected(undo, hosts, kind, traced(trace))
    assert all(now > then for now, then in zip(hosts.sealed(), before, strict=True))
    for one in (a, b):
        assert one.close() == 0
    opens_nothing_else(trace)


def test_data_of_a_connection_leave_by_the_worker_only(hosts: Hosts, tmp_path: Path) -> None:
    needs("rping")
    trace, port, before = tmp_path / "trace", free_port(), hosts.sealed()
    server = listen(hosts, f"{RPING[0]} -C 5", port)
    words = [*traced(trace), *f"{RPING[1]} -C 5".format(port=port).split()]
    for process in (hosts.start("a", words), server):
        code, out = ended(process)
        assert code == 0, out
    assert all(now > then for now, then in zip(hosts.sealed(), before, strict=True))
    opens_nothing_else(trace)
