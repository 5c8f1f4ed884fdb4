"""Requests of all kinds and sizes on one QP, each checked when it completes.

Host B's region and host A's memory are divided into slots, one per request: WRITEs go from slot
to slot, READs read what host B got at the start, SENDs arrive in order. After a WRITE completes,
its data is checked in host B's memory at once, while later requests are outstanding.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import srdma
from srdma import SendWR, WROpcode

SLOT = 16 << 10
SIZES = (1, 64, 1000, 4096, 4097, 9000, SLOT)
KINDS = (WROpcode.RDMA_WRITE, WROpcode.RDMA_READ, WROpcode.SEND)
COUNT = 240  # requests of one run; a multiple of the number of kinds
REGION = COUNT * SLOT
OUTSTANDING = 48
SECONDS = 60.0  # without a completion until the load counts as hung


class Asked(Protocol):
    """Sends requests to host B (host_b.py)."""

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]: ...


def sha256(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()


class Load:
    """The load of one connection. The region of host B and `memory` have REGION bytes each."""

    def __init__(
        self, qp: srdma.SecureQP, remote: srdma.RemoteMR, memory: srdma.MR, host_b: Asked
    ) -> None:
        self._qp, self._remote, self._memory, self._host_b = qp, remote, memory, host_b
        self._theirs = os.urandom(REGION)
        host_b.ask("fill", offset=0, data=self._theirs)

    def run(self) -> None:
        """Posts COUNT requests. Every one must complete, in order, with the right data."""
        self._mine = os.urandom(REGION)
        self._memory.buf[:REGION] = self._mine
        self._host_b.ask("expect", count=COUNT // len(KINDS), size=SLOT)
        posted = done = 0
        while done < COUNT:
            while posted < COUNT and posted - done < OUTSTANDING:
                self._post(posted)
                posted += 1
            wcs = self._completions()
            self._judge(done, wcs)
            done += len(wcs)
        sent = [sha256(self._piece(self._mine, i)) for i in range(2, COUNT, len(KINDS))]
        assert self._host_b.ask("arrived")["sha256"] == sent

    def _piece(self, data: bytes | memoryview, i: int) -> bytes | memoryview:
        return data[i * SLOT : i * SLOT + SIZES[i % len(SIZES)]]

    def _post(self, i: int) -> None:
        kind = KINDS[i % len(KINDS)]
        wr = SendWR(i, kind, [self._memory[i * SLOT : i * SLOT + SIZES[i % len(SIZES)]]])
        if kind is not WROpcode.SEND:
            wr.set_remote(self._remote, i * SLOT)
        self._qp.post_send(wr)

    def _completions(self) -> list[srdma.WC]:
        start = time.monotonic()
        wcs = self._qp.poll(OUTSTANDING, SECONDS)
        assert wcs, (
            f"no completion in {time.monotonic() - start:.0f} s, {self._qp.reason or 'no error'}"
        )
        return wcs

    def _judge(self, first: int, wcs: list[srdma.WC]) -> None:
        for wc in wcs:
            wc.raise_for_status()
        ids = range(first, first + len(wcs))
        assert [wc.wr_id for wc in wcs] == list(ids)
        written = [i for i in ids if KINDS[i % len(KINDS)] is WROpcode.RDMA_WRITE]
        pieces = [[i * SLOT, SIZES[i % len(SIZES)]] for i in written]
        seen = self._host_b.ask("digests", pieces=pieces)["sha256"]
        assert seen == [sha256(self._piece(self._mine, i)) for i in written]
        for i in ids:
            if KINDS[i % len(KINDS)] is WROpcode.RDMA_READ:
                assert self._piece(self._memory.buf, i) == self._piece(self._theirs, i)


def during(load: Load, steps: Iterable[Callable[[], object]]) -> int:
    """Takes the steps, one after the other, while the load runs, and runs it once more afterwards.
    Returns the number of its requests."""
    failed, rounds = threading.Event(), 0

    def take() -> None:
        for step in steps:
            if not failed.is_set():
                step()

    with ThreadPoolExecutor(1) as thread:
        taking = thread.submit(take)
        try:
            while not taking.done() or not rounds:
                load.run()
                rounds += 1
        except BaseException:
            failed.set()  # the executor waits for the thread
            raise
        taking.result()
    load.run()
    return (rounds + 1) * COUNT
