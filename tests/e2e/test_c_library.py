"""libsrdma: programs between two real workers, with a fake agent and with the private agent."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests import agent_door
from tests.e2e.agents import Agent as SystemAgent
from tests.e2e.agents import gid_hosts, launch, start
from tests.e2e.conftest import A, B, Site
from tests.fake_agent import FakeAgent

BUILD = Path(os.environ.get("BUILD", Path(__file__).parents[2] / "build"))
EXAMPLES = BUILD / "examples"
WAIT = 60

pytestmark = pytest.mark.skipif(
    not (BUILD / "libsrdma.so.0").exists(), reason="libsrdma was not built: install libcbor"
)


Agent = FakeAgent | agent_door.DoorAgent


@pytest.fixture(params=["fake", "private"])
def agent(request: pytest.FixtureRequest, tmp_path: Path, pki: Path) -> Iterator[Agent]:
    path = tmp_path / "agent"
    agent = FakeAgent(path) if request.param == "fake" else agent_door.DoorAgent(path, pki)
    yield agent
    agent.close()


class Program:
    """An example program that uses a worker and an agent."""

    def __init__(self, name: str, worker: Path, agent: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [EXAMPLES / name, *words],
            env=os.environ | {"SRDMA_WORKER": str(worker), "SRDMA_AGENT": str(agent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def port(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening at (\d+)\n", line)
        assert found, (line, self.process.communicate(timeout=WAIT))
        return found[1]

    def result(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=WAIT)
        return self.process.returncode, out + err

    def succeeds(self) -> str:
        code, text = self.result()
        assert code == 0, text
        return text


def test_ping_pong(site: Site, agent: Agent) -> None:
    server = Program("pingpong", site.b.control, agent.path, "server", "b", "spiffe://test/*")
    client = Program(
        "pingpong",
        site.a.control,
        agent.path,
        "client",
        "a",
        "spiffe://test/b",
        server.port(),
        "1000",
    )
    said = client.succeeds()
    assert "connected to spiffe://test/b" in said
    assert re.search(r"1000 round trips, [0-9.]+ us each", said)
    assert "connected to spiffe://test/a" in server.succeeds()


def test_ping_pong_with_system_agents(site: Site, pki: Path) -> None:
    """The programs name their identities; the files are the agents'."""
    agents = [start(pki, name, w.control) for name, w in (("a", site.a), ("b", site.b))]
    try:
        paths = [agent.socket for agent in agents]
        server = Program("pingpong", site.b.control, paths[1], "server", "host-b", A)
        port = server.port()
        client = Program("pingpong", site.a.control, paths[0], "client", "host-a", B, port, "10")
        assert f"connected to {B}" in client.succeeds()
        assert f"connected to {A}" in server.succeeds()
        refused = Program("pingpong", site.a.control, paths[0], "client", "host-b", B, port, "10")
        code, text = refused.result()
        assert code == 1 and "the policy grants no identity 'host-b'" in text
    finally:
        for agent in agents:
            agent.audit()


def test_capability(site: Site, agent: Agent) -> None:
    owner = Program("capability", site.b.control, agent.path, "owner", "b", "spiffe://test/a")
    user = Program(
        "capability", site.a.control, agent.path, "user", "a", "spiffe://test/b", owner.port()
    )
    assert user.succeeds().splitlines() == [
        "read: this is block 1",
        "block 0: refused, BAD_CAPABILITY",
        "block 1 after its revocation: refused, PROOF_WRONG",
    ]
    assert owner.succeeds().splitlines() == ["gave a capability for block 1", "revoked it"]


def test_unpermitted_peer(site: Site, agent: Agent) -> None:
    server = Program("pingpong", site.b.control, agent.path, "server", "b", "spiffe://test/c")
    port = server.port()
    client = Program(
        "pingpong", site.a.control, agent.path, "client", "a", "spiffe://test/b", port, "1"
    )
    code, said = client.result()
    assert code == 1
    assert re.search(r"^pingpong: (identity|tls): ", said, re.MULTILINE), said
    server.process.kill()
    server.result()


