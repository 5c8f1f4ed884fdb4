"""Connections of an agent (srdma/agent/links.py, srdma/keyex/streams.py) without sessions."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from srdma.agent import links
from srdma.agent.links import Links
from srdma.agent.settings import Identity
from srdma.keyex import streams, tls
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, encode
from srdma.keyex.streams import CLOSED, Link, Stream
from srdma.keyex.tls import Outer, Truncated
from tests.keyex_players import HOST_A, HOST_B, PATIENCE, load

ADDRESS = ("127.0.0.1", 1)


def refused(stream: Stream, _: bytes | None) -> None:
    stream.send(encode(ErrorMessage("state", "no")))
    stream.forget()


async def pair(identities: Path, sizes: int = 0) -> tuple[Link, Link]:
    """Two ends of a connection, which have not started. sizes: of the buffers of the sockets."""
    socks = socket.socketpair()
    for sock in socks if sizes else ():
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, sizes)
    made = []
    for sock, role, name in zip(socks, ("client", "server"), "ab", strict=True):
        outer = await Outer.open(sock, role, load(identities, name))
        made.append(Link(outer, cast(Any, role)))
    await asyncio.gather(*(link.handshake() for link in made))
    assert [link.identity for link in made] == [HOST_B, HOST_A]
    return made[0], made[1]


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


def test_both_ends_send_much(identities: Path) -> None:
    """Neither end waits with reading until its own messages are read."""
    number, size = 1500, 5000

    async def exchange() -> None:
        client, server = await pair(identities, 1 << 14)

        def answer(stream: Stream, _: bytes | None) -> None:
            stream.send(bytes(size))

        server.start(answer)
        client.start(refused)
        opened = [client.open() for _ in range(number)]
        for stream in opened:
            stream.send(bytes(size))
        for stream in opened:
            assert len(await stream.message()) == size
        client.drop()
        server.drop()

    run(exchange())


def test_hello_of_the_peer(identities: Path) -> None:
    """It says that the peer's agent knows groups. Nobody waits for it once the connection ended."""

    async def greet(start: bool) -> None:
        client, server = await pair(identities)
        client.start(refused)
        waiting = asyncio.ensure_future(client.hello())
        await asyncio.sleep(0)
        assert not waiting.done()
        if start:
            server.start(refused)
        else:
            server.drop()
        await waiting
        assert client.groups == start and bool(client.end) != start
        client.drop()
        server.drop()

    run(greet(True))
    run(greet(False))


