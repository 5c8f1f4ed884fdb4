"""A process with an open QP over verbs forks: tests/e2e/test_fork.py with pyverbs objects.

pyverbs destroys objects when it frees them, also in a child, through descriptors that the child
shares with the parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

import srdma
from srdma.demo.rxe_stage import RxeStage
from tests.e2e.forking import WAIT
from tests.e2e.forking_host import Parent, check_refusals


@pytest.fixture(scope="module")
def pd_b(stage: RxeStage) -> Iterator[srdma.PD]:
    with srdma.Context(stage.secure.b) as ctx, srdma.PD(ctx, 1024) as pd:
        yield pd


def parent(how: str, stage: RxeStage, pd_b: srdma.PD) -> Parent:
    identities = stage.identities
    return Parent(how, stage.secure.a, identities / "host-a", pd_b, identities / "host-b")


def test_child_can_use_nothing_and_its_end_keeps_the_connection(stage, pd_b):
    with closing(parent("use", stage, pd_b)) as it:
        it.works()
        check_refusals(it.lines)
        it.end()


def test_connection_ends_with_the_parent(stage, pd_b):
    with closing(parent("stay", stage, pd_b)) as it:
        it.works()
        it.process.kill()
        with pytest.raises(srdma.WCError, match=r"PEER_CLOSED|PEER_HOST_GONE"):
            it.connection.qp.recv(WAIT)
