"""Requests that name a capability, with a simulated worker (protocol.md 6.4)."""

from __future__ import annotations

import asyncio
import struct

import pytest

import srdma
from srdma import Capability, CapabilityError, RecvWR, Right, SendFlag, SendWR, WROpcode
from srdma._engine.bounce import STAGE
from srdma.aio import QP
from srdma.control import Kind
from srdma.errors import RemoteWCError
from tests.fake_worker import Refuse
from tests.native.memkeys import Region
from tests.reference.host import DescriptorOp
from tests.unit.test_qp import REMOTE, Player, event, pattern, record

KEYS = Region(
    b"K_PDmem of tests", (REMOTE.address, REMOTE.address + REMOTE.length, 12, 48), REMOTE.rkey, 1,
    bytes(16),
)  # fmt: skip
BOTH = Right.READ | Right.WRITE
LO = 4096
CAP = Capability(KEYS.grant(LO, REMOTE.length, BOTH))
READABLE = CAP.narrow(rights=Right.READ)
SIZES = [0, 1, 448, 449, 4097, STAGE + 1]


@pytest.fixture
def tokens(worker):
    """Returns the installed tokens by handle: 101, 102, ..."""
    tokens: dict[int, bytes] = {}

    def install(leg, body, fds):
        tokens[101 + len(tokens)] = body[4:]
        return struct.pack(">I", 100 + len(tokens)), []

    worker.handlers[Kind.INSTALL] = install
    worker.handlers[Kind.UNINSTALL] = lambda leg, body, fds: (b"", [])
    return tokens


@pytest.fixture
def qp(qp, tokens):
    qp.mode = "mem"
    return qp


def uses(qp, cap=CAP):
    """Returns how many requests hold the handle."""
    handle = qp.pd.handles.take(cap)
    qp.pd.handles.give(handle)
    return handle.uses


# Calls ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_write_and_read(qp, leg, tokens, size):
    """Offsets count from the first granted byte. The library does not split a
    request at node boundaries."""
    with Player(leg) as player:
        qp.write(pattern(size), CAP, 7, timeout=10)
        assert player.memory[LO + 7 : LO + 7 + size] == pattern(size)
        qp.write(pattern(size), CAP, 8, imm=5, timeout=10)
        assert player.memory[LO + 8 : LO + 8 + size] == pattern(size)
        assert qp.read(CAP, 8, size, timeout=10) == pattern(size)
    assert {d.capability for d in player.seen} == {101}
    assert len(player.seen) == 3 * max(-(-size // STAGE), 1)
    assert tokens == {101: CAP.to_bytes()}
    assert uses(qp) == 0


def test_registered_memory(pd, qp, leg):
    mr = pd.alloc(100)
    mr.buf[:] = pattern(100)
    with Player(leg) as player:
        qp.write(mr[10:30], CAP, timeout=10)
        qp.read(CAP, 0, 20, into=mr[50:], timeout=10)
    assert mr.buf[50:70] == pattern(100)[10:30]
    assert [(d.local_addr - mr.addr, d.capability) for d in player.seen] == [(10, 101), (50, 101)]


def test_read_of_the_whole_capability(qp, leg):
    less = CAP.narrow(8192, 4096)
    with Player(leg) as player:
        player.memory[LO + 8192 : LO + 8192 + 4096] = pattern(4096)
        assert qp.read(less, timeout=10) == pattern(4096)
        assert qp.read(less, 4090, timeout=10) == pattern(4096)[4090:]


def test_asyncio(pd, qp, leg):
    async def main():
        each = QP(qp)
        await asyncio.gather(*(each.write(bytes([n]) * 500, CAP, 500 * n) for n in range(20)))
        assert await each.read(CAP, 500 * 19, 3) == bytes([19]) * 3
        with pytest.raises(CapabilityError, match="not WRITE"):
            await each.write(b"x", READABLE)

    with Player(leg) as player:
        asyncio.run(main())
    assert {d.capability for d in player.seen} == {101}
    assert uses(qp) == 0


def test_request_without_a_capability_has_no_handle(qp, leg, tokens):
    with Player(leg) as player:
        qp.write(b"x", REMOTE, timeout=10)
        qp.send(b"x", timeout=10)
    assert {d.capability for d in player.seen} == {0}
    assert tokens == {}


# Refused before sending ------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda qp: qp.write(b"x", READABLE), CapabilityError, "grants READ, not WRITE"),
        (lambda qp: qp.write(b"x", READABLE, imm=1), CapabilityError, "not WRITE"),
        (lambda qp: qp.read(CAP.narrow(rights=2), 0, 1), CapabilityError, "grants WRITE, not READ"),
        (lambda qp: qp.read(CAP, CAP.length, 1), srdma.BoundsError, "fit into the capability of"),
        (lambda qp: qp.read(CAP, -1, 1), srdma.BoundsError, "at offset -1 does not fit"),
        (lambda qp: qp.write(bytes(4097), CAP.narrow(0, 4096)), srdma.BoundsError, "of 4096 bytes"),
        (lambda qp: qp.write(bytes(500), READABLE), CapabilityError, "not WRITE"),
    ],
)
def test_local_refusal(qp, leg, tokens, call, error, text):
    with pytest.raises(error, match=text):
        call(qp)
    assert leg.descriptors() == []
    assert tokens == {}


