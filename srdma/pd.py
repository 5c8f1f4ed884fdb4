"""Protection domains: one leg to the worker each, with its regions and QPs."""

from __future__ import annotations

import contextlib
import mmap
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from srdma._engine.bounce import BouncePool
from srdma._engine.engine import Engine
from srdma._engine.handles import Handles
from srdma._engine.leg import open_leg
from srdma._engine.resource import Resource, unless_gone
from srdma.control import Control, HostKind, MRRequest
from srdma.errors import BufferAccessError, ClosedError, Error, LocalError, Timeout, WorkerGone
from srdma.mr import MR, REMOTE, Access, Proofs
from srdma.native.constants import ACCESS_PROOF, RING_LEAST, RING_MOST
from srdma.native.leg import Pinned, Region

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import Buffer

    from srdma.capability import Capability
    from srdma.context import Context
    from srdma.mr import Proving
    from srdma.qp import SecureQP

RING = 4096
ROTATE_TIMEOUT = 30.0
LOOK = 0.01  # seconds from look to look at who is behind
NEVER = 0xFFFFFFFF  # an age in seconds that no key has
GROUP_MAX = 64  # bytes of a group's name


class Sharer(Protocol):
    """A connection in key mode `pd`: its QPs receive under the PD's key."""

    @property
    def identity(self) -> str: ...

    def wish(self) -> int: ...

    def wait_renewed(self, wish: int, deadline: float) -> None: ...


class PD(Resource):
    """Regions and QPs of one PD may work together, and only they.

    ring: completions that may be outstanding, a power of two: at least the sum
    of sq + rq + 1 over the QPs. group: of machines that share the keys of their
    PDs, and can read and forge what any two of them say (protocol.md 3.4); ""
    for none, the default. thread: of the worker, where several run; else it is
    chosen in turn. PDs on different threads share nothing, and are as fast.
    """

    def __init__(
        self, ctx: Context, ring: int = RING, group: str = "", *, thread: int | None = None
    ) -> None:
        if not RING_LEAST <= ring <= RING_MOST or ring & (ring - 1):
            raise LocalError(
                f"ring={ring}: it must be a power of two from {RING_LEAST} to {RING_MOST}"
            )
        if len(group.encode()) > GROUP_MAX:
            raise LocalError(f"group={group!r}: at most {GROUP_MAX} bytes of UTF-8")
        chosen = ctx.choose(thread)
        super().__init__(ctx)
        self.ctx = ctx
        self.group = group
        self.thread = chosen
        self.sharers: list[Sharer] = []  # kept by the connections themselves
        self._control: Control | None = None
        try:
            # A connection of its own, because a leg ends with the one that made it.
            self._control = self.connect()
            self._leg, self._info = open_leg(self._control, ctx.hello, ring, shared=bool(group))
            self._engine = Engine(self._leg, self._control)
        except BaseException:
            if self._control is not None:
                self._control.close()
                self._control = None
            super().close()
            raise
        self.bounces = BouncePool(self)
        self.handles = Handles(self._install, self._uninstall)

    # For the objects of this PD ------------------------------------------------

    @property
    def control(self) -> Control:
        """The connection that holds the leg."""
        self.ensure_alive()
        assert self._control is not None
        if self._leg.closed:
            raise WorkerGone(
                f"the leg of this PD ended ({self._leg.closed}): close the PD, open a new one, "
                "connect again"
            )
        return self._control

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def leg(self) -> int:
        """Its number at the worker."""
        return self._info.leg

    @property
    def token(self) -> bytes:
        """Admits another control connection to this leg."""
        return self._info.token

    def connect(self) -> Control:
        """One more control connection to the worker's thread that has this PD."""
        return self.ctx.connect(self.thread)

    def register(self, mr: MR, scope_qpn: int, fd: int | None) -> tuple[int, int]:
        """Tell the NIC and the worker of a region: host rkey and wire rkey."""
        with self._engine.lock:
            host_rkey = self._leg.reg(mr.addr, mr.length, mr.access)
        request = MRRequest(
            self.leg, mr.access, mr.addr, mr.length, host_rkey=host_rkey, scope_qpn=scope_qpn
        )
        if mr.proof:
            request = replace(
                request,
                access=mr.access | ACCESS_PROOF,
                log2_block=mr.proofs.block_size.bit_length() - 1,
                depth=mr.proofs.depth_limit,
            )
        try:
            return host_rkey, self.control.reg_mr(request, fd)
        except BaseException:
            with self._engine.lock:
                self._leg.dereg(host_rkey)
            raise

    def deregister(self, key: int, host_rkey: int) -> None:
        """Returns when no DMA names the region any more."""
        assert self._control is not None
        with unless_gone():
            self._control.dereg_mr(self.leg, key)
        with self._engine.lock:
            self._leg.dereg(host_rkey)

    def destroy(self, qpn: int) -> None:
        """Returns when no DMA of the QP is under way any more."""
        assert self._control is not None
        with unless_gone():
            self._control.destroy(qpn)

    def _install(self, capability: Capability) -> int:
        return self.control.install(self.leg, capability.to_bytes())

    def _uninstall(self, handle: int) -> None:
        self.control.uninstall(self.leg, handle)

    # Memory ----------------------------------------------------------------------

    def reg_mr(
        self,
        buffer: Buffer,
        access: Access | int = Access.LOCAL_WRITE,
        *,
        qp: SecureQP | None = None,
        **proving: Unpack[Proving],
    ) -> MR:
        """Register memory that is already there, without a copy.

        buffer: anything with the buffer protocol (bytearray, mmap, memoryview,
        NumPy array). qp: the only one that peers may use it on. proof=True: its
        rkey alone opens nothing, peers need an `MR.capability()`, whose ranges
        are made of blocks of block_size=4096 bytes, to a depth_limit=48. On the
        embedded NIC atomics on it are one step to all that the worker does, but not
        to this machine's own threads: for that use alloc().
        """
        self.ensure_alive()
        rights, proofs = _check_access(access), _check_proofs(access, Proofs(**proving))
        mr = MR(self, _pin(buffer, bool(rights & Access.LOCAL_WRITE)), rights, proofs)
        return mr.register(qp.qp_num if qp else 0)

    def alloc(
        self,
        size: int,
        access: Access | int = Access.LOCAL_WRITE,
        *,
        qp: SecureQP | None = None,
        **proving: Unpack[Proving],
    ) -> MR:
        """New zeroed memory, registered as by reg_mr(); on the embedded NIC the worker maps it,
        and atomics on it are one step to this machine's CPUs too.
        """
        self.ensure_alive()
        rights, proofs = _check_access(access), _check_proofs(access, Proofs(**proving))
        if size <= 0:
            raise LocalError(f"a region of {size} bytes: it must have at least one")
        scope = qp.qp_num if qp else 0
        if self.ctx.hello.host_kind != HostKind.SHM:
            return MR(self, Pinned(mmap.mmap(-1, size), True), rights, proofs).register(scope)
        region = Region(size)
        try:
            return MR(self, Pinned(region, True), rights, proofs).register(scope, region.fd)
        finally:
            region.sent()

    # Its key ---------------------------------------------------------------------

    def rotate(self, timeout: float = ROTATE_TIMEOUT) -> int:
        """Another key for this PD, and new secrets by it for all its connections in key mode `pd`,
        while they go on (protocol.md 3.4). Its serial number.

        Returns when the key before is gone. A Timeout says what hangs on it still; calling again
        goes on from there.
        """
        self.ensure_alive()
        if self.group:
            raise LocalError(
                f"this PD has the key of the trust group {self.group!r}, which is not rotated: a "
                "new group needs new PDs"
            )
        deadline = time.monotonic() + timeout
        if self.control.rotate(self.leg, NEVER).behind:  # since an earlier rotation
            self._move(deadline)
        self.control.rotate(self.leg, 0)
        return self._move(deadline)

    def _move(self, deadline: float) -> int:
        """New secrets for all connections, until nothing hangs on the key before."""
        failed = self._renew_all(deadline)
        while (now := self.control.rotate(self.leg, NEVER)).behind:
            if time.monotonic() >= deadline:
                raise Timeout(
                    f"{now.behind} keys of QPs hang on the PD's key before: packets that are late "
                    "may still come under them, until some more were received, or the QPs are "
                    "closed" + "".join(f"; {text}" for text in failed)
                )
            time.sleep(LOOK)
        return now.serial

    def _renew_all(self, deadline: float) -> list[str]:
        """What went wrong: those connections are over, or late."""
        failed = []
        wishes = []
        for sharer in [*self.sharers]:
            with contextlib.suppress(ClosedError):  # by another thread
                wishes.append((sharer, sharer.wish()))
        for sharer, wish in wishes:
            try:
                sharer.wait_renewed(wish, deadline)
            except Error as e:
                failed.append(f"{sharer.identity}: {e}")
        return failed

    # Completions of all its QPs ----------------------------------------------------

    def fileno(self) -> int:
        """Readable when a completion came after arm(): for event loops."""
        self.ensure_alive()
        return self._engine.fileno()

    def arm(self) -> bool:
        """Before sleeping on fileno(); True: do not sleep, poll the QPs."""
        self.ensure_alive()
        return self._engine.arm()

    def drain(self) -> None:
        """After waking on fileno(), before polling the QPs."""
        self.ensure_alive()
        self._engine.drain()

    def _release(self) -> None:
        if self._control is None:
            return
        self._engine.close()
        self._control.close()


