"""A worker that a test controls (local-interface.md 2 to 4): it answers the control socket, shows
the descriptors that a host posted, and completes them with the records that the test writes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.reference.host import RECORD_LEN, Descriptor, Record, decode_descriptor

HEADER = struct.Struct(">HHII")
HELLO, OPEN, ATTACH, REG_MR, DEREG_MR, INIT, KEYS, WAIT, DESTROY, STATS, KEY = range(1, 12)
ROTATE, REKEY, EXPIRE, END, LIFE, AGENT, PROVE, KEEP, ADOPT = range(16, 25)
SLOT, SLOTS_AT = 520, 128
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2

Handler = Callable[["Leg | None", bytes, list[int]], tuple[bytes, list[int]]]


class Refuse(Exception):  # noqa: N818 - an order, not a fault
    """Raised by a handler to refuse the request."""

    def __init__(self, errno: int, text: str) -> None:
        super().__init__(text)
        self.errno = errno


class Leg:
    """The worker's end of a leg's shared memory."""

    def __init__(self, ring: int, fds: list[int]) -> None:
        self.ring = ring
        self.records_at = -(-(SLOTS_AT + ring * SLOT) // 4096) * 4096
        self.memory = mmap.mmap(fds[0], self.records_at + ring * RECORD_LEN)
        self.host_wake = socket.socket(fileno=os.dup(fds[1]))
        self.eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.bell = os.memfd_create("bell", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.bell, 4096)
        fcntl.fcntl(self.bell, F_ADD_SEALS, F_SEAL_SHRINK)
        self.taken = 0
        self.written = 0
        self.payloads: list[bytes] = []

    def descriptors(self) -> list[Descriptor]:
        """Returns the descriptors posted since the last call. Their payloads are in `payloads`."""
        found: list[Descriptor] = []
        self.payloads = []
        while self.taken != struct.unpack_from("=I", self.memory, 64)[0]:
            at = SLOTS_AT + self.taken % self.ring * SLOT
            (length,) = struct.unpack_from("=I", self.memory, at)
            slot = self.memory[at + 8 : at + 8 + length]
            found.append(decode_descriptor(slot))
            self.payloads.append(slot[64:])
            self.taken += 1
            struct.pack_into("=I", self.memory, 0, self.taken)
        return found

    def complete(self, record: Record) -> None:
        """Writes a record with the next sequence number and signals the host."""
        at = self.records_at + self.written % self.ring * RECORD_LEN
        self.written += 1
        data = record.encode()[:-4] + struct.pack(">I", self.written)
        self.memory[at : at + RECORD_LEN] = data
        with contextlib.suppress(BlockingIOError):  # the host has a wake-up already
            self.host_wake.send(b"\x01", socket.MSG_DONTWAIT)

    def close(self) -> None:
        self.memory.close()
        self.host_wake.close()
        for fd in (self.eventfd, self.bell):
            os.close(fd)


class FakeWorker:
    """Serves one control socket in a thread. A test may change `handlers`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.legs: list[Leg] = []
        self.seen: list[tuple[int, bytes, int]] = []  # kind, body, number of fds
        self.version, self.flags, self.suites = 1, 0, bytes([1, 3, 7])
        self.handlers: dict[int, Handler] = {
            HELLO: self._hello,
            OPEN: self._open,
            ATTACH: lambda leg, body, fds: (struct.pack(">II64s", 1, os.getuid(), b""), []),
            REG_MR: lambda leg, body, fds: (struct.pack(">I", 0x1000 + len(self.seen)), []),
            DEREG_MR: lambda leg, body, fds: (b"", []),
            INIT: self._init,
            KEYS: lambda leg, body, fds: (b"", []),
            WAIT: lambda leg, body, fds: (struct.pack(">II", 3, 0), []),
            DESTROY: lambda leg, body, fds: (b"", []),
            STATS: lambda leg, body, fds: (struct.pack(">3Q", 5, 6, 7), []),
            KEY: lambda leg, body, fds: (os.urandom(80), []),
            ROTATE: lambda leg, body, fds: (struct.pack(">II", 1, 0), []),
            REKEY: lambda leg, body, fds: (b"", []),
            EXPIRE: lambda leg, body, fds: (b"", []),
            END: lambda leg, body, fds: (b"", []),
            LIFE: lambda leg, body, fds: (b"", []),
            AGENT: lambda leg, body, fds: (b"", []),
            PROVE: lambda leg, body, fds: (struct.pack(">II32s", 0, 0, os.urandom(32)), []),
            KEEP: lambda leg, body, fds: (b"", []),
            ADOPT: self._adopt,
        }
        self.silent: set[int] = set()  # kinds that get no response
        self._qpn = 0x100
        self.eid = os.urandom(16)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind(os.fspath(path))
        self._server.listen()
        self._conns: dict[int, tuple[socket.socket, Leg | None]] = {}
        self._stop_r, self._stop_w = os.pipe()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def leg(self) -> Leg:
        return self.legs[-1]

    def kinds(self) -> list[int]:
        return [kind for kind, _, _ in self.seen]

    def wait_for_connections(self, n: int) -> None:
        """Waits until at most n connections are open."""
        deadline = time.monotonic() + 10
        while len(self._conns) > n and time.monotonic() < deadline:
            time.sleep(0.001)

    def die(self) -> None:
        """Ends like a process after kill -9: everything closes, and the file
        of the socket stays."""
        if self._thread.is_alive():
            os.write(self._stop_w, b"!")
            self._thread.join()

    def close(self) -> None:
        self.die()
        for leg in self.legs:
            leg.close()
        self.legs.clear()
        os.close(self._stop_r)
        os.close(self._stop_w)

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._server, select.POLLIN)
        poll.register(self._stop_r, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._stop_r:
                    self._server.close()
                    for conn, _ in self._conns.values():
                        conn.close()
                    return
                if fd == self._server.fileno():
                    conn, _ = self._server.accept()
                    self._conns[conn.fileno()] = conn, None
                    poll.register(conn, select.POLLIN)
                elif not self._answer(fd):
                    poll.unregister(fd)
                    self._conns[fd][0].close()
                    del self._conns[fd]

    def _answer(self, fd: int) -> bool:
        conn, leg = self._conns[fd]
        try:
            data, fds, _, _ = socket.recv_fds(conn, 8192, 3)
        except ConnectionResetError:  # the client ended with an answer unread
            return False
        if not data:
            return False
        kind, _, tag, _ = HEADER.unpack_from(data)
        self.seen.append((kind, data[HEADER.size :], len(fds)))
        if kind in self.silent:
            return True
        status, out = 0, []
        try:
            body, out = self.handlers[kind](leg, data[HEADER.size :], fds)
        except Refuse as refusal:
            status, body = refusal.errno, str(refusal).encode()
        if kind == OPEN and not status:
            self._conns[fd] = conn, self.leg
        for got in fds:
            os.close(got)
        with contextlib.suppress(OSError):
            socket.send_fds(conn, [HEADER.pack(kind, 0, tag, status) + body], out)
        return True

    def _hello(self, leg: Leg | None, body: bytes, fds: list[int]) -> tuple[bytes, list[int]]:
        names = [b"fake-device", b"fake-wire", b"fake"]
        padded = b"".join(name.ljust(64, b"\0") for name in names)
        head = struct.pack(">IIII", self.version, self.flags, 1, os.getpid())
        return head + padded + self.suites.ljust(32, b"\0") + struct.pack(">II16s", 1, 0, b""), []

    def _open(self, leg: Leg | None, body: bytes, fds: list[int]) -> tuple[bytes, list[int]]:
        made = Leg(struct.unpack(">II", body)[0], fds)
        self.legs.append(made)
        return struct.pack(">I16s64s", len(self.legs), bytes(16), b""), [made.eventfd, made.bell]

    def _adopt(self, leg: Leg | None, body: bytes, fds: list[int]) -> tuple[bytes, list[int]]:
        raise Refuse(errno.ENOENT, "nothing more is kept")

    def _init(self, leg: Leg | None, body: bytes, fds: list[int]) -> tuple[bytes, list[int]]:
        self._qpn += 1
        body = struct.pack(">I16sQIII", self._qpn, self.eid, 1 << 23, 4096, 128, 16)
        return body + os.urandom(32) + b"fake".ljust(64, b"\0"), []
