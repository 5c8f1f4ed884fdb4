"""A bad link between the NICs, and a man in the middle of it: all data stays intact."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.mitm import Faults
from tests.rxe.figures import figures
from tests.rxe.inside.load import COUNT, REGION, Load
from tests.smartnic.outside import tamper, tampered

pytestmark = pytest.mark.full
WIRES = {
    "bad link": Faults(flip=100, drop=200, late=200),
    "attacker": Faults(flip=200, twice=200, replace=200),
}
ROUNDS = 2


@contextmanager
def faults_of(wire: str) -> Iterator[None]:
    """The wire has these faults, and each of them hits packets."""
    before = tampered()
    tamper(WIRES[wire])
    try:
        yield
    finally:
        tamper(Faults())
    hits = {
        name: count - getattr(before, name)
        for name, count in tampered()._asdict().items()
        if getattr(WIRES[wire], name, 0)
    }
    figures.append(f"{wire}: {hits}")
    assert len(hits) == 3 and all(hits.values())


@pytest.mark.parametrize("wire", WIRES)
def test_all_requests_complete_with_the_right_data(options, connected, host_b, memory, wire):
    """About half of the flipped packets have a right ICRC: only their tag shows the change."""
    if not options["middle"]:
        pytest.skip("needs stand.py --middle")
    with connected(memory.pd, size=REGION, qp_timeout=120) as (connection, remote):
        load = Load(connection.qp, remote, memory, host_b)
        stats = memory.pd.ctx.stats, lambda: host_b.ask("stats")
        before = [of_end()["refused_tag"] for of_end in stats]
        start = time.monotonic()
        with faults_of(wire):
            for _ in range(ROUNDS):
                load.run()
        figures.append(f"{wire}: {ROUNDS * COUNT} requests in {time.monotonic() - start:.1f} s")
        now = [of_end()["refused_tag"] for of_end in stats]
        load.run()
    wrong = [late - early for early, late in zip(before, now, strict=True)]
    figures.append(f"{wire}: wrong tags at A and B: {wrong}")
    assert sum(wrong)
