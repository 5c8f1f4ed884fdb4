"""A process with an open QP forks.

Goal: the child can use nothing that it inherited, and is told so; neither its life nor its end
touches what the parent has, and the end of the parent is that of the connection all the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import srdma
from srdma.embedded import Embedded
from tests.e2e import forking
from tests.e2e.conftest import WAIT, Host, Joiner, Site, run
from tests.e2e.load import ACCESS

ROOT = Path(__file__).parents[2]


class Parent:
    """tests/e2e/forking.py, connected to a host of this process."""

    def __init__(self, site: Site, pki: Path, other: Host, how: str) -> None:
        self.region = other.pd.alloc(forking.SIZE, ACCESS)
        data = self.region.remote().to_bytes()
        address = ("127.0.0.1", 0)
        with srdma.listen(address, other.pd, identity=pki / "b", data=data) as listener:
            accepted = run(listener.accept, WAIT)
            words = [str(site.a.control), str(pki / "a"), *map(str, listener.address), how]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.forking", *words],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self.connection = accepted()
        self.lines: list[str] = []
        self.child = 0

    def works(self) -> None:
        """It moved its data both ways."""
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
        """By its `with` blocks."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(WAIT) == 0

    def close(self) -> None:
        """Whatever is left of it."""
        for end in (self.process.kill, self.process.wait):
            end()
        with contextlib.suppress(ProcessLookupError):
            if self.child and "stay" in self.process.args:  # type: ignore[operator]
                os.kill(self.child, signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@pytest.fixture
def parent(site: Site, pki: Path, join: Joiner, request: pytest.FixtureRequest) -> Iterator[Parent]:
    found = Parent(site, pki, join.host(site.b), request.param)
    yield found
    found.close()


def legs(site: Site) -> int:
    """Of host a."""
    with srdma.Context(site.a.control) as ctx:
        return ctx.stats()["legs"]


def wait_for_no_legs(site: Site) -> None:
    deadline = time.monotonic() + WAIT
    while legs(site):
        assert time.monotonic() < deadline, "the worker still has the parent's leg"
        time.sleep(0.01)


@pytest.mark.parametrize("parent", ["use"], indirect=True)
def test_every_use_in_the_child_is_an_error(site: Site, parent: Parent) -> None:
    parent.works()
    said = dict(line.split(" ", 1) for line in parent.lines if line[0].isdigit())
    assert len(said) == 29
    for number, outcome in said.items():
        assert outcome.startswith("ClosedError: this "), (number, outcome)
        assert "a forked child cannot use it" in outcome, (number, outcome)
    parent.end()


@pytest.mark.parametrize("parent", ["exit"], indirect=True)
def test_the_end_of_the_child_ends_nothing(site: Site, parent: Parent) -> None:
    parent.works()
    parent.end()
    wait_for_no_legs(site)


@pytest.mark.parametrize("parent", ["stay"], indirect=True)
@pytest.mark.parametrize("killed", [False, True])
def test_the_child_keeps_nothing_of_the_parent(site: Site, parent: Parent, killed: bool) -> None:
    parent.works()
    if killed:
        parent.process.kill()
    else:
        parent.end()
    with pytest.raises(srdma.WCError, match=r"PEER_CLOSED|PEER_HOST_GONE"):
        parent.connection.qp.recv(WAIT)
    wait_for_no_legs(site)


def test_a_child_that_leaves_ends_no_workers() -> None:
    with Embedded() as nics:
        worker = nics.start("a")
        child = os.fork()
        if not child:
            nics.close()
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        assert worker.wait_until_up().name == "a"
        assert nics.folder.exists()
