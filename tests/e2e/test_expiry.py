"""Expiry of capabilities at a running worker: its wall clock is current for every packet."""

from __future__ import annotations

import time

import pytest

from srdma import Access, Right
from srdma.errors import RemoteWCError
from tests.e2e.conftest import WAIT, A, pattern

SIZE = 8192
HOUR = 3600


@pytest.fixture
def region(join, site):
    """A connection with proofs, and a region of host b."""
    pair = join(site, mode="mem")
    access = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
    with pair.b.pd.alloc(SIZE, access, proof=True) as mr:
        mr.buf[:] = pattern(SIZE, 1)
        yield pair, mr


def grant(mr, expires, holder=None):
    return mr.capability(0, SIZE, rights=Right.READ, holder=holder, expires=expires)


@pytest.mark.parametrize("holder", [None, A])
def test_not_yet_expired(region, holder):
    pair, mr = region
    capability = grant(mr, int(time.time()) + HOUR, holder)
    assert pair.client.qp.read(capability, 0, SIZE, timeout=WAIT) == pattern(SIZE, 1)


@pytest.mark.parametrize("ago", [1, HOUR])
# RFC 5042 R6.3.3-1
def test_expired(region, ago):
    pair, mr = region
    capability = grant(mr, int(time.time()) - ago)
    with pytest.raises(RemoteWCError, match="PROOF_EXPIRED"):
        pair.client.qp.read(capability, 0, SIZE, timeout=WAIT)


def test_capability_expires_while_the_worker_sleeps(region):
    """The first packet after the sleep is compared with the new time, not with the last one."""
    pair, mr = region
    soon = int(time.time()) + 2
    ended, lasting = grant(mr, soon), grant(mr, soon + HOUR)
    while time.time() < soon + 0.1:  # the coarse clock is at most a tick behind
        time.sleep(0.1)
    assert pair.client.qp.read(lasting, 0, SIZE, timeout=WAIT) == pattern(SIZE, 1)
    with pytest.raises(RemoteWCError, match="PROOF_EXPIRED"):
        pair.client.qp.read(ended, 0, SIZE, timeout=WAIT)
