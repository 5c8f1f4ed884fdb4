"""The remote hosts of a stand: their errors are reported at this end."""

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
    """An event that is set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def ending(accept: Callable[..., object]) -> host_b.HostB:
    """A host with one connection. The accept() of its listener is the given one."""
    host = host_b.HostB()
    served = host_b.Served(SimpleNamespace(accept=accept), SimpleNamespace(), ExitStack())
    host._served[0] = served
    served.start()
    return host


@pytest.mark.parametrize(
    ("error", "why"), [(NOBODY, "^nobody there$"), (KeyError("run"), "KeyError: 'run'")]
)
def test_failed_server(error: Exception, why: str) -> None:
    with pytest.raises(DeviceError, match=why):
        ending(broken(error)).end(0)


def test_server_that_does_not_end(slow: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_b, "WAIT", 0.05)
    with pytest.raises(DeviceError, match=r"did not end in 0\.05 s"):
        ending(lambda timeout: slow.wait()).end(0)


def store(engine: SimpleNamespace, run: Callable[..., int]) -> kvs_host.KvsHost:
    """A host with one client of the store. The run() of its server is the given one."""
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
        (lambda: store(engine(ended=True), lambda ns: 1), "^the worker of the store ended$"),
    ],
)
def test_failed_store(host: Callable[[], kvs_host.KvsHost], why: str) -> None:
    with pytest.raises(DeviceError, match=why):
        host().end(0)


def test_store_that_ends_normally() -> None:
    assert store(engine(), lambda ns: 0).end(0) == {}
