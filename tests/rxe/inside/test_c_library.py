"""libsrdma over verbs: C programs whose legs, like the wire, are on a pair of rxe devices."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from srdma.demo.rxe_stage import RxeStage
from srdma.embedded import Worker
from tests.e2e.test_c_library import BUILD, Program, run_library
from tests.fake_agent import FakeAgent
from tests.rxe.figures import figures
from tests.rxe.inside.netem import CUT, netem

# The device retransmits until 8.6 s after the cut. A busy machine removes the cut up to 2 s late.
STALL_S = 6.0
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


# A leg between two devices, as between a host and its SmartNIC --------------------


class CutLink:
    """tests/e2e/library/cut_link.c: the leg of end a passes over the veth, that of b does not."""

    def __init__(self, stage: RxeStage, agent: FakeAgent) -> None:
        worker = stage.secure.workers[0]
        devices = {"SRDMA_DEVICE_A": stage.ends[1].device, "SRDMA_DEVICE_B": stage.ends[0].device}
        self.process = subprocess.Popen(
            [BUILD / "tests/e2e/library/verbs", "cut"],
            env=os.environ | environment(agent, worker, worker.control) | devices,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.finish("ready")

    def begin(self, step: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{step}\n")
        self.process.stdin.flush()

    def finish(self, step: str) -> None:
        assert self.process.stdout
        said = []
        for line in self.process.stdout:
            if line == f"{step}\n":
                return
            said.append(line)
        raise AssertionError("".join(said))

    def does(self, step: str) -> None:
        self.begin(step)
        self.finish(step)


@pytest.fixture
def program(stage: RxeStage, agent: FakeAgent) -> Iterator[CutLink]:
    program = CutLink(stage, agent)
    yield program
    program.begin("end")
    said, _ = program.process.communicate(timeout=60)
    stage.wire.forget()  # the leg is not encrypted
    assert program.process.returncode == 0, said


def test_leg_survives_silence_and_a_stall(stage: RxeStage, program: CutLink) -> None:
    program.does("idle")
    program.does("write")
    with netem(stage.ends, CUT):
        program.begin("write")
        time.sleep(STALL_S)
    program.finish("write")


def test_lost_link_ends_an_idle_leg(stage: RxeStage, program: CutLink) -> None:
    program.does("write")
    with netem(stage.ends, CUT):
        start = time.monotonic()
        program.does("lose")
        figures.append(f"C: the lost link was noticed in {time.monotonic() - start:.1f} s")
    program.does("open")  # the link is back
