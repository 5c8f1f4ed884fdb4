"""A leg: how descriptors reach the own worker, and completions come back (protocol.md 9)."""

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
    """What `ShmLeg` and `VerbsLeg` have in common. Its PD locks it."""

    @property
    def ring(self) -> memoryview:
        """The completion ring, for `native.leg.Host`."""

    @property
    def closed(self) -> str | None:
        """Why the leg ended; None: it lives."""

    def poll(self) -> None:
        """Before each look at the ring: what the device wants done while it is used.

        By any thread, while another one sleeps on fileno(): that one's wake-up stays its own.
        """

    def slot(self) -> memoryview | None:
        """512 bytes for the next descriptor, the same ones until post(); None: full now."""

    def post(self, length: int) -> None:
        """Take in the slot with that many bytes in it."""

    def flush(self) -> None:
        """Show the worker what was posted."""

    def fileno(self) -> int:
        """Readable when something came after arm()."""

    def arm(self) -> bool:
        """Before sleeping on fileno(); True: do not, there is work. Poll once more after it."""

    def drain(self) -> None:
        """After waking, or instead of sleeping."""

    def reg(self, addr: int, length: int, access: int) -> int:
        """Let the NIC reach host memory; the host's rkey (0 where there is none)."""

    def dereg(self, rkey: int) -> None:
        """Undo reg()."""

    def close(self) -> None:
        """After the host that uses the ring."""


def open_leg(
    control: Control, hello: Hello, ring: int, *, shared: bool = False
) -> tuple[Leg, LegInfo]:
    """A leg with room for `ring` completions; shared: for a trust group."""
    if hello.host_kind == HostKind.SHM:
        return _open_shm(control, ring, shared)
    if hello.host_kind == HostKind.VERBS:
        return _open_verbs(control, hello, ring, shared)
    raise DeviceError(f"the worker reaches hosts in a way ({hello.host_kind}) not known here")


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


def _open_verbs(control: Control, hello: Hello, ring: int, shared: bool) -> tuple[Leg, LegInfo]:
    from srdma._engine.verbs import VerbsLeg  # pyverbs takes seconds to import

    info, _ = control.open(ring, shared=shared)
    return _Verbs(VerbsLeg(hello.host_device, info.address, info.token, ring)), info


class _Verbs:
    """`VerbsLeg`, which posts whole chains of slots, as a Leg."""

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
            with contextlib.suppress(WorkerGone):  # closed says it from now on
                self._leg.post(filled)

    def fileno(self) -> int:
        return self._leg.fileno()

    def arm(self) -> bool:
        return self._leg.arm()

    def drain(self) -> None:
        self._leg.drain()

    def reg(self, addr: int, length: int, access: int) -> int:
        """With what the NIC does: it reads what is sent, and writes what arrives."""
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
