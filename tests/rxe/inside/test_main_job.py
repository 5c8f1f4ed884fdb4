"""Transfers over rxe: every byte from host A to host B and back, by four processes."""

from __future__ import annotations

import os
import time

import pytest

import srdma
from srdma import SendWR, WROpcode
from tests.rxe.figures import figures
from tests.rxe.inside.conftest import REGION
from tests.rxe.inside.load import sha256
from tests.rxe.inside.whole_region import there_and_back

SIZES = [0, 1, 63, 64, 4095, 4096, 4097, 65537, (1 << 20) + 3]
QPS = 8
SLICE = 64 << 10
SLICES = 4
SMALL = 32
SUITES = {"aes-128-gcm": REGION, "hmac-sha256": REGION // 8}  # bytes to transfer


@pytest.mark.parametrize(("suite", "size"), SUITES.items(), ids=SUITES)
def test_whole_region_there_and_back(stage, connected, host_b, memory, suite, size):
    there_and_back(connected, host_b, stage.secure.b, memory, suite, size)


def test_sizes_at_odd_offsets(connected, host_b, pd, memory):
    memory.buf[: 4 << 20] = os.urandom(4 << 20)
    with connected(pd, size=4 << 20) as (connection, remote):
        for size in SIZES:
            there, here = 3 + size % 7, 1 + size % 5
            source = memory[here : here + size]
            connection.qp.write(source, remote, there)
            got = host_b.ask("look", offset=there, length=size)["data"]
            assert got == memory.buf[here : here + size], f"WRITE of {size}"
            back = (2 << 20) + here
            connection.qp.read(remote, there, size, into=memory[back : back + size])
            assert memory.buf[back : back + size] == got, f"READ of {size}"
            assert connection.qp.read(remote, there, size) == got, f"READ of {size}, a copy"


def test_send_and_immediate(connected, host_b, pd, memory):
    with connected(pd, size=4096) as (connection, remote):
        for size in SIZES:
            host_b.request("message", qp=0, size=2 << 20)
            data = bytes(memory.buf[5 : 5 + size])
            connection.qp.send(memory[5 : 5 + size], imm=size)
            assert host_b.answer() == {"data": data, "imm": size}
        host_b.request("message", qp=0, size=0)
        connection.qp.write(b"told", remote, 77, imm=0xFEEDBEEF)
        assert host_b.answer() == {"data": b"", "imm": 0xFEEDBEEF}
        assert host_b.ask("look", offset=77, length=4)["data"] == b"told"


def test_small_write_latency(connected, pd):
    times = []
    with connected(pd, size=4096) as (connection, remote):
        for _ in range(100):
            start = time.perf_counter()
            connection.qp.write(bytes(SMALL), remote)
            times.append(time.perf_counter() - start)
    times.sort()
    figures.append(
        f"WRITE of {SMALL} B: median {times[50] * 1e6:.0f} us, best {times[0] * 1e6:.0f}"
    )


def test_eight_qps_at_once(connected, host_b, pd, memory):
    """Posts all requests before any completes. Each QP uses a separate part of the memory."""
    part = SLICE * SLICES
    memory.buf[: QPS * part] = os.urandom(QPS * part)
    wanted = sha256(memory.buf[: QPS * part])
    with connected(pd, size=QPS * part, qps=QPS, sq=16, rq=16) as (connection, remote):
        transfer(connection, remote, memory, WROpcode.RDMA_WRITE)
        assert host_b.ask("digest", offset=0, length=QPS * part)["sha256"] == wanted
        memory.buf[: QPS * part] = bytes(QPS * part)
        transfer(connection, remote, memory, WROpcode.RDMA_READ)
        assert sha256(memory.buf[: QPS * part]) == wanted


def transfer(
    connection: srdma.Connection, remote: srdma.RemoteMR, memory: srdma.MR, opcode: WROpcode
) -> None:
    for i in range(SLICES):
        for n, qp in enumerate(connection.qps):
            at = (n * SLICES + i) * SLICE
            wr = SendWR(i, opcode, [memory[at : at + SLICE]])
            wr.set_remote(remote, at)
            qp.post_send(wr)
    for qp in connection.qps:
        done = []
        while len(done) < SLICES:
            wcs = qp.poll(SLICES, timeout=60)
            assert wcs, f"{len(done)} of {SLICES} completed"
            for wc in wcs:
                wc.raise_for_status()
            done += [wc.wr_id for wc in wcs]
        assert done == list(range(SLICES))
