"""The two clocks that bound the use of a secret (protocol.md 8.5, agent.md 4, 5): hosts, agents and
workers are real. `limit` and `max_secret_age` are short here."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

import srdma
from srdma import connection as connections
from srdma.errors import Timeout
from tests.e2e.conftest import WAIT, write

LIMIT = AGE = 5  # seconds; an exchange takes less, on a busy machine too


def ended_by(qp: srdma.SecureQP) -> str:
    """Waits until the QP has ended. Returns the reason."""
    with pytest.raises(srdma.Error):
        while True:
            qp.send(b"x", timeout=WAIT)
    return qp.reason


@pytest.mark.parametrize("reset", [True, False])
# RFC 5042 R5.4.5-2
def test_cut_tcp_connection(relayed, reset):
    """No QP ends with the TCP connection. Clock (b) ends both, with the old secrets."""
    pair, relay = relayed(max_secret_age=AGE)
    start = time.monotonic()
    relay.block()
    relay.cut(reset=reset)
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
        with pytest.raises(Timeout, match=f"no new secrets in {LIMIT} s, waiting for"):
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
