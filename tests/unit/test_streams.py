"""Streams in shared TLS connections (protocol.md 8.7): private agents, and a peer of the test that
writes messages with the numbers of their streams."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srdma.agent import links, listener
from srdma.identity import Credentials, issue
from srdma.keyex import streams
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import (
    Choice,
    ClosedMessage,
    ErrorMessage,
    Hello,
    Message,
    Offer,
    Ready,
    Rekey,
    Resume,
    decode,
    encode,
)
from srdma.keyex.pace import Pace
from srdma.keyex.tls import INNER_ENDED, STREAM_LEN, Truncated
from tests import keyex_players
from tests.exchange_players import offer
from tests.keyex_players import (
    FakeWorker,
    Listening,
    Program,
    Wire,
    accepting,
    config,
    finished,
    load,
    until,
)
from tests.thread_agent import ThreadAgent
from tests.tls_players import HELLO, IDLE, BlockingTLS

CLOSED = encode(ClosedMessage())


@pytest.fixture(autouse=True)
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents are in threads, so that a test may change their constants."""
    monkeypatch.setattr(keyex_players, "PrivateAgent", ThreadAgent)


@pytest.fixture
def worker() -> Iterator[FakeWorker]:
    made = FakeWorker()
    yield made
    made.close()


class Raw:
    """A peer of the test in one connection. Its messages carry the numbers of their streams."""

    def __init__(self, program: Listening, mine: Credentials, *, hello: bool = True) -> None:
        self.tls = BlockingTLS(program.dial(), "client", mine)
        self.tls.raw = True
        self.tls.handshake()
        if hello:
            self.send(0, HELLO)

    def send(self, stream: int, message: bytes | Message) -> None:
        self.tls.send_on(stream, message if isinstance(message, bytes) else encode(message))

    def frame(self, raw: bytes) -> None:
        self.tls.send(raw)

    def message(self) -> tuple[int, Message]:
        raw = self.tls.message()
        return int.from_bytes(raw[:STREAM_LEN], "big"), decode(raw[STREAM_LEN:])

    def error(self) -> tuple[int, str]:
        """Stream and code of the ERROR that follows, behind HELLO."""
        number, message = self.message()
        if isinstance(message, Hello):
            number, message = self.message()
        assert isinstance(message, ErrorMessage), message
        return number, message.code

    def ended(self) -> None:
        """The agent closes the connection."""
        with pytest.raises((Truncated, ExchangeError)) as caught:
            while self.tls.message()[STREAM_LEN:] in (HELLO, IDLE):
                pass
        assert isinstance(caught.value, Truncated) or caught.value.text == INNER_ENDED

    def close(self) -> None:
        self.tls.close()


@pytest.fixture
def raw(listening: Listening, identities: Path) -> Iterator[Raw]:
    made = Raw(listening, load(identities, "a"))
    yield made
    made.close()


def arrived(program: Listening) -> int:
    """The number of the next arrival, behind reports of refused peers."""
    while (event := program.listener.event())["event"] == "refused":
        pass
    assert event["event"] == "arrived", event
    return int(event["arrival"])


# Messages of the connection -----------------------------------------------------------


def test_hello_comes_first(raw: Raw) -> None:
    assert raw.message() == (0, Hello(0, groups=True))


def test_unknown_fields_of_hello(listening: Listening, identities: Path) -> None:
    made = Raw(listening, load(identities, "a"), hello=False)
    made.frame(bytes(4) + bytes.fromhex("a2 65 6167656e74 00 66 667574757265 01"))
    made.send(1, offer())
    arrived(listening)
    made.close()


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([(1, offer())], id="a stream before HELLO"),
        pytest.param([(0, HELLO), (0, HELLO)], id="a second HELLO"),
        pytest.param([(0, HELLO), (0, encode(Ready()))], id="another message on stream 0"),
        pytest.param([(0, HELLO), (3, offer())], id="a gap"),
        pytest.param([(0, HELLO), (2, offer())], id="a stream of the other end"),
        pytest.param(
            [(0, HELLO), (1, offer()), (3, offer()), (2, offer())], id="an older one of the other"
        ),
        pytest.param([(0, HELLO), ((1 << 32) - 1, offer())], id="the last stream"),
    ],
)
def test_errors_of_the_connection(
    listening: Listening, identities: Path, frames: list[tuple[int, bytes]]
) -> None:
    made = Raw(listening, load(identities, "a"), hello=False)
    for number, message in frames:
        made.send(number, message)
    assert made.error() == (0, "state")
    made.ended()
    made.close()


