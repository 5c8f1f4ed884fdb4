"""A process with an open QP forks.

Goal: every use of an inherited object in the child is an error. Neither the child's life nor its
end affects the parent, and when the parent ends, its connection ends although the child lives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import srdma
from srdma.embedded import Embedded
from tests.e2e.conftest import WAIT, Joiner, Site
from tests.e2e.forking_host import Parent, check_refusals


@pytest.fixture
def parent(site: Site, pki: Path, join: Joiner, request: pytest.FixtureRequest) -> Iterator[Parent]:
    other = join.host(site.b).pd
    found = Parent(request.param, site.a.control, pki / "a", other, pki / "b")
    yield found
    found.close()


def legs(site: Site) -> int:
    """Returns the number of legs at host a's worker."""
    with srdma.Context(site.a.control) as ctx:
        return ctx.stats()["legs"]


def wait_for_no_legs(site: Site) -> None:
    deadline = time.monotonic() + WAIT
    while legs(site):
        assert time.monotonic() < deadline, "the worker still has the parent's leg"
        time.sleep(0.01)


@pytest.mark.parametrize("parent", ["use"], indirect=True)
# review A26
def test_every_call_in_the_child_raises(site: Site, parent: Parent) -> None:
    parent.works()
    check_refusals(parent.lines)
    parent.end()


@pytest.mark.parametrize("parent", ["exit"], indirect=True)
def test_end_of_the_child_keeps_the_connection(site: Site, parent: Parent) -> None:
    parent.works()
    parent.end()
    wait_for_no_legs(site)


@pytest.mark.parametrize("parent", ["stay"], indirect=True)
@pytest.mark.parametrize("killed", [False, True])
def test_connection_ends_with_the_parent(site: Site, parent: Parent, killed: bool) -> None:
    parent.works()
    if killed:
        parent.process.kill()
    else:
        parent.end()
    with pytest.raises(srdma.WCError, match=r"PEER_CLOSED|PEER_HOST_GONE"):
        parent.connection.qp.recv(WAIT)
    wait_for_no_legs(site)


def test_child_exit_stops_no_workers() -> None:
    with Embedded() as nics:
        worker = nics.start("a")
        child = os.fork()
        if not child:
            nics.close()
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        assert worker.wait_until_up().name == "a"
        assert nics.folder.exists()
