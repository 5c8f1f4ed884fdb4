"""accept() on a listening socket that the program shares (agent.md 3)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from srdma.agent import accept
from srdma.agent.accept import Acceptor, listens
from srdma.agent.entrance import SHUT_DOWN
from srdma.agent.listener import Admission
from srdma.agent.tasks import cancelled
from tests.exchange_players import offer
from tests.keyex_players import HOST_A, PATIENCE, Program, Wire, dial, finished, load, until
from tests.thread_agent import ThreadAgent
from tests.tls_players import BlockingTLS


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as sock:
        yield sock


@pytest.fixture
def acceptor() -> Acceptor:
    return Acceptor()


def connections(listening: socket.socket, n: int) -> contextlib.ExitStack:
    with contextlib.ExitStack() as stack:
        for _ in range(n):
            stack.enter_context(dial(listening.getsockname()))
        return stack.pop_all()


def test_others_run_between_two_connections(acceptor: Acceptor, listening: socket.socket) -> None:
    order: list[str] = []

    async def other() -> None:
        while True:
            order.append("other")
            await asyncio.sleep(0)

    async def run() -> None:
        task = asyncio.ensure_future(other())
        for _ in range(20):
            sock, address = await acceptor.accepted(listening)
            order.append("accepted")
            assert address[0] == "127.0.0.1" and not sock.getblocking()
            sock.close()
        task.cancel()

    with connections(listening, 20):
        asyncio.run(run())
    assert "accepted accepted" not in " ".join(order)


def test_blocking_socket_without_a_connection(acceptor: Acceptor, listening: socket.socket) -> None:
    """The program accepts a connection between the look and accept()."""

    async def readable_once(sock: socket.socket) -> None:
        if not looked:
            looked.append(1)
            sock.setblocking(True)
            return
        await real(sock)

    async def run() -> None:
        task = asyncio.ensure_future(acceptor.accepted(listening))
        await asyncio.sleep(0.05)
        assert looked and not task.done()
        with connections(listening, 1):
            found, _ = await asyncio.wait_for(task, 20)
            found.close()

    looked: list[int] = []
    real = accept._readable
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accept, "_readable", readable_once)
        begin = time.monotonic()
        asyncio.run(run())
        assert time.monotonic() - begin < 20


def blocking(sock: socket.socket) -> None:
    """The program wins the race: it clears O_NONBLOCK behind the agent's call."""
    sock.setblocking(True)


