"""The two clocks that bound the use of a secret (protocol.md 8.5, agent.md 4, 5): hosts, agents and
workers are real. `limit` and `max_secret_age` are short here."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

import srdma
from srdma import Access
from srdma import connection as connections
from srdma.errors import Timeout
from tests.e2e.conftest import WAIT, Pair, run

LIMIT = 2.0
AGE = 2
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


class TcpRelay:
    """Forwards one TCP connection to `target`, until cut() ends both sides."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()
        self._orders, self._order = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def cut(self, *, reset: bool) -> None:
        """Ends both sides, by RST or by FIN."""
        self._order.send(b"r" if reset else b"f")
        self._thread.join(WAIT)

    def close(self) -> None:
        self._order.close()
        self._thread.join(WAIT)
        self._server.close()

    def _run(self) -> None:
        near, _ = self._server.accept()
        with near, socket.create_connection(self._target) as far, self._orders:
            other = {near: far, far: near}
            while True:
                for end in select.select([near, far, self._orders], [], [])[0]:
                    data = end.recv(65536)
                    if end is self._orders:
                        for each in other if data == b"r" else ():
                            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                        return
                    if not data:
                        return
                    other[end].sendall(data)


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
    with pair.b.pd.alloc(64, Access.LOCAL_WRITE | Access.REMOTE_WRITE) as region:
        pair.client.qp.write(b"x" * 64, region.remote(), timeout=WAIT)
        assert bytes(region.buf) == b"x" * 64


def ended_by(qp: srdma.SecureQP) -> str:
    """Waits until the QP has ended. Returns the reason."""
    with pytest.raises(srdma.Error):
        while True:
            qp.send(b"x", timeout=WAIT)
    return qp.reason


def wait_until_closed(*ends: srdma.Connection) -> None:
    deadline = time.monotonic() + WAIT
    while any(end.alive() for end in ends):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("reset", [True, False])
def test_cut_tcp_connection(relayed, reset):
    """No QP ends with the TCP connection. Clock (b) ends both, with the old secrets."""
    pair, relay = relayed(max_secret_age=AGE)
    start = time.monotonic()
    relay.cut(reset=reset)
    wait_until_closed(pair.client, pair.server)
    write(pair)
    assert {ended_by(qp) for qp in pair} <= {"KEY_LIMIT", "PEER_ERROR"}
    assert time.monotonic() - start >= AGE - 1  # the worker counts whole seconds


def test_renewals_prolong_the_life(join, site):
    pair = join(site, max_secret_age=AGE, rekey_every=AGE / 4)
    end = time.monotonic() + 2 * AGE
    while time.monotonic() < end:
        write(pair)
        time.sleep(0.05)
    assert pair.client.alive() and pair.server.alive()


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("end", ["client", "server"])
def test_silent_peer(join, site, monkeypatch, end):
    """The peer's host acknowledges TCP segments, but its agent does nothing. Clock (a) ends the
    QPs, not before `limit`, and requests complete until then."""
    monkeypatch.setattr(connections, "REKEY_LIMIT", LIMIT)
    pair = join(site)
    mine, its_host = (pair.client, pair.b) if end == "client" else (pair.server, pair.a)
    start = time.monotonic()
    with stopped(its_host.ctx.agent().pid):
        wish = mine.wish()
        write(pair)
        with pytest.raises(Timeout, match="no new secrets in 2 s, waiting for"):
            mine.wait_renewed(wish, start + WAIT)
        assert time.monotonic() - start >= LIMIT
        assert ended_by(mine.qp) == "KEY_LIMIT"


def test_rotation_drops_those_behind(join, site, monkeypatch):
    """One peer of the PD takes no part in the renewal. Its QPs end by clock (a), and rotate()
    completes; the other peers go on."""
    monkeypatch.setattr(connections, "REKEY_LIMIT", LIMIT)
    owner, other = join.host(site.a), join.host(site.b)
    behind = join.connect(owner, join.host(site.b), mode="pd")
    good = join.connect(owner, other, mode="pd")
    with stopped(behind.b.ctx.agent().pid):
        assert owner.pd.rotate(WAIT) >= 1
        assert ended_by(behind.client.qp) == "KEY_LIMIT"
        write(good)
    assert good.client.alive()
