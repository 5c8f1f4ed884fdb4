"""Capabilities over two real workers: each permits what it grants and nothing else, until it is
revoked. Every refusal ends its QP, so each test uses several QPs."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product

import pytest

import srdma
from srdma import Access, Capability, CapabilityError, RecvWR, Right, SendWR, WROpcode
from srdma.aio import QP
from srdma.errors import RemoteWCError
from tests.e2e.conftest import WAIT, A, B, Joiner, pattern, run

BOTH = Right.READ | Right.WRITE
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
BLOCK = 1024
SIZE = 100 * BLOCK - 5
QPS = 200
DEPTH = 4
ROUNDS = 200
HOUR = 3600


class Wide:
    """A connection with many QPs that are used up one after the other."""

    def __init__(self, pair) -> None:
        self.pair = pair
        self._qps = zip(pair.client.qps, pair.server.qps, strict=True)

    @property
    def pd(self) -> srdma.PD:
        """The PD of the target."""
        return self.pair.b.pd

    def next(self) -> tuple[srdma.SecureQP, srdma.SecureQP]:
        """Returns the client's end and the server's end of the next QP."""
        return next(self._qps)

    def refused(self, reason: str, call) -> None:
        """Checks that the target refuses call(qp). A refusal ends its QP, so that each call gets a
        new one."""
        with pytest.raises(RemoteWCError, match=reason):
            call(self.next()[0])


@pytest.fixture(scope="module")
def wide(pki, site) -> Iterator[Wide]:
    joiner = Joiner(pki)
    yield Wide(joiner(site, mode="mem", qps=QPS, sq=DEPTH, rq=DEPTH))
    joiner.close()


@pytest.fixture(scope="module")
def qp(wide):
    """The client's end of a QP that no test may break."""
    return wide.next()[0]


@pytest.fixture
def region(wide):
    with wide.pd.alloc(SIZE, ALL, proof=True, block_size=BLOCK) as mr:
        mr.buf[:] = pattern(SIZE, 7)
        yield mr


def carries(qp, mr, cap, seed=1):
    """Checks WRITE and READ of the whole range, and that the bytes around it do not change."""
    before, start = bytes(mr.buf), cap.address - mr.addr
    data = pattern(cap.length, seed)
    qp.write(data, cap, timeout=WAIT)
    assert bytes(mr.buf) == before[:start] + data + before[start + cap.length :]
    assert qp.read(cap, timeout=WAIT) == data
    last = cap.length - 1
    assert qp.read(cap, last, 1, timeout=WAIT) == data[-1:]
    qp.write(b"!", cap, last, timeout=WAIT)
    assert mr.buf[start + last] == ord("!")


# Permitted accesses -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last"), [(0, None), (0, 1), (5, 6), (1, 99), (3, None), (99, None), (31, 65)]
)
def test_ranges(qp, region, first, last):
    """Ranges in blocks: one node, many nodes, and the short last block."""
    end = SIZE if last is None else last * BLOCK
    cap = region.capability(first * BLOCK, end - first * BLOCK, rights=BOTH)
    carries(qp, region, cap)


@pytest.mark.parametrize(("block", "depth"), [(64, 48), (64, 3), (4096, 1), (1 << 20, 48)])
def test_trees(qp, wide, block, depth):
    with wide.pd.alloc(SIZE, ALL, proof=True, block_size=block, depth_limit=depth) as mr:
        unit = mr.block_size
        carries(qp, mr, mr.capability(rights=BOTH))
        if unit < SIZE:
            carries(qp, mr, mr.capability(unit, rights=BOTH), 2)
            carries(qp, mr, mr.capability(0, unit, rights=BOTH), 3)


