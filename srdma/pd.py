"""Protection domains. Each has one leg to the worker, and owns regions and QPs."""

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
from srdma.agent.client import SystemAgent
from srdma.control import Control, HostKind, MRRequest, Rotation, thread_path
from srdma.errors import BufferAccessError, ClosedError, Error, LocalError, Timeout, WorkerGone
from srdma.mr import MR, REMOTE, Access, Proofs
from srdma.native.constants import ACCESS_PROOF, RING_LEAST, RING_MOST
from srdma.native.leg import Pinned, Region
from srdma.scope import Holders, holders_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Unpack

    from typing_extensions import Buffer

    from srdma.capability import Capability
    from srdma.context import Context
    from srdma.mr import Proving
    from srdma.qp import SecureQP

RING = 4096
ROTATE_TIMEOUT = 30.0
LOOK = 0.01  # seconds between two ROTATE requests that ask whether the former key is in use
NEVER = 0xFFFFFFFF  # age in seconds that no key reaches: ROTATE changes nothing, it only reports
GROUP_MAX = 64  # longest group name, bytes


class Sharer(Protocol):
    """A connection in key mode `pd`: its QPs receive with secrets derived from the PD's key."""

    @property
    def identity(self) -> str: ...

    def wish(self) -> int: ...

    def wait_renewed(self, wish: int, deadline: float) -> None: ...


