"""Batches of work requests with a simulated worker: repeated posts, partial posts, and refusals."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import srdma
from srdma import Access, RecvWR, SendFlag, SendWR, WROpcode
from srdma.native.leg import NativeLeg
from tests.reference.host import DescriptorOp
from tests.unit.test_qp import REMOTE, record

QUIET = SendFlag(0)


def write(wr_id, sge, offset=0, flags=SendFlag.SIGNALED):
    wr = SendWR(wr_id, WROpcode.RDMA_WRITE, [sge], send_flags=flags)
    wr.set_remote(REMOTE, offset)
    return wr


def complete(leg, found):
    for d in found:
        if d.flags & 1:
            leg.complete(record(d))


def test_batch_can_be_posted_again(pd, qp, leg):
    mr = pd.alloc(100)
    batch = qp.batch([write(7, mr[:10], 5, QUIET), SendWR(8, data=b"x"), RecvWR(9, [mr[20:30]])])
    assert len(batch) == 3
    for _ in range(5):
        assert batch.post() == 3
        found = leg.descriptors()
        assert [d.opcode for d in found] == [
            DescriptorOp.WRITE, DescriptorOp.SEND, DescriptorOp.RECV,
        ]  # fmt: skip
        assert (found[0].local_addr, found[0].length) == (mr.addr, 10)
        assert (found[0].remote_addr, found[0].rkey) == (REMOTE.address + 5, REMOTE.rkey)
        assert found[2].local_addr == mr.addr + 20
        complete(leg, found)
        assert [wc.wr_id for wc in qp.poll(5)] == [8, 9]


def test_payload_is_read_when_posted(qp, leg):
    data = bytearray(b"one")
    batch = qp.batch([SendWR(data=data), SendWR(data=b"")])
    for word in (b"one", b"two"):
        data[:] = word
        batch.post()
        assert [d.flags for d in leg.descriptors()] == [5, 5]
        assert leg.payloads == [word, b""]


def test_batch_is_posted_as_far_as_the_queue_permits(qp, leg):
    batch = qp.batch(
        [SendWR(n, data=b"", send_flags=SendFlag(2 * (n % 4 == 3))) for n in range(20)]
    )
    at = batch.post()
    assert at == 8
    assert batch.post(at) == 0
    complete(leg, leg.descriptors()[:4])
    assert [wc.wr_id for wc in qp.poll(9)] == [3]
    assert batch.post(at) == 4
    assert batch.post(20) == 0
    for first in (-1, 21):
        with pytest.raises(srdma.LocalError, match="give 0 to 20"):
            batch.post(first)


def test_refused_in_the_middle(pd, qp, leg):
    small = SendWR(1, data=b"small")
    batch = qp.batch([small, small, SendWR(2, data=bytes(449)), small])
    with pytest.raises(srdma.LocalError, match="inline data at most 448"):
        batch.post()
    assert [d.id >> 1 for d in leg.descriptors()] == [0, 1]
    assert batch.post(3) == 1
    with pytest.raises(srdma.LocalError, match="inline data at most 448"):
        qp.post_send(small, SendWR(2, data=bytes(449)), small)
    assert [d.id >> 1 for d in leg.descriptors()] == [2, 3]


def test_refused_before_posting(pd, qp, leg, ctx):
    mr = pd.alloc(100, Access.LOCAL_WRITE)
    good = write(1, mr[:])
    with srdma.PD(ctx, 64) as other:
        for bad, text in (
            (write(2, other.alloc(10)[:]), "another PD"),
            (SendWR(1 << 63), "it must be from 0 to"),
            (SendWR(data=3), "a int has no bytes"),
            (SendWR(opcode=WROpcode.SEND_WITH_IMM, imm_data=1 << 32), "32 bits"),
        ):
            with pytest.raises(srdma.LocalError, match=text):
                qp.batch([good, bad])
    batch = qp.batch([good])
    qp.close()
    with pytest.raises(srdma.ClosedError):
        batch.post()
    with pytest.raises(srdma.ClosedError):
        qp.batch([good])
    assert leg.descriptors() == []


def test_leg_without_a_free_slot(pd, qp, monkeypatch):
    monkeypatch.setattr(pd.engine, "_leg", SimpleNamespace(native=NativeLeg()))
    posted, error = qp.batch([SendWR(data=b"abc"), SendWR()]).try_post()
    monkeypatch.undo()
    assert posted == 0
    assert isinstance(error, srdma.QueueFullError)
    assert "the leg is full" in str(error)
