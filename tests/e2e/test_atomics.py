"""Atomics over two real workers: values, order, concurrent counters, and refusals."""

from __future__ import annotations

import asyncio
import sys

import pytest

import srdma
import srdma.aio
from srdma import Access, Right, SendFlag, SendWR, WCOpcode, WCStatus, WROpcode
from srdma.capability import CapabilityError
from tests.e2e.conftest import WAIT, B, Joiner, run

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
TOP = (1 << 64) - 1
SIZE = 4096


@pytest.fixture(scope="module")
def pair(site, pki):
    """One connection for the tests that do not harm it."""
    joiner = Joiner(pki)
    yield joiner(site, mode="mem")
    joiner.close()


@pytest.fixture(params=["alloc", "reg_mr"])
def target(pair, request):
    """Memory that the worker maps, and memory of this process."""
    if request.param == "alloc":
        mr = pair.b.pd.alloc(SIZE, ALL, scope="pd")
    else:
        mr = pair.b.pd.reg_mr(bytearray(SIZE + 8), ALL, scope="pd")
    with mr:
        yield mr


def aligned(mr, n=0):
    """Returns the offset of the n-th aligned number in the region."""
    return -mr.addr % 8 + 8 * n


def value(mr, at):
    return int.from_bytes(mr.buf[at : at + 8], sys.byteorder)


def put(mr, at, number):
    mr.buf[at : at + 8] = number.to_bytes(8, sys.byteorder)


@pytest.mark.parametrize(
    ("before", "add", "after"),
    [
        (0, 1, 1),
        (41, 1, 42),
        (TOP, 1, 0),
        (5, -6, TOP),
        (1, TOP, 0),
        (7, 0, 7),
        (0, 1 << 63, 1 << 63),
    ],
)
def test_fetch_add(pair, target, before, add, after):
    at = aligned(target, 3)
    put(target, at, before)
    assert pair.client.qp.fetch_add(target.remote(), at, add, timeout=WAIT) == before
    assert value(target, at) == after


@pytest.mark.parametrize(
    ("before", "compare", "swap", "after"),
    [
        (0, 0, TOP, TOP),
        (5, 6, 7, 5),
        (TOP, TOP, 0, 0),
        (1, 1, 0x0102030405060708, 0x0102030405060708),
    ],
)
def test_compare_and_swap(pair, target, before, compare, swap, after):
    at = aligned(target)
    put(target, at, before)
    found = pair.client.qp.compare_and_swap(target.remote(), at, compare, swap, timeout=WAIT)
    assert (found, value(target, at)) == (before, after)


