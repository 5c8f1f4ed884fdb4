"""Unmodified programs that connect by RDMA-CM: `srdma run` with programs of Debian (docs/run.md
5)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import gid_hosts
from tests.e2e.conftest import WAIT
from tests.e2e.test_run import LIBRARY, Ended, Hosts, _end, needs
from tests.ports import free_port

CM = LIBRARY.with_name("librdmacm.so.1")
SERVER = "127.0.0.2"  # GID of host b

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CM.exists(), reason=f"no {CM}: make run"),
]


@pytest.fixture(scope="module")
def hosts(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("run-cm")
    with gid_hosts(pki, folder) as place:
        yield Hosts(place, folder)


def pair(hosts: Hosts, server: str, client: str) -> tuple[Ended, Ended]:
    """A server on b, then a client on a. {port}: of RDMA-CM."""
    port = free_port()
    listener = hosts.start("b", server.format(port=port).split())
    time.sleep(1)
    caller = hosts.start("a", client.format(port=port).split())
    return _end(caller), _end(listener)


def runs(hosts: Hosts, server: str, client: str) -> None:
    needs(server.split()[0])
    before = hosts.sealed()
    for code, out in pair(hosts, server, client):
        assert code == 0, out
    assert all(now > then for now, then in zip(hosts.sealed(), before, strict=True))


def test_rping(hosts: Hosts) -> None:
    runs(
        hosts,
        "rping -s -v -a 127.0.0.2 -p {port} -C 10",
        "rping -c -v -a 127.0.0.2 -p {port} -C 10",
    )
