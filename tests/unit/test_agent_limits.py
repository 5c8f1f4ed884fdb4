"""Limits of the agent towards programs and peers that do not read, and faults within it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import cbor2
import pytest

from srdma.agent import client as agent_client
from srdma.agent import service
from srdma.agent.channel import UNSENT_MAX, Channel
from srdma.agent.client import SystemAgent
from srdma.agent.policy import Private
from srdma.agent.service import Service
from srdma.agent.session import REQUESTS, Session
from srdma.agent.settings import Identity
from srdma.agent.tasks import cancelled
from srdma.agent.worker import Ended
from srdma.errors import DeviceError
from srdma.identity import Credentials
from srdma.keyex import tls
from srdma.keyex.renew import Renewing
from srdma.keyex.tls import CHUNK, Outer, Truncated
from tests.key_updates import Sender, connected
from tests.keyex_players import (
    END,
    HOST_A,
    PATIENCE,
    FakeWorker,
    Wire,
    accepting,
    connecting,
    load,
    patient,
    until,
)

FAULT_WISH = 666  # of the renewal in which the test's fault happens


# A program that does not read --------------------------------------------------------


# RFC 5042 A2.2.7
def test_program_that_does_not_read_its_channel() -> None:
    """Its channel is closed, and the memory for its events has a limit."""

    async def run() -> list[int]:
        ours, theirs = socket.socketpair()
        with ours:
            ours.send(b"\0")
            channel = await Channel.open(theirs, os.getuid())
            unread = []
            while not channel.closed:
                channel.report("renewed", text="x" * 60_000)
                unread.append(channel.unread())
                assert len(unread) < 100
            assert await channel.message() is None  # as after the program's close
            channel.report("renewed")  # no effect
            await channel.close()
            return unread

    *unread, last = asyncio.run(run())
    assert UNSENT_MAX < max(unread) < UNSENT_MAX + 60_100
    assert last == 0


def test_program_that_sends_many_requests() -> None:
    """Other tasks run in between, and all requests are served."""
    wishes = [{"do": "renew", "wish": n} for n in range(3 * REQUESTS + 1)]
    left, served = [*wishes], []
    channel = SimpleNamespace(
        uid=7, ended=False, take=lambda: left.pop(0) if left else None, watch=lambda _: None
    )

    async def run() -> None:
        own = Identity(Credentials(b"", b"", b""), ())
        house = cast(Any, SimpleNamespace(sessions=None, links=None))
        session = Session(cast(Channel, channel), lambda: own, house)
        session._upkeep = cast(Any, SimpleNamespace(wish=served.append))
        for turn in range(4):
            before = len(served)
            session.requests()
            assert len(served) - before <= REQUESTS
            if turn < 3:
                assert not session._bell._rung
                await session._bell.wait(time.monotonic() + PATIENCE)

    asyncio.run(run())
    assert served == [request["wish"] for request in wishes]


def test_first_messages_of_a_user_take_turns() -> None:
    """One is served in a pass of the event loop, and one of each other user."""
    passes = 0
    served: list[tuple[object, int]] = []

    def audit(_: str, **fields: object) -> None:
        served.append((fields["uid"], passes))

    async def count() -> NoReturn:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    async def run() -> None:
        house = Service(Private(), audit)
        ends = [socket.socketpair() for _ in range(20)]
        for number, (ours, theirs) in enumerate(ends):
            message = cbor2.dumps({"do": "nothing"})
            ours.send(len(message).to_bytes(4, "big") + message)
            house.open(theirs, 7 + number % 2)
        counting = asyncio.ensure_future(count())
        async with asyncio.timeout(PATIENCE):
            while len(served) < len(ends):
                await asyncio.sleep(0)
        await cancelled(counting)
        for ours, _ in ends:
            ours.close()
        await house.close()

    asyncio.run(run())
    assert len(set(served)) == len(served) == 20
    assert len({when for _, when in served}) < 20


def test_program_that_connects_while_all_channels_end() -> None:
    """Its task is cancelled before it begins. The program is not left waiting: its channel ends."""

    async def run() -> None:
        house = Service(Private())
        ours, theirs = socket.socketpair()
        with ours:
            ours.settimeout(PATIENCE)
            house.open(theirs, 7)
            await house.close(restart=True)
            assert await asyncio.to_thread(ours.recv, 1) == b""
        assert theirs.fileno() == -1

    asyncio.run(run())


def test_program_that_reads_late_gets_all_events() -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        wire = Wire(ours)
        wire.sock.send(b"\0")
        channel = await Channel.open(theirs, os.getuid())
        count = 0
        while channel.unread() < UNSENT_MAX // 2:
            channel.report("renewed", count=count, text="x" * 60_000)
            count += 1
        for number in range(count):
            event = await asyncio.to_thread(wire.event)
            assert (event["event"], event["count"]) == ("renewed", number)
        assert channel.unread() == 0
        await asyncio.gather(channel.close(), asyncio.to_thread(wire.close))

    asyncio.run(run())


# In this process ---------------------------------------------------------------------


class Inside:
    """An agent in a thread of this process. `audited` are the lines of its audit."""

    def __init__(self) -> None:
        self.audited: list[dict[str, Any]] = []
        self._loop = asyncio.new_event_loop()
        self._service = Service(Private(), self._audit)
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._wires: list[Wire] = []

    def _audit(self, event: str, **fields: Any) -> None:
        self.audited.append({"event": event, **fields})

    def open(self, settings: Any = None, listening: socket.socket | None = None) -> Wire:
        ours, theirs = socket.socketpair()
        self._loop.call_soon_threadsafe(self._service.open, theirs)
        wire = Wire(ours)
        self._wires.append(wire)
        if settings is not None:
            wire.tell(settings, [listening.fileno()] if listening else [])
        return wire

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._service.close(), self._loop).result(PATIENCE)
        for wire in self._wires:
            wire.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


@pytest.fixture
def inside() -> Iterator[Inside]:
    with contextlib.closing(Inside()) as agent:
        yield agent


def is_over(wire: Wire) -> bool:
    """True if the agent has closed this channel."""
    return bool(select.select([wire.sock], [], [], 0)[0]) and wire.event() == END


def test_channels_of_a_user_have_a_limit(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    users = iter([7, 7, 7, 7, 8, 7, 7])
    monkeypatch.setattr("srdma.agent.users.CHANNELS_MAX", 3)
    monkeypatch.setattr(service, "peer_of", lambda _: (0, next(users)))
    wires = [inside.open() for _ in range(3)]
    assert inside.open().event() == END  # the fourth of user 7
    other = inside.open()
    assert not any(is_over(wire) for wire in [*wires, other])
    wires[0].close()
    until(lambda: inside._service._users._channels[7] == 2)
    wires.append(inside.open())
    assert inside.open().event() == END
    assert not any(is_over(wire) for wire in [*wires[1:], other])
    other.close()
    until(lambda: inside._service._users._channels[8] == 0)


# Faults ------------------------------------------------------------------------------


def pair(
    inside: Inside, identities: Path, worker: FakeWorker, listener: Wire, address: Any
) -> tuple[Wire, Wire]:
    """The channels of a connection's ends, ready."""
    settings = connecting(load(identities, "a")) | {"worker": str(worker.path)}
    client = inside.open(settings | {"address": list(address)})
    number = listener.event()["arrival"]
    server = inside.open(accepting(identities, worker, number))
    for wire in (client, server):
        assert [wire.event()["event"] for _ in range(2)] == ["peer", "ready"]
    return client, server


