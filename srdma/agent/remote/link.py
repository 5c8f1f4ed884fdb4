"""The control link (control-link.md 2): frames, streams and heartbeats over one TLS connection."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from math import inf
from typing import Any, NoReturn, Protocol

import cbor2

from srdma.keyex.exchange import printable
from srdma.keyex.fields import ExchangeError, integer, plain_map, text
from srdma.keyex.tls import STREAM_LEN, Outer, PeerClosed, no_wait

PROTOCOLS = {b"srdma-control/1": 2}  # messages begin with a stream number, as in srdma/2
BODY_MAX = 65_535
NAME_MAX = 64  # bytes of a host name in HELLO
TEXT_MAX = 1_000  # bytes of a reason
HEARTBEAT = 3.0  # seconds without a frame, after which an end sends HEARTBEAT
SILENCE = 10.0  # seconds without a frame of the peer, after which the link ends
CROWDED = 1 << 20  # bytes that wait for TCP, above which local sockets are not read
UNREAD_MAX = 4 << 20  # bytes that wait for TCP, above which the link ends
TELL = 3_600.0  # seconds after which a proxy sends HELLO again
NUMBER_MAX = (1 << 32) - 1
STREAMS_MAX = 4_096  # of a link
FIRST = "the first frame must be HELLO"
UNREACHABLE = "unreachable"  # code of the end of a link


class Wire(Outer):
    """TLS of a control link. Messages are frames without their length."""

    def protocols(self) -> Mapping[bytes, int]:
        return PROTOCOLS


class Type(IntEnum):
    """Types of frames."""

    HELLO = 0
    HEARTBEAT = 1
    OPEN = 2
    OPENED = 3
    DATA = 4
    END = 5
    REFUSED = 6


class Stream(Protocol):
    """One end of a stream. The link calls these methods; none blocks. number: the link sets it."""

    number: int

    def opened(self) -> None:
        """The agent answered OPENED."""

    def data(self, body: bytes) -> None:
        """DATA arrived."""

    def ended(self, reason: ExchangeError | None, *, lost: bool = False) -> None:
        """The peer ended the stream, or (lost) the link ended. The link has forgotten the
        stream."""

    def resume(self) -> None:
        """The link is not crowded any more."""


Opened = Callable[[int, dict[str, Any]], None]


class Link:
    """See the description of the module.

    identity: of the peer, from the handshake. name: of the peer's computer, for people. epoch: the
    peer's time of day when the local monotonic clock was 0.
    opened: takes the streams that a proxy opens; None: this end is the proxy.
    """

    def __init__(self, wire: Wire) -> None:
        """wire: is owned from now on."""
        self._wire = wire
        self.opened: Opened | None = None
        self._task: asyncio.Task[Any] | None = None  # of run()
        self._streams: dict[int, Stream] = {}
        # Streams of opened() without an answer; False: the peer ended it.
        self._opening: dict[int, bool] = {}
        self._next = 1
        self._sent_at = self._heard_at = time.monotonic()
        self._paused: set[Stream] = set()
        self._room: asyncio.Task[None] | None = None
        self._greeted = False
        self._told_at = -inf  # when HELLO was sent
        # Called at the peer's first HELLO, and at each of them.
        self.greeted: Callable[[], None] = _nothing
        self.told: Callable[[], None] = _nothing
        self.identity = self.name = ""
        self.epoch = 0.0
        self.over: ExchangeError | None = None

    async def handshake(self, turn: Callable[[], Awaitable[None]] = no_wait) -> None:
        """Complete the TLS handshake. turn: see Outer. Raises ExchangeError (`tls`, `identity`),
        PeerClosed."""
        self.identity, _ = await self._wire.handshake(turn)

    async def run(self) -> ExchangeError:
        """Process frames until the link ends. Returns the reason, for the peer's programs too."""
        self._tell()
        beating, self._task = asyncio.ensure_future(self._beat()), asyncio.current_task()
        assert self._task
        try:
            await self._take_frames()
        except ExchangeError as error:
            self.over = self.over or error
            if not error.from_peer and error.code != UNREACHABLE:
                await self.abort(error)
        except PeerClosed as end:
            text = str(end) or "the other end closed it"
            self.over = self.over or ExchangeError(UNREACHABLE, text)
        except asyncio.CancelledError:
            if self.over is None or self._task.uncancel() > 0:
                self.over = self.over or ExchangeError(UNREACHABLE, "this end closed it")
                raise
            await self.abort(self.over)  # after stop()
        finally:
            beating.cancel()
            if self._room:
                self._room.cancel()
            self._finish()
        return self.over

    def stop(self, reason: ExchangeError) -> None:
        """End the link, and tell the peer why: run() returns soon."""
        if self.over is None:
            self.over = reason
            if self._task:
                self._task.cancel()

    async def abort(self, reason: ExchangeError) -> None:
        """Send REFUSED and close the connection."""
        await self._wire.abort(bytes(STREAM_LEN) + _byte(Type.REFUSED) + _reason(reason))

    def drop(self) -> None:
        """Close the connection at once."""
        self._wire.drop()

    @property
    def ahead(self) -> int:
        """By how many seconds the peer's time of day differs from the local one."""
        return round(self.epoch + time.monotonic() - time.time())

    @property
    def usable(self) -> bool:
        """True if streams can be opened."""
        return self._greeted and self.over is None and self._next < NUMBER_MAX

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    def open(self, stream: Stream, fields: Mapping[str, Any]) -> None:
        """Open a stream of the proxy."""
        stream.number, self._next = self._next, self._next + 1
        self._streams[stream.number] = stream
        self.send(stream.number, Type.OPEN, cbor2.dumps(dict(fields), canonical=True))
        if self._next == NUMBER_MAX:
            self.stop(ExchangeError(UNREACHABLE, "the numbers of its streams are used up"))

    def accept(self, number: int, stream: Stream) -> bool:
        """Answer OPENED to a stream of opened(). False if it has ended."""
        if not self._opening.pop(number, False):
            return False
        stream.number = number
        self._streams[number] = stream
        self.send(number, Type.OPENED)
        return True

    def refuse(self, number: int, reason: ExchangeError) -> None:
        """End a stream of opened() that was not accepted. Without effect if it has ended."""
        if self._opening.pop(number, False):
            self.send(number, Type.END, _reason(reason))

    def end(self, number: int, reason: ExchangeError | None = None) -> None:
        """End a stream. Without effect if it has ended."""
        if self._streams.pop(number, None) is not None:
            self.send(number, Type.END, _reason(reason) if reason else b"")

    def data(self, number: int, body: bytes) -> None:
        """Send at most BODY_MAX bytes."""
        self.send(number, Type.DATA, body)

    def crowded(self, stream: Stream) -> bool:
        """True if much waits for TCP: the stream reads no more until resume()."""
        if self._wire.unsent <= CROWDED:
            return False
        self._paused.add(stream)
        if self._room is None or self._room.done():
            self._room = asyncio.ensure_future(self._drained())
        return True

    def send(self, number: int, kind: Type, body: bytes = b"") -> None:
        if self.over is None:
            self._sent_at = time.monotonic()
            self._wire.send(number.to_bytes(STREAM_LEN, "big") + _byte(kind) + body)
            if self._wire.unsent > UNREAD_MAX:
                self.over = ExchangeError(UNREACHABLE, "the other end does not read")
                self.drop()

    # Internal ---------------------------------------------------------------

    async def _take_frames(self) -> NoReturn:
        """Raises ExchangeError or PeerClosed when the link ends."""
        while self.over is None:
            message = await self._wire.message()
            self._heard_at = time.monotonic()
            self._frame(message)
        raise self.over  # by stop() before run(), or by send()

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        hello = {"name": _short(platform.node(), NAME_MAX), "time": int(time.time())}
        self.send(0, Type.HELLO, cbor2.dumps(hello, canonical=True))

    async def _drained(self) -> None:
        with contextlib.suppress(OSError):  # run() reports it
            await self._wire.drained()
        paused, self._paused = self._paused, set()
        for stream in paused:
            stream.resume()

    async def _beat(self) -> None:
        """Send heartbeats, and end a link whose peer is silent."""
        while True:
            now = time.monotonic()
            if now - self._heard_at >= SILENCE:
                text = f"the other end is silent for {SILENCE:g} s"
                self.over = self.over or ExchangeError(UNREACHABLE, text)
                self.drop()
                return
            if self.opened is None and now - self._told_at >= TELL:
                self._tell()
            if now - self._sent_at >= HEARTBEAT:
                self.send(0, Type.HEARTBEAT)
            await asyncio.sleep(
                max(min(self._sent_at + HEARTBEAT, self._heard_at + SILENCE) - now, 0.01)
            )

    def _finish(self) -> None:
        streams, self._streams = self._streams, {}
        self._opening.clear()
        for stream in streams.values():
            stream.ended(self.over, lost=True)
        self.drop()

    def _frame(self, message: bytes) -> None:
        """Process a frame. Raises ExchangeError, which ends the link."""
        number, body = int.from_bytes(message[:STREAM_LEN], "big"), message[STREAM_LEN + 1 :]
        kind = message[STREAM_LEN] if len(message) > STREAM_LEN else -1
        if number == 0:
            self._of_link(kind, body)
        elif not self._greeted:
            raise ExchangeError("state", FIRST)
        elif kind == Type.OPEN and self.opened and number == self._next < NUMBER_MAX:
            self._next += 1
            fields = plain_map(body, BODY_MAX)
            full = len(self._streams) + len(self._opening) >= STREAMS_MAX
            self._opening[number] = True
            if full:
                self.refuse(number, ExchangeError("busy", "the link has too many streams"))
            else:
                self.opened(number, fields)
        elif kind in (Type.OPENED, Type.DATA, Type.END) and number < self._next:
            self._pass(number, Type(kind), body)
        else:
            raise _illegal(kind)

    def _of_link(self, kind: int, body: bytes) -> None:
        """Process a frame of stream 0. Raises ExchangeError."""
        if kind == Type.REFUSED:
            raise _of_reason(body) or ExchangeError("state", "no reason", from_peer=True)
        if kind == Type.HELLO and (self.opened or not self._greeted):
            self._hello(body)
        elif not self._greeted:
            raise ExchangeError("state", FIRST)
        elif kind != Type.HEARTBEAT or body:
            raise _illegal(kind)

    def _pass(self, number: int, kind: Type, body: bytes) -> None:
        if (stream := self._streams.get(number)) is None:
            if kind is Type.END and number in self._opening:
                self._opening[number] = False
            return  # it was under way when this end ended the stream
        if kind is Type.DATA and body:
            stream.data(body)
        elif kind is Type.END:
            reason = _of_reason(body)
            del self._streams[number]
            stream.ended(reason)
        elif kind is Type.OPENED and not body and not self.opened:
            stream.opened()
        else:
            raise _illegal(kind)

    def _hello(self, body: bytes) -> None:
        fields = plain_map(body, BODY_MAX)
        try:
            self.name = printable(text("name", fields["name"], NAME_MAX))
            self.epoch = integer("time", fields["time"], 0, 1 << 40) - time.monotonic()
        except KeyError as error:
            raise ExchangeError("format", f"HELLO lacks {error}") from None
        self.told()
        if not self._greeted:
            self._greeted = True
            self.greeted()


def _nothing() -> None:
    pass


def _illegal(kind: int) -> ExchangeError:
    return ExchangeError("state", f"a frame of type {kind} is not legal here")


def _byte(kind: Type) -> bytes:
    return bytes((kind,))


def _reason(error: ExchangeError) -> bytes:
    """The body of END and REFUSED."""
    fields = {"code": error.code, "text": _short(error.told, TEXT_MAX)}
    return cbor2.dumps(fields, canonical=True)


def _short(text: str, most: int) -> str:
    """The first characters of a text, which have at most `most` bytes."""
    return text.encode()[:most].decode(errors="ignore")


def _of_reason(body: bytes) -> ExchangeError | None:
    """Raises ExchangeError for a body that is no reason."""
    if not body:
        return None
    fields = plain_map(body, BODY_MAX)
    code, why = fields.get("code"), fields.get("text")
    if not isinstance(code, str) or not isinstance(why, str):
        raise ExchangeError("format", "a reason has no code or no text")
    return ExchangeError(printable(code), printable(why), from_peer=True)
