"""Control connections that are made again (control-link.md 2.5). The NIC's ends are the test's."""

from __future__ import annotations

import errno
import gc
import select
import socket
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from srdma.control import Control, lasting
from srdma.control.lasting import LastingControl
from srdma.errors import (
    ClosedError,
    DeviceError,
    Error,
    IntegrityError,
    LocalError,
    RefusedError,
    RemoteError,
    Timeout,
    WorkerGone,
)
from srdma.native import control as messages
from tests.keyex_players import HEADER, PATIENCE, until

TOKEN = bytes(16)
ATTACHED = (5).to_bytes(4, "big") + bytes(68)
LEG = 5


class Nic:
    """Makes connections. ends: the NIC's ends; errors: of the next attempts; dead: how many of the
    next connections have ended already; held: an attempt waits until it is set."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.errors: list[Exception] = []
        self.calls = self.dead = 0
        self.held = threading.Event()
        self.held.set()

    def connect(self) -> Control:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        there.settimeout(PATIENCE)
        self.ends.append(there)
        return Control(here)

    def again(self) -> Control:
        self.calls += 1
        assert self.held.wait(PATIENCE)
        if self.errors:
            raise self.errors.pop(0)
        made = self.connect()
        if self.dead:
            self.dead -= 1
            self.lose()
        return made

    def lose(self) -> None:
        """The newest connection ends."""
        self.ends[-1].close()

    def back(self, connections: int = 2) -> None:
        """Wait until there were so many connections."""
        until(lambda: len(self.ends) == connections)

    def take(self) -> tuple[int, int]:
        """Kind and tag of a request."""
        kind, _, tag, _ = HEADER.unpack_from(self.ends[-1].recv(9000))
        return kind, tag

    def answer(self, body: bytes = b"", status: int = 0) -> None:
        kind, tag = self.take()
        self.ends[-1].send(HEADER.pack(kind, 0, tag, status) + body)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting, "PAUSE", 0.001)


@pytest.fixture
def nic() -> Iterator[Nic]:
    nic = Nic()
    yield nic
    nic.held.set()
    for end in nic.ends:
        end.close()


@pytest.fixture
def control(nic: Nic) -> Iterator[LastingControl]:
    control = LastingControl(nic.connect(), nic.again)
    yield control
    control.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def is_readable(control: LastingControl) -> bool:
    poll = select.poll()
    poll.register(control, select.POLLIN)
    return bool(poll.poll(0))


def attaches(nic: Nic, pool: ThreadPoolExecutor, control: LastingControl) -> None:
    """The connection carries requests."""
    attached = pool.submit(control.attach, TOKEN)
    nic.answer(ATTACHED)
    assert attached.result(PATIENCE) == LEG


def gives_up(control: LastingControl) -> None:
    until(lambda: not control.alive())
    assert is_readable(control)
    with pytest.raises(WorkerGone):
        control.attach(TOKEN)


def test_loss_and_return(nic: Nic, control: LastingControl, pool: ThreadPoolExecutor) -> None:
    attaches(nic, pool, control)
    for connections in (2, 3):
        nic.lose()
        nic.back(connections)
        attaches(nic, pool, control)
    assert control.alive() and not is_readable(control)


@pytest.mark.parametrize(
    "error",
    [
        RemoteError("busy"),
        DeviceError("no link to the NIC"),
        Timeout("the agent did not answer"),
        OSError(errno.EMFILE, "too many open files"),
        RefusedError(errno.EDQUOT, "too many connections"),
    ],
)
def test_attempts_that_fail(
    nic: Nic, control: LastingControl, pool: ThreadPoolExecutor, error: Exception
) -> None:
    """The link ended again before the answer, or a limit was reached: the next attempt may work."""
    nic.errors = [error, error]
    nic.lose()
    nic.back()
    assert nic.calls == 3
    attaches(nic, pool, control)


def test_second_loss_at_once(nic: Nic, control: LastingControl, pool: ThreadPoolExecutor) -> None:
    """The new connection has ended before its first use."""
    nic.dead = 2
    nic.lose()
    nic.back(4)
    attaches(nic, pool, control)


@pytest.mark.parametrize(
    "error",
    [
        RefusedError(errno.EPERM, "no leg has this token"),
        LocalError("the policy grants nothing"),
        IntegrityError("another identity"),
    ],
)
def test_error_that_cannot_pass(nic: Nic, control: LastingControl, error: Error) -> None:
    nic.errors = [error]
    nic.lose()
    gives_up(control)
    assert nic.calls == 1


def test_fault_in_an_attempt(
    nic: Nic, control: LastingControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported, and the program notices the end."""
    found: Future[object] = Future()
    monkeypatch.setattr(threading, "excepthook", lambda fault: found.set_result(fault.exc_type))
    nic.errors = [RuntimeError("a fault")]
    nic.lose()
    gives_up(control)
    assert found.result(PATIENCE) is RuntimeError


