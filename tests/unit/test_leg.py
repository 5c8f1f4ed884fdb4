"""Legs: the shared-memory leg alone, and the parts of a leg over verbs that need no device."""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import sys
import types

import pytest

import srdma
from srdma._engine.leg import open_leg, verbs_access
from srdma.control import Hello, LegInfo
from srdma.errors import DeviceError
from srdma.native import leg as _leg
from tests.fake_worker import OPEN, Refuse

SLOT = 512


# Embedded NIC --------------------------------------------------------------------


def test_shm_leg_without_a_worker():
    leg = _leg.ShmLeg(64)
    assert (len(leg.ring), len(leg.fds), leg.slot()) == (64 * 32, 3, None)
    assert leg.ring.readonly
    host = _leg.Host(leg.ring)
    with pytest.raises(BufferError, match="close the host first"):
        leg.close()
    host.close()
    leg.close()
    leg.close()
    for use in (leg.slot, leg.flush, leg.fileno, lambda: leg.fds, lambda: leg.ring):
        with pytest.raises(ValueError, match="the leg is closed"):
            use()


@pytest.mark.parametrize("entries", [0, 32, 100, 131072])
def test_shm_leg_of_illegal_size(entries):
    with pytest.raises(MemoryError, match="power of two"):
        _leg.ShmLeg(entries)


def test_shm_leg_refuses_descriptors_of_a_wrong_kind():
    leg = _leg.ShmLeg(64)
    read, write = os.pipe()
    with pytest.raises(OSError, match="unusable file descriptors"):
        leg.attach([read, write])
    with pytest.raises(ValueError, match="unpack"):
        leg.attach([read])
    os.close(read)
    os.close(write)
    leg.close()


def test_host_checks_its_arguments():
    with pytest.raises(ValueError, match="power of two"):
        _leg.Host(bytes(33))
    ring = bytearray(64 * 32)
    host = _leg.Host(ring)
    with pytest.raises(BufferError):
        ring.clear()
    assert host.qp_add(5, 4, 4) == 0
    work, leg = _leg.Work(4, 5), queue()
    for slot in (bytearray(511), bytearray()):
        with pytest.raises(ValueError, match="512 bytes"):
            host.credit(slot)
    for size in (449, 1 << 20):
        work.payload(bytes(size))
        assert host.post_all(leg, [work], 0) == (0, -errno.EMSGSIZE)
    assert host.post_all(leg, [_leg.Work(4, 6)], 0) == (0, -errno.EINVAL)
    with pytest.raises(ValueError, match="29 SGEs"):
        work.scatter([(0, 1, 1)] * 29)
    assert host.post_all(_leg.ShmLeg(64), [work], 0) == (0, -errno.EAGAIN)  # not attached
    assert host.qp_remove(6) == -errno.ENOENT
    host.close()
    host.close()
    ring.clear()
    for use in (lambda: host.poll(1), lambda: host.fail(41), lambda: host.ignored):
        with pytest.raises(ValueError, match="the host is closed"):
            use()


def test_region_is_unmapped_with_its_last_view():
    region = _leg.Region(5000)
    fd = region.fd
    view = memoryview(region)
    assert len(view) == 5000
    region.sent()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)
    del region
    view[:4] = b"here"
    assert bytes(view[:5]) == b"here\0"


