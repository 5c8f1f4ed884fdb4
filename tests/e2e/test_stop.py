"""SIGSTOP of a worker or of an application in mid-transfer, and SIGCONT in time or too late.

Goal: it hurts its own requests only. Those to or of the stopped process end by their deadline, or
well if it goes on before; connections between the others go on as if nothing had been, through the
same workers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import srdma
from tests.e2e.conftest import Host, Joiner
from tests.e2e.four import Four, embedded_four, judge, start_shm, start_udp
from tests.e2e.load import Load

VICTIMS = ["NIC A", "NIC B", "host B"]
REQUESTS = 300  # of each bystander
SHORT, LONG = 0.7, 30.0  # QP timeouts: one that passes, one that does not
# Why QPs end whose requests are not answered: their own deadline, or that of the peer. Who waits
# for receives of a stopped application says so.
TOO_LATE = {"DEADLINE", "PEER_ERROR", "NO_RECV_CREDIT"}
GONE = {"PEER_HOST_GONE", "PEER_CLOSED"}


@dataclass
class Street:
    """Traffic between A and B, and bystanders at the same workers and a third one, C."""

    four: Four
    bystanders: dict[str, Load]  # by the ends that they join

    @contextmanager
    def stopped(self, who: str) -> Iterator[None]:
        os.kill(self.four.pid(who), signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.four.pid(who), signal.SIGCONT)

    def check_bystanders(self, but: str = "") -> None:
        """They go on; not those that need this one, if it is a worker."""
        for ends, load in self.bystanders.items():
            if but not in {f"NIC {end}" for end in ends}:
                load.run(load.until(REQUESTS))
                assert all(stream.received_all for stream in load.streams)
                assert not any(load.reasons)


@pytest.fixture(scope="module", params=[start_shm, start_udp], ids=["shm", "udp"])
def street(request: pytest.FixtureRequest, pki: Path) -> Iterator[Street]:
    """One for all tests: none of them may do it lasting harm."""
    with embedded_four(request.param) as (four, nics), closing(Joiner(pki)) as join:
        workers = four.workers | {"C": request.param(nics, "C")}
        hosts: dict[str, Host] = {end: join.host(worker) for end, worker in workers.items()}
        loads = {e: Load(join.connect(hosts[e[0]], hosts[e[1]])) for e in ("AB", "AC", "BC")}
        yield Street(four, loads)


@pytest.mark.parametrize("victim", VICTIMS)
def test_stopped_for_too_long(street: Street, victim: str) -> None:
    street.four.qp_timeout = SHORT
    street.four.start()
    own = victim[-1]
    other = "B" if own == "A" else "A"
    with street.stopped(victim):
        street.check_bystanders(but=victim)
        judge(street.four.hosts[other].next(), TOO_LATE, SHORT)
    said = street.four.hosts[own].next()
    judge(said, TOO_LATE | GONE, LONG)  # by then the other has left, too
    check_works(street, SHORT)


@pytest.mark.parametrize("victim", VICTIMS)
def test_stopped_for_a_while(street: Street, victim: str) -> None:
    """Nothing ends but by the kill in the end."""
    street.four.qp_timeout = LONG
    street.four.start()
    for _ in range(3):
        with street.stopped(victim):
            street.check_bystanders(but=victim)
    check_works(street, LONG)


def test_other_uses_of_a_stopped_worker(street: Street) -> None:
    """Who asks it something is told that it does not answer."""
    with (
        street.stopped("NIC A"),
        pytest.raises(srdma.Timeout, match=r"gave no answer to HELLO in 0\.2 s"),
    ):
        srdma.Context(street.four.workers["A"].control, timeout=0.2)
    street.check_bystanders()


def check_works(street: Street, qp_timeout: float) -> None:
    """Everybody goes on; A and B have traffic, new if the old one ended, until A is killed."""
    street.check_bystanders()
    if street.four.qp_timeout == SHORT:
        street.four.start()
    for said in street.four.kill("host A").values():
        judge(said, GONE, qp_timeout)
