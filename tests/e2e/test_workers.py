"""Workers of three worker processes each: every PD is on one of them, and any two of them
connect.

Goal: a PD, its memory, its QPs and its key exchange are all on the requested worker process. The
processes communicate over the wire only, and they end together.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import srdma
from srdma.cli.doctor import running_workers
from srdma.control import thread_path
from srdma.embedded import Embedded
from srdma.errors import DeviceError, LocalError, NoWorkerError, WorkerGone
from srdma_bench.perf.measure import Client, Place, Plan, Server, cpu_ns, offered
from tests.e2e.conftest import WAIT, Host, Joiner, Pair, Site, run
from tests.e2e.test_key_modes import check_data

THREADS = 3
OPTIONS = ("--workers", str(THREADS))


@contextlib.contextmanager
def crews(wire: str) -> Iterator[Site]:
    with Embedded() as nics:
        if wire == "shm":
            a, b = (nics.start(name, options=OPTIONS) for name in "ab")
        else:
            a, b = (
                nics.launch(n, ["--wire-dev", "udp", "--wire-listen", f"127.0.0.{at}", *OPTIONS])
                for n, at in (("a", 81), ("b", 82))
            )
        yield Site(a, b, nics)


@pytest.fixture(scope="module", params=["shm", "udp"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with crews(request.param) as site:
        yield site


@pytest.fixture
def own_site() -> Iterator[Site]:
    with crews("shm") as site:
        yield site


@pytest.fixture
def between(join: Joiner, pki: Path):
    """Connects a worker process of the site's worker a with one of its worker b."""

    with contextlib.ExitStack() as stack:

        def host(path: Path, thread: int) -> Host:
            ctx = stack.enter_context(srdma.Context(path))
            return Host(ctx, stack.enter_context(srdma.PD(ctx, thread=thread)))

        def connect(site: Site, a: int, b: int, **options: object) -> Pair:
            return join.connect(host(site.a.control, a), host(site.b.control, b), **options)

        yield connect


def transfer(pair: Pair) -> None:
    check_data(pair.client, pair.server, pair.b.pd)


def sealed(host: Host) -> list[int]:
    """Returns the sealed packets by worker process."""
    return [host.ctx.stats(thread)["packets_sealed"] for thread in range(THREADS)]


@pytest.mark.parametrize(("a", "b"), [(1, 2), (2, 0), (0, 1)])
def test_connections_between_worker_processes(site: Site, between, a: int, b: int) -> None:
    pair = between(site, a, b)
    before = sealed(pair.a), sealed(pair.b)
    transfer(pair)
    after = sealed(pair.a), sealed(pair.b)
    for thread in range(THREADS):
        assert (after[0][thread] > before[0][thread]) == (thread == a)
        assert (after[1][thread] > before[1][thread]) == (thread == b)
    assert pair.a.ctx.stats()["packets_sealed"] == sum(after[0])


def test_connection_within_one_worker(site: Site, join: Joiner) -> None:
    with srdma.Context(site.a.control) as ctx:
        pds = [srdma.PD(ctx, thread=thread) for thread in (1, 2)]
        transfer(join.connect(*(Host(ctx, pd) for pd in pds)))
        for pd in pds:
            pd.close()


def test_rekey_on_the_worker_process(site: Site, between) -> None:
    pair = between(site, 2, 1, mode="pd+mem")
    transfer(pair)
    assert pair.a.pd.rotate(WAIT) == 1
    pair.client.rekey(WAIT)
    transfer(pair)


