"""Data from host to host through two NICs that are other computers."""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import srdma
from srdma.inspect import roce
from srdma.inspect.dissect import is_srdma
from tests.rxe.figures import figures
from tests.smartnic.outside import switch

SIZE = 4 << 20
STALL_S = 5  # a leg survives 8 s; on a busy machine the stall takes longer
PIECE = 64  # bytes of plaintext that the capture must not contain


@pytest.fixture(scope="module")
def memory(pd: srdma.PD) -> srdma.MR:
    return pd.alloc(SIZE)


def test_data_goes_there_and_back_and_only_sealed_packets_pass(connected, host_b, pd, memory, wire):
    data = os.urandom(SIZE)
    memory.buf[:] = data
    with connected(pd, size=SIZE, qp_timeout=120) as (connection, remote):
        start = time.monotonic()
        connection.qp.write(memory, remote)
        figures.append(f"WRITE of {SIZE >> 20} MiB: {time.monotonic() - start:.1f} s")
        found = host_b.ask("digest", offset=0, length=SIZE)["sha256"]
        assert found == hashlib.sha256(data).digest()
        memory.buf[:] = bytes(SIZE)
        start = time.monotonic()
        connection.qp.read(remote, into=memory)
        figures.append(f"READ of {SIZE >> 20} MiB: {time.monotonic() - start:.1f} s")
        assert bytes(memory.buf) == data
        tag_len = connection.suite.tag_len
    frames = wire.take()
    packets = roce.messages(roce.frames(frames))
    assert sum(map(len, packets)) > 2 * SIZE
    assert all(is_srdma(packet, tag_len) for packet in packets)
    captured = b"".join(frames)
    assert not any(data[at : at + PIECE] in captured for at in range(0, SIZE, SIZE // 64))


def test_requests_survive_a_stall_of_a_nic(connected, host_b, pd, memory):
    data = os.urandom(SIZE)
    memory.buf[:] = data
    with connected(pd, size=SIZE, qp_timeout=120) as (connection, remote):
        switch("nic0", "stall")
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(connection.qp.write, memory, remote)
            time.sleep(STALL_S)
            assert not writing.done()
            switch("nic0", "continue")
            writing.result()
        found = host_b.ask("digest", offset=0, length=SIZE)["sha256"]
        assert found == hashlib.sha256(data).digest()
