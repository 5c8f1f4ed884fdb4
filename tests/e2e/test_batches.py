"""Batches of work requests over two real workers: all data arrives, and an error in the middle
of a batch fails exactly the requests that it must."""

from __future__ import annotations

import pytest

import srdma
from srdma import Access, RecvWR, Right, SendFlag, SendWR, WCOpcode, WCStatus, WROpcode
from tests.e2e.conftest import WAIT, pattern

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
COUNT, SIZE, DEPTH = 40, 2048, 16
QUIET = SendFlag(0)


@pytest.fixture
def pair(join, site):
    return join(site, sq=DEPTH, rq=DEPTH)


@pytest.fixture
def target(pair):
    with pair.b.pd.alloc(COUNT * SIZE, ALL, scope="pd") as mr:
        yield mr


@pytest.fixture
def source(pair):
    with pair.a.pd.alloc(COUNT * SIZE) as mr:
        mr.buf[:] = pattern(COUNT * SIZE)
        yield mr


def writes(source, target, every=8):
    """One WRITE per slot; one of `every` is signaled."""
    remote = target.remote()
    wrs = []
    for n in range(COUNT):
        flags = SendFlag.SIGNALED if n % every == every - 1 else QUIET
        sge = source[n * SIZE : (n + 1) * SIZE]
        wrs.append(SendWR(n, WROpcode.RDMA_WRITE, [sge], send_flags=flags))
        wrs[-1].set_remote(remote, n * SIZE)
    return wrs


def carry(qp, batch):
    """Posts the whole batch as the queue accepts it. Returns the completions."""
    at, wcs = 0, []
    while at < len(batch) or wcs[-1].wr_id != COUNT - 1:
        at += batch.post(at)
        got = qp.poll(DEPTH, WAIT)
        assert got, "no request completes"
        wcs += got
    return wcs


@pytest.mark.parametrize("every", [1, 4, 8])
def test_reused_batch_delivers_all_data_each_time(pair, source, target, every):
    qp = pair.client.qp
    batch = qp.batch(writes(source, target, every))
    for seed in range(3):
        source.buf[:] = pattern(COUNT * SIZE, seed)
        wcs = carry(qp, batch)
        assert [wc.wr_id for wc in wcs] == list(range(every - 1, COUNT, every))
        assert all(wc.status is WCStatus.SUCCESS for wc in wcs)
        assert target.buf == source.buf


def test_messages_both_ways(pair, source):
    """Receives are posted as batches too."""
    server, client = pair.server.qp, pair.client.qp
    with pair.b.pd.alloc(DEPTH * 100) as landing:
        receives = server.batch(
            [RecvWR(n, [landing[n * 100 : (n + 1) * 100]]) for n in range(DEPTH)]
        )
        sends = client.batch([SendWR(n, sg=[source[n : 2 * n + 1]]) for n in range(DEPTH)])
        for _ in range(3):
            assert (receives.post(), sends.post()) == (DEPTH, DEPTH)
            got: list[srdma.WC] = []
            while len(got) < DEPTH:
                got += server.poll(DEPTH, WAIT)
            assert [(wc.wr_id, wc.byte_len) for wc in got] == [(n, n + 1) for n in range(DEPTH)]
            for n in range(DEPTH):
                assert landing.buf[n * 100 : n * 101 + 1] == source.buf[n : 2 * n + 1]
            done: list[srdma.WC] = []
            while len(done) < DEPTH:
                done += client.poll(DEPTH, WAIT)
            assert {wc.opcode for wc in done} == {WCOpcode.SEND}


