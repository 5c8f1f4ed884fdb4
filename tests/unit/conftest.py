"""Fixtures of the unit tests: a PD at a simulated worker, and workers that run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import srdma
from srdma.agent import links, upkeep
from srdma.identity import create_ca, issue
from srdma.keyex import tls
from tests import daemon
from tests.fake_worker import FakeWorker
from tests.keyex_players import HOST_A, HOST_B, Listening, finished, load

DEPTH = 8  # of the queues of `qp`


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA in `ca` with the hosts a (HOST_A, P-256) and b (HOST_B, Ed25519)."""
    path = tmp_path_factory.mktemp("identities")
    create_ca(path / "ca", "test")
    issue(path / "ca", HOST_A, path / "a")
    issue(path / "ca", HOST_B, path / "b", algorithm="ed25519")
    return path


@pytest.fixture(scope="module")
def folder(identities: Path) -> Path:
    """The same with the host m, which is not part of a session of a and b."""
    issue(identities / "ca", "spiffe://test/host-m", identities / "m")
    return identities


@pytest.fixture
def first_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """TLS of this process has ALPN srdma/1 only. Agents, which are other processes, have both."""
    context = tls._context  # a test may replace it
    monkeypatch.setattr(tls, "ALPN", {b"srdma/1": 1})
    context.cache_clear()
    yield
    context.cache_clear()


@pytest.fixture
def quick_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents in threads of the test connect again at once, and close unused links soon."""
    monkeypatch.setattr(upkeep, "PAUSE_LEAST", 0.01)
    monkeypatch.setattr(upkeep, "PAUSE_MOST", 0.05)
    monkeypatch.setattr(links, "SWEEP", 0.01)


@pytest.fixture
def short_links(quick_links: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As quick_links, and unused links end after 1 s."""
    monkeypatch.setattr(links, "UNUSED", 1.0)
    monkeypatch.setattr(links, "UNUSED_HERE", 1.0)


@pytest.fixture
def listening(identities: Path) -> Iterator[Listening]:
    """A listener of host b for host a."""
    program = Listening(vars(load(identities, "b")) | {"peer": [HOST_A]})
    with finished(program):
        assert program.listener.event() == {"event": "listening"}
        yield program


@pytest.fixture
def a(tmp_path: Path) -> Iterator[daemon.Worker]:
    with daemon.worker(tmp_path, "a", "--log-level", "debug") as found:
        yield found


@pytest.fixture
def b(tmp_path: Path) -> Iterator[daemon.Worker]:
    with daemon.worker(tmp_path, "b") as found:
        yield found


@pytest.fixture
def worker(tmp_path):
    worker = FakeWorker(tmp_path / "w.sock")
    yield worker
    worker.close()


@pytest.fixture
def ctx(worker):
    with srdma.Context(worker.path) as ctx:
        yield ctx


@pytest.fixture
def pd(ctx):
    with srdma.PD(ctx, ring=64) as pd:
        yield pd


@pytest.fixture
def qp(pd):
    """A QP that is connected from the view of this end."""
    qp = srdma.SecureQP(pd, DEPTH, DEPTH)
    qp.connected = True
    return qp


@pytest.fixture
def leg(worker, pd):
    """The worker's end of the PD's leg."""
    return worker.leg
