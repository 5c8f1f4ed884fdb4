"""A man in the middle of the wires of two real workers.

Goal: he may cost time, never data and never a request: with one packet in ten flipped, dropped,
repeated or replaced, every request ends well with the right data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.e2e.cable import why_not
from tests.e2e.conftest import Joiner
from tests.e2e.load import KINDS, Load
from tests.e2e.mitm import OF, Faults, Middle, build, shm_middle, udp_middle

REASON = why_not()
WIRES = [
    "shm",
    pytest.param("udp", marks=pytest.mark.skipif(REASON is not None, reason=str(REASON))),
]
ATTACK = Faults(*[OF // 40] * 4)
SIZES = [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("mitm"))


def between(wire: str, program: Path, folder: Path) -> AbstractContextManager[Middle]:
    return shm_middle(program) if wire == "shm" else udp_middle(program, folder)


@pytest.fixture(params=WIRES)
def middle(request: pytest.FixtureRequest, program: Path, tmp_path: Path) -> Iterator[Middle]:
    with between(request.param, program, tmp_path) as found:
        yield found


def goodput(load: Load, middle: Middle, packets: int) -> float:
    """Of so many packets, in bytes per second."""
    end = middle.mitm.count().packets + packets
    return load.run(lambda: middle.mitm.count().packets >= end)


@pytest.mark.parametrize("packets", SIZES)
def test_one_packet_in_ten(middle: Middle, join: Joiner, packets: int) -> None:
    load = Load(join(middle.site))
    goodput(load, middle, packets // 20)  # memory and caches are warm
    clean = goodput(load, middle, packets // 10)
    middle.mitm.faults(ATTACK, packets)
    attacked = goodput(load, middle, packets)
    count = middle.mitm.count()
    print(
        f"{count}: {sum(load.ended.values())} requests, {attacked / 1e6:.0f} MB/s of "
        f"{clean / 1e6:.0f} MB/s, {attacked / clean:.2f}; longest wait {load.slowest:.3f} s"
    )
    assert set(load.ended) == {kind.name for kind in KINDS}
    assert all(stream.received_all() for stream in load.streams)
    assert min(count[1:5]) > packets // 50