def test_fault_in_a_session(
    inside: Inside, identities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is audited, it ends the QPs of its connection, and it ends no other session."""
    usual = Renewing.wish

    def wish(renewing: Renewing, number: int) -> None:
        if number == FAULT_WISH:
            raise ZeroDivisionError("the fault of this test")
        usual(renewing, number)

    monkeypatch.setattr(Renewing, "wish", wish)
    workers = FakeWorker(), FakeWorker()
    with contextlib.ExitStack() as stack:
        for worker in workers:
            stack.callback(worker.close)
        with socket.create_server(("127.0.0.1", 0)) as sock:
            address = sock.getsockname()
            settings = vars(load(identities, "b")) | {"do": "listen", "peer": [HOST_A]}
            listener = inside.open(settings, sock)
        assert listener.event() == {"event": "listening"}
        client, server = pair(inside, identities, workers[0], listener, address)
        others = pair(inside, identities, workers[1], listener, address)

        server.tell({"do": "renew", "wish": FAULT_WISH})
        [event] = server.events()
        text = "a fault of the agent, please report it: ZeroDivisionError: the fault of this test"
        assert event == {"event": "error", "code": "worker", "text": text}
        faults = [line for line in inside.audited if line["event"] == "fault"]
        assert faults == [{"event": "fault", "uid": os.getuid(), "text": text}]
        assert sorted(workers[0].expired) == [0x5678, 0x5679]  # of the server alone
        event = client.event()
        assert (event["event"], event["code"]) == ("error", "worker")
        assert event["text"] == "the peer reports: a fault of this end's agent"

        assert workers[1].expired == workers[1].ended == []
        others[1].tell({"do": "renew", "wish": 1})
        assert others[1].event() == {"event": "renewed", "count": 1, "wish": 1}
        pair(inside, identities, workers[1], listener, address)  # the listener goes on too


# The user of a system agent ----------------------------------------------------------


@pytest.fixture
def socket_of() -> Iterator[Any]:
    """Makes a listening Unix socket of a user."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    folder = Path(tempfile.mkdtemp(prefix="srdma-agent-"))
    folder.chmod(0o777)
    socks = []

    def make(uid: int) -> Path:
        path = folder / f"{uid}.sock"
        sock = socket.socket(socket.AF_UNIX)
        socks.append(sock)
        with user(uid):
            sock.bind(str(path))
            sock.listen()  # SO_PEERCRED of clients: this user
        path.chmod(0o777)
        return path

    yield make
    for sock in socks:
        sock.close()
    shutil.rmtree(folder)


@contextlib.contextmanager
def user(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def test_system_agent_of_another_user(socket_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gives its settings to an agent of its user or of root only."""
    opened: list[socket.socket] = []
    monkeypatch.setattr(agent_client.forked, "drop", opened.append)
    of_root, of_one = SystemAgent(socket_of(0)), SystemAgent(socket_of(1))
    with user(2):
        with pytest.raises(DeviceError, match="is of user 1, this process is of user 2: use an"):
            of_one.open()
        of_root.open().close()
    with user(1):
        of_one.open().close()
    with pytest.raises(DeviceError, match="is of user 1, this process is of user 0"):
        of_one.open()
    assert len(opened) == 2


# KeyUpdate ---------------------------------------------------------------------------


class Flood:
    """Sends KeyUpdates on a socket, and reads none of the answers."""

    def __init__(self, sock: socket.socket, sender: Sender) -> None:
        self._sock, self._sender, self._left = sock, sender, b""
        self.sent = 0

    async def until_stalled(self, most: int) -> bool:
        """Returns True when the peer has taken no byte for 1 s, False after `most` bytes."""
        stalls = 0
        while stalls < 20 and self.sent < most:
            if not self._left:
                self._left = b"".join(self._sender.key_update() for _ in range(100))
            stalls = 0 if self._send() else stalls + 1
            await asyncio.sleep(0 if not stalls else 0.05)
        return stalls == 20

    def _send(self) -> bool:
        try:
            sent = self._sock.send(self._left, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        self.sent += sent
        self._left = self._left[sent:]
        return True

    async def end(self, message: bytes, heard: asyncio.Future[bytes]) -> None:
        """Send the rest and a message, and read the answers until the peer has heard it."""
        self._left += self._sender.message(message)
        self._sock.setblocking(False)
        while not heard.done():
            with contextlib.suppress(BlockingIOError):
                self._sock.recv(1 << 16)
            if self._left:
                self._send()
            await asyncio.sleep(0)


@pytest.mark.usefixtures("first_version")
def test_flood_of_key_updates(identities: Path) -> None:
    """Each requests an answer. A peer that does not read the answers is not read either, so that
    they take a limited amount of memory. Nothing is lost."""

    async def run() -> None:
        ours, stream, flood = await shaken(identities)
        heard = asyncio.ensure_future(stream.message())
        assert await flood.until_stalled(4 << 20), "the flood did not stall"
        assert flood.sent > 100_000
        waits = stream._writer.transport.get_write_buffer_size()
        assert 0 < waits < (1 << 17) + 2 * CHUNK
        await asyncio.wait_for(flood.end(b"the message after the flood", heard), PATIENCE)
        assert heard.result() == b"the message after the flood"
        ours.close()
        stream.drop()

    asyncio.run(run())


def test_flood_in_a_shared_connection(identities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With srdma/2 the connection of a peer that does not read is dropped."""
    monkeypatch.setattr(tls, "UNSENT_MAX", 100_000)

    async def run() -> None:
        ours, outer, flood = await shaken(identities)
        heard = asyncio.ensure_future(outer.message())
        while not heard.done():
            assert not await flood.until_stalled(flood.sent + 10_000)
        with pytest.raises(Truncated, match="the peer does not read"):
            heard.result()
        ours.close()
        outer.drop()

    asyncio.run(run())


async def shaken(identities: Path) -> tuple[socket.socket, Outer, Flood]:
    """A server after its handshake, and its peer, with the peer's socket."""
    ours, theirs = patient_pair()
    outer = await Outer.open(theirs, "server", load(identities, "b"))
    shaking = asyncio.ensure_future(outer.handshake())
    sender = await asyncio.to_thread(connected, ours, load(identities, "a"))
    assert (await shaking)[0] == HOST_A
    return ours, outer, Flood(ours, sender)


def patient_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection with small buffers."""
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, 1 << 14)
    return patient(ours), theirs


# Many programs and sessions ------------------------------------------------------------


def test_program_waits_while_the_backlog_is_full(tmp_path: Path) -> None:
    path, waiting = tmp_path / "agent.sock", []
    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as stack:
        listening.bind(str(path))
        listening.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                other = stack.enter_context(socket.socket(socket.AF_UNIX))
                other.setblocking(False)
                other.connect(str(path))
                waiting.append(other)
        with ThreadPoolExecutor() as threads:
            opening = threads.submit(SystemAgent(path).open)
            with pytest.raises(TimeoutError):
                opening.result(0.2)
            for _ in [*waiting, None]:
                stack.enter_context(listening.accept()[0])
            with opening.result(PATIENCE) as sock:
                assert sock.gettimeout() is None


def test_end_of_a_worker_calls_all_that_wait() -> None:
    async def run() -> None:
        ended, called = Ended(asyncio.get_running_loop()), []
        first, second = (lambda _, n=n: called.append(n) for n in (1, 2))
        for wait in (first, second, first):
            ended.add_done_callback(wait)
        assert (ended.remove_done_callback(second), ended.remove_done_callback(second)) == (1, 0)
        waits = [asyncio.ensure_future(asyncio.wait({ended})) for _ in range(2)]
        await asyncio.sleep(0)
        ended.set_result(None)
        ended.add_done_callback(second)
        await asyncio.gather(*waits, ended)
        assert called == [2, 1]

    asyncio.run(run())
