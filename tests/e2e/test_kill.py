"""kill -9 of one of the four processes in mid-transfer, 52 times in all.

Goal: every outstanding request of the survivors ends exactly once and in time, nothing hangs,
nothing is left, and the next run works - with the survivors, which go on, and a successor of the
one killed.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from srdma.demo_stage import make_identities
from srdma.embedded import Embedded
from tests.e2e.four import Four, judge
from tests.e2e.leftovers import place

ROUNDS = 13
LATEST_KILL = 0.05  # seconds after data flows
REASONS = {
    "host A": {"B": {"PEER_HOST_GONE", "PEER_CLOSED"}},
    "host B": {"A": {"PEER_HOST_GONE", "PEER_CLOSED"}},
    "NIC A": {"A": {"WORKER_GONE"}, "B": {"WIRE_LOST", "DEADLINE"}},
    "NIC B": {"B": {"WORKER_GONE"}, "A": {"WIRE_LOST", "DEADLINE"}},
}


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> Iterator[Four]:
    with place() as here, ExitStack() as stack:
        monkeypatch.setenv("TMPDIR", str(here.folder))
        monkeypatch.setattr(tempfile, "tempdir", str(here.folder))
        nics = stack.enter_context(Embedded())
        identities = make_identities(nics.folder / "identities")
        processes = Four(here.env, identities, lambda end: nics.start(f"nic{end.lower()}"))
        stack.callback(processes.close)
        yield processes


@pytest.mark.parametrize("victim", list(REASONS))
def test_kill_in_mid_transfer(four: Four, victim: str) -> None:
    dice = random.Random(victim)
    for _ in range(ROUNDS):
        four.start()
        time.sleep(dice.uniform(0, LATEST_KILL))
        for end, said in four.kill(victim).items():
            judge(said, REASONS[victim][end])
