"""Connections to a worker that the system agent passes to programs of other users (agent.md 9)."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cbor2
import pytest

import srdma
from srdma import context
from srdma.agent import client
from srdma.agent.access import worker_connection
from srdma.agent.client import SystemAgent
from srdma.errors import (
    DeviceError,
    LocalError,
    NoWorkerError,
    RefusedError,
    Timeout,
    WorkerGone,
)
from tests.daemon import BINARY, worker
from tests.thread_agent import ThreadAgent
from tests.unix_server import UnixServer

SHORT = 0.3


def message(**fields: object) -> bytes:
    raw = cbor2.dumps(fields)
    return len(raw).to_bytes(4, "big") + raw


class FakeAgent:
    """Answers each channel with these bytes and file descriptors, and closes it after `stay`."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked = path, b""
        self.answer: list[bytes] = [message(event="opened")]
        self.fds: Callable[[], list[int]] = list
        self.stay = 0.0
        self._server = UnixServer(path, self._serve)

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            self.asked = sock.recv(4096)
            fds = self.fds()
            with contextlib.suppress(OSError):
                for part in self.answer:
                    socket.send_fds(sock, [part], fds)
                    for fd in fds:
                        os.close(fd)
                    fds = []
                    time.sleep(0.02)
            time.sleep(self.stay)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    with contextlib.closing(FakeAgent(tmp_path / "agent")) as agent:
        yield agent


