"""A flood of connections from other addresses, while a peer resumes its session (agent.md 3)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srdma.agent import entrance
from srdma.agent.audit import no_audit
from srdma.agent.entrance import (
    CANDIDATES_KNOWN,
    CANDIDATES_MAX,
    CANDIDATES_PER_ADDRESS,
    Entrance,
)
from srdma.agent.listener import Admission, Listener
from srdma.agent.policy import Private
from srdma.agent.sessions import Sessions
from srdma.agent.upkeep import Upkeep
from srdma.identity import Credentials, create_ca, issue
from tests import keyex_players
from tests.keyex_players import PATIENCE, Keyex, config, dial, finished, load, until
from tests.resume_players import ResumingPeer
from tests.thread_agent import ThreadAgent
from tests.tls_players import BlockingTLS

FOREIGN = 60  # clients of another CA
PEER = "127.0.0.1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("identities")
    create_ca(path / "ca", "test")
    create_ca(path / "foreign", "another")
    for name, ca in (("a", "ca"), ("b", "ca"), ("f", "foreign")):
        issue(path / ca, f"spiffe://test/host-{name}", path / name)
    return path


@pytest.fixture
def session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ResumingPeer, Keyex]]:
    """A peer at 127.0.0.1 that has lost its connection to an agent, which is in a thread."""
    monkeypatch.setattr(keyex_players, "PrivateAgent", ThreadAgent)
    program = Keyex(config("server", load(folder, "b")))
    with finished(program):
        peer = ResumingPeer(program.other_end(), "client", load(folder, "a"), 0)
        peer.program = program
        with contextlib.closing(peer.tls):
            peer.connect(2)
            assert [program.event()["event"], program.event()["event"]] == ["peer", "ready"]
            peer.tls.cut()
            yield peer, program
        peer.tls.close()


def is_open(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def silent(program: Keyex, stack: contextlib.ExitStack, n: int, source: str) -> list[socket.socket]:
    return [stack.enter_context(dial(program.address, source)) for _ in range(n)]


def resumes(peer: ResumingPeer, made: BlockingTLS) -> None:
    """A handshake, RESUMEs and an exchange of new secrets."""
    made.handshake()
    peer.resume_by(made, peer.resume_of(made))
    peer.exchange_secrets()


def test_silent_connections(session: tuple[ResumingPeer, Keyex]) -> None:
    """They fill all places of other addresses, and more, between the connection of the peer and its
    first byte."""
    peer, program = session
    with contextlib.ExitStack() as stack:
        made = BlockingTLS(program.other_end(), "client", peer.credentials)
        socks = [
            sock
            for n in range(10)
            for sock in silent(program, stack, CANDIDATES_PER_ADDRESS - 4, f"127.0.0.{n + 2}")
        ]
        until(lambda: sum(map(is_open, socks)) == CANDIDATES_MAX)
        resumes(peer, made)
        assert sum(map(is_open, socks)) == CANDIDATES_MAX


def hello(sock: socket.socket, credentials: Credentials) -> BlockingTLS:
    """A client that has sent its ClientHello."""
    made = BlockingTLS(sock, "client", credentials)
    assert not made.shake()
    made._flush()
    return made


class Turns:
    """The order of the steps of handshakes. others: steps of unknown addresses so far. known: this
    number at each step of the address of a session's peer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.others, self.admitted = 0, 0
        self.known: list[int] = []
        turn, admit = Entrance._turn, Entrance._admit

        async def counted_turn(of: Entrance[Any]) -> None:
            await turn(of)
            self.others += 1

        async def counted_no_wait() -> None:
            self.known.append(self.others)

        def counted_admit(of: Entrance[Any], *admitted: Any) -> None:
            admit(of, *admitted)
            self.admitted += 1

        monkeypatch.setattr(Entrance, "_turn", counted_turn)
        monkeypatch.setattr(Entrance, "_admit", counted_admit)
        monkeypatch.setattr(entrance, "no_wait", counted_no_wait)