def test_last_number_of_a_region(pair, target):
    at = aligned(target, (SIZE // 8) - 1)
    assert pair.client.qp.fetch_add(target.remote(), at, 9, timeout=WAIT) == 0
    assert value(target, at) == 9
    assert value(target, at - 8) == 0


def test_with_a_capability(pair):
    with pair.b.pd.alloc(SIZE, ALL, proof=True, block_size=64) as mr:
        counts = mr.capability(128, 64, rights=Right.ATOMIC)
        qp = pair.client.qp
        assert qp.fetch_add(counts, 8, 5, timeout=WAIT) == 0
        assert qp.compare_and_swap(counts, 8, 5, 6, timeout=WAIT) == 5
        assert value(mr, 136) == 6
        both = mr.capability(128, 64, rights=Right.READ | Right.WRITE)
        with pytest.raises(CapabilityError, match="not ATOMIC"):
            qp.fetch_add(both, 8, 5, timeout=WAIT)
        with pytest.raises(CapabilityError, match="not READ"):
            qp.read(counts, 0, 8, timeout=WAIT)
    without = pair.b.pd.alloc(SIZE, Access.REMOTE_READ, proof=True)
    with without as mr, pytest.raises(CapabilityError, match="cannot grant ATOMIC"):
        mr.capability(rights=Right.ATOMIC)


def test_verbs(pair, target):
    """As in pyverbs, the original 8 bytes are placed in the SGE."""
    qp, remote = pair.client.qp, target.remote()
    at = aligned(target)
    put(target, at, 100)
    with pair.a.pd.alloc(64) as into:
        add = SendWR(1, WROpcode.ATOMIC_FETCH_AND_ADD, [into[:8]])
        add.set_wr_atomic(remote.rkey, remote.address + at, 11)
        swap = SendWR(2, WROpcode.ATOMIC_CMP_AND_SWP, [into[8:16]])
        swap.set_wr_atomic(remote.rkey, remote.address + at, 111, 5)
        fence = SendFlag.SIGNALED | SendFlag.FENCE
        read = SendWR(3, WROpcode.RDMA_READ, [into[16:24]], send_flags=fence)
        read.set_remote(remote, at)
        qp.post_send(add, swap, read)
        found = []
        while len(found) < 3:
            found += qp.poll(3, timeout=WAIT)
        assert [(w.wr_id, w.opcode, w.byte_len, w.status) for w in found] == [
            (1, WCOpcode.FETCH_ADD, 8, WCStatus.SUCCESS),
            (2, WCOpcode.COMP_SWAP, 8, WCStatus.SUCCESS),
            (3, WCOpcode.RDMA_READ, 8, WCStatus.SUCCESS),
        ]
        assert [value(into, n) for n in (0, 8, 16)] == [100, 111, 5]


def test_refused_locally_before_sending(pair):
    with pair.b.pd.alloc(SIZE, ALL, scope="pd") as target, pair.a.pd.alloc(64) as into:
        qp, remote = pair.client.qp, target.remote()
        for offset in (1, 4, SIZE - 9):
            with pytest.raises(srdma.LocalError, match="multiple of 8"):
                qp.fetch_add(remote, offset, 1)
        for offset in (-8, SIZE, SIZE - 7):
            with pytest.raises(srdma.BoundsError):
                qp.fetch_add(remote, offset, 1)
        for add in (1 << 64, -(1 << 63) - 1):
            with pytest.raises(srdma.LocalError, match="64 bits"):
                qp.fetch_add(remote, 0, add)
        for compare, swap in ((-1, 0), (0, -1), (1 << 64, 0), (0, 1 << 64)):
            with pytest.raises(srdma.LocalError, match="64 bits"):
                qp.compare_and_swap(remote, 0, compare, swap)
        for sg in ([into[:7]], [into[:4], into[4:8]], []):
            with pytest.raises(srdma.LocalError, match="the original value needs one of 8 bytes"):
                qp.post_send(SendWR(1, WROpcode.ATOMIC_FETCH_AND_ADD, sg))
        with pytest.raises(srdma.LocalError, match="have no data"):
            SendWR(1, WROpcode.ATOMIC_CMP_AND_SWP, data=b"12345678")
        many = SendWR(1, WROpcode.ATOMIC_FETCH_AND_ADD, [into[:8]], compare_add=1 << 64)
        with pytest.raises(srdma.LocalError, match="64"):
            qp.post_send(many)
        assert bytes(target.buf) == bytes(SIZE)
        assert qp.fetch_add(remote, 0, 1, timeout=WAIT) == 0


@pytest.mark.parametrize(
    ("access", "offset", "reason"),
    [
        (ALL, 4, "MISALIGNED"),
        (ALL, SIZE, "OUT_OF_BOUNDS"),
        (ALL & ~Access.REMOTE_ATOMIC, 0, "NO_RIGHT"),
    ],
)
def test_refused_by_the_peer(site, join, access, offset, reason):
    pair = join(site)
    target = pair.b.pd.alloc(SIZE, access, scope="pd")
    into = pair.a.pd.alloc(8)
    wr = SendWR(1, WROpcode.ATOMIC_FETCH_AND_ADD, [into[:]])
    wr.set_wr_atomic(target.rkey, target.addr + offset, 1)
    pair.client.qp.post_send(wr)
    (wc,) = pair.client.qp.poll(timeout=WAIT)
    assert wc.reason == reason
    assert wc.status in (WCStatus.REM_INV_REQ_ERR, WCStatus.REM_ACCESS_ERR)
    assert bytes(target.buf) == bytes(SIZE)


def test_registration(pair):
    with pytest.raises(srdma.LocalError, match="REMOTE_ATOMIC need LOCAL_WRITE"):
        pair.b.pd.alloc(SIZE, Access.REMOTE_ATOMIC, scope="pd")
    only = Access.LOCAL_WRITE | Access.REMOTE_ATOMIC
    with pair.b.pd.alloc(SIZE, only, scope="pd") as mr:
        assert pair.client.qp.fetch_add(mr.remote(), 0, 1, timeout=WAIT) == 0
    with pair.b.pd.alloc(SIZE, only, proof=True) as mr:
        assert mr.capability(rights=Right.ATOMIC).rights is Right.ATOMIC


def test_counters_of_several_qps(site, join):
    """Four QPs of two hosts, in both directions, add to the same counters.
    Each value is returned once."""
    each, counters = 200, 3
    b, others = join.host(site.b), [join.host(site.a), join.host(site.a), join.host(site.b)]
    with b.pd.alloc(SIZE, ALL, scope="pd") as target:
        remote = target.remote()
        pairs = [join.connect(other, b) for other in (*others, others[0])]

        def count(qp):
            return [
                [qp.fetch_add(remote, 8 * c, 1, timeout=WAIT) for c in range(counters)]
                for _ in range(each)
            ]

        results = [r() for r in [run(count, pair.client.qp) for pair in pairs]]
        for c in range(counters):
            got = [row[c] for rows in results for row in rows]
            assert sorted(got) == list(range(len(pairs) * each))
            assert value(target, 8 * c) == len(pairs) * each


def test_lock_by_compare_and_swap_loses_no_update(site, join):
    """The holder of the lock word changes a number non-atomically, and no change is lost."""
    rounds = 30
    b = join.host(site.b)
    pairs = [join.connect(join.host(site.a), b) for _ in range(2)]
    with b.pd.alloc(SIZE, ALL, scope="pd") as target:
        remote = target.remote()

        def work(qp, me):
            for _ in range(rounds):
                while qp.compare_and_swap(remote, 0, 0, me, timeout=WAIT):
                    pass
                number = int.from_bytes(qp.read(remote, 100, 3, timeout=WAIT), "big")
                qp.write((number + 1).to_bytes(3, "big"), remote, 100, timeout=WAIT)
                assert qp.compare_and_swap(remote, 0, me, 0, timeout=WAIT) == me

        for result in [run(work, p.client.qp, n + 1) for n, p in enumerate(pairs)]:
            result()
        assert int.from_bytes(target.buf[100:103], "big") == len(pairs) * rounds


def test_asyncio(site, join, pki):
    """Runs many concurrent atomics on one QP."""

    async def count():
        a, b = join.host(site.a).pd, join.host(site.b).pd
        options = {"timeout": WAIT}
        async with await srdma.aio.listen(
            ("127.0.0.1", 0), b, identity=pki / "b", **options
        ) as listener:
            server, client = await asyncio.gather(
                listener.accept(),
                srdma.aio.connect(listener.address, a, identity=pki / "a", peer=B, **options),
            )
        async with client, server:
            target = b.alloc(SIZE, ALL, scope="pd")
            calls = [client.qp.fetch_add(target.remote(), 8, 2) for _ in range(100)]
            assert sorted(await asyncio.gather(*calls)) == list(range(0, 200, 2))
            assert await client.qp.compare_and_swap(target.remote(), 8, 200, 7) == 200
            assert value(target, 8) == 7

    asyncio.run(count())


def test_stats_count_atomics(pair):
    before = pair.b.ctx.stats()["atomics_executed"]
    with pair.b.pd.alloc(SIZE, ALL, scope="pd") as target:
        pair.client.qp.fetch_add(target.remote(), 0, 1, timeout=WAIT)
    assert pair.b.ctx.stats()["atomics_executed"] == before + 1
