"""A leg carries descriptors to the worker, and completions back (local-interface.md 2)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from srdma.control import Control, Hello, HostKind, LegInfo
from srdma.errors import DeviceError, WorkerGone
from srdma.native import constants
from srdma.native.leg import ShmLeg

if TYPE_CHECKING:
    from srdma._engine.verbs import VerbsLeg


class Leg(Protocol):
    """Interface of a leg of any kind. Not thread-safe: the engine holds its lock around calls."""

    @property
    def ring(self) -> memoryview:
        """The completion ring, for `native.leg.Host`."""

    @property
    def closed(self) -> str | None:
        """Text that says why the leg ended; None while it is usable."""

    def poll(self) -> None:
        """To be called before each look at the ring; handles events of the device.

        Over verbs it also sends the heartbeats, so a lost worker ends the leg here.
        Any thread may call it while another one sleeps on fileno(). It does not consume the event
        that wakes the sleeper.
        """

    def slot(self) -> memoryview | None:
        """512 bytes for the next descriptor, the same until post(); None: the leg is full."""

    def post(self, length: int) -> None:
        """Queue the slot with a descriptor of `length` bytes; flush() makes it visible."""

    def flush(self) -> None:
        """Make the posted descriptors visible to the worker."""

    def fileno(self) -> int:
        """File descriptor that is readable when a completion arrived after arm().

        Over verbs it also becomes readable when a heartbeat is due.
        """

    def arm(self) -> bool:
        """To be called before sleeping on fileno(). True: do not sleep, there is work.

        After False, poll once more before sleeping.
        """

    def drain(self) -> None:
        """To be called after sleeping on fileno(), or after arm() without sleeping."""

    def reg(self, addr: int, length: int, access: int) -> int:
        """Register memory with the host's device. Returns the host rkey; 0 over shared memory.

        access: rights of the region (protocol.md 6).
        """

    def dereg(self, rkey: int) -> None:
        """Undo reg()."""

    def close(self) -> None:
        """End the leg; the host that uses the ring must be closed before."""


def open_leg(
    control: Control, hello: Hello, ring: int, *, shared: bool = False, device: str | None = None
) -> tuple[Leg, LegInfo]:
    """Open a leg whose ring has `ring` records; shared: for a trust group.

    device: RDMA device of this host for a leg over verbs; None: that of the kernel's route. Raises
    RefusedError, DeviceError or Timeout.
    """
    if hello.host_kind == HostKind.SHM:
        return _open_shm(control, ring, shared)
    if hello.host_kind == HostKind.VERBS:
        info, _ = control.open(ring, shared=shared)
        return _over_verbs(device, info, ring), info
    raise DeviceError(f"unknown host interface {hello.host_kind} of the worker: update srdma")


def _open_shm(control: Control, ring: int, shared: bool) -> tuple[Leg, LegInfo]:
    leg = ShmLeg(ring)
    fds: Sequence[int] = ()
    try:
        info, fds = control.open(ring, leg.fds, shared=shared)
        if len(fds) != 2:
            raise DeviceError(f"the worker sent {len(fds)} descriptors with a leg, not 2")
        leg.attach(fds)
    except BaseException:
        leg.close()
        raise
    finally:
        for fd in fds:
            with contextlib.suppress(OSError):
                os.close(fd)
    return leg, info


def _over_verbs(device: str | None, info: LegInfo, ring: int) -> Leg:
    from srdma._engine.verbs import VerbsLeg  # pyverbs takes seconds to import

    return _Verbs(VerbsLeg(device, info.address, info.token, ring))


class _Verbs:
    """Adapts `VerbsLeg`, which posts chains of slots, to the interface of a Leg."""

    def __init__(self, leg: VerbsLeg) -> None:
        self._leg = leg
        self._next: tuple[int, memoryview] | None = None
        self._filled: list[tuple[int, int]] = []
        self._regions: dict[int, Callable[[], None]] = {}

    @property
    def ring(self) -> memoryview:
        return self._leg.records

    @property
    def closed(self) -> str | None:
        return self._leg.closed

    def poll(self) -> None:
        self._leg.poll()

    def slot(self) -> memoryview | None:
        self._next = self._next or self._leg.slot()
        if self._next is None:
            self.flush()
            self._leg.poll()
            self._next = self._leg.slot()
        return self._next[1] if self._next else None

    def post(self, length: int) -> None:
        assert self._next is not None
        self._filled.append((self._next[0], length))
        self._next = None

    def flush(self) -> None:
        filled, self._filled = self._filled, []
        if filled and not self._leg.closed:
            with contextlib.suppress(WorkerGone):  # `closed` is set then
                self._leg.post(filled)

    def fileno(self) -> int:
        return self._leg.fileno()

    def arm(self) -> bool:
        return self._leg.arm()

    def drain(self) -> None:
        self._leg.drain()

    def reg(self, addr: int, length: int, access: int) -> int:
        """Register with the verbs access flags that the NIC needs to read and write the memory."""
        rights = constants.ACCESS_REMOTE_READ
        if access & constants.ACCESS_LOCAL_WRITE:
            rights |= constants.ACCESS_LOCAL_WRITE | constants.ACCESS_REMOTE_WRITE
        rights |= access & constants.ACCESS_REMOTE_ATOMIC
        rkey, close = self._leg.reg_mr(addr, length, rights)
        self._regions[rkey] = close
        return rkey

    def dereg(self, rkey: int) -> None:
        self._regions.pop(rkey)()

    def close(self) -> None:
        self._leg.close()
