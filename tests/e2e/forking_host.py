"""Runs tests/e2e/forking.py as a child process that is connected to a host of this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import srdma
from tests.e2e import forking
from tests.e2e.forking import WAIT
from tests.e2e.load import ACCESS

ROOT = Path(__file__).parents[2]


class Parent:
    """tests/e2e/forking.py, connected to a host of this process."""

    def __init__(
        self, how: str, worker: Path, identity: Path, other: srdma.PD, theirs: Path
    ) -> None:
        """Starts it at `worker` with `identity`. Host `theirs` of this process, at worker `other`,
        accepts its connection."""
        self.region = other.alloc(forking.SIZE, ACCESS, scope="pd")
        data = self.region.remote().to_bytes()
        address = ("127.0.0.1", 0)
        with (
            ThreadPoolExecutor(1) as thread,
            srdma.listen(address, other, identity=theirs, data=data, timeout=WAIT) as listener,
        ):
            accepted = thread.submit(listener.accept, WAIT)
            words = [str(worker), str(identity), *map(str, listener.address), how]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.forking", *words],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self.connection = accepted.result()
        self.lines: list[str] = []
        self.child = 0

    def works(self) -> None:
        """Checks that it moved its data both ways."""
        qp = self.connection.qp
        assert qp.recv(WAIT).data == b"from the parent"
        qp.send(b"to the parent", timeout=WAIT)
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("child "):
                self.child = int(line.split()[1])
            if line == "well\n":
                return
        raise AssertionError(self.lines)

    def end(self) -> None:
        """Ends it normally, through its `with` blocks."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(WAIT) == 0

    def close(self) -> None:
        """Kills the processes that are left."""
        for end in (self.process.kill, self.process.wait):
            end()
        with contextlib.suppress(ProcessLookupError):
            if self.child and "stay" in self.process.args:  # type: ignore[operator]
                os.kill(self.child, signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def check_refusals(lines: list[str]) -> None:
    """Checks the lines of a child that ran "use": every call on what it inherited must have
    failed."""
    said = dict(line.split(" ", 1) for line in lines if line[0].isdigit())
    assert len(said) == 29
    for number, outcome in said.items():
        assert outcome.startswith("ClosedError: this "), (number, outcome)
        assert "a forked child cannot use it" in outcome, (number, outcome)
