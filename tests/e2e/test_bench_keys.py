"""`srdma bench keys` and `srdma bench sessions` on real workers and agents."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srdma.cli import app as cli
from srdma_bench.keys import agents
from srdma_bench.keys.sessions import Crowd
from srdma_bench.keys.setup import Load, Pair
from tests.e2e.conftest import WAIT


def run(*words: str):
    return CliRunner().invoke(cli.build(), ["bench", *words])


@pytest.mark.parametrize("kind", ["system", "private"])
def test_key_setup(kind: str) -> None:
    words = ["--agents", kind, "--serial", "2", "--many", "3", "--rounds", "1"]
    done = run("keys", *words, "--json")
    assert done.exit_code == 0, done.output
    one, many, qps = (json.loads(line) for line in done.stdout.splitlines())
    assert [(row["connections"], row["qps"]) for row in (one, many, qps)] == [
        (2, 2),
        (3, 3),
        (1, 3),
    ]
    for row in (one, many, qps):
        assert 0 < row["median"]["median"] <= row["p99"]["median"]
        assert row["cpu_a"]["median"] > 0 < row["cpu_b"]["median"]
        assert row["rate"]["median"] > 0


def test_sessions_are_renewed() -> None:
    words = ["--connections", "4", "--qps", "2", "--peers", "2", "--idle", "0.1"]
    done = run("sessions", *words, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["connections"], found["qps"], found["peers"]) == (4, 8, 2)
    assert found["rss"] > found["base"] > 0
    assert found["wave"] > 0 < found["wave_cpu"]


def test_texts() -> None:
    done = run("keys", "--serial", "1", "--many", "1", "--rounds", "1")
    assert done.exit_code == 0 and "one QP (1 QPs)" in done.stdout, done.output
    done = run("sessions", "--connections", "1", "--qps", "1", "--idle", "0", "--no-renew")
    assert done.exit_code == 0 and "wave         0\n" in done.stdout, done.output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["keys", "--agents", "other"], "--agents other: give one of system, private"),
        (["keys", "--many", "257"], "--many 257: give 1 to 256"),
        (["sessions", "--idle", "-1"], "--idle -1: give 0 to 86400"),
        (["sessions", "--connections", "200", "--qps", "200"], "give at most 16384 QPs"),
    ],
)
def test_error_tells_permitted_values(words: list[str], text: str) -> None:
    done = run(*words)
    assert done.exit_code == 3 and text in " ".join(done.output.split())


def test_too_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.resource, "getrlimit", lambda _: (64, 64))
    done = run("sessions", "--connections", "2", "--qps", "1", "--idle", "0")
    assert done.exit_code == 3
    assert "260 file descriptors are needed in a process, the limit is 64" in " ".join(
        done.output.split()
    )


@pytest.mark.parametrize(
    ("peers", "load"), [(100, (1, 100)), (10_000, (100, 100)), (9_800, (98, 100))]
)
def test_peers_are_pairs_of_identities(peers: int, load: tuple[int, int]) -> None:
    found = Crowd(10_000, peers).load
    assert (found.own, found.peers) == load


def test_profiles(tmp_path: Path) -> None:
    functions, types = tmp_path / "functions", tmp_path / "types"
    words = ["--profile", str(functions), "--types", str(types)]
    with Pair("system", Load(), profile=words) as pair:
        pair.run(1, 1)
        agents.os.kill(pair.pids[0], signal.SIGUSR1)
        deadline = time.monotonic() + WAIT
        while not types.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert functions.stat().st_size > 0
    found = json.loads(types.read_text())
    assert found["traced"] > 0 < len(found["lines"])
    assert "builtins.function" in {name for name, _, _ in found["types"]}