class PD(Resource):
    """A protection domain: a QP can use regions of its own PD only.

    ring: size of the completion ring in records, a power of two from 64 to 65536; at least the
    sum of sq + rq + 1 over the QPs. group: name of a trust group, at most 64 bytes of UTF-8; ""
    for none. The machines of a group share one PD key, and each can read and forge all packets
    between any two others (protocol.md 3.4). thread: number of the worker process that serves the
    PD; None: the next in turn. PDs on different processes share no state.

    Raises LocalError for an illegal argument, RefusedError or another DeviceError from the worker.
    """

    # RFC 5042 R3-5
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
        self.sharers: list[Sharer] = []  # each connection adds and removes itself
        self._control: Control | None = None
        try:
            # A separate control connection: a leg ends with the connection that opened it.
            self._control = self.connect()
            self._leg, self._info = open_leg(
                self._control, ctx.hello, ring, shared=bool(group), device=ctx.device
            )
            self._control = ctx.lasting(self._control, self.thread, self._info.token)
            self._engine = Engine(self._leg, self._control)
        except BaseException:
            if self._control is not None:
                self._control.close()
                self._control = None
            super().close()
            raise
        self.bounces = BouncePool(self)
        self.handles = Handles(self._install, self._uninstall)

    # Used by objects of this PD ------------------------------------------------

    @property
    def control(self) -> Control:
        """The control connection that opened the leg. Raises WorkerGone if the leg has ended."""
        self.ensure_alive()
        assert self._control is not None
        with self._engine.lock:
            self._leg.poll()
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
        """Number of the leg at its worker process."""
        return self._info.leg

    @property
    def token(self) -> bytes:
        """16 secret bytes by which a further control connection may use this leg (ATTACH)."""
        return self._info.token

    @property
    def path(self) -> Path:
        """Path of the control socket of the worker process of this PD."""
        return thread_path(self.ctx.path, self.thread)

    def connect(self) -> Control:
        """A new control connection to the worker process of this PD; the caller closes it."""
        return self.ctx.connect(self.thread)

    def register(self, mr: MR, holders: Holders, fd: int | None) -> tuple[int, int]:
        """Register a region with the NIC and the worker. Returns (host rkey, wire rkey).

        fd: the region's memfd, or None.
        """
        with self._engine.lock:
            host_rkey = self._leg.reg(mr.addr, mr.length, mr.access)
        request = MRRequest(
            self.leg, mr.access, mr.addr, mr.length,
            host_rkey=host_rkey, scope_qpn=holders.qpn, identity=holders.identity,
        )  # fmt: skip
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
        """Undo register(). Returns when no DMA of the region is in progress."""
        assert self._control is not None
        with unless_gone():
            self._control.dereg_mr(self.leg, key)
        with self._engine.lock:
            self._leg.dereg(host_rkey)

    def destroy(self, qpn: int) -> None:
        """Destroy a QP at the worker. Returns when all DMA of the QP has ended."""
        assert self._control is not None
        with unless_gone():
            self._control.destroy(qpn)

    def _install(self, capability: Capability) -> int:
        return self.control.install(self.leg, capability.to_bytes())

    def _uninstall(self, handle: int) -> None:
        with unless_gone():
            self.control.uninstall(self.leg, handle)

    # Memory ----------------------------------------------------------------------

    # RFC 5042 R6.1.1-6
    def reg_mr(
        self,
        buffer: Buffer,
        access: Access | int = Access.LOCAL_WRITE,
        *,
        scope: SecureQP | str | None = None,
        **proving: Unpack[Proving],
    ) -> MR:
        """Register existing memory without a copy. The MR holds the buffer until it is closed.

        buffer: a contiguous object with the buffer protocol (bytearray, mmap, memoryview, NumPy
        array), not empty; writable if access has LOCAL_WRITE. access: rights (protocol.md 6).
        scope: the peers that may use the region: a QP of the PD; the identity of peers (a URI), on
        each QP; or "pd": each peer of each QP of the PD. It must be given with remote rights,
        unless proof=True. The program's own requests may use the region on each QP.
        proof=True: peers need a capability of `MR.capability()`; the rkey alone permits nothing.
        Ranges of capabilities consist of blocks of block_size=4096 bytes, in a key tree of at most
        depth_limit=48 levels (protocol.md 6.1).

        A peer with REMOTE_READ or REMOTE_ATOMIC can read what the memory holds now: initialise it
        before (RFC 5042 6.3.2). On the embedded NIC, atomics on this region are atomic with respect
        to other operations of the worker, but not to the CPUs of this machine: use alloc() for
        that. Raises LocalError, BufferAccessError or RefusedError.
        """
        self.ensure_alive()
        rights, proofs = _check_access(access), _check_proofs(access, Proofs(**proving))
        holders = self._holders(scope, rights, proofs)
        mr = MR(self, _pin(buffer, bool(rights & Access.LOCAL_WRITE)), rights, proofs)
        return mr.register(holders)

    # RFC 5042 R6.3.2-1, RA-2, A6.3.2
    def alloc(
        self,
        size: int,
        access: Access | int = Access.LOCAL_WRITE,
        *,
        scope: SecureQP | str | None = None,
        **proving: Unpack[Proving],
    ) -> MR:
        """Allocate `size` bytes of zeroed memory and register it as reg_mr() does.

        On the embedded NIC the worker maps this memory, and atomics on it are atomic with respect
        to the CPUs of this machine too.
        """
        self.ensure_alive()
        rights, proofs = _check_access(access), _check_proofs(access, Proofs(**proving))
        if size <= 0:
            raise LocalError(f"a region of {size} bytes: it must have at least one")
        holders = self._holders(scope, rights, proofs)
        if self.ctx.hello.host_kind != HostKind.SHM:
            return MR(self, Pinned(mmap.mmap(-1, size), True), rights, proofs).register(holders)
        region = Region(size)
        try:
            return MR(self, Pinned(region, True), rights, proofs).register(holders, region.fd)
        finally:
            region.sent()

    def _holders(self, scope: SecureQP | str | None, rights: Access, proofs: Proofs) -> Holders:
        return holders_of(self, scope, needed=bool(rights & REMOTE) and not proofs.proof)

    # Key of the PD ---------------------------------------------------------------

    def rotate(self, timeout: float = ROTATE_TIMEOUT) -> int:
        """Replace the PD's key, and renew the secrets of its connections in key mode `pd`.

        The connections stay usable meanwhile (protocol.md 3.4). Returns the serial number of the
        new key when no QP uses the former key any more. timeout: seconds; the Timeout says what
        still uses the former key, and a further call continues from there. Raises LocalError for
        the PD of a trust group.
        """
        self.ensure_alive()
        if self.group:
            raise LocalError(
                f"this PD has the key of the trust group {self.group!r}, which cannot be rotated: "
                "open new PDs with another group"
            )
        deadline = time.monotonic() + timeout
        if self._rotate(NEVER).behind:  # an earlier rotation is not complete
            self._renew_and_wait(deadline)
        self._rotate(0)
        return self._renew_and_wait(deadline)

    def _rotate(self, age: int) -> Rotation:
        """Replace the key if it is `age` seconds old. A system agent reserves the call."""
        agent = self.ctx.agent() if self.ctx.has_system_agent else None
        if isinstance(agent, SystemAgent):
            return agent.rotate(self.path, self.token, age)
        return self.control.rotate(self.leg, age)

    def _renew_and_wait(self, deadline: float) -> int:
        """Renew all connections, then wait until no key of a QP depends on the former PD key."""
        failed = self._renew_all(deadline)
        while (now := self._rotate(NEVER)).behind:
            if time.monotonic() >= deadline:
                raise Timeout(
                    f"{now.behind} keys of QPs depend on the PD's former key: late packets may "
                    "still need them. They end when the QPs receive more packets or are closed; "
                    "then call rotate() again" + "".join(f"; {text}" for text in failed)
                )
            time.sleep(LOOK)
        return now.serial

    def _renew_all(self, deadline: float) -> list[str]:
        """Renew the secrets of all connections; one text for each that failed or was late."""
        failed = []
        requests = []
        for sharer in [*self.sharers]:
            with contextlib.suppress(ClosedError):  # closed by another thread
                requests.append((sharer, sharer.wish()))
        for sharer, request in requests:
            try:
                sharer.wait_renewed(request, deadline)
            except Error as e:
                failed.append(f"{sharer.identity}: {e}")
        return failed

    # Completions of all QPs ----------------------------------------------------------

    def fileno(self) -> int:
        """File descriptor for event loops: readable when a completion arrived after arm()."""
        self.ensure_alive()
        return self._engine.fileno()

    def arm(self) -> bool:
        """To be called before sleeping on fileno(). True: do not sleep, poll the QPs."""
        self.ensure_alive()
        return self._engine.arm()

    def drain(self) -> None:
        """To be called after waking on fileno(), before the QPs are polled."""
        self.ensure_alive()
        self._engine.drain()

    def _release(self) -> None:
        if self._control is None:
            return
        self._engine.close()
        self._control.close()


def _check_access(access: Access | int) -> Access:
    rights = Access(access)
    known = Access.LOCAL_WRITE | Access.SHARED | REMOTE
    if int(access) & ~int(known):
        raise LocalError(f"access {int(access)}: this version knows {known!r} only")
    if rights & Access.SHARED and not rights & REMOTE:
        raise LocalError("SHARED needs a remote right: without one peers have no access")
    written = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
    if rights & written and not rights & Access.LOCAL_WRITE:
        raise LocalError("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE too, as in verbs")
    return rights


def _check_proofs(access: Access | int, proofs: Proofs) -> Proofs:
    if proofs.proof and not int(access) & REMOTE:
        raise LocalError(
            "proof=True needs REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC: without them no peer "
            "has access"
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
    except (BufferError, ValueError) as e:  # NumPy raises ValueError
        raise BufferAccessError(f"the {kind} is not contiguous: give a contiguous copy") from e
