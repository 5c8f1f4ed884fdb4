"""kill -9 of a worker in mid-transfer: every request ends, and a new worker works."""

from __future__ import annotations

import time

import srdma
from srdma import SendWR, WCStatus, WROpcode

REQUESTS = 48
PIECE = 256 << 10
DEADLINE = 20.0  # seconds


def post(qp: srdma.SecureQP, memory: srdma.MR, remote: srdma.RemoteMR) -> None:
    for i in range(REQUESTS):
        wr = SendWR(i, WROpcode.RDMA_WRITE, [memory[i * PIECE : (i + 1) * PIECE]])
        wr.set_remote(remote, i * PIECE)
        qp.post_send(wr)


def collect(qp: srdma.SecureQP, wanted: int, end: float) -> list[srdma.WC]:
    found: list[srdma.WC] = []
    while len(found) < wanted:
        found += qp.poll(REQUESTS, max(end - time.monotonic(), 0))
        assert time.monotonic() < end, f"{len(found)} of {wanted} ended"
    return found


def test_peers_worker_killed(stage, connected, host_b, pd, memory):
    victim = stage.start("victim", stage.ends[1])
    pair = type(stage.secure)([stage.secure.workers[0], victim], stage.wire)
    size = REQUESTS * PIECE
    with connected(pd, pair, size=size, qp_timeout=DEADLINE) as (connection, remote):
        qp = connection.qp
        post(qp, memory, remote)
        end = time.monotonic() + DEADLINE + 5
        first = collect(qp, 2, end)
        victim.process.kill()
        victim.process.wait()
        wcs = first + collect(qp, REQUESTS - len(first), end)
        assert [wc.wr_id for wc in wcs] == list(range(REQUESTS))
        good = [wc.status for wc in wcs].index(WCStatus.RETRY_EXC_ERR)
        assert 2 <= good < REQUESTS
        assert all(wc.status is WCStatus.SUCCESS for wc in wcs[:good])
        assert wcs[good].reason == "WIRE_LOST"
        assert all(wc.status is WCStatus.WR_FLUSH_ERR for wc in wcs[good + 1 :])
        assert qp.reason == "WIRE_LOST"
        assert host_b.ask("ended", qp=0)["reason"] in ("", "WORKER_GONE")
    heir = stage.start("heir", stage.ends[1])
    pair = type(stage.secure)([stage.secure.workers[0], heir], stage.wire)
    with connected(pd, pair, size=size) as (connection, remote):
        connection.qp.write(memory[:size], remote)
        assert (
            host_b.ask("look", offset=size - 64, length=64)["data"] == memory.buf[size - 64 : size]
        )
