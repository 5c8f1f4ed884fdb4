"""Client of a worker's control socket (local-interface.md 3).

A message is one packet, encoded and decoded by native.control. A request blocks until its answer;
several threads may call at the same time.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from srdma.control import forked
from srdma.control.messages import (
    CapabilityRequest,
    Direction,
    Hello,
    Kept,
    KeyRequest,
    Keys,
    Kind,
    LegInfo,
    Limits,
    MRRequest,
    Proof,
    QPInfo,
    QPRequest,
    QPState,
    Rotation,
    values_of,
)
from srdma.control.sockets import check_user, close_all, connect_error, served_by, wipe
from srdma.errors import ClosedError, DeviceError, LocalError, RefusedError, Timeout, WorkerGone
from srdma.native import control
from srdma.native.constants import HOLDER_LEN, NAME_LEN, PROOF_LEN, PROVE_CONTEXT_LEN

TIMEOUT = 10.0
# For requests that wait for DMA. It is longer than the limits of DMA (protocol.md 5) and of a leg
# whose host is lost (local-interface.md 2.4).
DMA_TIMEOUT = 20.0

IN_FLIGHT = 16  # requests whose answers the socket has room for

ENDED = errno.ENOTCONN, errno.ENOENT  # errors for a QP that has ended

_BEYOND_LIMIT = Kind.HELLO, 0, errno.EDQUOT  # what a refused connection gets: kind, tag, status
_MAX_FDS = 2  # file descriptors of an answer, at most


class Control:
    """A control connection to a worker process (local-interface.md 3). Thread-safe.

    Calls raise RefusedError if the worker refuses, WorkerGone, Timeout, or ClosedError if closed.
    """

    def __init__(self, sock: socket.socket, where: str = "the worker") -> None:
        sock.setblocking(False)
        forked.drop(sock)
        self._sock = sock
        self.where = where
        self._lock = threading.Lock()
        self._tag = 0
        self._buffer = bytearray(control.MAX_MESSAGE)  # for answers: a secret can be wiped

    @classmethod
    def connect(cls, path: Path, timeout: float = TIMEOUT, user: int | None = None) -> Control:
        """Connect to the control socket at `path`. Raises NoWorkerError.

        user: a uid whose workers are trusted too, besides those of this user and root.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(timeout)
        try:
            sock.connect(os.fspath(path))
        except OSError as e:
            sock.close()
            raise connect_error(path, e) from e
        try:
            check_user(sock, path, user)
        except DeviceError:
            sock.close()
            raise
        return cls(sock, f"the worker at {path}")

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def is_of(self, pid: int) -> bool:
        """True if HELLO's pid is one of this computer and PID namespace: see served_by()."""
        return served_by(self._sock, pid)

    def detach(self) -> socket.socket:
        """The socket, which the caller owns from now on. No request may be outstanding."""
        return socket.socket(fileno=self._sock.detach())

    def alive(self) -> bool:
        """False once the worker closed this connection."""
        try:
            found = self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if found and self._lock.acquire(blocking=False):
            # No request is outstanding: this answers one that timed out.
            try:
                self._discard()
            finally:
                self._lock.release()
        return found != b""

    def _discard(self) -> None:
        with contextlib.suppress(OSError):
            data, fds = self._receive()
            close_all(fds)
            wipe(data)  # a KEY answer holds secrets

    def request(
        self,
        kind: Kind,
        values: Sequence[Any] = (),
        fds: Sequence[int] = (),
        timeout: float = TIMEOUT,
    ) -> tuple[tuple[Any, ...], list[int]]:
        """Send a request and wait for its answer: (values, file descriptors).

        The caller closes the file descriptors. Raises LocalError for a value that does not fit into
        its field, DeviceError for an illegal answer, and the errors of the class.
        """
        deadline = time.monotonic() + timeout
        with self._lock, self._errors(kind, timeout):
            self._tag += 1
            self._post(kind, self._tag, values, fds, deadline)
            return self._answer(kind, self._tag, deadline)

    def requests(self, calls: Sequence[tuple[Kind, Sequence[Any]]]) -> list[RefusedError | None]:
        """Send requests, at most IN_FLIGHT ahead of their answers. Returns a refusal, or None, for
        each. Raises as request().

        calls: at least one, of kinds that the worker answers at once: answers come in this order.
        """
        deadline, found = time.monotonic() + TIMEOUT, list[RefusedError | None]()
        with self._lock, self._errors(calls[0][0], TIMEOUT):
            first = self._tag + 1
            for number in range(len(calls) + IN_FLIGHT - 1):
                if number < len(calls):
                    self._tag += 1
                    self._post(calls[number][0], self._tag, calls[number][1], (), deadline)
                if number + 1 >= IN_FLIGHT:
                    at = number + 1 - IN_FLIGHT
                    try:
                        self._answer(calls[at][0], first + at, deadline)
                        found.append(None)
                    except RefusedError as refused:
                        found.append(refused)
        return found

    def post(self, kind: Kind, tag: int, values: Sequence[Any] = ()) -> None:
        """Send a request without waiting for its answer, which take() returns.

        A connection is used either by post() and take() or by the other calls.
        """
        with self._lock, self._errors(kind, TIMEOUT):
            self._post(kind, tag, values, (), time.monotonic() + TIMEOUT)

    def take(self) -> tuple[int, tuple[Any, ...] | RefusedError]:
        """The tag and the values of the answer that makes this connection readable.

        Raises WorkerGone at the end of the connection.
        """
        data = bytearray()
        with contextlib.suppress(ConnectionError):
            data, fds = self._receive()
            close_all(fds)
        head = control.peek(data) if data else None
        if head is None:
            raise WorkerGone(f"{self.where} closed the connection")
        try:
            return head[1], self._values(Kind(head[0]), head[2], data)
        except RefusedError as refused:
            return head[1], refused

    @contextlib.contextmanager
    def _errors(self, kind: Kind, timeout: float) -> Iterator[None]:
        """Raise the errors of the class for those of the socket."""
        if self._sock.fileno() < 0:
            raise ClosedError(f"the connection to {self.where} is closed")
        try:
            yield
        except TimeoutError as e:
            raise Timeout(f"{self.where} did not answer {kind.name} in {timeout} s") from e
        except ConnectionError as e:
            raise WorkerGone(f"{self.where} ended: {e.strerror}") from e

    def _post(
        self, kind: Kind, tag: int, values: Sequence[Any], fds: Sequence[int], deadline: float
    ) -> None:
        try:
            message = control.encode(kind, tag, values)
        except ValueError as e:
            raise LocalError(f"{kind.name}: a value does not fit into its field: {e}") from e
        try:
            self._send(message, fds, deadline)
        finally:
            wipe(message)  # KEYS, REKEY and INSTALL hold secrets

    def _send(self, message: bytearray, fds: Sequence[int], deadline: float) -> None:
        while True:
            try:
                if fds:
                    socket.send_fds(self._sock, [message], list(fds))
                else:
                    self._sock.send(message)
                return
            except BrokenPipeError:
                return  # the answer says why the worker closed the connection
            except BlockingIOError:
                self._wait_for(select.POLLOUT, deadline)

    def _answer(self, kind: Kind, tag: int, deadline: float) -> tuple[tuple[Any, ...], list[int]]:
        while True:
            self._wait_for(select.POLLIN, deadline)
            try:
                data, fds = self._receive()
            except ConnectionResetError:
                data, fds = self._receive()  # what the worker sent before it closed the connection
            if len(data) < control.HEADER_LEN:
                close_all(fds)
                raise WorkerGone(f"{self.where} closed the connection")
            head = control.peek(data)
            if head is not None and (head[:2] == (kind, tag) or head == _BEYOND_LIMIT):
                break
            close_all(fds)  # the answer to a request that timed out
            wipe(data)
        try:
            return self._values(kind, head[2], data), fds
        except DeviceError:
            close_all(fds)
            raise
        finally:
            wipe(data)

    def _values(self, kind: Kind, status: int, data: bytearray) -> tuple[Any, ...]:
        """Values of an answer. Raises RefusedError for a refusal, DeviceError if it is illegal."""
        try:
            found = control.decode(data)
        except ValueError as e:
            found = ""
            if not status:
                size = len(data) - control.HEADER_LEN
                raise DeviceError(
                    f"{self.where} answered {kind.name} with {size} bytes that are no legal "
                    "answer: use a worker and a library of the same release"
                ) from e
        if isinstance(found, str):
            text = found or os.strerror(status)
            raise RefusedError(status, f"the worker refused {kind.name}: {text}")
        return found

    def _receive(self) -> tuple[bytearray, list[int]]:
        """Receive one message. socket.recv_fds() of Python 3.11 ignores its flags."""
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
        """Wait for poll() events. A socket time-out is not used: it would make alive() block."""
        poll = select.poll()
        poll.register(self._sock, events)
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000 + 1):
            raise TimeoutError

    def hello(self, timeout: float = TIMEOUT) -> Hello:
        """HELLO: check the version; returns properties of the worker. Raises DeviceError."""
        values, _ = self.request(Kind.HELLO, [control.VERSION], timeout=timeout)
        answer = Hello.of(values)
        if answer.version != control.VERSION:
            raise DeviceError(
                f"{self.where} has control version {answer.version}, this library has "
                f"{control.VERSION}: "
                "use a worker and a library of the same release"
            )
        return answer

    def open(
        self, ring: int, fds: Sequence[int] = (), *, shared: bool = False
    ) -> tuple[LegInfo, list[int]]:
        """OPEN a leg with a ring of `ring` records; shared: for a trust group.

        The leg ends with this connection. fds: the file descriptors of an shm leg; the caller
        closes those returned.
        """
        flags = control.SHARED if shared else 0
        values, got = self.request(Kind.OPEN, [ring, flags], fds)
        return LegInfo.of(values), got

    def attach(self, token: bytes) -> int:
        """ATTACH to a leg that another connection opened, by its token. Returns the leg number."""
        (leg, _, _), _ = self.request(Kind.ATTACH, [token])
        number: int = leg
        return number

    def reg_mr(self, mr: MRRequest, fd: int | None = None) -> int:
        """Register memory; fd: its memfd, if any. Returns the key, which is lkey and wire rkey."""
        return self._number(Kind.REG_MR, values_of(mr), () if fd is None else (fd,))

    def dereg_mr(self, leg: int, key: int, timeout: float = DMA_TIMEOUT) -> None:
        """Deregister memory. Returns when no DMA names the key any more."""
        self.request(Kind.DEREG_MR, [leg, key], timeout=timeout)

    def init(self, qp: QPRequest) -> QPInfo:
        """Make a QP, in state INIT."""
        values, _ = self.request(Kind.INIT, values_of(qp))
        return QPInfo.of(values)

    def keys(self, *each: Keys, life: int = 0) -> None:
        """KEYS: give QPs the values of their peers and their secrets; their state becomes RTR.
        LIFE of `life` seconds follows, if it is not 0. After a refusal some may have keys."""
        for keys in each:
            for text, size in (
                (keys.peer_wire, NAME_LEN),
                (keys.peer_identity, control.IDENTITY_LEN),
            ):
                if len(text.encode()) >= size:
                    raise LocalError(f"{text[:64]!r}: it may have at most {size - 1} bytes")
        calls: list[tuple[Kind, Sequence[Any]]] = [(Kind.KEYS, values_of(keys)) for keys in each]
        lives = [(Kind.LIFE, (keys.qpn, life)) for keys in each] if life else []
        self._all([*calls, *lives])

    def _all(self, calls: Sequence[tuple[Kind, Sequence[Any]]]) -> None:
        """As requests(). Raises the first refusal, but for LIFE of a QP that has ended."""
        for (kind, _), refused in zip(calls, self.requests(calls) if calls else (), strict=True):
            if refused and (kind is not Kind.LIFE or refused.errno not in ENDED):
                raise refused

    def key(self, wanted: KeyRequest) -> tuple[bytearray, bytearray]:
        """KEY, for key mode pd: (secret with which the peer seals, key of the trust group).

        The second is zero unless wanted.group. The caller wipes both.
        """
        w = wanted
        request = [w.qpn, w.size, int(w.group), w.generation, w.peer_eid, w.peer_qpn]
        (secret, group_key), _ = self.request(Kind.KEY, request)
        found = secret[: w.size]
        wipe(secret)
        return found, group_key

    def capability(self, cap: CapabilityRequest) -> bytes:
        """CAP: make a capability. Returns its token, sealed if it has a holder or an expiry."""
        if len(cap.holder) not in (0, HOLDER_LEN):
            raise LocalError(f"a holder of {len(cap.holder)} bytes: it must have {HOLDER_LEN} or 0")
        (token,), _ = self.request(Kind.CAP, values_of(cap))
        return bytes(token)

    def install(self, leg: int, token: bytes | bytearray) -> int:
        """Install a capability for the requests of a leg. Returns its handle, not 0."""
        least, most = control.TOKEN_MIN, control.TOKEN_MAX
        if not least <= len(token) <= most:
            raise LocalError(f"a token of {len(token)} bytes: a capability has {least} to {most}")
        return self._number(Kind.INSTALL, [leg, token])

    def uninstall(self, leg: int, handle: int) -> None:
        """Uninstall a capability. Requests that still name the handle fail, BAD_CAPABILITY."""
        self.request(Kind.UNINSTALL, [leg, handle])

    def revoke(
        self, leg: int, key: int, offset: int = 0, length: int = 0, timeout: float = DMA_TIMEOUT
    ) -> None:
        """Revoke every capability for a range of a region; offset 0 and length 0: all of it.

        Returns when no DMA from before names the range. After a Timeout the capabilities are void,
        but DMA may still be in progress.
        """
        self.request(Kind.REVOKE, [leg, key, offset, length], timeout=timeout)

    def withdraw(self, leg: int, key: int, timeout: float = DMA_TIMEOUT) -> None:
        """End the remote rights of a region. Returns when no DMA of a peer names it any more."""
        self.request(Kind.WITHDRAW, [leg, key], timeout=timeout)

    def rotate(self, leg: int, age: int) -> Rotation:
        """Replace K_PD of a leg if it is at least `age` seconds old and no key of a QP depends on
        the former one. Returns the state after that."""
        values, _ = self.request(Kind.ROTATE, [leg, age])
        return Rotation.of(values)

    def rekey(
        self, qpn: int, direction: Direction, size: int = 0, secret: bytes | bytearray = b""
    ) -> None:
        """Give a QP a new secret for a direction: `size` bytes, zeros if the worker derives it.

        RefusedError with EBUSY: a new secret waits already in that direction. BOTH gives no
        secret, and only asks whether one waits. WITHDRAW takes back the one that waits in RX,
        ENODATA if none waits; it is legal only if the peer never sends with it (protocol.md 8.6).
        """
        self.request(Kind.REKEY, [qpn, direction, size, secret])

    def agent(self, *, attached: bool = False) -> None:
        """Take the role of the agent: from now on only connections of this process that called
        agent() may give, renew and end keys. They may use every leg, or only those that they
        attached to if `attached`.

        RefusedError with EBUSY: another process has the role. EPERM: this user may not.
        """
        self.request(Kind.AGENT, [int(attached)])

    def prove(self, qpn: int, context: bytes, proof: bytes = b"") -> Proof:
        """Make the proof of this end for 32 bytes of context, or check `proof` of the peer.

        RefusedError with EBADMSG: the peer's proof differs. ENOTCONN: the QP is not in RTR or RTS.
        EPERM: it has level none.
        """
        for value, size in ((context, PROVE_CONTEXT_LEN), (proof or bytes(PROOF_LEN), PROOF_LEN)):
            if len(value) != size:
                raise LocalError(f"PROVE with {len(value)} bytes: {size} are needed")
        values, _ = self.request(Kind.PROVE, [qpn, int(proof != b""), context, proof])
        return Proof.of(values)

    def keep(self, qpns: Sequence[int], data: bytes) -> None:
        """Store 1 to 1,024 bytes for 1 to 256 QPs of one leg, for adopt() after a restart. They
        replace what these QPs had. A QPN of 0 keeps the place of a QP that has ended. Needs
        agent(). RefusedError with ENOTCONN: a QP has no keys, or all have ended.
        """
        packed = struct.pack(f">{len(qpns)}I", *qpns)
        self.request(Kind.KEEP, [len(qpns), len(data), packed, data])

    def adopt(self, after: int = 0) -> Kept | None:
        """The data of KEEP with the lowest serial above `after`; None after the last. Needs
        agent()."""
        try:
            return Kept.of(self.request(Kind.ADOPT, [after])[0])
        except RefusedError as refused:
            if refused.errno == errno.ENOENT:
                return None
            raise

    def restrict(self, account: str, limits: Limits, keep: int = 0, group: str = "") -> None:
        """Prepare this connection, which has the role for all legs, for a program of another user:
        it loses the role, and everything made by it is charged to the account. keep: seconds for
        which a leg over verbs outlives it. group: an account that several ones share, "": none.

        RefusedError with EDQUOT: the account, or its group, has too many connections.
        """
        self.request(Kind.RESTRICT, [*values_of(limits), account, keep, group])

    def expire(self, qpn: int) -> None:
        """Move a QP to ERR, reason KEY_LIMIT: its keys will not be renewed."""
        self.request(Kind.EXPIRE, [qpn])

    def life(self, qpn: int, seconds: int) -> None:
        """Move a QP to ERR, reason KEY_LIMIT, when `seconds` have passed and no later call gave
        another time. The worker measures them, also after this process has ended. seconds: 1 to
        2^31 - 1 (RefusedError with EINVAL). Without effect for a QP in ERR.
        """
        self.request(Kind.LIFE, [qpn, seconds])

    def lives(self, qpns: Sequence[int], seconds: int) -> None:
        """As life(), for several QPs, of which some may have ended."""
        self._all([(Kind.LIFE, (qpn, seconds)) for qpn in qpns])

    def end(self, qpn: int, reason: int) -> None:
        """Move a QP to ERR because its peer is gone. reason: 22 to 24 (protocol.md 13.1)."""
        self.request(Kind.END, [qpn, reason])

    def wait(self, qpn: int, timeout: float) -> tuple[QPState, int]:
        """Wait until a QP is in RTS or ERR. Returns (state, reason), reason 0 in RTS."""
        (state, reason), _ = self.request(Kind.WAIT, [qpn], timeout=timeout)
        return QPState(state), reason

    def destroy(self, qpn: int, timeout: float = DMA_TIMEOUT) -> None:
        """Destroy a QP. Returns when all its DMA has ended."""
        self.request(Kind.DESTROY, [qpn], timeout=timeout)

    def stats(self) -> tuple[int, ...]:
        """The counters, in the order of local-interface.md 3.7."""
        (counters,), _ = self.request(Kind.STATS)
        return tuple(counters)

    def _number(self, kind: Kind, values: Sequence[Any], fds: Sequence[int] = ()) -> int:
        (found,), _ = self.request(kind, values, fds)
        return int(found)
