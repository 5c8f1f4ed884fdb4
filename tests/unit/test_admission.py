"""Admission of peers by a listener (agent.md 3), and the channels of an agent (agent.md 2)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import cbor2
import pytest
from cryptography.hazmat.primitives import serialization

from srdma.agent import entrance, service, serving
from srdma.agent import listener as admission
from srdma.agent.audit import no_audit
from srdma.agent.entrance import CANDIDATES_MAX, CANDIDATES_PER_ADDRESS
from srdma.agent.listener import (
    ARRIVALS_PER_IDENTITY,
    NO_LONGER,
    Admission,
    Arrivals,
    Listener,
)
from srdma.agent.policy import Private
from srdma.agent.service import Service
from srdma.agent.settings import Identity
from srdma.identity import Credentials, create_ca, issue
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, decode, encode
from srdma.keyex.tls import Truncated
from tests.keyex_players import (
    END,
    HOST_A,
    HOST_B,
    PATIENCE,
    FakeWorker,
    Listening,
    Program,
    Wire,
    accepting,
    connecting,
    dial,
    finished,
    load,
    patient,
    until,
)
from tests.tls_players import BlockingTLS

# With srdma/2 a peer arrives with its first message: test_resume.py.
pytestmark = pytest.mark.usefixtures("first_version")


@pytest.fixture
def mine(identities: Path) -> Credentials:
    return load(identities, "a")


@pytest.fixture
def crowd() -> Iterator[Callable[..., list[socket.socket]]]:
    """Opens n TCP connections from one address that never send anything."""
    with contextlib.ExitStack() as stack:
        yield lambda address, n, source: [
            stack.enter_context(dial(address, source)) for _ in range(n)
        ]


def genuine(program: Listening, mine: Credentials, source: str = "127.0.0.1") -> BlockingTLS:
    """Returns an authorised peer that waits for accept(). All that connected before it has been
    admitted then."""
    peer = BlockingTLS(program.dial(source), "client", mine)
    assert peer.handshake()[0] == HOST_B
    event = program.listener.event()
    assert event == {"event": "arrived", "arrival": event["arrival"], "identity": HOST_A}
    return peer


@contextlib.contextmanager
def arrival(program: Listening, mine: Credentials) -> Iterator[tuple[BlockingTLS, int]]:
    """An authorised peer that waits for accept(), and its number."""
    peer = BlockingTLS(program.dial(), "client", mine)
    with contextlib.closing(peer):
        peer.handshake()
        yield peer, program.listener.event()["arrival"]


def is_open(sock: socket.socket) -> bool:
    """True if the agent has not closed this connection."""
    try:
        return bool(sock.recv(1, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def open_ones(socks: list[socket.socket]) -> list[int]:
    return [number for number, sock in enumerate(socks) if is_open(sock)]


# Candidates ---------------------------------------------------------------------------


def test_silent_connections_do_not_delay_a_peer(
    listening: Listening, mine: Credentials, crowd: Any
) -> None:
    socks = [sock for n in range(10) for sock in crowd(listening.address, 60, f"127.0.1.{n + 1}")]
    peer = genuine(listening, mine)
    # 600 silent connections and the peer are 601: those above the limit were closed, the oldest
    # first.
    first = len(socks) + 1 - CANDIDATES_MAX
    assert open_ones(socks) == [*range(first, len(socks))]
    peer.close()


# RFC 5042 R6.4.1-2; review A41
def test_candidates_of_one_address(listening: Listening, mine: Credentials, crowd: Any) -> None:
    other = crowd(listening.address, 1, "127.0.1.1")
    socks = crowd(listening.address, CANDIDATES_PER_ADDRESS + 3, "127.0.1.2")
    genuine(listening, mine).close()
    assert open_ones(socks) == [*range(3, len(socks))] and open_ones(other) == [0]


def test_peer_from_the_address_of_a_crowd(
    listening: Listening, mine: Credentials, crowd: Any
) -> None:
    """The newest is admitted, and the oldest of its address is closed for it."""
    socks = crowd(listening.address, CANDIDATES_PER_ADDRESS, "127.0.1.2")
    genuine(listening, mine, "127.0.1.2").close()
    assert open_ones(socks) == [*range(1, CANDIDATES_PER_ADDRESS)]


def test_handshakes_that_stop_half_way_count_as_candidates(
    listening: Listening, mine: Credentials
) -> None:
    """A peer that has sent its ClientHello is closed like a silent one."""
    with contextlib.ExitStack() as stack:
        socks = []
        for _ in range(CANDIDATES_PER_ADDRESS + 1):
            peer = BlockingTLS(listening.dial("127.0.1.3"), "client", mine)
            stack.callback(peer.close)
            assert not peer.shake()
            peer._flush()
            socks.append(peer.sock)
        for sock in socks[1:]:  # the answer of TLS
            assert sock.recv(1 << 16)
        with contextlib.suppress(ConnectionError):
            while socks[0].recv(1 << 16):
                pass
        genuine(listening, mine).close()
        assert all(is_open(sock) for sock in socks[1:])


def test_silent_connections_do_not_close_a_handshake(
    listening: Listening, mine: Credentials, crowd: Any
) -> None:
    """They are closed first, although the handshake is older."""
    peer = BlockingTLS(listening.dial("127.0.1.5"), "client", mine)
    with contextlib.closing(peer):
        assert not peer.shake()
        peer._flush()
        until(lambda: bool(peer.sock.recv(1, socket.MSG_PEEK)))  # the answer of TLS
        socks = crowd(listening.address, CANDIDATES_PER_ADDRESS, "127.0.1.5")
        genuine(listening, mine).close()
        assert open_ones(socks) == [*range(1, len(socks))]
        assert peer.handshake()[0] == HOST_B


# RFC 5042 A6.4.4; review A41
def test_peer_beside_a_network_whose_handshakes_stop(
    listening: Listening, mine: Credentials, crowd: Any
) -> None:
    """One network has many addresses, which fill all places by handshakes that stop. A peer of
    another network is silent for a moment, while further ones come."""
    each = CANDIDATES_PER_ADDRESS - 4
    socks = [sock for n in range(9) for sock in crowd(listening.address, each, f"127.0.1.{n + 1}")]
    for sock in socks:
        sock.send(b"\x16")  # the first byte of a ClientHello
    with contextlib.closing(BlockingTLS(listening.dial(), "client", mine)) as peer:
        more = crowd(listening.address, each, "127.0.1.100")
        genuine(listening, mine).close()  # all were admitted before it
        assert peer.handshake()[0] == HOST_B
        assert sum(map(is_open, more)) < len(more)


@pytest.mark.parametrize(
    ("address", "same", "other"),
    [
        ("10.1.2.3", "10.1.2.254", "10.1.3.3"),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::1", "2001:db8:1:3::1"),
        ("fe80::1%eth0", "fe80::2%eth0", "fe81::1%eth0"),
    ],
)
def test_networks_of_candidates(address: str, same: str, other: str) -> None:
    assert entrance.network(address) == entrance.network(same) != entrance.network(other)


def test_peers_that_left_do_not_count(listening: Listening, mine: Credentials, crowd: Any) -> None:
    silent = crowd(listening.address, 1, "127.0.1.4")
    for _ in range(3):
        for sock in crowd(listening.address, CANDIDATES_PER_ADDRESS - 2, "127.0.1.4"):
            sock.close()
        genuine(listening, mine).close()
    assert open_ones(silent) == [0]


def test_many_channels_do_not_stop_the_event_loop() -> None:
    """Others get their turn while connections arrive faster than the agent accepts."""
    admitted = 0

    async def accept(_: object) -> tuple[object, tuple[str, int]]:
        nonlocal admitted
        admitted += 1
        assert admitted < 1000, "the loop serves this socket alone"
        return None, ("127.0.0.1", 1)

    async def run() -> None:
        stub = cast(Any, SimpleNamespace(open=lambda *_: None))
        with socket.create_server(("127.0.0.1", 0)) as sock:
            asyncio.get_running_loop().sock_accept = accept  # type: ignore[assignment,method-assign]
            task = asyncio.ensure_future(serving.accept_all(stub.open, sock))
            for _ in range(10):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    asyncio.run(run())


# RFC 5042 R6.4.1-2
def test_candidates_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local user can make any number of listeners. The one with the most candidates closes one,
    so that a flood at some listeners stops no peer of the others."""
    monkeypatch.setattr(entrance, "CANDIDATES_OF_OWNER", 5)

    async def run() -> None:
        owner = entrance.Owner()
        with contextlib.ExitStack() as stack:
            doors = [
                Door(stack.enter_context(socket.create_server(("127.0.0.1", 0))), owner)
                for _ in range(2)
            ]
            tasks = [asyncio.ensure_future(door.run()) for door in doors]
            ends = [await connected_to(door, stack) for door in (doors[0],) * 5]
            assert len(doors[0]._candidates) == 5
            await connected_to(doors[1], stack)
            assert [len(door._candidates) for door in doors] == [4, 1]
            assert await asyncio.get_running_loop().sock_recv(ends[0], 1) == b""
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert not owner._crowds and not owner._total

    asyncio.run(run())


