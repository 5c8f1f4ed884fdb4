"""A man in the middle of the wires of two real workers, and bad links.

Goal: he may cost time, but no data and no request, and nothing hangs. If he tampers with one packet
in ten, every request succeeds with the right data. If he drops all packets, every request ends with
an error in time, and the next connection works.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.cable import why_not
from tests.e2e.conftest import Joiner, Pair
from tests.e2e.load import KINDS, Load
from tests.e2e.mitm import BOTH, LEFT, OF, RIGHT, Faults, Middle, build, shm_middle, udp_middle

REASON = why_not()
WIRES = [
    "shm",
    pytest.param("udp", marks=pytest.mark.skipif(REASON is not None, reason=str(REASON))),
]
ATTACK = Faults(*[OF // 40] * 4)
SIZES = [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)]
QP_TIMEOUT = 1.0
SILENCE = 2.0  # a worker of a busy machine must not sleep that long
LATE = 5.0  # seconds above the deadline; long enough for a busy machine


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("mitm"))


Between = Callable[..., AbstractContextManager[Middle]]  # called with the workers' options


@pytest.fixture(params=WIRES)
def between(request: pytest.FixtureRequest, program: Path, tmp_path: Path) -> Between:
    if request.param == "shm":
        return partial(shm_middle, program)
    return partial(udp_middle, program, tmp_path)


@pytest.fixture
def middle(between: Between) -> Iterator[Middle]:
    with between() as found:
        yield found


@pytest.fixture
def udp(program: Path, tmp_path: Path) -> Iterator[Middle]:
    if REASON is not None:
        pytest.skip(REASON)
    with udp_middle(program, tmp_path) as found:
        yield found


def passed(middle: Middle, packets: int) -> Callable[[], bool]:
    """Returns a condition for run(): true after this many more packets have passed."""
    end = middle.mitm.count().packets + packets
    return lambda: middle.mitm.count().packets >= end


def check_all_well(load: Load) -> None:
    """Checks that all requests succeeded and that each kind was among them."""
    assert set(load.ended) == {kind.name for kind in KINDS}
    assert all(stream.received_all for stream in load.streams)


@pytest.mark.parametrize("packets", SIZES)
# RFC 5042 A5.1.3; review A9
def test_one_packet_in_ten_is_tampered_with(middle: Middle, join: Joiner, packets: int) -> None:
    load = Load(join(middle.site))
    load.run(passed(middle, packets // 20))  # fills memory and caches before the comparison
    clean = load.run(passed(middle, packets // 10))
    middle.mitm.faults(ATTACK, packets)
    attacked = load.run(passed(middle, packets))
    count = middle.mitm.count()
    print(
        f"{count}: {sum(load.ended.values())} requests, {attacked / 1e6:.0f} MB/s of "
        f"{clean / 1e6:.0f} MB/s, {attacked / clean:.2f}; the slowest took {load.slowest:.3f} s"
    )
    check_all_well(load)
    assert min(count[1:5]) > packets // 50


@pytest.mark.parametrize("rate", [10, 100, 500])
def test_bad_network(udp: Middle, join: Joiner, rate: int) -> None:
    """Loss, reordering, duplication and corruption, each of rate / 10,000, as netem does.

    The man in the middle applies the faults instead of netem, which some kernels that run this test
    lack.
    """
    udp.mitm.faults(Faults(flip=rate, drop=rate, twice=rate, late=rate), rate)
    load = Load(join(udp.site))
    load.run(passed(udp, 20_000))
    count = udp.mitm.count()
    print(f"{count}: {sum(load.ended.values())} requests, the slowest took {load.slowest:.3f} s")
    check_all_well(load)
    assert min(count.flip, count.drop, count.twice, count.late) > 0


@pytest.mark.parametrize("sides", [LEFT, RIGHT, BOTH], ids=["left", "right", "both"])
def test_dropped_packets_end_requests_at_their_deadline(
    middle: Middle, join: Joiner, sides: int
) -> None:
    pair = join(middle.site, qp_timeout=QP_TIMEOUT)
    load = Load(pair)
    load.run(fall_silent(middle, sides, pair))
    # PEER_ERROR: the deadline of the peer expired first.
    check_failed(load, pair, {"DEADLINE", "PEER_ERROR"})
    assert load.slowest < QP_TIMEOUT + LATE
    middle.mitm.swallow(0)
    check_works(middle, join)


@pytest.mark.parametrize("sides", [LEFT, BOTH], ids=["left", "both"])
def test_silence_ends_qps(between: Between, join: Joiner, sides: int) -> None:
    """The deadline is later than the silence limit: each end fails by silence, or its peer reports
    that it did."""
    with between(("--ping", "0.1", "--silence", str(SILENCE))) as middle:
        pair = join(middle.site, qp_timeout=600.0)
        load = Load(pair)
        load.run(fall_silent(middle, sides, pair))
        check_failed(load, pair, {"PEER_SILENT", "PEER_ERROR"})
        assert load.slowest < SILENCE + LATE
        middle.mitm.swallow(0)
        check_works(middle, join)
        join.close()


def fall_silent(middle: Middle, sides: int, pair: Pair) -> Callable[[], bool]:
    """Returns a condition for run() that drops all packets of these sides after a while, and is
    true when the QPs have failed."""
    enough = passed(middle, 2000)

    def failed() -> bool:
        if enough():
            middle.mitm.swallow(sides)
        return any(qp.reason for qp in pair)

    return failed


def check_failed(load: Load, pair: Pair, reasons: set[str]) -> None:
    """Checks that each request succeeded or failed with its QP."""
    for stream, qp in zip(load.streams, pair, strict=True):
        assert not stream.outstanding
        end = time.monotonic() + LATE
        while not qp.reason and time.monotonic() < end:  # a CLOSE may be on its way
            qp.poll(1, timeout=0.1)
        assert qp.reason in reasons
        failures = set(stream.ended) - {kind.name for kind in KINDS}
        assert failures <= {qp.reason, "FLUSHED"}
    assert any(qp.reason in stream.ended for stream, qp in zip(load.streams, pair, strict=True))


def check_works(middle: Middle, join: Joiner) -> None:
    """Checks a new connection of the same workers, with new hosts."""
    load = Load(join(middle.site))
    load.run(passed(middle, 2000))
    check_all_well(load)