def test_packets_and_read_chunks_end_at_node_boundaries(qp, wide):
    """Transfers more than a READ chunk over nodes of 64 bytes to megabytes, at odd offsets."""
    size = (3 << 20) + 777
    with wide.pd.alloc(size, ALL, proof=True, block_size=64) as mr:
        cap = mr.capability(64, rights=BOTH)
        data = pattern(2_500_001, 3)
        qp.write(data, cap, 63, timeout=WAIT)
        assert mr.buf[127 : 127 + len(data)] == data
        assert qp.read(cap, 63, len(data), timeout=WAIT) == data


# RFC 5042 R6.3.5-2
def test_access_of_zero_bytes(qp, region):
    cap = region.capability(BLOCK, BLOCK, rights=BOTH)
    qp.write(b"", cap, BLOCK, timeout=WAIT)
    assert qp.read(cap, BLOCK, 0, timeout=WAIT) == b""


def test_narrowed_chain(qp, region):
    """Each narrowed capability reaches what it grants. Offsets count from its first byte."""
    cap, at = region.capability(rights=BOTH), 0
    for offset, blocks in ((3, 96), (1, 90), (30, 33), (16, 4), (1, 1)):
        cap = Capability.parse(str(cap.narrow(offset * BLOCK, blocks * BLOCK)))
        at += offset * BLOCK
        assert cap.address - region.addr == at
        carries(qp, region, cap, offset)
    reader = cap.narrow(rights=Right.READ)
    assert qp.read(reader, timeout=WAIT) == region.buf[at : at + BLOCK]


def test_sealed(qp, region):
    soon = int(time.time()) + HOUR
    opened = region.capability(BLOCK, 9 * BLOCK, rights=BOTH)
    for n, cap in enumerate((
        opened.seal(holder=A),
        opened.seal(expires=soon),
        opened.seal(holder=A, expires=soon),
        region.capability(BLOCK, 9 * BLOCK, rights=BOTH, holder=A, expires=soon),
    )):  # fmt: skip
        carries(qp, region, cap, n)
        offset, length = cap.pieces[-1]
        carries(qp, region, cap.narrow(offset, length), n + 10)


def test_write_with_immediate(wide, region):
    client, server = wide.next()
    cap = region.capability(0, 8 * BLOCK, rights=BOTH)
    message = run(server.recv, WAIT)
    client.write(pattern(5000), cap, 3 * BLOCK, imm=77, timeout=WAIT)
    assert message() == (b"", 77, 5000)
    assert region.buf[3 * BLOCK : 3 * BLOCK + 5000] == pattern(5000)


def test_verbs(wide, region):
    qp, _ = wide.next()
    cap = region.capability(BLOCK, 5 * BLOCK, rights=BOTH)
    with wide.pair.a.pd.alloc(3000) as own:
        own.buf[:] = pattern(3000)
        write = SendWR(1, WROpcode.RDMA_WRITE, [own[:]], capability=cap)
        read = SendWR(2, WROpcode.RDMA_READ, [own[:100]])
        read.set_remote(cap, 2000)
        qp.post_send(write, read)
        ended = qp.poll(1, WAIT) + qp.poll(1, WAIT)
        assert [(wc.wr_id, wc.reason) for wc in ended] == [(1, "NONE"), (2, "NONE")]
        assert region.buf[BLOCK : BLOCK + 3000] == pattern(3000)
        assert own.buf[:100] == pattern(3000)[2000:2100]


def test_asyncio(join, site):
    pair = join(site, mode="pd+mem")
    with pair.b.pd.alloc(SIZE, ALL, proof=True, block_size=BLOCK) as mr:
        caps = [mr.capability(n * BLOCK, BLOCK, rights=BOTH) for n in range(50)]

        async def main():
            async with asyncio.timeout(WAIT):
                qp = QP(pair.client.qp)
                await asyncio.gather(*(qp.write(pattern(BLOCK, n), c) for n, c in enumerate(caps)))
                got = await asyncio.gather(*(qp.read(cap) for cap in caps))
            assert got == [pattern(BLOCK, n) for n in range(50)]
            mr.revoke()
            with pytest.raises(RemoteWCError, match="PROOF_WRONG"):
                await qp.read(caps[0])

        asyncio.run(main())


