"""The server of the key-value store (bench/kvs): a separate process, controlled by frames on stdin.

    python -m srdma_bench.kvs.host

Requests and results: listen (worker, options, keys, capacity, slots, proof) -> address, serial;
open (serial, sq) -> memory, per QP an address with its rkey or a capability; state (serial) ->
counters; end (serial), after the client has sent BYE. The process ends at the end of stdin.
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

WAIT = 60.0  # seconds for a connection, or for the end of a client
TURN_NS = 500_000_000  # ns of serving between checks that the worker still runs


class Served(Serving):
    """One client process with its QPs, and a store that no other client uses."""

    def __init__(self, words: dict[str, Any]) -> None:
        super().__init__()
        self.store = _kvs.Store(words["capacity"])
        if (took := self.store.fill(words["keys"])) != words["keys"]:
            raise DeviceError(
                f"the store took {took} of {words['keys']} keys: its capacity is too small"
            )
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
        """Accept the client, and start to serve it. sq: depth of each QP's send queue.

        Returns the request memory of each QP: a RemoteMR or a Capability as bytes.
        """
        self._there = self._stack.enter_context(self._listener.accept(WAIT))
        for qp in self._there.qps:
            region = self._pd.alloc(
                self._slots * _kvs.SLOT_LEN, ACCESS, scope=qp, proof=self._proof
            )
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
        raise DeviceError("the worker of the store ended")

    def state(self) -> dict[str, int]:
        counts = self._server.counts
        return counts | {"keys": self.store.count, "spares": self.store.spares}

    def close(self) -> None:
        """Wait until the client has ended, then free its resources."""
        try:
            self.wait(WAIT)
        finally:
            if not self.is_alive():
                del self._server
                self.drop()

    def drop(self) -> None:
        """Free the resources."""
        self._stack.close()


class KvsHost:
    """The clients of this server, by serial number."""

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
