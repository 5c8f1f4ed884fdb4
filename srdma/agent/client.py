"""The program's side of the agent (agent.md 2): starts a private agent and talks to it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import cbor2

from srdma import plain_cbor
from srdma.agent.private import PrivateAgent
from srdma.control import Rotation, forked, peer_of
from srdma.errors import (
    ClosedError,
    DeviceError,
    Error,
    IntegrityError,
    LocalError,
    RemoteError,
    Timeout,
)
from srdma.identity import IdentityError
from srdma.keyex.offers import Suite

GRACE = 2.0  # seconds that the agent may take to close a connection, or to end
START = 30.0  # seconds that it may take to start, which needs many files
LOOK = 0.05  # seconds between a thread's checks of the events that another thread read
REJOIN_TIMEOUT = 60.0  # seconds that a system agent may take to start again
LOOK_MOST = 1e6  # seconds of one poll()
_MAX_EVENT = 1 << 20
_TIMEVAL = struct.Struct("@ll")
# Code of an error event -> exception. RemoteError stands for all other codes.
_CLASSES: dict[str, type[Error]] = {
    "config": LocalError,
    "name": LocalError,
    "credentials": IdentityError,
    "policy": LocalError,
    "clock": LocalError,
    "tls": IntegrityError,
    "identity": IntegrityError,
    "hash": IntegrityError,
    "worker": DeviceError,
    "gone": DeviceError,
    "timeout": Timeout,
}


@dataclass(frozen=True)
class Peer:
    """The result of the exchange: the peer's identity (URI) and data, and the values in force.

    trust_group: "" for none; group: the key exchange group of TLS, such as X25519.
    """

    identity: str
    data: bytes
    suite: Suite
    mode: int
    trust_group: str
    group: str


class SystemAgent:
    """The agent at a Unix socket, for the programs of this machine."""

    def __init__(self, path: Path, user: int | None = None) -> None:
        """user: a uid whose agent is trusted too, besides those of this user and root."""
        self._path, self._user = path, user

    def alive(self) -> bool:
        return True  # each channel finds out by itself

    def open(self) -> socket.socket:
        """A new channel; the caller owns the socket. Raises DeviceError."""
        sock = socket.socket(socket.AF_UNIX)
        # A socket with a Python timeout does not wait while the agent's backlog is full (EAGAIN).
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(START), 0))
        try:
            sock.connect(os.fspath(self._path))
        except OSError as e:
            sock.close()
            raise DeviceError(
                f"no agent at {self._path}: {e.strerror or e}: start one by srdma agent --config "
                "FILE"
            ) from e
        uid = peer_of(sock)[1]
        if uid not in (0, os.geteuid(), self._user):
            sock.close()
            raise DeviceError(
                f"the agent at {self._path} is of user {uid}, this process is of user "
                f"{os.geteuid()}: use an agent of this user or of root, or name its user by "
                "agent_user= or SRDMA_AGENT_USER"
            )
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(0, 0))
        forked.drop(sock)
        return sock

    def last_words(self) -> str:
        return f"see the log of the agent at {self._path}"

    def rotate(self, worker: Path, token: bytes, age: int) -> Rotation:
        """Control.rotate() for the leg with this token, which only the agent may call.

        Raises DeviceError, LocalError.
        """
        settings = {"do": "rotate", "worker": os.fspath(worker), "token": token, "age": age}
        channel = _Channel(self, settings)
        try:
            event = channel._event(time.monotonic() + START)
        finally:
            channel.close()
        if event.get("event") != "rotated":
            raise error_of(event)
        return Rotation(event["serial"], event["behind"])

    def close(self) -> None:
        """Nothing to release."""


Agent = PrivateAgent | SystemAgent


def message_of(fields: Mapping[str, Any]) -> bytes:
    """The bytes of a message (agent.md 2)."""
    raw = cbor2.dumps(fields, canonical=True)
    return len(raw).to_bytes(4, "big") + raw


class _Channel:
    """The program's end of a channel: settings go out, events come in."""

    def __init__(
        self,
        agent: Agent,
        settings: Mapping[str, Any],
        listening: socket.socket | None = None,
    ) -> None:
        self._agent = agent
        self._buffer = b""
        self._closing = False
        self.sock = agent.open()
        self._write(settings, listening)

    def fileno(self) -> int:
        """A file descriptor that is readable when an event has arrived."""
        return self.sock.fileno()

    def close(self) -> None:
        """Request the end, and wait until the agent has closed its end, GRACE seconds at most.

        A call of another thread that waits for an event raises ClosedError.
        """
        self._closing = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self.sock.settimeout(GRACE)
        with contextlib.suppress(OSError):
            while self.sock.recv(65536):
                pass
        self.sock.close()

    def _write(self, fields: Mapping[str, Any], listening: socket.socket | None = None) -> None:
        message = message_of(fields)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next event says why
            if listening:
                sent = socket.send_fds(self.sock, [message], [listening.fileno()])
                message = message[sent:]
            self.sock.sendall(message)

    def _replace(self, sock: socket.socket) -> None:
        """Use another socket, which has the file descriptor of the former one."""
        with sock:
            os.dup2(sock.fileno(), self.sock.fileno(), inheritable=False)
        self._buffer = b""

    def _event(self, deadline: float) -> dict[str, Any]:
        """The next event. After a Timeout the next call continues with the bytes read so far."""
        self._fill(4, deadline)
        length = int.from_bytes(self._buffer[:4], "big")
        if not 0 < length <= _MAX_EVENT:
            self._lost()
        self._fill(4 + length, deadline)
        body, self._buffer = self._buffer[4 : 4 + length], self._buffer[4 + length :]
        event = plain_cbor.loads(body)
        assert isinstance(event, dict)
        return event

    def _fill(self, size: int, deadline: float) -> None:
        """Read until the buffer holds `size` bytes. Raises Timeout, or DeviceError at the end."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        while len(self._buffer) < size:
            left = max(deadline - time.monotonic(), 0)
            if not poll.poll(min(left, LOOK_MOST) * 1000):
                if left > LOOK_MOST:
                    continue
                raise Timeout("the agent did not answer in time: restart it")
            try:
                # No more than this event, so that fileno() tells whether another one waits.
                part = self.sock.recv(size - len(self._buffer))
            except OSError:
                part = b""
            if not part:
                self._lost()
            self._buffer += part

    def _lost(self) -> NoReturn:
        if self._closing:
            raise ClosedError("it was closed")
        raise DeviceError(f"the agent ended unexpectedly: {self._agent.last_words()}")


class Attempt:
    """The making of a connection in a thread, which another thread may cancel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._cancelled = False

    def begins(self, channel: ConnectionChannel) -> None:
        """Called by the thread that makes the connection. Raises ClosedError if cancelled."""
        with self._lock:
            if self._cancelled:
                raise ClosedError("the call was cancelled")
            self._sock = channel.sock

    def cancel(self) -> None:
        """The key exchange fails soon. No effect on one that is complete and closed."""
        with self._lock:
            self._cancelled = True
            if self._sock is not None:
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)


