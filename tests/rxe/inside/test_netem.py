"""A bad link between two NICs: netem drops, reorders, corrupts and duplicates frames.

The RC connection of the wire repairs what it can, and one secure connection survives all
settings. netem is on both ends of the veth pair. Only the wire passes there: a host and its NIC
share an rxe device, whose local traffic does not reach the veth.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from srdma.demo.rxe import End
from tests.rxe.figures import figures
from tests.rxe.inside.load import COUNT, REGION, Load
from tests.rxe.inside.netem import netem

KINDS = {
    "loss": "loss {}%",
    "reordering": "delay 1ms reorder {}%",
    "corruption": "corrupt {}%",
    "duplication": "duplicate {}%",
}
PERCENT = (0.1, 1, 5)
# rxe's counters of unexpected packets of the peer and of missing acks.
TROUBLE = ("duplicate_request", "out_of_seq_request", "rcvd_seq_err", "completer_retry_err")


def trouble(ends: list[End]) -> int:
    folders = [Path("/sys/class/infiniband", end.device, "ports/1/hw_counters") for end in ends]
    return sum(int((folder / name).read_text()) for folder in folders for name in TROUBLE)


@pytest.fixture(scope="module")
def load(connected, host_b, pd, memory) -> Iterator[Load]:
    with connected(pd, size=REGION, qp_timeout=120) as (connection, remote):
        yield Load(connection.qp, remote, memory, host_b)


@pytest.mark.parametrize("percent", PERCENT)
@pytest.mark.parametrize("kind", KINDS)
def test_bad_link(stage, load, kind, percent):
    before, start = trouble(stage.ends), time.monotonic()
    with netem(stage.ends, KINDS[kind].format(percent)):
        load.run()
        seconds = time.monotonic() - start
    seen = trouble(stage.ends) - before
    figures.append(f"{kind} of {percent} %: {COUNT} requests in {seconds:.1f} s, RC saw {seen}")
    assert seen or percent < max(PERCENT)
