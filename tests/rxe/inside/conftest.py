"""Four processes over rxe: host A (this one), NIC A, NIC B, host B.

The stage is that of the demo: a pair of rxe devices, two workers that protect, two that permit
level none, and a capture of every frame between them. It is made once, because importing pyverbs
and connecting each take seconds here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

import srdma
from srdma.demo import rxe
from srdma.demo.rxe_stage import RxePair, RxeStage
from srdma.demo.stage import HostProcess
from srdma.identity import create_ca, issue
from tests.e2e.conftest import Joiner

A, B = "spiffe://demo/host-a", "spiffe://demo/host-b"
REGION = 64 << 20
RING = 1024

Connected = Callable[..., AbstractContextManager[tuple[srdma.Connection, srdma.RemoteMR]]]


@pytest.fixture(scope="session")
def stage() -> Iterator[RxeStage]:
    if why := rxe.unavailable():
        pytest.skip(why)
    with closing(RxeStage("main", "10.78.0")) as stage:
        yield stage


@pytest.fixture(scope="session")
def host_b(stage: RxeStage) -> Iterator[HostProcess]:
    with closing(HostProcess("tests.rxe.inside.host_b")) as host:
        host.wait_until_up()
        yield host


@pytest.fixture(scope="session")
def pd(stage: RxeStage) -> Iterator[srdma.PD]:
    """Host A's PD at NIC A."""
    with srdma.Context(stage.secure.a) as ctx, srdma.PD(ctx, RING) as pd:
        yield pd


@pytest.fixture(scope="session")
def memory(pd: srdma.PD) -> srdma.MR:
    """A region of host A, as large as host B's."""
    return pd.alloc(REGION)


@pytest.fixture(scope="session")
def connected(stage: RxeStage, host_b: HostProcess) -> Connected:
    """`with connected(pd) as (connection, remote)` connects host A, at pd, with host B, at the
    other worker."""

    @contextlib.contextmanager
    def connect(
        pd: srdma.PD, pair: RxePair | None = None, *, size: int = REGION, **options: Any
    ) -> Iterator[tuple[srdma.Connection, srdma.RemoteMR]]:
        options.setdefault("timeout", stage.patience)
        theirs = {"peer": A, "identity": str(stage.identities / "host-b"), **options}
        worker = str((pair or stage.secure).b)
        host, port = host_b.ask("listen", worker=worker, options=theirs, size=size)["address"]
        host_b.request("accept")
        mine = {"peer": B, "identity": stage.identities / "host-a", **options}
        try:
            connection = srdma.connect((host, port), pd, **mine)
        finally:
            accepted = host_b.answer()
        assert accepted["identity"] == A
        with connection:
            yield connection, srdma.RemoteMR.from_bytes(connection.data)
        host_b.ask("hang_up")

    return connect


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    create_ca(folder, "test")
    issue(folder, "spiffe://test/a", folder / "a")
    issue(folder, "spiffe://test/b", folder / "b")
    return folder


@pytest.fixture
def join(pki: Path) -> Iterator[Joiner]:
    """Makes connections with both hosts in this process."""
    joiner = Joiner(pki)
    yield joiner
    joiner.close()
