"""The far hosts of a stand: what ends badly there is said here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from srdma.errors import DeviceError, RemoteError
from srdma_bench import host_b
from srdma_bench.kvs import host as kvs_host
from srdma_bench.serving import Serving

NOBODY = RemoteError("nobody there")


def broken(error: Exception) -> Callable[..., None]:
    def fail(*words: object) -> None:
        raise error

    return fail


@pytest.fixture
def slow() -> Iterator[threading.Event]:
    """What ends with the test."""
    event = threading.Event()
    yield event
    event.set()


def ending(accept: Callable[..., object]) -> host_b.HostB:
    """With one connection, whose listener does so."""
    host = host_b.HostB()
    served = host_b.Served(SimpleNamespace(accept=accept), SimpleNamespace(), ExitStack())
    host._served[0] = served
    served.start()
    return host


@pytest.mark.parametrize(
    ("error", "why"), [(NOBODY, "^nobody there$"), (KeyError("run"), "KeyError: 'run'")]
)
def test_a_server_that_failed(error: Exception, why: str) -> None:
    with pytest.raises(DeviceError, match=why):
        ending(broken(error)).end(0)


def test_a_server_that_does_not_end(slow: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_b, "WAIT", 0.05)
    with pytest.raises(DeviceError, match=r"did not end in 0\.05 s"):
        ending(lambda timeout: slow.wait()).end(0)


def store(engine: SimpleNamespace, run: Callable[..., int]) -> kvs_host.KvsHost:
    """With one client, who is served so."""
    served = object.__new__(kvs_host.Served)
    Serving.__init__(served)
    served._pd = SimpleNamespace(engine=engine)
    served._server = SimpleNamespace(run=run)
    served._stack = ExitStack()
    host = kvs_host.KvsHost()
    host._served[0] = served
    served.start()
    return host


def engine(*, ended: bool = False) -> SimpleNamespace:
    return SimpleNamespace(ended=ended, lock=threading.Lock())


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (lambda: store(engine(), broken(KeyError("qp"))), "KeyError: 'qp'"),
        (lambda: store(engine(ended=True), lambda ns: 1), "^the worker of the store is gone$"),
    ],
)
def test_a_store_that_failed(host: Callable[[], kvs_host.KvsHost], why: str) -> None:
    with pytest.raises(DeviceError, match=why):
        host().end(0)


def test_a_store_that_ended() -> None:
    assert store(engine(), lambda ns: 0).end(0) == {}