@pytest.mark.parametrize("port", [-1, 65_536, "1"])
def test_port_of_hello(listening: Listening, identities: Path, port: Any) -> None:
    made = Raw(listening, load(identities, "a"), hello=False)
    made.send(0, Hello(port))
    assert made.error()[0] == 0
    made.ended()
    made.close()


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\0\0", b"\0\0\1"])
def test_message_without_a_stream(raw: Raw, frame: bytes) -> None:
    raw.frame(frame)
    assert raw.error() == (0, "format")
    raw.ended()


def test_greatest_message(raw: Raw, listening: Listening) -> None:
    """The limit is that of the message without the number of its stream."""
    raw.send(1, bytes(65_536))
    assert raw.error() == (1, "format")  # it is no CBOR map
    raw.tls.say(bytes(4 + 65_537))
    raw.tls._flush()
    assert raw.error() == (0, "format")
    raw.ended()


def test_error_of_the_connection_by_the_peer(raw: Raw, listening: Listening) -> None:
    raw.send(1, offer())
    arrived(listening)
    raw.send(0, ErrorMessage("state", "no"))
    raw.message()
    raw.ended()


# Streams -----------------------------------------------------------------------------


@pytest.mark.parametrize("message", [Ready(), Rekey(b"x"), Hello(0)])
def test_first_message_of_a_stream(raw: Raw, listening: Listening, message: Message) -> None:
    """Another one than OFFER and RESUME ends the stream, and no other stream."""
    raw.send(1, message)
    assert raw.error() == (1, "state")
    raw.send(3, offer())
    arrived(listening)


def test_malformed_first_message(raw: Raw, listening: Listening) -> None:
    raw.send(1, b"\xff")
    assert raw.error() == (1, "format")
    raw.send(3, offer())
    arrived(listening)


def test_unknown_session(raw: Raw, listening: Listening) -> None:
    raw.send(1, Resume(bytes(32), 0, (0,), (bytes(32),)))
    assert raw.error() == (1, "resume")
    raw.send(3, offer())
    arrived(listening)


def test_messages_of_streams_that_have_ended(raw: Raw, listening: Listening) -> None:
    raw.send(1, Ready())
    assert raw.error() == (1, "state")
    for message in (Ready(), ClosedMessage(), ErrorMessage("state", "no"), b"\xff"):
        raw.send(1, message)
    raw.send(3, ClosedMessage())  # a stream that ends with its first message
    raw.send(5, offer())
    arrived(listening)


def test_exchanges_run_at_the_same_time(
    raw: Raw, listening: Listening, identities: Path, worker: FakeWorker
) -> None:
    """An error in one stream does not touch another one."""
    wires = []
    for number in (1, 3, 5):
        raw.send(number, offer())
        settings = accepting(identities, worker, arrived(listening))
        settings["qps"] = settings["qps"][:1]
        wires.append(listening.open(settings))
        assert wires[-1].event()["event"] == "peer"
    raw.send(3, Ready())
    assert [e["code"] for e in wires[1].events() if e["event"] == "error"] == ["state"]
    raw.send(5, ClosedMessage())
    assert [e["code"] for e in wires[2].events() if e["event"] == "error"] == ["closed"]
    raw.send(1, Ready())
    assert [e["code"] for e in wires[0].events() if e["event"] == "error"] == ["state"]
    raw.send(7, offer())
    arrived(listening)


def test_peer_that_closes_before_accept(
    raw: Raw, listening: Listening, identities: Path, worker: FakeWorker
) -> None:
    raw.send(1, offer())
    number = arrived(listening)
    raw.send(1, CLOSED)
    raw.send(3, offer())
    arrived(listening)  # CLOSED too
    [error] = listening.open(accepting(identities, worker, number)).events()
    assert (error["event"], error["code"]) == ("error", "closed")


def test_listener_that_ended(raw: Raw, listening: Listening) -> None:
    """Its connections remain, for the sessions in them; a first exchange is refused."""
    raw.send(1, offer())
    arrived(listening)
    listening.listener.hang_up()
    assert raw.error() == (1, "closed")
    raw.send(3, offer())
    assert raw.error() == (3, "closed")


# Agents that share a connection --------------------------------------------------------


class Server:
    """Accepts all peers of a listener, each with a worker of its own."""

    def __init__(self, identities: Path, program: Listening, worker: FakeWorker) -> None:
        self.identities, self.program, self.worker = identities, program, worker
        self.qpn = 0x5000

    def accept(self, arrival: int) -> Wire:
        settings = accepting(self.identities, self.worker, arrival)
        self.qpn += 1
        settings["qps"] = [settings["qps"][0] | {"qpn": self.qpn}]
        return self.program.open(settings)


