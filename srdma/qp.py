"""Secure QPs: posting and polling as in verbs, and the blocking calls above them.

Work requests of the blocking calls have wr_ids with bit 63 set; the
application's have 63 bits.
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
REASON_S = 0.2  # how long a failed call waits to hear why

_EVENT, _RECV = int(WCOpcode.QP_EVENT), int(WCOpcode.RECV)  # RECV: a bit, of both receives


Ended = Callable[["Request"], None]


class Request:
    """An outstanding work request of a blocking call; wc when it ended."""

    __slots__ = ("abandoned", "bounce", "ended", "handle", "serial", "sge", "wc")

    def __init__(self, sge: SGE | None, bounce: MR | None, ended: Ended | None) -> None:
        self.serial = 0
        self.ended = ended  # called once, under the engine's lock
        self.sge = sge
        self.bounce = bounce
        self.handle: Handle | None = None
        self.wc: WC | None = None
        self.abandoned = False  # nobody waits; who ends it gives the bounce back


class SecureQP(Resource):
    """One end of a secure reliable connection; `srdma.connect()` and `listen()` make them.

    sq, rq: depths. timeout: seconds after which the worker ends a request.
    mtu: payload per packet, 0 for the worker's own.
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
        self.mode = ""  # key mode, once it is agreed
        self._destroy = False
        self._reason = 0
        self._wcs: deque[WC] = deque()
        self._requests: dict[int, Request] = {}
        self._receives: list[Request] = []  # posted by recv() calls that gave up
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

    # What it is --------------------------------------------------------------

    @property
    def qp_num(self) -> int:
        """The SRC QPN."""
        return self.info.qpn

    @property
    def state(self) -> QPState:
        """As far as this process has heard; poll() hears."""
        if self._reason:
            return QPState.ERR
        return QPState.RTS if self.connected else QPState.INIT

    @property
    def reason(self) -> str:
        """Why it went to error, "PEER_CLOSED"; "" while it did not."""
        return reason_name(self._reason) if self._reason else ""

    # Verbs ---------------------------------------------------------------------

    def post_send(self, *wrs: SendWR) -> None:
        """Post in order; if one is refused, those before it are posted."""
        self._post(wrs)

    def post_recv(self, *wrs: RecvWR) -> None:
        """Post in order; if one is refused, those before it are posted."""
        self._post(wrs)

    def batch(self, wrs: Sequence[SendWR | RecvWR]) -> Batch:
        """Work requests to be posted again and again: checked, and made into descriptors, once."""
        return Batch(self, wrs)

    def poll(self, n: int = 1, timeout: float | None = 0) -> list[WC]:
        """Up to n completions of what the application posted.

        Waits up to timeout seconds (None: for ever) for the first one; a QP in
        error does not wait.
        """
        self.ensure_alive()
        if not self._wcs:
            if timeout == 0:
                self.pd.engine.poll_again()
            else:
                self.pd.engine.wait(self._has_news, deadline_in(timeout))
                self.ensure_alive()
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
        """WRITE into a peer's region; returns when the bytes are in its memory.

        remote: the region, or a capability for a part of it, whose first byte
        offset counts from. data that is registered (an MR, or mr[a:b]) goes without a copy. With
        imm the peer completes a receive.
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
        """READ from a peer's region, or what a capability grants of it; all that
        follows offset by default.

        The bytes, or b"" if they went into `into`.
        """
        self._begin()
        job = blocking.read(self, remote, offset, length, into)
        return blocking.run(self, job, deadline_in(timeout))

    def compare_and_swap(
        self, remote: Remote, offset: int, compare: int, swap: int, timeout: float | None = None
    ) -> int:
        """If the 8 bytes there are `compare`, make them `swap`, in one step; what they were.

        A number of 64 bits in the byte order of its machine, at an address that is a multiple of 8.
        """
        self._begin()
        job = blocking.compare_and_swap(self, remote, offset, compare, swap)
        return blocking.number(blocking.run(self, job, deadline_in(timeout)))

    def fetch_add(self, remote: Remote, offset: int, add: int, timeout: float | None = None) -> int:
        """Add to such a number, modulo 2^64, in one step; what it was."""
        self._begin()
        job = blocking.fetch_add(self, remote, offset, add)
        return blocking.number(blocking.run(self, job, deadline_in(timeout)))

    def send(
        self, data: Buffer | MR | SGE = b"", imm: int | None = None, timeout: float | None = None
    ) -> None:
        """SEND one message; returns when it is in the peer's receive buffer."""
        self._begin()
        blocking.run(self, blocking.send(self, data, imm), deadline_in(timeout))

    def recv(
        self,
        timeout: float | None = None,
        *,
        size: int = STAGE,
        into: MR | SGE | None = None,
    ) -> Message:
        """The next message, or the immediate of a peer's WRITE.

        size: of the longest message; a longer one breaks the connection. After
        a Timeout the receive stays posted, and the next recv() takes it, with
        the memory that it was posted for.
        """
        self._begin()
        return blocking.recv(self, size, into, deadline_in(timeout))

    def _begin(self) -> None:
        """Of a call that may wait."""
        self.ensure_alive()
        self.pd.engine.check_unclaimed()

    # For _engine/blocking.py and aio ------------------------------------------------------

    def submit(
        self, wr: SendWR | RecvWR, bounce: MR | None = None, ended: Ended | None = None
    ) -> Request:
        """Post for a call that waits; the request holds the bounce until release()."""
        request = Request(wr.sge, bounce, ended)
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
        """Wait for its end: its completion, or None at the deadline; raises its failure."""
        self.pd.engine.wait(lambda: request.wc is not None, deadline)
        if request.wc is None:
            self.ensure_alive()
            return None
        return self.verdict(request.wc)

    def verdict(self, wc: WC) -> WC:
        """Its outcome(), after a moment of waiting for the reason if that is still to come."""
        if self.lacks_reason(wc):
            self.pd.engine.wait(lambda: bool(self._reason), time.monotonic() + REASON_S)
        return self.outcome(wc)

    def lacks_reason(self, wc: WC) -> bool:
        """The event that says why follows the flushed requests."""
        return wc.vendor_err == REASON_FLUSHED and not self._reason and not self.closed

    def outcome(self, wc: WC) -> WC:
        """A success; raises what failed."""
        if wc.status is WCStatus.SUCCESS:
            return wc
        error = ClosedError("the QP was closed") if self.closed else wc.error(self._reason)
        assert isinstance(error, Error)
        raise error

    def release(self, request: Request) -> None:
        """The call is done with it; its bounce goes back when no DMA can touch it."""
        with self.pd.engine.lock:
            request.abandoned = True
            if request.wc is not None:
                self._give_back(request)

    @property
    def receives(self) -> list[Request]:
        """Posted, and no call's now; the oldest first."""
        with self.pd.engine.lock:
            return sorted(self._receives, key=lambda r: r.serial)

    def take_receive(self, *, ended: bool = False) -> Request | None:
        """The oldest of them, or None if it shall have ended and did not."""
        with self.pd.engine.lock:
            request = next(iter(self.receives), None)
            if request is None or (ended and request.wc is None):
                return None
            self._receives.remove(request)
            return request

    def leave_receive(self, request: Request) -> None:
        """For the next call."""
        with self.pd.engine.lock:
            self._receives.append(request)

    def check_mode(self) -> None:
        """Refuse to use a capability where no proof can be sent."""
        if self.mode and "mem" not in self.mode:
            raise LocalError(
                f"the QP's key mode is {self.mode!r}, which has no memory proofs: "
                'say mode="mem" or mode="pd+mem" to connect() and listen()'
            )

    # Inside ------------------------------------------------------------------------

    def _post(self, wrs: Sequence[SendWR | RecvWR]) -> None:
        _, error = Batch(self, wrs).try_post()
        if error is not None:
            raise error

    def _handle(self, wr: SendWR | RecvWR) -> Handle | None:
        """Of the capability that it names, which the PD installs if it has to."""
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
        """Refuse a piece of a region that this QP cannot use."""
        if sge.mr is None:
            return
        sge.mr.ensure_alive()
        if sge.mr.pd is not self.pd:
            raise LocalError(
                "the memory region belongs to another PD than the QP: register it in the QP's PD"
            )

    def _sink(self, record: Record) -> None:
        """One completion, under the engine's lock."""
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
        quiet = False  # no DMA of it is under way
        try:
            self.pd.destroy(self.qp_num)
            quiet = True
        finally:
            self._forget(quiet)

    def _forget(self, quiet: bool) -> None:
        """End every call; its memory goes back if no DMA can touch it."""
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
    """On the monotonic clock."""
    return None if timeout is None else time.monotonic() + timeout


def _flushed(qpn: int) -> WC:
    return WC.from_record((0, qpn, WCOpcode.SEND, WCStatus.WR_FLUSH_ERR, 0, REASON_FLUSHED, 0, 0))
