"""Contexts, PDs and memory regions with a simulated worker."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import struct
import subprocess
import sys
import weakref
from datetime import UTC, datetime

import pytest

import srdma
from srdma import Access, CapabilityError, RemoteMR, Right
from srdma.capability import holder_id
from srdma.control import Kind
from srdma.mr import REMOTE
from srdma.native.constants import HANDLES_MAX
from tests.fake_worker import DEREG_MR, REG_MR, Refuse
from tests.native.memkeys import Region

WRITABLE = Access.LOCAL_WRITE | Access.REMOTE_WRITE


def reg_mr(worker):
    """Returns the body of the last REG_MR (leg, access, address, length, host
    rkey, scope, offset) and fds."""
    return next(
        (*struct.unpack_from(">IIQQIIQ", body), fds)
        for kind, body, fds in reversed(worker.seen)
        if kind == REG_MR
    )


# Registering -------------------------------------------------------------------


def buffers():
    yield "bytearray", bytearray(5000)
    yield "mmap", mmap.mmap(-1, 5000)
    yield "memoryview", memoryview(bytearray(6000))[500:5500]
    yield "array", __import__("array").array("d", [0.0] * 625)
    ctypes = __import__("ctypes")
    yield "ctypes", (ctypes.c_char * 5000)()


@pytest.mark.parametrize("buffer", [b for _, b in buffers()], ids=[n for n, _ in buffers()])
def test_any_writable_buffer(worker, pd, buffer):
    mr = pd.reg_mr(buffer, WRITABLE, scope="pd")
    leg, access, addr, length, host_rkey, scope, offset, fds = reg_mr(worker)
    assert (leg, access, addr, length) == (pd.leg, WRITABLE, mr.addr, 5000)
    assert (host_rkey, scope, offset, fds) == (0, 0, 0, 0)
    mr.buf[10:15] = b"hello"
    assert bytes(memoryview(buffer).cast("B")[10:15]) == b"hello"
    mr.close()


def test_numpy(pd):
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    array = numpy.zeros((10, 20), dtype="<f4", order="F")
    mr = pd.reg_mr(array, WRITABLE, scope="pd")
    assert (mr.addr, mr.length) == (array.ctypes.data, 800)
    with pytest.raises(srdma.BufferAccessError, match="contiguous"):
        pd.reg_mr(array[::2])


def test_read_only_buffers(worker, pd):
    with pytest.raises(srdma.BufferAccessError, match="bytes is read-only, and access has LOCAL"):
        pd.reg_mr(b"abc", Access.LOCAL_WRITE)
    with pytest.raises(srdma.BufferAccessError, match="memoryview is read-only"):
        pd.reg_mr(memoryview(bytearray(5)).toreadonly(), WRITABLE, scope="pd")
    assert REG_MR not in worker.kinds()
    mr = pd.reg_mr(b"abc", Access.REMOTE_READ, scope="pd")
    assert bytes(mr.buf) == b"abc"
    assert mr.buf.readonly


def test_object_without_a_buffer(pd):
    with pytest.raises(srdma.BufferAccessError, match="a int has no buffer"):
        pd.reg_mr(5)
    with pytest.raises(srdma.BufferAccessError, match="empty"):
        pd.reg_mr(bytearray())
    with pytest.raises(srdma.BufferAccessError, match="not contiguous"):
        pd.reg_mr(memoryview(bytearray(10))[::2])


def test_shared_is_sent_and_needs_a_remote_right(worker, pd):
    pd.reg_mr(bytearray(5), Access.REMOTE_READ | Access.SHARED, scope="pd")
    assert reg_mr(worker)[1] == Access.REMOTE_READ | 0x200
    with pytest.raises(srdma.LocalError, match="SHARED needs a remote right"):
        pd.reg_mr(bytearray(5), Access.LOCAL_WRITE | Access.SHARED)


def test_illegal_access(pd):
    for access in (Access.REMOTE_WRITE, Access.REMOTE_ATOMIC):
        with pytest.raises(srdma.LocalError, match="REMOTE_ATOMIC need LOCAL_WRITE"):
            pd.reg_mr(bytearray(5), access, scope="pd")
    with pytest.raises(srdma.LocalError, match="this version knows"):
        pd.reg_mr(bytearray(5), 16)


def test_buffer_is_held_in_place_and_alive(pd):
    class Buffer(bytearray):
        """A bytearray that supports weak references."""

    buffer = Buffer(100)
    gone = weakref.ref(buffer)
    mr = pd.reg_mr(buffer)
    with pytest.raises(BufferError):
        buffer.append(1)
    del buffer
    gc.collect()
    assert gone() is not None
    mr.close()
    gc.collect()
    assert gone() is None


def scope_of(worker):
    """Returns scope QPN and scope identity of the last REG_MR."""
    body = next(body for kind, body, _ in reversed(worker.seen) if kind == REG_MR)
    return struct.unpack_from(">I", body, 28)[0], body[44:300].rstrip(b"\0").decode()


def test_scope(worker, pd):
    """A QP, an identity, or the whole PD; without remote rights there is nothing to scope."""
    qp = srdma.SecureQP(pd, 4, 4)
    nobody, uri = (0, ""), "spiffe://x/a"
    for access, how, scope in (
        (BOTH, {"scope": qp}, (qp.qp_num, "")),
        (BOTH, {"scope": uri}, (0, uri)),
        (BOTH, {"scope": "pd"}, nobody),
        (BOTH, {"proof": True}, nobody),
        (BOTH, {"proof": True, "scope": uri}, (0, uri)),
        (Access.LOCAL_WRITE, {}, nobody),
    ):
        pd.alloc(5, access, **how)
        assert scope_of(worker) == scope
        pd.reg_mr(bytearray(5), access, **how)
        assert scope_of(worker) == scope


@pytest.mark.parametrize("right", [r for r in Access if r & REMOTE])
def test_remote_rights_need_a_scope(worker, pd, right):
    """No rkey is open to all peers of a PD without the program's request (RFC 5042 6.1.1)."""
    for make in (lambda **how: pd.alloc(5, right | 1, **how),
                 lambda **how: pd.reg_mr(bytearray(5), right | 1, **how)):  # fmt: skip
        with pytest.raises(srdma.LocalError, match=r'scope= says which peers .* scope="pd"'):
            make()
        with pytest.raises(srdma.LocalError, match="'everybody' is no identity"):
            make(scope="everybody")
        with srdma.PD(pd.ctx) as other, pytest.raises(srdma.LocalError, match="of another PD than"):
            make(scope=srdma.SecureQP(other, 4, 4))
    assert REG_MR not in worker.kinds()


