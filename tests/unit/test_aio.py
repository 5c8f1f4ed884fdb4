"""The asyncio calls with a simulated worker: order, limits, cancelling, and every end of a wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest

import srdma
from srdma import Access, RemoteMR
from srdma._engine.bounce import STAGE
from srdma.aio import QP
from srdma.aio.reactor import Reactor
from tests.unit.conftest import DEPTH
from tests.unit.test_qp import (
    BAD_RKEY,
    FLUSHED,
    PEER_CLOSED,
    REMOTE,
    Player,
    arrive,
    event,
    pattern,
    record,
)

WAIT = 20


@pytest.fixture
def sync(qp):
    """The blocking QP under test. The tests name the asyncio QP above it `qp`."""
    return qp


def scenario(test):
    """Runs a coroutine as a test. It must end in time and leave no task behind."""

    def run(worker, pd, sync, leg):
        async def limited():
            async with asyncio.timeout(WAIT):
                await test(worker=worker, pd=pd, sync=sync, leg=leg)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(limited(), debug=True)  # debug mode refuses calls from other threads

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def posted(leg, n):
    """Returns the next n descriptors."""
    found = []
    while len(found) < n:
        found += leg.descriptors()
        await asyncio.sleep(0.001)
    assert len(found) == n
    return found


async def settle():
    """Lets every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0.001)


def outcome(task):
    """Returns the exception that a finished task raised, or else its value."""
    assert task.done()
    return task.exception() or task.result()


# Calls ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 448, 449, STAGE, 2 * STAGE + 5])
def test_every_call(sync, leg, size):
    async def main():
        qp = QP(sync)
        await qp.write(pattern(size), REMOTE, 7, imm=5)
        assert player.memory[7 : 7 + size] == pattern(size)
        assert await qp.read(REMOTE, 7, size) == pattern(size)
        into = bytearray(size)
        assert await qp.read(REMOTE, 7, size, into=into) == b""
        assert into == pattern(size)
        if size <= STAGE:
            await qp.send(pattern(size))
            assert player.sent == [pattern(size)]

    with Player(leg) as player:
        asyncio.run(main())


def test_registered_memory_is_not_copied(pd, sync, leg):
    mr = pd.alloc(100)
    mr.buf[:] = pattern(100)

    async def main():
        qp = QP(sync)
        await asyncio.gather(qp.write(mr[10:30], REMOTE), qp.send(mr))
        await qp.read(REMOTE, 0, 5, into=mr[50:])

    with Player(leg) as player:
        asyncio.run(main())
    assert bytes(mr.buf[50:55]) == pattern(100)[10:15]
    assert {d.local_addr - mr.addr for d in player.seen} == {0, 10, 50}


@scenario
async def test_recv(pd, sync, leg, worker):
    qp = QP(sync)
    own = pd.alloc(100)
    first, second = (
        asyncio.ensure_future(qp.recv(into=own[20:])),
        asyncio.ensure_future(qp.recv()),
    )
    into_own, into_bounce = await posted(leg, 2)
    arrive(into_own, leg, b"one")
    arrive(into_bounce, leg, b"two")
    assert bytes((await first).data) == b"one"
    assert bytes(own.buf[20:23]) == b"one"
    assert await second == (b"two", None, 3)


def test_calls_wait_for_a_queue_slot_in_order(sync, leg):
    """There are more calls than queue slots. At most as many payloads are copied as there are
    slots."""
    most = 0

    def answer(d, done):
        nonlocal most
        most = max(most, len(sync._requests))
        return done

    async def main():
        qp = QP(sync)
        sizes = [(n * 37) % 900 for n in range(100)]  # some inline, some copied
        await asyncio.gather(*(qp.write(pattern(s), REMOTE, n) for n, s in enumerate(sizes)))

    with Player(leg, answer) as player:
        asyncio.run(main())
    assert [d.remote_addr - REMOTE.address for d in player.seen] == list(range(100))
    assert 1 < most <= DEPTH
    assert not sync._requests


def test_several_qps_at_once(pd, leg):
    async def main():
        qps = [QP(srdma.SecureQP(pd, 4, 4)) for _ in range(6)]
        await asyncio.gather(
            *(qp.write(b"x", REMOTE, n) for n in range(20) for qp in qps),
            *(qp.read(REMOTE, 0, 600) for _ in range(20) for qp in qps),
        )

    with Player(leg) as player:
        asyncio.run(main())
    assert len(player.seen) == 6 * 40


