"""An attacker races every packet between two workers over UDP (protocol.md 7.3, 18.4)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import srdma
from srdma import Access
from tests.e2e import racer
from tests.e2e.cable import cable, why_not, workers
from tests.e2e.conftest import WAIT, Joiner, pattern

SIZE = 60_001
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def test_raced_transfers_complete_and_the_racer_gets_little(
    join: Joiner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of each packet of the client arrives 0.5 ms before it, from the first one on. Requests
    of both ends complete, and the attacker's address gets at most three times the bytes that came
    from there."""
    with cable(4, 1500, middle=True) as it:
        it.ip("b", "neigh", "add", racer.ADDRESS, "lladdr", racer.MAC, "dev", "v")
        command = it.inside("m", sys.executable, str(Path(racer.__file__)))
        with (
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as middle,
            workers(it, tmp_path, monkeypatch) as site,
        ):
            assert middle.stdin is not None and middle.stdout is not None
            assert middle.stdout.readline() == "ready\n"
            with contextlib.closing(join):
                pair = join(site)
                for target, qp in ((pair.b, pair.client.qp), (pair.a, pair.server.qp)):
                    with target.pd.alloc(SIZE, ALL, scope="pd") as mr:
                        qp.write(pattern(SIZE), mr.remote(), timeout=WAIT)
                        assert qp.read(mr.remote(), 0, SIZE, timeout=WAIT) == pattern(SIZE)
                with srdma.Context(site.b.control) as ctx:
                    stats = dict(ctx.stats())
            middle.stdin.close()
            counts = json.loads(middle.stdout.readline())
    assert counts["raced"] > 100
    assert 0 < counts["received"] <= 3 * counts["sent"]
    assert stats["path_changes"] == 0
    assert stats["path_returns"] > 0  # the first packet was raced too
