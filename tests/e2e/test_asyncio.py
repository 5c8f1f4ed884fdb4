"""The asyncio API over two real workers: many concurrent calls, and every way
in which a wait ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import threading

import pytest

import srdma
import srdma.aio
from srdma import Access
from tests.e2e.conftest import WAIT, B, children, pattern

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ


def scenario(test):
    """Runs a coroutine as a test. It must end in time and leave no task behind."""

    def run(site, join, pki):
        async def limited():
            async with asyncio.timeout(2 * WAIT):
                await test(site=site, join=join, pki=pki)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(limited())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def on_own_site(test):
    """Like scenario(), for a test that harms its workers."""

    def run(own_site, join, pki):
        scenario(test)(own_site, join, pki)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@contextlib.asynccontextmanager
async def joined(site, join, pki, **options):
    """Returns both ends of a connection and their PDs, all in this event loop."""
    a, b = join.host(site.a).pd, join.host(site.b).pd
    options = {"timeout": WAIT} | options
    address = ("127.0.0.1", 0)
    async with await srdma.aio.listen(address, b, identity=pki / "b", **options) as listener:
        server, client = await asyncio.gather(
            listener.accept(),
            srdma.aio.connect(listener.address, a, identity=pki / "a", peer=B, **options),
        )
    async with client, server:
        yield client, server, a, b


# Data transfer --------------------------------------------------------------------


@scenario
async def test_every_call(site, join, pki):
    async with joined(site, join, pki, data=b"hello") as (client, server, _, b):
        assert (client.identity, client.data, client.alive()) == (B, b"hello", True)
        target = b.alloc(3 << 20, ALL, scope="pd")
        for size in (0, 448, 5000, (2 << 20) + 3):
            await client.qp.write(pattern(size), target.remote(), 5)
            assert target.buf[5 : 5 + size] == pattern(size)
            assert await client.qp.read(target.remote(), 5, size) == pattern(size)
        message, _ = await asyncio.gather(server.qp.recv(), client.qp.send(b"up", imm=7))
        assert message == (b"up", 7, 2)
        message, _ = await asyncio.gather(client.qp.recv(), server.qp.send(bytes(9000)))
        assert message.data == bytes(9000)


@scenario
async def test_many_at_once_on_one_qp(site, join, pki):
    async with joined(site, join, pki) as (client, _, _, b):
        target = b.alloc(100 * 1000, ALL, scope="pd")
        places = range(0, 100 * 1000, 1000)
        await asyncio.gather(
            *(client.qp.write(pattern(1000, at), target.remote(), at) for at in places)
        )
        found = await asyncio.gather(*(client.qp.read(target.remote(), at, 1000) for at in places))
        assert found == [pattern(1000, at) for at in places]


@scenario
async def test_many_at_once_on_several_qps(site, join, pki):
    async with joined(site, join, pki, qps=4, sq=8, rq=8) as (client, server, _, b):
        target = b.alloc(400 * 100, ALL, scope="pd")
        gathered = asyncio.gather(*(qp.recv(size=10) for qp in server.qps for _ in range(20)))
        await asyncio.gather(
            *(
                qp.write(pattern(100, n), target.remote(), n * 400 + i * 100)
                for n in range(100)
                for i, qp in enumerate(client.qps)
            ),
            *(qp.send(bytes([i, n])) for i, qp in enumerate(client.qps) for n in range(20)),
        )
        assert bytes(target.buf) == b"".join(pattern(100, n) * 4 for n in range(100))
        messages = [bytes([i, n]) for i in range(4) for n in range(20)]
        assert [m.data for m in await gathered] == messages


@scenario
async def test_async_for_ends_when_the_peer_closes(site, join, pki):
    async with joined(site, join, pki) as (client, server, *_):

        async def talk():
            await asyncio.gather(*(client.qp.send(bytes([n])) for n in range(50)))
            await client.close()

        talking = asyncio.ensure_future(talk())
        found = [message.data async for message in server.qp]
        await talking
        assert found == [bytes([n]) for n in range(50)]
        await server.wait_closed()
        assert not server.alive()


@scenario
async def test_listener_serves_many_clients(site, join, pki):
    """Runs the key exchanges of several peers concurrently; the QPs belong to one PD."""
    a, b = join.host(site.a).pd, join.host(site.b).pd
    async with await srdma.aio.listen(("127.0.0.1", 0), b, identity=pki / "b") as listener:
        servers = asyncio.gather(*(listener.accept() for _ in range(4)))
        clients = await asyncio.gather(
            *(srdma.aio.connect(listener.address, a, identity=pki / "a") for _ in range(4))
        )
        servers = await servers
    receiving = [asyncio.ensure_future(s.qp.recv()) for s in servers]
    await asyncio.gather(*(c.qp.send(b"%d" % n) for n, c in enumerate(clients)))
    assert sorted([(await r).data for r in receiving]) == [b"0", b"1", b"2", b"3"]
    await asyncio.gather(*(c.close() for c in (*clients, *servers)))


@scenario
async def test_waiting_uses_no_cpu_time(site, join, pki):
    async with joined(site, join, pki) as (client, server, *_):
        receiving = asyncio.ensure_future(server.qp.recv())
        await client.qp.send(b"first")
        await receiving
        before = resource.getrusage(resource.RUSAGE_SELF)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await server.qp.recv()
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3
        await client.qp.send(b"for the receive that stayed")
        assert (await server.qp.recv()).data == b"for the receive that stayed"


# Cancelling -----------------------------------------------------------------------


@scenario
async def test_cancelled_calls_leave_the_qp_usable(site, join, pki):
    async with joined(site, join, pki) as (client, _, _, b):
        target = b.alloc(1 << 20, ALL, scope="pd")
        for _ in range(20):
            calls = [
                asyncio.ensure_future(client.qp.write(pattern(5000, n), target.remote(), n * 5000))
                for n in range(30)
            ]
            await asyncio.sleep(0.001)
            for call in calls[::3]:
                call.cancel()
            await asyncio.wait(calls)
        for n in range(30):
            if n % 3:
                assert target.buf[n * 5000 : (n + 1) * 5000] == pattern(5000, n)
        await client.qp.write(b"still", target.remote())


@scenario
async def test_cancelled_accept_and_connect(site, join, pki):
    """Cancels with no peer, and with a peer that sends nothing."""
    threads = threading.active_count()
    a, b = join.host(site.a).pd, join.host(site.b).pd
    silent = socket.create_server(("127.0.0.1", 0))
    async with await srdma.aio.listen(
        ("127.0.0.1", 0), b, identity=pki / "b", timeout=WAIT
    ) as listener:
        mute = socket.create_connection(listener.address)
        calls = [
            asyncio.ensure_future(listener.accept()),
            asyncio.ensure_future(listener.accept()),
            asyncio.ensure_future(
                srdma.aio.connect(silent.getsockname(), a, identity=pki / "a", timeout=WAIT)
            ),
        ]
        loop = asyncio.get_running_loop()
        silent.setblocking(False)
        called, _ = await loop.sock_accept(silent)
        await loop.sock_recv(called, 1)  # the key exchange of connect() runs
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        assert all(c.cancelled() for c in calls)
        while threading.active_count() > threads:
            await asyncio.sleep(0.01)
    called.close()
    silent.close()
    mute.close()


@scenario
async def test_closing_a_listener_ends_accept(site, join, pki):
    b = join.host(site.b).pd
    listener = await srdma.aio.listen(("127.0.0.1", 0), b, identity=pki / "b")
    calls = [asyncio.ensure_future(listener.accept()) for _ in range(2)]
    await asyncio.sleep(0.05)
    await listener.close()
    for call in calls:
        with pytest.raises(srdma.ClosedError):
            await call


# Failures -------------------------------------------------------------------------


@scenario
async def test_listener_works_after_a_failed_peer(site, join, pki):
    a, b = join.host(site.a).pd, join.host(site.b).pd
    async with await srdma.aio.listen(("127.0.0.1", 0), b, identity=pki / "b") as listener:
        address = listener.address
        results = await asyncio.gather(
            listener.accept(),
            srdma.aio.connect(address, a, identity=pki / "a", peer="spiffe://test/somebody"),
            return_exceptions=True,
        )
        assert isinstance(results[1], srdma.IntegrityError)
        assert isinstance(results[0], srdma.Error)
        server, client = await asyncio.gather(
            listener.accept(), srdma.aio.connect(address, a, identity=pki / "a")
        )
        await asyncio.gather(server.close(), client.close())
    with pytest.raises(srdma.RemoteError, match="no listener at"):
        await srdma.aio.connect(address, a, identity=pki / "a")


@scenario
async def test_refused_by_the_peers_worker(site, join, pki):
    async with joined(site, join, pki) as (client, server, _, b):
        mr = b.alloc(100, ALL, scope="pd")
        wrong = srdma.RemoteMR(mr.addr, mr.rkey ^ 1, 100)
        with pytest.raises(srdma.RemoteError, match="BAD_RKEY"):
            await client.qp.write(b"x", wrong)
        with pytest.raises(srdma.RemoteError, match="BAD_RKEY"):
            await server.qp.recv()


async def waiters(client, target):
    """Starts calls that do not complete by themselves: receives, and SENDs without credit."""
    calls = [asyncio.ensure_future(client.qp.recv()) for _ in range(5)]
    calls += [asyncio.ensure_future(client.qp.send(bytes(n))) for n in (1, 1000, 1000)]
    await client.qp.write(b"x", target.remote())
    return calls


@scenario
async def test_peer_closes(site, join, pki):
    async with joined(site, join, pki) as (client, server, _, b):
        calls = await waiters(client, b.alloc(10, ALL, scope="pd"))
        await server.close()
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, srdma.RemoteError)
            assert "PEER_CLOSED" in str(result)
        await client.wait_closed()


@on_own_site
async def test_local_worker_is_killed(site, join, pki):
    async with joined(site, join, pki) as (client, _, _, b):
        calls = await waiters(client, b.alloc(10, ALL, scope="pd"))
        site.a.process.send_signal(signal.SIGKILL)
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(r) for r in results} == {srdma.WorkerGone}
        with pytest.raises(srdma.WorkerGone):
            await client.qp.send(b"x")


@on_own_site
async def test_worker_of_the_peer_is_killed(site, join, pki):
    async with joined(site, join, pki) as (client, _, _, b):
        calls = await waiters(client, b.alloc(10, ALL, scope="pd"))
        site.b.process.send_signal(signal.SIGKILL)
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, srdma.RemoteError)
        assert client.qp.sync.reason == "WIRE_LOST"


@scenario
async def test_closing_leaves_no_descriptors_or_threads(site, join, pki):
    def left():
        return (
            children(),
            set(os.listdir("/dev/shm")),
            len(os.listdir("/proc/self/fd")),
        )

    async with joined(site, join, pki) as (_, _, a, b):
        pass
    before, threads = left(), threading.active_count()
    async with await srdma.aio.listen(("127.0.0.1", 0), b, identity=pki / "b") as listener:
        server, client = await asyncio.gather(
            listener.accept(), srdma.aio.connect(listener.address, a, identity=pki / "a")
        )
    async with client, server:
        await asyncio.gather(server.qp.recv(size=10), client.qp.send(b"x"))
    assert left() == before
    while threading.active_count() > threads:  # a thread may still be in its last step
        await asyncio.sleep(0.001)
    with pytest.raises(srdma.ClosedError):
        await client.qp.send(b"x")