def test_cpu_time_is_of_the_worker_process(site: Site, between) -> None:
    """`srdma perf` reports the CPU time of the worker process that it uses, also if this is not the
    first."""
    pair = between(site, 1, 2, qps=2)
    places = [Place(host.pd, 1 << 16) for host in (pair.a, pair.b)]
    offers = [offered(place.offer()) for place in places]
    server = Server(pair.server, places[1], offers[0])
    client = Client(pair.client, places[0], offers[1])
    serve = run(server.serve)
    with contextlib.closing(pair.a.pd.connect()) as control:
        pid = control.hello().pid
    before = cpu_ns(pid)
    result = client.measure(Plan("write_bw", 2048, iterations=20_000))
    after = cpu_ns(pid)
    client.finish()
    serve()
    for end in (client, server, *places):
        end.close()
    found = result.cpu["worker_cpu"] * result.messages
    assert 0.5 * (after - before) <= found <= after - before


def test_pds_are_assigned_round_robin(site: Site) -> None:
    with srdma.Context(site.a.control) as ctx:
        assert ctx.threads == THREADS
        pds = [srdma.PD(ctx) for _ in range(2 * THREADS)]
        first = pds[0].thread
        assert [pd.thread for pd in pds] == [(first + i) % THREADS for i in range(2 * THREADS)]
        for pd in pds:
            assert ctx.stats(pd.thread)["legs"] == 2
        for pd in pds:
            pd.close()


@pytest.mark.parametrize("thread", [-1, THREADS])
def test_thread_number_out_of_range(site: Site, thread: int) -> None:
    with srdma.Context(site.a.control) as ctx:
        for use in (lambda: srdma.PD(ctx, thread=thread), lambda: ctx.stats(thread)):
            with pytest.raises(
                LocalError, match=rf"thread={thread}: the worker a has 3 processes, numbered"
            ):
                use()


def test_socket_path_of_another_worker_process(site: Site) -> None:
    with pytest.raises(DeviceError, match="process 2 of a worker with 3: give the path without"):
        srdma.Context(thread_path(site.a.control, 2))


def test_kill_ends_the_pds_of_all_worker_processes(own_site: Site, between) -> None:
    pairs = [between(own_site, thread, 2 - thread) for thread in range(THREADS)]
    for pair in pairs:
        transfer(pair)
    own_site.b.process.kill()
    for pair in pairs:
        with pytest.raises(srdma.WCError, match="WIRE_LOST"):
            pair.client.qp.send(b"", timeout=WAIT)
        with pytest.raises(WorkerGone):
            pair.b.pd.alloc(10)


def test_stop_by_signal_during_transfers(own_site: Site, between) -> None:
    pairs = [between(own_site, thread, thread) for thread in range(THREADS)]
    for pair in pairs:
        transfer(pair)
    own_site.b.process.send_signal(signal.SIGTERM)
    assert own_site.b.process.wait(WAIT) == 0
    assert not list(own_site.embedded.folder.glob("b.ctl*"))
    assert not list(own_site.embedded.wire("0").glob("b.*"))
    with pytest.raises(NoWorkerError):
        srdma.Context(own_site.b.control)
    for pair in pairs:
        with pytest.raises(srdma.WCError):
            pair.client.qp.send(b"", timeout=WAIT)


def test_statistics_have_a_line_for_each_worker_process(own_site: Site, between) -> None:
    transfer(between(own_site, 1, 2))
    own_site.b.process.send_signal(signal.SIGUSR1)
    own_site.b.process.terminate()
    own_site.b.process.wait(WAIT)
    log = own_site.b.log.read_text()
    lines = {r["name"]: r for r in (json.loads(x) for x in log.splitlines() if x[0] == "{")}
    assert set(lines) == {"b", "b.1", "b.2"}
    assert {name for name, line in lines.items() if line["packets_verified"]} == {"b.2"}


def test_doctor_reports_worker_processes(
    own_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.fspath(tmp_path))
    monkeypatch.setenv("SRDMA_WORKER", os.fspath(own_site.a.control))
    found = running_workers()
    assert found.state == "ok"
    assert found.detail.endswith("3 worker processes)")
    thread_path(own_site.a.control, 2).unlink()
    found = running_workers()
    assert found.state == "note" and "no worker at" in found.detail
