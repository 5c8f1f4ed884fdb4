"""The blocking calls of a QP: WRITE, READ, SEND and receive, complete when they return.

Data in registered memory goes as it is. Other data of at most 448 bytes goes
with the descriptor; what is longer goes through regions of the library's own,
a WRITE or READ in pieces, two of them under way at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from srdma._leg import Pinned
from srdma.bounce import STAGE
from srdma.errors import BoundsError, BufferAccessError, LocalError, Timeout
from srdma.mr import MR, Access, RemoteMR
from srdma.wc import WC, WCFlag, WCOpcode
from srdma.wr import MAX_INLINE, MAX_MESSAGE, SGE, RecvWR, SendWR, WROpcode

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from srdma.qp import Request, SecureQP

IN_FLIGHT = 2


class Message(NamedTuple):
    """What recv() got. data is empty for the immediate of a WRITE of `length` bytes."""

    data: bytes | memoryview
    imm: int | None
    length: int


def write(
    qp: SecureQP,
    data: Buffer | MR | SGE,
    remote: RemoteMR,
    offset: int,
    imm: int | None,
    deadline: float | None,
) -> None:
    source = _source(qp, data)
    length = source.length if isinstance(source, SGE) else len(source)
    _check_remote(length, remote, offset)
    opcode = WROpcode.RDMA_WRITE if imm is None else WROpcode.RDMA_WRITE_WITH_IMM
    with_wr = _Requests(opcode, imm or 0, remote)
    pieces: Iterator[tuple[SendWR, MR | None]]
    if isinstance(source, SGE):
        pieces = iter([(with_wr.sge(source, offset), None)])
    elif length <= MAX_INLINE:
        pieces = iter([(with_wr.inline(source, offset), None)])
    else:
        pieces = _write_pieces(qp, source, with_wr, offset)
    _run(qp, pieces, deadline, f"a WRITE of {length} bytes")


def _write_pieces(
    qp: SecureQP, source: memoryview, with_wr: _Requests, offset: int
) -> Iterator[tuple[SendWR, MR | None]]:
    """Only the last piece carries the immediate."""
    for at in range(0, len(source), STAGE):
        piece = source[at : at + STAGE]
        bounce = qp.pd.bounces.take(len(piece))
        bounce.buf[: len(piece)] = piece
        last = at + STAGE >= len(source)
        wr = (with_wr if last else with_wr.without_imm()).sge(
            bounce.sge(0, len(piece)), offset + at
        )
        yield wr, bounce


def read(
    qp: SecureQP,
    remote: RemoteMR,
    offset: int,
    length: int | None,
    into: Buffer | MR | SGE | None,
    deadline: float | None,
) -> bytes:
    size = remote.length - offset if length is None else length
    _check_remote(size, remote, offset)
    with_wr = _Requests(WROpcode.RDMA_READ, 0, remote)
    what = f"a READ of {size} bytes"
    if isinstance(into, MR | SGE):
        sge = _writable(qp, into, size)
        _run(qp, iter([(with_wr.sge(sge, offset), None)]), deadline, what)
        return b""
    result = bytearray(size) if into is None else None
    target = memoryview(result) if result is not None else _target(into, size)
    _run(qp, _read_pieces(qp, size, with_wr, offset), deadline, what, _copier(target))
    return bytes(result) if result is not None else b""


def _read_pieces(
    qp: SecureQP, size: int, with_wr: _Requests, offset: int
) -> Iterator[tuple[SendWR, MR | None]]:
    for at in range(0, max(size, 1), STAGE):
        length = min(STAGE, size - at)
        bounce = qp.pd.bounces.take(length)
        yield with_wr.sge(bounce.sge(0, length), offset + at), bounce


def _copier(target: memoryview) -> Callable[[Request, WC], None]:
    """Copies what arrives, piece by piece, in order."""
    at = 0

    def copy(request: Request, wc: WC) -> None:
        nonlocal at
        assert request.bounce is not None
        length = min(STAGE, len(target) - at)
        target[at : at + length] = request.bounce.buf[:length]
        at += length

    return copy


def send(qp: SecureQP, data: Buffer | MR | SGE, imm: int | None, deadline: float | None) -> None:
    source = _source(qp, data)
    opcode = WROpcode.SEND if imm is None else WROpcode.SEND_WITH_IMM
    bounce = None
    if isinstance(source, SGE):
        wr = SendWR(opcode=opcode, sg=[source], imm_data=imm or 0)
    elif len(source) <= MAX_INLINE:
        wr = SendWR(opcode=opcode, data=source, imm_data=imm or 0)
    else:
        bounce = qp.pd.bounces.take(len(source))
        bounce.buf[: len(source)] = source
        wr = SendWR(opcode=opcode, sg=[bounce.sge(0, len(source))], imm_data=imm or 0)
    length = wr.length
    _run(qp, iter([(wr, bounce)]), deadline, f"a SEND of {length} bytes")


def recv(qp: SecureQP, size: int, into: MR | SGE | None, deadline: float | None) -> Message:
    own = None if into is None else _writable(qp, into, None)
    request = qp.take_receive() or _post_receive(qp, size, own)
    try:
        wc = qp.finish(request, deadline)
    except BaseException:
        qp.release(request)
        raise
    if wc is None:
        qp.leave_receive(request)
        raise Timeout("no message arrived in time; the receive stays posted")
    try:
        return _message(request, wc)
    finally:
        qp.release(request)


def _post_receive(qp: SecureQP, size: int, own: SGE | None) -> Request:
    if own is not None:
        return qp.submit(RecvWR(sg=[own]))
    if not 0 <= size <= MAX_MESSAGE:
        raise LocalError(f"size {size}: a message has at most {MAX_MESSAGE} bytes")
    bounce = qp.pd.bounces.take(size)
    return qp.submit(RecvWR(sg=[bounce.sge(0, size)]), bounce)


def _message(request: Request, wc: WC) -> Message:
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


# Parts ---------------------------------------------------------------------------


class _Requests(NamedTuple):
    """Makes the work requests of one call."""

    opcode: WROpcode
    imm: int
    remote: RemoteMR

    def sge(self, sge: SGE, offset: int) -> SendWR:
        wr = SendWR(opcode=self.opcode, sg=[sge], imm_data=self.imm)
        wr.set_remote(self.remote, offset)
        return wr

    def inline(self, data: memoryview, offset: int) -> SendWR:
        wr = SendWR(opcode=self.opcode, data=data, imm_data=self.imm)
        wr.set_remote(self.remote, offset)
        return wr

    def without_imm(self) -> _Requests:
        return self._replace(opcode=WROpcode.RDMA_WRITE, imm=0)


def _run(
    qp: SecureQP,
    pieces: Iterator[tuple[SendWR, MR | None]],
    deadline: float | None,
    what: str,
    arrived: Callable[[Request, WC], None] | None = None,
) -> None:
    """Post the pieces in order, a few at a time, and see each one's end."""
    flying: deque[Request] = deque()

    def land() -> None:
        wc = qp.finish(flying[0], deadline)
        if wc is None:
            raise Timeout(f"{what} did not end in time: it may still be executed")
        if arrived is not None:
            arrived(flying[0], wc)
        qp.release(flying.popleft())

    try:
        for wr, bounce in pieces:
            flying.append(qp.submit(wr, bounce))
            if len(flying) == IN_FLIGHT:
                land()
        while flying:
            land()
    finally:
        for request in flying:
            qp.release(request)


def _source(qp: SecureQP, data: Buffer | MR | SGE) -> SGE | memoryview:
    """Data as the work request needs it, of legal length."""
    source = data.sge() if isinstance(data, MR) else data
    if isinstance(source, SGE):
        qp.check_sge(source)
        length = source.length
    else:
        source = as_bytes(source)
        length = len(source)
    _check_length(length)
    return source


def _writable(qp: SecureQP, into: MR | SGE, size: int | None) -> SGE:
    """Where `size` bytes may be written, all of it for None."""
    sge = into.sge() if isinstance(into, MR) else into
    qp.check_sge(sge)
    if sge.mr is None:
        raise LocalError("an SGE of no region: give an MR, or mr[a:b]")
    if not sge.mr.access & Access.LOCAL_WRITE:
        raise BufferAccessError("the region was registered without LOCAL_WRITE: nothing may arrive")
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
    """Any buffer as plain bytes, without a copy."""
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


def _check_remote(length: int, remote: RemoteMR, offset: int) -> None:
    """Before anything is copied or sent."""
    _check_length(length)
    if offset < 0 or offset + length > remote.length:
        raise BoundsError(
            f"a message of {length} bytes at offset {offset} does not fit into the remote "
            f"memory region of {remote.length} bytes"
        )
