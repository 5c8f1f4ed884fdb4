"""The worker as a process, and a client that sends raw control messages (local-interface.md 3, 4).

Written from protocol.md alone: it shares no code with srdma.control.
"""

from __future__ import annotations

import array
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BINARY = Path(os.environ.get("BUILD", ROOT / "build")) / "srdma-offload"
PATIENCE = 20  # seconds; long enough for a busy machine
HEADER = struct.Struct(">HHII")
RING = 256
PAGE = 4096
RTS, ERR = 3, 4
ACCESS_PROOF = 0x100
ACCESS_SHARED = 0x200
MAX_MESSAGE = 8192


class Kind(IntEnum):
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
    CAP = 12
    INSTALL = 13
    UNINSTALL = 14
    REVOKE = 15
    ROTATE = 16
    REKEY = 17
    EXPIRE = 18
    END = 19
    LIFE = 20
    AGENT = 21
    PROVE = 22
    KEEP = 23
    ADOPT = 24
    RESTRICT = 25
    QUOTA = 26
    USAGE = 27
    QPS = 28
    WITHDRAW = 29
    MODIFY = 30
    SHARE = 31
    RESET = 32
    REINIT = 33
    REPLACE = 34


TOKEN_MIN, TOKEN_MAX = 88, 4584
LENGTHS = {  # bytes of request bodies; INSTALL may be longer by up to TOKEN_MAX - TOKEN_MIN
    Kind.HELLO: 4,
    Kind.OPEN: 8,
    Kind.ATTACH: 16,
    Kind.REG_MR: 308,
    Kind.DEREG_MR: 8,
    Kind.INIT: 20,
    Kind.KEYS: 492,
    Kind.WAIT: 4,
    Kind.DESTROY: 4,
    Kind.STATS: 0,
    Kind.KEY: 36,
    Kind.CAP: 48,
    Kind.INSTALL: 4 + TOKEN_MIN,
    Kind.UNINSTALL: 8,
    Kind.REVOKE: 24,
    Kind.ROTATE: 8,
    Kind.REKEY: 40,
    Kind.EXPIRE: 4,
    Kind.END: 8,
    Kind.LIFE: 8,
    Kind.AGENT: 4,
    Kind.PROVE: 72,
    Kind.KEEP: 2056,
    Kind.ADOPT: 8,
    Kind.RESTRICT: 156,
    Kind.QUOTA: 528,
    Kind.USAGE: 8,
    Kind.QPS: 8,
    Kind.WITHDRAW: 8,
    Kind.MODIFY: 20,
    Kind.SHARE: 8,
    Kind.RESET: 8,
    Kind.REINIT: 20,
    Kind.REPLACE: 12,
}


