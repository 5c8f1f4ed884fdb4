"""Host B of a stand: a server of `srdma perf` per connection, controlled by frames on stdin.

    python -m srdma_bench.host_b

Requests and results: listen (worker, region, proof, group, options) -> address, serial; end
(serial), after the client has finished. The process ends at the end of stdin.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from srdma import connection
from srdma.connection import Listener
from srdma.context import Context
from srdma.demo.host import main
from srdma.pd import PD
from srdma_bench.perf.measure import Place, Server, offered, ring_entries
from srdma_bench.serving import Serving

WAIT = 120.0  # seconds; a key exchange in an emulated machine takes long


class Served(Serving):
    """One connection, from accept to close."""

    def __init__(self, listener: Listener, place: Place, stack: ExitStack) -> None:
        super().__init__()
        self._listener, self._place, self._stack = listener, place, stack

    def serve(self) -> None:
        with self._stack as stack:
            there = stack.enter_context(self._listener.accept(WAIT))
            data = offered(there.data)
            stack.enter_context(closing(Server(there, self._place, data))).serve()


class HostB:
    """The connections of host B, by serial number."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self._numbers = itertools.count()
        self._served: dict[int, Served] = {}

    def listen(
        self, worker: str, region: int, proof: bool, group: str, options: dict[str, Any]
    ) -> dict[str, Any]:
        with ExitStack() as stack:
            context = stack.enter_context(Context(Path(worker)))
            pd = stack.enter_context(PD(context, ring_entries(options), group))
            place = stack.enter_context(closing(Place(pd, region, proof=proof)))
            listener = connection.listen(("127.0.0.1", 0), pd, data=place.offer(), **options)
            stack.enter_context(listener)
            serial, served = next(self._numbers), Served(listener, place, stack.pop_all())
        self._served[serial] = served
        served.start()
        return {"address": list(listener.address), "serial": serial}

    def end(self, serial: int) -> dict[str, Any]:
        self._served.pop(serial).wait(WAIT)
        return {}


if __name__ == "__main__":
    sys.exit(main(HostB()))
