"""Loads without progress, in C and in Python, with a simulated worker: each reports the reason."""

from __future__ import annotations

import os
import signal
import threading
import time
from array import array

import pytest

import srdma
from srdma.batch import work_of
from srdma.wr import RecvWR, SendFlag, SendWR, WROpcode
from srdma_bench.perf.hosts import PATIENCE, Sweep, host_named, load_of
from tests.reference.host import DescriptorOp
from tests.unit.conftest import DEPTH
from tests.unit.test_qp import FLUSHED, PEER_CLOSED, Player, event, record

pytestmark = pytest.mark.slow

SHORT, ROUNDS = 0.3, 5
MILLISECOND = 1_000_000


@pytest.fixture(params=["C", "Python"])
def name(request):
    return request.param


def write(flags: SendFlag = SendFlag.SIGNALED) -> SendWR:
    wr = SendWR(0, WROpcode.RDMA_WRITE, [], send_flags=flags)
    wr.set_wr_rdma(1, 4096)
    return wr


def stream(host, qp):
    host.stream(Sweep([(qp, write())]), 100, 0)


def some_time(host, qp):
    host.stream(Sweep([(qp, write())]), 0, 3600 * 1000 * MILLISECOND)


def alone(host, qp):
    host.alone([(qp, write())], array("Q", bytes(8 * ROUNDS)))


def play(host, qp):
    host.play([(qp, write())], (memoryview(bytearray(1)), memoryview(bytearray(1))),
              array("Q", bytes(8 * ROUNDS)), True)  # fmt: skip


def answer(host, qp):
    host.play([(qp, write())], (memoryview(bytearray(1)), memoryview(bytearray(1))),
              array("Q", bytes(8 * ROUNDS)), False)  # fmt: skip


def take(host, qp):
    host.receives([(qp, RecvWR())])
    host.take(3, 0)


def take_first(host, qp):
    host.receives([(qp, RecvWR())])
    host.take(0, 0)


RUNS = [stream, some_time, alone, play, answer, take, take_first]


@pytest.mark.parametrize("run", RUNS)
def test_nothing_completes(pd, qp, name, run):
    with pytest.raises(srdma.Timeout, match=r"no request completed in 0\.3 s"):
        run(host_named(name, pd, SHORT), qp)


@pytest.mark.parametrize("run", RUNS)
def test_worker_dies(worker, pd, qp, name, run):
    killer = threading.Timer(0.05, worker.die)
    killer.start()
    with pytest.raises(srdma.WorkerGone):
        run(host_named(name, pd, PATIENCE), qp)
    killer.join()


@pytest.mark.parametrize("run", RUNS)
def test_qp_ends(worker, pd, qp, name, run):
    ending = threading.Timer(0.05, worker.leg.complete, [event(qp, PEER_CLOSED)])
    ending.start()
    with pytest.raises(srdma.RemoteError, match="PEER_CLOSED"):
        run(host_named(name, pd, PATIENCE), qp)
    ending.join()


@pytest.mark.parametrize("run", RUNS)
def test_signal_handler_that_raises(pd, qp, name, run):
    class Interrupt(Exception):  # noqa: N818
        pass

    def interrupt(*_):
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1])
    timer.start()
    try:
        with pytest.raises(Interrupt):
            run(host_named(name, pd, PATIENCE), qp)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_signal_handler_that_returns_does_not_end_the_pause(worker, pd, qp):
    """A signal whose handler returns interrupts the sleep of a paced load. The load sleeps on to
    the end of the pause."""
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(time.monotonic_ns()))
    timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1])
    times, start = array("Q", bytes(8)), time.monotonic_ns()
    timer.start()
    try:
        with Player(worker.leg), pd.engine.lock:
            work = work_of(qp, write(), 0)
            load_of(pd, PATIENCE).alone(work, times, 200 * MILLISECOND)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert heard and time.monotonic_ns() - start >= 200 * MILLISECOND


def test_flush_before_the_reason(worker, pd, qp, name):
    def later(d, done):
        threading.Timer(0.05, worker.leg.complete, [event(qp, PEER_CLOSED)]).start()
        return record(d, status=5, vendor_err=FLUSHED)

    with Player(worker.leg, later), pytest.raises(srdma.RemoteError, match="PEER_CLOSED"):
        alone(host_named(name, pd, PATIENCE), qp)


@pytest.mark.parametrize("run", [stream, alone, play])
def test_closed_qp_is_refused(pd, qp, name, run):
    host = host_named(name, pd, PATIENCE)
    qp.close()
    with pytest.raises(srdma.LocalError, match="closed"):
        run(host, qp)


def test_load_waits_for_queue_slots(worker, pd, qp, name):
    qp.post_send(*[write(SendFlag(0))] * (DEPTH - 1), write())

    def signaled(d, done):
        return done if d.flags else None

    with Player(worker.leg, signaled) as player:
        alone(host_named(name, pd, PATIENCE), qp)
        assert len(player.seen) == DEPTH + ROUNDS


def receives(worker):
    """Returns the posted receives."""
    found = []
    deadline = time.monotonic() + 10
    while len(found) < DEPTH:
        assert time.monotonic() < deadline
        found += [d for d in worker.leg.descriptors() if d.opcode == DescriptorOp.RECV]
    return found


def test_silence_is_measured_from_the_first_message(worker, pd, qp, name):
    host = host_named(name, pd, PATIENCE)
    host.receives([(qp, RecvWR())])
    first, second, *_ = receives(worker)
    late = threading.Timer(0.3, worker.leg.complete, [record(first)])
    late.start()
    assert host.take(0, 50 * MILLISECOND)[0] == 1
    late.join()
    worker.leg.complete(record(second))
    assert host.take(1, 0)[0] == 1


def test_only_messages_are_counted(worker, pd, qp):
    """A WRITE that completes between two runs does not count as a received message."""
    host = host_named("C", pd, PATIENCE)
    host.receives([(qp, RecvWR())])
    first, *_ = receives(worker)
    qp.post_send(write())
    (sent,) = worker.leg.descriptors()
    worker.leg.complete(record(sent))
    worker.leg.complete(record(first))
    assert host.take(0, 50 * MILLISECOND)[0] == 1
