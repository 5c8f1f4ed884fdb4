"""Programs come at Unix sockets until a signal: common to agents and proxies."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Protocol

from srdma.agent.accounts import Door
from srdma.agent.audit import Audit
from srdma.errors import LocalError

BACKLOG = 512  # as of a worker
LOOK = 2.0  # seconds between two looks at the files of the configuration


class Place(Protocol):
    """Where programs connect."""

    @property
    def socket(self) -> Path: ...

    @property
    def mode(self) -> int: ...


class File(Protocol):
    """The configuration: a policy, or the file of a proxy."""

    path: Path

    def load(self) -> None: ...

    def stamp(self) -> tuple[int, ...]: ...


class Signals:
    """over: set by SIGTERM and SIGINT; hup: by SIGHUP."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.over, self.hup = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.over.set)
        loop.add_signal_handler(signal.SIGHUP, self.hup.set)

    async def until_over(
        self,
        works: Iterable[Coroutine[Any, Any, Any]],
        close: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Run all until the signal, or until one ends; then close() and raise its fault."""
        tasks = [asyncio.ensure_future(work) for work in works]
        ending = asyncio.ensure_future(self.over.wait())
        done, _ = await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in (ending, *tasks):
            task.cancel()
        await close()
        for task in done:
            task.result()  # a fault of this program


def notify_ready() -> None:
    """Tell the service manager that programs can connect (sd_notify). Without one: nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address[0] == "@":  # in the abstract namespace
        address = "\0" + address[1:]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
        contextlib.suppress(OSError),  # the service manager notices it by its time-out
    ):
        sock.sendto(b"READY=1", address)


async def accept_all(take: Callable[[socket.socket], None], listening: socket.socket) -> NoReturn:
    """Call take() with each new connection."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            sock, _ = await loop.sock_accept(listening)
        except OSError:  # no descriptors or memory
            await asyncio.sleep(LOOK / 20)
        else:
            take(sock)
            await asyncio.sleep(0)  # sock_accept() does not yield while connections wait


async def reload(
    file: File, changed: Callable[[], int], hup: asyncio.Event, audit: Audit
) -> NoReturn:
    """Read the file again when it changed. One that is not legal leaves the former in force.

    changed: does what follows from a new one. Returns how many connections that ended.
    """
    stamp = file.stamp()
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hup.wait(), LOOK)
        if not hup.is_set() and file.stamp() == stamp:
            continue
        hup.clear()
        stamp = file.stamp()
        try:
            file.load()
        except LocalError as error:
            audit("policy-refused", text=str(error))
            continue
        audit("policy", file=str(file.path), withdrawn=changed())
        stamp = file.stamp()


@contextlib.contextmanager
def bound(place: Place, kind: int = socket.SOCK_STREAM) -> Iterator[socket.socket]:
    """The listening socket of a policy, container or proxy. Raises LocalError."""
    path = os.fspath(place.socket)
    sock = socket.socket(socket.AF_UNIX, kind)
    with contextlib.closing(sock):
        _clear(place.socket, kind)
        before = os.umask(0o777 & ~place.mode)
        try:
            sock.bind(path)
            if isinstance(place, Door):
                os.chown(path, place.owner, place.group)
        except OSError as error:
            raise LocalError(f"cannot listen at {path}: {error.strerror or error}") from None
        finally:
            os.umask(before)
        try:
            sock.listen(BACKLOG)
            sock.setblocking(False)
            yield sock
        finally:
            with contextlib.suppress(FileNotFoundError):
                place.socket.unlink()


def _clear(path: Path, kind: int) -> None:
    """Remove the socket of an agent that has ended. Raises LocalError for any other file."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, kind)) as other:
        found = other.connect_ex(os.fspath(path))
    if found == 0:
        raise LocalError(f"an agent serves {path} already: stop it first")
    if not os.path.lexists(path):
        return
    # connect() to a file that is no socket is refused too.
    if found != errno.ECONNREFUSED or not path.is_socket():
        raise LocalError(
            f"{path} is in use, and not the socket of an agent that has ended: give another path "
            "in the policy"
        )
    path.unlink()
