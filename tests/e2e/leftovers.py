"""A place for a test that must leave nothing behind in its folder, its processes and /dev/shm."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

GONE = 10.0  # seconds within which the last process must be reaped


class Place:
    """A folder in /tmp. All processes of a test have it as TMPDIR, which identifies them."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="st", dir="/tmp"))
        self.env = {**os.environ, "TMPDIR": str(self.folder)}
        self._mark = f"TMPDIR={self.folder}".encode()
        self._shm = set(os.listdir("/dev/shm"))

    def processes(self) -> list[str]:
        """Returns the running processes of this test without the calling process."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit() or int(entry.name) == os.getpid():
                    continue
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if self._mark in (entry / "environ").read_bytes().split(b"\0") and state != "Z":
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(f"{entry.name}: {words}")
        return found

    def check(self) -> None:
        """Fails if anything is left."""
        deadline = time.monotonic() + GONE
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert self.processes() == []
        assert list(self.folder.iterdir()) == []
        assert set(os.listdir("/dev/shm")) <= self._shm


@contextlib.contextmanager
def place() -> Iterator[Place]:
    """Yields a place and checks it after the test."""
    here = Place()
    try:
        yield here
        here.check()
    finally:
        shutil.rmtree(here.folder, ignore_errors=True)
