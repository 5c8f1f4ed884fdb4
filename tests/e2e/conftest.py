"""Fixtures of the end-to-end tests: two real workers in a separate folder, and two hosts."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import srdma
from srdma import Access
from srdma.embedded import Embedded, Worker
from srdma.identity import create_ca, issue
from tests.e2e.tcp_relay import TcpRelay

A, B = "spiffe://test/a", "spiffe://test/b"
WAIT = 60  # seconds; long enough for a busy machine


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA with the identities a and b."""
    folder = tmp_path_factory.mktemp("pki")
    create_ca(folder, "test")
    issue(folder, A, folder / "a")
    issue(folder, B, folder / "b")
    return folder


@dataclass
class Site:
    """Two workers that reach each other: those of host a and of host b."""

    a: Worker
    b: Worker
    embedded: Embedded


@dataclass
class Host:
    """One host with one PD."""

    ctx: srdma.Context
    pd: srdma.PD


@dataclass
class Pair:
    """A connection: the client is host a, the server host b."""

    a: Host
    b: Host
    client: srdma.Connection
    server: srdma.Connection
    undo: contextlib.ExitStack = field(repr=False)

    def __iter__(self) -> Iterator[srdma.SecureQP]:
        return iter((self.client.qp, self.server.qp))


def start_site() -> Site:
    embedded = Embedded()
    try:
        a = embedded.start("a", unprotected=True)
        return Site(a, embedded.start("b", unprotected=True), embedded)
    except BaseException:
        embedded.close()
        raise


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One site for all tests of a module. A test must not harm its workers."""
    site = start_site()
    yield site
    for worker in (site.a, site.b):
        assert worker.process.poll() is None, f"worker {worker.name}: {worker.last_words()}"
    site.embedded.close()


@pytest.fixture
def own_site() -> Iterator[Site]:
    """A site for a test that harms its workers."""
    site = start_site()
    yield site
    site.embedded.close()


class Joiner:
    """Makes connections between the hosts of a site and closes them at the end."""

    def __init__(self, pki: Path) -> None:
        self._pki = pki
        self._undo = contextlib.ExitStack()

    def host(self, worker: Worker, ring: int = 4096) -> Host:
        ctx = self._undo.enter_context(srdma.Context(worker.control))
        return Host(ctx, self._undo.enter_context(srdma.PD(ctx, ring)))

    def __call__(self, site: Site, **options: object) -> Pair:
        """Connects two new hosts. `data` is what host b gives to host a."""
        return self.connect(self.host(site.a), self.host(site.b), **options)

    def connect(self, a: Host, b: Host, **options: object) -> Pair:
        data = options.pop("data", b"")
        options.setdefault("timeout", WAIT)
        with srdma.listen(
            ("127.0.0.1", 0), b.pd, identity=self._pki / "b", data=data, **options
        ) as listener:
            accepted = run(listener.accept, WAIT)
            client = srdma.connect(
                listener.address, a.pd, identity=self._pki / "a", peer=B, **options
            )
            server = accepted()
        # Connections stay when the listener is closed.
        return Pair(a, b, client, server, self._undo)

    def close(self) -> None:
        self._undo.close()


@pytest.fixture
def join(pki: Path) -> Iterator[Joiner]:
    joiner = Joiner(pki)
    yield joiner
    joiner.close()


def run(call, *args, **kwargs):
    """Starts a call in a thread. Calling the result returns its value or raises its error."""
    outcome: list[object] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            outcome.append(call(*args, **kwargs))
        except BaseException as e:
            failure.append(e)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()

    def result():
        thread.join(WAIT)
        assert not thread.is_alive(), f"{call} hangs"
        if failure:
            raise failure[0]
        return outcome[0]

    return result


def pattern(size: int, seed: int = 0) -> bytes:
    """Bytes whose period of 257 divides no packet size, so that swapped packets are noticed."""
    period = bytes((n * n + seed) % 256 for n in range(257)) * 41
    return (period * (size // len(period) + 1))[:size]


def children() -> set[int]:
    """Returns the running child processes of this process."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
            if stat.read().rsplit(")", 1)[1].split()[1] == str(os.getpid()):
                found.add(int(pid))
    return found


@pytest.fixture
def relayed(join, site, pki):
    """Connects two hosts over a TcpRelay. Options are those of both ends."""
    with contextlib.ExitStack() as stack:

        def make(**options: object) -> tuple[Pair, TcpRelay]:
            a, b = join.host(site.a), join.host(site.b)
            listener = stack.enter_context(
                srdma.listen(("127.0.0.1", 0), b.pd, identity=pki / "b", timeout=WAIT, **options)
            )
            relay = stack.enter_context(contextlib.closing(TcpRelay(listener.address)))
            accepted = run(listener.accept, WAIT)
            client = srdma.connect(relay.address, a.pd, identity=pki / "a", timeout=WAIT, **options)
            return Pair(a, b, client, accepted(), stack), relay

        yield make


def write(pair: Pair) -> None:
    with pair.b.pd.alloc(64, Access.LOCAL_WRITE | Access.REMOTE_WRITE, scope="pd") as region:
        pair.client.qp.write(b"x" * 64, region.remote(), timeout=WAIT)
        assert bytes(region.buf) == b"x" * 64
