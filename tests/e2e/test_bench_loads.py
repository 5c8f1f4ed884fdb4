"""A stand with its processes: loads at every level, several concurrent
connections, and CPU time."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from srdma.errors import DeviceError, RemoteError
from srdma_bench.device import UDP
from srdma_bench.perf.measure import Client, Plan
from srdma_bench.stand import Settings, Shape, Stand

SHAPES = [
    Shape("aead", "aes-128-gcm", "pd+mem", qps=2),
    Shape("packet", "hmac-sha256", "mem"),
    Shape("header", "aes-128-cmac", "pd"),
]
PLANS = [Plan("write_bw", 2048, 200), Plan("read_bw", 2048, 200), Plan("write_lat", 32, 50),
         Plan("read_lat", 32, 50), Plan("send_lat", 32, 50)]  # fmt: skip


@pytest.fixture(scope="module")
def stand():
    with Stand(settings=Settings(key_cache=0, provider="openssl")) as stand:
        yield stand


def test_levels_in_turn(stand):
    assert stand.provider == "openssl"
    before = stand.cpu()
    with (
        stand.connect(SHAPES[0]) as a,
        stand.connect(SHAPES[1]) as b,
        stand.connect(SHAPES[2]) as c,
    ):
        for plan in PLANS:
            for link in (a, b, c):
                result = link.measure(plan)
                assert result.messages >= plan.iterations
                assert result.packets >= 4 * result.messages or plan.test.endswith("bw")
    after = stand.cpu()
    assert all(after[who] > before[who] for who in before)


def test_processes_run_on_different_cores(stand):
    before = os.sched_getaffinity(0)
    with stand.as_host_a():
        assert os.sched_getaffinity(0) == stand.cores.host_a
    assert os.sched_getaffinity(0) == before
    for worker, cores in ((stand.a, stand.cores.worker_a), (stand.b, stand.cores.worker_b)):
        assert os.sched_getaffinity(worker.pid) == cores


def test_two_stands_over_udp():
    """Runs two stands at the same time, as the loads of the paper require."""
    with Stand(UDP) as one, Stand(UDP) as other:
        for stand in (one, other, one):
            with stand.connect(SHAPES[0]) as link:
                assert link.measure(Plan("write_bw", 2048, 100)).messages == 100


def test_without_protection_over_udp():
    with Stand(UDP, Settings(unprotected=True)) as stand:
        with stand.connect(Shape("none")) as link:
            assert link.measure(Plan("write_bw", 2048, 200)).messages == 200
        pids = [stand.a.pid, stand.b.pid]
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_failure_of_an_end_is_reported(stand, monkeypatch):
    """If the run fails and its end fails too, the error of the run is reported."""

    def fail(client, real=Client.finish):
        real(client)
        raise DeviceError("no end")

    monkeypatch.setattr(Client, "finish", fail)
    with pytest.raises(DeviceError, match="no end"), stand.connect(SHAPES[2]):
        pass
    with pytest.raises(KeyError), stand.connect(SHAPES[2]):
        raise KeyError


def test_failure_of_host_b_is_reported(stand):
    """If host B ends a connection because of an error, the error of host A contains that error."""
    with pytest.raises(RemoteError) as failed, stand.connect(SHAPES[2]) as link:
        link.in_mid_run = True
        link.client.say(run={"no_such_field": 1})
        link.client.hear("ready", 30.0)
    (note,) = failed.value.__notes__
    assert note.startswith("host B: ") and "no_such_field" in note


def test_run_begins_without_polling(stand, monkeypatch):
    """A load counts the messages that arrived before it in the inboxes of its QPs. If it polled
    meanwhile, a message for the first QP could arrive behind the look into its inbox."""
    with stand.connect(SHAPES[0]) as link:
        client = link.client
        client.prepare(PLANS[4])
        host, engine = client._host(PLANS[4]), client.there.qp.pd.engine
        with monkeypatch.context() as m:
            m.setattr(engine, "poll_again", lambda: pytest.fail("the load polled"))
            with host._running():
                pass
        assert link.measure(PLANS[4]).messages == 100


def test_interrupted_run_closes_all_links(stand, monkeypatch):
    """An interrupted run closes all links without the farewell that a finished run sends, because a
    peer in the middle of a run would answer it only at a deadline. The peer notices the end by its
    QPs."""

    def interrupt(*_, **words):
        raise KeyboardInterrupt

    with monkeypatch.context() as m, ExitStack() as stack:
        link = stack.enter_context(stand.connect(SHAPES[2]))
        m.setattr(Client, "run", interrupt)
        m.setattr(Client, "finish", lambda client: pytest.fail("the peer must not be told"))
        with pytest.raises(KeyboardInterrupt):
            link.measure(PLANS[2])
    with stand.connect(SHAPES[2]) as link:
        assert link.measure(PLANS[2]).messages
