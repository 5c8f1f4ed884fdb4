"""SIGSTOP of a worker or of an application during transfers, and SIGCONT in time or too late.

Goal: only requests of and to the stopped process are affected. They end at their deadline, or
succeed if the process continues before it. Connections between the others continue undisturbed
through the same workers.
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
REQUESTS = 300  # requests of each bystander
SHORT, LONG = 0.7, 30.0  # QP timeouts: one that expires, and one that does not
# Reasons of QPs whose requests get no response: their own deadline, that of the peer, or missing
# receives of a stopped application.
TOO_LATE = {"DEADLINE", "PEER_ERROR", "NO_RECV_CREDIT"}
GONE = {"PEER_HOST_GONE", "PEER_CLOSED"}


@dataclass
class Street:
    """Traffic between A and B, and bystanders that use the same workers and a third one, C."""

    four: Four
    bystanders: dict[str, Load]  # by the two ends of the connection: "AB", "AC", "BC"

    @contextmanager
    def stopped(self, who: str) -> Iterator[None]:
        os.kill(self.four.pid(who), signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.four.pid(who), signal.SIGCONT)

    def check_bystanders(self, but: str = "") -> None:
        """Checks that the bystanders work, except for those that use the worker `but`."""
        for ends, load in self.bystanders.items():
            if but not in {f"NIC {end}" for end in ends}:
                load.run(load.until(REQUESTS))
                assert all(stream.received_all for stream in load.streams)
                assert not any(load.reasons)


@pytest.fixture(scope="module", params=[start_shm, start_udp], ids=["shm", "udp"])
def street(request: pytest.FixtureRequest, pki: Path) -> Iterator[Street]:
    """One Street for all tests. A test must leave it working."""
    with embedded_four(request.param) as (four, nics), closing(Joiner(pki)) as join:
        workers = four.workers | {"C": request.param(nics, "C")}
        hosts: dict[str, Host] = {end: join.host(worker) for end, worker in workers.items()}
        loads = {e: Load(join.connect(hosts[e[0]], hosts[e[1]])) for e in ("AB", "AC", "BC")}
        yield Street(four, loads)


@pytest.mark.parametrize("victim", VICTIMS)
# RFC 5042 A7.1b
def test_stopped_for_longer_than_the_timeout(street: Street, victim: str) -> None:
    street.four.qp_timeout = SHORT
    street.four.start()
    own = victim[-1]
    other = "B" if own == "A" else "A"
    with street.stopped(victim):
        street.check_bystanders(but=victim)
        judge(street.four.hosts[other].next(), TOO_LATE, SHORT)
    said = street.four.hosts[own].next()
    # Its requests end at their deadline, or with the reason that the other end has closed.
    judge(said, TOO_LATE | GONE, LONG)
    check_works(street, SHORT)


@pytest.mark.parametrize("victim", VICTIMS)
def test_stopped_for_less_than_the_timeout(street: Street, victim: str) -> None:
    """No request fails until check_works() kills host A."""
    street.four.qp_timeout = LONG
    street.four.start()
    for _ in range(3):
        with street.stopped(victim):
            street.check_bystanders(but=victim)
    check_works(street, LONG)


def test_control_requests_to_a_stopped_worker_time_out(street: Street) -> None:
    """A request to the stopped worker fails with an error that says that it does not respond."""
    with (
        street.stopped("NIC A"),
        pytest.raises(srdma.Timeout, match=r"did not answer HELLO in 0\.2 s"),
    ):
        srdma.Context(street.four.workers["A"].control, timeout=0.2)
    street.check_bystanders()


def check_works(street: Street, qp_timeout: float) -> None:
    """Checks that the bystanders work, and that the traffic of A and B flows until host A is
    killed. Traffic that ended by a SHORT timeout is started again first."""
    street.check_bystanders()
    if street.four.qp_timeout == SHORT:
        street.four.start()
    for said in street.four.kill("host A").values():
        judge(said, GONE, qp_timeout)
