"""Legs: the shared-memory leg alone, and VerbsLeg as a Leg with a simulated device."""

from __future__ import annotations

import errno
import os
import select
import sys
import types

import pytest

import srdma
from srdma._engine.leg import open_leg
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
    work = _leg.Work(4, 5)
    for slot in (bytearray(511), bytearray()):
        with pytest.raises(ValueError, match="512 bytes"):
            host.post(work, slot)
        with pytest.raises(ValueError, match="512 bytes"):
            host.credit(slot)
    for size in (449, 1 << 20):
        work.payload(bytes(size))
        assert host.post(work, bytearray(512)) == -errno.EMSGSIZE
    assert host.post(_leg.Work(4, 6), bytearray(512)) == -errno.EINVAL
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


class Device:
    """Replaces srdma._engine.verbs.VerbsLeg: two slots, and a record of what was posted."""

    def __init__(self, *arguments):
        self.arguments = arguments
        self.records = memoryview(bytearray(64 * 32))
        self.closed = None
        self.handed, self.freed = 0, 0
        self.drained = False
        self.posted: list[list[tuple[int, int]]] = []
        self.regions: dict[int, tuple[int, int, int]] = {}
        self._pipe = os.pipe()

    def slot(self):
        if self.handed - self.freed == 2:
            return None
        self.handed += 1
        return self.handed - 1, memoryview(bytearray(SLOT))

    def post(self, slots):
        self.posted.append(list(slots))

    def poll(self):
        self.freed = sum(map(len, self.posted))

    def drain(self):
        self.poll()
        self.drained = True

    def arm(self):
        return self.closed is not None

    def fileno(self):
        return self._pipe[0]

    def reg_mr(self, address, length, access):
        rkey = 100 + len(self.regions)
        self.regions[rkey] = (address, length, access)
        return rkey, lambda: self.regions.pop(rkey)

    def close(self):
        for fd in self._pipe:
            os.close(fd)


@pytest.fixture
def device(monkeypatch):
    """Yields the leg over a Device, and the Device."""

    class Control:
        def open(self, ring, *, shared):
            return LegInfo(1, b"t" * 16, "10.0.0.1:7"), []  # HELLO names the worker's device

    module = types.ModuleType("srdma._engine.verbs")
    made: list[Device] = []
    module.VerbsLeg = lambda *a: made.append(Device(*a)) or made[0]
    monkeypatch.setitem(sys.modules, "srdma._engine.verbs", module)
    hello = Hello(1, 0, 2, 1, "rxe0", "wire", "name", b"", 1, 0, bytes(16))
    leg, info = open_leg(Control(), hello, 64, device="mlx5_1")
    assert info.leg == 1
    assert made[0].arguments == ("mlx5_1", "10.0.0.1:7", b"t" * 16, 64)
    yield leg, made[0]
    leg.close()


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


def test_verbs_slots_are_posted_in_chains(device):
    leg, dev = device
    first = leg.slot()
    assert leg.slot() is first  # the same slot until it is posted
    leg.post(64)
    leg.slot()
    leg.post(100)
    assert dev.posted == []
    leg.flush()
    leg.flush()
    assert dev.posted == [[(0, 64), (1, 100)]]
    assert leg.slot() is not None  # all slots are in use: slot() polls for ones that were sent


def test_verbs_wake_up_is_kept_for_the_sleeper(device):
    """While one thread sleeps on the leg, another may poll and post. It must not consume the
    sleeper's wake-up."""
    leg, dev = device
    for _ in range(2):
        leg.slot()
        leg.post(64)
    assert leg.slot() is not None
    leg.poll()
    assert not dev.drained
    leg.drain()
    assert dev.drained


def test_verbs_regions_have_the_rights_that_the_nic_needs(device):
    leg, dev = device
    for access, rights in ((0, 4), (4, 4), (1, 7), (7, 7)):
        rkey = leg.reg(0x1000, 50, access)
        assert dev.regions[rkey] == (0x1000, 50, rights)
        leg.dereg(rkey)
    assert dev.regions == {}


def test_ended_verbs_leg_reports_the_reason(device):
    leg, dev = device
    leg.slot()
    leg.post(64)
    dev.closed = "rdma_cm event DISCONNECTED"
    leg.flush()
    assert (leg.closed, leg.arm(), dev.posted) == ("rdma_cm event DISCONNECTED", True, [])
    assert select.select([leg], [], [], 0)[0] == []


def test_unknown_host_kind(ctx):
    hello = Hello(1, 0, 9, 1, "x", "y", "z", b"", 1, 0, bytes(16))
    with pytest.raises(DeviceError, match="unknown host interface 9"):
        open_leg(None, hello, 64)
