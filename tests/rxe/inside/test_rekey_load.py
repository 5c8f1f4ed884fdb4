"""Rekeys over rxe while requests of all kinds are outstanding."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.rxe.figures import figures
from tests.rxe.inside.load import COUNT, REGION, Load

TIMES = 15  # more than a burst (protocol.md 8.5)


def test_rekeys_under_load(stage, connected, host_b, pd, memory):
    with connected(pd, size=REGION, qp_timeout=120) as (connection, remote):
        load = Load(connection.qp, remote, memory, host_b)
        before, start, rounds = pd.ctx.stats(), time.monotonic(), 0
        failed = threading.Event()

        def renew() -> None:
            for _ in range(TIMES):
                if not failed.is_set():
                    connection.rekey(timeout=stage.patience)

        with ThreadPoolExecutor(1) as thread:
            renewing = thread.submit(renew)
            try:
                while not renewing.done() or not rounds:
                    load.run()
                    rounds += 1
            except BaseException:
                failed.set()  # the executor waits for the thread
                raise
            renewing.result()
        seconds = time.monotonic() - start
        load.run()
        now = pd.ctx.stats()
    assert now["rekeys_sent"] - before["rekeys_sent"] >= TIMES
    assert now["rekeys_received"] - before["rekeys_received"] >= TIMES
    assert now["refused_tag"] == before["refused_tag"]
    figures.append(f"{TIMES} new secrets in {seconds:.0f} s, {(rounds + 1) * COUNT} requests")
