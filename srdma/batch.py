"""Batches: work requests that are encoded as descriptors once and posted many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from srdma._engine.blocking import as_bytes
from srdma.errors import LocalError, QueueFullError
from srdma.native.constants import DESC_FENCE, DESC_RECV, DESC_SIGNALED
from srdma.native.leg import Work, move
from srdma.wr import MAX_MESSAGE, RecvWR, SendFlag, SendWR

if TYPE_CHECKING:
    from srdma._engine.handles import Handle
    from srdma.qp import SecureQP
    from srdma.wr import SGE

INTERNAL = 1 << 63  # bit of a wr_id: posted by a blocking call


class Batch:
    """Work requests of one QP, checked once by `qp.batch()`; `post()` can be repeated.

    Addresses, lengths and keys are fixed when the batch is made. The caller keeps the regions open.
    Bytes in registered memory and in `data` are read at every post. Completions come from
    `qp.poll()`, one for each receive, each request with SendFlag.SIGNALED and each failure. One
    signaled request per group of requests is enough, because requests end in order.
    """

    def __init__(self, qp: SecureQP, wrs: Sequence[SendWR | RecvWR]) -> None:
        qp.ensure_alive()
        self._qp = qp
        self._works = [work_of(qp, wr, _user_id(wr.wr_id)) for wr in wrs]
        self._signaled = list(
            accumulate(map(_is_signaled, wrs), initial=0)
        )  # number of signaled requests before each index
        self._keep = list(wrs)  # keeps their memory alive
        self._with_capability = {
            number: wr
            for number, wr in enumerate(wrs)
            if isinstance(wr, SendWR) and wr.capability is not None
        }
        for wr in self._with_capability.values():
            wr.check_capability()
            qp.check_mode()

    def __len__(self) -> int:
        return len(self._works)

    def post(self, first: int = 0) -> int:
        """Post in order, from index `first`, until the queue is full. Returns the number posted.

        Raises LocalError or WorkerGone if a request is refused for another reason; the earlier
        ones are posted then.
        """
        posted, error = self.try_post(first)
        if error is not None and not isinstance(error, QueueFullError):
            raise error
        return posted

    def move(self, by: int) -> None:
        """Add `by` bytes to the local and remote addresses of all requests; a remote 0 stays.

        Nothing is checked again here; the workers refuse addresses outside the regions.
        """
        move(self._works, by)

    def try_post(self, first: int = 0) -> tuple[int, Exception | None]:
        """As post(), but returns (number posted, error that ended it or None)."""
        self._qp.ensure_alive()
        if not 0 <= first <= len(self):
            raise LocalError(f"index {first} in a batch of {len(self)}: give 0 to {len(self)}")
        if not self._with_capability:
            return self._post(first, {})
        handles = self._take_handles(first)
        try:
            return self._post(first, handles)
        finally:
            self._give_handles(handles)

    def _post(self, first: int, handles: dict[int, Handle]) -> tuple[int, Exception | None]:
        engine = self._qp.pd.engine
        with engine.lock:
            posted, error = engine.post(self._works, first)
            self._count(first, first + posted, handles)
        return posted, error

    def _count(self, first: int, end: int, handles: dict[int, Handle]) -> None:
        """Account for requests [first, end) as posted: each keeps its handle until it ends."""
        uses, signaled = self._qp.uses, self._signaled
        for number in [*handles]:
            if number >= end:
                break
            uses.posted(signaled[number] - signaled[first])
            first = number + 1
            uses.posted(signaled[first] - signaled[number], handles.pop(number))
        uses.posted(signaled[end] - signaled[first])

    def _give_handles(self, handles: Mapping[int, Handle]) -> None:
        for handle in handles.values():
            self._qp.pd.handles.give(handle)

    def _take_handles(self, first: int) -> dict[int, Handle]:
        """Handles of the capabilities from index `first`; installs those that are not installed."""
        handles: dict[int, Handle] = {}
        try:
            for number, wr in self._with_capability.items():
                if number >= first and wr.capability is not None:
                    handle = self._qp.pd.handles.take(wr.capability)
                    handles[number] = handle
                    self._works[number].capability(handle.number)
        except BaseException:
            self._give_handles(handles)
            raise
        return handles


def work_of(qp: SecureQP, wr: SendWR | RecvWR, wr_id: int) -> Work:
    """Descriptor of a work request, without the handle of its capability."""
    if isinstance(wr, RecvWR):
        work = Work(DESC_RECV, qp.qp_num, wr_id)
    else:
        work = Work(wr.opcode.descriptor, qp.qp_num, wr_id, _flags(wr))
        _describe(work, wr)
    _place(work, qp, wr.sg)
    return work


def _place(work: Work, qp: SecureQP, sg: Sequence[SGE]) -> None:
    """Set the local memory of a work request."""
    for sge in sg:
        qp.check_sge(sge)
    try:
        if len(sg) == 1:
            work.local(sg[0].addr, sg[0].length, sg[0].lkey)
        elif sg:
            work.scatter([(sge.addr, sge.length, sge.lkey) for sge in sg])
    except OverflowError as e:
        raise LocalError(
            "the address of an SGE has 64 bits, its length and lkey have 32 bits; none may be "
            f"negative, and all SGEs have {MAX_MESSAGE} bytes at most"
        ) from e


def _describe(work: Work, wr: SendWR) -> None:
    if wr.data is not None:
        work.payload(as_bytes(wr.data))
    try:
        work.remote(wr.remote_addr, wr.rkey)
        if wr.opcode.with_imm:
            work.immediate(wr.imm_data)
        if wr.opcode.is_atomic:
            work.operands(*wr.operands)
    except OverflowError as e:
        raise LocalError(
            "immediate data and rkey have 32 bits, a remote address and the operands of an "
            "atomic have 64 bits; none may be negative"
        ) from e


def _is_signaled(wr: SendWR | RecvWR) -> bool:
    """True for a request of the send queue whose success makes a completion."""
    return isinstance(wr, SendWR) and bool(wr.send_flags & SendFlag.SIGNALED)


def _flags(wr: SendWR) -> int:
    """Flags of the descriptor (local-interface.md 2.1)."""
    signaled = DESC_SIGNALED if wr.send_flags & SendFlag.SIGNALED else 0
    return signaled | (DESC_FENCE if wr.send_flags & SendFlag.FENCE else 0)


def _user_id(wr_id: int) -> int:
    if not 0 <= wr_id < INTERNAL:
        raise LocalError(f"wr_id {wr_id}: it must be from 0 to 2^63 - 1")
    return wr_id
