"""The streams in a TLS connection between two agents (protocol.md 8.7).

A `Link` is the connection: it reads all messages and gives each to its `Stream`. With srdma/1 a
link has one stream, whose messages have no number.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf

from srdma.keyex.exchange import Role, printable
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ClosedMessage, ErrorMessage, Hello, decode, encode
from srdma.keyex.pace import Pace
from srdma.keyex.tls import REACHABLE, STREAM_LEN, Outer, PeerClosed, Truncated, no_wait

INBOX_MAX = 262_144  # bytes of the messages of one stream that wait unread, with their overhead
TURN = 16  # messages until other tasks have their turn
BUSY = "busy"  # code of an ERROR
BUSY_REFUSALS = 8192, 0.01  # the same with this code: at once, and seconds per further one
REFUSALS = 1024  # refused streams at once; one per second in the long run
UNREAD, UNREAD_FOR = 4 << 20, 10.0  # bytes and seconds for which a peer may not read
OVERHEAD = 64  # bytes that a message counts besides its own
CLOSED = encode(ClosedMessage())
ERROR = b"\xa2\x64code"  # the first bytes of each ERROR, and of no other message
IDLE = "idle"  # code of an ERROR of the connection
OPENS_MAX = (1 << 31) - 1  # streams of one end; their numbers have 32 bits


class Idle(Truncated):
    """An end closed the connection, because nothing happened in it."""


class Stream:
    """Messages from and to one session of the peer.

    number: negative before the first message, if this end opens the stream.
    replaceable: the session goes on in another stream if the link is lost.
    """

    __slots__ = (
        "_fault", "_inbox", "_link", "_news", "_open", "_size", "most", "number", "parks",
        "replaceable",
    )  # fmt: skip

    def __init__(self, link: Link, number: int) -> None:
        self.number = number
        self.replaceable = False
        self.most = INBOX_MAX  # bytes of messages that may wait
        self.parks: Callable[[], bool] = _never  # True if its session needs no connection now
        self._link = link
        self._inbox: list[bytes] = []
        self._size = 0  # of the inbox
        self._news: Callable[[], None] | None = None
        self._open = True  # neither end has sent its last message
        self._fault: ExchangeError | None = None  # of the peer in this stream

    @property
    def version(self) -> int:
        return self._link.version

    @property
    def link(self) -> Link:
        return self._link

    def send(self, message: bytes) -> None:
        """Send a message. It never blocks: what TCP does not take yet waits. Without effect once
        either end has ended the stream, which message() reports."""
        if self._open:
            if self.number < 0:
                self._link.begin(self)
            self._link.send(self.number, message)

    def watch(self, news: Callable[[], None] | None) -> None:
        """Call news() when a message arrives and at the end; None: call nothing."""
        self._news = news

    def take(self) -> bytes | None:
        """The next message; None if none has arrived.

        Raises PeerClosed, ExchangeError: the connection ended, or the peer sends too much.
        """
        if not self._inbox:
            if end := self._fault or self._link.end:
                raise end
            return None
        message = self._inbox.pop(0)
        self._size -= len(message) + OVERHEAD
        self._link.resume()
        return message

    async def message(self) -> bytes:
        """Wait for the next message. A cancelled call loses nothing. Raises as take().

        It uses watch().
        """
        while (message := self.take()) is None:
            news = asyncio.get_running_loop().create_future()
            self.watch(partial(_resolve, news))
            try:
                await news
            finally:
                self.watch(None)
        return message

    @property
    def gone(self) -> bool:
        """True if the connection ended, and take() has returned all messages before that."""
        return not self._inbox and isinstance(self._link.end, PeerClosed)

    def connected(self) -> bool:
        """False once either end has ended the stream or its connection, whether or not messages
        still wait."""
        return self._open and self._link.connected()

    def reachable(self, seconds: float = REACHABLE) -> bool:
        """True if the peer's host acknowledged a segment in the last `seconds` (TCP_INFO)."""
        return self._link.outer.reachable(seconds)

    def export(self, label: bytes, context: bytes, size: int) -> bytes:
        """The exporter of the connection (RFC 8446 7.5): `size` bytes."""
        return self._link.outer.export(label, context, size)

    def certificate_hashes(self) -> tuple[bytes, bytes]:
        """SHA-256 of the local and of the peer's certificate (DER)."""
        return self._link.outer.certificate_hashes()

    def not_after(self) -> dt.datetime:
        """The earliest end of validity among the certificates that both ends presented."""
        return self._link.outer.not_after()

    async def close(self) -> None:
        """End the stream: by CLOSED, with srdma/1 by close_notify."""
        if self.version == 1:
            await self._link.close()
            return
        self.send(CLOSED)
        self.forget()

    async def abort(self, message: bytes) -> None:
        """End the stream by an ERROR."""
        if self.version == 1:
            await self._link.abort(message)
            return
        self.send(message)
        self.forget()

    def forget(self) -> None:
        """Process no more messages of the stream. With srdma/1 the connection is dropped."""
        self._open = False
        self._link.forget(self)

    # Calls of the link ---------------------------------------------------------

    def put(self, message: bytes) -> None:
        self._inbox.append(message)
        self._size += len(message) + OVERHEAD
        self.note(message)
        self.wake()

    def note(self, message: bytes) -> None:
        """Notice the last message of the peer."""
        if self.version > 1 and (message == CLOSED or message.startswith(ERROR)):
            self._open = False

    @property
    def failed(self) -> bool:
        return self._fault is not None

    @property
    def full(self) -> bool:
        return self._size > self.most

    def fail(self, fault: ExchangeError) -> None:
        """Drop the messages that wait; message() raises `fault`."""
        self._inbox.clear()
        self._size = 0
        self._fault = fault
        self.wake()

    def wake(self) -> None:
        if self._news:
            self._news()