def test_candidate_whose_listener_ends_at_once() -> None:
    """Its task has not begun, and it counts no longer."""

    async def run() -> None:
        owner = entrance.Owner()
        with socket.create_server(("127.0.0.1", 0)) as sock, socket.socketpair()[0] as other:
            door = Door(sock, owner)
            task = asyncio.ensure_future(door.run())
            await asyncio.sleep(0)
            task.cancel()
            door._admit(other, "127.0.0.1")
            assert owner._total == 1
            await asyncio.wait([task])
            await asyncio.sleep(0)
            assert other.fileno() == -1
        assert not owner._crowds and not owner._total

    asyncio.run(run())


def test_candidate_that_gives_way_at_once() -> None:
    """Its task has not begun, and its socket is closed."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock, socket.socketpair()[0] as other:
            door = Door(sock, entrance.Owner())
            door._admit(other, "127.0.0.1")
            door.evict()
            async with asyncio.timeout(PATIENCE):
                while other.fileno() != -1:
                    await asyncio.sleep(0)

    asyncio.run(run())


class Door(Listener):
    """An entrance whose candidates are silent."""

    def __init__(self, sock: socket.socket, owner: entrance.Owner) -> None:
        house = SimpleNamespace(
            sessions=SimpleNamespace(know=lambda _: False), audit=no_audit, owner=lambda _: owner,
            arrivals=Arrivals(),
        )  # fmt: skip
        super().__init__(cast(Any, SimpleNamespace(uid=7)), sock, cast(Any, None), cast(Any, house))
        self.address = sock.getsockname()


async def connected_to(door: Door, stack: contextlib.ExitStack) -> socket.socket:
    """A silent connection, which is a candidate now."""
    sock = stack.enter_context(socket.socket())
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, door.address)
    name = sock.getsockname()
    async with asyncio.timeout(PATIENCE):
        while not any(c.silent and c.silent.getpeername() == name for c in door._candidates):
            await asyncio.sleep(0)
    return sock


def test_refused_peers_that_are_closed_for_others(
    listening: Listening, mine: Credentials, identities: Path, crowd: Any
) -> None:
    """The agent waits for the close of a peer that it has refused. A newer connection ends that
    wait, and the socket with it."""
    peer = BlockingTLS(listening.dial("127.0.1.6"), "client", load(identities, "b"))
    with contextlib.closing(peer):
        peer.handshake()
        assert listening.listener.event()["event"] == "refused"
        crowd(listening.address, CANDIDATES_PER_ADDRESS, "127.0.1.6")
        genuine(listening, mine).close()
        count = len(os.listdir(f"/proc/{listening.pid}/fd"))
        assert isinstance(decode(peer.message()), ErrorMessage)
        until(lambda: is_reset(peer.sock))
        assert len(os.listdir(f"/proc/{listening.pid}/fd")) <= count


def is_reset(sock: socket.socket) -> bool:
    try:
        sock.send(b"x")
    except ConnectionError:
        return True
    return False


# In this process, so that a test can shorten the limits


def served(identities: Path, peer: Callable[[socket.socket], None]) -> list[dict[str, Any]]:
    """Runs a listener in this process, with `peer` in a thread. Returns the listener's events."""
    events: list[dict[str, Any]] = []
    channel = SimpleNamespace(
        uid=0,
        report=lambda event, **rest: events.append({"event": event, **rest}),
        unread=lambda: 0,
    )
    own = Identity(load(identities, "b"), ())

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            admission = Admission(no_audit, Private().peer_at, Private().group_at)
            listener = Listener(cast(Any, channel), sock, lambda: own, admission)
            task = asyncio.ensure_future(listener.run())
            with dial(sock.getsockname()) as ours:
                await asyncio.to_thread(peer, ours)
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(run())
    return events