# RFC 5042 A6.4.4
def test_handshakes_of_other_addresses_wait(
    session: tuple[ResumingPeer, Keyex], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent has not read anything for a while. It serves the peer, which came last, before
    most of the others."""
    peer, program = session
    foreign = load(folder, "f")
    turns, all_spoke = Turns(monkeypatch), threading.Event()
    with contextlib.ExitStack() as stack:
        socks = silent(program, stack, FOREIGN, "127.0.0.2")
        mine = program.other_end()
        until(lambda: turns.admitted == FOREIGN + 1)
        agent = cast(ThreadAgent, program.program.agent).thread
        agent.post(lambda: all_spoke.wait(PATIENCE))
        for sock in socks:
            hello(sock, foreign)
        made = hello(mine, peer.credentials)
        all_spoke.set()
        resumes(peer, made)
        start, answer = turns.known[:2]  # steps without and with the ClientHello
        assert start <= answer < FOREIGN, turns.known


def test_foreign_clients_all_the_time(session: tuple[ResumingPeer, Keyex], folder: Path) -> None:
    """The peer resumes among clients whose handshakes are refused, and silent ones."""
    peer, program = session
    foreign = load(folder, "f")
    with contextlib.ExitStack() as stack:
        for n in range(4):
            silent(program, stack, CANDIDATES_PER_ADDRESS, f"127.0.0.{n + 10}")
        for n in range(3):
            mine = program.other_end()
            for sock in silent(program, stack, FOREIGN, f"127.0.0.{n + 2}"):
                hello(sock, foreign)
            resumes(peer, BlockingTLS(mine, "client", peer.credentials))
            peer.tls.cut()
        peer.tls.close()


def test_known_address_has_a_limit_of_its_own(session: tuple[ResumingPeer, Keyex]) -> None:
    peer, program = session
    with contextlib.ExitStack() as stack:
        others = silent(program, stack, CANDIDATES_PER_ADDRESS, "127.0.0.2")
        socks = silent(program, stack, CANDIDATES_KNOWN + 2, PEER)
        made = BlockingTLS(program.other_end(), "client", peer.credentials)
        resumes(peer, made)
        assert [*map(is_open, socks)] == [False] * 3 + [True] * (CANDIDATES_KNOWN - 1)
        assert all(map(is_open, others))


# Without a network ------------------------------------------------------------------------


class Kept:
    """In place of an Upkeep."""

    def __init__(self, number: int, *address: str) -> None:
        agreement = SimpleNamespace(role="server", hash=bytes([number]))
        place = (address[0], 0) if address else None
        self.record = SimpleNamespace(agreement=agreement, address=place)

    @property
    def upkeep(self) -> Upkeep:
        return cast(Upkeep, self)


def test_addresses_of_sessions() -> None:
    sessions, one, two = Sessions(), Kept(1, "1.1.1.1"), Kept(2, "1.1.1.1")
    sessions.moved(one.upkeep)  # before add()
    assert not sessions.know("1.1.1.1")
    for kept in (one, two, Kept(3)):
        sessions.add(kept.upkeep)
    assert sessions.know("1.1.1.1") and not sessions.know("")
    one.record.address = ("2.2.2.2", 0)
    sessions.moved(one.upkeep)
    assert sessions.know("1.1.1.1") and sessions.know("2.2.2.2")
    sessions.remove(two.upkeep)
    assert not sessions.know("1.1.1.1") and sessions.know("2.2.2.2")
    sessions.remove(one.upkeep)
    sessions.remove(one.upkeep)
    assert not sessions.know("2.2.2.2")


def test_crowded_address_gives_way() -> None:
    """One of the known addresses takes all of their places. A connection of another one closes the
    oldest of the crowd."""

    async def run() -> list[tuple[str, int]]:
        admission = Admission(no_audit, Private().peer_at, Private().group_at)
        sessions = admission.sessions
        for number in (1, 2):
            sessions.add(Kept(number, f"127.0.0.{number}").upkeep)
        none, channel = cast(Any, None), cast(Any, SimpleNamespace(uid=0))
        listener = Listener(channel, none, none, admission)
        closed: list[tuple[str, int]] = []

        def speaking(number: int) -> Any:
            """A socket whose peer has sent its first bytes."""
            return SimpleNamespace(number=number, recv=lambda *_: b"x")

        async def serve(candidate: Any, sock: Any) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                closed.append((candidate.address, sock.number))

        listener._serve = serve  # type: ignore[method-assign,assignment]
        for number in range(CANDIDATES_KNOWN + 2):
            first = number == 0
            listener._admit(speaking(number), "127.0.0.2" if first else "127.0.0.1")
            await asyncio.sleep(0)
        listener._admit(speaking(100), "127.0.0.2")
        await asyncio.sleep(0.01)
        found = [*closed]
        for candidate in [*listener._candidates]:
            candidate.task.cancel()
        await asyncio.sleep(0.01)
        return found

    assert asyncio.run(run()) == [("127.0.0.1", number) for number in (1, 2, 3)]
