"""The server of the key-value store (bench/kvs), a process of its own, told by frames on stdin.

    python -m srdma_bench.kvs.host

Requests: listen (worker, options, keys, capacity, slots, proof) -> address, serial; open (serial)
-> memory, of each QP an address with its rkey or a capability; state (serial) -> counters; end
(serial), once the client has said BYE. The end of stdin ends it.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from srdma import connection
from srdma.capability import Right
from srdma.connection import Connection, Listener
from srdma.context import Context
from srdma.demo.host import main
from srdma.errors import DeviceError, Error
from srdma.mr import MR
from srdma.native.constants import RING_MOST
from srdma.pd import PD
from srdma_bench.native import kvs as _kvs
from srdma_bench.perf.measure import ACCESS
from srdma_bench.serving import Serving

WAIT = 60.0
TURN_NS = 500_000_000  # of serving, between looks at whether the worker is there


class Served(Serving):
    """One client with its QPs, and a store for it alone."""

    def __init__(self, words: dict[str, Any]) -> None:
        super().__init__()
        self.store = _kvs.Store(words["capacity"])
        if (took := self.store.fill(words["keys"])) != words["keys"]:
            raise DeviceError(f"the store took {took} of {words['keys']} keys")
        self._slots, self._proof = words["slots"], words["proof"]
        self._regions: list[MR] = []
        self._there: Connection
        self._server: _kvs.Server
        with ExitStack() as stack:
            self._pd = stack.enter_context(
                PD(stack.enter_context(Context(Path(words["worker"]))), RING_MOST)
            )
            self._listener: Listener = stack.enter_context(
                connection.listen(("127.0.0.1", 0), self._pd, **words["options"])
            )
            self._stack = stack.pop_all()

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.address

    def open(self, sq: int) -> list[bytes]:
        """Accept the client, and serve it from now on. What it may write to."""
        self._there = self._stack.enter_context(self._listener.accept(WAIT))
        for qp in self._there.qps:
            region = self._pd.alloc(self._slots * _kvs.SLOT_LEN, ACCESS, qp=qp, proof=self._proof)
            self._regions.append(self._stack.enter_context(region))
        served = [
            (qp.qp_num, sq, self._slots, region.buf)
            for qp, region in zip(self._there.qps, self._regions, strict=True)
        ]
        offers = [self._offer(region) for region in self._regions]
        self._server = _kvs.Server(*self._pd.engine.shm(), self.store, served)
        self.start()
        return offers

    def _offer(self, region: MR) -> bytes:
        if self._proof:
            return region.capability(rights=Right.WRITE).to_bytes()
        return region.remote().to_bytes()

    def serve(self) -> None:
        while not self._pd.engine.ended:
            with self._pd.engine.lock:
                if not self._server.run(TURN_NS):
                    return
        raise DeviceError("the worker of the store is gone")

    def state(self) -> dict[str, int]:
        counts = self._server.counts
        return counts | {"keys": self.store.count, "spares": self.store.spares}

    def close(self) -> None:
        """Once its client has ended."""
        try:
            self.wait(WAIT)
        finally:
            if not self.is_alive():
                del self._server
                self.drop()

    def drop(self) -> None:
        """That nobody came for."""
        self._stack.close()


class KvsHost:
    """Its clients by number."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self._numbers = itertools.count()
        self._served: dict[int, Served] = {}

    def listen(self, **words: Any) -> dict[str, Any]:
        serial, served = next(self._numbers), Served(words)
        self._served[serial] = served
        return {"address": list(served.address), "serial": serial}

    def open(self, serial: int, sq: int) -> dict[str, Any]:
        served = self._served[serial]
        try:
            return {"memory": served.open(sq)}
        except Error:
            self._served.pop(serial).drop()
            raise

    def state(self, serial: int) -> dict[str, Any]:
        return dict(self._served[serial].state())

    def end(self, serial: int) -> dict[str, Any]:
        self._served.pop(serial).close()
        return {}


if __name__ == "__main__":
    sys.exit(main(KvsHost()))
