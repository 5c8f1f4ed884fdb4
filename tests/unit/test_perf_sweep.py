"""Where the requests of a stream go, in C and in Python, with a simulated worker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import srdma
from srdma_bench.perf.hosts import PATIENCE, host_named
from srdma_bench.perf.measure import End, Place, Plan
from tests.unit.test_qp import REMOTE, Player

REGION, SIZE, DEPTH = 64 << 10, 64, 8
ROOM = REGION // SIZE


@pytest.fixture
def qps(pd):
    qps = [srdma.SecureQP(pd, DEPTH, 1) for _ in range(3)]
    for qp in qps:
        qp.connected = True
    return qps


@pytest.fixture
def place(pd):
    place = Place(pd, REGION)
    yield place
    place.close()


@pytest.mark.parametrize("name", ["C", "Python"])
@pytest.mark.parametrize("test", ["write_bw", "read_bw", "send_bw"])
def test_stream_uses_the_whole_region(worker, pd, qps, place, name, test):
    """A stream goes over the whole region repeatedly and stays inside it. Two QPs never use the
    same slot."""

    def signaled(d, done):
        return done if d.flags else None

    end = End(SimpleNamespace(qps=qps), place, REMOTE)
    with Player(worker.leg, signaled) as player:
        host_named(name, pd, PATIENCE).stream(end._sweep(Plan(test, SIZE)), 3 * ROOM, 0)
    end.close()
    local = place.landing if test == "read_bw" else place.source
    posted = [d for d in player.seen if d.length]
    assert len(posted) == 3 * ROOM
    owners: dict[int, set[int]] = {}
    for d in posted:
        offset = d.local_addr - local.addr
        assert d.remote_addr == (0 if test == "send_bw" else REMOTE.address + offset)
        owners.setdefault(offset, set()).add(d.qpn)
    assert sorted(owners) == list(range(0, REGION, SIZE))
    assert all(len(found) == 1 for found in owners.values())
    assert set().union(*owners.values()) == {qp.qp_num for qp in qps[1:]}