def test_regions_have_no_remote_rights_by_default(worker, pd):
    for mr in (pd.alloc(5), pd.reg_mr(bytearray(5))):
        assert mr.access == Access.LOCAL_WRITE
        assert reg_mr(worker)[1] == Access.LOCAL_WRITE


def test_refusal_of_the_worker_is_reported_and_leaves_nothing(worker, pd):
    def refuse(leg, body, fds):
        raise Refuse(errno.EPERM, "the kernel forbids process_vm_readv: use pd.alloc()")

    worker.handlers[REG_MR] = refuse
    buffer = bytearray(100)
    with pytest.raises(srdma.RefusedError, match=r"use pd.alloc\(\)"):
        pd.reg_mr(buffer)
    buffer.append(1)  # succeeds only if the buffer is not held any more
    assert DEREG_MR not in worker.kinds()


# alloc -------------------------------------------------------------------------


# RFC 5042 R6.3.2-1, RA-2, A6.3.2
def test_alloc_sends_a_memfd(worker, pd):
    contents: list[bytes] = []

    def register(leg, body, fds):
        seals = __import__("fcntl").fcntl(fds[0], 1034)  # F_GET_SEALS
        assert seals & 2  # F_SEAL_SHRINK
        with mmap.mmap(fds[0], 8192) as memory:
            memory[5:8] = b"nic"
            contents.append(bytes(memory[:3]))
        return struct.pack(">I", 77), []

    worker.handlers[REG_MR] = register
    before = len(os.listdir("/proc/self/fd"))
    mr = pd.alloc(5000, WRITABLE, scope="pd")
    assert (mr.lkey, mr.rkey, mr.length, len(mr.buf)) == (77, 77, 5000, 5000)
    assert bytes(mr.buf[:10]) == b"\0\0\0\0\0nic\0\0"
    assert reg_mr(worker)[1:4] == (WRITABLE, mr.addr, 5000)
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(srdma.LocalError, match="a region of 0 bytes"):
        pd.alloc(0)


