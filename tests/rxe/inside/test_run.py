"""Unmodified programs whose legs, like the wire, are on a pair of rxe devices (docs/run.md 8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from srdma.demo.rxe_stage import RxeStage, worker_options
from tests.e2e.agents import gid_hosts
from tests.e2e.conftest import A, B
from tests.e2e.test_run import LIBRARY, PROGRAMS, Hosts, ended, needs

pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason="no build/run/libibverbs.so.1: make run"
)

# A program of tests/e2e/verbs, a test of it, and what no other test has over RDMA.
FUNCTIONS = (
    "ud test_peer_that_begins_again",  # sessions of UD QPs
    "loopback test_lists",  # 28 SGEs
    "loopback test_other_pd",  # REPLACE
    "loopback test_reset",  # RESET, REINIT
    "srq test_receives",  # SHARE
)


def all_functions() -> list[str]:
    """The words of one command that runs them, until one fails."""
    if not PROGRAMS.exists():
        pytest.skip(f"no {PROGRAMS}: make host-tests")
    return ["sh", "-ec", "\n".join(f"{PROGRAMS}/{words}" for words in FUNCTIONS)]


@pytest.fixture(scope="module")
def hosts(stage: RxeStage, pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("run")
    ends = dict(zip("ab", stage.ends, strict=True))

    def start_worker(name: str, options: Sequence[str]) -> Path:
        return stage.nics.launch(f"run-{name}", [*worker_options(ends[name]), *options]).control

    gids = {"a": (ends["a"].address, A), "b": (ends["b"].address, B)}
    with gid_hosts(pki, folder, start_worker, gids) as place:
        yield Hosts(place, folder, "10.78.0.0/24")


@pytest.mark.parametrize(
    "words",
    [
        "ibv_rc_pingpong -e -g 0 -n 20",
        pytest.param("ib_write_bw -n 20", marks=pytest.mark.soak),
        pytest.param("ib_read_lat -n 20", marks=pytest.mark.soak),
    ],
)
def test_programs_run_protected(hosts: Hosts, words: str) -> None:
    needs(words.split()[0])
    before = hosts.sealed()
    for code, out in hosts.pair(words.split()):
        assert code == 0, out
    assert all(now > then for now, then in zip(hosts.sealed(), before, strict=True))


def test_functions(hosts: Hosts) -> None:
    code, out = ended(hosts.start("a", all_functions()))
    assert code == 0, out
    assert out.count("[  PASSED  ] 1 test(s).") == len(FUNCTIONS), out