def library_test(site: Site, agent: Agent, *words: str) -> None:
    """Run tests/e2e/library/verbs.c."""
    environment = {
        "SRDMA_A": str(site.a.control),
        "SRDMA_B": str(site.b.control),
        "SRDMA_A_PID": str(site.a.pid),
        "SRDMA_AGENT": str(agent.path),
    }
    run_library(environment, *words)


def run_library(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [BUILD / "tests/e2e/library/verbs", *words],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_operations_and_refusals(site: Site, agent: Agent) -> None:
    library_test(site, agent)


def test_end_of_the_worker(own_site: Site, agent: Agent) -> None:
    library_test(own_site, agent, "end")


def test_rendezvous(pki: Path, tmp_path: Path) -> None:
    with gid_hosts(pki, tmp_path) as place:
        ends = {"A": (place.a, place.agents[0]), "B": (place.b, place.agents[1])}
        environment = {
            name: str(path)
            for end, (host, agent) in ends.items()
            for name, path in (
                (f"SRDMA_{end}", host.ctx.path),
                (f"SRDMA_AGENT_{end}", agent.socket),
            )
        }
        run_library(environment, "rendezvous")


# A restarted system agent ---------------------------------------------------------


class Writer:
    """tests/e2e/library/restart.c: WRITEs between two workers, in one process.

    more: environment of the program. wrapper: a command that runs it.
    """

    def __init__(
        self,
        workers: Sequence[Path],
        agents: Sequence[SystemAgent],
        more: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        environment = {
            "SRDMA_A": str(workers[0]),
            "SRDMA_B": str(workers[1]),
            "SRDMA_AGENT_A": str(agents[0].socket),
            "SRDMA_AGENT_B": str(agents[1].socket),
        }
        self._process = subprocess.Popen(
            [*wrapper, BUILD / "tests/e2e/library/verbs", "restart"],
            env=os.environ | environment | dict(more or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.answer("count")

    def answer(self, word: str) -> int:
        """The number of WRITEs when the program has done it."""
        assert self._process.stdout
        said = []
        for line in self._process.stdout:
            if found := re.fullmatch(rf"{word} (\d+)\n", line):
                return int(found[1])
            said.append(line)
        raise AssertionError("".join(said))

    def does(self, word: str) -> int:
        self._send(word)
        return self.answer(word)

    def _send(self, word: str) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # its output says why
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()

    def ends(self) -> None:
        self._send("end")
        said, _ = self._process.communicate(timeout=WAIT)
        assert self._process.returncode == 0, said

    def kill(self) -> None:
        with contextlib.suppress(BrokenPipeError), self._process:
            self._process.kill()


@pytest.fixture
def agents(site: Site, pki: Path, tmp_path: Path) -> Iterator[list[SystemAgent]]:
    """System agents of the two workers, with identities a and b."""
    started = []
    with contextlib.ExitStack() as stack:
        for name, worker in (("a", site.a), ("b", site.b)):
            policy, path = tmp_path / f"{name}.toml", tmp_path / f"{name}.sock"
            policy.write_text(
                f'worker = "{worker.control}"\nsocket = "{path}"\n'
                f'[[identity]]\nname = "{name}"\npath = "{pki / name}"\n'
            )
            agent = SystemAgent(policy, path, launch(policy))
            stack.callback(agent.kill)
            started.append(agent)
        yield started


@pytest.fixture
def writer(site: Site, agents: list[SystemAgent]) -> Iterator[Writer]:
    made = Writer([site.a.control, site.b.control], agents)
    yield made
    made.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_agents_restart_under_load(
    writer: Writer, agents: list[SystemAgent], how: signal.Signals
) -> None:
    """No request is lost, no QP ends, renewals go on and peers are admitted, whichever agent was
    restarted."""
    for agent in agents:
        agent.restart(how)
        writer.does("renew")
    writer.does("connect")
    writer.ends()


def test_agents_away(writer: Writer, agents: list[SystemAgent]) -> None:
    """WRITEs go on while there is no agent, and what was requested meanwhile is done later."""
    for agent in agents:
        agent.kill()
    before = writer.does("away")
    while writer.does("count") < before + 1000:
        pass
    for agent in agents:
        agent.process = launch(agent.policy)
    writer.does("renew")
    writer.does("connect")
    writer.ends()