def test_memory_outlives_the_region_while_a_view_exists(pd):
    mr = pd.alloc(4096)
    view = mr.buf[:5]
    mr.buf[:5] = b"alive"
    mr.close()
    assert bytes(view) == b"alive"
    with pytest.raises(srdma.ClosedError, match="this MR is closed"):
        _ = mr.buf


# Pieces and remote regions -------------------------------------------------------


def test_pieces(pd):
    mr = pd.alloc(100)
    assert mr[:] == mr.sge() == srdma.SGE(mr.addr, 100, mr.lkey, mr)
    assert mr[10:30] == mr.sge(10, 20)
    assert mr[100:].length == 0
    assert len(mr) == 100
    for start, stop in ((0, 101), (-1, 5), (50, 40), (101, 101)):
        with pytest.raises(srdma.BoundsError, match="not inside a region of 100 bytes"):
            _ = mr[start:stop]
    with pytest.raises(srdma.LocalError, match="start:stop"):
        _ = mr[5]
    with pytest.raises(srdma.LocalError, match="start:stop"):
        _ = mr[::2]


def test_remote(pd):
    mr = pd.alloc(100, Access.LOCAL_WRITE | Access.REMOTE_READ, scope="pd")
    assert mr.remote() == RemoteMR(mr.addr, mr.rkey, 100)
    with pytest.raises(srdma.LocalError, match="no right REMOTE_READ, REMOTE_WRITE or"):
        pd.alloc(100).remote()


def test_remote_as_bytes_and_text():
    remote = RemoteMR(0x7F0011223344, 0xDEADBEEF, 2**40)
    data = remote.to_bytes()
    assert data == bytes.fromhex("00007f0011223344 deadbeef 0000010000000000")
    assert RemoteMR.from_bytes(data) == remote
    assert str(remote) == "srdma-mr:00007f0011223344:deadbeef:10000000000"
    assert RemoteMR.parse(f" {remote}\n") == remote


@pytest.mark.parametrize("data", [b"", bytes(19), bytes(21)])
def test_remote_from_wrong_bytes(data):
    with pytest.raises(srdma.LocalError, match="20 bytes"):
        RemoteMR.from_bytes(data)


@pytest.mark.parametrize(
    "text",
    ["", "srdma-mr", "srdma-mr:1:2", "srdma-mr:1:2:x", "mr:1:2:3", "srdma-mr:1:100000000:3",
     "srdma-mr:-1:2:3", "srdma-mr:1:2:3:4"],
)  # fmt: skip
def test_remote_from_wrong_text(text):
    with pytest.raises(srdma.LocalError, match="no remote region"):
        RemoteMR.parse(text)


# Proofs and capabilities -------------------------------------------------------

BOTH = WRITABLE | Access.REMOTE_READ


def last_body(worker, kind):
    return next(body for seen, body, _ in reversed(worker.seen) if seen == kind)


@pytest.fixture
def keys(worker):
    """Simulates CAP and REVOKE with keys of a region at address 4,096."""

    def capability(leg, body, fds):
        _, key, offset, length, expiry, rights, holder = struct.unpack(">IIQQIB3x16s", body)
        region = Region(b"K_PDmem of tests", (4096, 4096 + 100_000, 10, 48), key, 1, bytes(16))
        token = region.grant(offset, offset + length, rights)
        if expiry or any(holder):
            token = token.seal(holder, expiry)
        return token.encode(), []

    worker.handlers[Kind.CAP] = capability
    worker.handlers[Kind.REVOKE] = lambda leg, body, fds: (b"", [])


