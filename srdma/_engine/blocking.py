"""The calls of a QP: WRITE, READ, atomics, SEND and receive.

A call becomes a Job, which `run()` executes blocking and `srdma.aio` by the same steps().
Data in registered memory is not copied. Other data that is sent is inline data of the descriptor
up to 448 bytes. Longer data, and the results of READs and atomics, are copied through bounce
regions (bounce.py); a WRITE or READ is then divided into pieces of STAGE bytes, two of which are
outstanding at a time.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from srdma._engine.bounce import STAGE
from srdma.capability import Capability
from srdma.errors import BoundsError, BufferAccessError, LocalError, Timeout
from srdma.mr import MR, Access, RemoteMR
from srdma.native.leg import Pinned
from srdma.wc import WC, WCFlag, WCOpcode
from srdma.wr import (
    ATOMIC_LENGTH,
    MAX_INLINE,
    MAX_MESSAGE,
    SGE,
    RecvWR,
    SendWR,
    WROpcode,
    check_inside,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from srdma.qp import Request, SecureQP

IN_FLIGHT = 2  # outstanding pieces of one call, at most

Remote = RemoteMR | Capability
Piece = tuple[SendWR, MR | None]  # the request and its bounce region


class Message(NamedTuple):
    """A received message of `length` bytes. imm: immediate data, or None.

    data is empty for a WRITE with immediate data, which wrote `length` bytes elsewhere. If the
    call had `into`, data is a view of that memory.
    """

    data: bytes | memoryview
    imm: int | None
    length: int


class Job(NamedTuple):
    """The work requests of one call. A new Job has no bounce regions and has posted nothing.

    what: name for errors. copied: the pieces use bounce regions. arrived: called for each piece in
    order, when it has succeeded. result: the value of the call.
    """

    what: str
    total: int  # number of pieces
    pieces: Iterator[Piece]
    copied: bool = False
    arrived: Callable[[Request], None] | None = None
    result: bytes | bytearray = b""


def steps(
    qp: SecureQP, job: Job, ended: Callable[[Request], None] | None = None
) -> Generator[Request | None, None, None]:
    """Post the pieces in order; at most IN_FLIGHT are outstanding.

    Yields None before each post, and each request that the caller must see succeed before it
    resumes. If the generator is closed early, outstanding requests complete by themselves, and
    their bounce regions are freed then.
    """
    flying: deque[Request] = deque()
    try:
        for n in range(job.total):
            yield None
            flying.append(qp.submit(*next(job.pieces), ended))
            while flying and (len(flying) == IN_FLIGHT or n == job.total - 1):
                yield flying[0]
                if job.arrived is not None:
                    job.arrived(flying[0])
                qp.release(flying.popleft())
    finally:
        for request in flying:
            qp.release(request)


def run(qp: SecureQP, job: Job, deadline: float | None) -> bytes:
    """Execute the job, blocking. Returns its result; raises Timeout at the deadline (monotonic)."""
    with contextlib.closing(steps(qp, job)) as requests:
        for request in requests:
            if request is not None and qp.finish(request, deadline) is None:
                raise Timeout(f"{job.what} did not complete in time: it may still be executed")
    return bytes(job.result)


def write(
    qp: SecureQP, data: Buffer | MR | SGE, remote: Remote, offset: int, imm: int | None
) -> Job:
    source = _source(qp, data)
    length = source.length if isinstance(source, SGE) else len(source)
    opcode = WROpcode.RDMA_WRITE if imm is None else WROpcode.RDMA_WRITE_WITH_IMM
    _check_remote(qp, opcode, length, remote, offset)
    template = _Template(opcode, imm or 0, remote)
    what = f"a WRITE of {length} bytes"
    if isinstance(source, SGE):
        return _single(what, template.sge(source, offset))
    if length <= MAX_INLINE:
        return _single(what, template.inline(source, offset))
    return Job(what, _count(length), _write_pieces(qp, source, template, offset), copied=True)


def _write_pieces(
    qp: SecureQP, source: memoryview, template: _Template, offset: int
) -> Iterator[Piece]:
    """Pieces of a WRITE; only the last one carries the immediate data."""
    for at in range(0, len(source), STAGE):
        piece = source[at : at + STAGE]
        bounce = qp.pd.bounces.take(len(piece))
        bounce.buf[: len(piece)] = piece
        last = at + STAGE >= len(source)
        wr = (template if last else template.without_imm()).sge(
            bounce.sge(0, len(piece)), offset + at
        )
        yield wr, bounce


def read(
    qp: SecureQP,
    remote: Remote,
    offset: int,
    length: int | None,
    into: Buffer | MR | SGE | None,
) -> Job:
    size = remote.length - offset if length is None else length
    _check_remote(qp, WROpcode.RDMA_READ, size, remote, offset)
    template = _Template(WROpcode.RDMA_READ, 0, remote)
    what = f"a READ of {size} bytes"
    if isinstance(into, MR | SGE):
        return _single(what, template.sge(writable(qp, into, size), offset))
    result = bytearray(size if into is None else 0)
    target = memoryview(result) if into is None else _target(into, size)
    pieces = _read_pieces(qp, size, template, offset)
    return Job(what, _count(size), pieces, copied=True, arrived=_copier(target), result=result)


def _read_pieces(qp: SecureQP, size: int, template: _Template, offset: int) -> Iterator[Piece]:
    for at in range(0, max(size, 1), STAGE):
        length = min(STAGE, size - at)
        bounce = qp.pd.bounces.take(length)
        yield template.sge(bounce.sge(0, length), offset + at), bounce


def _copier(target: memoryview) -> Callable[[Request], None]:
    """A callback that copies the pieces to `target`, in order."""
    at = 0

    def copy(request: Request) -> None:
        nonlocal at
        assert request.bounce is not None
        length = min(STAGE, len(target) - at)
        target[at : at + length] = request.bounce.buf[:length]
        at += length

    return copy


def compare_and_swap(qp: SecureQP, remote: Remote, offset: int, compare: int, swap: int) -> Job:
    for value in (compare, swap):
        _check_number(value, 0)
    wr = SendWR(opcode=WROpcode.ATOMIC_CMP_AND_SWP, compare_add=compare, swap=swap)
    return _atomic(qp, wr, remote, offset)


def fetch_add(qp: SecureQP, remote: Remote, offset: int, add: int) -> Job:
    _check_number(add, -1 << 63)
    wr = SendWR(opcode=WROpcode.ATOMIC_FETCH_AND_ADD, compare_add=add % (1 << 64))
    return _atomic(qp, wr, remote, offset)


def number(result: bytes) -> int:
    """Original value that an atomic returned."""
    return int.from_bytes(result, sys.byteorder)


def _check_number(value: int, least: int) -> None:
    if not least <= value < 1 << 64:
        raise LocalError(f"{value} does not fit into the 64 bits of an atomic")


def _atomic(qp: SecureQP, wr: SendWR, remote: Remote, offset: int) -> Job:
    _check_remote(qp, wr.opcode, ATOMIC_LENGTH, remote, offset)
    if (remote.address + offset) % ATOMIC_LENGTH:
        raise LocalError(
            f"offset {offset} is at address {remote.address + offset:#x}: an atomic needs one "
            f"that is a multiple of {ATOMIC_LENGTH}"
        )
    result = bytearray(ATOMIC_LENGTH)
    what = "an atomic"
    return Job(
        what, 1, _atomic_piece(qp, wr, remote, offset), True, _copier(memoryview(result)), result
    )


def _atomic_piece(qp: SecureQP, wr: SendWR, remote: Remote, offset: int) -> Iterator[Piece]:
    bounce = qp.pd.bounces.take(ATOMIC_LENGTH)
    wr.sg = [bounce.sge(0, ATOMIC_LENGTH)]
    wr.set_remote(remote, offset)
    yield wr, bounce


def send(qp: SecureQP, data: Buffer | MR | SGE, imm: int | None) -> Job:
    source = _source(qp, data)
    opcode = WROpcode.SEND if imm is None else WROpcode.SEND_WITH_IMM
    if isinstance(source, SGE):
        wr = SendWR(opcode=opcode, sg=[source], imm_data=imm or 0)
        return _single(f"a SEND of {source.length} bytes", wr)
    what = f"a SEND of {len(source)} bytes"
    if len(source) <= MAX_INLINE:
        return _single(what, SendWR(opcode=opcode, data=source, imm_data=imm or 0))
    return Job(what, 1, _send_piece(qp, source, opcode, imm or 0), copied=True)


def _send_piece(qp: SecureQP, source: memoryview, opcode: WROpcode, imm: int) -> Iterator[Piece]:
    bounce = qp.pd.bounces.take(len(source))
    bounce.buf[: len(source)] = source
    yield SendWR(opcode=opcode, sg=[bounce.sge(0, len(source))], imm_data=imm), bounce


def recv(qp: SecureQP, size: int, into: MR | SGE | None, deadline: float | None) -> Message:
    own = None if into is None else writable(qp, into, None)
    request = qp.take_receive() or post_receive(qp, size, own)
    try:
        wc = qp.finish(request, deadline)
    except BaseException:
        qp.release(request)
        raise
    if wc is None:
        qp.leave_receive(request)
        raise Timeout("no message arrived in time; the receive stays posted")
    try:
        return message_of(request, wc)
    finally:
        qp.release(request)


def post_receive(
    qp: SecureQP,
    size: int,
    own: SGE | None,
    ended: Callable[[Request], None] | None = None,
) -> Request:
    if own is not None:
        return qp.submit(RecvWR(sg=[own]), None, ended)
    if not 0 <= size <= MAX_MESSAGE:
        raise LocalError(f"size {size}: a message has at most {MAX_MESSAGE} bytes")
    bounce = qp.pd.bounces.take(size)
    return qp.submit(RecvWR(sg=[bounce.sge(0, size)]), bounce, ended)


def message_of(request: Request, wc: WC) -> Message:
    imm = wc.imm_data if wc.wc_flags & WCFlag.WITH_IMM else None
    if wc.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
        return Message(b"", imm, wc.byte_len)
    if request.bounce is not None:
        return Message(bytes(request.bounce.buf[: wc.byte_len]), imm, wc.byte_len)
    own = request.sge
    assert own is not None
    assert own.mr is not None
    start = own.addr - own.mr.addr
    return Message(own.mr.buf[start : start + wc.byte_len], imm, wc.byte_len)


# Helpers -------------------------------------------------------------------------


class _Template(NamedTuple):
    """Opcode, immediate data and remote memory, which all work requests of one call share."""

    opcode: WROpcode
    imm: int
    remote: Remote

    def sge(self, sge: SGE, offset: int) -> SendWR:
        wr = SendWR(opcode=self.opcode, sg=[sge], imm_data=self.imm)
        wr.set_remote(self.remote, offset)
        return wr

    def inline(self, data: memoryview, offset: int) -> SendWR:
        wr = SendWR(opcode=self.opcode, data=data, imm_data=self.imm)
        wr.set_remote(self.remote, offset)
        return wr

    def without_imm(self) -> _Template:
        return self._replace(opcode=WROpcode.RDMA_WRITE, imm=0)


def _single(what: str, wr: SendWR) -> Job:
    return Job(what, 1, iter([(wr, None)]))


def _count(size: int) -> int:
    """Number of pieces of `size` bytes of copied data; at least 1."""
    return max(-(-size // STAGE), 1)


def _source(qp: SecureQP, data: Buffer | MR | SGE) -> SGE | memoryview:
    """Data as SGE or plain bytes. Raises LocalError if it is too long or not usable."""
    source = data.sge() if isinstance(data, MR) else data
    if isinstance(source, SGE):
        qp.check_sge(source)
        length = source.length
    else:
        source = as_bytes(source)
        length = len(source)
    _check_length(length)
    return source


def writable(qp: SecureQP, into: MR | SGE, size: int | None) -> SGE:
    """SGE of the first `size` bytes of `into`, None: all. Raises if they cannot be written."""
    sge = into.sge() if isinstance(into, MR) else into
    qp.check_sge(sge)
    if sge.mr is None:
        raise LocalError("an SGE without a region: give an MR, or mr[a:b]")
    if not sge.mr.access & Access.LOCAL_WRITE:
        raise BufferAccessError("the region was registered without LOCAL_WRITE: it cannot receive")
    if size is None:
        return sge
    if size > sge.length:
        raise BoundsError(f"{size} bytes do not fit into {sge.length} bytes of memory")
    return SGE(sge.addr, size, sge.lkey, sge.mr)


def _target(into: Buffer | None, size: int) -> memoryview:
    target = as_bytes(into, writable=True)
    if len(target) < size:
        raise BoundsError(f"{size} bytes do not fit into a buffer of {len(target)} bytes")
    return target[:size]


def as_bytes(data: Buffer | None, *, writable: bool = False) -> memoryview:
    """View of any buffer as plain bytes, without a copy."""
    kind = type(data).__name__
    try:
        return memoryview(Pinned(data, writable))  # type: ignore[arg-type]
    except TypeError as e:
        raise LocalError(f"a {kind} has no bytes: give an MR or anything with a buffer") from e
    except (BufferError, ValueError) as e:
        raise BufferAccessError(f"the {kind} is read-only or not contiguous") from e


def _check_length(length: int) -> None:
    if not 0 <= length <= MAX_MESSAGE:
        raise LocalError(f"a message of {length} bytes: 0 to {MAX_MESSAGE} are legal")


def _check_remote(qp: SecureQP, opcode: WROpcode, length: int, remote: Remote, offset: int) -> None:
    """Check length, range and rights before anything is copied or sent."""
    _check_length(length)
    check_inside(length, remote, offset)
    if isinstance(remote, Capability):
        remote.check_right(opcode.right)
        qp.check_mode()