def connect(
    program: Program,
    mine: Credentials | Path,
    server: Listening,
    worker: FakeWorker,
    qpn: int,
    **changes: Any,
) -> Wire:
    credentials = mine if isinstance(mine, Credentials) else load(mine, "a")
    settings = config("client", credentials, **changes)
    if isinstance(mine, Path):
        for name in ("cert", "key", "ca"):
            del settings[name]
        settings["identity"] = str(mine / "a")
    del settings["role"]
    settings["qps"] = [settings["qps"][0] | {"qpn": qpn}]
    return program.open(
        settings
        | {
            "do": "connect",
            "address": list(server.address),
            "worker": str(worker.path),
            "token": os.urandom(16),
        }
    )


@pytest.fixture
def client() -> Iterator[Program]:
    program = Program()
    with finished(program):
        yield program


@pytest.fixture
def serving(identities: Path, listening: Listening, worker: FakeWorker) -> Server:
    return Server(identities, listening, worker)


@pytest.fixture
def ours() -> Iterator[FakeWorker]:
    made = FakeWorker()
    yield made
    made.close()


def made_links(program: Program) -> list[streams.Link]:
    agent: Any = program.agent
    service = agent.thread.service
    return agent.thread.call(lambda: [*service.links._links])


def ready(*wires: Wire) -> None:
    for wire in wires:
        events = [wire.event(), wire.event()]
        assert [event["event"] for event in events] == ["peer", "ready"], events


def test_sessions_share_a_connection(
    client: Program, listening: Listening, serving: Server, ours: FakeWorker, identities: Path
) -> None:
    mine = load(identities, "a")
    wires = [connect(client, mine, listening, ours, 100 + n) for n in range(20)]
    theirs = [serving.accept(arrived(listening)) for _ in wires]
    ready(*wires, *theirs)
    for program in (client, listening):
        assert [link.streams for link in made_links(program)] == [20]
    secrets = [keys[14:18] for keys in ours.keys]
    assert len({str(one) for one in secrets}) == 20
    wires[0].close()  # its peer learns it, the others go on
    until(lambda: [link.streams for link in made_links(listening)] == [19])
    wires[1].tell({"do": "renew", "wish": 1})
    assert wires[1].event() == {"event": "renewed", "count": 1, "wish": 1}


def test_connection_without_streams_is_closed(
    client: Program,
    listening: Listening,
    serving: Server,
    ours: FakeWorker,
    identities: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "UNUSED", 0.05)
    monkeypatch.setattr(links, "SWEEP", 0.01)
    wire = connect(client, load(identities, "a"), listening, ours, 100)
    ready(wire, serving.accept(arrived(listening)))
    assert len(made_links(client)) == 1
    wire.close()
    until(lambda: not made_links(client) and not made_links(listening))


def test_peer_that_opens_no_stream(
    listening: Listening, identities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "UNUSED_HERE", 0.05)
    monkeypatch.setattr(links, "SWEEP", 0.01)
    made = Raw(listening, load(identities, "a"))
    assert made.error() == (0, "idle")
    made.ended()
    made.close()


