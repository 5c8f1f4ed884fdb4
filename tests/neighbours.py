"""Other processes at a worker: control connections that belong to a process of their own.

A worker knows a client by the process that connected (SO_PEERCRED). A neighbour is a child that
connects, hands the connection to the test, and lives until the test ends it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon import PATIENCE, Client

_CHILD = """
import socket, sys
channel, worker = socket.socket(fileno=0), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
address = 0
exec(sys.argv[2])
worker.connect(sys.argv[1])
socket.send_fds(channel, [address.to_bytes(8, "big")], [worker.fileno()])
channel.recv(1)
"""

PAGES = 4
# Pages that are absent: a fault waits for a handler in user space, and nothing handles it.
_ABSENT = f"""
import ctypes, fcntl, mmap, os, struct
libc = ctypes.CDLL(None, use_errno=True)
handler = libc.syscall(323 if os.uname().machine == "x86_64" else 282, os.O_CLOEXEC)
memory = mmap.mmap(-1, {PAGES} * mmap.PAGESIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
try:
    fcntl.ioctl(handler, 0xC018AA3F, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))
    wanted = struct.pack("QQQQ", address, {PAGES} * mmap.PAGESIZE, 1, 0)
    fcntl.ioctl(handler, 0xC020AA00, bytearray(wanted))
except OSError:
    address = 0
"""


@contextmanager
def neighbour(control: Path, first: str = "") -> Iterator[Client]:
    """A client whose process is not the test's. first: code that it runs before it connects."""
    with _connected(control, first) as (client, _):
        yield client


@contextmanager
def absent_memory(control: Path) -> Iterator[tuple[Client, int]]:
    """A client whose process has memory that blocks all who access it, and its address. The address
    is 0 if the kernel refuses userfaultfd."""
    with _connected(control, _ABSENT) as found:
        yield found


@contextmanager
def _connected(control: Path, first: str) -> Iterator[tuple[Client, int]]:
    here, there = socket.socketpair()
    here.settimeout(PATIENCE)
    command = [sys.executable, "-c", _CHILD, str(control), first]
    with here, subprocess.Popen(command, stdin=there.fileno()) as child:
        there.close()
        try:
            address, (fd,), _, _ = socket.recv_fds(here, 8, 1)
            client = Client.of(socket.socket(fileno=fd))
            yield client, int.from_bytes(address, "big")
            client.close()
        finally:
            child.kill()