def test_register_with_proofs(worker, pd):
    """REG_MR carries log2 of the block size and the depth limit, and a flag in access."""
    pd.reg_mr(bytearray(5000), BOTH, proof=True, block_size=64, depth_limit=5)
    assert reg_mr(worker)[1] == int(BOTH) | 0x100
    assert last_body(worker, REG_MR)[40:44] == bytes([6, 5, 0, 0])
    mr = pd.alloc(5000, BOTH, proof=True)
    assert last_body(worker, REG_MR)[40:44] == bytes([12, 48, 0, 0])
    assert (mr.proof, mr.block_size) == (True, 4096)
    plain = pd.alloc(5000, BOTH, scope="pd")
    assert last_body(worker, REG_MR)[40:44] == bytes(4)
    assert (plain.proof, reg_mr(worker)[1]) == (False, int(BOTH))


@pytest.mark.parametrize("make", ["reg_mr", "alloc"])
@pytest.mark.parametrize(
    ("access", "options", "text"),
    [
        (BOTH, {"proof": True, "block_size": 63}, "block_size=63: a power of two from 64"),
        (BOTH, {"proof": True, "block_size": 32}, "block_size=32"),
        (BOTH, {"proof": True, "block_size": 96}, "block_size=96"),
        (BOTH, {"proof": True, "block_size": 1 << 31}, "block_size=2147483648"),
        (BOTH, {"proof": True, "block_size": 0}, "block_size=0"),
        (BOTH, {"proof": True, "depth_limit": 0}, "depth_limit=0: 1 to 48"),
        (BOTH, {"proof": True, "depth_limit": 49}, "depth_limit=49"),
        (BOTH, {"block_size": 64}, "legal with proof=True"),
        (BOTH, {"depth_limit": 4}, "legal with proof=True"),
        (Access.LOCAL_WRITE, {"proof": True}, "needs REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC"),
        (int(BOTH) | 0x100, {}, "this version knows"),
    ],
)
def test_illegal_proofs(worker, pd, make, access, options, text):
    memory = 5000 if make == "alloc" else bytearray(5000)
    with pytest.raises(srdma.LocalError, match=text):
        getattr(pd, make)(memory, access, **options)
    assert REG_MR not in worker.kinds()


def test_proof_keywords_are_checked(pd):
    with pytest.raises(TypeError, match="blocksize"):
        pd.alloc(5000, BOTH, proof=True, blocksize=64)


@pytest.mark.parametrize(
    ("length", "block_size", "depth_limit", "granule"),
    [(1, 64, 1, 64), (128, 64, 1, 64), (129, 64, 1, 128), (100_000, 1024, 48, 1024),
     (100_000, 1024, 3, 16 * 1024), (1 << 20, 4096, 4, 65536)],
)  # fmt: skip
def test_granule(pd, length, block_size, depth_limit, granule):
    """The granule, as csrc computes it: larger than a block if the depth limit ends the tree above
    single blocks."""
    mr = pd.alloc(length, BOTH, proof=True, block_size=block_size, depth_limit=depth_limit)
    tree = (0, length, block_size.bit_length() - 1, depth_limit)
    token = Region(bytes(16), tree, 1, 1, bytes(16)).grant(0, length, 1)
    assert mr.block_size == token.granule == granule