def test_silence_has_a_limit(identities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def peer(sock: socket.socket) -> None:
        assert sock.recv(1) == b""

    monkeypatch.setattr(entrance, "SILENT_TIMEOUT", 0.2)
    assert served(identities, peer) == []


def test_handshake_has_a_limit(
    identities: Path, mine: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds also for a peer that sends a byte now and then."""

    def peer(sock: socket.socket) -> None:
        hello = BlockingTLS(sock, "client", mine)
        assert not hello.shake()
        records = hello.records()
        end = time.monotonic() + 20
        with contextlib.suppress(ConnectionError):
            for byte in records:
                assert time.monotonic() < end
                sock.send(bytes([byte]))
                time.sleep(0.01)
            assert sock.recv(1) == b""

    monkeypatch.setattr(entrance, "HANDSHAKE_TIMEOUT", 0.5)
    assert served(identities, peer) == []


def test_refusals_are_reported_once_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=lambda: now))
    told: list[str] = []
    channel = SimpleNamespace(
        uid=0, report=lambda event, **rest: told.append(rest["address"]), unread=lambda: 0
    )
    own = cast(Any, None)
    listener = Listener(
        cast(Any, channel),
        cast(Any, None),
        own,
        Admission(no_audit, Private().peer_at, Private().group_at),
    )
    for n in range(100):
        listener.refused(str(n), ExchangeError("identity", "no"))
        now += 0.0625
    assert told == ["0", "16", "32", "48", "64", "80", "96"]


def test_certificate_is_replaced_while_the_listener_runs(
    mine: Credentials, identities: Path, tmp_path: Path
) -> None:
    shutil.copy(identities / "ca/ca.pem", tmp_path)
    issue(identities / "ca", HOST_B, tmp_path / "b")
    old = Credentials.named(tmp_path / "b")
    program = Listening({"identity": str(tmp_path / "b"), "peer": [HOST_A]})
    with finished(program):
        assert program.listener.event() == {"event": "listening"}

        def shown() -> bytes:
            with contextlib.closing(genuine(program, mine)) as peer:
                return peer.peer_certificate().public_bytes(serialization.Encoding.PEM)

        assert shown() == old.cert
        issue(identities / "ca", HOST_B, tmp_path / "b", force=True)
        new = Credentials.named(tmp_path / "b")
        assert shown() == new.cert != old.cert
        (tmp_path / "b.key").write_bytes(old.key)
        assert shown() == new.cert


# Refusals -----------------------------------------------------------------------------


def test_foreign_ca(
    listening: Listening, mine: Credentials, identities: Path, tmp_path: Path
) -> None:
    create_ca(tmp_path / "ca", "foreign")
    issue(tmp_path / "ca", HOST_A, tmp_path / "a")
    foreign = load(tmp_path, "a")
    begin = time.monotonic()
    for _ in range(20):
        peer = BlockingTLS(
            listening.dial(), "client", Credentials(foreign.cert, foreign.key, mine.ca)
        )
        with contextlib.suppress(ExchangeError, Truncated):
            peer.handshake()
            peer.message()
        peer.close()
    BlockingTLS(listening.dial(), "client", mine).handshake()
    seen = [*iter(lambda: listening.listener.event()["event"], "arrived")]
    passed = time.monotonic() - begin
    assert set(seen) == {"refused"} and len(seen) <= 1 + passed


def test_what_a_refusal_tells(listening: Listening, identities: Path) -> None:
    peer = BlockingTLS(listening.dial("127.0.1.9"), "client", load(identities, "b"))
    peer.handshake()
    told = decode(peer.message())
    assert told == ErrorMessage("identity", f"this is {HOST_B}, which is not allowed")
    assert listening.listener.event() == {
        "event": "refused",
        "address": "127.0.1.9",
        "code": "identity",
        "text": f"the peer is {HOST_B}, which is not allowed: allowed are {HOST_A}",
    }
    peer.close()


# Arrivals -----------------------------------------------------------------------------


@pytest.fixture
def worker() -> Iterator[FakeWorker]:
    worker = FakeWorker()
    yield worker
    worker.close()


def test_too_many_arrivals(listening: Listening, mine: Credentials) -> None:
    peers = [genuine(listening, mine) for _ in range(ARRIVALS_PER_IDENTITY)]
    for _ in range(2):
        late = BlockingTLS(listening.dial(), "client", mine)
        late.handshake()
        with pytest.raises(Truncated):
            late.message()
        late.close()
    assert all(is_open(peer.sock) for peer in peers)
    peers[0].close()
    until(lambda: arrives(listening, mine))
    for peer in peers:
        peer.close()


def arrives(program: Listening, mine: Credentials) -> bool:
    """True if a further peer arrives, False if its connection is closed."""
    peer = BlockingTLS(program.dial(), "client", mine)
    with contextlib.closing(peer):
        peer.handshake()
        wire = program.listener
        ready, _, _ = select.select([wire.sock, peer.sock], [], [], PATIENCE)
        return wire.sock in ready and wire.event()["event"] == "arrived"


def test_arrivals_that_left_after_their_first_message(
    listening: Listening, mine: Credentials
) -> None:
    """They make room."""
    for _ in range(ARRIVALS_PER_IDENTITY):
        peer = genuine(listening, mine)
        peer.send(b"an OFFER")
        peer.close()
    until(lambda: arrives(listening, mine))


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize("way", ["close", "cut"])
def test_arrival_that_left(
    listening: Listening,
    mine: Credentials,
    identities: Path,
    worker: FakeWorker,
    way: str,
    reset: bool,
) -> None:
    with arrival(listening, mine) as (peer, number):
        if way == "close":
            peer.close()
        else:
            peer.cut(reset=reset)
        genuine(listening, mine).close()
        wire = listening.open(accepting(identities, worker, number))
        [event] = wire.events()
        assert (event["event"], event["code"], event["text"]) == ("error", "closed", NO_LONGER)
        assert not worker.keys


def test_malformed_message_of_an_arrival(
    listening: Listening, mine: Credentials, identities: Path, worker: FakeWorker
) -> None:
    """It is answered when the program accepts the peer."""
    with arrival(listening, mine) as (peer, number):
        peer._tls.send(b"\xff\xff\xff\xff")
        peer._flush()
        genuine(listening, mine).close()
        wire = listening.open(accepting(identities, worker, number))
        assert [event["code"] for event in wire.events()] == ["format"]
        told = decode(peer.message())
        assert isinstance(told, ErrorMessage) and told.code == "format"


@pytest.mark.parametrize("number", [0, -1, 99, 1 << 60, "1", None, [1]])
def test_unknown_arrival(
    listening: Listening, mine: Credentials, identities: Path, worker: FakeWorker, number: object
) -> None:
    with contextlib.closing(genuine(listening, mine)) as peer:
        [event] = listening.open(accepting(identities, worker, number)).events()
        assert (event["code"], event["text"]) == ("closed", NO_LONGER)
        assert is_open(peer.sock)


def test_numbers_of_a_restarted_agent() -> None:
    """A program that accepts a peer of the former agent does not get another peer instead."""
    listener, meeting = Mock(uid=7), Mock(awaited=False)
    former, new = Arrivals(), Arrivals()
    number = former.add(listener, meeting)
    assert former.add(listener, meeting) not in (number, 0) and 0 < number < 1 << 63
    for _ in range(10):
        new.add(listener, meeting)
    with pytest.raises(ExchangeError, match=NO_LONGER):
        new.take(number, 7)


def room(arrivals: Arrivals, listener: Mock, *meetings: Mock) -> list[bool]:
    """True for each that is not refused."""
    found = []
    for meeting in meetings:
        try:
            arrivals.make_room(listener, meeting)
            found.append(True)
        except ExchangeError as error:
            assert error.code == "busy"
            found.append(False)
    return found


def test_arrivals_of_an_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """At all listeners of a user together: a local user can make any number of listeners, and takes
    no place of another user's."""
    monkeypatch.setattr(admission, "ARRIVALS_OF_IDENTITY", 2)
    here, other, third = (Mock(uid=7) for _ in range(3))
    a, b = (Mock(awaited=False, identity=name) for name in "ab")
    arrivals = Arrivals()
    first = arrivals.add(here, a)
    arrivals.add(other, a)
    assert room(arrivals, third, a, b) == [False, True]
    assert room(arrivals, Mock(uid=8), a) == [True]
    arrivals.take(first, 7)
    assert room(arrivals, third, a) == [True]


def test_arrivals_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another computer can name any number of users: they are one."""
    monkeypatch.setattr(admission, "ARRIVALS_OF_IDENTITY", 1)
    arrivals, a = Arrivals(), Mock(awaited=False, identity="a")
    arrivals.add(Mock(uid="left:7"), a)
    assert room(arrivals, Mock(uid="left:8"), a) == [False]
    assert room(arrivals, Mock(uid="right:8"), a) == [True]


def test_looks_at_arrivals_have_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer with too many OFFERs causes no look for each of them."""
    monkeypatch.setattr(admission, "LOOK_EVERY", PATIENCE)
    monkeypatch.setattr(admission, "ARRIVALS_PER_IDENTITY", 1)
    here, a = Mock(uid=7), Mock(awaited=False, identity="a")
    arrivals = Arrivals()
    arrivals.add(here, a)
    assert room(arrivals, here, a, a, a) == [False] * 3
    assert a.stream.connected.call_count == 1


def test_arrival_at_a_listener_of_another_user() -> None:
    arrivals, meeting = Arrivals(), Mock(awaited=False)
    number = arrivals.add(Mock(uid=7), meeting)
    with pytest.raises(ExchangeError, match=NO_LONGER):
        arrivals.take(number, 8)
    assert arrivals.take(number, 7) is meeting


# RFC 5042 R6.4.1-2
def test_limits_of_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a listener, and of an identity there. Peers are looked at only if there are too many."""
    monkeypatch.setattr(admission, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(admission, "ARRIVALS_MAX", 3)
    monkeypatch.setattr(admission, "ARRIVALS_PER_IDENTITY", 2)
    here, other = Mock(uid=7), Mock(uid=7)
    a, b, c = (Mock(awaited=False, identity=name) for name in "abc")
    arrivals = Arrivals()
    first = arrivals.add(here, a)
    arrivals.add(here, b)
    arrivals.add(other, a)
    assert room(arrivals, here, a, b, c) == [True] * 3 and not a.stream.connected.called
    arrivals.add(here, a)
    assert room(arrivals, here, a) == [False] and a.stream.connected.called
    arrivals.take(first, 7)
    assert room(arrivals, here, a, b, c) == [True] * 3
    arrivals.add(here, c)
    assert room(arrivals, here, a, b, c) == [False] * 3
    b.stream.connected.return_value = False
    assert room(arrivals, here, c) == [True] and b.drop.called
    arrivals.add(here, c)
    assert room(arrivals, here, a) == [False]
    assert not (a.refuse.called or b.refuse.called or c.refuse.called)
    arrivals.close(here)
    assert room(arrivals, here, a, b, c) == [True] * 3 and c.refuse.call_count == 2


def test_others_have_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity with the most gives way to a peer, with its oldest one."""
    monkeypatch.setattr(admission, "ARRIVALS_MAX", 3)
    here = Mock(uid=7)
    crowd = [Mock(awaited=False, identity="a") for _ in range(3)]
    arrivals = Arrivals()
    first, *_ = [arrivals.add(here, one) for one in crowd]
    assert room(arrivals, here, Mock(awaited=False, identity="b")) == [True]
    assert [one.refuse.called for one in crowd] == [True, False, False]
    assert crowd[0].refuse.call_args.args[0].code == "busy"
    (told,) = here.refused.call_args_list  # in the audit, and to the program
    assert told.args == (crowd[0].stream.link.address, crowd[0].refuse.call_args.args[0])
    with pytest.raises(ExchangeError, match=NO_LONGER):
        arrivals.take(first, 7)


def test_arrival_is_accepted_once(
    listening: Listening, mine: Credentials, identities: Path, worker: FakeWorker
) -> None:
    with arrival(listening, mine) as (_, number):
        first = listening.open(accepting(identities, worker, number))
        until(lambda: bool(worker.attached))
        [event] = listening.open(accepting(identities, worker, number)).events()
        assert (event["code"], event["text"]) == ("closed", NO_LONGER)
        first.close()


def test_arrivals_end_with_their_listener(
    listening: Listening, mine: Credentials, identities: Path, worker: FakeWorker
) -> None:
    with arrival(listening, mine) as (peer, number):
        with listening.dial() as silent:
            listening.listener.close()
            with pytest.raises(Truncated):
                peer.message()
            with contextlib.suppress(ConnectionError):
                assert silent.recv(1) == b""
        with pytest.raises(ConnectionError):
            listening.dial()
        [event] = listening.open(accepting(identities, worker, number)).events()
        assert (event["code"], event["text"]) == ("closed", NO_LONGER)


def test_sessions_outlive_their_listener(
    listening: Listening, mine: Credentials, identities: Path, worker: FakeWorker
) -> None:
    with arrival(listening, mine) as (peer, number):
        wire = listening.open(accepting(identities, worker, number))
        until(lambda: bool(worker.attached))
        listening.listener.close()
        peer.send(encode(ErrorMessage("value", "a message")))
        assert wire.event()["text"] == "the peer reports: a message"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"worker": "/nonexistent"}, "worker"),
        ({"key": b"x"}, "credentials"),
        ({"timeout": "soon"}, "config"),
        ({"qps": []}, "config"),
    ],
)
def test_accept_that_fails(
    listening: Listening,
    mine: Credentials,
    identities: Path,
    worker: FakeWorker,
    changes: dict[str, Any],
    code: str,
) -> None:
    """The peer learns it, and waits no longer."""
    with arrival(listening, mine) as (peer, number):
        [event] = listening.open(accepting(identities, worker, number) | changes).events()
        assert event["code"] == code
        told = decode(peer.message())
        assert isinstance(told, ErrorMessage) and told.code == code
        [event] = listening.open(accepting(identities, worker, number)).events()
        assert (event["code"], event["text"]) == ("closed", NO_LONGER)