@scenario
async def test_completions_found_by_another_thread(pd, sync, leg, worker):
    call = asyncio.ensure_future(QP(sync).send(b"x"))
    (d,) = await posted(leg, 1)
    with pd.engine.lock:  # keeps the event loop from polling first
        leg.complete(record(d))
        thread = threading.Thread(target=sync.poll)
    thread.start()
    await call
    thread.join()


@scenario
async def test_waiting_needs_no_turns_of_the_loop(pd, sync, leg, worker):
    """The reactor takes no turn without a completion, and arms the leg only while a call waits."""
    turns, arms = 0, []
    turn, arm = Reactor._turn, pd.engine.arm

    def counted(self):
        nonlocal turns
        turns += 1
        turn(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reactor, "_turn", counted)
        patch.setattr(pd.engine, "arm", lambda: arms.append(arm()) or arms[-1])
        call = asyncio.ensure_future(QP(sync).recv())
        (d,) = await posted(leg, 1)
        before = turns
        await asyncio.sleep(0.2)
        assert turns == before
        arrive(d, leg, b"")
        await call
        await settle()
        before = turns
        await asyncio.sleep(0.1)
        assert turns == before
        assert arms == [False]


# Cancelling -----------------------------------------------------------------------


@scenario
async def test_cancelled_write_completes_once_and_keeps_its_memory(pd, sync, leg, worker):
    qp = QP(sync)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await qp.write(bytes(5000), REMOTE)
    (d,) = leg.descriptors()
    other = pd.bounces.take(10)
    assert other.addr != d.local_addr
    pd.bounces.give(other)
    assert len(sync._requests) == 1
    leg.complete(record(d))
    await settle()
    assert not sync._requests
    assert d.local_addr in {pd.bounces.take(10).addr for _ in range(2)}
    assert sync.poll(10) == []


