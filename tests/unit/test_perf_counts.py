"""Counts of a measurement: rounds and their time, CPU time of processes, and its end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from array import array
from pathlib import Path
from types import SimpleNamespace

import cbor2
import pytest

from srdma.errors import LocalError, RemoteError
from srdma_bench.perf.measure import WARM_UP, Client, End, Place, Plan, cpu_ns, ring_entries
from tests.unit.test_qp import REMOTE


def test_messages_and_time_include_the_warm_up(pd):
    place = Place(pd, 64)
    end = End(SimpleNamespace(qps=[None, None]), place, REMOTE)

    def play(times: array[int]) -> None:
        times[:] = array("Q", [1000] * WARM_UP + [10] * (len(times) - WARM_UP))

    result = end._timed(Plan("read_lat", 2, 300), play)
    assert (result.messages, result.ns) == (WARM_UP + 300, 1000 * WARM_UP + 10 * 300)
    assert result.times == [10] * 300
    end.close()
    place.close()


@pytest.mark.parametrize(("reason", "ends"), [("PEER_CLOSED", True), ("PEER_HOST_GONE", False)])
def test_server_that_closes_before_its_worker_acknowledges(pd, reason, ends):
    """The last message of a client."""

    def send(data: bytes, timeout: float) -> None:
        assert cbor2.loads(data) == {"end": True}
        raise RemoteError(reason)

    place = Place(pd, 64)
    talk = SimpleNamespace(send=send, reason=reason)
    client = Client(SimpleNamespace(qps=[talk]), place, REMOTE)
    with contextlib.nullcontext() if ends else pytest.raises(RemoteError, match=reason):
        client.finish()
    client.close()
    place.close()


def test_cpu_time_of_this_process():
    before, deadline = cpu_ns(os.getpid()), time.monotonic() + 10
    while cpu_ns(os.getpid()) <= before:  # the kernel updates the clock in steps
        assert time.monotonic() < deadline


def test_cpu_time_of_an_ended_process(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(LocalError, match=f"CPU time of process {child.pid} cannot be read"):
        cpu_ns(child.pid)

    def gone(*_):
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(Path, "read_text", gone)
    with pytest.raises(LocalError, match=f"CPU time of process {os.getpid()} cannot"):
        cpu_ns(os.getpid())


def test_ring_size_for_the_queues():
    assert ring_entries({"qps": 2, "sq": 128, "rq": 128}) == 1024
    assert ring_entries({"qps": 1, "sq": 1, "rq": 1}) == 64
    with pytest.raises(LocalError, match="256 QPs with queues of 128 and 128 need 65792"):
        ring_entries({"qps": 256, "sq": 128, "rq": 128})
