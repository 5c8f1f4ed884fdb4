"""Closes files that programs passed, without waiting.

close() can block without a limit: on a TCP socket with SO_LINGER, on a FUSE file whose server
hangs, and on a Unix socket with such a file in its queue. Threads that do nothing else close them,
as in a worker (offload/closer.h).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Iterable

THREADS = 64  # while all of them hang, further files stay open
FDS_MAX = 253  # files beside one message (SCM_MAX_FD)
DRAINED = 65_536  # bytes of one read

_lock = threading.Lock()
_files: deque[int] = deque()
_threads = 0


def close_soon(fds: Iterable[int]) -> None:
    """Close files soon, and own them from now on."""
    for fd in fds:
        if _put(fd):
            threading.Thread(target=_work, name="closer", daemon=True).start()


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


def _put(fd: int) -> bool:
    """True if a thread is to be started."""
    global _threads
    with _lock:
        _files.append(fd)
        if _threads == THREADS:
            return False
        _threads += 1
        return True


def _take() -> int | None:
    global _threads
    with _lock:
        if _files:
            return _files.popleft()
        _threads -= 1
        return None


def _work() -> None:
    while (fd := _take()) is not None:
        with contextlib.suppress(OSError):
            os.close(fd)
