"""A whole region is written to host B and read back; the counters of both workers are checked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import srdma
from tests.rxe.figures import figures
from tests.rxe.inside.conftest import Connected
from tests.rxe.inside.load import Asked, sha256

SETTLE = 10  # seconds for the last acks

Counts = dict[str, int]


@contextmanager
def timed(what: str, size: int) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    figures.append(f"{what}: {seconds:.2f} s, {size / seconds / 1e6:.1f} MB/s")


class Counters:
    """Counts of both workers since this object was made."""

    def __init__(self, pd: srdma.PD, host_b: Asked, worker: Path) -> None:
        """worker: that of host B."""
        self._stats = pd.ctx.stats, partial(host_b.ask, "stats", worker=str(worker))
        self._before = [stats() for stats in self._stats]

    def now(self) -> list[Counts]:
        return [
            {name: value - before[name] for name, value in stats().items()}
            for stats, before in zip(self._stats, self._before, strict=True)
        ]

    def settled(self) -> list[Counts]:
        """Returns the counts once every sealed packet was verified."""
        end = time.monotonic() + SETTLE
        while True:
            a, b = self.now()
            if (a["packets_sealed"], b["packets_sealed"]) == (
                b["packets_verified"],
                a["packets_verified"],
            ):
                return [a, b]
            assert time.monotonic() < end, (a, b)
            time.sleep(0.05)


def there_and_back(
    connected: Connected, host_b: Asked, worker: Path, memory: srdma.MR, suite: str, size: int
) -> list[Counts]:
    """Returns the counts of both workers, which it has checked, for the transfers.
    worker: that of host B. memory: a region of host A with at least `size` bytes."""
    mine = memory[:size]
    memory.buf[:size] = os.urandom(size)
    wanted = sha256(memory.buf[:size])
    counters = Counters(memory.pd, host_b, worker)
    with connected(memory.pd, size=size, suites=[suite], qp_timeout=300) as (connection, remote):
        with timed(f"WRITE of {size >> 20} MiB, {suite}", size):
            connection.qp.write(mine, remote)
        assert host_b.ask("digest", offset=0, length=size)["sha256"] == wanted
        memory.buf[:size] = bytes(size)
        with timed(f"READ of {size >> 20} MiB, {suite}", size):
            connection.qp.read(remote, into=mine)
        assert sha256(memory.buf[:size]) == wanted
        counts = counters.settled()
    check(*counts, size)
    return counts


def check(a: Counts, b: Counts, size: int) -> None:
    """Every sealed packet was verified, and none was sent unprotected.

    Packets are sent again only after a timeout, which late acks may cause: they are likely here.
    """
    for sender, receiver in ((a, b), (b, a)):  # the WRITE; the responses of the READ
        assert sender["bytes_sealed"] == receiver["bytes_verified"] >= size
        if not a["timeouts"] and not b["timeouts"]:
            assert sender["bytes_sealed"] == size
            assert not receiver["duplicates"] and not receiver["refused_unsolicited"]
        assert receiver["duplicates"] <= sender["packets_resent"] + sender["timeouts"]
    for stats in (a, b):
        assert stats["packets_sealed"] >= size // 4096
        refused = {name for name, value in stats.items() if name.startswith("refused") and value}
        assert refused <= {"refused_unsolicited"}  # duplicate responses
        assert not stats["packets_unprotected_sent"] and not stats["packets_unprotected_received"]
        assert not stats["completions_failed"]
    figures.append(f"sent again: {a['packets_resent']} and {b['packets_resent']} packets")
