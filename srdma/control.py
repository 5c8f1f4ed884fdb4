"""Client of a worker's control socket; owner of its messages in Python (protocol.md 10).

One message per packet: a header, then a body whose layout is a row of the
tables below. A request waits for its answer; several threads may ask at once.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from srdma.errors import (
    ClosedError,
    DeviceError,
    LocalError,
    NoWorkerError,
    RefusedError,
    Timeout,
    WorkerGone,
)

VERSION = 1
MAX_MESSAGE = 1024
TIMEOUT = 10.0
ALLOW_UNPROTECTED = 1  # flag of HELLO's answer

_MAX_FDS = 2  # that an answer brings
_HEADER = struct.Struct(">HHII")
_UCRED = struct.Struct("iII")  # pid, uid, gid
_WIRE_LEN, _IDENTITY_LEN = 64, 256  # of padded texts, the last zero included


class Kind(IntEnum):
    """Of a message."""

    HELLO = 1
    OPEN = 2
    ATTACH = 3
    REG_MR = 4
    DEREG_MR = 5
    INIT = 6
    KEYS = 7
    WAIT = 8
    DESTROY = 9
    STATS = 10
    KEY = 11


class HostKind(IntEnum):
    """How hosts reach the worker."""

    SHM = 1
    VERBS = 2


class QPState(IntEnum):
    """Of a QP at its worker (protocol.md 7)."""

    INIT = 1
    RTR = 2
    RTS = 3
    ERR = 4


_REQUEST = {
    Kind.HELLO: struct.Struct(">I"),
    Kind.OPEN: struct.Struct(">I"),
    Kind.ATTACH: struct.Struct(">16s"),
    Kind.REG_MR: struct.Struct(">IIQQIIQ"),
    Kind.DEREG_MR: struct.Struct(">II"),
    Kind.INIT: struct.Struct(">IIIII"),
    Kind.KEYS: struct.Struct(">IBBBBBB2x8s16sIQIII64s256s32s32s"),
    Kind.WAIT: struct.Struct(">I"),
    Kind.DESTROY: struct.Struct(">I"),
    Kind.STATS: struct.Struct(""),
}
_ANSWER = {
    Kind.HELLO: struct.Struct(">IIII64s64s64s32s"),
    Kind.OPEN: struct.Struct(">I16s64s"),
    Kind.ATTACH: struct.Struct(">I"),
    Kind.REG_MR: struct.Struct(">I"),
    Kind.INIT: struct.Struct(">I16sQIII32s64s"),
    Kind.WAIT: struct.Struct(">II"),
}
_NOTHING = struct.Struct("")
_A = TypeVar("_A", bound="_Answer")


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode()


class _Answer:
    """A dataclass whose fields stand in the order of the body; str is padded text."""

    kind: ClassVar[Kind]

    @classmethod
    def decode(cls: type[_A], body: bytes) -> _A:
        values: tuple[Any, ...] = _ANSWER[cls.kind].unpack(body)
        texts = [f.type == "str" for f in fields(cls)]  # type: ignore[arg-type]
        return cls(*(_text(v) if t else v for v, t in zip(values, texts, strict=True)))


@dataclass(frozen=True)
class Hello(_Answer):
    """What a worker says of itself."""

    kind: ClassVar[Kind] = Kind.HELLO
    version: int
    flags: int
    host_kind: int
    pid: int
    host_device: str
    wire: str
    name: str
    suite_ids: bytes

    @property
    def suites(self) -> tuple[int, ...]:
        """Ids of the suites that the worker has: the recommended ones first, by their speed."""
        return tuple(self.suite_ids.rstrip(b"\0"))

    @property
    def allow_unprotected(self) -> bool:
        return bool(self.flags & ALLOW_UNPROTECTED)


@dataclass(frozen=True, repr=False)
class LegInfo(_Answer):
    """A leg: its token admits a verbs leg, or another control connection. Never shown."""

    kind: ClassVar[Kind] = Kind.OPEN
    leg: int
    token: bytes
    address: str


@dataclass(frozen=True)
class QPInfo(_Answer):
    """What INIT gives, and END of protocol.md 8.2 tells the peer."""

    kind: ClassVar[Kind] = Kind.INIT
    qpn: int
    eid: bytes
    pn: int
    mtu: int
    window: int
    reads: int
    random: bytes
    wire: str


@dataclass(frozen=True)
class MRRequest:
    """Body of REG_MR, in its order."""

    leg: int
    access: int
    address: int
    length: int
    host_rkey: int = 0
    scope_qpn: int = 0
    fd_offset: int = 0


@dataclass(frozen=True)
class QPRequest:
    """Body of INIT, in its order."""

    leg: int
    sq: int
    rq: int
    timeout_ms: int = 0
    mtu: int = 0


@dataclass(frozen=True, repr=False)
class Keys:
    """Body of KEYS, in its order. The secrets may be bytearrays, to be wiped; they never show."""

    qpn: int
    role: int
    suite: int
    level: int
    tag_len: int
    mode: int
    secret_len: int
    generation: bytes
    peer_eid: bytes
    peer_qpn: int
    peer_pn: int
    peer_mtu: int
    peer_window: int
    peer_reads: int
    peer_wire: str
    peer_identity: str
    tx_secret: bytes | bytearray
    rx_secret: bytes | bytearray


def pack(kind: Kind, *values: Any) -> bytearray:
    """Body of a request; a value that the layout cannot hold is a LocalError."""
    layout = _REQUEST[kind]
    body = bytearray(layout.size)
    try:
        layout.pack_into(body, 0, *(v.encode() if isinstance(v, str) else v for v in values))
    except struct.error as e:
        raise LocalError(f"{kind.name}: a value is outside what the message can hold: {e}") from e
    return body


def socket_path(worker: str | os.PathLike[str] | None = None) -> Path:
    """Control socket of a worker: a path, or a name in $XDG_RUNTIME_DIR/srdma."""
    chosen = os.fspath(worker) if worker is not None else os.environ.get("SRDMA_WORKER", "")
    if not chosen:
        raise NoWorkerError(
            "no worker is named: give Context(worker=PATH or NAME) or set SRDMA_WORKER; "
            "a worker is started by srdma-offload --name NAME --wire-dev shm:DIR"
        )
    if "/" in chosen:
        return Path(chosen)
    run = os.environ.get("XDG_RUNTIME_DIR")
    if not run:
        raise NoWorkerError(
            f"worker {chosen}: XDG_RUNTIME_DIR is not set, so a name leads nowhere: "
            "give the path of the worker's control socket"
        )
    return Path(run) / "srdma" / f"{chosen}.sock"


def _connect_error(path: Path, e: OSError) -> DeviceError:
    start = f"start one: srdma-offload --control {path} --wire-dev shm:DIR"
    causes = {
        errno.ENOENT: f"no worker at {path}: {start}",
        errno.ECONNREFUSED: f"no worker listens at {path} any more: {start}",
        errno.EACCES: f"{path} belongs to another user: a worker serves its own user only",
        errno.EPROTOTYPE: f"{path} is no worker's control socket",
        errno.ENOTSOCK: f"{path} is no worker's control socket",
    }
    return NoWorkerError(causes.get(e.errno or 0, f"{path}: {e}"))


def _check_user(sock: socket.socket, path: Path) -> None:
    """Whoever listens gets memory and secrets: as the worker, trust this user and root only."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _, uid, _ = _UCRED.unpack(credentials)
    own = os.geteuid()
    if own not in (uid, 0) and uid != 0:
        raise NoWorkerError(
            f"{path}: user {uid} listens there, this process is user {own}'s: "
            "use a worker of this user or of root"
        )