def test_more_capabilities_than_a_leg_can_install(join, site):
    """A leg has at most 1,024 capabilities installed. They are used again in another order."""
    count, block = 1100, 64
    pair = join(site, mode="mem")
    qp = pair.client.qp
    with pair.b.pd.alloc(count * block, ALL, proof=True, block_size=block) as mr:
        whole = mr.capability(rights=BOTH)
        caps = [whole.narrow(n * block, block) for n in range(count)]
        for n, cap in enumerate(caps):
            qp.write(n.to_bytes(4, "big") * 16, cap, timeout=WAIT)
        assert mr.buf == b"".join(n.to_bytes(4, "big") * 16 for n in range(count))
        for n in reversed(range(count)):
            assert qp.read(caps[n], 60, timeout=WAIT) == n.to_bytes(4, "big")
        for n in range(0, count, 100):
            assert qp.read(caps[n], 60, timeout=WAIT) == n.to_bytes(4, "big")


# Refused accesses ---------------------------------------------------------------------


OPERATIONS = {
    "read": (Right.READ, lambda qp, cap: qp.read(cap, 0, 10, timeout=WAIT)),
    "write": (Right.WRITE, lambda qp, cap: qp.write(b"x", cap, timeout=WAIT)),
    "imm": (Right.WRITE, lambda qp, cap: qp.write(b"x", cap, imm=1, timeout=WAIT)),
}


# RFC 5042 R6.3.4-1
def test_only_granted_accesses_pass(join, site, wide):
    """Tries every combination of right, operation, holder, QP and PD."""
    passed = 0
    with srdma.PD(wide.pair.b.ctx) as other:
        for rights, name, holder, own_qp, own_pd in product(
            (Right.READ, Right.WRITE, BOTH), OPERATIONS, (None, A, B), (True, False), (True, False)
        ):
            right, call = OPERATIONS[name]
            client, server = wide.next() if rights & right else (None, None)
            pd = wide.pd if own_pd else other
            scope = {"scope": server if own_qp else wide.pair.server.qps[-1]} if own_pd else {}
            with pd.alloc(BLOCK, ALL, proof=True, **scope) as mr:
                mr.buf[:] = pattern(BLOCK)
                cap = mr.capability(rights=rights, holder=holder)
                if client is None:
                    with pytest.raises(CapabilityError, match="grants"):
                        call(wide.pair.client.qps[-1], cap)
                    continue
                server.post_recv(RecvWR(1))
                wrong = (
                    "WRONG_PD" if not own_pd
                    else "QP_SCOPE" if not own_qp
                    else "PROOF_WRONG" if holder == B
                    else ""
                )  # fmt: skip
                if not wrong:
                    call(client, cap)
                    passed += 1
                    continue
                with pytest.raises(RemoteWCError, match=wrong):
                    call(client, cap)
                assert mr.buf == pattern(BLOCK)
    # 6 pairs of right and operation, for any holder or this peer, on the region's own QP and PD
    assert passed == 6 * 2


def test_rkey_without_a_capability_permits_nothing(wide, region):
    """Neither READ nor WRITE passes without a proof."""
    remote = region.remote()
    wide.refused("PROOF_REQUIRED", lambda qp: qp.read(remote, 0, 1, timeout=WAIT))
    wide.refused("PROOF_REQUIRED", lambda qp: qp.write(b"x", remote, timeout=WAIT))
    assert region.buf == pattern(SIZE, 7)


def test_key_mode_without_proofs(join, site):
    pair = join(site, qps=3)
    with pair.b.pd.alloc(BLOCK, ALL, proof=True) as mr:
        cap = mr.capability(rights=BOTH)
        with pytest.raises(srdma.LocalError, match="key mode is 'basic'"):
            pair.client.qp.read(cap)
        with pytest.raises(RemoteWCError, match="PROOF_REQUIRED"):
            pair.client.qp.read(mr.remote(), 0, 1, timeout=WAIT)
        pair.client.qps[1].mode = ""  # the worker checks it too
        with pytest.raises(srdma.LocalError, match="BAD_CAPABILITY"):
            pair.client.qps[1].read(cap, timeout=WAIT)


