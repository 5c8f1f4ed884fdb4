"""Capabilities that stay installed, and handles that outstanding requests hold, with a worker that
only records calls."""

from __future__ import annotations

import threading

import pytest

from srdma import Capability, QueueFullError, RefusedError
from srdma._engine.handles import Handles, Uses
from tests.native.memkeys import Region

REGION = Region(b"K_PDmem of tests", (0x10000, 0x10000 + 64 * 64, 6, 48), 7, 1, bytes(16))


def cap(n: int) -> Capability:
    """A capability for block n: equal for equal n, but a new object each time."""
    return Capability(REGION.grant(n * 64, (n + 1) * 64, 1))


class Worker:
    """Records what is installed. `fails` makes it refuse to install."""

    def __init__(self, limit: int = 3) -> None:
        self.installed: dict[int, Capability] = {}
        self.calls: list[str] = []
        self.fails = False
        self.handles = Handles(self._install, self._uninstall, limit)

    def _install(self, capability: Capability) -> int:
        if self.fails:
            raise RefusedError(122, "no")
        number = len(self.calls) + 1
        self.calls.append("install")
        self.installed[number] = capability
        return number

    def _uninstall(self, number: int) -> None:
        self.calls.append("uninstall")
        del self.installed[number]

    def use(self, n: int) -> None:
        self.handles.give(self.handles.take(cap(n)))


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_installed_once(worker):
    first, again = worker.handles.take(cap(1)), worker.handles.take(cap(1))
    assert first is again
    assert worker.calls == ["install"]
    assert worker.installed == {first.number: cap(1)}
    assert worker.handles.take(cap(2)).number != first.number


def test_least_recently_used_is_uninstalled(worker):
    for n in (1, 2, 3, 1, 4):
        worker.use(n)
    assert set(worker.installed.values()) == {cap(1), cap(3), cap(4)}
    worker.use(2)
    assert set(worker.installed.values()) == {cap(1), cap(2), cap(4)}
    assert worker.calls == ["install"] * 3 + ["uninstall", "install"] * 2


def test_capability_of_an_outstanding_request_stays_installed(worker):
    held = worker.handles.take(cap(1))
    for n in range(2, 10):
        worker.use(n)
    assert worker.installed[held.number] == cap(1)
    worker.handles.give(held)
    for n in range(10, 13):
        worker.use(n)
    assert cap(1) not in worker.installed.values()


def test_all_capabilities_are_in_use(worker):
    held = [worker.handles.take(cap(n)) for n in range(3)]
    with pytest.raises(QueueFullError, match="outstanding requests name 3 capabilities"):
        worker.handles.take(cap(3))
    assert worker.handles.take(cap(0)) is held[0]
    worker.handles.give(held[1])
    worker.handles.take(cap(3))
    assert cap(1) not in worker.installed.values()


def test_refused_install_takes_no_place(worker):
    for n in range(3):
        worker.use(n)
    worker.fails = True
    with pytest.raises(RefusedError, match="no"):
        worker.handles.take(cap(3))
    worker.fails = False
    held = [worker.handles.take(cap(n)) for n in (1, 2, 3)]
    assert set(worker.installed) == {handle.number for handle in held}


def test_concurrent_threads_install_one_capability_once(worker):
    together = threading.Barrier(8)
    got = []

    def take():
        together.wait()
        got.append(worker.handles.take(cap(1)))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worker.calls == ["install"]
    assert {handle.uses for handle in got} == {8}


# Requests of a QP ---------------------------------------------------------------


@pytest.fixture
def uses(worker) -> Uses:
    return Uses(worker.handles)


def test_signaled_request_holds_until_it_completes(worker, uses):
    first, second = worker.handles.take(cap(1)), worker.handles.take(cap(2))
    uses.posted(True, first)
    uses.posted(True)
    uses.posted(True, second)
    for left in ((0, 1), (0, 1), (0, 0)):
        uses.ended()
        assert (first.uses, second.uses) == left


def test_unsignaled_request_holds_until_the_next_signaled_one_completes(worker, uses):
    handles = [worker.handles.take(cap(n)) for n in range(3)]
    uses.posted(True)
    uses.posted(False, handles[0])
    uses.posted(False, handles[1])
    uses.posted(True)
    uses.posted(False, handles[2])
    uses.ended()
    assert [handle.uses for handle in handles] == [1, 1, 1]
    uses.ended()
    assert [handle.uses for handle in handles] == [0, 0, 1]
    uses.clear()
    uses.clear()
    assert [handle.uses for handle in handles] == [0, 0, 0]
