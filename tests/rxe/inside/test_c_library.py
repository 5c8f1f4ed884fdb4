"""libsrdma over verbs: C programs whose legs, like the wire, are on a pair of rxe devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from srdma.demo.rxe_stage import RxeStage
from srdma.embedded import Worker
from tests.e2e.test_c_library import Program, run_library
from tests.fake_agent import FakeAgent

SHORTER = "10"  # fewer repetitions: an emulated machine is slow


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeAgent]:
    agent = FakeAgent(tmp_path_factory.mktemp("agent") / "agent")
    yield agent
    agent.close()


def environment(agent: FakeAgent, a: Worker, b: Path) -> dict[str, str]:
    return {
        "SRDMA_A": str(a.control),
        "SRDMA_B": str(b),
        "SRDMA_A_PID": str(a.pid),
        "SRDMA_AGENT": str(agent.path),
        "SRDMA_SHORTER": SHORTER,
    }


def test_ping_pong(stage: RxeStage, agent: FakeAgent) -> None:
    pair = stage.secure
    server = Program("pingpong", pair.b, agent.path, "server", "b", "spiffe://test/a")
    words = ("client", "a", "spiffe://test/b", server.port(), "100")
    client = Program("pingpong", pair.a, agent.path, *words)
    assert "100 round trips" in client.succeeds()
    assert "connected to spiffe://test/a" in server.succeeds()


def test_capability(stage: RxeStage, agent: FakeAgent) -> None:
    pair = stage.secure
    owner = Program("capability", pair.b, agent.path, "owner", "b", "spiffe://test/a")
    words = ("user", "a", "spiffe://test/b", owner.port())
    user = Program("capability", pair.a, agent.path, *words)
    assert user.succeeds().splitlines() == [
        "read: this is block 1",
        "block 0: refused, BAD_CAPABILITY",
        "block 1 after its revocation: refused, PROOF_WRONG",
    ]
    assert owner.succeeds().splitlines() == ["gave a capability for block 1", "revoked it"]


def test_operations_and_refusals(stage: RxeStage, agent: FakeAgent) -> None:
    run_library(environment(agent, stage.secure.workers[0], stage.secure.b))


def test_end_of_the_worker(stage: RxeStage, agent: FakeAgent) -> None:
    own = stage.start("c-victim", stage.ends[0])
    run_library(environment(agent, own, stage.secure.b), "end")