# Sessions of one agent ------------------------------------------------------------------


def test_sessions_do_not_disturb_each_other(
    listening: Listening, mine: Credentials, identities: Path
) -> None:
    """Four connections within one agent, two at each of two workers. One worker dies."""
    workers = FakeWorker(), FakeWorker()
    with contextlib.ExitStack() as stack:
        pairs = []
        for worker in (*workers, *workers):
            stack.callback(worker.close)
            settings = connecting(mine) | {"worker": str(worker.path)}
            settings["address"] = list(listening.address)
            client = listening.open(settings)
            number = listening.listener.event()["arrival"]
            server = listening.open(accepting(identities, worker, number))
            pairs.append((client, server))
        for wire in (wire for pair in pairs for wire in pair):
            assert [wire.event()["event"] for _ in range(2)] == ["peer", "ready"]
        # two connections for each leg: that of both clients, and those of two servers
        assert [worker.connections for worker in workers] == [2 * 3, 2 * 3]
        workers[0].die()
        for pair in pairs[::2]:
            assert {wire.events()[-1]["code"] for wire in pair} == {"gone"}
        for client, server in pairs[1::2]:
            server.tell({"do": "renew", "wish": 1})
            assert server.event() == {"event": "renewed", "count": 1, "wish": 1}
            client.hang_up()
            assert client.events() == server.events() == [{"event": "closed"}]