def one_end() -> list[int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    return [ours.detach()]


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_socket_beside_the_event(agent: FakeAgent) -> None:
    """Also when the event comes in parts."""
    agent.fds = one_end
    for parts in (1, 2, 5):
        whole = message(event="opened")
        agent.answer = [
            whole[i : i + len(whole) // parts + 1]
            for i in range(0, len(whole), len(whole) // parts + 1)
        ]
        passed = worker_connection(SystemAgent(agent.path), Path("/run/w.ctl"), 5.0)
        control = passed.control
        assert not passed.remote and not passed.lasting
        assert not os.get_inheritable(control.fileno())
        assert not control.alive()
        control.close()
    assert cbor2.loads(agent.asked[4:]) == {"do": "open", "worker": "/run/w.ctl"}


@pytest.mark.parametrize("field", ["remote", "lasting"])
def test_worker_on_another_computer(agent: FakeAgent, field: str) -> None:
    agent.fds, agent.answer = one_end, [message(event="opened", **{field: True})]
    passed = worker_connection(SystemAgent(agent.path), Path("/run/w.ctl"), 5.0)
    assert passed.lasting and passed.remote == (field == "remote")
    passed.control.close()


@pytest.mark.parametrize(
    ("answer", "passed", "kind", "text"),
    [
        ([message(event="opened")], 0, DeviceError, "passed no connection"),
        ([message(event="ready")], 1, DeviceError, "passed no connection"),
        ([message(event="error", code="policy", text="not you")], 0, LocalError, "not you"),
        ([message(event="error", code="worker", text="gone")], 1, DeviceError, "gone"),
        ([message(event="error", code="quota", text="too many")], 0, RefusedError, "too many"),
        ([], 0, DeviceError, "the agent ended unexpectedly"),
        ([b"\0\0"], 1, DeviceError, "the agent ended unexpectedly"),
        ([struct.pack(">I", 1) + b"\x01"], 1, DeviceError, "illegal message"),
        ([struct.pack(">I", 1 << 30) + bytes(70000)], 1, DeviceError, "ended unexpectedly"),
    ],
)
def test_answers_that_pass_no_connection(agent, answer, passed, kind, text) -> None:
    """No file descriptor stays open."""
    before = open_fds()
    agent.answer = answer
    agent.fds = one_end if passed else list
    with pytest.raises(kind, match=text) as error:
        worker_connection(SystemAgent(agent.path), Path("/run/w.ctl"), 5.0)
    if kind is RefusedError:
        assert error.value.errno == errno.EDQUOT
    end = time.monotonic() + 5
    while open_fds() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert open_fds() <= before


def test_silent_agent(agent: FakeAgent) -> None:
    agent.answer, agent.stay = [], 1.0
    with pytest.raises(Timeout, match=f"did not answer in {SHORT} s"):
        worker_connection(SystemAgent(agent.path), Path("/run/w.ctl"), SHORT)


def test_private_agent_passes_nothing() -> None:
    agent = ThreadAgent()
    with contextlib.closing(agent), agent.open() as sock:
        sock.sendall(message(do="open", worker="/run/w.ctl"))
        assert b"a private agent passes no connection" in sock.recv(4096)


def test_agents_that_are_trusted(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "peer_of", lambda _: (1, 990))
    SystemAgent(agent.path, 990).open().close()
    for trusted in (None, 0, 991):
        with pytest.raises(
            DeviceError, match=r"is of user 990, .* agent_user= or SRDMA_AGENT_USER"
        ):
            SystemAgent(agent.path, trusted).open()


# Context -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "environment", "user"),
    [
        (None, "", None),
        (None, "990", 990),
        (None, "root", 0),
        (7, "990", 7),
        ("root", "990", 0),
        ("7", "", 7),
        ("", "990", None),
    ],
)
def test_user_of_the_agent(monkeypatch, given, environment, user) -> None:
    monkeypatch.setenv("SRDMA_AGENT_USER", environment)
    assert context.agent_uid(given) == user


@pytest.mark.parametrize("given", ["no-such-user", -1, 1 << 32])
def test_no_such_user(given: str | int) -> None:
    with pytest.raises(LocalError, match="the user of the agent: there is no user"):
        context.agent_uid(given)


@pytest.mark.parametrize(
    ("cause", "ask"),
    [
        (PermissionError(errno.EACCES, ""), True),
        (PermissionError(errno.EPERM, ""), True),
        (FileNotFoundError(errno.ENOENT, ""), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, ""), False),
        (OSError(errno.EPROTOTYPE, ""), False),
        (None, True),  # the worker is of another user
    ],
)
def test_failures_after_which_the_agent_is_asked(cause: OSError | None, ask: bool) -> None:
    error = NoWorkerError("")
    error.__cause__ = cause
    assert context._may_be_of_others(error) is ask
    gone = WorkerGone("")
    gone.__cause__ = ConnectionResetError(errno.ECONNRESET, "")
    assert context._may_be_of_others(gone)


def test_missing_worker(agent: FakeAgent, tmp_path: Path) -> None:
    """Without a system agent, or with one that has no such worker either."""
    path = tmp_path / "none.ctl"
    with pytest.raises(NoWorkerError, match="no worker at"):
        srdma.Context(path, agent="")
    assert agent.asked == b""
    agent.answer = [message(event="error", code="worker", text="it has none")]
    with pytest.raises(NoWorkerError, match="no worker at") as error:
        srdma.Context(path, agent=agent.path)
    assert error.value.__notes__ == ["by the agent: it has none"]
    agent.answer = [message(event="error", code="policy", text="serves another one")]
    with pytest.raises(LocalError, match="serves another one") as refused:
        srdma.Context(path, agent=agent.path)
    assert "no worker at" in refused.value.__notes__[0]


@pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")
def test_worker_outside_of_the_container(agent: FakeAgent, tmp_path: Path) -> None:
    """Each connection of the Context comes from the agent; the worker may not trace the program."""
    with worker(tmp_path) as found:

        def connected() -> list[int]:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.connect(os.fspath(found.control))
            return [sock.detach()]

        agent.fds = connected
        path = tmp_path / "elsewhere.ctl"
        with srdma.Context(path, agent=agent.path) as ctx, srdma.PD(ctx) as pd:
            assert ctx._restricted
            pd.alloc(64).close()
            agent.answer = [message(event="error", code="quota", text="too many")]
            agent.fds = list
            with pytest.raises(RefusedError, match="too many"):
                srdma.PD(ctx)
        # a worker that takes this process is used directly
        with srdma.Context(found.control, agent=agent.path) as ctx:
            assert not ctx._restricted