def test_leg_that_the_worker_refuses(worker, ctx):
    def refuse(leg, body, fds):
        raise Refuse(errno.ENOSPC, "256 legs are the limit")

    worker.handlers[OPEN] = refuse
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(srdma.RefusedError, match="256 legs"):
        srdma.PD(ctx, 64)
    worker.wait_for_connections(1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_leg_without_descriptors(worker, ctx):
    opened = worker.handlers[OPEN]
    worker.handlers[OPEN] = lambda leg, body, fds: (opened(leg, body, fds)[0], [])
    with pytest.raises(DeviceError, match="sent 0 descriptors"):
        srdma.PD(ctx, 64)


# Verbs -----------------------------------------------------------------------------


def test_verbs_leg_is_connected_with_the_answer_to_open(monkeypatch):
    class Control:
        def open(self, ring, *, shared):
            return LegInfo(1, b"t" * 16, "10.0.0.1:7"), []  # HELLO names the worker's device

    module = types.ModuleType("srdma._engine.verbs")
    module.VerbsLeg = lambda *arguments: arguments
    monkeypatch.setitem(sys.modules, "srdma._engine.verbs", module)
    hello = Hello(1, 0, 2, 1, "rxe0", "wire", "name", b"", 1, 0, bytes(16))
    leg, info = open_leg(Control(), hello, 64, device="mlx5_1")
    assert info.leg == 1
    assert leg == ("mlx5_1", "10.0.0.1:7", b"t" * 16, 64)


def test_device_with_a_worker_on_shared_memory_is_refused(worker):
    with pytest.raises(srdma.LocalError, match=r"device='mlx5_0': .* shared memory: leave it out"):
        srdma.Context(worker.path, device="mlx5_0")
    worker.wait_for_connections(0)
    assert not worker._conns


def test_device_comes_from_the_environment_unless_it_is_named(worker, monkeypatch):
    opened = []

    def opening(*args, **options):
        opened.append(options["device"])
        return open_leg(*args, **options)

    monkeypatch.setattr(srdma.pd, "open_leg", opening)
    for value, wanted in (("mlx5_1", "mlx5_1"), ("", None)):
        monkeypatch.setenv("SRDMA_HOST_DEVICE", value)
        with srdma.Context(worker.path) as ctx, srdma.PD(ctx, 64):
            assert ctx.device == wanted
    assert opened == ["mlx5_1", None]


def test_verbs_regions_have_the_rights_that_the_nic_needs():
    for access, flags in ((0, 4), (4, 4), (1, 7), (7, 7), (15, 15)):
        assert verbs_access(access) == flags


class IbvQp(ctypes.Structure):
    """The beginning of struct ibv_qp of libibverbs."""

    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("context", "user", "pd", "send_cq", "recv_cq", "srq")]
        + [(name, ctypes.c_uint32) for name in ("handle", "qp_num")]
    )  # fmt: skip


def queue_module():
    return pytest.importorskip("srdma.native.verbs_queue", reason="built without libibverbs")


def queue(qp=None, *, number=77, address=None, length=256 * SLOT):
    qp = qp or IbvQp(qp_num=77)
    address = ctypes.addressof(qp) if address is None else address
    return queue_module().VerbsQueue(
        address, number, bytearray(length), lkey=1, inline_max=512, ring=64
    )


def test_address_that_is_no_qp_is_refused():
    qp = IbvQp(qp_num=77)
    for other in ({"number": 78}, {"address": 0}, {"address": ctypes.addressof(qp) + 1}):
        with pytest.raises(ValueError, match="this is not the address of QP"):
            queue(qp, **other)
    with pytest.raises(ValueError, match="511 bytes of slots"):
        queue(qp, length=511)


def test_build_without_verbs_is_a_named_error(monkeypatch):
    pytest.importorskip("pyverbs.cmid")
    monkeypatch.delitem(sys.modules, "srdma._engine.verbs", raising=False)
    monkeypatch.setitem(sys.modules, "srdma.native.verbs_queue", None)
    with pytest.raises(DeviceError, match="built without legs over RDMA: build it where"):
        importlib.import_module("srdma._engine.verbs")


def test_slots_of_a_verbs_queue():
    made = queue()
    first = made.slot()
    first[0] = 17
    assert len(first) == SLOT and made.slot()[0] == 17  # the same slot until it is posted
    for length in 0, SLOT + 1:
        with pytest.raises(ValueError, match="do not fit in a slot"):
            made.post(length)
    made.post(64)
    assert made.slot()[0] == 0
    assert made.failure is None
    assert queue_module().receives(64) == 64 + 80


def test_unknown_host_kind(ctx):
    hello = Hello(1, 0, 9, 1, "x", "y", "z", b"", 1, 0, bytes(16))
    with pytest.raises(DeviceError, match="unknown host interface 9"):
        open_leg(None, hello, 64)
