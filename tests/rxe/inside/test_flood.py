"""Forged packets on a wire over verbs: an unauthenticated peer connects as a worker does, and sends
packets for a live QP with wrong tags. Each that the worker takes is counted, the work beside it
succeeds, and neither the worker's memory nor its log grows. tests/e2e/test_bench_flood.py
has the wire over UDP.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import srdma
from srdma.demo.rxe_stage import RxeStage
from tests.e2e.conftest import Joiner, Pair
from tests.reference import wire
from tests.rxe.figures import figures

ROOT = Path(__file__).resolve().parents[3]
WAIT = 120  # seconds
ROUND = 2000  # packets of one connection, which the worker closes after 10 s
CONNECTIONS = 3  # a slow machine may close one before its first packet has arrived
GROWTH = 1 << 20  # bytes; a few for each packet would be more
ACCESS = srdma.Access.LOCAL_WRITE | srdma.Access.REMOTE_WRITE


@pytest.fixture(scope="module")
def flooder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out, sources = tmp_path_factory.mktemp("c") / "wire_flood", ROOT / "tests/rxe/c"
    command = ["cc", "-std=c11", "-O2", "-D_GNU_SOURCE", f"-I{ROOT}/csrc", f"-I{ROOT}/include"]
    command += ["-o", str(out), f"{sources}/wire_flood.c", f"{sources}/peer.c"]
    command += [f"{ROOT}/build/libsrdma-core.a", "-lrdmacm", "-libverbs", "-lcrypto"]
    subprocess.run(command, check=True)
    return out


@pytest.fixture(scope="module")
def pair(stage: RxeStage, pki: Path) -> Iterator[Pair]:
    joiner = Joiner(pki)
    hosts = [joiner.host(worker, ring=512) for worker in stage.secure.workers]
    yield joiner.connect(*hosts, timeout=WAIT)
    joiner.close()


def resident(pid: int) -> int:
    """Bytes of memory that a process occupies."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def forged(pair: Pair) -> str:
    """A WRITE for the live QP of the target, in hex."""
    packet = wire.Packet(
        wire.Op.WRITE_ONLY, qpn=pair.server.qp.qp_num, va=1 << 40, rkey=1, dma_len=64,
        payload=bytes(64), tag=bytes(16),
    )  # fmt: skip
    return wire.build(packet).hex()


@pytest.mark.parametrize("number", [1000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_worker_does_not_grow(stage: RxeStage, pair: Pair, flooder: Path, number: int) -> None:
    victim, device = stage.secure.workers[1], stage.ends[0].device
    target = pair.b.pd.alloc(4096, ACCESS, scope="pd")
    packet, to = forged(pair), pair.b.ctx.hello.wire

    def flood() -> int:
        """The number of packets that the worker refused because of their tags."""
        before = pair.b.ctx.stats()["refused_tag"]
        for _ in range(CONNECTIONS):
            subprocess.run([flooder, device, str(ROUND), to, packet], check=True, timeout=WAIT)
            pair.client.qp.write(b"works", target.remote(), timeout=WAIT)
            if found := pair.b.ctx.stats()["refused_tag"] - before:
                return found
        raise AssertionError("no packet arrived")

    flood()  # the worker touches its memory
    memory, log = resident(victim.pid), victim.log.stat().st_size
    refused, start = 0, time.monotonic()
    while refused < number:
        refused += flood()
    grown = resident(victim.pid) - memory
    took = time.monotonic() - start
    figures.append(f"{refused} forged packets refused in {took:.1f} s, memory {grown:+d} bytes")
    assert target.buf[:5] == b"works"
    assert grown < GROWTH
    assert victim.log.stat().st_size == log
