"""A man in the middle between two workers: tests/e2e/c/mitm.c as a child process, in two
settings.

Between embedded NICs each worker has its own wire folder, and the man in the middle uses both. Over
UDP it is the middle of the cable between two network namespaces.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from srdma.embedded import Embedded
from tests.e2e.cable import cable, workers
from tests.e2e.conftest import Site

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "c"
START = 20  # seconds; long enough for a busy machine
OF = 10_000  # unit of the rates, in packets
LEFT, RIGHT, BOTH = 1, 2, 3


class Faults(NamedTuple):
    """Rates of faults, in packets of 10,000."""

    flip: int = 0
    drop: int = 0
    twice: int = 0
    replace: int = 0
    late: int = 0


class Count(NamedTuple):
    """Counts of packets that arrived and of what was done to them."""

    packets: int
    flip: int
    drop: int
    twice: int
    replace: int
    late: int
    swallowed: int


def build(folder: Path) -> Path:
    """Builds the program in that folder."""
    out = folder / "mitm"
    built = Path(os.environ.get("BUILD", ROOT / "build"))
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    libraries = subprocess.run(
        ["make", "-s", "print-libs"], cwd=ROOT, env=env, check=True, capture_output=True, text=True
    ).stdout.split()
    command = ["cc", "-std=c11", "-O2", "-D_GNU_SOURCE", f"-I{ROOT}/csrc", f"-I{ROOT}/include"]
    command += ["-o", str(out)]
    command += [*map(str, sorted(SOURCES.glob("*.c"))), str(built / "libsrdma-core.a"), *libraries]
    subprocess.run(command, cwd=ROOT, check=True)
    return out


class Mitm:
    """The man in the middle as a process."""

    def __init__(self, command: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        assert self._answer() == "up"

    def faults(self, faults: Faults, seed: int = 1) -> None:
        """Sets the random faults from now on."""
        assert self.ask("faults", seed, *faults) == "ok"

    def swallow(self, sides: int) -> None:
        """Drops all packets from these sides from now on; 0: drops none."""
        assert self.ask("swallow", sides) == "ok"

    def cut(self) -> int:
        """Closes every connection between the workers. Returns how many there were."""
        return int(self.ask("cut"))

    def count(self) -> Count:
        """Returns the counts since its start."""
        return Count(*map(int, self.ask("count").split()))

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        assert self._process.wait(START) == 0
        self._process.stdout.close()

    def ask(self, *words: object) -> str:
        """Sends a command of mitm.c and returns the answer."""
        assert self._process.stdin
        print(*words, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> str:
        out = self._process.stdout
        assert out and select.select([out], [], [], START)[0], "the man in the middle hangs"
        return out.readline().strip()


class Middle(NamedTuple):
    """Two workers and the man in the middle between them."""

    site: Site
    mitm: Mitm


@contextlib.contextmanager
def shm_middle(program: Path, options: Sequence[str] = ()) -> Iterator[Middle]:
    with Embedded() as nics, contextlib.ExitStack() as stack:
        words = [str(program), "shm", str(nics.wire("a")), str(nics.wire("b")), "a", "b"]
        mitm = Mitm(words)
        stack.callback(mitm.close)
        a = nics.start("a", wire="a", options=options)
        yield Middle(Site(a, nics.start("b", wire="b", options=options), nics), mitm)


@contextlib.contextmanager
def udp_middle(
    program: Path, folder: Path, options: Sequence[str] = (), mtu: int = 1500
) -> Iterator[Middle]:
    with contextlib.ExitStack() as stack:
        it = stack.enter_context(cable(4, mtu, middle=True))
        mitm = Mitm(it.inside("m", str(program), "net", "va", "vb"))
        stack.callback(mitm.close)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        yield Middle(stack.enter_context(workers(it, folder, patch, options)), mitm)
