"""The audit lines of a system agent (agent.md 6), and its stderr, which carries them.

A private agent has no audit, and its stderr is a file, which never blocks.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TextIO, cast

AUDIT_RATE = 50  # lines of an event per second
WAITING_LINES, WAITING_BYTES = 1024, 1 << 20  # that may wait for the reader of stderr
FLUSH = 1.0  # seconds for the lines that wait when the agent ends

Audit = Callable[..., None]


def no_audit(event: str, **fields: object) -> None:
    """A private agent tells its program everything by events."""


class AuditLog:
    """One JSON object per line on stderr, at most AUDIT_RATE per second of each event: events that
    unauthenticated peers cause must not displace the others. No field has a secret."""

    def __init__(self) -> None:
        self._second, self._dropped = 0, 0
        self._lines: Counter[str] = Counter()  # of each event in this second

    def __call__(self, event: str, **fields: object) -> None:
        now = time.time()
        if int(now) != self._second:
            self._second = int(now)
            self._lines.clear()
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                self("dropped", lines=dropped)
        if self._lines[event] >= AUDIT_RATE:
            self._dropped += 1
            return
        self._lines[event] += 1
        sys.stderr.write(audit_line(event, now, **fields))


def audit_line(event: str, now: float, **fields: object) -> str:
    """now: s since the epoch."""
    return json.dumps({"time": round(now, 3), "event": event, **fields}) + "\n"


class Lines(io.TextIOBase):
    """A text stream that never blocks: a thread writes its lines to a file descriptor.

    Once WAITING_LINES or WAITING_BYTES wait, further lines are dropped until all that wait are
    written. An audit line `dropped` then has their number.
    """

    def __init__(self, fd: int) -> None:
        """The file descriptor stays the caller's, and must stay open."""
        self._fd = fd
        self._begun = ""  # a line without its end
        self._waiting: deque[bytes] = deque()
        self._size, self._dropped = 0, 0  # bytes that wait; lines
        self._over = False
        # Its lock is an RLock: a finalizer may write while the same thread writes.
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="stderr", daemon=True)
        self._thread.start()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._changed:
            *lines, self._begun = (self._begun + text).split("\n")
            for line in lines:
                self._put(line)
        return len(text)

    def close(self) -> None:
        """Wait until all lines are written, at most FLUSH seconds."""
        with self._changed:
            if self._begun:
                self._put(self._begun)
            self._begun, self._over = "", True
            self._changed.notify()
        self._thread.join(FLUSH)
        super().close()

    def _put(self, line: str) -> None:
        data = f"{line}\n".encode(errors="backslashreplace")
        full = len(self._waiting) >= WAITING_LINES or self._size + len(data) > WAITING_BYTES
        if full or self._dropped:
            self._dropped += 1
            return
        self._waiting.append(data)
        self._size += len(data)
        self._changed.notify()

    def _run(self) -> None:
        while data := self._next():
            _write(self._fd, data)

    def _next(self) -> bytes:
        """The next line; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._dropped or self._over)
            if self._waiting:
                data = self._waiting.popleft()
                self._size -= len(data)
                return data
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                return audit_line("dropped", time.time(), lines=dropped).encode()
            return b""


def _write(fd: int, data: bytes) -> None:
    """os.write(), not the file object: its lock would be held when the interpreter ends."""
    with contextlib.suppress(OSError):  # a full disk or a closed pipe stops no session
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:  # another process that has the pipe made it non-blocking
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()


@contextlib.contextmanager
def stderr_in_a_thread() -> Iterator[None]:
    """Nothing that writes to sys.stderr waits for its reader: audit lines, log lines of libraries,
    tracebacks."""
    fd = sys.stderr.fileno() if sys.stderr else -1  # -1: closed at the start, lines are lost
    with (
        contextlib.closing(Lines(fd)) as lines,
        contextlib.redirect_stderr(cast(TextIO, lines)),
    ):
        yield