@scenario
async def test_cancelled_calls_free_their_slots(pd, sync, leg, worker):
    qp = QP(sync)
    calls = [asyncio.ensure_future(qp.write(bytes(500), REMOTE, n)) for n in range(3 * DEPTH)]
    found = await posted(leg, DEPTH)
    for call in calls[::2]:
        call.cancel()
    await settle()
    # Nothing more is posted: the cancelled requests still take the slots.
    assert leg.descriptors() == []
    for d in found:
        leg.complete(record(d))
    found = await posted(leg, DEPTH)
    assert [d.remote_addr - REMOTE.address for d in found] == list(range(9, 24, 2))
    for d in found:
        leg.complete(record(d))
    await asyncio.wait(calls)
    assert [c.cancelled() for c in calls] == [True, False] * (3 * DEPTH // 2)
    assert (qp._places._value, qp._copies._value) == (DEPTH, 8)


@scenario
async def test_cancelled_read_does_not_write_its_buffer(pd, sync, leg, worker):
    into = bytearray(10)
    call = asyncio.ensure_future(QP(sync).read(REMOTE, 0, 10, into=into))
    (d,) = await posted(leg, 1)
    call.cancel()
    arrive(d, leg, b"0123456789", opcode=2)
    await asyncio.wait([call])
    await settle()
    assert into == bytes(10)


@scenario
async def test_cancelled_recv_loses_no_message(pd, sync, leg, worker):
    qp = QP(sync)
    calls = [asyncio.ensure_future(qp.recv()) for _ in range(3)]
    found = await posted(leg, 3)
    calls[0].cancel()
    await settle()
    for d, data in zip(found, (b"one", b"two", b"three"), strict=True):
        arrive(d, leg, data)
    assert (await calls[1]).data == b"one"
    assert (await calls[2]).data == b"two"
    assert (await qp.recv()).data == b"three"
    assert leg.descriptors() == []


@scenario
async def test_recvs_cancelled_after_their_messages_arrived(pd, sync, leg, worker):
    """The calls are cancelled after their completions arrived and before their tasks ran."""
    qp = QP(sync)
    calls = [asyncio.ensure_future(qp.recv()) for _ in range(3)]
    for d, data in zip(await posted(leg, 3), (b"one", b"two", b"three"), strict=True):
        arrive(d, leg, data)
    sync.poll()
    qp._receive()
    assert all(not c.done() for c in calls)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert [(await qp.recv()).data for _ in range(3)] == [b"one", b"two", b"three"]


@scenario
async def test_message_that_arrives_after_cancelling(pd, sync, leg, worker):
    """The message arrives after the cancellation and before the cancelled task ran."""
    qp = QP(sync)
    calls = [asyncio.ensure_future(qp.recv()) for _ in range(2)]
    first, _ = await posted(leg, 2)
    calls[0].cancel()
    arrive(first, leg, b"one")
    sync.poll()
    qp._receive()
    assert (await calls[1]).data == b"one"


@scenario
async def test_more_receivers_than_receives(pd, sync, leg, worker):
    qp = QP(sync)
    calls = [asyncio.ensure_future(qp.recv()) for _ in range(DEPTH + 3)]
    found = await posted(leg, DEPTH)
    calls[2].cancel()
    for d in found:
        arrive(d, leg, b"x")
    found = await posted(leg, 2)
    for d in found:
        arrive(d, leg, b"x")
    await asyncio.wait(calls)
    assert [c.cancelled() for c in calls].count(True) == 1


@scenario
async def test_receive_left_by_a_blocking_call(pd, sync, leg, worker):
    with pytest.raises(srdma.Timeout):
        sync.recv(0.01)
    (d,) = leg.descriptors()
    call = asyncio.ensure_future(QP(sync).recv())
    await settle()
    arrive(d, leg, b"late")
    assert (await call).data == b"late"
    assert leg.descriptors() == []


# Failures -------------------------------------------------------------------------


@scenario
async def test_refused_by_the_peer(pd, sync, leg, worker):
    call = asyncio.ensure_future(QP(sync).write(b"x", REMOTE))
    (d,) = await posted(leg, 1)
    leg.complete(record(d, status=10, vendor_err=BAD_RKEY))
    with pytest.raises(srdma.RemoteError, match="REM_ACCESS_ERR, BAD_RKEY") as e:
        await call
    assert isinstance(e.value, srdma.WCError)


@scenario
async def test_flushed_call_reports_the_reason_that_arrives_later(pd, sync, leg, worker):
    qp = QP(sync)
    calls = [asyncio.ensure_future(c) for c in (qp.send(b"x"), qp.recv(), qp.recv())]
    for d in await posted(leg, 3):
        leg.complete(record(d, status=5, vendor_err=FLUSHED))
    while sync._requests:
        await asyncio.sleep(0)
    for _ in range(10):  # the calls continue and wait for the reason
        await asyncio.sleep(0)
    leg.complete(event(sync, PEER_CLOSED))
    await asyncio.wait(calls)
    for call in calls:
        assert isinstance(outcome(call), srdma.RemoteError)
        assert "PEER_CLOSED" in str(outcome(call))


@scenario
async def test_refused_before_posting(pd, sync, leg, worker):
    qp = QP(sync)
    read_only = pd.alloc(10, Access.NONE)
    small = RemoteMR(0, 1, 10)
    for call, kind in (
        (qp.write(bytes(11), small), srdma.BoundsError),
        (qp.read(small, 5, 6), srdma.BoundsError),
        (qp.send(5), srdma.LocalError),
        (qp.recv(into=read_only), srdma.BufferAccessError),
        (qp.recv(size=-1), srdma.LocalError),
    ):
        with pytest.raises(kind):
            await call
    assert leg.descriptors() == []
    assert qp._places._value == DEPTH


@scenario
async def test_worker_dies(pd, sync, leg, worker):
    """Calls that wait for completions, slots and messages fail, and so do
    later calls, without wake-ups."""
    qp = QP(sync)
    calls = [asyncio.ensure_future(qp.write(bytes(n), REMOTE)) for n in range(0, 3 * 500, 50)]
    calls += [asyncio.ensure_future(qp.recv()) for _ in range(DEPTH + 2)]
    await posted(leg, 2 * DEPTH)
    await asyncio.to_thread(worker.die)
    await asyncio.wait(calls)
    assert {type(outcome(c)) for c in calls} == {srdma.WorkerGone}
    for call in (qp.send(b"x"), qp.recv(), qp.read(REMOTE, 0, 10)):
        with pytest.raises(srdma.WorkerGone, match="start it"):
            await call
    assert sync.reason == "WORKER_GONE"
    await settle()
    start = time.process_time()
    await asyncio.sleep(0.3)
    assert time.process_time() - start < 0.2


@scenario
async def test_worker_dies_after_the_last_poll(pd, sync, leg, worker):
    """The worker dies after the poll of a turn. The same turn notices the end afterwards, and the
    call fails."""
    call = asyncio.ensure_future(QP(sync).recv())
    await posted(leg, 1)
    looks = []
    poll = pd.engine.poll
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pd.engine, "poll", lambda: looks.append(1) or (len(looks) > 1 and poll()))
        worker.die()
        with pytest.raises(srdma.WorkerGone):
            await call