def test_many_connections_of_one_identity(
    listening: Listening, identities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest one without streams is closed; if there is none, the new one is refused."""
    monkeypatch.setattr(links, "PER_IDENTITY", 2)
    mine = load(identities, "a")
    raws = []
    for n in range(3):
        raws.append(Raw(listening, mine))
        if n != 1:
            raws[-1].send(1, offer())
            arrived(listening)
        else:
            assert raws[-1].message() == (0, Hello(0, groups=True))
    assert raws[1].error() == (0, "idle")
    raws[1].ended()
    raws.append(Raw(listening, mine))
    assert raws[3].error() == (0, "busy")
    raws[3].ended()
    assert [link.streams for link in made_links(listening)] == [1, 1]
    for one in raws:
        one.close()


def test_refused_streams_have_a_rate(
    listening: Listening, identities: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "REFUSALS", 5)
    made = Raw(listening, load(identities, "a"))
    for n in range(10):
        made.send(1 + 2 * n, Ready())
    codes = [made.error() for _ in range(7)]
    assert codes == [*((1 + 2 * n, "state") for n in range(6)), (0, "rate")]
    made.ended()
    made.close()


def test_messages_of_a_peer_that_waits(
    raw: Raw, listening: Listening, identities: Path, worker: FakeWorker
) -> None:
    """Few of them are kept until accept()."""
    raw.send(1, offer())
    number = arrived(listening)
    for _ in range(3):
        raw.send(1, Rekey(bytes(60_000)))
    raw.send(3, offer())
    arrived(listening)
    [link] = made_links(listening)
    assert link._streams[1].failed
    [error] = listening.open(accepting(identities, worker, number)).events()
    assert (error["event"], error["code"]) == ("error", "count")


def test_old_connection(
    client: Program,
    listening: Listening,
    serving: Server,
    ours: FakeWorker,
    identities: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No first exchange begins in it."""
    monkeypatch.setattr(links, "AGE_MAX", 0.0)
    mine = load(identities, "a")
    for n in range(2):
        wire = connect(client, mine, listening, ours, 100 + n)
        ready(wire, serving.accept(arrived(listening)))
    assert [link.streams for link in made_links(client)] == [1, 1]


def test_connection_that_is_too_old_for_the_server(
    client: Program,
    listening: Listening,
    serving: Server,
    ours: FakeWorker,
    identities: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It refuses with `stale`; the client connects again, once."""
    mine = load(identities, "a")
    ready(
        connect(client, mine, listening, ours, 100),
        serving.accept(arrived(listening)),
    )
    [old] = made_links(listening)
    old.made_at -= links.AGE_HERE + 1
    wire = connect(client, mine, listening, ours, 101)
    refused = listening.listener.event()
    assert (refused["event"], refused["code"]) == ("refused", "stale")
    ready(wire, serving.accept(arrived(listening)))
    assert [link.streams for link in made_links(client)] == [1, 1]
    monkeypatch.setattr(links, "AGE_HERE", -1.0)
    [error] = connect(client, mine, listening, ours, 102).events()
    assert (error["code"], error["text"]) == (
        "stale",
        "the peer reports: the connection is too old for a key exchange",
    )


def test_credentials_that_were_replaced(
    client: Program, serving: Server, ours: FakeWorker, identities: Path, tmp_path: Path
) -> None:
    """New sessions use a connection that was made with the new ones, at either end."""
    for name in ("a", "b"):
        for suffix in ("pem", "key"):
            shutil.copy(identities / f"{name}.{suffix}", tmp_path / f"{name}.{suffix}")
    (tmp_path / "ca").mkdir()
    for target in (tmp_path, tmp_path / "ca"):
        shutil.copy(identities / "ca/ca.pem", target / "ca.pem")
    program = Listening({"identity": str(tmp_path / "b"), "peer": []})
    with finished(program):
        assert program.listener.event() == {"event": "listening"}
        serving.program, serving.identities = program, identities
        for n, replaced in enumerate(["", "b", "a"]):
            if replaced:
                issue(
                    identities / "ca",
                    f"spiffe://test/host-{replaced}",
                    tmp_path / replaced,
                    force=True,
                )
            wire = connect(client, tmp_path, program, ours, 100 + n)
            event = program.listener.event()
            while event["event"] == "refused":
                assert (replaced, event["code"]) == ("b", "stale")
                event = program.listener.event()
            ready(wire, serving.accept(event["arrival"]))
            assert [link.streams for link in made_links(client)] == [1] * (n + 1)


def test_busy_listener(
    client: Program,
    listening: Listening,
    serving: Server,
    ours: FakeWorker,
    identities: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client repeats its OFFER until there is room."""
    monkeypatch.setattr(listener, "ARRIVALS_PER_IDENTITY", 1)
    mine = load(identities, "a")
    first = connect(client, mine, listening, ours, 100)
    number = arrived(listening)
    second = connect(client, mine, listening, ours, 101)
    refused = listening.listener.event()
    assert (refused["event"], refused["code"]) == ("refused", "busy")
    ready(first, serving.accept(number))
    while (event := listening.listener.event())["event"] == "refused":
        assert event["code"] == "busy"
    ready(second, serving.accept(event["arrival"]))


def test_peer_of_another_identity(
    client: Program, listening: Listening, ours: FakeWorker, identities: Path
) -> None:
    """A session that wants another peer fails; the connection serves the others."""
    mine = load(identities, "a")
    wire = connect(client, mine, listening, ours, 100, peer=["spiffe://test/other"])
    [error] = [event for event in wire.events() if event["event"] == "error"]
    assert error["code"] == "identity"
    connect(client, mine, listening, ours, 101)
    until(lambda: [link.streams for link in made_links(client)] == [1])


def test_lost_connection_ends_all_attempts(
    client: Program, listening: Listening, ours: FakeWorker, identities: Path
) -> None:
    wires = [connect(client, load(identities, "a"), listening, ours, 100 + n) for n in range(3)]
    for _ in wires:
        arrived(listening)
    agent: Any = client.agent
    [link] = made_links(client)
    agent.thread.call(link.outer.drop)
    for _ in wires[1:]:  # those for which the connection was not made repeat their OFFERs once
        arrived(listening)
    [link] = [one for one in made_links(client) if not one.end]
    agent.thread.call(link.outer.drop)
    for wire in wires:
        assert [event["code"] for event in wire.events()] == ["closed"]


def test_cancelled_attempts_close_the_socket(
    client: Program, listening: Listening, ours: FakeWorker, identities: Path
) -> None:
    """The programs close their channels while the handshake is under way."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening.address = server.getsockname()
        wires = [connect(client, load(identities, "a"), listening, ours, 100 + n) for n in range(3)]
        peer, _ = server.accept()
        assert peer.recv(5)  # of the ClientHello
        for wire in wires:
            wire.hang_up()
        while peer.recv(65_536):
            pass
        peer.close()
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


def test_listener_that_was_opened_again(
    client: Program, listening: Listening, serving: Server, ours: FakeWorker, identities: Path
) -> None:
    """The client, which has a connection of the former one, connects again."""
    mine = load(identities, "a")
    ready(connect(client, mine, listening, ours, 100), serving.accept(arrived(listening)))
    listening.listener.close()
    settings = {"do": "listen", **vars(load(identities, "b")), "peer": []}
    with socket.create_server(listening.address) as sock:
        listening.listener = listening.open(settings, sock)
        assert listening.listener.event() == {"event": "listening"}
    ready(connect(client, mine, listening, ours, 101), serving.accept(arrived(listening)))
    listening.listener.close()
    [error] = connect(client, mine, listening, ours, 102).events()
    assert (error["code"], "no listener at" in error["text"]) == ("unreachable", True)


def test_neighbour_that_ends_the_connection(
    client: Program,
    listening: Listening,
    serving: Server,
    ours: FakeWorker,
    identities: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refused OFFERs end the connection. They are repeated, and so is one that waits in it."""
    monkeypatch.setattr(listener, "ARRIVALS_PER_IDENTITY", 1)
    mine = load(identities, "a")
    first = connect(client, mine, listening, ours, 100)
    arrived(listening)
    [link] = made_links(listening)
    link._busy = Pace(0)
    second = connect(client, mine, listening, ours, 101)
    served = [serving.accept(arrived(listening)) for _ in range(2)]
    for wire in (first, second, *served):
        assert [wire.event()["event"] for _ in range(2)] == ["peer", "ready"]
    assert link.end.error.code == "rate"


class Answering:
    """A server of the test for one client of an agent."""

    def __init__(self, program: Program, mine: Credentials, ours: FakeWorker, theirs: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            server: Any = SimpleNamespace(address=sock.getsockname())
            self.wire = connect(program, load(theirs, "a"), server, ours, 100)
            self.tls = BlockingTLS(keyex_players.patient(sock.accept()[0]), "server", mine)
        self.tls.handshake()

    def offer(self, stream: int) -> Offer:
        self.tls.stream = stream
        message = decode(self.tls.message())
        assert isinstance(message, Offer)
        return message

    def say(self, message: Message) -> None:
        self.tls.send(encode(message))


@pytest.mark.parametrize("answered", [False, True])
def test_busy_is_an_answer_to_an_offer(
    client: Program, ours: FakeWorker, identities: Path, answered: bool
) -> None:
    """Behind CHOICE it ends the exchange like any other error."""
    server = Answering(client, load(identities, "b"), ours, identities)
    offered = server.offer(1)
    if answered:
        ends = tuple(replace(one, eid=os.urandom(16), wire="nicb") for one in offered.ends)
        server.say(Choice(offered.suites[0], 0, "", os.urandom(32), ends))
    server.say(ErrorMessage("busy", "later"))
    if answered:
        peer, error = server.wire.events()
        assert (peer["event"], error["event"], error["code"]) == ("peer", "error", "busy")
    else:
        assert server.offer(3).random == offered.random
    server.tls.close()


def test_connection_that_ends_at_its_first_offer(
    client: Program, ours: FakeWorker, identities: Path
) -> None:
    """It was made for it: there is nothing to repeat."""
    server = Answering(client, load(identities, "b"), ours, identities)
    server.offer(1)
    server.tls.cut()
    assert [event["code"] for event in server.wire.events()] == ["closed"]
