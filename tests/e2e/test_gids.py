"""Rendezvous by (GID, QPN) (agent.md 11): programs, agents and workers are real."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import srdma
import srdma.aio
from srdma import Access
from tests import daemon
from tests.e2e.agents import Place, gid_hosts
from tests.e2e.conftest import WAIT, A, B, run


@pytest.fixture
def place(pki: Path, tmp_path: Path) -> Iterator[Place]:
    with gid_hosts(pki, tmp_path) as place:
        yield place


def made(place: Place, **options: object) -> tuple[srdma.Rendezvous, srdma.Rendezvous]:
    options = {"timeout": WAIT} | options
    return (
        srdma.rendezvous(place.a.pd, identity="host-a", peer=B, **options),
        srdma.rendezvous(place.b.pd, identity="host-b", peer=A, **options),
    )


def connected(place: Place, **options: object) -> tuple[srdma.Connection, srdma.Connection]:
    a, b = made(place, **options)
    other = run(b.connect, a.gid, a.qp_num)
    return a.connect(b.gid, b.qp_num), other()


@pytest.mark.parametrize("mode", ["basic", "pd"])
def test_traffic_renewal_and_restart(place: Place, mode: str) -> None:
    left, right = connected(place, mode=mode)
    assert (left.identity, right.identity) == (B, A)
    for one, pd in ((left, place.b.pd), (right, place.a.pd)):
        with pd.alloc(64, Access.LOCAL_WRITE | Access.REMOTE_WRITE, scope="pd") as region:
            one.qp.write(b"x" * 64, region.remote(), timeout=WAIT)
            assert bytes(region.buf) == b"x" * 64
            one.rekey(WAIT)
            place.agents[0].restart(signal.SIGKILL)
            one.rekey(WAIT)
            one.qp.write(b"y" * 64, region.remote(), timeout=WAIT)
            assert bytes(region.buf) == b"y" * 64
    assert left.alive() and right.alive()
    with pytest.raises(srdma.LocalError, match="make a new Rendezvous"):
        left.reconnect()


def test_many(place: Place) -> None:
    """The QPs belong to all worker processes. The GIDs have the form of pyverbs."""
    with contextlib.ExitStack() as stack:
        ends = []
        for host in (place.a, place.b):
            pds = [stack.enter_context(srdma.PD(host.ctx, thread=n)) for n in range(3)]
            who = ("host-a", B) if host is place.a else ("host-b", A)
            ends.append(
                [srdma.rendezvous(pd, identity=who[0], peer=who[1], timeout=WAIT) for pd in pds * 3]
            )
        assert {a.qp_num % 3 for a in ends[0]} == {0, 1, 2}
        calls = [
            run(one.connect, f"0000:0000:0000:0000:0000:ffff:7f00:000{n}", other.qp_num)
            for a, b in zip(*ends, strict=True)
            for one, other, n in ((a, b, 2), (b, a, 1))
        ]
        assert {call().identity for call in calls} == {A, B}


def test_asyncio(place: Place) -> None:
    async def meet() -> None:
        a, b = made(place)
        left, right = await asyncio.gather(
            srdma.aio.meet(a, b.gid, b.qp_num), srdma.aio.meet(b, a.gid, a.qp_num)
        )
        receive = asyncio.ensure_future(right.qp.recv())
        await left.qp.send(b"hello")
        assert bytes((await receive).data) == b"hello"
        await left.close()
        await right.close()

    asyncio.run(asyncio.wait_for(meet(), WAIT))


def test_qp_of_another_program(place: Place) -> None:
    """A program cannot call for the QP of another PD: nothing waits under its number."""
    a, b = made(place)
    with srdma.PD(place.b.ctx, thread=b.qp_num % 3) as other:
        mine = srdma.rendezvous(other, identity="host-b", peer=A)
        assert mine._qp and b._qp
        mine._qp.info = b._qp.info
        with pytest.raises(srdma.LocalError, match="is no new QP of this program"):
            mine.connect(a.gid, a.qp_num)
    late = run(b.connect, a.gid, a.qp_num)
    a.connect(b.gid, b.qp_num)
    late()


def test_wrong_calls(place: Place) -> None:
    a, _ = made(place)
    with pytest.raises(srdma.LocalError, match="is no GID"):
        a.connect("host-b", 7)
    with pytest.raises(srdma.LocalError, match=r"no \[\[peer\]\] with the GID 10.0.0.9"):
        a.connect("10.0.0.9", 7)
    with pytest.raises(srdma.LocalError, match="was connected before"):
        a.connect("10.0.0.9", 7)
    with pytest.raises(srdma.LocalError, match="a rendezvous connects one QP"):
        srdma.rendezvous(place.a.pd, identity="host-a", qps=2)
    late, _ = made(place, timeout=2.0)
    with pytest.raises(srdma.Timeout, match=r"0x000007 of 127.0.0.2|CHOICE"):
        late.connect("127.0.0.2", 7)


def test_without_a_gid_and_a_system_agent(pki: Path, tmp_path: Path) -> None:
    options = {"identity": pki / "a", "peer": B}
    with (
        daemon.worker(tmp_path, "a") as worker,
        srdma.Context(worker.control) as ctx,
        srdma.PD(ctx) as pd,
        pytest.raises(srdma.LocalError, match="--gid"),
    ):
        srdma.rendezvous(pd, **options)
    with (
        daemon.worker(tmp_path, "b", "--gid", "::1") as worker,
        srdma.Context(worker.control) as ctx,
        srdma.PD(ctx) as pd,
    ):
        one = srdma.rendezvous(pd, **options)
        assert one.gid == "::1"
        with pytest.raises(srdma.LocalError, match="needs a system agent"):
            one.connect("::2", 7)
