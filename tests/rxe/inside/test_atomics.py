"""Atomics over verbs: the worker's RC QP to its host executes them in the host's memory."""

from __future__ import annotations

import sys
import time

from srdma import Access, SendFlag, SendWR, WCStatus, WROpcode

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
WAIT = 120
TOP = (1 << 64) - 1
EACH = 25


def value(mr, at):
    return int.from_bytes(mr.buf[at : at + 8], sys.byteorder)


def ended(qp, count):
    """Waits until that many requests have succeeded."""
    done = []
    until = time.monotonic() + WAIT
    while len(done) < count and time.monotonic() < until:
        done += qp.poll(count, timeout=1)
    assert [wc.status for wc in done] == [WCStatus.SUCCESS] * count


def test_atomics(stage, join):
    """Values, counters of two QPs, order after WRITE and before READ, and a refusal."""
    a, b = (join.host(worker, ring=1024) for worker in stage.secure.workers)
    pairs = [join.connect(a, b, timeout=WAIT) for _ in range(2)]
    qp = pairs[0].client.qp
    target = b.pd.alloc(4096, ALL, scope="pd")
    remote = target.remote()

    assert qp.fetch_add(remote, 8, TOP, timeout=WAIT) == 0
    assert value(target, 8) == TOP
    assert qp.compare_and_swap(remote, 8, TOP, 0x0102030405060708, timeout=WAIT) == TOP
    assert qp.compare_and_swap(remote, 8, 5, 6, timeout=WAIT) == 0x0102030405060708
    assert value(target, 8) == 0x0102030405060708

    with a.pd.alloc(8 * 2 * EACH) as into:
        for n in range(EACH):
            for q, pair in enumerate(pairs):
                place = 8 * (q * EACH + n)
                add = SendWR(n, WROpcode.ATOMIC_FETCH_AND_ADD, [into[place : place + 8]])
                add.compare_add = 1
                add.set_remote(remote, 16)
                pair.client.qp.post_send(add)
        for pair in pairs:
            ended(pair.client.qp, EACH)
        found = [value(into, 8 * n) for n in range(2 * EACH)]
    assert sorted(found) == list(range(2 * EACH))
    assert value(target, 16) == 2 * EACH

    into = a.pd.alloc(64)
    for n in range(5):
        write = SendWR(n, WROpcode.RDMA_WRITE, data=n.to_bytes(8, sys.byteorder))
        write.set_remote(remote, 24)
        add = SendWR(n, WROpcode.ATOMIC_FETCH_AND_ADD, [into[:8]], compare_add=100)
        add.set_remote(remote, 24)
        read = SendWR(n, WROpcode.RDMA_READ, [into[8:16]])
        read.set_remote(remote, 24)
        fence = SendFlag.SIGNALED | SendFlag.FENCE
        last = SendWR(n, WROpcode.RDMA_WRITE, data=b"", send_flags=fence)
        qp.post_send(write, add, read, last)
        ended(qp, 4)
        assert (value(into, 0), value(into, 8)) == (n, n + 100)

    crooked = SendWR(1, WROpcode.ATOMIC_FETCH_AND_ADD, [into[:8]])
    crooked.set_wr_atomic(remote.rkey, remote.address + 12, 1)
    qp.post_send(crooked)
    (wc,) = qp.poll(timeout=WAIT)
    assert (wc.status, wc.reason) == (WCStatus.REM_INV_REQ_ERR, "MISALIGNED")
    assert pairs[1].client.qp.fetch_add(remote, 16, 0, timeout=WAIT) == 2 * EACH
