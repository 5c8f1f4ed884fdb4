"""Secure QPs with a simulated worker: posted descriptors, and every end of a request."""

from __future__ import annotations

import ctypes
import select
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import srdma
from srdma import Access, QPState, RecvWR, RemoteMR, SendFlag, SendWR, WCOpcode, WCStatus, WROpcode
from srdma._engine.bounce import STAGE
from tests.fake_worker import DESTROY, INIT, Refuse
from tests.reference.host import DescriptorFlag, DescriptorOp, Record

REMOTE = RemoteMR(0x10000, 0xABCD, 3 * STAGE)
FLUSHED, BAD_RKEY, PEER_CLOSED = 40, 1, 22


def record(d, **changes) -> Record:
    """Returns a successful record for a descriptor."""
    opcode = {3: 2, 4: 0, 5: 0, 16: 128}.get(d.opcode, 1)
    fields = {
        "id": d.id, "qpn": d.qpn, "opcode": opcode, "status": 0, "flags": 0, "vendor_err": 0,
        "byte_len": d.length, "imm": 0, "sequence": 0,
    }  # fmt: skip
    return Record(**(fields | changes))


def event(qp, reason):
    return Record(0, qp.qp_num, 255, 0, 0, reason, 0, 0, 0)


class Player:
    """Simulates the worker and the peer in a thread that executes descriptors as they arrive.

    `answer` gets each descriptor and its record. It returns the record to complete, or None for no
    completion.
    """

    def __init__(self, leg, answer=lambda d, done: done):
        self.memory = bytearray(REMOTE.length)
        self.seen, self.sent = [], []
        self._leg, self._answer, self._stop = leg, answer, False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop:
            for d, payload in zip(self._leg.descriptors(), self._leg.payloads, strict=True):
                self.seen.append(d)
                self._execute(d, payload)
                done = self._answer(d, record(d))
                if done is not None:
                    self._leg.complete(done)
            time.sleep(0.0005)

    def _execute(self, d, payload):
        local = payload if d.flags & 4 else (ctypes.c_char * d.length).from_address(d.local_addr)
        at = slice(d.remote_addr - REMOTE.address, d.remote_addr - REMOTE.address + d.length)
        if d.opcode in (1, 2):
            self.memory[at] = local[: d.length]
        elif d.opcode == 3:
            local[:] = bytes(self.memory[at])
        elif d.opcode in (4, 5):
            self.sent.append(bytes(local[: d.length]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop = True
        self._thread.join()


def pattern(size):
    return (bytes(range(251)) * (size // 251 + 1))[:size]


# Verbs -------------------------------------------------------------------------


def test_init(worker, pd):
    qp = srdma.SecureQP(pd, 3, 5, timeout=1.5, mtu=1024)
    assert (INIT, struct.pack(">IIIII", pd.leg, 3, 5, 1500, 1024), 0) in worker.seen
    assert (qp.qp_num, qp.state, qp.reason) == (qp.info.qpn, QPState.INIT, "")


def test_init_refused(worker, pd):
    def refuse(leg, body, fds):
        raise Refuse(12, "4096 QPs are the limit")

    worker.handlers[INIT] = refuse
    with pytest.raises(srdma.RefusedError, match="4096 QPs"):
        srdma.SecureQP(pd)
    assert DESTROY not in worker.kinds()


def test_ring_too_small_for_the_qp(worker, pd):
    with pytest.raises(srdma.LocalError, match=r"depths \(64, 64\)"):
        srdma.SecureQP(pd, 64, 64)
    assert DESTROY in worker.kinds()


def test_post_send_fills_descriptors(pd, qp, leg):
    mr = pd.alloc(1000)
    write = SendWR(1, WROpcode.RDMA_WRITE, [mr[100:150]])
    write.set_wr_rdma(0x77, 0x1234)
    read = SendWR(2, WROpcode.RDMA_READ, [mr[:]], send_flags=SendFlag.FENCE)
    read.set_remote(REMOTE, 50)
    both = SendFlag.SIGNALED | SendFlag.FENCE
    send = SendWR(3, WROpcode.SEND_WITH_IMM, data=b"hello", imm_data=0xCAFE, send_flags=both)
    qp.post_send(write, read, send, SendWR(4, WROpcode.SEND))
    found = leg.descriptors()
    assert [d.opcode for d in found] == [
        DescriptorOp.WRITE, DescriptorOp.READ, DescriptorOp.SEND_IMM, DescriptorOp.SEND,
    ]  # fmt: skip
    assert [d.flags for d in found] == [1, 2, 7, 1]
    assert {d.qpn for d in found} == {qp.qp_num}
    assert (found[0].local_addr, found[0].length, found[0].local_key) == (
        mr.addr + 100,
        50,
        mr.lkey,
    )
    assert (found[0].remote_addr, found[0].rkey) == (0x1234, 0x77)
    assert (found[1].remote_addr, found[1].rkey, found[1].length) == (0x10032, 0xABCD, 1000)
    assert (found[2].length, found[2].imm, leg.payloads[2][:5]) == (5, 0xCAFE, b"hello")


def test_atomics_fill_descriptors(pd, qp, leg):
    mr = pd.alloc(100)
    swap = SendWR(1, WROpcode.ATOMIC_CMP_AND_SWP, [mr[8:16]])
    swap.set_wr_atomic(0x77, 0x1238, 5, 6)
    add = SendWR(2, WROpcode.ATOMIC_FETCH_AND_ADD, [mr[:8]], compare_add=9)
    add.set_remote(REMOTE, 8)
    qp.post_send(swap, add)
    first, second = leg.descriptors()
    assert (first.opcode, first.local_addr, first.length) == (
        DescriptorOp.COMPARE_SWAP,
        mr.addr + 8,
        8,
    )
    assert (first.remote_addr, first.rkey, first.swap_add, first.compare) == (0x1238, 0x77, 6, 5)
    assert (second.opcode, second.swap_add, second.compare) == (DescriptorOp.FETCH_ADD, 9, 0)
    assert (second.remote_addr, second.rkey) == (REMOTE.address + 8, REMOTE.rkey)


def test_poll_gives_wcs_in_order(qp, leg):
    qp.post_send(*(SendWR(n, data=b"x") for n in range(5)))
    qp.post_recv(RecvWR(77))
    found = leg.descriptors()
    assert found[5].opcode == DescriptorOp.RECV
    leg.complete(record(found[5], flags=1, imm=9, opcode=129, byte_len=4))
    for d in found[:5]:
        leg.complete(record(d))
    assert qp.poll(0) == []
    first = qp.poll()
    assert [(w.wr_id, w.opcode, w.imm_data) for w in first] == [
        (77, WCOpcode.RECV_RDMA_WITH_IMM, 9)
    ]
    assert [w.wr_id for w in qp.poll(10)] == [0, 1, 2, 3, 4]
    assert qp.poll(10) == []


def test_unsignaled(qp, leg):
    quiet, loud = SendWR(1, data=b"", send_flags=SendFlag(0)), SendWR(2, data=b"")
    qp.post_send(*[quiet] * 7, loud)
    with pytest.raises(srdma.QueueFullError, match="poll completions"):
        qp.post_send(loud)
    found = leg.descriptors()
    assert not found[0].flags & DescriptorFlag.SIGNALED
    leg.complete(record(found[7]))
    assert [w.wr_id for w in qp.poll(8)] == [2]
    qp.post_send(*[quiet] * 7, loud)


def test_poll_waits(qp, leg):
    start = time.monotonic()
    assert qp.poll(timeout=0.05) == []
    assert time.monotonic() - start >= 0.05
    qp.post_send(SendWR(5, data=b"x"))
    (d,) = leg.descriptors()
    timer = threading.Timer(0.05, leg.complete, [record(d)])
    timer.start()
    assert [w.wr_id for w in qp.poll(timeout=10)] == [5]
    timer.join()


def test_signal_between_unlock_and_sleep(pd, qp, monkeypatch):
    """A signal handler raises between the release of the lock and the sleep. The caller gets its
    exception, and the lock is free."""
    cond = pd.engine._cond
    release = cond.release

    def released() -> None:
        release()
        raise KeyboardInterrupt

    def from_another_thread() -> bool:
        taken = pd.engine.lock.acquire(timeout=5)
        if taken:
            pd.engine.lock.release()
        return taken

    with monkeypatch.context() as patch:
        patch.setattr(cond, "release", released)
        with pytest.raises(KeyboardInterrupt):
            qp.poll(1, 5)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(from_another_thread).result()


def test_event_loop(pd, qp, leg):
    qp.post_send(SendWR(5, data=b"x"))
    (d,) = leg.descriptors()
    assert not pd.arm()
    assert select.select([pd], [], [], 0.02)[0] == []
    leg.complete(record(d))
    assert select.select([pd], [], [], 10)[0] == [pd]
    pd.drain()
    assert [w.wr_id for w in qp.poll()] == [5]
    qp.post_send(SendWR(6, data=b"x"))
    leg.complete(record(*leg.descriptors()))
    assert pd.arm()
    assert [w.wr_id for w in qp.poll()] == [6]


def test_completions_go_to_their_qps(pd, qp, leg):
    other = srdma.SecureQP(pd, 4, 4)
    qp.post_send(SendWR(1, data=b"x"))
    other.post_send(SendWR(2, data=b"x"))
    for d in reversed(leg.descriptors()):
        leg.complete(record(d))
    assert [w.wr_id for w in qp.poll(5)] == [1]
    assert [w.wr_id for w in other.poll(5)] == [2]


def test_consumed_completions_are_reported(pd, qp, leg):
    """Each descriptor reports how many records the host has consumed. If none is posted, a CREDIT
    descriptor reports it after half a ring of records."""
    for _ in range(4):
        qp.post_send(*(SendWR(n, data=b"x") for n in range(8)))
        found = leg.descriptors()
        for d in found:
            leg.complete(record(d))
        assert len(qp.poll(8)) == 8
    assert [d.consumed for d in found] == [24] * 8
    for _ in range(30):
        leg.complete(Record(0, 1, 0, 0, 0, 0, 0, 0, 0))  # belongs to no QP
    qp.poll()
    assert [(d.opcode, d.consumed) for d in leg.descriptors()] == []  # needs a completion
    qp.post_send(SendWR(1, data=b"x"))
    (told,) = leg.descriptors()
    assert told.consumed == 62
    for _ in range(31):
        leg.complete(Record(0, 1, 0, 0, 0, 0, 0, 0, 0))
    leg.complete(record(told))
    assert len(qp.poll()) == 1  # half a ring since the last report: a CREDIT descriptor
    assert [(d.opcode, d.consumed) for d in leg.descriptors()] == [(17, 94)]


@pytest.mark.parametrize("wr_id", [-1, 1 << 63])
def test_illegal_wr_id(qp, wr_id):
    with pytest.raises(srdma.LocalError, match="it must be from 0 to"):
        qp.post_send(SendWR(wr_id, data=b""))
    with pytest.raises(srdma.LocalError, match="it must be from 0 to"):
        qp.post_recv(RecvWR(wr_id))


def test_illegal_work(pd, qp, leg):
    with pytest.raises(srdma.LocalError, match="inline data at most 448"):
        qp.post_send(SendWR(data=bytes(449)))
    with pytest.raises(srdma.LocalError, match="32 bits"):
        qp.post_send(SendWR(opcode=WROpcode.SEND_WITH_IMM, data=b"", imm_data=1 << 32))
    with pytest.raises(srdma.LocalError, match="32 bits"):
        wr = SendWR(opcode=WROpcode.RDMA_WRITE, data=b"")
        wr.set_wr_rdma(1, -1)
        qp.post_send(wr)
    huge = srdma.SGE(0, (1 << 30) + 1, 0)
    with pytest.raises(srdma.LocalError, match="at most 1073741824"):
        qp.post_send(SendWR(sg=[huge]))
    half = srdma.SGE(0, (1 << 29) + 1, 0)
    with pytest.raises(srdma.LocalError, match="at most 1073741824"):
        qp.post_send(SendWR(sg=[half, half]))
    for sg in ([srdma.SGE(0, 1 << 32, 0)], [srdma.SGE(0, 1 << 31, 0)] * 2, [srdma.SGE(-1, 1, 0)]):
        with pytest.raises(srdma.LocalError, match="the address of an SGE has 64 bits"):
            qp.post_recv(RecvWR(sg=sg))
    mr = pd.alloc(10)
    piece = mr[:]
    mr.close()
    for sg in ([piece], [half, piece]):
        with pytest.raises(srdma.ClosedError):
            qp.post_send(SendWR(sg=sg))
    assert leg.descriptors() == []


def test_region_of_another_pd(ctx, qp):
    with srdma.PD(ctx, 64) as other:
        mr = other.alloc(100, Access.LOCAL_WRITE)
        for use in (
            lambda: qp.post_send(SendWR(sg=[mr[:]])),
            lambda: qp.post_recv(RecvWR(sg=[mr[:]])),
            lambda: qp.send(mr),
            lambda: qp.recv(into=mr),
            lambda: qp.read(REMOTE, 0, 10, into=mr),
        ):
            with pytest.raises(srdma.LocalError, match="another PD"):
                use()


# Blocking calls ------------------------------------------------------------------


SIZES = [0, 1, 448, 449, 5000, STAGE, STAGE + 1, 2 * STAGE + 3]


@pytest.mark.parametrize("size", SIZES)
def test_write(qp, leg, size):
    with Player(leg) as player:
        qp.write(pattern(size), REMOTE, 7, imm=5, timeout=10)
    assert player.memory[7 : 7 + size] == pattern(size)
    *first, last = player.seen
    assert (last.opcode, last.imm) == (DescriptorOp.WRITE_IMM, 5)
    assert {d.opcode for d in first} <= {DescriptorOp.WRITE}
    assert bool(last.flags & DescriptorFlag.INLINE) == (size <= 448)


@pytest.mark.parametrize("size", SIZES)
def test_read(qp, leg, size):
    with Player(leg) as player:
        player.memory[9 : 9 + size] = pattern(size)
        assert qp.read(REMOTE, 9, size, timeout=10) == pattern(size)
        into = bytearray(size + 5)
        assert qp.read(REMOTE, 9, size, into=into, timeout=10) == b""
        assert into == pattern(size) + bytes(5)
    assert {d.opcode for d in player.seen} == {DescriptorOp.READ}


@pytest.mark.parametrize("size", SIZES)
def test_send(qp, leg, size):
    with Player(leg) as player:
        qp.send(pattern(size), timeout=10)
        qp.send(pattern(size), imm=3, timeout=10)
    assert player.sent == [pattern(size)] * 2
    assert [d.opcode for d in player.seen] == [DescriptorOp.SEND, DescriptorOp.SEND_IMM]


def test_registered_memory_is_not_copied(pd, qp, leg):
    mr = pd.alloc(1000)
    mr.buf[:] = pattern(1000)
    with Player(leg) as player:
        qp.write(mr[10:30], REMOTE, timeout=10)
        qp.send(mr, timeout=10)
        player.memory[:5] = b"12345"
        qp.read(REMOTE, 0, 5, into=mr[100:], timeout=10)
    assert [(d.local_addr - mr.addr, d.length) for d in player.seen] == [
        (10, 20), (0, 1000), (100, 5),
    ]  # fmt: skip
    assert player.memory[5:20] == pattern(1000)[15:30]
    assert mr.buf[100:105] == b"12345"


def test_read_of_the_rest_of_a_region(qp, leg):
    with Player(leg):
        assert len(qp.read(RemoteMR(REMOTE.address, 1, 500), 100, timeout=10)) == 400


def arrive(d, leg, message, **changes):
    ctypes.memmove(d.local_addr, message, len(message))
    leg.complete(record(d, byte_len=len(message), **changes))


def test_recv(qp, leg):
    messages = iter([(b"first", {}), (b"second", {"flags": 1, "imm": 8})])

    def answer(d, done):
        message, changes = next(messages)
        ctypes.memmove(d.local_addr, message, len(message))
        return record(d, byte_len=len(message), **changes)

    with Player(leg, answer) as player:
        assert qp.recv(10) == (b"first", None, 5)
        assert qp.recv(10, size=100) == (b"second", 8, 6)
    assert [d.length for d in player.seen] == [STAGE, 100]


def test_recv_into_own_memory(pd, qp, leg):
    mr = pd.alloc(100)
    with Player(leg, lambda d, done: record(d, byte_len=7)) as player:
        message = qp.recv(10, into=mr[20:50])
        mr.buf[20:27] = b"content"
        assert (bytes(message.data), message.length) == (b"content", 7)
    assert (player.seen[0].local_addr - mr.addr, player.seen[0].length) == (20, 30)


def test_recv_of_write_with_immediate(qp, leg):
    with Player(leg, lambda d, done: record(d, opcode=129, flags=1, imm=6, byte_len=999)):
        assert qp.recv(10) == (b"", 6, 999)


def test_recv_after_a_timeout_uses_the_posted_receive(qp, leg):
    with pytest.raises(srdma.Timeout, match="stays posted"):
        qp.recv(0.01)
    with pytest.raises(srdma.Timeout):
        qp.recv(0.01)
    (d,) = leg.descriptors()
    arrive(d, leg, b"late")
    assert qp.recv(10).data == b"late"
    assert leg.descriptors() == []


def test_recv_after_a_timeout_reads_the_posted_memory(pd, qp, leg):
    first, second = pd.alloc(100), pd.alloc(100)
    for memory in (first, None):
        with pytest.raises(srdma.Timeout):
            qp.recv(0.01, into=memory)
    (d,) = leg.descriptors()
    second.buf[:5] = b"stale"
    first.buf[:5] = b"fresh"
    leg.complete(record(d, byte_len=5))
    assert bytes(qp.recv(10, into=second).data) == b"fresh"
    with pytest.raises(srdma.Timeout):
        qp.recv(0.01, into=first)
    (d,) = leg.descriptors()
    leg.complete(record(d, byte_len=5))
    assert bytes(qp.recv(10).data) == b"fresh"


def test_timeout_keeps_the_memory_until_completion(pd, qp, leg):
    with pytest.raises(srdma.Timeout, match=r"a WRITE of 5000 bytes .* may still be executed"):
        qp.write(bytes(5000), REMOTE, timeout=0.01)
    (d,) = leg.descriptors()
    bounce = pd.bounces.take(10)
    assert bounce.addr != d.local_addr
    leg.complete(record(d))
    qp.poll()
    assert pd.bounces.take(10).addr == d.local_addr


def test_bounce_buffers_are_reused(pd, qp, leg):
    with Player(leg) as player:
        for _ in range(10):
            qp.write(bytes(5000), REMOTE, timeout=10)
            qp.read(REMOTE, 0, 10, timeout=10)
    assert len({d.local_addr for d in player.seen}) == 1


# Refused here --------------------------------------------------------------------


def test_larger_than_the_remote_region(qp, leg):
    small = RemoteMR(0x1000, 1, 100)
    for use in (
        lambda: qp.write(bytes(101), small),
        lambda: qp.write(bytes(51), small, 50),
        lambda: qp.write(b"", small, 101),
        lambda: qp.write(b"", small, -1),
        lambda: qp.read(small, 0, 101),
        lambda: qp.read(small, 101),
        lambda: SendWR(data=bytes(101)).set_remote(small),
    ):
        with pytest.raises(srdma.LocalError, match=r"100 bytes|0 to"):
            use()
    with pytest.raises(srdma.BoundsError, match=r"101 bytes at offset 0 .* region of 100 bytes"):
        qp.write(bytes(101), small)
    assert leg.descriptors() == []


def test_larger_than_a_message(pd, qp):
    with pytest.raises(srdma.LocalError, match="0 to 1073741824 are legal"):
        qp.read(RemoteMR(0, 1, 1 << 40))
    with pytest.raises(srdma.LocalError, match="at most 1073741824"):
        qp.recv(size=(1 << 30) + 1)


def test_memory_too_small_for_the_data(pd, qp):
    with pytest.raises(srdma.BoundsError, match="20 bytes do not fit into 10 bytes of memory"):
        qp.read(REMOTE, 0, 20, into=pd.alloc(10))
    with pytest.raises(srdma.BoundsError, match="20 bytes do not fit into a buffer of 10"):
        qp.read(REMOTE, 0, 20, into=bytearray(10))
    with pytest.raises(srdma.BufferAccessError, match="read-only"):
        qp.read(REMOTE, 0, 3, into=b"abc")
    with pytest.raises(srdma.BufferAccessError, match="without LOCAL_WRITE"):
        qp.read(REMOTE, 0, 3, into=pd.reg_mr(b"abc", Access.NONE))
    with pytest.raises(srdma.BufferAccessError, match="without LOCAL_WRITE"):
        qp.recv(into=pd.reg_mr(b"abc", Access.NONE))
    with pytest.raises(srdma.LocalError, match="a int has no bytes"):
        qp.send(5)


# Failures ------------------------------------------------------------------------


def test_refused_by_the_peer(qp, leg):
    with (
        Player(leg, lambda d, done: record(d, status=10, vendor_err=BAD_RKEY)),
        pytest.raises(srdma.RemoteError, match="REM_ACCESS_ERR, BAD_RKEY") as e,
    ):
        qp.write(b"x", REMOTE, timeout=10)
    assert isinstance(e.value, srdma.WCError)
    assert e.value.wc.status is WCStatus.REM_ACCESS_ERR


def test_flushed_names_the_reason_of_the_qp(qp, leg):
    def answer(d, done):
        leg.complete(record(d, status=5, vendor_err=FLUSHED))
        return event(qp, PEER_CLOSED)

    with Player(leg, answer), pytest.raises(srdma.RemoteError, match="PEER_CLOSED: the peer"):
        qp.send(b"x", timeout=10)
    assert (qp.state, qp.reason) == (QPState.ERR, "PEER_CLOSED")


def test_qp_event_ends_a_poll(qp, leg):
    threading.Timer(0.05, leg.complete, [event(qp, PEER_CLOSED)]).start()
    assert qp.poll(timeout=10) == []
    assert qp.reason == "PEER_CLOSED"


def test_failed_piece_ends_a_long_write(qp, leg):
    def answer(d, done):
        if d.remote_addr == REMOTE.address:
            return done
        return record(d, status=10, vendor_err=BAD_RKEY)

    with Player(leg, answer), pytest.raises(srdma.WCError, match="BAD_RKEY"):
        qp.write(bytes(3 * STAGE), REMOTE, timeout=10)


def test_worker_dies_with_requests_outstanding(worker, pd, qp, leg):
    qp.post_send(SendWR(1, data=b"x"), SendWR(2, data=b"x", send_flags=SendFlag(0)))
    qp.post_recv(RecvWR(3))
    killer = threading.Timer(0.05, worker.die)
    killer.start()
    with pytest.raises(srdma.WorkerGone, match=r"WORKER_GONE|FLUSHED"):
        qp.write(b"x", REMOTE, timeout=10)
    found = qp.poll(10, timeout=10)
    assert [(w.wr_id, w.reason) for w in found] == [
        (1, "WORKER_GONE"), (2, "FLUSHED"), (3, "WORKER_GONE"),
    ]  # fmt: skip
    assert (qp.state, qp.reason) == (QPState.ERR, "WORKER_GONE")
    for use in (lambda: qp.post_send(SendWR(1, data=b"x")), lambda: qp.send(b"x")):
        with pytest.raises(srdma.WorkerGone, match="start it"):
            use()


def test_death_of_the_worker_is_seen_by_polling(worker, qp):
    qp.post_recv(RecvWR(3))
    worker.die()
    assert [w.status for w in qp.poll()] == [WCStatus.FATAL_ERR]


def test_worker_dies_while_threads_wait(worker, pd):
    qps = [srdma.SecureQP(pd, 4, 4) for _ in range(4)]
    raised: list[type] = []

    def wait(qp):
        try:
            qp.recv(10)
        except srdma.Error as e:
            raised.append(type(e))

    threads = [threading.Thread(target=wait, args=(qp,)) for qp in qps]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    worker.die()
    for thread in threads:
        thread.join()
    assert raised == [srdma.WorkerGone] * 4


# Threads and closing ---------------------------------------------------------------


def test_threads_wait_on_one_leg(pd, leg):
    """There are several waiting threads. One of them sleeps on the leg for all."""
    qps = [srdma.SecureQP(pd, 6, 4) for _ in range(5)]
    done: list[int] = []

    def work(qp):
        for _ in range(40):
            qp.write(b"x" * 10, REMOTE, timeout=20)
            qp.read(REMOTE, 0, 1000, timeout=20)
        done.append(qp.qp_num)

    with Player(leg) as player:
        threads = [threading.Thread(target=work, args=(qp,)) for qp in qps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(done) == [qp.qp_num for qp in qps]
    assert len(player.seen) == 5 * 80


@pytest.mark.parametrize("call", [lambda qp: qp.recv(30), lambda qp: qp.poll(1, 30)])
@pytest.mark.parametrize("closing", ["qp", "pd"])
def test_closing_ends_waiting_calls(worker, pd, qp, call, closing):
    raised: list[type] = []

    def wait():
        try:
            call(qp)
        except srdma.Error as e:
            raised.append(type(e))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    start = time.monotonic()
    {"qp": qp, "pd": pd}[closing].close()
    thread.join()
    assert time.monotonic() - start < 15
    assert raised == [srdma.ClosedError]
    assert worker.kinds().count(DESTROY) == 1
    for use in (qp.poll, qp.send, qp.recv, lambda: qp.post_recv(RecvWR())):
        with pytest.raises(srdma.ClosedError, match="this SecureQP is closed"):
            use()


def test_late_records_of_a_closed_qp_are_ignored(pd, qp, leg):
    other = srdma.SecureQP(pd, 4, 4)
    qp.post_send(SendWR(1, data=b"x"))
    (d,) = leg.descriptors()
    qp.close()
    leg.complete(record(d))
    other.post_send(SendWR(2, data=b"x"))
    leg.complete(record(*leg.descriptors()))
    assert [w.wr_id for w in other.poll(5)] == [2]


def test_qp_that_was_reclaimed_is_closed_without_an_error(worker, pd, qp, leg):
    """The worker freed the QP after RECLAIMED, so it does not know its number any more."""

    def refuse(leg, body, fds):
        raise Refuse(2, "QP 0x000001 does not exist, or no longer")

    other = srdma.SecureQP(pd, 4, 4)
    worker.handlers[DESTROY] = refuse
    qp.post_send(SendWR(1, data=b"x"))
    leg.descriptors()
    qp.close()
    assert qp.closed
    assert worker.kinds().count(DESTROY) == 1
    other.post_send(SendWR(2, data=b"x"))
    leg.complete(record(*leg.descriptors()))
    assert [w.wr_id for w in other.poll(5)] == [2]


def test_refused_destroy_does_not_stop_the_rest(worker, ctx):
    """If the worker refuses DESTROY for a QP, all other objects are closed anyway. Memory that DMA
    of that QP may still access is not reused."""

    def refuse(leg, body, fds):
        raise Refuse(16, "busy")

    worker.handlers[DESTROY] = refuse
    pd = srdma.PD(ctx, 64)
    first, second = srdma.SecureQP(pd, 4, 4), srdma.SecureQP(pd, 4, 4)
    with pytest.raises(srdma.Timeout):
        first.recv(0.01)
    (d,) = worker.leg.descriptors()
    with pytest.raises(srdma.RefusedError, match="busy"):
        first.close()
    assert pd.bounces.take(10).addr != d.local_addr
    with pytest.raises(srdma.RefusedError, match="busy"):
        pd.close()
    assert first.closed
    assert second.closed
    assert pd.closed
    assert worker.kinds().count(DESTROY) == 2
    worker.wait_for_connections(1)
