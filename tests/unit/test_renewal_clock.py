"""Clock (a) of agent.md 4 with simulated time, and the kernel's account of a peer's host."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from srdma.identity import Credentials, create_ca, issue
from srdma.keyex.renew import LOOK, LOOK_LEAST, NEVER, Clock
from srdma.keyex.tls import Outer

LIMIT = 60.0


class Host:
    """The peer's host."""

    def __init__(self) -> None:
        self.up = True

    def __call__(self) -> bool:
        return self.up


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def clock(host: Host) -> Clock:
    return Clock(LIMIT, host)


def looks(clock: Clock, begin: float, end: float) -> float | None:
    """Lets time pass, with a look whenever the clock wants one. Returns when it ran out."""
    now = begin
    while now <= end:
        if clock.ran_out(now):
            return now
        now = clock.wake
    return None


def test_nothing_is_due(clock: Clock) -> None:
    assert clock.wake == NEVER
    assert not clock.ran_out(1e9)
    clock.stop()
    assert clock.wake == NEVER


def test_runs_out_after_the_limit(clock: Clock) -> None:
    clock.start(100)
    assert looks(clock, 100, 100 + LIMIT - 0.001) is None
    assert clock.ran_out(100 + LIMIT)


def test_pause_of_the_agent_counts_little(clock: Clock) -> None:
    """An agent that was stopped, or blocked, does not end QPs for its own pause."""
    clock.start(100)
    assert not clock.ran_out(100 + 10 * LIMIT)
    assert looks(clock, 100 + 10 * LIMIT, 1e6) == 100 + 11 * LIMIT - 2 * LOOK


def test_looks_every_few_seconds(clock: Clock) -> None:
    clock.start(100)
    assert clock.wake == 100 + LOOK
    assert looks(clock, 100, 1000) == 100 + LIMIT


@pytest.mark.parametrize("limit", [60.0, 12.0, 4.0, 0.5])
def test_looks_when_half_of_the_limit_is_over(host: Host, limit: float) -> None:
    """An exchange that waits for its turn begins then."""
    clock = Clock(limit, host)
    clock.start(100)
    assert not clock.half_over
    while not clock.half_over:
        assert not clock.ran_out(clock.wake)
    assert clock._looked == 100 + limit / 2
    assert looks(clock, clock.wake, 1000) == 100 + limit


@pytest.mark.parametrize("left", [0.0, LIMIT / 2])
def test_pause_between_looks_while_the_peer_is_not_reachable(
    clock: Clock, host: Host, left: float
) -> None:
    """Also if little is left until the limit, or until half of it."""
    clock.start(100)
    begin = 100 + LIMIT - left - 0.001
    assert looks(clock, 100, begin) is None and not clock.ran_out(begin)
    host.up = False
    for _ in range(3):
        begin, last = clock.wake, begin
        assert not clock.ran_out(begin) and begin - last >= LOOK_LEAST * 0.99


def test_start_twice(clock: Clock) -> None:
    """A further reason for new secrets gives no further time."""
    clock.start(100)
    assert looks(clock, 100, 149) is None
    clock.start(150)
    assert looks(clock, 150, 1000) == 100 + LIMIT


def test_stop(clock: Clock) -> None:
    clock.start(100)
    clock.stop()
    assert not clock.ran_out(1000)
    clock.start(1000)
    assert looks(clock, 1000, 2000) == 1000 + LIMIT


def test_stands_while_the_peer_is_not_reachable(clock: Clock, host: Host) -> None:
    clock.start(0)
    assert looks(clock, 0, 30) is None
    host.up = False
    assert looks(clock, clock.wake, 5000) is None
    at = clock.wake
    host.up = True
    end = looks(clock, at, 9000)
    assert end is not None
    # Of the 30 s left, the interval that ends with the first look counts.
    assert 30 - LOOK <= end - at <= 30


def test_never_reachable(clock: Clock, host: Host) -> None:
    host.up = False
    clock.start(0)
    assert looks(clock, 0, 1e5) is None


# The kernel's account ---------------------------------------------------------------


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    path: Path = tmp_path_factory.mktemp("identities")
    create_ca(path, "test")
    issue(path, "spiffe://test/a", path / "a")
    return Credentials.named(path / "a")


def reachable(sock: socket.socket, credentials: Credentials) -> bool:
    async def look() -> bool:
        stream = await Outer.open(sock, "client", credentials)
        with contextlib.closing(sock):
            return stream.reachable()

    return asyncio.run(look())


def test_peer_that_acknowledges(credentials: Credentials) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = socket.create_connection(server.getsockname())
        with server.accept()[0]:
            assert reachable(sock, credentials)


def test_peer_that_acknowledged_too_long_ago(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outer.reachable, "__defaults__", (0.0,))
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = socket.create_connection(server.getsockname())
        with server.accept()[0]:
            assert not reachable(sock, credentials)


def test_socket_without_that_account(credentials: Credentials) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        assert reachable(ours, credentials)
