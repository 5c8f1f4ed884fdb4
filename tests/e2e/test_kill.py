"""kill -9 of one of the four processes during transfers; 200 times over shm with `make soak`.

Goal: every outstanding request of the survivors ends exactly once and in time, nothing hangs,
nothing is left, and the next run works with the survivors and a successor of the killed process.
"""

from __future__ import annotations

import random
import time

import pytest

from tests.e2e.four import Four, Start, embedded_four, judge, start_shm, start_udp
from tests.e2e.leftovers import GONE

LATEST_KILL = 0.05  # seconds after data flows
SETTLED = 0.2  # seconds until descriptors are counted after the first kill
HOST_GONE = {"PEER_HOST_GONE", "PEER_CLOSED"}
NIC_GONE = {"WIRE_LOST"}  # the host of the killed worker reports its end over TLS
REASONS = {
    "host A": {"B": HOST_GONE},
    "host B": {"A": HOST_GONE},
    "NIC A": {"A": {"WORKER_GONE"}, "B": NIC_GONE},
    "NIC B": {"B": {"WORKER_GONE"}, "A": NIC_GONE},
}
QP_TIMEOUT = 10.0


def rounds(n: int, soak: int) -> list[object]:
    return [n, pytest.param(soak, marks=pytest.mark.soak)]


def end_one_by_one(start: Start, victim: str, n: int) -> None:
    """Kills the process and its successors. The survivors must not gain descriptors."""
    dice = random.Random(victim)
    survivors = {"host A", "host B", "NIC A", "NIC B"} - {victim}
    before: dict[str, int] = {}
    failed = 0
    with embedded_four(start, QP_TIMEOUT) as (four, _):
        for _ in range(n):
            four.start()
            time.sleep(dice.uniform(0, LATEST_KILL))
            for end, said in four.kill(victim).items():
                failed += judge(said, REASONS[victim][end], four.qp_timeout)
            for who in survivors:
                check_descriptors(four, who, before)
    assert failed


def check_descriptors(four: Four, who: str, before: dict[str, int]) -> None:
    """Waits until the process has no more descriptors than after the first round."""
    if who not in before:
        time.sleep(SETTLED)
        before[who] = four.descriptors(who)
    deadline = time.monotonic() + GONE
    while four.descriptors(who) > before[who]:
        assert time.monotonic() < deadline, f"{who}: {four.descriptors(who)}, not {before[who]}"
        time.sleep(0.02)


@pytest.mark.parametrize("n", rounds(6, 50))
@pytest.mark.parametrize("victim", list(REASONS))
def test_kill_during_transfers(victim: str, n: int) -> None:
    end_one_by_one(start_shm, victim, n)


@pytest.mark.parametrize("n", rounds(2, 5))
@pytest.mark.parametrize("victim", list(REASONS))
def test_kill_over_udp(victim: str, n: int) -> None:
    end_one_by_one(start_udp, victim, n)
