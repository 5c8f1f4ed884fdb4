"""Reconnecting on request after QPs have failed or were closed (protocol.md 7)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import srdma
import srdma.aio
from srdma.connection import Address
from tests.e2e.conftest import WAIT, A, B, Host, Joiner, Site, run

ALL = srdma.Access.LOCAL_WRITE | srdma.Access.REMOTE_WRITE | srdma.Access.REMOTE_READ
SIZE = 10_000


@contextmanager
def serving(host: Host, pki: Path, address: Address = ("127.0.0.1", 0)) -> Iterator[srdma.Listener]:
    with srdma.listen(address, host.pd, identity=pki / "b", timeout=WAIT) as listener:
        yield listener


def called(host: Host, listener: srdma.Listener, pki: Path) -> list[srdma.Connection]:
    """Returns the client's end and the server's end."""
    accepted = run(listener.accept, WAIT)
    client = srdma.connect(
        listener.address, host.pd, identity=pki / "a", peer=B, timeout=WAIT, data=b"mine"
    )
    return [client, accepted()]


def check(client: srdma.Connection, server: srdma.Connection, target: srdma.MR) -> None:
    client.qp.write(b"x" * SIZE, target.remote(), timeout=WAIT)
    assert bytes(target.buf) == b"x" * SIZE
    assert (client.identity, server.identity, server.data) == (B, A, b"mine")


def test_worker_of_the_peer_restarts(own_site: Site, join: Joiner, pki: Path) -> None:
    """The new worker has no state. The local end keeps its PD and its regions."""
    a, b = join.host(own_site.a), join.host(own_site.b)
    with ExitStack() as stack:
        listener = stack.enter_context(serving(b, pki))
        address = listener.address
        client, server = called(a, listener, pki)
        check(client, server, b.pd.alloc(SIZE, ALL, scope="pd"))
        waiting = run(client.qp.recv, WAIT)
        own_site.b.process.send_signal(signal.SIGKILL)
        with pytest.raises(srdma.RemoteError, match="WIRE_LOST"):
            waiting()
        server.close()
    own_site.b.process.wait()
    b = join.host(own_site.embedded.start("b"))
    with serving(b, pki, address) as listener:
        accepted = run(listener.accept, WAIT)
        again = client.reconnect()
        assert client.closed and not again.closed
        check(again, accepted(), b.pd.alloc(SIZE, ALL, scope="pd"))


def test_host_of_the_peer_restarts(site: Site, join: Joiner, pki: Path) -> None:
    a, b = join.host(site.a), join.host(site.b)
    with serving(b, pki) as listener:
        address = listener.address
        client, server = called(a, listener, pki)
        server.close()
    with pytest.raises(srdma.RemoteError, match="no listener at"):
        client.reconnect()
    b = join.host(site.b)
    with serving(b, pki, address) as listener:
        accepted = run(listener.accept, WAIT)
        check(client.reconnect(), accepted(), b.pd.alloc(SIZE, ALL, scope="pd"))


def test_reconnect_of_a_working_connection(site: Site, join: Joiner, pki: Path) -> None:
    """reconnect() of a working connection may be called repeatedly. It closes the former connection
    at both ends."""
    a, b = join.host(site.a), join.host(site.b)
    target = b.pd.alloc(SIZE, ALL, scope="pd")
    with serving(b, pki) as listener:
        client, server = called(a, listener, pki)
        for _ in range(3):
            accepted = run(listener.accept, WAIT)
            client = client.reconnect()
            with pytest.raises(srdma.RemoteError, match="PEER_CLOSED"):
                server.qp.recv(WAIT)
            server = accepted()
            check(client, server, target)


def test_reconnect_is_refused(own_site: Site, join: Joiner, pki: Path) -> None:
    a, b = join.host(own_site.a), join.host(own_site.b)
    with serving(b, pki) as listener:
        client, server = called(a, listener, pki)
        with pytest.raises(srdma.LocalError, match="it was accepted by a listener"):
            server.reconnect()
        own_site.a.process.kill()
        own_site.a.process.wait()
        with pytest.raises(srdma.WorkerGone, match="open a Context and a PD"):
            client.reconnect()
        a.pd.close()
        with pytest.raises(srdma.ClosedError):
            client.reconnect()


def test_asyncio(own_site: Site, join: Joiner, pki: Path) -> None:
    async def scenario() -> None:
        a, b = join.host(own_site.a), join.host(own_site.b)
        target = b.pd.alloc(SIZE, ALL, scope="pd")
        how = {"identity": pki / "a", "peer": B, "timeout": WAIT, "data": b"mine"}
        async with await srdma.aio.listen(
            ("127.0.0.1", 0), b.pd, identity=pki / "b", timeout=WAIT
        ) as listener:
            client, server = await asyncio.gather(
                srdma.aio.connect(listener.address, a.pd, **how), listener.accept()
            )
            await server.close()
            await client.wait_closed()
            again, server = await asyncio.gather(client.reconnect(), listener.accept())
            assert client.sync.closed and server.data == b"mine"
            await again.qp.write(b"y" * SIZE, target.remote())
            assert bytes(target.buf) == b"y" * SIZE
            with pytest.raises(srdma.LocalError, match="it was accepted by a listener"):
                await server.reconnect()
            await again.close()
            await server.close()

    asyncio.run(scenario())
