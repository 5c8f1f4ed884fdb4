"""The connections of an agent to its workers, for each leg and for all of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from srdma import gid as gids
from srdma.agent.rule import Rule
from srdma.agent.settings import TOKEN_LEN
from srdma.agent.takeover import Keeper
from srdma.agent.worker import Worker
from srdma.keyex.fields import ExchangeError


class Workers:
    """See the description of the module."""

    def __init__(self, rule: Rule, keeper: Keeper | None, know: Callable[[bytes], None]) -> None:
        """keeper: of a system agent. know: called with the GID of the worker, and with gids.NONE
        once no worker is there."""
        self._rule, self._keeper, self._know = rule, keeper, know
        self._of_legs: dict[tuple[Path, bytes], Worker] = {}
        self._met: set[Worker] = set()

    async def kept(self, path: Path) -> Worker:
        """See Keeper.worker(). The GID of a worker is known from here on, until it ends.

        Raises WorkerGone, Timeout too. The next call then asks for the GID again.
        """
        assert self._keeper
        worker = await self._keeper.worker(path)
        if worker not in self._met:
            gid = worker.control.hello().gid
            self._met.add(worker)
            worker.ended.add_done_callback(partial(self._parted, worker))
            self._know(gid)
        return worker

    async def hold(self, path: Path, token: bytes) -> Worker:
        """The connections to a worker process for one leg: they can use no QP of another leg.

        They end with the last release(). Raises NoWorkerError, and RefusedError if no leg has the
        token.
        """
        if len(token) != TOKEN_LEN:
            raise ExchangeError("config", f"token must have {TOKEN_LEN} bytes")
        kept = await self.kept(path) if self._keeper else None
        worker = self._of_legs.get((path, token))
        if worker is None or worker.ended.done():
            if kept:
                kept.control.attach(token)  # else any number of wrong tokens would be connected
            worker = self._open(path, token)
            self._of_legs[path, token] = worker
        worker.sessions += 1
        return worker

    def release(self, worker: Worker) -> None:
        worker.sessions -= 1
        if not worker.sessions:
            worker.close()
            if self._of_legs.get((worker.path, worker.token)) is worker:
                del self._of_legs[worker.path, worker.token]

    @contextlib.asynccontextmanager
    async def held(self, path: Path, token: bytes) -> AsyncIterator[Worker]:
        """hold() and release()."""
        worker = await self.hold(path, token)
        try:
            yield worker
        finally:
            self.release(worker)

    # Internal ---------------------------------------------------------------

    def _parted(self, worker: Worker, _: object) -> None:
        self._met.discard(worker)
        if not self._met:
            self._know(gids.NONE)

    def _open(self, path: Path, token: bytes) -> Worker:
        """Connections for one leg."""
        worker = Worker(path, self._rule.worker_user, token)
        try:
            if self._keeper:
                worker.take_role(attached=True)
        except BaseException:
            worker.close()
            raise
        return worker
