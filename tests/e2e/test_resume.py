"""Sessions that survive their TLS connection (protocol.md 8.6): hosts, agents and workers are
real."""

from __future__ import annotations

import contextlib
import time

import pytest

import srdma
from srdma import Access
from tests.e2e.conftest import WAIT, Pair, run
from tests.e2e.tcp_relay import TcpRelay


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


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("mode", ["basic", "pd"])
def test_renewals_go_on_over_another_connection(relayed, reset, mode):
    pair, relay = relayed(mode=mode, qps=3)
    for cut in range(2):
        relay.cut(reset=reset)
        write(pair)
        pair.client.rekey(timeout=WAIT)
        pair.server.rekey(timeout=WAIT)
        write(pair)
        assert relay.accepted == 2 + cut
    assert pair.client.alive() and pair.server.alive()
