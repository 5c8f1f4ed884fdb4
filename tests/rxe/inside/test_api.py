"""The API over verbs: hosts with pyverbs, and two workers whose wires and
legs are on a pair of rxe devices."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import srdma
from srdma import Access, WCStatus
from srdma.embedded import Worker
from tests.e2e.conftest import Joiner, pattern, run

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
SIZES = [0, 1, 63, 64, 448, 449, 4095, 4096, 4097, 65537, (1 << 20) + 3]
WAIT = 120
TURNS = 100
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def workers(stage) -> list[Worker]:
    return list(stage.secure.workers)


@pytest.fixture(scope="module")
def pair(workers, pki):
    joiner = Joiner(pki)
    yield joiner.connect(*(joiner.host(worker, ring=512) for worker in workers), timeout=WAIT)
    joiner.close()


def test_write_read_and_send_of_every_size(pair):
    """WRITE with immediate, READ and SEND, with unregistered memory at the client."""
    target = pair.b.pd.alloc(2 << 20, ALL, scope="pd")
    for size in SIZES:
        data = pattern(size, size)
        message = run(pair.server.qp.recv, WAIT)
        pair.client.qp.write(data, target.remote(), 5, imm=size, timeout=WAIT)
        assert message().imm == size
        assert target.buf[5 : 5 + size] == data
        assert pair.client.qp.read(target.remote(), 5, size, timeout=WAIT) == data
        message = run(pair.server.qp.recv, WAIT, size=2 << 20)
        pair.client.qp.send(data, timeout=WAIT)
        assert message() == (data, None, size)


def test_registered_memory_without_a_copy(pair):
    memory = bytearray(pattern(100_000))
    with (
        pair.a.pd.reg_mr(memory, ALL, scope="pd") as mr,
        pair.b.pd.alloc(100_000, ALL, scope="pd") as target,
    ):
        pair.client.qp.write(mr[3:90_001], target.remote(), 1, timeout=WAIT)
        assert target.buf[1:89_999] == pattern(100_000)[3:90_001]
        pair.server.qp.write(b"back", mr.remote(), 99_996, timeout=WAIT)
        assert memory[-4:] == b"back"


def test_two_threads_wait_on_one_pd(pair):
    """A thread may handle completions of the other thread, but does not consume its wake-up."""
    target = pair.b.pd.alloc(2, ALL, scope="pd")

    def many(at: int) -> None:
        for n in range(TURNS):
            pair.client.qp.write(bytes([n]), target.remote(), at, timeout=WAIT)

    for ended in [run(many, at) for at in range(2)]:
        ended()
    assert bytes(target.buf) == bytes([TURNS - 1]) * 2


def test_mac_suite_and_refusal(workers, join):
    pair = join.connect(
        *(join.host(worker, ring=512) for worker in workers), suites=["hmac-sha256"], timeout=WAIT
    )
    mr = pair.b.pd.alloc(100, Access.REMOTE_READ, scope="pd")
    assert pair.client.qp.read(mr.remote(), timeout=WAIT) == bytes(100)
    with pytest.raises(srdma.WCError) as e:
        pair.client.qp.write(b"x", mr.remote(), timeout=WAIT)
    assert (e.value.wc.status, e.value.wc.reason) == (WCStatus.REM_ACCESS_ERR, "NO_RIGHT")


# Runs as an ordinary user, whose limit of locked memory is low.
LITTLE_MEMORY = """
    import ctypes, os, resource, sys
    import srdma
    pd = srdma.PD(srdma.Context(sys.argv[1]), 64)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    none = (ctypes.c_uint32 * 6)()
    assert libc.capset(header, none) == 0, ctypes.get_errno()
    try:
        pd.alloc(64 << 20)
    except srdma.DeviceError as e:
        print(e, flush=True)
    os._exit(0)
"""


def test_too_little_locked_memory(workers):
    code = textwrap.dedent(LITTLE_MEMORY)
    command = [sys.executable, "-c", code, str(workers[0].control)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, cwd=ROOT)
    assert "ulimit -l" in done.stdout, done.stdout + done.stderr


def test_waiting_uses_no_cpu_time(pair):
    before = resource.getrusage(resource.RUSAGE_SELF)
    with pytest.raises(srdma.Timeout):
        pair.server.qp.recv(3.0)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.5
    pair.client.qp.send(b"for the receive that stayed", timeout=WAIT)
    assert pair.server.qp.recv(WAIT).data == b"for the receive that stayed"


def test_failed_leg_ends_its_qps_and_a_new_leg_works(workers, join):
    """The leg fails while the worker lives. The worker ends the QPs of the leg by itself and
    accepts a new leg."""
    pair = join.connect(*(join.host(worker, ring=512) for worker in workers), timeout=WAIT)
    target = pair.b.pd.alloc(8, ALL, scope="pd")
    receiving = run(pair.server.qp.recv, WAIT)
    pair.b.pd._leg._end("as a device that is down does")
    with pytest.raises(srdma.RemoteError, match="PEER_HOST_GONE"):
        pair.client.qp.write(b"x", target.remote(), timeout=WAIT)
    with pytest.raises(srdma.WorkerGone):
        receiving()
    with pytest.raises(srdma.WorkerGone, match="open a new one"):
        pair.b.pd.alloc(8)
    pair.b.pd.close()
    assert target.closed and pair.server.closed
    with srdma.PD(pair.b.ctx, 64) as pd:
        assert pd.alloc(8).lkey


def test_local_worker_killed(stage, workers, join):
    own = stage.start("victim", stage.ends[0])
    pair = join.connect(join.host(own, ring=512), join.host(workers[1], ring=512), timeout=WAIT)
    receiving = run(pair.client.qp.recv, WAIT)
    at_peer = run(pair.server.qp.recv, WAIT)
    own.process.send_signal(signal.SIGKILL)
    with pytest.raises(srdma.WorkerGone):
        receiving()
    with pytest.raises(srdma.RemoteError, match=r"WIRE_LOST|PEER_SILENT"):
        at_peer()