async def unread(identities: Path, size: int) -> tuple[Link, Link]:
    """A link with more than `size` bytes that its peer, the other one, does not read."""
    client, server = await pair(identities, 1 << 14)
    client.start(refused)
    stream = client.open()
    for _ in range(20 + size // 10_000):
        if client.outer.unsent <= size:
            stream.send(bytes(60_000))
        await asyncio.sleep(0)  # asyncio reads some before the server does
    assert client.outer.unsent > size
    return client, server


def test_peer_that_does_not_read(identities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is dropped after a while, by the look of Links from time to time."""
    monkeypatch.setattr(links, "SWEEP", 0.01)
    monkeypatch.setattr(streams, "UNREAD", 100_000)
    monkeypatch.setattr(streams, "UNREAD_FOR", 0.2)

    async def stall() -> None:
        client, server = await unread(identities, 100_000)
        made = Links(cast(Any, None))
        made.accepted(client, Identity(client.outer.credentials, ()))
        await asyncio.sleep(0.1)
        assert client.end is None
        while client.end is None:
            await asyncio.sleep(0.01)
        assert isinstance(client.end, Truncated)
        server.drop()
        await made.close()

    run(stall())


def test_peer_that_reads_late(identities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "UNREAD", 100_000)

    async def stall() -> None:
        client, server = await unread(identities, 100_000)
        assert not client.stuck(1000.0) and not client.stuck(1009.0)
        assert client.crowded_at == 1000.0
        server.start(lambda *_: None)
        while client.outer.unsent > 100_000:
            await asyncio.sleep(0.01)
        assert not client.stuck(1020.0)
        assert client.stuck(1031.0) is False
        client.drop()
        server.drop()

    run(stall())


@pytest.mark.parametrize("abort", [False, True])
def test_closed_connection_of_a_peer_that_does_not_read(
    identities: Path, monkeypatch: pytest.MonkeyPatch, abort: bool
) -> None:
    """Its socket is closed too, although bytes wait."""
    monkeypatch.setattr(tls, "FAREWELL", 0.05)

    async def close() -> None:
        client, server = await unread(identities, 100_000)
        await (client.abort(encode(ErrorMessage("state", "no"))) if abort else client.close())
        await asyncio.sleep(0)
        assert client.outer._writer.get_extra_info("socket").fileno() < 0
        server.drop()

    run(close())


def test_attempt_that_is_cancelled_as_another_session_asks(
    identities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other session makes an attempt of its own."""
    begun = 0

    async def dial(*_: object, **__: object) -> socket.socket:
        nonlocal begun
        begun += 1
        if begun == 1:
            await asyncio.sleep(PATIENCE)
        raise OSError("the second attempt")

    monkeypatch.setattr(links, "dial", dial)

    async def ask() -> None:
        made, own = Links(cast(Any, None)), Identity(load(identities, "a"), ())
        first = asyncio.ensure_future(made.meet(own, ADDRESS, user=0))
        while not begun:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)  # the cancellation is under way
        with pytest.raises(OSError, match="the second attempt"):
            await made.meet(own, ADDRESS, user=0)
        assert first.cancelled() and begun == 2

    run(ask())


def test_attempt_that_hangs(identities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that waits for it without a limit does not make later ones wait too."""
    monkeypatch.setattr(links, "JOINED", 0.05)
    begun: list[asyncio.Future[None]] = []

    async def dial(*_: object, **__: object) -> socket.socket:
        begun.append(asyncio.get_running_loop().create_future())
        await begun[-1]
        raise OSError(f"attempt {len(begun)}")

    monkeypatch.setattr(links, "dial", dial)

    async def ask() -> None:
        made, own = Links(cast(Any, None)), Identity(load(identities, "a"), ())
        asked = [asyncio.ensure_future(made.meet(own, ADDRESS, user=0)) for _ in range(2)]
        await asyncio.sleep(0.06)
        assert len(begun) == 1
        asked.append(asyncio.ensure_future(made.meet(own, ADDRESS, user=0)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(begun) == 2
        for first in asked[:2]:
            first.cancel()
        await asyncio.wait(asked[:2])
        assert begun[0].cancelled() and len(made._attempts) == 1
        asked.append(asyncio.ensure_future(made.meet(own, ADDRESS, user=0)))  # joins the second one
        await asyncio.sleep(0)
        begun[1].set_result(None)
        for late in asked[2:]:
            with pytest.raises(OSError, match="attempt 2"):
                await late
        assert not made._attempts

    run(ask())


def test_hello_of_a_connection_that_was_closed(identities: Path) -> None:
    """No stream is opened in it."""

    async def greet() -> None:
        made = Links(cast(Any, None))
        client, server = await pair(identities)
        own = Identity(server.outer.credentials, ())
        key = own.name, own.credentials, ("", 7), HOST_A  # "": a socket that has no address
        made.accepted(server, own)
        server.agent = 7
        server.greeted()
        assert made._found == {key: server}
        server.drop()
        made._remove(server)
        server.greeted()
        assert made._found == {}
        client.drop()
        await made.close()

    run(greet())


def test_fault_of_this_program_ends_the_connection(identities: Path) -> None:
    """No stream waits for its next message without a limit."""

    def opened(*_: object) -> None:
        raise ValueError("a fault")

    async def fault() -> None:
        client, server = await pair(identities)
        server.start(opened)
        client.start(refused)
        reader, waits = server._reader, server.open()
        assert reader
        client.open().send(b"first")
        with pytest.raises(Truncated, match="a fault of this agent"):
            await waits.message()
        await asyncio.wait({reader})
        assert isinstance(reader.exception(), ValueError)
        await asyncio.sleep(0)
        assert server.outer._writer.is_closing()
        client.drop()

    run(fault())


def test_stream_that_ends_before_its_first_message(identities: Path) -> None:
    """It has no number: the next one that is used takes the place of it."""

    async def drop() -> None:
        client, server = await pair(identities)
        found: list[tuple[int, bytes | None]] = []
        server.start(lambda stream, first: found.append((stream.number, first)))
        client.start(refused)
        dropped, used, late = client.open(), client.open(), client.open()
        dropped.forget()
        dropped.send(b"nothing")
        late.send(b"1")
        used.send(b"2")
        assert client.streams == 2
        while len(found) < 2 and not server.end:
            await asyncio.sleep(0.001)
        assert found == [(1, b"1"), (3, b"2")] and (late.number, used.number) == (1, 3)
        server.drop()
        client.drop()

    run(drop())


def test_streams_of_a_connection_are_limited(
    identities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "OPENS_MAX", 2)

    async def count() -> None:
        client, server = await pair(identities)
        client.start(refused)
        client.open().forget()
        assert client.has_room
        client.open()
        assert not client.has_room
        client.drop()
        server.drop()

    run(count())


async def opened_stream(client: Link, server: Link) -> tuple[Stream, Stream]:
    """A stream of two links, which begin here. Both ends of it."""
    found = asyncio.get_running_loop().create_future()
    server.start(lambda stream, _: found.set_result(stream))
    client.start(refused)
    stream = client.open()
    stream.send(b"first")
    return stream, await found


def test_messages_after_too_many(identities: Path) -> None:
    """They are dropped: a session must not go on behind a gap."""

    async def flood() -> None:
        client, server = await pair(identities)
        theirs, ours = await opened_stream(client, server)
        ours.most = 100
        for _ in range(4):
            theirs.send(bytes(80))
        while not ours.failed:
            await asyncio.sleep(0)
        theirs.send(b"behind the gap")
        await asyncio.sleep(0.05)
        with pytest.raises(ExchangeError, match="too many messages wait"):
            ours.take()
        client.drop()
        server.drop()

    run(flood())


def test_first_version_delays_a_peer_that_sends_too_much(identities: Path) -> None:
    """Its messages are read when there is room for them."""
    number = 50

    async def flood() -> None:
        client, server = await pair(identities, 1 << 14)
        for link in (client, server):
            link.outer.version = 1
            link.start(lambda *_: None)
        ours, theirs = server._streams[1], client.open()
        ours.most = 10_000
        for _ in range(number):
            theirs.send(bytes(5000))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert 1 < len(ours._inbox) <= 3
        for _ in range(number):
            assert len(await ours.message()) == 5000
        client.drop()
        server.drop()

    run(flood())


@pytest.mark.parametrize("by_the_peer", [True, False])
def test_message_behind_the_end_of_a_stream(identities: Path, by_the_peer: bool) -> None:
    """It is not sent."""

    async def end() -> None:
        client, server = await pair(identities)
        theirs, ours = await opened_stream(client, server)
        await (theirs if by_the_peer else ours).close()
        if by_the_peer:
            assert await ours.message() == CLOSED
        sent: list[object] = []
        server.send = lambda *each: sent.append(each)  # type: ignore[method-assign]
        ours.send(b"behind the end")
        assert not sent and not ours.connected()
        client.drop()
        server.drop()

    run(end())


def test_session_that_needs_its_connection(identities: Path) -> None:
    """Then the others of the same connection have it too."""

    async def look() -> None:
        client, server = await pair(identities)
        client.start(refused)
        first, second = client.open(), client.open()
        assert not client.parks()  # before READY
        first.parks = second.parks = lambda: True
        assert client.parks()
        second.parks = lambda: False
        assert not client.parks()
        assert not client.replaceable
        first.replaceable = True
        assert client.replaceable
        client.drop()
        server.drop()

    run(look())


def test_kernel_is_asked_about_the_last_minute(
    identities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def reachable(_: Outer, within: float = 15.0) -> bool:
        asked.append(within)
        return False

    monkeypatch.setattr(Outer, "reachable", reachable)

    async def look() -> None:
        client, server = await pair(identities)
        client.start(refused)
        client.open().replaceable = True
        made = Links(cast(Any, None))
        made._look(client)
        assert client.end and asked == [links.SILENCE]
        server.drop()

    run(look())