@pytest.mark.parametrize("mode", ["basic", "pd"])
def test_key_mode_without_proofs(qp, leg, mode):
    qp.mode = mode
    wr = SendWR(opcode=WROpcode.RDMA_WRITE, data=b"x", capability=CAP)
    for call in (
        lambda: qp.write(b"x", CAP),
        lambda: qp.read(CAP, 0, 1),
        lambda: qp.post_send(wr),
    ):
        with pytest.raises(srdma.LocalError, match=f"key mode is '{mode}'.*give mode=\"mem\""):
            call()
    assert leg.descriptors() == []
    qp.mode = "pd+mem"
    qp.post_send(wr)
    assert len(leg.descriptors()) == 1


def test_illegal_work_requests(qp, leg, tokens):
    send = SendWR(data=b"x", capability=CAP)
    stray = SendWR(opcode=WROpcode.RDMA_WRITE, data=b"x", capability=CAP)
    stray.set_wr_rdma(CAP.rkey, CAP.address - 1)
    other = SendWR(opcode=WROpcode.RDMA_WRITE, data=b"x", capability=CAP)
    other.set_wr_rdma(CAP.rkey ^ 1, CAP.address)
    right = SendWR(opcode=WROpcode.RDMA_WRITE, data=b"x", capability=READABLE)
    for wr, error, text in (
        (send, srdma.LocalError, "a SEND names no memory"),
        (stray, srdma.BoundsError, "at offset -1"),
        (other, srdma.LocalError, "the capability's"),
        (right, CapabilityError, "not WRITE"),
    ):
        good = SendWR(opcode=WROpcode.RDMA_WRITE, data=b"x", capability=CAP)
        with pytest.raises(error, match=text):
            qp.post_send(good, wr)
        assert leg.descriptors() == []
    assert uses(qp) == 0


def test_refused_install_is_reported(worker, pd, qp, leg):
    def refuse(leg, body, fds):
        raise Refuse(22, "no token of this version")

    worker.handlers[Kind.INSTALL] = refuse
    for call in (
        lambda: qp.write(b"x", CAP, timeout=10),
        lambda: qp.read(CAP, 0, 1, timeout=10),
        lambda: qp.post_send(SendWR(opcode=WROpcode.RDMA_WRITE, data=b"x", capability=CAP)),
    ):
        with pytest.raises(srdma.RefusedError, match="no token of this version"):
            call()
    assert leg.descriptors() == []


# Work requests -----------------------------------------------------------------------


