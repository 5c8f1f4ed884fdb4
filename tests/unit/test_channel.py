"""Messages of a program in pieces (srdma/agent/channel.py)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import cbor2
import pytest

from srdma.agent.channel import FIRST, MESSAGE_MAX, UNREAD_MAX, Channel
from srdma.agent.users import ROOM_MAX, Room, Users
from srdma.keyex.fields import ExchangeError
from tests.keyex_players import PATIENCE

RENEW = {"do": "renew", "wish": 1}


def framed(fields: Any) -> bytes:
    raw = cbor2.dumps(fields)
    return len(raw).to_bytes(4, "big") + raw


def played(work: Callable[[Channel, socket.socket], Coroutine[Any, Any, None]]) -> None:
    """Runs a test with a channel, and the program's end, which has sent one byte of `RENEW`."""

    async def play() -> None:
        ours, theirs = socket.socketpair()
        with ours:
            ours.send(framed(RENEW)[:1])
            channel = await Channel.open(theirs, 0)
            await work(channel, ours)
            ours.close()
            await channel.close()

    asyncio.run(asyncio.wait_for(play(), PATIENCE))


async def arrived(channel: Channel, size: int) -> None:
    """Wait until so many bytes wait in the channel."""
    while len(channel._in) < size:
        await asyncio.sleep(0)


def test_one_byte_after_another() -> None:
    async def work(channel: Channel, program: socket.socket) -> None:
        raw = framed(RENEW)
        for number in range(1, len(raw)):
            await arrived(channel, number)
            assert channel.take() is None and not channel.ended
            program.send(raw[number : number + 1])
        await arrived(channel, len(raw))
        assert channel.take() == RENEW
        assert channel.take() is None

    played(work)


@pytest.mark.parametrize("at", range(0, 3 * len(framed(RENEW)), 5))
def test_three_messages_in_two_pieces(at: int) -> None:
    async def work(channel: Channel, program: socket.socket) -> None:
        messages = [RENEW | {"wish": number} for number in (1, 2, 3)]
        raw = b"".join(map(framed, messages))[1:]
        got = []
        for piece in (raw[:at], raw[at:]):
            before = len(channel._in)
            program.send(piece)
            await arrived(channel, before + len(piece))
            while (message := channel.take()) is not None:
                got.append(message)
        assert got == messages

    played(work)


def test_watch() -> None:
    """It is called for bytes, also if they are not a whole message, and at the end."""

    async def work(channel: Channel, program: socket.socket) -> None:
        news: list[bool] = []
        channel.watch(lambda: news.append(channel.ended))
        raw = framed(RENEW)
        for sent, piece in enumerate((raw[1:3], raw[3:] + raw), 1):
            program.send(piece)
            while len(news) < sent:
                await asyncio.sleep(0)
        program.shutdown(socket.SHUT_WR)
        while not channel.ended:
            await asyncio.sleep(0)
        assert news == [False, False, True]
        assert channel.take() == channel.take() == RENEW  # messages before the end remain
        assert channel.take() is None
        channel.watch(None)

    played(work)


def test_no_news_without_watch() -> None:
    async def work(channel: Channel, program: socket.socket) -> None:
        news: list[None] = []
        channel.watch(lambda: news.append(None))
        channel.watch(None)
        program.send(framed(RENEW)[1:])
        assert await channel.message() == RENEW
        assert not news

    played(work)


def test_message_and_its_watcher() -> None:
    """A task that waits for a message gets it although another one watches."""

    async def work(channel: Channel, program: socket.socket) -> None:
        news: list[None] = []
        channel.watch(lambda: news.append(None))
        waits = asyncio.ensure_future(channel.message())
        program.send(framed(RENEW)[1:5])
        await arrived(channel, 5)
        assert news and not waits.done()
        program.send(framed(RENEW)[5:])
        assert await waits == RENEW

    played(work)


@pytest.mark.parametrize("size", [1, 3, 4, 10])
def test_end_within_a_message(size: int) -> None:
    async def work(channel: Channel, program: socket.socket) -> None:
        program.send(framed(RENEW)[1:size])
        program.shutdown(socket.SHUT_WR)
        assert await channel.message() is None
        assert channel.ended and channel.take() is None

    played(work)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ((MESSAGE_MAX + 1).to_bytes(4, "big"), f"a message of {MESSAGE_MAX + 1} bytes: at most"),
        (framed([1]), "not a CBOR map"),
        (b"\0\0\0\1\xff", "not CBOR"),
        (b"\0\0\0\0", "not CBOR"),
    ],
)
def test_malformed_message_behind_a_right_one(raw: bytes, text: str) -> None:
    """The right one is processed. The length is checked before the rest arrives."""

    async def work(channel: Channel, program: socket.socket) -> None:
        whole = framed(RENEW) + raw
        program.send(whole[1:])
        await arrived(channel, len(whole))
        assert channel.take() == RENEW
        with pytest.raises(ExchangeError, match=text) as caught:
            channel.take()
        assert caught.value.code == "config"

    played(work)


def test_longest_message_in_pieces() -> None:
    async def work(channel: Channel, program: socket.socket) -> None:
        empty = framed(RENEW | {"text": b""})
        raw = framed(RENEW | {"text": bytes(MESSAGE_MAX + 4 - len(empty) - 4)})
        assert len(raw) == UNREAD_MAX
        program.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(program, raw[1:])
        message = await channel.message()
        assert message and message["wish"] == 1

    played(work)


def test_room_of_a_user() -> None:
    """The channel for which there is no room is closed, and those of another user are not."""

    async def fill(pairs: list[tuple[socket.socket, Channel]], room: Room) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(ours, MESSAGE_MAX.to_bytes(4, "big"))
        channel = await Channel.open(theirs, 0, room=room)
        await loop.sock_sendall(ours, bytes(MESSAGE_MAX - 1))
        pairs.append((ours, channel))
        while not channel.closed and len(channel._in) < MESSAGE_MAX + 3:
            await asyncio.sleep(0)

    async def work(other: Channel, program: socket.socket) -> None:
        users = Users()
        room, pairs = users.room(0), list[tuple[socket.socket, Channel]]()
        fit = ROOM_MAX // (MESSAGE_MAX + 3)
        for _ in range(fit + 1):
            await fill(pairs, room)
        assert [channel.closed for _, channel in pairs] == [False] * fit + [True]
        assert room.used == fit * (MESSAGE_MAX + 3) and users.room(0) is room
        assert users.room(1).used == 0
        program.send(framed(RENEW)[1:])
        assert await other.message() == RENEW
        ours, first = pairs[0]
        ours.send(b"\0")  # the message is complete
        with pytest.raises(ExchangeError):
            await first.message()
        await fill(pairs, room)
        assert not pairs[-1][1].closed
        for ours, channel in pairs:
            ours.close()
            await channel.close()
        assert room.used == 0

    played(work)


def test_many_messages_that_wait() -> None:
    """No more are read above UNREAD_MAX bytes until some were taken. None is lost."""

    async def work(channel: Channel, program: socket.socket) -> None:
        number, raw = 2000, framed(RENEW | {"text": bytes(500)})
        program.setblocking(False)
        everything = framed(RENEW)[1:] + raw * (number - 1)
        sends = asyncio.ensure_future(asyncio.get_running_loop().sock_sendall(program, everything))
        await arrived(channel, UNREAD_MAX + 1)
        full = len(channel._in)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(channel._in) == full <= UNREAD_MAX + FIRST
        for _ in range(number):
            message = await channel.message()
            assert message and message["wish"] == 1
        await sends

    played(work)