def _check_access(access: Access | int) -> Access:
    rights = Access(access)
    known = Access.LOCAL_WRITE | REMOTE
    if int(access) & ~int(known):
        raise LocalError(f"access {int(access)}: this version has {known!r}")
    written = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
    if rights & written and not rights & Access.LOCAL_WRITE:
        raise LocalError("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE too, as in verbs")
    return rights


def _check_proofs(access: Access | int, proofs: Proofs) -> Proofs:
    if proofs.proof and not int(access) & REMOTE:
        raise LocalError(
            "proof=True needs REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC: without them no peer "
            "may do anything"
        )
    return proofs


def _pin(buffer: Buffer, writable: bool) -> Pinned:
    kind = type(buffer).__name__
    try:
        view = memoryview(buffer)
    except TypeError as e:
        raise BufferAccessError(
            f"a {kind} has no buffer: give a bytearray, mmap, memoryview or NumPy array"
        ) from e
    if writable and view.readonly:
        raise BufferAccessError(
            f"the {kind} is read-only, and access has LOCAL_WRITE: give a writable buffer, "
            "or access=Access.NONE or REMOTE_READ"
        )
    if not view.nbytes:
        raise BufferAccessError(f"the {kind} is empty: a region has at least one byte")
    try:
        return Pinned(buffer, writable)
    except (BufferError, ValueError) as e:  # NumPy raises the latter
        raise BufferAccessError(f"the {kind} is not contiguous: give a contiguous copy") from e