def test_address_of_a_work_request(pd, qp, leg):
    mr = pd.alloc(100)
    first = SendWR(1, WROpcode.RDMA_WRITE, [mr[:10]], capability=CAP)
    second = SendWR(2, WROpcode.RDMA_READ, [mr[:10]])
    second.set_remote(CAP, 5)
    third = SendWR(3, WROpcode.RDMA_WRITE_WITH_IMM, data=b"abc", capability=CAP, imm_data=7)
    third.set_wr_rdma(CAP.rkey, CAP.address + 100)
    fourth = SendWR(4, WROpcode.RDMA_WRITE, data=b"x", capability=CAP)
    fourth.set_remote(REMOTE)
    qp.post_send(first, second, third, fourth)
    assert [(d.opcode, d.remote_addr - CAP.address, d.rkey, d.capability)
            for d in leg.descriptors()] == [
        (DescriptorOp.WRITE, 0, CAP.rkey, 101),
        (DescriptorOp.READ, 5, CAP.rkey, 101),
        (DescriptorOp.WRITE_IMM, 100, CAP.rkey, 101),
        (DescriptorOp.WRITE, -LO, REMOTE.rkey, 0),
    ]  # fmt: skip
    with pytest.raises(srdma.BoundsError, match="the capability of"):
        second.set_remote(CAP, CAP.length - 9)


def write(wr_id=0, signaled=True, cap=CAP):
    flags = SendFlag.SIGNALED if signaled else SendFlag(0)
    return SendWR(wr_id, WROpcode.RDMA_WRITE, data=b"x", capability=cap, send_flags=flags)


def test_work_request_holds_the_handle_until_it_completes(qp, leg):
    qp.post_send(write(), write(signaled=False), SendWR(data=b"x"), write(signaled=False))
    qp.post_recv(RecvWR(5))
    found = leg.descriptors()
    assert uses(qp) == 3
    leg.complete(record(found[4]))  # a receive
    assert len(qp.poll()) == 1
    assert uses(qp) == 3
    leg.complete(record(found[0]))
    assert len(qp.poll()) == 1
    assert uses(qp) == 2
    leg.complete(record(found[2]))
    assert len(qp.poll()) == 1
    assert uses(qp) == 1
    qp.close()
    assert uses(qp) == 0


@pytest.mark.parametrize("end", ["failure", "event"])
def test_qp_in_error_holds_no_handle(qp, leg, end):
    qp.post_send(write(), write(signaled=False))
    (d, _) = leg.descriptors()
    leg.complete(record(d, status=10, vendor_err=14) if end == "failure" else event(qp, 22))
    qp.poll(5)
    assert uses(qp) == 0


def test_refused_work_request_holds_no_handle(qp, leg):
    with pytest.raises(srdma.QueueFullError):
        qp.post_send(*[write() for _ in range(9)])
    found = leg.descriptors()
    assert len(found) == uses(qp) == 8
    for d in found:
        leg.complete(record(d))
    assert len(qp.poll(8)) == 8
    assert uses(qp) == 0


def test_call_that_timed_out_holds_its_handle(qp, leg):
    with pytest.raises(srdma.Timeout):
        qp.write(b"x", CAP, timeout=0.01)
    (d,) = leg.descriptors()
    assert uses(qp) == 1
    leg.complete(record(d))
    qp.poll()
    assert uses(qp) == 0


def test_call_that_found_the_queue_full_holds_no_handle(qp, leg):
    qp.post_send(*[SendWR(data=b"x") for _ in range(8)])
    with pytest.raises(srdma.QueueFullError):
        qp.write(b"x", CAP, timeout=1)
    assert uses(qp) == 0


@pytest.mark.parametrize("code", [6, 14, 15, 16])
def test_refusals_of_the_target(qp, leg, code):
    """Each refusal has the name and text of the target's reason."""
    name = {6: "PROOF_REQUIRED", 14: "PROOF_WRONG", 15: "PROOF_RANGE", 16: "PROOF_EXPIRED"}[code]

    def refuse(d, done):
        return record(d, status=10, vendor_err=code)

    with Player(leg, refuse), pytest.raises(RemoteWCError, match=name) as refused:
        qp.read(CAP, 0, 1, timeout=10)
    assert refused.value.wc.reason == name


def test_refusal_of_the_local_worker(qp, leg):
    def refuse(d, done):
        return record(d, status=8, vendor_err=48)

    with Player(leg, refuse), pytest.raises(srdma.LocalError, match="BAD_CAPABILITY"):
        qp.read(CAP, 0, 1, timeout=10)