# Channels -----------------------------------------------------------------------------


@pytest.fixture
def program() -> Iterator[Program]:
    program = Program()
    with finished(program):
        yield program


def only_error(wire: Wire) -> str:
    """Returns the text of the only event, which is an error of the settings."""
    [event] = wire.events()
    assert (event["event"], event["code"]) == ("error", "config"), event
    return str(event["text"])


FIELDS = [
    "peer",
    "worker",
    "token",
    "suites",
    "modes",
    "group",
    "data",
    "timeout",
    "every",
    "limit",
    "max_age",
    "qps",
]
NO_SOCKET = "no listening TCP socket beside the message"
BEGIN = (
    "a channel begins with connect, listen, accept, rejoin, rotate, serve, talk, answer, group or "
    "open"
)


def test_missing_fields(program: Program, mine: Credentials) -> None:
    for name in [*FIELDS, "cert", "key", "ca"]:
        settings = connecting(mine)
        del settings[name]
        assert only_error(program.open(settings)) == (
            f"the settings are malformed: KeyError: '{name}'"
        )
    for name in ("do", "address"):
        settings = connecting(mine)
        del settings[name]
        assert only_error(program.open(settings)) == BEGIN


def test_missing_fields_of_a_qp(program: Program, mine: Credentials) -> None:
    for name in connecting(mine)["qps"][0]:
        settings = connecting(mine)
        settings["qps"] = [{k: v for k, v in settings["qps"][0].items() if k != name}]
        assert "settings are malformed" in only_error(program.open(settings))


