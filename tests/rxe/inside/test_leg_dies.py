"""A leg between two devices, as between a host and its SmartNIC: the link stalls, or is lost.

Host A uses the far device of the pair, so that its leg passes over the veth, which netem cuts. Its
peer, host B, is at the same worker and uses the worker's own device.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import srdma
from srdma import Access
from tests.e2e.conftest import Host
from tests.rxe.inside.netem import CUT, netem

WAIT = 120.0
# The device retransmits until 8.6 s after the cut. A busy machine removes the cut up to 2 s late.
STALL_S = 6.0
SIZE = 64 << 10
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ


@pytest.fixture
def pair(stage, join):
    """Connected hosts: client A with the far device, server B with that of the worker."""
    worker = stage.secure.a
    with (
        srdma.Context(worker, device=stage.ends[1].device) as far,
        srdma.Context(worker, device=stage.ends[0].device) as near,
        srdma.PD(far, 512) as far_pd,
        srdma.PD(near, 512) as near_pd,
    ):
        yield join.connect(Host(far, far_pd), Host(near, near_pd), timeout=WAIT, qp_timeout=WAIT)
    stage.wire.forget()  # the leg is not encrypted


def test_requests_survive_a_stall_of_the_leg(stage, pair):
    target = pair.b.pd.alloc(SIZE, RIGHTS, scope="pd")
    data = bytes(range(256)) * (SIZE // 256)
    with ThreadPoolExecutor(1) as pool:
        with netem(stage.ends, CUT):
            writing = pool.submit(pair.client.qp.write, data, target.remote(), timeout=WAIT)
            time.sleep(STALL_S)
            assert not writing.done()
        writing.result(WAIT)
    assert bytes(target.buf) == data
    assert pair.client.qp.read(target.remote(), 0, 16, timeout=WAIT) == data[:16]


def test_lost_link_ends_a_used_leg_with_named_errors(stage, pair):
    """DMA to host A is under way at the worker, and a request of host A is on its way to it."""
    theirs, ours = (
        pair.a.pd.alloc(SIZE, RIGHTS, scope="pd"),
        pair.b.pd.alloc(SIZE, RIGHTS, scope="pd"),
    )
    data = bytes(SIZE)
    with ThreadPoolExecutor(2) as pool, netem(stage.ends, CUT):
        to_a = pool.submit(pair.server.qp.write, data, theirs.remote(), timeout=WAIT)
        to_b = pool.submit(pair.client.qp.write, data, ours.remote(), timeout=WAIT)
        with pytest.raises(srdma.RemoteError, match="PEER_HOST_GONE"):
            to_a.result(WAIT)
        with pytest.raises(srdma.WorkerGone):
            to_b.result(WAIT)


def test_lost_link_ends_an_idle_leg_with_named_errors(stage, pair):
    """Nothing is under way: both ends notice it by their heartbeats."""
    with ThreadPoolExecutor(2) as pool, netem(stage.ends, CUT):
        receiving = [pool.submit(end.qp.recv, WAIT) for end in (pair.client, pair.server)]
        with pytest.raises(srdma.WorkerGone):
            receiving[0].result(WAIT)
        with pytest.raises(srdma.RemoteError, match="PEER_HOST_GONE"):
            receiving[1].result(WAIT)
        with pytest.raises(srdma.WorkerGone, match=r"does not acknowledge.* open a new one"):
            pair.a.pd.alloc(8)
    with srdma.PD(pair.a.ctx, 64) as pd:  # the link is back
        assert pd.alloc(8).lkey