class ConnectionChannel(_Channel):
    """The channel of a connection."""

    def __init__(self, agent: Agent, settings: Mapping[str, Any]) -> None:
        """settings: those of `connect` or `accept` (agent.md 2). Raises DeviceError."""
        self._over: tuple[type[Error], str] | None = None  # why the connection ended
        self._requested = self._served = 0  # numbers of renewal requests: sent, completed
        self._settings = settings
        self._lost_at = 0.0  # when the agent ended; 0: it has not
        self._try_at = 0.0  # time of the next attempt to rejoin
        self._reading = threading.Lock()  # held by the thread that reads events
        self._requesting = threading.Lock()
        super().__init__(agent, settings)

    def wait_ready(self, deadline: float) -> Peer:
        """Wait until both ends are ready. Raises the exception of the error event, or Timeout.

        deadline: time.monotonic() seconds.
        """
        peer: Peer | None = None
        while True:
            # The agent has the same deadline, and its error text has more details.
            event = self._event(deadline + GRACE)
            match event.get("event"):
                case "peer":
                    del event["event"]
                    peer = Peer(**event | {"suite": Suite(*event["suite"])})
                case "ready" if peer is not None:
                    return peer
                case "error":
                    raise error_of(event)
                case _:
                    raise RemoteError("the peer closed during the key exchange")

    def ended(self) -> bool:
        """True once the connection has ended. Never blocks."""
        if self._reading.acquire(blocking=False):
            try:
                while self._over is None:
                    self._read_event(time.monotonic())
            except Timeout:
                pass
            finally:
                self._reading.release()
        return self._over is not None

    def wish(self) -> int:
        """Request new secrets (protocol.md 8.5). Returns the number of this request."""
        with self._requesting:
            self._requested += 1
            if not self._lost_at:  # else a restarted agent hears of it when it is ready
                self._write_wish()
            return self._requested

    def _write_wish(self) -> None:
        self._write({"do": "renew", "wish": self._requested})

    def wait_renewed(self, wish: int, deadline: float) -> None:
        """Wait until an exchange that began after request `wish` took effect.

        Raises Timeout at the deadline, or the exception that ended the connection.
        """
        while self._served < wish:
            if self._over is not None:
                kind, text = self._over
                raise kind(text)
            if time.monotonic() >= deadline:
                raise Timeout("no new secrets in time: give a longer timeout")
            if self._reading.acquire(timeout=LOOK):  # another thread may read the event
                try:
                    if self._served < wish and self._over is None:
                        self._read_event(min(deadline, time.monotonic() + LOOK))
                except Timeout:
                    if self._lost_at:
                        time.sleep(LOOK)
                finally:
                    self._reading.release()

    def close(self) -> None:
        """Request the end; see _Channel."""
        self._closing = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)  # ends a read of another thread soon
        with self._reading:
            self._over = self._over or (ClosedError, "the connection is closed")
            super().close()

    def _read_event(self, deadline: float) -> None:
        """Process one event after `ready`. Raises Timeout if none arrives."""
        try:
            event = self._event(deadline)
            if self._lost_at:
                _check_present(event)
        except (DeviceError, ClosedError) as e:
            if isinstance(e, DeviceError) and self._may_rejoin():
                self._rejoin()
                raise Timeout("the agent ended: a restarted one takes the connection over") from e
            self._over = type(e), str(e)
            return
        match event.get("event"):
            case "ready":  # of a restarted agent
                with self._requesting:
                    self._lost_at = 0.0
                    if self._served < self._requested:
                        self._write_wish()
            case "renewed":
                self._served = event["wish"]
            case "error":
                self._over = _CLASSES.get(event["code"], RemoteError), event["text"]
            case _:
                self._over = RemoteError, "the connection was closed"

    def _may_rejoin(self) -> bool:
        """True if a restarted agent may take the connection over (agent.md 8)."""
        with self._requesting:
            self._lost_at = self._lost_at or time.monotonic()
        return isinstance(self._agent, SystemAgent) and (
            time.monotonic() - self._lost_at < REJOIN_TIMEOUT
        )

    def _rejoin(self) -> None:
        """One attempt, at most every LOOK seconds, without waiting for its event."""
        if time.monotonic() < self._try_at:
            return
        self._try_at = time.monotonic() + LOOK
        with contextlib.suppress(DeviceError), self._requesting:
            self._replace(self._agent.open())
            self._write(
                {
                    "do": "rejoin",
                    "identity": self._settings["identity"],
                    "worker": self._settings["worker"],
                    "token": self._settings["token"],
                    "qpns": [qp["qpn"] for qp in self._settings["qps"]],
                }
            )


