"""Host B of the demo: a process with one region, controlled by frames on stdin
(_engine/frames.py).

    python -m srdma.demo.host

Requests and results: listen (worker, options, size, host) -> address; accept -> identity, suite;
recv -> data; fill (offset, data); look (offset, length) -> data; stats -> counters; hang_up. A
request that fails returns {error}. The process ends at the end of stdin.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from srdma import Access, Connection, Context, Listener, connection
from srdma._engine.frames import read_frame, write_frame
from srdma.errors import Error
from srdma.mr import MR
from srdma.pd import PD

WAIT = 60.0  # seconds for a connection or a message


class HostB:
    """State of host B: one context per worker, and the newest connection."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()
        self._contexts: dict[str, tuple[Context, PD]] = {}
        self._context: Context
        self._region: MR
        self._listener: Listener
        self._connection: Connection

    def _pd(self, worker: str) -> PD:
        if worker not in self._contexts:
            context = self.stack.enter_context(Context(Path(worker)))
            self._contexts[worker] = context, self.stack.enter_context(PD(context))
        self._context, pd = self._contexts[worker]
        return pd

    def listen(
        self, worker: str, options: dict[str, Any], size: int, host: str = "127.0.0.1"
    ) -> dict[str, Any]:
        pd = self._pd(worker)
        rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ

        def offer(there: Connection) -> bytes:
            scope = there.qp if len(there.qps) == 1 else there.identity
            self._region = pd.alloc(size, rights, scope=scope)
            return self._region.remote().to_bytes()

        self._listener = connection.listen((host, 0), pd, data=offer, **options)
        return {"address": list(self._listener.address)}

    def accept(self) -> dict[str, Any]:
        self._connection = self._listener.accept(WAIT)
        return {"identity": self._connection.identity, "suite": list(self._connection.suite)}

    def recv(self, size: int) -> dict[str, Any]:
        return {"data": bytes(self._connection.qp.recv(WAIT, size=size).data)}

    def fill(self, offset: int, data: bytes) -> dict[str, Any]:
        self._region.buf[offset : offset + len(data)] = data
        return {}

    def look(self, offset: int, length: int) -> dict[str, Any]:
        return {"data": bytes(self._region.buf[offset : offset + length])}

    def stats(self) -> dict[str, Any]:
        return dict(self._context.stats())

    def hang_up(self) -> dict[str, Any]:
        self._connection.close()
        self._listener.close()
        self._region.close()
        return {}


class Host(Protocol):
    """The methods are the requests; each returns a map."""

    stack: contextlib.ExitStack


def main(host: Host) -> int:
    logging.getLogger("srdma").setLevel(logging.ERROR)  # no warnings of level none: it is intended
    stdin, stdout = sys.stdin.fileno(), sys.stdout.fileno()
    write_frame(stdout, {"up": os.getpid()})
    with host.stack:
        while request := read_frame(stdin):
            do: Callable[..., dict[str, Any]] = getattr(host, request.pop("do"))
            try:
                answer = do(**request)
            except Error as error:
                answer = {"error": str(error)}
            write_frame(stdout, answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(HostB()))