class Control:
    """One connection to a worker."""

    def __init__(self, sock: socket.socket, where: str = "the worker") -> None:
        sock.setblocking(False)
        self._sock = sock
        self._where = where
        self._lock = threading.Lock()
        self._tag = 0

    @classmethod
    def connect(cls, path: Path, timeout: float = TIMEOUT) -> Control:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(timeout)
        try:
            sock.connect(os.fspath(path))
        except OSError as e:
            sock.close()
            raise _connect_error(path, e) from e
        try:
            _check_user(sock, path)
        except DeviceError:
            sock.close()
            raise
        return cls(sock, f"the worker at {path}")

    @classmethod
    def from_fd(cls, fd: int) -> Control:
        """Take over a connected socket, as `srdma.keyex` is given one."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def alive(self) -> bool:
        """False once the worker closed this connection."""
        try:
            found = self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if found and self._lock.acquire(blocking=False):
            # Nobody asks now: an answer to a request that timed out.
            try:
                self._discard()
            finally:
                self._lock.release()
        return found != b""

    def _discard(self) -> None:
        with contextlib.suppress(OSError):
            _close_all(self._receive()[1])

    def request(
        self,
        kind: Kind,
        body: bytes | bytearray = b"",
        fds: Sequence[int] = (),
        timeout: float = TIMEOUT,
    ) -> tuple[bytes, list[int]]:
        """Send one request; its answer's body, and the fds that came with it."""
        deadline = time.monotonic() + timeout
        with self._lock:
            if self._sock.fileno() < 0:
                raise ClosedError(f"the connection to {self._where} is closed")
            self._tag += 1
            message = bytearray(_HEADER.pack(kind, 0, self._tag, 0)) + body
            try:
                self._send(message, fds, deadline)
                return self._answer(kind, self._tag, deadline)
            except TimeoutError as e:
                raise Timeout(f"{self._where} gave no answer to {kind.name} in {timeout} s") from e
            except ConnectionError as e:
                raise WorkerGone(f"{self._where} is gone: {e.strerror}") from e
            finally:
                message[:] = bytes(len(message))  # KEYS holds secrets

    def _send(self, message: bytearray, fds: Sequence[int], deadline: float) -> None:
        while True:
            try:
                socket.send_fds(self._sock, [message], list(fds))
                return
            except BlockingIOError:
                self._wait_for(select.POLLOUT, deadline)

    def _answer(self, kind: Kind, tag: int, deadline: float) -> tuple[bytes, list[int]]:
        while True:
            self._wait_for(select.POLLIN, deadline)
            data, fds = self._receive()
            if len(data) < _HEADER.size:
                _close_all(fds)
                raise WorkerGone(f"{self._where} closed the connection")
            got_kind, _, got_tag, status = _HEADER.unpack_from(data)
            if (got_kind, got_tag) == (kind, tag):
                break
            _close_all(fds)  # of a request that timed out
        body = data[_HEADER.size :]
        if status:
            _close_all(fds)
            raise RefusedError(status, _refusal(kind, status, body))
        if len(body) != _ANSWER.get(kind, _NOTHING).size and kind is not Kind.STATS:
            _close_all(fds)
            raise DeviceError(f"{self._where} answered {kind.name} with {len(body)} bytes")
        return body, fds

    def _receive(self) -> tuple[bytes, list[int]]:
        """One message; socket.recv_fds() of Python 3.11 forgets its flags."""
        fds = array.array("i")
        space = socket.CMSG_LEN(_MAX_FDS * fds.itemsize)
        data, control, _, _ = self._sock.recvmsg(MAX_MESSAGE, space, socket.MSG_CMSG_CLOEXEC)
        for level, kind, found in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(found[: len(found) - len(found) % fds.itemsize])
        return data, list(fds)

    def _wait_for(self, events: int, deadline: float) -> None:
        """Poll, because a timeout of the socket would also make alive() wait."""
        poll = select.poll()
        poll.register(self._sock, events)
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000 + 1):
            raise TimeoutError

    def hello(self) -> Hello:
        """Check the version and learn what the worker is."""
        body, _ = self.request(Kind.HELLO, pack(Kind.HELLO, VERSION))
        answer = Hello.decode(body)
        if answer.version != VERSION:
            raise DeviceError(
                f"{self._where} speaks control version {answer.version}, this is {VERSION}: "
                "use a worker and a library of the same release"
            )
        return answer

    def open(self, ring: int, fds: Sequence[int] = ()) -> tuple[LegInfo, list[int]]:
        """Open a leg; it ends with this connection."""
        body, got = self.request(Kind.OPEN, pack(Kind.OPEN, ring), fds)
        return LegInfo.decode(body), got

    def attach(self, token: bytes) -> int:
        """Use a leg that another connection opened; its number."""
        return self._number(Kind.ATTACH, pack(Kind.ATTACH, token))

    def reg_mr(self, mr: MRRequest, fd: int | None = None) -> int:
        """Register memory, that of fd if it has one; its key."""
        body = pack(Kind.REG_MR, *(getattr(mr, f.name) for f in fields(mr)))
        return self._number(Kind.REG_MR, body, () if fd is None else (fd,))

    def dereg_mr(self, leg: int, key: int, timeout: float = TIMEOUT) -> None:
        """Returns when no DMA names the key any more."""
        self.request(Kind.DEREG_MR, pack(Kind.DEREG_MR, leg, key), timeout=timeout)

    def init(self, qp: QPRequest) -> QPInfo:
        """Make a QP."""
        body, _ = self.request(
            Kind.INIT, pack(Kind.INIT, *(getattr(qp, f.name) for f in fields(qp)))
        )
        return QPInfo.decode(body)

    def keys(self, keys: Keys) -> None:
        """Give a QP its peer and its secrets."""
        for text, size in ((keys.peer_wire, _WIRE_LEN), (keys.peer_identity, _IDENTITY_LEN)):
            if len(text.encode()) >= size:
                raise LocalError(f"{text[:64]!r}: at most {size - 1} bytes")
        body = pack(Kind.KEYS, *(getattr(keys, f.name) for f in fields(keys)))
        try:
            self.request(Kind.KEYS, body)
        finally:
            body[:] = bytes(len(body))

    def wait(self, qpn: int, timeout: float) -> tuple[QPState, int]:
        """Wait until a QP is RTS or ERR; its state and reason."""
        body, _ = self.request(Kind.WAIT, pack(Kind.WAIT, qpn), timeout=timeout)
        state, reason = _ANSWER[Kind.WAIT].unpack(body)
        return QPState(state), reason

    def destroy(self, qpn: int, timeout: float = TIMEOUT) -> None:
        """Returns when all DMA of the QP has ended."""
        self.request(Kind.DESTROY, pack(Kind.DESTROY, qpn), timeout=timeout)

    def stats(self) -> tuple[int, ...]:
        """The counters, in the order of csrc/stats.h."""
        body, _ = self.request(Kind.STATS)
        return struct.unpack(f">{len(body) // 8}Q", body[: len(body) // 8 * 8])

    def _number(self, kind: Kind, body: bytearray, fds: Sequence[int] = ()) -> int:
        answer, _ = self.request(kind, body, fds)
        number: int = _ANSWER[kind].unpack(answer)[0]
        return number


def _refusal(kind: Kind, status: int, body: bytes) -> str:
    text = body.decode(errors="replace").strip("\0")
    return f"the worker refused {kind.name}: {text or os.strerror(status)}"


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
