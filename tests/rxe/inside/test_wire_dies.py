"""The RC connection of the wire is put into error repeatedly during transfers.

The workers reconnect under the same session and send outstanding packets again. Hosts see nothing
of it; the test counts it by the workers' counters. Several requests are outstanding at each
failure, because the load always has some.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from srdma.demo.rxe import End
from srdma.embedded import spawn, stop
from tests.rxe.figures import figures
from tests.rxe.inside.load import COUNT, REGION, Load

DEATHS = 100
LIMIT = 240.0  # seconds


@contextmanager
def attacker(ends: list[End]) -> Iterator[None]:
    words = [sys.executable, "-m", "tests.rxe.inside.attacker", *(end.netdev for end in ends)]
    process = spawn(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == b"up\n"
        yield
        process.stdin.close()
        figures.append(f"the attacker sent {int(process.stdout.readline())} frames")
    finally:
        stop(process)


# review A21
def test_wire_connection_is_killed(stage, connected, host_b, pd, memory):
    with connected(pd, size=REGION, qp_timeout=120) as (connection, remote):
        load = Load(connection.qp, remote, memory, host_b)
        before, start, rounds = pd.ctx.stats(), time.monotonic(), 0
        with attacker(stage.ends):
            deaths = 0
            while deaths < DEATHS:
                load.run()
                rounds += 1
                deaths = pd.ctx.stats()["wires_dialed"] - before["wires_dialed"]
                assert time.monotonic() - start < LIMIT, f"{deaths} deaths"
        seconds = time.monotonic() - start
        figures.append(f"{deaths} deaths of the wire in {seconds:.0f} s, {rounds * COUNT} requests")
        load.run()