@dataclass(frozen=True)
class Arrival:
    """An authorised peer that waits to be accepted. identity: its URI."""

    number: int
    identity: str


@dataclass(frozen=True)
class Refusal:
    """A peer that the agent refused. address: its IP address; text: why."""

    address: str
    text: str


class ListenerChannel(_Channel):
    """The channel of a listener."""

    # Settings and listening socket for a system agent that was restarted.
    _again: tuple[Mapping[str, Any], socket.socket | None] | None = None
    address: tuple[str, int] = ("", 0)  # of the agent on another computer

    @classmethod
    def open(
        cls, agent: Agent, settings: Mapping[str, Any], listening: socket.socket | None
    ) -> Self:
        """settings: those of `listen` (agent.md 2); listening: owned from now on. None: the agent
        listens at settings["address"].

        Raises IdentityError, DeviceError.
        """
        try:
            made = cls(agent, settings, listening)
        except BaseException:
            if listening:
                listening.close()
            raise
        # A restarted system agent needs it again. It is not duplicated by dup(), which would change
        # O_NONBLOCK of the agent's copy.
        if isinstance(agent, SystemAgent):
            made._again = settings, listening
            if listening:
                forked.drop(listening)
        elif listening:
            listening.close()
        try:
            event = made._event(time.monotonic() + GRACE + START)
            if event["event"] != "listening":
                raise error_of(event)
            if listening is None:
                made._bound_at(*event["address"])
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        """See _Channel."""
        if self._again and self._again[1]:
            self._again[1].close()
        super().close()

    def _bound_at(self, host: str, port: int) -> None:
        """Another agent must listen at the same port."""
        self.address = host, port
        if self._again:
            self._again = {**self._again[0], "address": [host, port]}, None

    def next(self, deadline: float) -> Arrival | Refusal:
        """The next peer. Raises Timeout, DeviceError. deadline: time.monotonic() seconds."""
        event = self._next_event(deadline)
        match event.get("event"):
            case "arrived":
                return Arrival(event["arrival"], event["identity"])
            case "refused":
                return Refusal(event["address"], event["text"])
            case _:
                raise error_of(event)

    def _next_event(self, deadline: float) -> dict[str, Any]:
        """As _event(). A restarted system agent gets the listening socket again (agent.md 8)."""
        lost_at = 0.0
        while True:
            try:
                event = self._event(deadline)
                if lost_at:
                    _check_present(event)
            except DeviceError:
                now = time.monotonic()
                lost_at = lost_at or now
                if self._again is None or now - lost_at > REJOIN_TIMEOUT:
                    raise
                if now >= deadline:
                    raise Timeout("the agent ended, and was not started again in time") from None
                time.sleep(LOOK)
                with contextlib.suppress(DeviceError):
                    self._replace(self._agent.open())
                    self._write(*self._again)
            else:
                if event.get("event") != "listening":
                    return event
                lost_at = 0.0


def _check_present(event: Mapping[str, Any]) -> None:
    """Raises DeviceError if a proxy has no link, or an agent no worker: a later attempt may
    succeed."""
    if event.get("event") == "error" and event["code"] == "worker":
        raise DeviceError(event["text"])


def error_of(event: Mapping[str, Any]) -> Error:
    """The exception of an error event."""
    return _CLASSES.get(event["code"], RemoteError)(event["text"])