def test_expired(wide, region):
    cap = region.capability(rights=BOTH, expires=int(time.time()) - 1)
    wide.refused("PROOF_EXPIRED", lambda qp: qp.read(cap, 0, 1, timeout=WAIT))
    cap = region.capability(holder=A, expires=int(time.time()) - 1)
    wide.refused("PROOF_EXPIRED", lambda qp: qp.read(cap, 0, 1, timeout=WAIT))


def test_capability_of_another_region(wide, region):
    """The other region has the same shape and is adjacent."""
    with wide.pd.alloc(SIZE, ALL, proof=True, block_size=BLOCK) as other:
        token = bytearray(other.capability().to_bytes())
        token[64:80] = region.capability().to_bytes()[64:80]  # its key
        with pytest.raises(CapabilityError, match="damaged"):
            Capability.from_bytes(token)
        forged = _unchecked(token)
        wide.refused("PROOF_WRONG", lambda q: q.read(forged, 0, 1, timeout=WAIT))


def _unchecked(token: bytearray) -> Capability:
    """Returns the token with a recomputed checksum."""
    return Capability.from_bytes(bytes(token[:-8]) + hashlib.sha256(token[:-8]).digest()[:8])


# Revocation ---------------------------------------------------------------------------


# RFC 5042 X8
def test_revoke_range(qp, wide, region):
    """Capabilities that touch the range are void inside it and valid outside. New ones work."""
    whole = region.capability(rights=BOTH)
    inside = region.capability(8 * BLOCK, BLOCK, rights=BOTH)
    region.revoke(8 * BLOCK, 4 * BLOCK)
    assert region.buf == pattern(SIZE, 7)
    for cap, offset in ((whole, 8 * BLOCK), (whole, 12 * BLOCK - 1), (inside, 0)):
        reasons = "PROOF_WRONG|PROOF_RANGE"
        wide.refused(reasons, lambda q, c=cap, o=offset: q.read(c, o, 1, timeout=WAIT))
        wide.refused(reasons, lambda q, c=cap, o=offset: q.write(b"x", c, o, timeout=WAIT))
    assert region.buf == pattern(SIZE, 7)
    carries(qp, region, region.capability(8 * BLOCK, 4 * BLOCK, rights=BOTH))
    carries(qp, region, region.capability(9 * BLOCK, BLOCK, rights=BOTH), 2)
    assert qp.read(whole, 12 * BLOCK, 5000, timeout=WAIT) == pattern(SIZE, 7)[12 * BLOCK :][:5000]
    qp.write(b"x" * 8 * BLOCK, whole, timeout=WAIT)
    with pytest.raises(srdma.RefusedError, match="cross an edge of the revoked range"):
        region.capability(7 * BLOCK, 2 * BLOCK)


def test_revoke_all(qp, wide, region):
    old = region.capability(rights=BOTH)
    narrowed, sealed = old.narrow(0, BLOCK), old.seal(holder=A)
    region.revoke()
    for cap in (old, narrowed, sealed):
        wide.refused("PROOF_WRONG", lambda q, c=cap: q.read(c, 0, 1, timeout=WAIT))
    carries(qp, region, region.capability(rights=BOTH))


def test_at_most_64_ranges(qp, wide, region):
    for n in range(64):
        region.revoke(n * BLOCK, BLOCK)
    with pytest.raises(srdma.RefusedError, match="revoke the whole region"):
        region.revoke(70 * BLOCK, BLOCK)
    region.revoke(0, 64 * BLOCK)  # which covers all of them
    region.revoke(70 * BLOCK, BLOCK)
    region.revoke()
    carries(qp, region, region.capability(rights=BOTH))


