"""Work requests made into descriptors once, and posted as often as one likes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from srdma._engine.blocking import as_bytes
from srdma.errors import LocalError, QueueFullError
from srdma.native.constants import DESC_FENCE, DESC_RECV, DESC_SIGNALED
from srdma.native.leg import Work, move
from srdma.wr import RecvWR, SendFlag, SendWR

if TYPE_CHECKING:
    from srdma._engine.handles import Handle
    from srdma.qp import SecureQP

INTERNAL = 1 << 63  # of the wr_ids of what the library posts for itself


class Batch:
    """Requests of one QP, checked once by `qp.batch()`; `post()` is quick and can be repeated.

    What they name is settled, and stays registered as long as the caller keeps it so; bytes in
    registered memory and in `data` are read when they are posted. Their completions come from
    `qp.poll()`, one for each request that has SendFlag.SIGNALED: the last one of a few is enough.
    """

    def __init__(self, qp: SecureQP, wrs: Sequence[SendWR | RecvWR]) -> None:
        qp.ensure_alive()
        self._qp = qp
        self._works = [work_of(qp, wr, _user_id(wr.wr_id)) for wr in wrs]
        self._signaled = list(accumulate(map(_is_signaled, wrs), initial=0))  # before each
        self._keep = list(wrs)  # with their memory
        self._proved = {
            number: wr
            for number, wr in enumerate(wrs)
            if isinstance(wr, SendWR) and wr.capability is not None
        }
        for wr in self._proved.values():
            wr.check_capability()
            qp.check_mode()

    def __len__(self) -> int:
        return len(self._works)

    def post(self, first: int = 0) -> int:
        """Post in order, from number `first` on, as many as the queue takes: how many it were.

        If one is refused for another reason, those before it are posted.
        """
        posted, error = self.try_post(first)
        if error is not None and not isinstance(error, QueueFullError):
            raise error
        return posted

    def move(self, by: int) -> None:
        """All of them to memory so many bytes further on, at both ends; nothing is checked again
        here, but the worker refuses what lies outside."""
        move(self._works, by)

    def try_post(self, first: int = 0) -> tuple[int, Exception | None]:
        """The same; and why it were not all."""
        self._qp.ensure_alive()
        if not 0 <= first <= len(self):
            raise LocalError(
                f"number {first} of a batch of {len(self)}: 0 to {len(self)} are right"
            )
        if not self._proved:
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
        """Those from first to end were posted: their handles stay in use until they ended."""
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
        """Of the capabilities that are named; the PD installs them if it has to."""
        handles: dict[int, Handle] = {}
        try:
            for number, wr in self._proved.items():
                if number >= first and wr.capability is not None:
                    handle = self._qp.pd.handles.take(wr.capability)
                    handles[number] = handle
                    self._works[number].capability(handle.number)
        except BaseException:
            self._give_handles(handles)
            raise
        return handles


def work_of(qp: SecureQP, wr: SendWR | RecvWR, wr_id: int) -> Work:
    """Its descriptor, without the handle of its capability."""
    if isinstance(wr, RecvWR):
        work = Work(DESC_RECV, qp.qp_num, wr_id)
    else:
        work = Work(wr.opcode.descriptor, qp.qp_num, wr_id, _flags(wr))
        _describe(work, wr)
    if wr.sge is not None:
        qp.check_sge(wr.sge)
        work.local(wr.sge.addr, wr.sge.length, wr.sge.lkey)
    return work


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
            "atomic have 64, none is negative"
        ) from e


def _is_signaled(wr: SendWR | RecvWR) -> bool:
    """It is in the send queue, and its success completes."""
    return isinstance(wr, SendWR) and bool(wr.send_flags & SendFlag.SIGNALED)


def _flags(wr: SendWR) -> int:
    """Of its descriptor."""
    signaled = DESC_SIGNALED if wr.send_flags & SendFlag.SIGNALED else 0
    return signaled | (DESC_FENCE if wr.send_flags & SendFlag.FENCE else 0)


def _user_id(wr_id: int) -> int:
    if not 0 <= wr_id < INTERNAL:
        raise LocalError(f"wr_id {wr_id}: it must be a number of 63 bits")
    return wr_id
