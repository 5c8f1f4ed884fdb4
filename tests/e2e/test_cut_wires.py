"""The wire between two embedded NICs is cut repeatedly while requests of all kinds are
outstanding and packets are tampered with.

Goal: every request succeeds with the right data, and the QPs stay.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from srdma.control import QPState
from tests.e2e.conftest import Joiner
from tests.e2e.load import KINDS, Load
from tests.e2e.mitm import OF, Faults, Middle, build, shm_middle

CUTS = 100


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cutter"))


def cutting(middle: Middle) -> Callable[[], bool]:
    """Cuts each time it is called. True when it has cut often enough."""
    cuts = 0

    def cut() -> bool:
        nonlocal cuts
        cuts += middle.mitm.cut() > 0
        return cuts == CUTS

    return cut


@pytest.mark.parametrize("faults", [Faults(), Faults(*[OF // 200] * 4)])
# review A21
def test_cut_during_transfers(program: Path, join: Joiner, faults: Faults) -> None:
    with shm_middle(program) as middle:
        pair = join(middle.site)
        load = Load(pair)
        middle.mitm.faults(faults)
        load.run(cutting(middle))
        assert set(load.ended) == {kind.name for kind in KINDS}
        assert all(stream.received_all for stream in load.streams)
        assert [qp.state for qp in pair] == [QPState.RTS] * 2
        stats = pair.a.ctx.stats()
        print(f"{stats['wires_lost']} wires lost; the slowest request took {load.slowest:.3f} s")
        assert stats["wires_lost"] > CUTS // 2 and stats["wires_dialed"] > CUTS // 2
