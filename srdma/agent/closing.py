"""Closes files that programs passed, without waiting.

close() can block without a limit: on a TCP socket with SO_LINGER, on a FUSE file whose server
hangs, and on a Unix socket with such a file in its queue. Threads that do nothing else close them,
as in a worker (offload/closer.h).
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import socket
import termios
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable

from srdma.agent.accounts import User

THREADS = 64  # of all users; while all of them hang, further files stay open
THREADS_OF_USER = 2
FILES_MAX = 1024  # of a user that wait for a thread: none is received any more
CROWDED_LOOK = 0.5  # seconds until a socket of a user with so many files is read again
FDS_MAX = 253  # files beside one message (SCM_MAX_FD)
DRAINED = 65_536  # bytes of one read

PATIENCE = 1.0  # seconds that closed() waits

File = tuple[int, Callable[[], object]]  # with what to call afterwards

_lock = threading.Lock()
_files: dict[User, deque[File]] = {}  # the user whose turn it is next comes first
_busy = Counter[User]()  # threads that close a file of a user
_threads = 0


def close_soon(user: User, fds: Iterable[int]) -> None:
    """Close files that a user passed soon, and own them from now on."""
    for fd in fds:
        _put(user, fd, lambda: None)


async def closed(user: User, fd: int) -> None:
    """As close_soon(), and wait until the file is closed, PATIENCE at most."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(done.set)

    _put(user, fd, tell)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await done.wait()


def waiting(user: User) -> int:
    """How many files of a user wait for a thread."""
    return len(_files.get(user, ()))


def crowded(user: User) -> bool:
    """True if no further files of this user should be received."""
    return waiting(user) >= FILES_MAX


def close_drained(user: User, sock: socket.socket) -> None:
    """Close a connected Unix socket now, and the files that wait in its queue soon; if there are
    too many of this user, the socket with its queue soon."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)  # the peer puts nothing into the queue any more
        while True:
            if crowded(user) and _has_data(sock):
                close_soon(user, [sock.detach()])
                return
            data, fds, _, _ = socket.recv_fds(sock, DRAINED, FDS_MAX, socket.MSG_DONTWAIT)
            close_soon(user, fds)
            if not data:
                break
    sock.close()


def _has_data(sock: socket.socket) -> bool:
    """False: no files are in its queue, because each file is beside a byte."""
    size = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, size)
    return size[0] > 0


def _put(user: User, fd: int, then: Callable[[], object]) -> None:
    global _threads
    with _lock:
        _files.setdefault(user, deque()).append((fd, then))
        if _threads == THREADS or _busy[user] >= THREADS_OF_USER:
            return
        _threads += 1
    try:
        threading.Thread(target=_work, name="closer", daemon=True).start()
    except RuntimeError:  # no thread can be started: the file waits for the next one
        with _lock:
            _threads -= 1


def _take(former: User | None) -> tuple[User, File] | None:
    """The next file, of the users by turns. former: whose file the thread has closed."""
    global _threads
    with _lock:
        if former is not None:
            _busy[former] -= 1
            if not _busy[former]:
                del _busy[former]
        for user, files in _files.items():
            if _busy[user] < THREADS_OF_USER:
                _busy[user] += 1
                del _files[user]
                file = files.popleft()
                if files:
                    _files[user] = files
                return user, file
        _threads -= 1
        return None


def _work() -> None:
    user: User | None = None
    while taken := _take(user):
        user, (fd, then) = taken
        with contextlib.suppress(OSError):
            os.close(fd)
        then()