@pytest.mark.parametrize("flags", [QUIET, SendFlag.SIGNALED])
def test_refused_by_the_peer_in_the_middle(pair, source, target, flags):
    """Earlier requests are executed, the refused one reports the reason, and
    later ones are flushed."""
    qp, bad = pair.client.qp, 5
    wrs = writes(source, target)[:DEPTH]
    for wr in wrs:
        wr.send_flags = flags
    wrs[bad].set_wr_rdma(target.rkey ^ 0xFF00, target.addr)
    before = bytes(target.buf)
    assert qp.batch(wrs).post() == DEPTH
    wcs: list[srdma.WC] = []
    while not wcs or wcs[-1].wr_id != DEPTH - 1:
        got = [wc for wc in qp.poll(DEPTH, WAIT) if wc.opcode is not WCOpcode.QP_EVENT]
        assert got or qp.reason, "no request completes"
        wcs += got
    assert [wc.wr_id for wc in wcs] == list(range(0 if flags else bad, DEPTH))
    failed = wcs[bad if flags else 0]
    assert (failed.status, failed.reason) == (WCStatus.REM_ACCESS_ERR, "BAD_RKEY")
    assert {wc.reason for wc in wcs if wc.wr_id > bad} == {"FLUSHED"}
    assert target.buf[: bad * SIZE] == source.buf[: bad * SIZE]
    assert target.buf[bad * SIZE :] == before[bad * SIZE :]
    assert qp.state is srdma.QPState.ERR


def test_refused_here_in_the_middle(pair, source, target):
    """Earlier requests are posted, and the QP stays usable."""
    qp, bad = pair.client.qp, 5
    wrs = writes(source, target, every=1)[:DEPTH]
    long = SendWR(99, WROpcode.RDMA_WRITE, data=bytes(449))
    long.set_remote(target.remote())
    batch = qp.batch([*wrs[:bad], long, *wrs[bad:]])
    with pytest.raises(srdma.LocalError, match="inline data at most 448"):
        batch.post()
    assert batch.post(bad + 1) == DEPTH - bad
    wcs: list[srdma.WC] = []
    while len(wcs) < DEPTH:
        wcs += qp.poll(DEPTH, WAIT)
    assert [wc.wr_id for wc in wcs] == list(range(DEPTH))
    assert target.buf[: DEPTH * SIZE] == source.buf[: DEPTH * SIZE]


def test_worker_killed_in_the_middle(join, own_site):
    pair = join(own_site, sq=DEPTH, rq=DEPTH)
    source, target = pair.a.pd.alloc(COUNT * SIZE), pair.b.pd.alloc(COUNT * SIZE, ALL, scope="pd")
    qp = pair.client.qp
    batch = qp.batch(writes(source, target, every=1))
    own_site.a.process.kill()
    own_site.a.process.wait()
    at, wcs = batch.post(), []
    while len(wcs) < at:
        got = [wc for wc in qp.poll(DEPTH, WAIT) if wc.opcode is not WCOpcode.QP_EVENT]
        assert got or qp.reason, "no request completes"
        wcs += got
    assert [wc.wr_id for wc in wcs] == list(range(DEPTH))
    assert wcs[0].reason == "WORKER_GONE"
    with pytest.raises(srdma.WorkerGone):
        batch.post(at)