@pytest.mark.parametrize("closing", ["qp", "pd", "thread"])
def test_closing_ends_waiting_calls(worker, pd, sync, leg, closing):
    async def main():
        qp = QP(sync)
        calls = [asyncio.ensure_future(qp.send(b"x")) for _ in range(DEPTH + 2)]
        calls += [asyncio.ensure_future(qp.recv()) for _ in range(DEPTH + 2)]
        await posted(leg, 2 * DEPTH)
        if closing == "thread":
            await asyncio.to_thread(sync.close)
        else:
            {"qp": sync, "pd": pd}[closing].close()
        await asyncio.wait(calls, timeout=WAIT)
        assert {type(outcome(c)) for c in calls} == {srdma.ClosedError}
        for call in (qp.send, qp.recv):
            with pytest.raises(srdma.ClosedError):
                await call()
        assert qp._reactor._outstanding == 0

    asyncio.run(main())


# Iterating ------------------------------------------------------------------------


async def messages(qp, found):
    async for message in qp:
        found.append(message.data)


@pytest.mark.parametrize(("reason", "ends"), [(PEER_CLOSED, True), (23, False)])
def test_async_for(sync, leg, reason, ends):
    async def main():
        found = []
        task = asyncio.ensure_future(messages(QP(sync), found))
        for data in (b"one", b"two"):
            (d,) = await posted(leg, 1)
            arrive(d, leg, data)
        (d,) = await posted(leg, 1)
        leg.complete(record(d, status=5, vendor_err=FLUSHED))
        leg.complete(event(sync, reason))
        with contextlib.nullcontext() if ends else pytest.raises(srdma.RemoteError):
            await task
        assert found == [b"one", b"two"]

    asyncio.run(main())


@scenario
async def test_async_for_ends_when_this_end_closes(pd, sync, leg, worker):
    task = asyncio.ensure_future(messages(QP(sync), []))
    await posted(leg, 1)
    sync.close()
    await task


# Either blocking calls or asyncio -------------------------------------------------


@scenario
async def test_blocking_calls_are_refused_during_asyncio(pd, sync, leg, worker):
    other = srdma.SecureQP(pd, 4, 4)
    QP(sync)
    for call in (
        lambda: other.send(b"x"),
        lambda: other.recv(1),
        lambda: other.write(b"x", REMOTE),
        lambda: other.read(REMOTE, 0, 1),
        lambda: other.poll(timeout=1),
    ):
        with pytest.raises(srdma.LocalError, match=r"srdma\.aio uses this PD"):
            call()
    assert leg.descriptors() == []
    assert other.poll() == []
    sync.close()
    with pytest.raises(srdma.Timeout):
        other.recv(0.01)


@scenario
async def test_refused_while_a_thread_waits(pd, sync, leg, worker):
    other = srdma.SecureQP(pd, 4, 4)
    waiting = asyncio.ensure_future(asyncio.to_thread(other.recv))
    (d,) = await posted(leg, 1)
    with pytest.raises(srdma.LocalError, match="a thread waits in a blocking call"):
        QP(sync)
    arrive(d, leg, b"x")
    assert (await waiting).data == b"x"
    QP(sync)


def test_one_loop_at_a_time(pd, sync, leg):
    async def make():
        return QP(srdma.SecureQP(pd, 4, 4))

    qp = asyncio.run(make())
    with pytest.raises(srdma.LocalError, match="another event loop uses this PD"):
        asyncio.run(make())
    qp.sync.close()
    asyncio.run(make())
