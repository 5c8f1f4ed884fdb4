"""Floods of a worker's UDP wire (`srdma bench flood`): every datagram is refused and counted, the
work beside it succeeds, and neither the worker's memory nor its log grows."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from srdma_bench.device import UDP
from srdma_bench.flood import FLOODS, Flood, measure
from srdma_bench.perf.measure import Plan
from srdma_bench.primitives import program
from srdma_bench.stand import Link, Shape, Stand

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a packet socket needs root")
COUNTERS = {"tag": "refused_tag", "qpn": "refused_unknown_qp", "garbage": "wire_icrc"}
PAGES = 1 << 20  # bytes; less than 1 % of what a million datagrams would take
NUMBERS = [5_000, pytest.param(1_000_000, marks=pytest.mark.soak)]


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with Stand(UDP) as stand:
        yield stand


@pytest.fixture(scope="module")
def link(stand: Stand) -> Iterator[Link]:
    with stand.connect(Shape("aead", "aes-128-gcm")) as link:
        link.measure(Plan("write_bw", 2048, 1000))  # the worker touches its memory
        yield link


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.name)
def test_worker_refuses_and_does_not_grow(
    stand: Stand, link: Link, flood: Flood, number: int
) -> None:
    sent = memory = log = 0
    refused: dict[str, int] = {}
    while sent < number:
        run = measure(stand, link, Plan("write_bw", 2048, seconds=0.5), flood, closed=False)
        assert run.goodput > 0
        assert run.sent, "the flooder sent nothing"
        sent, memory, log = sent + run.sent, memory + run.memory, log + run.log
        for name, count in run.refused.items():
            refused[name] = refused.get(name, 0) + count
    assert 0 < refused[COUNTERS[flood.kind]] <= sum(refused.values()) <= sent
    assert memory < PAGES
    assert log == 0


def test_a_closed_port_gets_the_flood_instead(stand: Stand, link: Link) -> None:
    run = measure(stand, link, Plan("write_bw", 2048, seconds=0.2), FLOODS[3], closed=True)
    assert run.sent and not run.refused


@pytest.mark.parametrize(
    "words",
    [
        ["--to", "127.0.0.1:4791"],
        ["--to", "127.0.0.1:4791", "--kind", "noise"],
        ["--to", "10.0.0.1:4791", "--kind", "garbage"],
        ["--to", "127.0.0.1", "--kind", "garbage"],
        ["--to", "127.0.0.1:4791", "--kind", "tag", "--copies", "65"],
        ["--to", "127.0.0.1:4791", "--kind", "qpn", "--rate", "0"],
        ["--to", "127.0.0.1:4791", "--kind", "qpn", "more"],
    ],
)
def test_usage_of_the_flooder(words: list[str]) -> None:
    done = subprocess.run([program("flooder"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Use: flooder --to IP:PORT" in done.stderr


def test_the_flooder_ends_by_count() -> None:
    words = ["--to", "127.0.0.1:9", "--kind", "qpn", "--count", "100", "--seconds", "20"]
    done = subprocess.run([program("flooder"), *words], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said["sent"] + said["lost"] >= 100 and said["seconds"] < 20
