"""Secure QPs: posting and polling as in verbs, and blocking calls on top of them.

Bit 63 of a wr_id is reserved for the work requests of the blocking calls.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from srdma._engine import blocking
from srdma._engine.bounce import STAGE
from srdma._engine.engine import Record
from srdma._engine.handles import Handle, Uses
from srdma._engine.resource import Resource
from srdma.batch import INTERNAL, Batch, work_of
from srdma.control import QPRequest, QPState
from srdma.errors import ClosedError, Error, LocalError
from srdma.native.constants import REASON_FLUSHED
from srdma.wc import WC, WCOpcode, WCStatus, reason_name
from srdma.wr import RecvWR, SendWR

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from srdma._engine.blocking import Message, Remote
    from srdma.mr import MR
    from srdma.pd import PD
    from srdma.wr import SGE

DEPTH = 128
TIMEOUT = 30.0
REASON_S = 0.2  # seconds that a failed call waits at most for the QP event with the reason

_EVENT, _RECV = int(WCOpcode.QP_EVENT), int(WCOpcode.RECV)  # RECV: bit of both receive opcodes


Ended = Callable[["Request"], None]


class Request:
    """An outstanding work request of a blocking call; wc is set when it has completed."""

    __slots__ = ("abandoned", "bounce", "ended", "handle", "serial", "sge", "wc")

    def __init__(self, sge: SGE | None, bounce: MR | None, ended: Ended | None) -> None:
        self.serial = 0
        self.ended = ended  # called once, under the engine's lock
        self.sge = sge
        self.bounce = bounce
        self.handle: Handle | None = None
        self.wc: WC | None = None
        self.abandoned = False  # no call waits: the bounce is freed on completion


class SecureQP(Resource):
    """One end of a secure reliable connection; made by `connect()` and `Listener.accept()`.

    sq, rq: depths of the queues in work requests. timeout: seconds after which the worker ends a
    request, reason DEADLINE. mtu: payload bytes per packet, 256 to 4096; 0: the worker's own.
    Raises LocalError for depths that are not legal, RefusedError if the worker refuses the QP.
    """

    def __init__(
        self,
        pd: PD,
        sq: int = DEPTH,
        rq: int = DEPTH,
        *,
        timeout: float = TIMEOUT,
        mtu: int = 0,
    ) -> None:
        super().__init__(pd)
        self.pd = pd
        self.depths = (sq, rq)
        self.connected = False
        self.mode = ""  # key mode; "" until the key exchange is complete
        self._destroy = False
        self._reason = 0
        self._wcs: deque[WC] = deque()
        self._requests: dict[int, Request] = {}
        self._receives: list[
            Request
        ] = []  # posted receives whose recv() call timed out or was cancelled
        self._serial = 0
        self.uses = Uses(pd.handles)
        try:
            request = QPRequest(pd.leg, sq, rq, max(round(timeout * 1000), 1), mtu)
            self.info = pd.control.init(request)
            self._destroy = True
            pd.engine.add(self.info.qpn, (sq, rq), self._sink)
        except BaseException:
            self.close()
            raise

    # State ---------------------------------------------------------------------

    @property
    def qp_num(self) -> int:
        """SRC QPN: 24 bits, chosen by the worker (protocol.md 1)."""
        return self.info.qpn

    @property
    def state(self) -> QPState:
        """State according to the completions polled so far: INIT, RTS or ERR (protocol.md 7)."""
        if self._reason:
            return QPState.ERR
        return QPState.RTS if self.connected else QPState.INIT

    @property
    def reason(self) -> str:
        """Name of the reason of an error (protocol.md 13.1), as "PEER_CLOSED"; "" without one."""
        return reason_name(self._reason) if self._reason else ""

    # Verbs ---------------------------------------------------------------------

    def post_send(self, *wrs: SendWR) -> None:
        """Post to the send queue, in order. If one is refused, the earlier ones are posted.

        Raises QueueFullError, LocalError or WorkerGone; failures at the peer are completions.
        """
        self._post(wrs)

    def post_recv(self, *wrs: RecvWR) -> None:
        """Post to the receive queue; order and errors are those of post_send()."""
        self._post(wrs)

    def batch(self, wrs: Sequence[SendWR | RecvWR]) -> Batch:
        """Work requests that can be posted many times; checked and encoded only once, here."""
        return Batch(self, wrs)

    def poll(self, n: int = 1, timeout: float | None = 0) -> list[WC]:
        """Up to n completions of work requests that the application posted, oldest first.

        Waits up to timeout seconds (None: no limit) for the first one, but not if the QP is in
        error. The list may be empty.
        """
        self.ensure_alive()
        if not self._wcs:
            if timeout == 0:
                self.pd.engine.poll_again()
            else:
                self.pd.engine.wait(self._has_news, deadline_in(timeout))
                self.ensure_alive()
        return self.poll_delivered(n)

    def poll_delivered(self, n: int = 1) -> list[WC]:
        """As poll(), but only completions that calls for another QP of the PD delivered: this call
        delivers none."""
        with self.pd.engine.lock:
            if len(self._wcs) > n:
                return [self._wcs.popleft() for _ in range(n)]
            wcs = [*self._wcs]
            self._wcs.clear()
            return wcs

    # Blocking --------------------------------------------------------------------

    def write(
        self,
        data: Buffer | MR | SGE,
        remote: Remote,
        offset: int = 0,
        imm: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """WRITE into a peer's region. Returns when the bytes are in the peer's memory.

        data: an MR or mr[a:b] is sent without a copy; other buffers are copied. remote: a region
        of the peer, or a capability for a part of it; offset: in bytes from its first byte. imm:
        32-bit immediate data, which completes a receive of the peer. timeout: seconds, None for no
        limit; after a Timeout the WRITE may still be executed. Raises BoundsError, LocalError,
        CapabilityError, or a WCError if the request fails.
        """
        self._begin()
        job = blocking.write(self, data, remote, offset, imm)
        blocking.run(self, job, deadline_in(timeout))

    def read(
        self,
        remote: Remote,
        offset: int = 0,
        length: int | None = None,
        into: Buffer | MR | SGE | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """READ `length` bytes at `offset` of a peer's region or capability.

        length None: up to the end. into: memory for the bytes, an MR or mr[a:b] without a copy.
        Returns the bytes, or b"" with `into`. timeout and errors are those of write().
        """
        self._begin()
        job = blocking.read(self, remote, offset, length, into)
        return blocking.run(self, job, deadline_in(timeout))

    def compare_and_swap(
        self, remote: Remote, offset: int, compare: int, swap: int, timeout: float | None = None
    ) -> int:
        """Atomically replace the 64-bit number at `offset` by `swap` if it equals `compare`.

        Returns the original number. Its byte order is that of the peer's machine, and its address
        must be a multiple of 8. timeout and errors are those of write().
        """
        self._begin()
        job = blocking.compare_and_swap(self, remote, offset, compare, swap)
        return blocking.number(blocking.run(self, job, deadline_in(timeout)))

    def fetch_add(self, remote: Remote, offset: int, add: int, timeout: float | None = None) -> int:
        """Atomically add to a 64-bit number, modulo 2^64; otherwise as compare_and_swap()."""
        self._begin()
        job = blocking.fetch_add(self, remote, offset, add)
        return blocking.number(blocking.run(self, job, deadline_in(timeout)))

    def send(
        self, data: Buffer | MR | SGE = b"", imm: int | None = None, timeout: float | None = None
    ) -> None:
        """SEND one message. Returns when it is in the peer's receive buffer.

        data, imm, timeout and errors are those of write(). A message that is longer than the
        peer's buffer ends the QP, reason RECV_TOO_SHORT.
        """
        self._begin()
        blocking.run(self, blocking.send(self, data, imm), deadline_in(timeout))

    def recv(
        self,
        timeout: float | None = None,
        *,
        size: int = STAGE,
        into: MR | SGE | None = None,
    ) -> Message:
        """Receive the next message, or the immediate data of a peer's WRITE.

        size: bytes of the longest message expected; a longer one ends the QP. into: memory for
        the message instead, without a copy. timeout: seconds, None for no limit. After a Timeout
        the receive stays posted with its memory, and the next recv() takes it, regardless of
        the size and into of that call.
        """
        self._begin()
        return blocking.recv(self, size, into, deadline_in(timeout))

    def _begin(self) -> None:
        """Checks before a call that may block."""
        self.ensure_alive()
        self.pd.engine.check_unclaimed()

    # For _engine/blocking.py and aio ------------------------------------------------------

    def submit(
        self, wr: SendWR | RecvWR, bounce: MR | None = None, ended: Ended | None = None
    ) -> Request:
        """Post for a blocking call; the request owns the bounce until release().

        ended: called once, under the engine's lock, when the request has completed.
        """
        request = Request(wr.sg[0] if wr.sg else None, bounce, ended)
        try:
            request.handle = self._handle(wr)
            with self.pd.engine.lock:
                self._submit(wr, request)
        except BaseException:
            self._give_handle(request.handle)
            self._give_back(request)
            raise
        return request

    def finish(self, request: Request, deadline: float | None) -> WC | None:
        """Wait for completion: the WC, or None at the deadline. Raises if the request failed."""
        self.pd.engine.wait(lambda: request.wc is not None, deadline)
        if request.wc is None:
            self.ensure_alive()
            return None
        return self.verdict(request.wc)

    def verdict(self, wc: WC) -> WC:
        """As outcome(), but first waits up to REASON_S for a reason that is still to come."""
        if self.lacks_reason(wc):
            self.pd.engine.wait(lambda: bool(self._reason), time.monotonic() + REASON_S)
        return self.outcome(wc)

    def lacks_reason(self, wc: WC) -> bool:
        """True for a flushed request whose QP event, which carries the reason, is still to come."""
        return wc.vendor_err == REASON_FLUSHED and not self._reason and not self.closed

    def outcome(self, wc: WC) -> WC:
        """Return a successful completion; raise the error of a failed one."""
        if wc.status is WCStatus.SUCCESS:
            return wc
        error = ClosedError("the QP was closed") if self.closed else wc.error(self._reason)
        assert isinstance(error, Error)
        raise error

    def release(self, request: Request) -> None:
        """End the call's use of a request; its bounce is freed when no DMA can touch it."""
        with self.pd.engine.lock:
            request.abandoned = True
            if request.wc is not None:
                self._give_back(request)

    @property
    def receives(self) -> list[Request]:
        """Posted receives that belong to no call now; the oldest first."""
        with self.pd.engine.lock:
            return sorted(self._receives, key=lambda r: r.serial)

    def take_receive(self, *, ended: bool = False) -> Request | None:
        """Remove and return the oldest of `receives`; None without one.

        ended: return it only if it has completed.
        """
        with self.pd.engine.lock:
            request = next(iter(self.receives), None)
            if request is None or (ended and request.wc is None):
                return None
            self._receives.remove(request)
            return request

    def leave_receive(self, request: Request) -> None:
        """Leave a posted receive to the next call."""
        with self.pd.engine.lock:
            self._receives.append(request)

    def check_mode(self) -> None:
        """Raise LocalError if the key mode has no memory proofs, which capabilities need."""
        if self.mode and "mem" not in self.mode:
            raise LocalError(
                f"the QP's key mode is {self.mode!r}, which has no memory proofs: "
                'give mode="mem" or mode="pd+mem" to connect() and listen()'
            )

    # Internal ----------------------------------------------------------------------

    def _post(self, wrs: Sequence[SendWR | RecvWR]) -> None:
        _, error = Batch(self, wrs).try_post()
        if error is not None:
            raise error

    def _handle(self, wr: SendWR | RecvWR) -> Handle | None:
        """Handle of the request's capability, installed if it was not; None without one."""
        if isinstance(wr, RecvWR) or wr.capability is None:
            return None
        wr.check_capability()
        self.check_mode()
        return self.pd.handles.take(wr.capability)

    def _give_handle(self, handle: Handle | None) -> None:
        if handle is not None:
            self.pd.handles.give(handle)

    def _submit(self, wr: SendWR | RecvWR, request: Request) -> None:
        self._serial += 1
        request.serial = self._serial
        work = work_of(self, wr, INTERNAL | request.serial)
        if request.handle is not None:
            work.capability(request.handle.number)
        self._requests[request.serial] = request
        try:
            _, error = self.pd.engine.post([work])
            if error is not None:
                raise error
        except BaseException:
            del self._requests[request.serial]
            raise
        if isinstance(wr, SendWR):
            self.uses.posted(1)

    def _has_news(self) -> bool:
        return bool(self._wcs or self._reason or self.closed)

    def check_sge(self, sge: SGE) -> None:
        """Raise LocalError or ClosedError for an SGE that this QP cannot use."""
        if sge.mr is None:
            return
        sge.mr.ensure_alive()
        if sge.mr.pd is not self.pd:
            raise LocalError(
                "the memory region belongs to another PD than the QP: register it in the QP's PD"
            )

    def _sink(self, record: Record) -> None:
        """Take one completion; called under the engine's lock."""
        wc = WC.from_record(record)
        wr_id, _, opcode, status, *_ = record
        if status or opcode == _EVENT:  # the QP is in error
            self.uses.clear()
        elif not opcode & _RECV:
            self.uses.ended()
        if opcode == _EVENT:
            self._reason = wc.vendor_err
        elif not wr_id & INTERNAL:
            self._wcs.append(wc)
        else:
            self._end_request(self._requests.pop(wr_id ^ INTERNAL), wc)

    def _end_request(self, request: Request, wc: WC) -> None:
        request.wc = wc
        handle, request.handle = request.handle, None
        self._give_handle(handle)
        if request.abandoned:
            self._give_back(request)
        ended, request.ended = request.ended, None
        if ended is not None:
            ended(request)

    def _give_back(self, request: Request) -> None:
        if request.bounce is not None:
            self.pd.bounces.give(request.bounce)
            request.bounce = None

    def _release(self) -> None:
        if not self._destroy:
            return
        quiet = False  # True: no DMA of the QP is in progress
        try:
            self.pd.destroy(self.qp_num)
            quiet = True
        finally:
            self._forget(quiet)

    def _forget(self, quiet: bool) -> None:
        """End every call as flushed; free its memory if `quiet`, when no DMA can touch it."""
        with self.pd.engine.lock:
            for request in [*self._requests.values(), *self._receives]:
                if not quiet:
                    request.bounce = None
                self._end_request(request, _flushed(self.qp_num))
            for request in self._receives:
                self._give_back(request)
            self._requests.clear()
            self.uses.clear()
            self.pd.engine.remove(self.qp_num)


def deadline_in(timeout: float | None) -> float | None:
    """The time `timeout` seconds from now on the monotonic clock; None: no limit."""
    return None if timeout is None else time.monotonic() + timeout


def _flushed(qpn: int) -> WC:
    return WC.from_record((0, qpn, WCOpcode.SEND, WCStatus.WR_FLUSH_ERR, 0, REASON_FLUSHED, 0, 0))