class RefusedError(Exception):
    """The worker's refusal: errno and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"[{status}] {text}")
        self.status, self.text = status, text


def memfd(size: int, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def leg_size(ring: int) -> int:
    descriptors = 128 + ring * 520
    return (descriptors + PAGE - 1) // PAGE * PAGE + ring * 32


def leg_fds(ring: int = RING) -> list[int]:
    """The memfd of the leg, the wake-up socket and the doorbell: the descriptors of OPEN.

    Nothing waits for the socket: its other end is closed.
    """
    end, wake = socket.socketpair()
    end.close()
    return [memfd(leg_size(ring)), wake.detach(), memfd(PAGE)]


def u32(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def text(value: str, size: int) -> bytes:
    return value.encode().ljust(size, b"\0")


@dataclass
class Qp:
    """The response to INIT."""

    qpn: int
    eid: bytes
    pn: int
    mtu: int
    window: int
    reads: int
    random: bytes
    wire: str

    @classmethod
    def of(cls, body: bytes) -> Qp:
        *values, wire = struct.unpack(">I16sQIII32s64s", body)
        return cls(*values, wire.rstrip(b"\0").decode())


def keys(qp: Qp, peer: Qp, role: int, **changes: Any) -> bytes:
    """The body of KEYS of a basic aes-128-gcm session between two QPs."""
    v: dict[str, Any] = {
        "role": role,
        "suite": 1,
        "level": 3,
        "tag": 16,
        "mode": 0,
        "secret": 16,
        "qpn": qp.qpn,
        "wire": peer.wire,
        "identity": b"spiffe://test/peer",
        "mtu": peer.mtu,
        "secrets": (b"0" * 16, b"1" * 16),
        "group": b"",
    } | changes
    return struct.pack(
        ">I6B2x8s16sIQIII64s256s32s32s48s",
        v["qpn"],
        *(v[name] for name in ("role", "suite", "level", "tag", "mode", "secret")),
        b"generate",
        peer.eid,
        peer.qpn,
        peer.pn,
        v["mtu"],
        peer.window,
        peer.reads,
        text(v["wire"], 64),
        v["identity"],
        v["secrets"][role],
        v["secrets"][1 - role],
        v["group"],
    )


def reg_mr(
    leg: int,
    access: int = 7,
    length: int = PAGE,
    offset: int = 0,
    tree: tuple[int, int] = (0, 0),
    address: int = 0x10000,
    identity: bytes = b"",
) -> bytes:
    """The body of REG_MR. tree: log2 of the block size, and the depth limit."""
    numbers = leg, access, address, length, 0, 0, offset, *tree
    return struct.pack(">IIQQIIQBB2x256s8x", *numbers, identity)


class Client:
    """One control connection."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(path))  # blocks while the worker's backlog is full
        self._begin()

    @classmethod
    def of(cls, connected: socket.socket) -> Client:
        """Makes a client of a connected socket."""
        client = cls.__new__(cls)
        client.socket = connected
        client._begin()
        return client

    def _begin(self) -> None:
        self.socket.settimeout(PATIENCE)
        self.tag = 0

    def send(self, kind: int, body: bytes = b"", fds: Sequence[int] = ()) -> int:
        """Sends a request. Returns its tag."""
        self.tag += 1
        self.send_raw(HEADER.pack(kind, 0, self.tag, 0) + body, fds)
        return self.tag

    def send_raw(self, data: bytes, fds: Sequence[int] = ()) -> None:
        if fds:
            socket.send_fds(self.socket, [data], list(fds))
        else:
            self.socket.send(data)

    def receive(self) -> tuple[int, int, int, bytes, list[int]]:
        """Returns kind, tag, status, body and descriptors of the next response."""
        space = socket.CMSG_SPACE(4 * 8)
        data, messages, _, _ = self.socket.recvmsg(MAX_MESSAGE, space, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise EOFError
        fds = array.array("i")
        for _, _, part in messages:
            fds.frombytes(part)
        kind, zero, tag, status = HEADER.unpack(data[: HEADER.size])
        assert zero == 0
        return kind, tag, status, data[HEADER.size :], list(fds)

    def request(
        self, kind: int, body: bytes = b"", fds: Sequence[int] = ()
    ) -> tuple[bytes, list[int]]:
        tag = self.send(kind, body, fds)
        got_kind, got_tag, status, answer, got_fds = self.receive()
        assert (got_kind, got_tag) == (kind, tag)
        if status:
            raise RefusedError(status, answer.decode())
        return answer, got_fds

    def refused(self, status: int, kind: int, body: bytes = b"", fds: Sequence[int] = ()) -> str:
        """Checks that the request fails with this errno and that the connection stays. Returns
        the text of the error."""
        try:
            self.request(kind, body, fds)
        except RefusedError as e:
            assert e.status == status, e
            assert self.alive()
            return e.text
        raise AssertionError(f"kind {kind} was not refused")

    def alive(self) -> bool:
        """Checks that the worker still responds on this connection."""
        body, _ = self.request(Kind.HELLO, struct.pack(">I", 1))
        return body[:4] == struct.pack(">I", 1)

    def closed(self) -> bool:
        """Checks that the worker closed the connection without an error message."""
        try:
            return self.socket.recv(2048) == b""
        except ConnectionError:
            return True

    def open(self, ring: int = RING, flags: int = 0) -> tuple[int, bytes]:
        """Opens a leg and returns it with its token. Closes the descriptors of both directions."""
        fds = leg_fds(ring)
        body, back = self.request(Kind.OPEN, u32(ring, flags), fds)
        for fd in fds + back:
            os.close(fd)
        assert len(back) == 2 and len(body) == 84 and body[20:] == bytes(64)
        return struct.unpack(">I16s", body[:20])

    def attach(self, token: bytes) -> int:
        """Returns the number of the leg."""
        return self.attached(token)[0]

    def attached(self, token: bytes) -> tuple[int, int, str]:
        """ATTACH. Returns the leg, the user that opened it, and its account."""
        leg, user, account = struct.unpack(">II64s", self.request(Kind.ATTACH, token)[0])
        return leg, user, account.rstrip(b"\0").decode()

    def init(self, leg: int, sq: int = 16, rq: int = 16) -> Qp:
        return Qp.of(self.request(Kind.INIT, struct.pack(">5I", leg, sq, rq, 0, 0))[0])

    def wait(self, qpn: int) -> tuple[int, int]:
        return struct.unpack(">II", self.request(Kind.WAIT, struct.pack(">I", qpn))[0])

    def number(self, kind: Kind, body: bytes, fds: Sequence[int] = ()) -> int:
        return int.from_bytes(self.request(kind, body, fds)[0], "big")

    def close(self) -> None:
        self.socket.close()


@dataclass
class Worker:
    """A running srdma-offload; its sockets are in one folder."""

    folder: Path
    name: str
    process: subprocess.Popen[bytes]
    errors: Path
    clients: list[Client] = field(default_factory=list)

    @property
    def control(self) -> Path:
        return self.folder / f"{self.name}.ctl"

    def client(self) -> Client:
        client = Client(self.control)
        self.clients.append(client)
        return client

    def log(self) -> str:
        return self.errors.read_text()

    def copies(self, needle: bytes) -> int:
        """Returns how often these bytes occur in the memory that the worker can write."""
        found = 0
        with (
            open(f"/proc/{self.process.pid}/maps") as maps,
            open(f"/proc/{self.process.pid}/mem", "rb", 0) as memory,
        ):
            for line in maps:
                span, rights, *_ = line.split()
                start, end = (int(part, 16) for part in span.split("-"))
                if "w" not in rights or end - start > 1 << 30:  # shadow memory of a sanitizer
                    continue
                memory.seek(start)
                found += memory.read(end - start).count(needle)
        return found

    def stop(self, sign: int = signal.SIGTERM) -> int:
        self.process.send_signal(sign)
        return self.process.wait(PATIENCE)

    def line(self) -> str:
        """Returns the next line of its standard output."""
        out = self.process.stdout
        assert out and select.select([out], [], [], PATIENCE)[0]
        return out.readline().decode()


def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the worker until it ends. Fails if that takes longer than PATIENCE."""
    env = {"PATH": os.environ["PATH"]} | environment
    return subprocess.run(
        [BINARY, *options], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@contextmanager
def worker(folder: Path, name: str = "a", *options: str, **environment: str) -> Iterator[Worker]:
    """Starts a worker and waits until it is ready. It is killed when the block ends."""
    errors = folder / f"{name}.err"
    command = [BINARY, "--name", name, "--control", folder / f"{name}.ctl"]
    command += ["--wire-dev", f"shm:{folder}", *options]
    with errors.open("wb") as err:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=err, env=os.environ | environment
        )
    found = Worker(folder, name, process, errors)
    try:
        wait_ready(found)
        yield found
    finally:
        for client in found.clients:
            client.close()
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def cpu_seconds(pid: int) -> float:
    """The time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.01)


def wait_ready(found: Worker) -> None:
    """Waits for the log line "ready NAME". The socket listens earlier, so a successful connect()
    does not show that the worker is ready."""
    for _ in range(PATIENCE * 100):
        assert found.process.poll() is None, found.log()
        if f"ready {found.name} " in found.log():
            return
        select.select([], [], [], 0.01)
    raise AssertionError(f"not ready: {found.log()}")
