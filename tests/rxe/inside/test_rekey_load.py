"""Rekeys over rxe while requests of all kinds are outstanding."""

from __future__ import annotations

import time
from functools import partial

from tests.rxe.figures import figures
from tests.rxe.inside.load import REGION, Load, during

TIMES = 15  # more than a burst (protocol.md 8.5)


def test_rekeys_under_load(stage, connected, host_b, pd, memory):
    with connected(pd, size=REGION, qp_timeout=120) as (connection, remote):
        load = Load(connection.qp, remote, memory, host_b)
        before, start = pd.ctx.stats(), time.monotonic()
        requests = during(load, [partial(connection.rekey, timeout=stage.patience)] * TIMES)
        seconds = time.monotonic() - start
        now = pd.ctx.stats()
    assert now["rekeys_sent"] - before["rekeys_sent"] >= TIMES
    assert now["rekeys_received"] - before["rekeys_received"] >= TIMES
    assert now["refused_tag"] == before["refused_tag"]
    figures.append(f"{TIMES} new secrets in {seconds:.0f} s, {requests} requests")
