"""Restricted connections to a running worker (local-interface.md 3.9)."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from srdma.control import Control, Limits
from srdma.errors import RefusedError
from tests import daemon
from tests.daemon import (
    BINARY,
    LENGTHS,
    PAGE,
    Client,
    Kind,
    Worker,
    memfd,
    reg_mr,
    u32,
    until,
    worker,
)
from tests.lingering import lingering, release

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

ACCOUNT = "uid 65534"


@pytest.fixture
def agent(a: Worker) -> Iterator[Control]:
    """The agent's own connection, which keeps the role."""
    control = Control.connect(a.control)
    control.agent()
    yield control
    control.close()


def restricted(a: Worker, limits: Limits | None = None, account: str = ACCOUNT) -> Client:
    """A program's end of a connection, which the agent has passed on and forgotten."""
    client = a.client()
    client.request(Kind.AGENT, bytes(4))
    given = limits or Limits()
    body = struct.pack(
        ">4IQ64sI64x", given.connections, given.legs, given.qps, given.regions, given.bytes,
        account.encode(), 0,
    )  # fmt: skip
    client.request(Kind.RESTRICT, body)
    return client


def test_program_whose_files_hang(a: Worker) -> None:
    """Once many of them wait to be closed, no connection of its account is read, and none is made.
    The worker serves the programs of other accounts."""
    hostile, same, other = restricted(a), restricted(a), restricted(a, account="uid 7")
    files = [lingering() for _ in range(2)]
    hello = struct.pack(">HHIII", Kind.HELLO, 0, 1, 0, 1)
    os.kill(
        a.process.pid, signal.SIGSTOP
    )  # so that the worker's close() of the files is the last one
    socket.send_fds(hostile.socket, [hello], [file.fileno() for file in files])
    for file in files:
        file.close()
    os.kill(a.process.pid, signal.SIGCONT)
    assert hostile.receive()[2] == errno.EPROTO
    with open(os.devnull) as null:
        for _ in range(2):
            socket.send_fds(hostile.socket, [hello], [null.fileno()] * 253)
    assert hostile.receive()[2] == hostile.receive()[2] == errno.EPROTO
    same.send(Kind.HELLO, u32(1))
    assert other.alive()
    with pytest.raises(daemon.RefusedError, match="the worker still closes 256 files") as refused:
        restricted(a)
    assert refused.value.status == errno.EDQUOT
    assert select.select([same.socket], [], [], 0.2) == ([], [], [])
    release()
    assert same.receive()[2] == 0 and hostile.alive()
    restricted(a).close()


@pytest.mark.parametrize("vacant", [False, True])
def test_kinds_of_the_agent(a: Worker, agent: Control, vacant: bool) -> None:
    """Each is refused, whether an agent has the role or not."""
    client = restricted(a)
    if vacant:
        agent.close()
        other = Control.connect(a.control)
        until(lambda: role_is_free(other))
        other.close()
    allowed = {*range(1, 7), *range(8, 11), *range(12, 16), Kind.QPS, Kind.WITHDRAW}
    allowed |= {Kind.MODIFY, Kind.SHARE, Kind.RESET, Kind.REINIT, Kind.REPLACE}
    for kind in Kind:
        if kind in allowed:
            continue
        said = client.refused(errno.EPERM, kind, bytes(LENGTHS[kind]))
        assert said.startswith(f"{kind.name} on a restricted connection")


def role_is_free(control: Control) -> bool:
    try:
        control.agent()
    except RefusedError as refused:
        assert refused.errno == errno.EBUSY
        return False
    return True


@pytest.mark.usefixtures("agent")
def test_memory_is_in_memfds(a: Worker) -> None:
    client = restricted(a)
    leg, _ = client.open()
    said = client.refused(errno.EPERM, Kind.REG_MR, reg_mr(leg))
    assert "registers memfds only: allocate the memory by pd.alloc() or srdma_alloc_mr()" in said
    fd = memfd(PAGE)
    key = client.number(Kind.REG_MR, reg_mr(leg), [fd])
    os.close(fd)
    client.request(Kind.DEREG_MR, u32(leg, key))


@pytest.mark.usefixtures("agent")
# RFC 5042 R3-2
def test_bytes_and_regions_are_counted(a: Worker) -> None:
    client = restricted(a, Limits(regions=2, bytes=3 * PAGE))
    leg, _ = client.open()
    fd = memfd(4 * PAGE)
    said = client.refused(errno.EDQUOT, Kind.REG_MR, reg_mr(leg, length=4 * PAGE), [fd])
    assert f"{ACCOUNT} has 0 of at most {3 * PAGE} bytes of registered memory" in said
    key = client.number(Kind.REG_MR, reg_mr(leg, length=2 * PAGE), [fd])
    client.number(Kind.REG_MR, reg_mr(leg), [fd])
    said = client.refused(errno.EDQUOT, Kind.REG_MR, reg_mr(leg), [fd])
    assert "of at most 2 regions" in said
    client.request(Kind.DEREG_MR, u32(leg, key))
    client.number(Kind.REG_MR, reg_mr(leg, length=2 * PAGE), [fd])
    os.close(fd)


@pytest.mark.usefixtures("agent")
def test_accounts_end_with_their_connections(a: Worker) -> None:
    limits = Limits(connections=1, legs=1, qps=1)
    client = restricted(a, limits)
    leg, _ = client.open()
    client.init(leg)
    said = client.refused(errno.EDQUOT, Kind.INIT, struct.pack(">5I", leg, 16, 16, 0, 0))
    assert "of at most 1 QPs" in said
    with pytest.raises(Exception, match="of at most 1 control connections"):
        restricted(a, limits)
    client.close()

    def again() -> bool:
        try:
            later = restricted(a, limits)
        except Exception as refused:
            assert "of at most 1 control connections" in str(refused)
            return False
        later.init(later.open()[0])
        return True

    until(again)


@pytest.mark.usefixtures("agent")
def test_connection_passed_on(a: Worker) -> None:
    """It works at its new owner, and ends with it, not with the process that connected."""
    ours, theirs = socket.socketpair()
    client = restricted(a)
    socket.send_fds(ours, [b"x"], [client.socket.fileno()])
    client.close()
    _, (fd,), _, _ = socket.recv_fds(theirs, 1, 1)
    got = Client.of(socket.socket(fileno=fd))
    leg, _ = got.open()
    got.init(leg)
    got.close()
    other = a.client()
    index = 48  # of the gauge `legs` (3.7)

    def legs() -> int:
        answer, _ = other.request(Kind.STATS)
        return int.from_bytes(answer[8 * index : 8 * index + 8], "big")

    until(lambda: legs() == 0)
    ours.close()
    theirs.close()


def test_role_is_needed(tmp_path: Path) -> None:
    """With --agent-uid a program of the worker's user may not restrict connections either."""
    with worker(tmp_path, "u", "--agent-uid", "1") as found:
        body = struct.pack(">4IQ64sI64x", 1, 1, 1, 1, 1, b"uid 7", 0)
        said = found.client().refused(errno.EPERM, Kind.RESTRICT, body)
        assert "RESTRICT without the role AGENT" in said
