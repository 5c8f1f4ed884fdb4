"""The parent's side of `python -m srdma.keyex`: starts it, reads its events, ends it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import cbor2

from srdma.control import Control, forked
from srdma.errors import (
    ClosedError,
    DeviceError,
    Error,
    IntegrityError,
    LocalError,
    RemoteError,
    Timeout,
)
from srdma.keyex.messages import Suite

GRACE = 2.0  # seconds that the process may take to end
LOOK = 0.05  # seconds between a thread's checks of the events that another thread read
_MAX_EVENT = 1 << 20
# Code of an error event -> exception. RemoteError stands for all other codes.
_CLASSES: dict[str, type[Error]] = {
    "config": LocalError,
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


class KeyProcess:
    """One run of the program. It owns and closes `control`; the caller still owns `sock`.

    The constructor raises DeviceError if the program cannot be started.
    """

    def __init__(self, sock: socket.socket, control: Control, config: Mapping[str, Any]) -> None:
        self._buffer = b""
        self._over: tuple[type[Error], str] | None = None  # why the connection ended
        self._requested = self._served = 0  # numbers of renewal requests: sent, completed
        self._reading = threading.Lock()  # held by the thread that reads events
        self._requesting = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        sock.setblocking(True)
        fds = (sock.fileno(), control.fileno())
        command = [sys.executable, "-P", "-m", "srdma.keyex"]
        command += ["--tcp-fd", str(fds[0]), "--control-fd", str(fds[1])]
        try:
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                close_fds=True,
                pass_fds=fds,
                env=_environment(),
            )
        except OSError as e:
            self._log.close()
            raise DeviceError(f"cannot start the key-exchange process: {e}") from e
        finally:
            control.close()
        assert self._process.stdin and self._process.stdout
        forked.drop(self._process.stdin, self._process.stdout)
        try:
            self._write(config)
        except BaseException:
            self.close()
            raise

    def _write(self, fields: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        raw = cbor2.dumps(fields, canonical=True)
        message = memoryview(len(raw).to_bytes(4, "big") + raw)
        with contextlib.suppress(BrokenPipeError):  # its error event is on stdout
            while message:
                message = message[self._process.stdin.write(message) or 0 :]

    def wait_ready(self, deadline: float) -> Peer:
        """Wait until both ends are ready. Raises the exception of the error event, or Timeout.

        deadline: time.monotonic() seconds.
        """
        peer: Peer | None = None
        while True:
            # The program has the same deadline, and its error text has more details.
            event = self._event(deadline + GRACE)
            match event.get("event"):
                case "peer":
                    del event["event"]
                    peer = Peer(**event | {"suite": Suite(*event["suite"])})
                case "ready" if peer is not None:
                    return peer
                case "error":
                    raise _CLASSES.get(event["code"], RemoteError)(event["text"])
                case _:
                    raise RemoteError("the peer closed during the key exchange")

    def fileno(self) -> int:
        """A file descriptor that is readable when ended() has an event to read."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

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
            self._write({"do": "renew", "wish": self._requested})
            return self._requested

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
                    pass
                finally:
                    self._reading.release()

    def _read_event(self, deadline: float) -> None:
        """Process one event after `ready`. Raises Timeout if none arrives."""
        try:
            event = self._event(deadline)
        except DeviceError as e:
            self._over = DeviceError, str(e)
            return
        match event.get("event"):
            case "renewed":
                self._served = event["wish"]
            case "error":
                self._over = _CLASSES.get(event["code"], RemoteError), event["text"]
            case _:
                self._over = RemoteError, "the connection was closed"

    def close(self) -> None:
        """Close stdin, so that the process closes TLS and ends; kill it after GRACE seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._reading:
            self._over = self._over or (ClosedError, "the connection is closed")
            self._process.stdout.close()
            self._log.close()

    def _event(self, deadline: float) -> dict[str, Any]:
        """The next event. After a Timeout the next call continues with the bytes read so far."""
        self._fill(4, deadline)
        length = int.from_bytes(self._buffer[:4], "big")
        if not 0 < length <= _MAX_EVENT:
            self._lost()
        self._fill(4 + length, deadline)
        body, self._buffer = self._buffer[4 : 4 + length], self._buffer[4 + length :]
        event = cbor2.loads(body)
        assert isinstance(event, dict)
        return event

    def _fill(self, size: int, deadline: float) -> None:
        """Read until the buffer holds `size` bytes. Raises Timeout, or DeviceError at the end."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while len(self._buffer) < size:
            if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
                raise Timeout("the key exchange did not end in time")
            part = os.read(fd, 65536)
            if not part:
                self._lost()
            self._buffer += part

    def _lost(self) -> NoReturn:
        raise DeviceError(f"the key-exchange process ended unexpectedly: {self._last_output()}")

    def _last_output(self) -> str:
        """The end of the process's stderr, or its exit code."""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return text[-2000:] or f"exit code {self._process.poll()}"


def _environment() -> dict[str, str]:
    """This program's environment, with the folder of this package first in PYTHONPATH.

    Variables that make OpenSSL log secrets or make Python read commands from stdin are removed.
    """
    folder = str(Path(__file__).absolute().parents[2])
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    kept = {k: v for k, v in os.environ.items() if k not in ("SSLKEYLOGFILE", "PYTHONINSPECT")}
    return {**kept, "PYTHONPATH": path}