@pytest.mark.parametrize("value", [None, [None], {1: 2}, "text", 1.5, cbor2.undefined])
def test_wrong_types(program: Program, mine: Credentials, value: object) -> None:
    """Nothing but an error comes of a wrong value, and the agent goes on."""
    for name in [*FIELDS, "cert", "key", "ca", "do", "address"]:
        if name in ("data", "token", "group", "worker") and value == "text":
            continue  # a legal value, or one that the worker refuses
        if name in ("timeout", "every", "limit", "max_age") and value == 1.5:
            continue
        events = program.open(connecting(mine) | {name: value}).events()
        assert [event["event"] for event in events] == ["error"], (name, value, events)
        assert events[0]["code"] not in ("name", "unreachable"), (name, value, events)


@pytest.mark.parametrize("do", ["", "Connect", "stop", "renew", 1, None, ["connect"]])
def test_unknown_requests(program: Program, mine: Credentials, do: object) -> None:
    assert only_error(program.open(connecting(mine) | {"do": do})) == BEGIN


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ([], "config"),
        (["127.0.0.1"], "config"),
        (["127.0.0.1", "1"], "config"),
        ([b"127.0.0.1", 1], "config"),
        (["127.0.0.1", 1, 2], "config"),
        (["127.0.0.1", 0], "config"),
        (["127.0.0.1", -1], "config"),
        (["127.0.0.1", 65_536 + 22], "config"),
        (["127.0.0.1", 1 << 70], "config"),
        (["host..invalid", 1], "name"),
        (["x" * 64, 1], "name"),
        (["x\0y", 1], "name"),
        (["", 1], "name"),
        (["host.invalid", 1], "name"),
        (["127.0.0.1", 1], "unreachable"),
    ],
)
def test_addresses(
    program: Program, mine: Credentials, worker: FakeWorker, address: Any, code: str
) -> None:
    settings = connecting(mine) | {"worker": str(worker.path), "address": address}
    [event] = program.open(settings).events()
    assert (event["event"], event["code"]) == ("error", code), event


