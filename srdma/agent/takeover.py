"""Take-over of sessions after a restart of a system agent (agent.md 8).

The agent has the role AGENT at each process of its worker (local-interface.md 3.8). The worker
keeps the records of its sessions, and gives them to the next agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from srdma.agent.record import Record
from srdma.agent.worker import Worker
from srdma.control import Control, thread_path
from srdma.errors import DeviceError, RefusedError, Timeout
from srdma.keyex.secrets import unless_ended

ROLE_TIMEOUT = 5.0  # seconds until the worker has noticed the end of the former agent
ROLE_RETRY = 0.05
ATTEND_EVERY = 2.0  # seconds


class Keeper:
    """The role at the processes of one worker."""

    def __init__(
        self, trusted: int | None = None, welcome: Callable[[Control], None] = lambda _: None
    ) -> None:
        """trusted: a uid whose workers get secrets, besides those of this user and root. welcome:
        called with a connection to each process at which the role was taken."""
        self._trusted, self._welcome = trusted, welcome
        self._workers: dict[Path, Worker] = {}
        self._lock = asyncio.Lock()

    async def worker(self, path: Path) -> Worker:
        """The connections that have the role at this process, for all legs.

        Raises NoWorkerError, and RefusedError if another agent serves the worker.
        """
        async with self._lock:
            found = self._workers.get(path)
            if found is None or not found.alive():
                if found:
                    found.close()
                found = self._workers[path] = await _with_role(path, self._trusted)
                self._welcome(found.control)
            return found

    async def attend(self, path: Path) -> NoReturn:
        """Take the role soon after a worker on this computer started again, also if no program asks
        for it. path: of the control socket of its process 0."""
        known: Worker | None = None
        while True:
            await asyncio.sleep(ATTEND_EVERY)
            with contextlib.suppress(DeviceError, Timeout):  # it does not run, or has another agent
                first = await self.worker(path)
                if first is not known:
                    for thread in range(1, first.control.hello().threads):
                        await self.worker(thread_path(path, thread))
                    known = first

    def each(self, call: Callable[[Control], None]) -> None:
        """Call it with a connection to each process that has not ended."""
        for worker in self._workers.values():
            if worker.alive():
                call(worker.control)

    def keep(self, record: Record, path: Path) -> None:
        """Let the worker keep a session. Raises RefusedError, LocalError."""
        worker = self._workers.get(path)
        if worker and record.agreement.secret_size:
            with unless_ended():
                worker.control.keep(record.agreement.qpns, record.to_bytes())

    def kept(self, worker: Worker) -> Iterator[Record]:
        """The sessions that the worker keeps. The record of another version of srdma is left out:
        its QPs live until their secrets are too old."""
        after = 0
        while (kept := worker.control.adopt(after)) is not None:
            after = kept.serial
            try:
                yield Record.of(kept)
            except Exception:  # bytes that are no record may raise any exception
                continue

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


async def _with_role(path: Path, trusted: int | None) -> Worker:
    worker = Worker(path, trusted)
    try:
        async with asyncio.timeout(ROLE_TIMEOUT):
            while not _takes_role(worker):
                await asyncio.sleep(ROLE_RETRY)
    except TimeoutError:
        worker.close()
        raise RefusedError(
            errno.EBUSY, f"another agent serves the worker at {path}: stop it first"
        ) from None
    except BaseException:
        worker.close()
        raise
    return worker


def _takes_role(worker: Worker) -> bool:
    try:
        worker.take_role()
    except RefusedError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
