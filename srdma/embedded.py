"""Embedded NICs: workers on this machine, started as child processes in a temporary folder.

Workers end with this process, even if it is killed. Shared memory is in memfds, so nothing stays
in /dev/shm. Ctrl-C is sent to this process only, which then ends its workers in order.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from srdma.control import Control, Hello
from srdma.errors import DeviceError, LocalError, NoWorkerError

START_TIMEOUT = 10.0
STOP_TIMEOUT = 3.0
SUN_PATH = 107  # longest path of a Unix socket, bytes
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


def find_worker() -> Path:
    """Path of srdma-offload: $SRDMA_OFFLOAD, else this tree's build folder, else that of the
    installed package, else PATH.

    Raises LocalError or NoWorkerError.
    """
    if chosen := os.environ.get("SRDMA_OFFLOAD"):
        if os.access(chosen, os.X_OK):
            return Path(chosen)
        raise LocalError(f"SRDMA_OFFLOAD={chosen} is no program: give the path of srdma-offload")
    package = Path(__file__).resolve().parent
    for built in (package.parent / "build" / "srdma-offload", package / "bin" / "srdma-offload"):
        if os.access(built, os.X_OK):
            return built
    if found := shutil.which("srdma-offload"):
        return Path(found)
    raise NoWorkerError(
        "srdma-offload not found: build it by `make offload`, or set SRDMA_OFFLOAD to its path"
    )


def die_with_parent() -> None:
    """In a child before exec: request SIGTERM when the parent thread ends, even by SIGKILL."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def spawn(
    command: Sequence[str | Path], *, stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None, stderr: int | IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start a child in a process group of its own that ends with this process.

    The kernel watches the calling thread: its children end when that thread ends.
    """
    return subprocess.Popen(
        [os.fspath(word) for word in command],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        process_group=0,
        preexec_fn=die_with_parent,
    )


def stop(process: subprocess.Popen[bytes], timeout: float = STOP_TIMEOUT) -> None:
    """Send SIGTERM, and SIGKILL after `timeout` seconds; returns when the process has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


@dataclass
class Worker:
    """A running srdma-offload. control: path of its control socket; log: file of its output."""

    name: str
    control: Path
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_up(self, timeout: float = START_TIMEOUT) -> Hello:
        """Wait up to `timeout` seconds until it answers HELLO. Raises DeviceError."""
        deadline = time.monotonic() + timeout
        while True:
            if (code := self.process.poll()) is not None:
                raise DeviceError(f"worker {self.name} ended with code {code}: {self.last_words()}")
            with contextlib.suppress(NoWorkerError):
                control = Control.connect(self.control)
                with contextlib.closing(control):
                    return control.hello()
            if time.monotonic() > deadline:
                raise DeviceError(
                    f"worker {self.name} did not start in {timeout:g} s: {self.last_words()}"
                )
            time.sleep(0.005)

    def last_words(self) -> str:
        """Last line of the log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"


class Closing:
    """Base class of context managers that close() at the end."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Embedded(Closing):
    """Workers in a temporary folder; the context manager ends them and removes the folder.

    with Embedded() as nics:
        a = nics.start("nica")
        b = nics.start("nicb")
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.folder = _make_folder()
        self.workers: list[Worker] = []

    def wire(self, name: str) -> Path:
        """Folder of a shared-memory wire, made at the first call (local-interface.md 4.5)."""
        folder = self.folder / f"wire-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def start(
        self, name: str, *, wire: str = "0", unprotected: bool = False,
        options: Sequence[str] = (),
    ) -> Worker:  # fmt: skip
        """Start a worker with a shared-memory wire. Workers with the same `wire` are connected.

        unprotected: permit level "none". options: further options of srdma-offload. Raises
        NoWorkerError without the program, DeviceError if the worker does not start.
        """
        words = ["--wire-dev", f"shm:{self.wire(wire)}", *options]
        return self.launch(name, [*words, *(["--allow-unprotected"] if unprotected else [])])

    def launch(self, name: str, options: Sequence[str]) -> Worker:
        """Start a worker with these options of srdma-offload; returns when it answers."""
        control, log = self.folder / f"{name}.ctl", self.folder / f"{name}.log"
        with open(log, "wb") as output:
            process = spawn(
                [find_worker(), "--name", name, "--control", control, *options],
                stdout=output,
                stderr=output,
            )
        worker = Worker(name, control, process, log)
        self.workers.append(worker)
        worker.wait_until_up()
        return worker

    def stop(self) -> None:
        """End the workers; the folder stays."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.terminate()
        for worker in self.workers:
            stop(worker.process)
        self.workers.clear()

    def close(self) -> None:
        """End the workers and remove the folder. No effect in a forked child."""
        if os.getpid() != self._pid:
            return
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _make_folder() -> Path:
    """Make a folder of mode 0700 whose path is short enough for sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="srdma-"))
    if len(os.fsencode(folder)) > SUN_PATH - 60:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="srdma-", dir="/tmp"))
    return folder
