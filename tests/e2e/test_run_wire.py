"""A capture of the wire of unmodified programs (docs/run.md): workers that speak UDP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from srdma.embedded import Embedded
from tests.e2e.agents import GIDS, gid_hosts
from tests.e2e.test_run import LIBRARY, Hosts, needs
from tests.e2e.watch import ROOT, Watch
from tests.ports import free_port

pytestmark = [
    pytest.mark.slow,
    ROOT,
    pytest.mark.skipif(not LIBRARY.exists(), reason="no build/run/libibverbs.so.1: make run"),
]

PORT = free_port()


@pytest.fixture(scope="module")
def hosts(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("run")
    with Embedded() as nics:

        def start_worker(name: str, options: Sequence[str]) -> Path:
            wire = ["--wire-dev", "udp", "--wire-listen", f"{GIDS[name][0]}:{PORT}"]
            return nics.launch(name, [*wire, *options]).control

        with gid_hosts(pki, folder, start_worker) as place:
            yield Hosts(place, folder)


@pytest.mark.parametrize("words", ["ib_send_bw -n 100", "ib_read_bw -n 100"])
def test_wire_has_no_plaintext(hosts: Hosts, words: str) -> None:
    needs(words.split()[0])
    with contextlib.closing(Watch("-i", "lo", "--port", str(PORT))) as watch:
        for code, out in hosts.pair(words.split()):
            assert code == 0, out
        code, report = watch.stop()
    assert code == 0, report
    assert report["sth"] > 100
    assert report["plain"] == {}