# RFC 5042 X7; review A16
def test_revoked_capability_stays_void_after_a_new_registration(wide):
    """The same memory is registered again. The old capability is refused under either rkey."""
    memory = bytearray(SIZE)
    with wide.pd.reg_mr(memory, ALL, proof=True, block_size=BLOCK) as mr:
        old = mr.capability(rights=BOTH)
        mr.revoke()
    with wide.pd.reg_mr(memory, ALL, proof=True, block_size=BLOCK) as mr:
        assert mr.addr == old.address and mr.rkey != old.rkey
        wide.refused("BAD_RKEY", lambda q: q.write(b"x", old, timeout=WAIT))
        token = bytearray(old.to_bytes())
        token[4:8] = mr.rkey.to_bytes(4, "big")
        renamed = _unchecked(token)
        wide.refused("PROOF_WRONG", lambda q: q.write(b"x", renamed, timeout=WAIT))
        assert memory == bytes(SIZE)
        carries(wide.next()[0], mr, mr.capability(rights=BOTH))


@pytest.fixture
def race(pki, site, join):
    """The PD of the target, and a peer that races (racing_writer.py)."""
    host = join.host(site.b)
    options = {"identity": pki / "b", "mode": "mem", "qps": ROUNDS, "sq": 8, "rq": 4}
    with srdma.listen(("127.0.0.1", 0), host.pd, timeout=WAIT, **options) as listener:
        words = [site.a.control, pki / "a", listener.address[1], ROUNDS]
        command = [sys.executable, "-m", "tests.e2e.racing_writer", *map(str, words)]
        writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            with listener.accept(WAIT):
                yield host.pd, writer
        finally:
            writer.kill()
            writer.communicate()


# RFC 5042 R6.2.2-1, RA-1, A6.2.2
def test_writer_racing_with_revoke(race):
    """After revoke() has returned, no byte changes."""
    pd, writer = race
    size = 16 * BLOCK
    with pd.alloc(4 * size, ALL, proof=True, block_size=BLOCK) as mr:
        for n in range(ROUNDS):
            race_with_revoke(mr, size, writer, whole=n % 2 == 0)


def race_with_revoke(mr, size, writer, whole):
    """Revokes some or all nodes of a capability while the writer uses it. No revoked byte may
    change afterwards."""
    mr.buf[:] = bytes(len(mr))
    cap = mr.capability(BLOCK, size, rights=BOTH)
    start_race(writer, cap, mr.buf[BLOCK : BLOCK + size])
    first, end = (0, len(mr)) if whole else (5 * BLOCK, 11 * BLOCK)
    if whole:
        mr.revoke(timeout=WAIT)
    else:
        mr.revoke(first, end - first, timeout=WAIT)
    after = bytes(mr.buf[first:end])
    assert after.count(0) < len(after), "the writer has not written"
    assert writer.stdout.readline().strip() in ("refused PROOF_WRONG", "refused PROOF_RANGE")
    assert mr.buf[first:end] == after
    mr.revoke()  # removes the revoked range, whose edge the next capability must not cross


def start_race(writer, to, written):
    """Let the writer write, and wait until it has."""
    print(to, file=writer.stdin, flush=True)
    deadline = time.monotonic() + WAIT
    while not written[-1] and time.monotonic() < deadline:
        pass


# RFC 5042 R6.2.2-1, RA-1, A6.2.2
def test_writer_racing_with_withdraw(race):
    """After withdraw() has returned, no byte changes, and the program can still send them."""
    pd, writer = race
    for _ in range(ROUNDS):
        with pd.alloc(16 * BLOCK, ALL, scope="pd") as mr:
            start_race(writer, mr.remote(), mr.buf)
            seen = mr.withdraw(timeout=WAIT)
            after = bytes(seen)
            assert after[-1], "the writer has not written"
            assert writer.stdout.readline().strip() == "refused NO_RIGHT"
            assert seen == after
