"""Client of a worker's control socket (protocol.md 10).

One message per packet (native.control encodes and decodes them). A request waits for its answer;
several threads may call at once.
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
from pathlib import Path
from typing import Any

from srdma.control import forked
from srdma.control.messages import (
    CapabilityRequest,
    Direction,
    Hello,
    KeyRequest,
    Keys,
    Kind,
    LegInfo,
    MRRequest,
    QPInfo,
    QPRequest,
    QPState,
    Rotation,
    values_of,
)
from srdma.errors import (
    ClosedError,
    DeviceError,
    LocalError,
    NoWorkerError,
    RefusedError,
    Timeout,
    WorkerGone,
)
from srdma.native import control
from srdma.native.constants import HOLDER_LEN, NAME_LEN

TIMEOUT = 10.0

_MAX_FDS = 2  # that an answer brings
_UCRED = struct.Struct("iII")  # pid, uid, gid


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


def thread_path(path: Path, thread: int) -> Path:
    """Control socket of a thread of the worker whose first one has `path`."""
    return path.with_name(f"{path.name}.{thread}") if thread else path


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
        forked.drop(sock)
        self._sock = sock
        self._where = where
        self._lock = threading.Lock()
        self._tag = 0
        self._buffer = bytearray(control.MAX_MESSAGE)  # answers arrive here: a secret can be wiped

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
        values: Sequence[Any] = (),
        fds: Sequence[int] = (),
        timeout: float = TIMEOUT,
    ) -> tuple[tuple[Any, ...], list[int]]:
        """Send one request; the values of its answer, and the fds that came with it.

        A value that its field cannot hold is a LocalError.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            if self._sock.fileno() < 0:
                raise ClosedError(f"the connection to {self._where} is closed")
            self._tag += 1
            try:
                message = control.encode(kind, self._tag, values)
            except ValueError as e:
                raise LocalError(
                    f"{kind.name}: a value is outside what the message can hold: {e}"
                ) from e
            try:
                self._send(message, fds, deadline)
                return self._answer(kind, self._tag, deadline)
            except TimeoutError as e:
                raise Timeout(f"{self._where} gave no answer to {kind.name} in {timeout} s") from e
            except ConnectionError as e:
                raise WorkerGone(f"{self._where} is gone: {e.strerror}") from e
            finally:
                _wipe(message)  # KEYS, REKEY and INSTALL hold secrets

    def _send(self, message: bytearray, fds: Sequence[int], deadline: float) -> None:
        while True:
            try:
                socket.send_fds(self._sock, [message], list(fds))
                return
            except BlockingIOError:
                self._wait_for(select.POLLOUT, deadline)

    def _answer(self, kind: Kind, tag: int, deadline: float) -> tuple[tuple[Any, ...], list[int]]:
        while True:
            self._wait_for(select.POLLIN, deadline)
            data, fds = self._receive()
            if len(data) < control.HEADER_LEN:
                _close_all(fds)
                raise WorkerGone(f"{self._where} closed the connection")
            head = control.peek(data)
            if head is not None and head[:2] == (kind, tag):
                break
            _close_all(fds)  # the answer to a request that timed out
            _wipe(data)
        try:
            return self._values(kind, head[2], data), fds
        except DeviceError:
            _close_all(fds)
            raise
        finally:
            _wipe(data)

    def _values(self, kind: Kind, status: int, data: bytearray) -> tuple[Any, ...]:
        """The values of an answer; raises if it is a refusal or not legal."""
        try:
            found = control.decode(data)
        except ValueError as e:
            found = ""
            if not status:
                size = len(data) - control.HEADER_LEN
                raise DeviceError(
                    f"{self._where} answered {kind.name} with {size} bytes that are no legal "
                    "answer: use a worker and a library of the same release"
                ) from e
        if isinstance(found, str):
            text = found or os.strerror(status)
            raise RefusedError(status, f"the worker refused {kind.name}: {text}")
        return found

    def _receive(self) -> tuple[bytearray, list[int]]:
        """One message; socket.recv_fds() of Python 3.11 forgets its flags."""
        fds = array.array("i")
        space = socket.CMSG_LEN(_MAX_FDS * fds.itemsize)
        size, control, _, _ = self._sock.recvmsg_into(
            [self._buffer], space, socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, found in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(found[: len(found) - len(found) % fds.itemsize])
        data = self._buffer[:size]
        self._buffer[:size] = bytes(size)
        return data, list(fds)

    def _wait_for(self, events: int, deadline: float) -> None:
        """Poll, because a timeout of the socket would also make alive() wait."""
        poll = select.poll()
        poll.register(self._sock, events)
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000 + 1):
            raise TimeoutError

    def hello(self, timeout: float = TIMEOUT) -> Hello:
        """Check the version and learn what the worker is."""
        values, _ = self.request(Kind.HELLO, [control.VERSION], timeout=timeout)
        answer = Hello.of(values)
        if answer.version != control.VERSION:
            raise DeviceError(
                f"{self._where} speaks control version {answer.version}, this is "
                f"{control.VERSION}: "
                "use a worker and a library of the same release"
            )
        return answer

    def open(
        self, ring: int, fds: Sequence[int] = (), *, shared: bool = False
    ) -> tuple[LegInfo, list[int]]:
        """Open a leg, for a trust group if it is shared; it ends with this connection."""
        flags = control.SHARED if shared else 0
        values, got = self.request(Kind.OPEN, [ring, flags], fds)
        return LegInfo.of(values), got

    def attach(self, token: bytes) -> int:
        """Use a leg that another connection opened; its number."""
        return self._number(Kind.ATTACH, [token])

    def reg_mr(self, mr: MRRequest, fd: int | None = None) -> int:
        """Register memory, that of fd if it has one; its key."""
        return self._number(Kind.REG_MR, values_of(mr), () if fd is None else (fd,))

    def dereg_mr(self, leg: int, key: int, timeout: float = TIMEOUT) -> None:
        """Returns when no DMA names the key any more."""
        self.request(Kind.DEREG_MR, [leg, key], timeout=timeout)

    def init(self, qp: QPRequest) -> QPInfo:
        """Make a QP."""
        values, _ = self.request(Kind.INIT, values_of(qp))
        return QPInfo.of(values)

    def keys(self, keys: Keys) -> None:
        """Give a QP its peer and its secrets."""
        for text, size in (
            (keys.peer_wire, NAME_LEN),
            (keys.peer_identity, control.IDENTITY_LEN),
        ):
            if len(text.encode()) >= size:
                raise LocalError(f"{text[:64]!r}: at most {size - 1} bytes")
        self.request(Kind.KEYS, values_of(keys))

    def key(self, wanted: KeyRequest) -> tuple[bytearray, bytearray]:
        """Key mode pd: the secret that the peer shall seal with, and the group's key (zero unless
        it is wanted). The caller wipes both."""
        w = wanted
        request = [w.qpn, w.size, int(w.group), w.generation, w.peer_eid, w.peer_qpn]
        (secret, group_key), _ = self.request(Kind.KEY, request)
        found = secret[: w.size]
        _wipe(secret)
        return found, group_key

    def capability(self, cap: CapabilityRequest) -> bytes:
        """Make a capability; its token, sealed if it has a holder or an expiry."""
        if len(cap.holder) not in (0, HOLDER_LEN):
            raise LocalError(f"{len(cap.holder)} bytes: a holder has {HOLDER_LEN} bytes, or none")
        (token,), _ = self.request(Kind.CAP, values_of(cap))
        return bytes(token)

    def install(self, leg: int, token: bytes | bytearray) -> int:
        """Keep a capability for the requests of a leg; the handle that names it there."""
        least, most = control.TOKEN_MIN, control.TOKEN_MAX
        if not least <= len(token) <= most:
            raise LocalError(f"a token of {len(token)} bytes: a capability has {least} to {most}")
        return self._number(Kind.INSTALL, [leg, token])

    def uninstall(self, leg: int, handle: int) -> None:
        """Requests that still name the handle fail."""
        self.request(Kind.UNINSTALL, [leg, handle])

    def revoke(
        self, leg: int, key: int, offset: int = 0, length: int = 0, timeout: float = TIMEOUT
    ) -> None:
        """Void every capability for a range of a region (0, 0: all of it). Returns when no DMA
        from before names the range; after a Timeout they are void, but DMA may be under way."""
        self.request(Kind.REVOKE, [leg, key, offset, length], timeout=timeout)

    def rotate(self, leg: int, age: int) -> Rotation:
        """Another K_PD for a leg, if its own is at least `age` seconds old and no key of a QP
        hangs on the one before; which one it has then."""
        values, _ = self.request(Kind.ROTATE, [leg, age])
        return Rotation.of(values)

    def rekey(
        self, qpn: int, direction: Direction, size: int = 0, secret: bytes | bytearray = b""
    ) -> None:
        """A new secret of `size` bytes for a direction of a QP that has its keys, zero where the
        worker derives it. RefusedError with EBUSY: one waits already; BOTH only asks that."""
        self.request(Kind.REKEY, [qpn, direction, size, secret])

    def expire(self, qpn: int) -> None:
        """The QP goes to error: its keys may not be used any more."""
        self.request(Kind.EXPIRE, [qpn])

    def end(self, qpn: int, reason: int) -> None:
        """The QP goes to error for a reason: its peer is known to be gone."""
        self.request(Kind.END, [qpn, reason])

    def wait(self, qpn: int, timeout: float) -> tuple[QPState, int]:
        """Wait until a QP is RTS or ERR; its state and reason."""
        (state, reason), _ = self.request(Kind.WAIT, [qpn], timeout=timeout)
        return QPState(state), reason

    def destroy(self, qpn: int, timeout: float = TIMEOUT) -> None:
        """Returns when all DMA of the QP has ended."""
        self.request(Kind.DESTROY, [qpn], timeout=timeout)

    def stats(self) -> tuple[int, ...]:
        """The counters, in the order of csrc/wire/stats.h."""
        (counters,), _ = self.request(Kind.STATS)
        found: tuple[int, ...] = counters
        return found

    def _number(self, kind: Kind, values: Sequence[Any], fds: Sequence[int] = ()) -> int:
        (found,), _ = self.request(kind, values, fds)
        number: int = found
        return number


def _wipe(secret: bytearray) -> None:
    secret[:] = bytes(len(secret))


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
