"""Control sockets: their paths, and the user at the other end (local-interface.md 3.1)."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from srdma.errors import DeviceError, NoWorkerError

_UCRED = struct.Struct("iII")  # pid, uid, gid


def socket_path(worker: str | os.PathLike[str] | None = None) -> Path:
    """Path of a worker's control socket. worker: a path, or a name in $XDG_RUNTIME_DIR/srdma.

    Default: $SRDMA_WORKER. Raises NoWorkerError if none is named or the name cannot be resolved.
    """
    chosen = os.fspath(worker) if worker is not None else os.environ.get("SRDMA_WORKER", "")
    if not chosen:
        raise NoWorkerError(
            "no worker is named: give Context(worker=PATH or NAME) or set SRDMA_WORKER; "
            "start a worker by srdma-offload --name NAME --wire-dev shm:DIR"
        )
    if "/" in chosen:
        return Path(chosen)
    run = os.environ.get("XDG_RUNTIME_DIR")
    if not run:
        raise NoWorkerError(
            f"worker {chosen}: XDG_RUNTIME_DIR is not set, so names cannot be resolved: "
            "give the path of the worker's control socket"
        )
    return Path(run) / "srdma" / f"{chosen}.sock"


def thread_path(path: Path, thread: int) -> Path:
    """Path of the control socket of worker process `thread`; `path` is that of process 0."""
    return path.with_name(f"{path.name}.{thread}") if thread else path


def connect_error(path: Path, e: OSError) -> DeviceError:
    """The error for a failed connect()."""
    start = f"start one: srdma-offload --control {path} --wire-dev shm:DIR"
    causes = {
        errno.ENOENT: f"no worker at {path}: {start}",
        errno.ECONNREFUSED: f"the worker at {path} has ended: {start}",
        errno.EACCES: f"{path} belongs to another user: use a worker of this user, or a system "
        "agent (agent=)",
        errno.EPROTOTYPE: f"{path} is no worker's control socket",
        errno.ENOTSOCK: f"{path} is no worker's control socket",
    }
    return NoWorkerError(causes.get(e.errno or 0, f"{path}: {e}"))


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the process at the other end of a Unix socket."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(credentials)
    return pid, uid


def served_by(sock: socket.socket, pid: int) -> bool:
    """True if this process, or its parent, listened at the other end of a Unix socket."""
    listener, _ = peer_of(sock)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    parent = stat.rpartition(")")[2].split()[1]  # proc(5): pid (comm) state ppid
    return listener in (pid, int(parent))


def check_user(sock: socket.socket, path: Path, trusted: int | None = None) -> None:
    """Raise NoWorkerError unless the worker is of this user, root or `trusted`: it gets memory and
    secrets. A process of root may use any worker."""
    _, uid = peer_of(sock)
    own = os.geteuid()
    if own not in (uid, 0) and uid not in (0, trusted):
        raise NoWorkerError(
            f"{path}: the worker is of user {uid}, this process is of user {own}: "
            "use a worker of this user or of root, or a system agent (agent=)"
        )


def close_all(fds: Iterable[int]) -> None:
    """Close file descriptors that arrived beside a message."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def wipe(secret: bytearray) -> None:
    secret[:] = bytes(len(secret))
