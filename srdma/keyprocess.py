"""The parent's side of `python -m srdma.keyex`: start it, hear it, end it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cbor2

from srdma import forked
from srdma.control import Control
from srdma.errors import DeviceError, Error, IntegrityError, LocalError, RemoteError, Timeout
from srdma.exchange_messages import Suite

GRACE = 2.0  # seconds for it to say goodbye
_MAX_EVENT = 1 << 20
# Words of an error event, by whose fault they are; the others are the peer's.
_CLASSES: dict[str, type[Error]] = {
    "config": LocalError,
    "tls": IntegrityError,
    "identity": IntegrityError,
    "hash": IntegrityError,
    "worker": DeviceError,
    "timeout": Timeout,
}


@dataclass(frozen=True)
class Peer:
    """What the exchange found out."""

    identity: str
    data: bytes
    suite: Suite
    mode: int
    trust_group: str
    group: str


class KeyProcess:
    """One run of the program. Takes over control; sock stays the caller's to close."""

    def __init__(self, sock: socket.socket, control: Control, config: Mapping[str, Any]) -> None:
        self._buffer = b""
        self._ended = False
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
            raise DeviceError(f"cannot start the key exchange: {e}") from e
        finally:
            control.close()
        assert self._process.stdin and self._process.stdout
        forked.drop(self._process.stdin, self._process.stdout)
        try:
            self._configure(config)
        except BaseException:
            self.close()
            raise

    def _configure(self, config: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        raw = cbor2.dumps(config, canonical=True)
        message = memoryview(len(raw).to_bytes(4, "big") + raw)
        with contextlib.suppress(BrokenPipeError):  # its last words are on stdout
            while message:
                message = message[self._process.stdin.write(message) or 0 :]

    def wait_ready(self, deadline: float) -> Peer:
        """Until both ends are ready; raises what went wrong."""
        peer: Peer | None = None
        while True:
            # The program has the same deadline, and says more about it than this.
            event = self._event(deadline + GRACE)
            match event.get("event"):
                case "peer":
                    del event["event"]
                    peer = Peer(**event | {"suite": Suite(*event["suite"])})
                case "ready" if peer is not None:
                    return peer
                case "error":
                    kind = _CLASSES.get(event["code"], RemoteError)
                    raise kind(event["text"])
                case _:
                    raise RemoteError("the peer closed during the key exchange")

    def fileno(self) -> int:
        """Readable when ended() has something to hear."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def ended(self) -> bool:
        """True once the connection is over; does not wait."""
        while not self._ended:
            try:
                self._ended = self._event(time.monotonic()).get("event") != "ready"
            except Timeout:
                break
            except DeviceError:
                self._ended = True
        return self._ended

    def close(self) -> None:
        """Ask it to close TLS, and see that it is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _event(self, deadline: float) -> dict[str, Any]:
        """The next one."""
        size = self._read(4, deadline)
        length = int.from_bytes(size, "big")
        body = self._read(length, deadline) if 0 < length <= _MAX_EVENT else b""
        if not body:
            raise DeviceError(f"the key exchange ended without a word: {self._last_words()}")
        event = cbor2.loads(body)
        assert isinstance(event, dict)
        return event

    def _read(self, size: int, deadline: float) -> bytes:
        """Exactly size bytes, or b"" at the end."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while len(self._buffer) < size:
            if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
                raise Timeout("the key exchange did not end in time")
            part = os.read(fd, 65536)
            if not part:
                return b""
            self._buffer += part
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _last_words(self) -> str:
        """The end of its stderr."""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return text[-2000:] or f"exit code {self._process.poll()}"


def _environment() -> dict[str, str]:
    """This program's, with the folder that this package was imported from.

    Without what may make OpenSSL write secrets, or Python read commands from stdin.
    """
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    kept = {k: v for k, v in os.environ.items() if k not in ("SSLKEYLOGFILE", "PYTHONINSPECT")}
    return {**kept, "PYTHONPATH": path}