def test_capability(worker, pd, keys):
    mr = pd.alloc(100_000, BOTH, proof=True, block_size=1024)
    cap = mr.capability(2048, 4096, rights=Right.READ | Right.WRITE)
    assert (cap.offset, cap.length, cap.rkey, cap.sealed) == (2048, 4096, mr.rkey, False)
    assert cap.rights == Right.READ | Right.WRITE
    whole = mr.capability()
    assert (whole.offset, whole.length, whole.rights) == (0, 100_000, Right.READ)
    assert mr.capability(99 * 1024 - 2048).length == 100_000 - 97 * 1024
    when = datetime(2033, 5, 18, 3, 33, 20, 1, tzinfo=UTC)
    sealed = mr.capability(0, 1024, holder="spiffe://x/a", expires=when)
    assert (sealed.holder, sealed.expires) == (holder_id("spiffe://x/a"), 2_000_000_001)
    assert worker.kinds().count(Kind.CAP) == 4


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((1, 1024), {}, CapabilityError, "the block size, 1024 bytes"),
        ((0, 1000), {}, CapabilityError, "the block size, 1024 bytes"),
        ((0, 100_001), {}, srdma.BoundsError, "not inside a region of 100000 bytes"),
        ((-1024, 1024), {}, srdma.BoundsError, "not inside"),
        ((0, 0), {}, srdma.BoundsError, "empty, or not inside"),
        ((0, -1024), {}, srdma.BoundsError, "empty, or not inside"),
        ((101 * 1024,), {}, srdma.BoundsError, "not inside"),
        ((), {"rights": Right.WRITE}, CapabilityError, "permits READ to .* cannot grant WRITE"),
        ((), {"rights": 5}, CapabilityError, "cannot grant ATOMIC"),
        ((), {"rights": 0}, CapabilityError, "at least one right"),
        ((), {"holder": ""}, CapabilityError, "is no identity"),
        ((), {"expires": 0}, CapabilityError, "no Unix time"),
        ((), {"expires": datetime(2033, 5, 18)}, CapabilityError, "time zone"),
    ],
)
def test_illegal_capability(worker, pd, keys, arguments, options, error, text):
    access = Access.LOCAL_WRITE | Access.REMOTE_READ
    mr = pd.alloc(100_000, access, proof=True, block_size=1024)
    with pytest.raises(error, match=text):
        mr.capability(*arguments, **options)
    assert Kind.CAP not in worker.kinds()


def test_revoke(worker, pd, keys):
    mr = pd.alloc(100_000, BOTH, proof=True, block_size=1024, depth_limit=2)
    sent = []
    for arguments in ((), (1024, 2048), (98 * 1024 - 1024,), (0, 100_000)):
        mr.revoke(*arguments)
        sent.append(struct.unpack(">IIQQ", last_body(worker, Kind.REVOKE)))
    assert [request[:2] for request in sent] == [(pd.leg, mr.lkey)] * 4
    assert [request[2:] for request in sent] == [
        (0, 0), (1024, 2048), (97 * 1024, 100_000 - 97 * 1024), (0, 100_000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((100, 1024), CapabilityError, "the block size, 1024 bytes"),
        ((0, 1023), CapabilityError, "the block size, 1024 bytes"),
        ((0, 0), srdma.BoundsError, "empty, or not inside"),
        ((99 * 1024, 1024), srdma.BoundsError, "not inside"),
        ((-1024,), srdma.BoundsError, "not inside"),
    ],
)
def test_illegal_revoke(worker, pd, keys, arguments, error, text):
    mr = pd.alloc(100_000, BOTH, proof=True, block_size=1024)
    with pytest.raises(error, match=text):
        mr.revoke(*arguments)
    assert Kind.REVOKE not in worker.kinds()


def test_revoke_times_out(worker, pd, keys):
    mr = pd.alloc(100_000, BOTH, proof=True)
    worker.silent.add(Kind.REVOKE)
    with pytest.raises(srdma.Timeout, match=r"did not answer REVOKE in 0\.05 s"):
        mr.revoke(timeout=0.05)