def test_accept_that_blocks_is_ended(
    acceptor: Acceptor, listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        with pytest.raises(OSError, match="Invalid argument"):
            await acceptor.accepted(listening)

    async def at_once(_: object) -> None:
        """The socket was readable."""

    monkeypatch.setattr(accept, "_readable", at_once)
    monkeypatch.setattr(accept, "_forbid_blocking", blocking)
    assert listens(listening)
    asyncio.run(run())
    assert not listens(listening)


def test_short_blocks_end_nothing(
    acceptor: Acceptor, listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard looks at one accept(), not at the sum of many."""

    async def run() -> None:
        end = time.monotonic() + 3 * accept.BLOCKED
        while time.monotonic() < end:
            with connections(listening, 1):
                (await acceptor.accepted(listening))[0].close()

    monkeypatch.setattr(accept, "_forbid_blocking", blocking)
    asyncio.run(run())
    assert listens(listening)


# A program that clears the flag: accept() is called in a thread ------------------------


@pytest.fixture
def suspect(
    acceptor: Acceptor, listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> socket.socket:
    """A socket whose program cleared the flag once, and wins each race from now on. It seems to
    have a connection."""

    async def at_once(_: object) -> None:
        await asyncio.sleep(0)

    acceptor._set.add(listening)
    monkeypatch.setattr(accept, "_readable", at_once)
    monkeypatch.setattr(accept, "_forbid_blocking", blocking)
    listening.setblocking(True)
    return listening


def no_thread() -> bool:
    return all(thread.name != "accept" for thread in threading.enumerate())


def test_accept_that_blocks_delays_nobody(acceptor: Acceptor, suspect: socket.socket) -> None:
    """The socket is shut down nevertheless."""

    async def run() -> None:
        task, turns = asyncio.ensure_future(acceptor.accepted(suspect)), 0
        while not task.done():
            await asyncio.sleep(0.001)
            turns += 1
        with pytest.raises(OSError, match="Invalid argument"):
            task.result()
        assert turns > 10

    asyncio.run(run())
    assert not listens(suspect)
    until(no_thread)


def test_flag_that_is_cleared_once(acceptor: Acceptor, listening: socket.socket) -> None:
    """Connections are accepted as before."""

    async def run() -> None:
        for _ in range(3):
            with connections(listening, 1):
                found, address = await acceptor.accepted(listening)
                assert address[0] == "127.0.0.1" and not found.getblocking()
                found.close()
            os.set_blocking(listening.fileno(), True)

    asyncio.run(run())
    assert listens(listening) and acceptor.suspects


def test_first_look_at_a_socket(acceptor: Acceptor, listening: socket.socket) -> None:
    """A program may pass one whose flag was never set."""
    assert listening.getblocking()

    async def run() -> None:
        for _ in range(2):
            with connections(listening, 1):
                (await acceptor.accepted(listening))[0].close()

    asyncio.run(run())
    assert acceptor._late < float("inf")


def test_listener_that_ends_while_accept_blocks(acceptor: Acceptor, suspect: socket.socket) -> None:
    async def run() -> None:
        task = asyncio.ensure_future(acceptor.accepted(suspect))
        while no_thread():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    until(no_thread)


class Racing:
    """A socket whose accept() returns a connection as soon as it is to be ended."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.theirs.setblocking(False)
        self.over = threading.Event()

    def accept(self) -> tuple[socket.socket, tuple[object, ...]]:
        self.over.wait(PATIENCE)
        return self.ours, ("127.0.0.1", 1)

    def shutdown(self, _: int) -> None:
        self.over.set()


def test_connection_that_comes_with_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent closes it."""

    async def run() -> None:
        sock = Racing()
        call = accept._Call(cast(socket.socket, sock), asyncio.get_running_loop())
        task = asyncio.ensure_future(call.done())
        while no_thread():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.get_running_loop().sock_recv(sock.theirs, 1) == b""
        assert sock.ours.fileno() < 0
        sock.theirs.close()

    monkeypatch.setattr(accept, "_forbid_blocking", lambda _: None)
    asyncio.run(run())


def test_calls_that_block_take_no_turn_of_others(
    suspect: socket.socket, acceptor: Acceptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accept, "BLOCKED", PATIENCE)
    acceptor._turns = asyncio.Semaphore(1)

    async def run() -> None:
        blocked = [asyncio.ensure_future(acceptor.accepted(suspect)) for _ in range(2)]
        while no_thread():
            await asyncio.sleep(0.001)
        other = Acceptor()
        with socket.create_server(("127.0.0.1", 0)) as theirs, connections(theirs, 1):
            other._set.add(theirs)
            (await other.accepted(theirs))[0].close()
        assert other.suspects and not any(task.done() for task in blocked)
        for task in blocked:
            await cancelled(task)

    asyncio.run(run())
    until(no_thread)


def test_user_who_made_accept_block(acceptor: Acceptor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next listening sockets are suspected too, also if the program set the flag again."""
    threads: list[str] = []
    real = accept._Call._run

    async def at_once(_: object) -> None:
        await asyncio.sleep(0)

    def run_call(call: accept._Call) -> None:
        threads.append(threading.current_thread().name)
        real(call)

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as first, monkeypatch.context() as patch:
            patch.setattr(accept, "_readable", at_once)
            patch.setattr(accept, "_forbid_blocking", blocking)
            threading.Timer(0.1, first.setblocking, [False]).start()
            with pytest.raises(OSError, match="Invalid argument"):
                await acceptor.accepted(first)
        for _ in range(2):
            with socket.create_server(("127.0.0.1", 0)) as sock, connections(sock, 1):
                (await acceptor.accepted(sock))[0].close()

    monkeypatch.setattr(accept._Call, "_run", run_call)
    asyncio.run(run())
    assert threads == ["accept", "accept"]


def test_no_thread_can_be_started(
    acceptor: Acceptor, suspect: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entrance waits, as for descriptors."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> None:
        with pytest.raises(OSError, match="no thread"):
            await acceptor.accepted(suspect)

    monkeypatch.setattr(threading.Thread, "start", start)
    asyncio.run(run())
    assert listens(suspect)


def test_users_of_an_agent() -> None:
    """The owner outlives its listeners. The users of another computer are one owner: that computer
    can name any number of them."""
    admission = Admission(
        lambda *_, **__: None,
        lambda _: pytest.fail("no peer"),
        lambda _: pytest.fail("no group"),
    )
    assert admission.owner(1001) is admission.owner(1001)
    assert admission.owner(1001) is not admission.owner(1002)
    for uid in range(10):
        admission.owner(f"left:{uid}")
    assert admission.owner("left:0") is not admission.owner("left")  # of a container
    assert len(admission._owners) == 4


# An agent -----------------------------------------------------------------------------


@contextlib.contextmanager
def served(program: Program, listening: socket.socket, identities: Path) -> Iterator[Wire]:
    with finished(program):
        settings: dict[str, Any] = vars(load(identities, "b")) | {"peer": [HOST_A]}
        wire = program.open({"do": "listen", **settings}, listening)
        assert wire.event() == {"event": "listening"}
        yield wire


def arrives(wire: Wire, listening: socket.socket, identities: Path) -> None:
    peer = BlockingTLS(dial(listening.getsockname()), "client", load(identities, "a"))
    with contextlib.closing(peer):
        peer.handshake()
        peer.send(offer())
        assert wire.event()["event"] == "arrived"


def test_program_that_clears_the_flag(listening: socket.socket, identities: Path) -> None:
    with served(Program(), listening, identities) as wire:
        for _ in range(3):
            os.set_blocking(listening.fileno(), True)
            arrives(wire, listening, identities)


def test_program_that_accepts_itself(listening: socket.socket, identities: Path) -> None:
    with served(Program(), listening, identities) as wire:
        listening.settimeout(None)
        # The agent may have taken the connection: then accept() blocks for 1 ms.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, 1000))
        for _ in range(50):
            with connections(listening, 1), contextlib.suppress(BlockingIOError):
                os.set_blocking(listening.fileno(), True)
                listening.accept()[0].close()
        arrives(wire, listening, identities)


@pytest.mark.parametrize("way", ["shutdown", "block"])
def test_listening_socket_that_ends(
    listening: socket.socket, identities: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.keyex_players.PrivateAgent", ThreadAgent)

    async def at_once(_: object) -> None:
        """The socket was readable."""
        await asyncio.sleep(0)

    if way == "block":
        monkeypatch.setattr(accept, "_readable", at_once)
        monkeypatch.setattr(accept, "_forbid_blocking", blocking)
    with served(Program(), listening, identities) as wire:
        if way == "shutdown":
            listening.shutdown(socket.SHUT_RDWR)
        assert wire.event() == {"event": "error", "code": "config", "text": SHUT_DOWN}