def test_listener_without_a_socket(program: Program, mine: Credentials) -> None:
    settings = vars(mine) | {"do": "listen", "peer": []}
    assert only_error(program.open(settings)) == NO_SOCKET
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert only_error(program.open(settings, theirs)) == NO_SOCKET


def test_settings_of_a_listener(program: Program, mine: Credentials, tmp_path: Path) -> None:
    good = vars(mine) | {"do": "listen", "peer": []}
    bad: list[tuple[dict[str, Any], str]] = [
        (vars(mine) | {"do": "listen"}, "config"),
        (good | {"peer": "spiffe://test/*"}, "config"),
        (good | {"key": b"x"}, "credentials"),
        (good | {"identity": str(tmp_path / "nobody")}, "credentials"),
        (good | {"identity": 7}, "config"),
    ]
    for settings, code in bad:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            [event] = program.open(settings, sock).events()
            address = sock.getsockname()
        assert (event["event"], event["code"]) == ("error", code), event
        with pytest.raises(ConnectionError):  # the agent has closed its copy
            dial(address)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "a message is not CBOR"),
        (b"\xff", "a message is not CBOR"),
        (b"\xa1\x61", "a message is not CBOR"),
        (b"\x9f" * 10_000, "a message is not CBOR"),
        (cbor2.dumps([]), "a message is not a CBOR map"),
        (cbor2.dumps("listen"), "a message is not a CBOR map"),
        (cbor2.dumps({}), "the settings are malformed|a channel begins with"),
        (cbor2.dumps({1: 2}), "a message is not CBOR"),
        (cbor2.dumps({"do": cbor2.CBORTag(28, [1])}), "a message is not CBOR"),
    ],
)
def test_no_settings(program: Program, raw: bytes, text: str) -> None:
    wire = program.open()
    wire.say(raw)
    told = only_error(wire)
    assert any(told.startswith(part) for part in text.split("|")), told