# RFC 5042 R6.2.2-1, RA-1
def test_withdraw(worker, pd):
    worker.handlers[Kind.WITHDRAW] = lambda leg, body, fds: (b"", [])
    mr = pd.alloc(100, REMOTE | Access.LOCAL_WRITE | Access.SHARED, scope="pd")
    mr.buf[:3] = b"abc"
    seen = mr.withdraw()
    assert struct.unpack(">II", last_body(worker, Kind.WITHDRAW)) == (pd.leg, mr.lkey)
    assert seen.readonly and len(seen) == 100 and seen[:3] == b"abc"
    assert mr.access == Access.LOCAL_WRITE and mr.sge().lkey == mr.lkey
    with pytest.raises(srdma.LocalError, match="or was withdrawn: no peer could use it"):
        mr.remote()
    assert mr.withdraw() == seen  # again
    mr.close()
    with pytest.raises(srdma.ClosedError):
        mr.withdraw()


def test_no_capability_of_a_withdrawn_region(worker, pd):
    worker.handlers[Kind.WITHDRAW] = lambda leg, body, fds: (b"", [])
    mr = pd.alloc(100_000, BOTH, proof=True)
    mr.withdraw()
    with pytest.raises(CapabilityError, match="was withdrawn: it has no rights"):
        mr.capability()


def test_withdraw_times_out(worker, pd):
    mr = pd.alloc(100_000, BOTH, scope="pd")
    worker.silent.add(Kind.WITHDRAW)
    with pytest.raises(srdma.Timeout, match=r"did not answer WITHDRAW in 0\.05 s"):
        mr.withdraw(timeout=0.05)
    with pytest.raises(srdma.LocalError, match="was withdrawn"):
        mr.remote()


def test_too_many_revoked_ranges(worker, pd, keys):
    def refuse(leg, body, fds):
        raise Refuse(errno.ENOSPC, "64 ranges are revoked: revoke the whole region")

    mr = pd.alloc(100_000, BOTH, proof=True, block_size=1024)
    worker.handlers[Kind.REVOKE] = refuse
    with pytest.raises(srdma.RefusedError, match="revoke the whole region"):
        mr.revoke(0, 1024)


def test_region_without_proofs_has_no_capabilities(pd):
    mr = pd.alloc(100_000, BOTH, scope="pd")
    for call in (mr.capability, mr.revoke):
        with pytest.raises(srdma.LocalError, match="registered without proof=True"):
            call()
    closed = pd.alloc(100, BOTH, proof=True)
    closed.close()
    for call in (closed.capability, closed.revoke):
        with pytest.raises(srdma.ClosedError):
            call()


def test_group(worker, ctx):
    """OPEN tells only that the leg is for a trust group. The group's name is used by the key
    exchange only."""
    with srdma.PD(ctx, 64, group="rack 7") as pd:
        assert pd.group == "rack 7"
        assert last_body(worker, Kind.OPEN) == struct.pack(">II", 64, 1)
    with srdma.PD(ctx, 64) as pd:
        assert pd.group == ""
        assert last_body(worker, Kind.OPEN) == struct.pack(">II", 64, 0)
    with pytest.raises(srdma.LocalError, match="at most 64 bytes of UTF-8"):
        srdma.PD(ctx, 64, group="\u00e4" * 33)


# Life cycle --------------------------------------------------------------------


def test_children_are_closed_first_and_once(worker):
    with srdma.Context(worker.path) as ctx, srdma.PD(ctx, 64) as pd:
        mr, other = pd.alloc(10), pd.alloc(10)
        other.close()
        other.close()
    for thing in (mr, pd, ctx):
        assert thing.closed
        thing.close()
        with pytest.raises(srdma.ClosedError):
            thing.ensure_alive()
    assert worker.kinds().count(DEREG_MR) == 2
    with pytest.raises(srdma.ClosedError):
        srdma.PD(ctx)
    with pytest.raises(srdma.ClosedError):
        pd.alloc(10)


def test_closing_leaves_no_descriptors(worker):
    def fds():
        gc.collect()
        worker.wait_for_connections(1)  # the fake worker closes its ends in a thread
        return len(os.listdir("/proc/self/fd"))

    with srdma.Context(worker.path) as ctx:
        srdma.PD(ctx, 64).close()
        before = fds()
        for _ in range(3):
            with srdma.PD(ctx, 64) as pd:
                pd.alloc(10)
                pd.reg_mr(bytearray(5))
                srdma.SecureQP(pd, 4, 4)
        # The fake worker, in this process, keeps four descriptors per leg open.
        assert fds() == before + 3 * 4


