"""Closes files that programs passed, without waiting.

close() can block without a limit: on a TCP socket with SO_LINGER, on a FUSE file whose server
hangs, and on a Unix socket with such a file in its queue. Threads that do nothing else close them,
as in a worker (offload/closer.h).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable

THREADS = 64  # while all of them hang, further files stay open
FDS_MAX = 253  # files beside one message (SCM_MAX_FD)
DRAINED = 65_536  # bytes of one read

PATIENCE = 1.0  # seconds that closed() waits

_lock = threading.Lock()
_files: deque[tuple[int, Callable[[], object]]] = deque()  # with what to call afterwards
_threads = 0


def close_soon(fds: Iterable[int]) -> None:
    """Close files soon, and own them from now on."""
    for fd in fds:
        _put(fd, lambda: None)


async def closed(fd: int) -> None:
    """As close_soon(), and wait until the file is closed, PATIENCE at most."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(done.set)

    _put(fd, tell)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await done.wait()


def close_drained(sock: socket.socket) -> None:
    """Close a connected Unix socket now, and the files that wait in its queue soon."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)  # the peer puts nothing into the queue any more
        while True:
            data, fds, _, _ = socket.recv_fds(sock, DRAINED, FDS_MAX, socket.MSG_DONTWAIT)
            close_soon(fds)
            if not data:
                break
    sock.close()


def _put(fd: int, then: Callable[[], object]) -> None:
    global _threads
    with _lock:
        _files.append((fd, then))
        if _threads == THREADS:
            return
        _threads += 1
    try:
        threading.Thread(target=_work, name="closer", daemon=True).start()
    except RuntimeError:  # no thread can be started: the file waits for the next one
        with _lock:
            _threads -= 1


def _take() -> tuple[int, Callable[[], object]] | None:
    global _threads
    with _lock:
        if _files:
            return _files.popleft()
        _threads -= 1
        return None


def _work() -> None:
    while file := _take():
        fd, then = file
        with contextlib.suppress(OSError):
            os.close(fd)
        then()