def test_time_is_over(nic: Nic, control: LastingControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting, "KEEP_LEGS", 0.05)
    nic.errors = [DeviceError("no link")] * 100_000
    nic.lose()
    gives_up(control)
    assert nic.calls


# Requests -------------------------------------------------------------------------


def test_request_that_is_repeated(
    nic: Nic, control: LastingControl, pool: ThreadPoolExecutor
) -> None:
    attached = pool.submit(control.attach, TOKEN)
    nic.take()
    nic.lose()
    nic.back()
    nic.answer(ATTACHED)
    assert attached.result(PATIENCE) == LEG


@pytest.mark.parametrize("end", ["destroy", "dereg_mr", "uninstall"])
def test_end_that_was_executed(
    nic: Nic, control: LastingControl, pool: ThreadPoolExecutor, end: str
) -> None:
    """The worker had ended the object before the answer was lost."""
    values = [7] if end == "destroy" else [LEG, 7]
    ended = pool.submit(getattr(control, end), *values)
    nic.take()
    nic.lose()
    nic.back()
    nic.answer(b"there is none", errno.ENOENT)
    ended.result(PATIENCE)
    ended = pool.submit(getattr(control, end), *values)
    nic.answer(b"there is none", errno.ENOENT)
    with pytest.raises(RefusedError, match="there is none"):
        ended.result(PATIENCE)


def test_request_that_may_have_made_something(
    nic: Nic, control: LastingControl, pool: ThreadPoolExecutor
) -> None:
    made = pool.submit(control.install, LEG, bytes(messages.TOKEN_MIN))
    nic.take()
    nic.lose()
    with pytest.raises(Timeout, match="ended during INSTALL: try again"):
        made.result(PATIENCE)
    nic.back()
    attaches(nic, pool, control)


def test_request_without_a_link(nic: Nic, control: LastingControl) -> None:
    nic.held.clear()
    nic.lose()
    until(lambda: nic.calls == 1)
    with pytest.raises(Timeout, match="no link to the NIC in time for DESTROY"):
        control.destroy(7, timeout=0.01)
    assert control.alive()


# The end --------------------------------------------------------------------------


def test_close_with_a_request_in_flight(
    nic: Nic, control: LastingControl, pool: ThreadPoolExecutor
) -> None:
    attached = pool.submit(control.attach, TOKEN)
    nic.take()
    control.close()
    with pytest.raises(ClosedError):
        attached.result(PATIENCE)
    with pytest.raises(ClosedError):
        control.attach(TOKEN)


def test_close_during_an_attempt(
    nic: Nic, control: LastingControl, pool: ThreadPoolExecutor
) -> None:
    """The connection that it makes is closed, and a request that waited for it ends."""
    nic.held.clear()
    nic.lose()
    until(lambda: nic.calls == 1)
    attached = pool.submit(control.attach, TOKEN)
    control.close()
    with pytest.raises(ClosedError):
        attached.result(PATIENCE)
    nic.held.set()
    nic.back()
    assert nic.ends[-1].recv(1) == b""
    assert nic.calls == 1


def test_close_between_two_looks(nic: Nic) -> None:
    """The thread saw that it was alive, and then finds a closed socket."""

    class Late(LastingControl):
        def alive(self) -> bool:
            return True

    control = Late(nic.connect(), nic.again)
    control.close()
    lasting._watch(weakref.ref(control))
    assert not nic.calls


def test_object_without_a_reference(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ends, and so does the connection."""
    monkeypatch.setattr(lasting, "LOOK", 0.01)
    control = LastingControl(nic.connect(), nic.again)
    del control
    gc.collect()
    assert nic.ends[0].recv(1) == b""
    assert not nic.calls