def test_close_after_the_worker_died(worker):
    with srdma.Context(worker.path) as ctx:
        pd = srdma.PD(ctx, 64)
        mr = pd.alloc(10)
        worker.die()
        with pytest.raises(srdma.WorkerGone):
            pd.alloc(10)
        mr.close()


def test_forked_child_cannot_use_the_objects(worker, pd):
    mr = pd.alloc(10)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for use in (pd.alloc, mr.sge):
                try:
                    use(5)
                except srdma.ClosedError as e:
                    code = 0 if "forked child" in str(e) else 2
            pd.close()  # sends nothing to the worker
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert DEREG_MR not in worker.kinds()
    assert mr.sge(5).length == 5


@pytest.mark.parametrize("ring", [0, 32, 65, 131072])
def test_illegal_ring(ctx, ring):
    with pytest.raises(srdma.LocalError, match="power of two from 64 to 65536"):
        srdma.PD(ctx, ring)


def test_context_of_another_version(worker):
    worker.version = 9
    with pytest.raises(srdma.DeviceError, match="version 9"):
        srdma.Context(worker.path)


def test_stats_have_names(ctx):
    assert list(ctx.stats().items())[:2] == [("packets_sealed", 5), ("bytes_sealed", 6)]


def test_every_exported_name_exists():
    assert all(hasattr(srdma, name) for name in srdma.__all__)


def test_pyverbs_is_imported_lazily():
    """Importing pyverbs takes seconds."""
    look = "import srdma, sys; sys.exit('pyverbs' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


# Lifetimes ---------------------------------------------------------------------


def is_pinned(buffer):
    """True if the bytearray cannot be resized, because it is registered for DMA."""
    try:
        buffer.extend(b"x")
    except BufferError:
        return True
    return False


def test_registered_memory_outlives_unreferenced_objects(worker):
    """The region stays registered if its objects are only forgotten and not closed, because peers
    may still write."""
    buffer = bytearray(5000)

    def forget():
        context = srdma.Context(worker.path)
        srdma.PD(context, ring=64).reg_mr(buffer, WRITABLE, scope="pd")
        return weakref.ref(context)

    context = forget()
    gc.collect()
    assert is_pinned(buffer) and DEREG_MR not in worker.kinds()
    context().close()
    assert not is_pinned(buffer) and DEREG_MR in worker.kinds()
    gc.collect()
    assert context() is None


def test_memory_that_the_worker_keeps_is_never_freed(worker, pd):
    buffer = bytearray(5000)
    mr = pd.reg_mr(buffer, WRITABLE, scope="pd")

    def refuse(leg, body, fds):
        raise Refuse(errno.EBUSY, "no")

    worker.handlers[DEREG_MR] = refuse
    with pytest.raises(srdma.Error, match="refused DEREG_MR: no"):
        mr.close()
    del mr
    gc.collect()
    assert is_pinned(buffer)


# Capabilities ------------------------------------------------------------------


def test_capability_that_is_uninstalled_already(worker, pd):
    """The answer to the first UNINSTALL may be lost with the control link; a repeated one is then
    refused."""

    def refuse(leg, body, fds):
        raise Refuse(errno.ENOENT, "no capability of this handle")

    worker.handlers[Kind.INSTALL] = lambda leg, body, fds: (struct.pack(">I", 5), [])
    worker.handlers[Kind.UNINSTALL] = refuse
    region = Region(b"K_PDmem of tests", (0, 64 * (HANDLES_MAX + 1), 6, 48), 7, 1, bytes(16))
    for at in range(0, 64 * (HANDLES_MAX + 1), 64):
        capability = srdma.Capability(region.grant(at, at + 64, 1))
        pd.handles.give(pd.handles.take(capability))
    assert worker.kinds().count(Kind.UNINSTALL) == 1