Opened = Callable[[Stream, bytes | None], None]


class Link:
    """A TLS connection to a peer's agent.

    identity: URI of the peer, and group: of the TLS key agreement, once the handshake is complete.
    agent and port: TCP ports of the peer's agent and of the local one, 0 for none. groups: the
    peer's agent knows ASK; see hello(). end: the reason why the connection ended.
    used_at: time of the last message, made_at: of the handshake, crowded_at: since when the peer
    has left much unread, or infinity (time.monotonic()). look_at: for the owner.
    """

    def __init__(self, outer: Outer, role: Role, port: int = 0) -> None:
        """role: in TLS; port: of the local agent, for HELLO."""
        self.outer, self.role, self.port = outer, role, port
        self.identity = self.group = ""
        self.agent, self.groups = 0, False
        self.end: PeerClosed | ExchangeError | None = None  # with srdma/2 PeerClosed only
        self.made_at = self.used_at = self.look_at = time.monotonic()
        self.crowded_at = inf
        self._streams: dict[int, Stream] = {}
        self._next = 1 if role == "client" else 2  # number of the next first message
        self._opens = 0  # streams that this end has opened, also without a message
        self._peers = 2 if role == "client" else 1  # the next stream that the peer opens
        self._greeted = False  # the peer's HELLO has arrived
        self._met = asyncio.Event()  # it has arrived, or never will
        self.greeted: Callable[[], None] = _nothing  # called then
        self._opened: Opened | None = None
        self._reader: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._refusals, self._busy = Pace(REFUSALS), Pace(*BUSY_REFUSALS)

    @property
    def version(self) -> int:
        return self.outer.version

    @property
    def maker(self) -> str:
        """Identity of the end that connected."""
        return self.outer.credentials.identity if self.role == "client" else self.identity

    @property
    def address(self) -> str:
        """IP address of the peer."""
        return self.outer.address()

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    @property
    def replaceable(self) -> bool:
        """True if a session goes on without this link."""
        return any(stream.replaceable for stream in self._streams.values())

    async def handshake(self, turn: Callable[[], Awaitable[None]] = no_wait) -> None:
        """Complete the TLS handshake. turn: see Outer. Raises ExchangeError (`tls`, `identity`),
        PeerClosed."""
        self.identity, self.group = await self.outer.handshake(turn)
        self.made_at = self.used_at = time.monotonic()

    def start(self, opened: Opened) -> None:
        """Process the peer's messages from now on. opened() takes the streams that the peer opens,
        each with its first message, which is not in the stream any more; with srdma/1 a server
        gives it the stream at once, with None."""
        self._opened = opened
        if self.version > 1:
            self.send(0, encode(Hello(self.port, groups=True)))
        else:
            stream = self._stream(1)
            if self.role == "server":
                self._opens = 1
                opened(stream, None)
        self._reader = asyncio.ensure_future(self._read())

    @property
    def age(self) -> float:
        """Seconds since the handshake."""
        return time.monotonic() - self.made_at

    async def hello(self) -> None:
        """Wait for the peer's HELLO, or for the end of the connection."""
        await self._met.wait()

    def open(self) -> Stream:
        """A new stream; with srdma/1, at a client, the one stream. Its first message gives it its
        number: the peer must see the numbers in order, also if an older stream is never used."""
        self._opens += 1
        return self._streams[1] if self.version == 1 else self._stream(-self._opens)

    def begin(self, stream: Stream) -> None:
        """Its first message is sent now."""
        del self._streams[stream.number]
        stream.number, self._next = self._next, self._next + 2
        self._streams[stream.number] = stream

    def parks(self) -> bool:
        """True if no session needs the connection now."""
        return all(stream.parks() for stream in self._streams.values())

    def refused(self, code: str) -> None:
        """A stream that the peer opened was refused. Raises ExchangeError (`rate`) if that happens
        too often."""
        pace = self._busy if code == BUSY else self._refusals
        if not pace.take(time.monotonic()):
            raise ExchangeError("rate", "too many streams of this connection were refused")

    def stuck(self, now: float) -> bool:
        """True if the peer has left more than UNREAD bytes for more than UNREAD_FOR seconds. To be
        called from time to time."""
        crowded = self.outer.unsent > UNREAD
        self.crowded_at = min(self.crowded_at, now) if crowded else inf
        return now - self.crowded_at > UNREAD_FOR

    @property
    def has_room(self) -> bool:
        """False if no stream can be opened any more."""
        return self.end is None and self._opens < (OPENS_MAX if self.version > 1 else 1)

    def connected(self) -> bool:
        """False once either end has closed the TCP connection."""
        return not isinstance(self.end, PeerClosed) and self.outer.connected()

    def send(self, number: int, message: bytes) -> None:
        self.used_at = time.monotonic()
        if self.version > 1:
            message = number.to_bytes(STREAM_LEN, "big") + message
        self.outer.send(message)

    def forget(self, stream: Stream) -> None:
        if self.version == 1:
            self.drop()
        elif self._streams.get(stream.number) is stream:
            del self._streams[stream.number]

    def resume(self) -> None:
        """A message of a full stream was read."""
        self._room.set()

    async def close(self, end: PeerClosed | None = None) -> None:
        """Send close_notify and close the socket. end: the reason for the streams."""
        self._finish(end or Truncated("this end closed the connection"))
        if isinstance(end, Idle) and self.version > 1:
            self.send(0, encode(ErrorMessage(IDLE, str(end))))
        await self.outer.close()

    async def abort(self, message: bytes) -> None:
        """Send an ERROR that concerns the connection, and close it."""
        self._finish(Truncated("this end closed the connection"))
        if self.version > 1:
            message = bytes(STREAM_LEN) + message
        await self.outer.abort(message)

    def drop(self, why: str = "this end dropped the connection") -> None:
        """Close the socket at once."""
        self._finish(Truncated(why))
        self.outer.drop()

    # Internal ---------------------------------------------------------------

    def _stream(self, number: int) -> Stream:
        stream = self._streams[number] = Stream(self, number)
        return stream

    def _finish(self, end: PeerClosed | ExchangeError) -> None:
        """The connection is over: its streams learn that behind the messages that wait."""
        if self._reader and self._reader is not asyncio.current_task():
            self._reader.cancel()
        self.end = self.end or end
        self.greeted = _nothing  # its owner refers to this link
        self._met.set()
        for stream in [*self._streams.values()]:
            stream.wake()

    async def _read(self) -> None:
        turns = 0
        try:
            while True:
                message = await self.outer.message()
                self.used_at = time.monotonic()
                if self.version > 1:
                    self._dispatch(message)
                    turns += 1
                    if turns % TURN == 0:
                        await asyncio.sleep(0)  # outer.message() does not wait while messages do
                else:
                    await self._pass(message)
        except (PeerClosed, ExchangeError) as end:
            if self.version == 1:
                self._finish(end)
            else:
                await self._lost(end)
        except Exception:  # a fault of this program: its streams must not wait without a limit
            self._finish(Truncated("a fault of this agent"))
            self.outer.drop()
            raise
        finally:
            self._reader = None  # its exception refers to this link

    async def _lost(self, end: PeerClosed | ExchangeError) -> None:
        """With srdma/2 the connection is lost, for whatever reason (8.6)."""
        kind = Idle if getattr(end, "code", "") == IDLE else Truncated
        lost = kind(str(end) or "the peer ended the connection")
        lost.error = end if isinstance(end, ExchangeError) else None
        self._finish(lost)
        if not isinstance(end, ExchangeError):
            self.outer.drop()
        elif end.from_peer or end.code == "tls":
            await self.outer.close()
        else:
            await self.outer.abort(bytes(STREAM_LEN) + encode(ErrorMessage(end.code, end.told)))

    async def _pass(self, message: bytes) -> None:
        """srdma/1: all messages belong to the one stream. A full one delays the peer."""
        stream = self._streams[1]
        stream.put(message)
        while stream.full:
            self._room.clear()
            await self._room.wait()

    def _dispatch(self, frame: bytes) -> None:
        number, message = int.from_bytes(frame[:STREAM_LEN], "big"), frame[STREAM_LEN:]
        if len(frame) < STREAM_LEN:
            raise ExchangeError("format", "a message lacks the number of its stream")
        if number == 0 or not self._greeted:
            self._greet(number, message)
            return
        stream = self._streams.get(number)
        if stream is None and self._is_new(number):
            stream = self._stream(number)
            stream.note(message)
            assert self._opened
            self._opened(stream, message)
        elif stream and stream.full:
            stream.fail(ExchangeError("state", "too many messages wait in the stream"))
        elif stream and not stream.failed:
            stream.put(message)

    def _greet(self, number: int, message: bytes) -> None:
        """Process a message of the connection itself. Raises ExchangeError."""
        match decode(message) if number == 0 else None:
            case Hello(agent, groups) if not self._greeted:
                self._greeted, self.agent, self.groups = True, agent, groups
                self._met.set()
                self.greeted()
            case ErrorMessage(code, text):
                raise ExchangeError(printable(code), printable(text), from_peer=True)
            case _:
                raise ExchangeError(
                    "state", "stream 0 has one HELLO, before all other messages, or ERROR"
                )

    def _is_new(self, number: int) -> bool:
        """True for the next stream of the peer, False for one that has ended."""
        mine = number % 2 == self._next % 2
        if number >= (self._next if mine else self._peers):
            if mine or number > self._peers:
                raise ExchangeError("state", f"stream {number} is not the next one of the peer")
            self._peers += 2
            return True
        return False


def _nothing() -> None:
    """No one waits for HELLO."""


def _resolve(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)


def _never() -> bool:
    """The session of a stream needs its connection until READY."""
    return False
