"""A transfer between two machines on whose cable one frame in ten is flipped, lost or repeated.

This runs in machine 0 with host A; host B is in machine 1. About half of the flipped frames have a
right ICRC, so that the kernel accepts them. The worker then refuses the packet because of its tag,
and the peer's worker sends its data again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import srdma
from srdma.embedded import Worker
from tests.rxe.figures import figures
from tests.rxe.inside.conftest import A, B
from tests.rxe.inside.load import COUNT, REGION, Load
from tests.rxe.tcp_host import TcpHost
from tests.rxe.two import end
from tests.rxe.two.conftest import SLOW

ROUNDS = 2


@pytest.fixture
def pd(worker: Worker) -> Iterator[srdma.PD]:
    with srdma.Context(worker.control) as ctx, srdma.PD(ctx, 512) as pd:
        yield pd


def refusals(stats: dict[str, int]) -> dict[str, int]:
    return {name: n for name, n in stats.items() if name.startswith("refused_") and n}


# RFC 5042 A5.2
def test_every_request_completes_with_the_right_data(
    pd: srdma.PD, far: tuple[TcpHost, Any]
) -> None:
    host_b, worker = far
    options = {"timeout": SLOW, "qp_timeout": 120}
    theirs = {"peer": A, "identity": str(end.IDENTITIES / "host-b"), **options}
    listening = host_b.ask("listen", worker=worker, options=theirs, size=REGION)
    host_b.request("accept")
    mine = {"peer": B, "identity": end.IDENTITIES / "host-a", **options}
    connection = srdma.connect(tuple(listening["address"]), pd, **mine)
    assert host_b.answer()["identity"] == A
    with connection, pd.alloc(REGION) as memory:
        remote = srdma.RemoteMR.from_bytes(connection.data)
        load = Load(connection.qp, remote, memory, host_b)
        for _ in range(ROUNDS):
            start = time.monotonic()
            load.run()
            figures.append(f"{COUNT} requests in {time.monotonic() - start:.1f} s")
        refused = [refusals(pd.ctx.stats()), refusals(host_b.ask("stats"))]
        figures.append(f"refused at A: {refused[0]}, at B: {refused[1]}")
        assert all(found["refused_tag"] for found in refused)
    host_b.ask("hang_up")
