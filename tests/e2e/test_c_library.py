"""libsrdma: programs between two real workers, with a fake agent and with the private agent."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import agent_door
from tests.e2e.agents import start
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


def test_operations_and_refusals(site: Site, agent: Agent) -> None:
    library_test(site, agent)


def test_end_of_the_worker(own_site: Site, agent: Agent) -> None:
    library_test(own_site, agent, "end")