def test_too_long_settings(program: Program) -> None:
    wire = program.open()
    wire.sock.sendall(((1 << 17) + 1).to_bytes(4, "big"))
    assert only_error(wire) == "a message of 131073 bytes: at most 131072 are permitted"


def test_settings_of_the_greatest_length(program: Program, mine: Credentials) -> None:
    settings = connecting(mine) | {"worker": "/none", "more": b""}
    settings["more"] = bytes((1 << 17) - len(cbor2.dumps(settings)) - 4)
    assert len(cbor2.dumps(settings)) == 1 << 17
    [event] = program.open(settings).events()
    assert event["code"] == "worker" and "/none" in event["text"]


@pytest.mark.parametrize("sent", [b"", b"\0", b"\0\0\0\x09\xa1"])
def test_channel_that_ends_at_once(program: Program, sent: bytes) -> None:
    wire = program.open()
    wire.sock.sendall(sent)
    wire.hang_up()
    assert [event["event"] for event in wire.events()] in ([], ["error"])
    wire = program.open()
    wire.sock.sendall(sent)
    wire.sock.close()


def test_program_that_closes_before_it_reads_the_error(program: Program) -> None:
    for _ in range(20):
        wire = program.open({"do": "nothing"})
        wire.sock.close()
    assert only_error(program.open({"do": "nothing"}))


def test_settings_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel that does not begin is closed; one that stops within its first message is told."""
    monkeypatch.setattr(service, "SETTINGS_TIMEOUT", 0.05)

    async def serve(sock: socket.socket) -> None:
        house = Service(Private())
        house.open(sock, 0)
        await asyncio.wait(house._tasks)

    for begun in (False, True):
        ours, theirs = socket.socketpair()
        with contextlib.closing(Wire(ours)) as wire:
            if begun:
                ours.send(b"\0")
            asyncio.run(serve(theirs))
            texts = [event["text"] for event in wire.events()]
            assert texts == (["no settings in 0.05 s"] if begun else [])


@pytest.mark.parametrize("request_", [{"do": "renew", "wish": 1}, {}, {"do": "listen"}])
def test_request_to_a_listener(
    listening: Listening, mine: Credentials, request_: dict[str, Any]
) -> None:
    peer = genuine(listening, mine)
    listening.listener.tell(request_)
    assert only_error(listening.listener) == "a listener takes no requests"
    with pytest.raises(Truncated):
        peer.message()
    with pytest.raises(ConnectionError):
        listening.dial()


def test_request_before_ready(program: Program, mine: Credentials, worker: FakeWorker) -> None:
    """A malformed request ends the attempt, and a legal one waits for `ready`."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        settings = connecting(mine) | {
            "worker": str(worker.path),
            "address": list(sock.getsockname()),
        }
        wire = program.open(settings)
        with patient(sock.accept()[0]):
            wire.tell({"do": "renew", "wish": 1})
            wire.tell({"do": "renew"})
            assert "a malformed request" in only_error(wire)


def test_agent_ends_with_the_door(listening: Listening, mine: Credentials) -> None:
    """Also with channels that are open. finish() checks the exit code."""
    peer = genuine(listening, mine)
    other = listening.open()
    listening.agent._door.close()
    assert listening._process.wait(20) == 0
    with pytest.raises(Truncated):
        peer.message()
    assert listening.listener.event() == END and other.event() == END
    listening._killed = True


def test_door_takes_nonsense(program: Program) -> None:
    """A message without a channel is ignored."""
    program.agent._door.send(b"c")
    assert only_error(program.open({"do": "nothing"}))