def test_with_capabilities(join, site):
    pair = join(site, mode="mem", sq=DEPTH, rq=DEPTH)
    source = pair.a.pd.alloc(COUNT * SIZE)
    source.buf[:] = pattern(COUNT * SIZE, 3)
    target = pair.b.pd.alloc(COUNT * SIZE, ALL, proof=True, block_size=SIZE)
    whole = target.capability(rights=Right.READ | Right.WRITE)
    half = target.capability(0, COUNT * SIZE // 2, rights=Right.WRITE)
    wrs = writes(source, target)
    for n, wr in enumerate(wrs):
        wr.set_remote(half if n % 2 and n < COUNT // 2 else whole, n * SIZE)
    for _ in range(2):
        carry(pair.client.qp, pair.client.qp.batch(wrs))
        assert target.buf == source.buf
        source.buf[:] = pattern(COUNT * SIZE, 4)
    with pytest.raises(srdma.CapabilityError, match="READ"):
        read = SendWR(0, WROpcode.RDMA_READ, [source[:SIZE]])
        read.set_remote(half)
        pair.client.qp.batch([read])


# Several SGEs -----------------------------------------------------------------------


def _ends(qp: srdma.SecureQP, count: int) -> None:
    """Wait for the success of so many requests."""
    while count:
        wcs = qp.poll(count, WAIT)
        assert wcs, "no request completes"
        for wc in wcs:
            wc.raise_for_status()
        count -= len(wcs)


def _pieces(mr: srdma.MR, sizes: list[int], gap: int) -> list[srdma.SGE]:
    """SGEs of these sizes with gaps between them; the last one comes first in memory."""
    at, sg = 0, []
    for size in reversed(sizes):
        sg.append(mr.sge(at, size))
        at += size + gap
    return sg[::-1]


def _bytes(mr: srdma.MR, sg: list[srdma.SGE]) -> bytes:
    return b"".join(bytes(mr.buf[s.addr - mr.addr :][: s.length]) for s in sg)


SIZES = [0, 1, 4096, 5, 0, 9000, 3, *[17] * 21]  # 28, the limit


def test_message_of_28_sges_into_28_others(pair, source):
    server, client = pair.server.qp, pair.client.qp
    sg = _pieces(source, SIZES, 7)
    with pair.b.pd.alloc(COUNT * SIZE) as landing:
        into = _pieces(landing, [*SIZES[::-1]], 3)
        server.post_recv(RecvWR(1, into))
        client.post_send(SendWR(2, sg=sg))
        _ends(server, 1)
        _ends(client, 1)
        assert _bytes(landing, into) == _bytes(source, sg)
        assert sum(landing.buf) == sum(_bytes(landing, into)), "a byte beside the SGEs was changed"


def test_write_gathers_and_read_scatters_from_several_regions(pair, source, target):
    qp, remote = pair.client.qp, target.remote()
    with pair.a.pd.alloc(5000, Access.LOCAL_WRITE) as other:
        other.buf[:] = pattern(5000, 3)
        write = SendWR(1, WROpcode.RDMA_WRITE, [source[10:6000], other[7:4800], source[0:9]])
        write.set_remote(remote, 5)
        expected = b"".join((source.buf[10:6000], other.buf[7:4800], source.buf[:9]))
        qp.post_send(write)
        _ends(qp, 1)
        assert target.buf[5 : 5 + len(expected)] == expected
        read = SendWR(2, WROpcode.RDMA_READ, [other[4000:5000], source[100:9000], other[:892]])
        read.set_remote(remote, 5)
        qp.post_send(read)
        _ends(qp, 1)
        assert b"".join((other.buf[4000:], source.buf[100:9000], other.buf[:892])) == expected
        assert other.buf[892:4000] == pattern(5000, 3)[892:4000]


def test_moved_batch_moves_each_sge(pair, source, target):
    qp = pair.client.qp
    wr = SendWR(1, WROpcode.RDMA_WRITE, [source[100:200], source[300:350]])
    wr.set_remote(target.remote())
    batch = qp.batch([wr])
    batch.move(1000)
    assert batch.post() == 1
    _ends(qp, 1)
    moved = b"".join((source.buf[1100:1200], source.buf[1300:1350]))
    assert target.buf[1000:1150] == moved
    assert not any(target.buf[:1000])


def test_key_of_a_later_sge_is_checked(pair, source, target):
    qp = pair.client.qp
    bad = srdma.SGE(source.addr, 10, source.lkey ^ 0xFF00)
    wr = SendWR(7, WROpcode.RDMA_WRITE, [source[0:10], bad])
    wr.set_remote(target.remote())
    qp.post_send(wr)
    (wc,) = qp.poll(timeout=WAIT)
    assert (wc.wr_id, wc.status, wc.reason) == (7, WCStatus.LOC_PROT_ERR, "LOCAL_KEY")
    assert not any(target.buf)
