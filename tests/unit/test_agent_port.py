"""The port of a system agent, and connections that are closed while they are idle (agent.md 3,
protocol.md 8.7): two system agents in threads of the test, with workers that only respond."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srdma.agent import dial as agent_dial
from srdma.agent import links, upkeep
from srdma.agent import port as agent_port
from srdma.agent.dial import dial
from srdma.agent.policy import Policy, PolicyError
from srdma.errors import LocalError
from srdma.gid import plain_address
from srdma.identity import Credentials, create_ca, issue, server_name
from srdma.keyex import pace
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, Hello, decode
from srdma.keyex.tls import STREAM_LEN, Truncated
from tests.exchange_players import offer
from tests.host_players import IDENTITY, Host, cut, renews, session
from tests.keyex_players import load, until
from tests.tls_players import HELLO, BlockingTLS

pytestmark = pytest.mark.usefixtures("quick_links")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("identities")
    create_ca(path / "ca", "test")
    for name in ("a", "b", "c"):
        issue(path / "ca", f"spiffe://test/host-{name}", path / name)
    (path / "ca.pem").write_bytes((path / "ca/ca.pem").read_bytes())
    for suffix in ("pem", "key"):  # another identity of the policy with the same URI
        (path / f"b2.{suffix}").write_bytes((path / f"b.{suffix}").read_bytes())
    return path


@pytest.fixture
def a(folder: Path) -> Iterator[Host]:
    host = Host(folder, "a")
    yield host
    host.close()


@pytest.fixture
def b(folder: Path) -> Iterator[Host]:
    host = Host(folder, "b", "c")
    yield host
    host.close()


# Resumption at the port ---------------------------------------------------------------


def test_listener_that_is_gone(a: Host, b: Host) -> None:
    """The session resumes at the agent's port."""
    client, server, listener = session(a, b)
    listener.close()
    cut(a)
    until(lambda: bool(a.told("resumed") and b.told("resumed")))
    until(lambda: a.completed() == b.completed() == 1)
    renews(client, 1)
    renews(server, 1)
    assert not a.worker.expired and not b.worker.expired


@pytest.mark.parametrize("name", ["b", "c"])
def test_identities_at_the_port(a: Host, b: Host, name: str) -> None:
    """The server presents the one that the client asks for by SNI."""
    client, _, listener = session(a, b, name)
    listener.close()
    cut(a)
    until(lambda: bool(a.told("resumed")))
    renews(client, 1)
    [link] = a.links()
    assert link.identity == f"spiffe://test/host-{name}"


@pytest.fixture
def far(folder: Path) -> Iterator[Host]:
    """A host whose agent listens at another address than the one that the system would choose."""
    host = Host(folder, "a", address="127.0.0.2")
    yield host
    host.close()


def test_client_at_another_address(far: Host, b: Host) -> None:
    """It connects from the address of its port, at which the server finds it."""
    client, server, _ = session(far, b, client="a")
    [link] = far.links()
    assert (link.outer.local(), link.port) == ("127.0.0.2", far.port)
    [link] = b.links()
    assert (link.address, link.agent) == ("127.0.0.2", far.port)
    renews(client, 1)
    renews(server, 1)


def test_server_at_another_address(far: Host, b: Host) -> None:
    """A program's listener is at an address at which the agent has no port."""
    session(b, far, "a", client="b")
    [link] = far.links()
    assert (link.outer.local(), link.port) == ("127.0.0.1", 0)
    [link] = b.links()
    assert link.agent == 0


@pytest.mark.parametrize("listen", ["0.0.0.0", "::"])
def test_port_at_all_addresses(folder: Path, b: Host, listen: str) -> None:
    host = Host(folder, "a", address=f"[{listen}]" if ":" in listen else listen)
    session(b, host, "a", client="b")
    session(host, b, client="a")
    assert {link.port for link in host.links()} == {host.port}
    host.close()


@pytest.mark.parametrize("source", ["192.0.2.1", "2001:db8::1", "0.0.0.0", "", "127.0.0.3"])
def test_source_of_a_connection(source: str) -> None:
    """An address that this machine has not, or of the other family, is not used."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sock = asyncio.run(dial(*listening.getsockname(), source=source))
        assert sock.getsockname()[0] == ("127.0.0.3" if source == "127.0.0.3" else "127.0.0.1")
        sock.close()


def test_source_without_a_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt from that address ends soon, and the next one follows."""
    monkeypatch.setattr(agent_dial, "BOUND", 0.05)
    attempts = []

    async def connect(self: Any, sock: socket.socket, address: Any) -> None:
        attempts.append(sock.getsockname()[0])
        if len(attempts) == 1:
            await asyncio.sleep(60)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    asyncio.run(dial("127.0.0.1", 7, source="127.0.0.3")).close()
    assert attempts == ["127.0.0.3", "0.0.0.0"]


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:A00:1", "10.0.0.1"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_plain_addresses(given: str, plain: str) -> None:
    assert plain_address(given) == plain


def test_identities_with_the_same_certificate(a: Host, folder: Path) -> None:
    """The peers of both are admitted at the port."""
    host = Host(folder, "b", "b2")
    text = host.file.read_text()
    host.file.write_text(text.replace('name = "b"\n', 'name = "b"\npeers = ["spiffe://x/y"]\n'))
    host.agent.call(host.policy.load)
    client, _, listener = session(a, host, "b2")
    listener.close()
    cut(a)
    until(lambda: bool(host.told("resumed")))
    renews(client, 1)
    host.close()


def test_sessions_of_one_peer_share_a_connection(a: Host, b: Host) -> None:
    sessions = [session(a, b, qpn=0x100 + n) for n in range(3)]
    for _, _, listener in sessions:
        listener.close()
    cut(a)
    until(lambda: len(a.told("resumed")) == 3)
    assert [link.streams for link in a.links() if not link.end] == [3]


def test_identities_with_the_same_uri(a: Host, folder: Path) -> None:
    host = Host(folder, "b", "b2")
    try:
        for n, name in enumerate(("b", "b2")):
            client, _, listener = session(a, host, name, 0x100 + n)
            listener.close()
            cut(a)
            until(lambda n=n: len(host.told("resumed")) >= n + 1)
            renews(client, 1)
    finally:
        host.close()


def test_both_ends_at_one_agent(b: Host) -> None:
    listener, address = b.listen("b")
    client = b.open(b.settings("client", "c", 0x100) | {"do": "connect", "address": [*address]})
    arrival = listener.event()["arrival"]
    server = b.open(b.settings("server", "b", 0x200) | {"do": "accept", "arrival": arrival})
    for wire in (client, server):
        assert [wire.event()["event"], wire.event()["event"]] == ["peer", "ready"]
    for n in range(2):
        cut(b)
        until(lambda n=n: len(b.told("resumed")) == 2 * (n + 1))
        renews(client, n + 1)
        renews(server, n + 1)


def test_no_first_exchange_at_the_port(a: Host, b: Host, folder: Path) -> None:
    settings = a.settings("client", "a", 0x100) | {"peer": ["spiffe://test/host-b"]}
    wire = a.open(settings | {"do": "connect", "address": ["127.0.0.1", b.port]})
    [error] = [event for event in wire.events() if event["event"] == "error"]
    assert error["code"] == "tls"  # without SNI the port has no identity to present


class Raw(BlockingTLS):
    def __init__(self, port: int, mine: Credentials, sni: str) -> None:
        sock = socket.create_connection(("127.0.0.1", port), timeout=20)
        super().__init__(sock, "client", mine)
        if sni:
            self._tls.set_tlsext_host_name(sni.encode())
        self.raw = True


@pytest.mark.parametrize("sni", ["", server_name("spiffe://test/host-a"), "host-b", "x" * 64])
def test_unknown_name(b: Host, folder: Path, sni: str) -> None:
    """Among several identities none is presented for it: the handshake fails by an alert."""
    made = Raw(b.port, load(folder, "a"), sni)
    with pytest.raises(ExchangeError, match=r"TLS failed: .*handshake failure"):
        made.handshake()
    made.close()


def test_one_identity_needs_no_name(a: Host, folder: Path) -> None:
    for sni in ("", "anything", server_name("spiffe://test/host-b")):
        made = Raw(a.port, load(folder, "b"), sni)
        made.handshake()
        made.send_on(0, HELLO)
        raw = made.message()
        assert decode(raw[STREAM_LEN:]) == Hello(a.port, groups=True)
        made.send_on(1, offer())
        raw = made.message()
        told = decode(raw[STREAM_LEN:])
        assert isinstance(told, ErrorMessage) and told.code == "closed"
        made.close()


def test_right_name(b: Host, folder: Path) -> None:
    for name in ("b", "c"):
        made = Raw(b.port, load(folder, "a"), server_name(f"spiffe://test/host-{name}"))
        assert made.handshake()[0] == f"spiffe://test/host-{name}"
        made.close()


def test_foreign_peer_at_the_port(b: Host, tmp_path: Path) -> None:
    create_ca(tmp_path / "ca", "foreign")
    issue(tmp_path / "ca", "spiffe://test/host-a", tmp_path / "a")
    name = server_name("spiffe://test/host-b")
    made = Raw(b.port, load(tmp_path, "a"), name)
    with pytest.raises((ExchangeError, Truncated)):
        made.handshake()
        made.message()
    until(lambda: [line["code"] for line in b.told("refused")] != [])
    made.close()


def test_port_that_is_taken(folder: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as sock,
        pytest.raises(LocalError, match=r"cannot listen at 127.0.0.1:.*change `listen`"),
    ):
        agent_port.bound(sock.getsockname()[:2])


@pytest.mark.parametrize(
    "value", ["7", '"7000"', '"host:7000"', '"10.0.0.1:80"', '"10.0.0.1:65536"', '"1.2.3.4:x"']
)
def test_listen_of_a_policy(folder: Path, tmp_path: Path, value: str) -> None:
    text = f'worker = "w"\nsocket = "s"\nlisten = {value}\n' + IDENTITY.format(
        name=folder / "a", uid=0
    ).replace(f'name = "{folder / "a"}"', 'name = "a"')
    (tmp_path / "agent.toml").write_text(text)
    with pytest.raises(PolicyError, match='listen must be "ADDRESS:PORT"'):
        Policy(tmp_path / "agent.toml")


def test_address_families(tmp_path: Path) -> None:
    for address in (("127.0.0.1", 0), ("::1", 0)):
        with agent_port.bound(address) as sock:
            assert sock.getsockname()[0] == address[0]


# Idle connections ---------------------------------------------------------------------


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are closed when nothing has happened in them for a moment."""
    monkeypatch.setattr(links, "KEPT", 0)
    monkeypatch.setattr(links, "IDLE", 0.1)
    monkeypatch.setattr(links, "UNUSED", 0.1)


def closed(*hosts: Host) -> None:
    until(lambda: not any(host.links() for host in hosts))


@pytest.mark.usefixtures("idle")
def test_idle_connection_is_closed(a: Host, b: Host) -> None:
    """Both ends have the session; an exchange that either wants makes another connection."""
    client, server, listener = session(a, b)
    listener.close()
    for n in range(3):
        closed(a, b)
        assert len(a.told("idle")) == len(b.told("idle")) == 2 * n + 1
        renews(client, n + 1)
        closed(a, b)
        renews(server, n + 1)
    assert not a.worker.expired and not b.worker.expired
    assert not a.worker.ended and not b.worker.ended
    assert not a.told("lost")


@pytest.mark.usefixtures("idle")
def test_renewals_by_the_clock_of_idle_sessions(a: Host, b: Host) -> None:
    listener, address = b.listen("b")
    every = {"every": 0.4}
    settings = a.settings("client", "a", 0x100) | every
    client = a.open(settings | {"do": "connect", "address": [*address]})
    arrival = listener.event()["arrival"]
    b.open(b.settings("server", "b", 0x100) | every | {"do": "accept", "arrival": arrival})
    assert [client.event()["event"], client.event()["event"]] == ["peer", "ready"]
    until(lambda: a.completed() >= 4 and b.completed() >= 4)
    assert len(a.told("idle")) >= 3


@pytest.mark.usefixtures("idle")
def test_both_ends_want_an_exchange(a: Host, b: Host) -> None:
    """Both connect at the same time. The session goes on, and both get what they want."""
    client, server, listener = session(a, b)
    listener.close()
    for n in range(5):
        closed(a, b)
        for wire in (client, server):
            wire.tell({"do": "renew", "wish": n + 1})
        for wire in (client, server):
            event = wire.event()
            assert (event["event"], event["wish"]) == ("renewed", n + 1)
    assert not a.worker.expired and not b.worker.expired


@pytest.mark.usefixtures("idle")
def test_session_ends_while_its_connection_is_closed(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent looks whether QPs have ended."""
    monkeypatch.setattr(upkeep, "LOOK_LOST", 0.05)
    client, _, _ = session(a, b)
    closed(a, b)
    a.worker.gone.add(0x100)
    assert client.event() == {"event": "closed"}
    assert not a.worker.expired


@pytest.mark.usefixtures("idle")
def test_program_closes_an_idle_session(a: Host, b: Host) -> None:
    """Its worker tells the peer's; the agents say nothing."""
    client, _, _ = session(a, b)
    closed(a, b)
    client.close()
    until(lambda: a.worker.ended == [(0x100, 22)])
    assert not a.links()


@pytest.mark.parametrize("client", [True, False])
def test_connection_of_an_agent_without_a_port_is_kept(
    folder: Path, b: Host, monkeypatch: pytest.MonkeyPatch, client: bool
) -> None:
    """A server could not ask that client for an exchange; a client could not find that server."""
    monkeypatch.setattr(links, "KEPT", 0)
    monkeypatch.setattr(links, "IDLE", 0.05)
    host = Host(folder, "a", port=0)
    try:
        _, server, _ = session(host, b) if client else session(b, host, "a", client="b")
        renews(server, 1)
        with pytest.raises(AssertionError):
            closed_soon(host)
        renews(server, 2)
    finally:
        host.close()


def closed_soon(host: Host) -> None:
    for _ in range(30):
        if not host.links():
            return
        host.agent.run(asyncio.sleep(0.01))
    raise AssertionError("still open")


def test_a_few_connections_are_kept(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "KEPT", 1)
    monkeypatch.setattr(links, "IDLE", 0.05)
    session(a, b, "b", 0x100)
    with pytest.raises(AssertionError):
        closed_soon(a)
    session(a, b, "c", 0x101)
    until(lambda: len(a.links()) == 1)


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("number", [0, 1])
def test_idle_session_waits_for_its_turn(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """An end that must connect for an exchange does so when its turn has come: the client to
    resume, the server to wake it. number: of the end that wants the exchange."""
    monkeypatch.setattr(pace, "TURNS", 1)
    monkeypatch.setattr(pace, "HELD", 1e6)
    host, wire = (a, b)[number], session(a, b)[number]
    closed(a, b)
    turns = host.agent.service.turns
    assert host.agent.call(lambda: turns.take("another", 0.0, lambda: None))
    wire.tell({"do": "renew", "wish": 1})
    until(lambda: bool(turns._calls))
    [waiting] = host.agent.service.sessions._by_hash.values()
    assert not waiting._redial and not a.completed()
    host.agent.call(lambda: turns.give("another"))
    event = wire.event()
    assert (event["event"], event["wish"]) == ("renewed", 1)
    until(lambda: a.completed() == b.completed() == 1)
    until(lambda: host.agent.call(lambda: not turns._held and not turns._calls))


def test_one_task_per_session(a: Host, b: Host) -> None:
    """It waits for the program, the peer and the worker. A connection has a task too."""

    def tasks() -> int:
        return int(a.agent.call(lambda: len(asyncio.all_tasks()))) - len(a.links())

    session(a, b)
    before = tasks()
    clients = [session(a, b, "b", 0x200 + number)[0] for number in range(3)]
    until(lambda: tasks() == before + len(clients))
    for wire in clients:
        wire.close()
    until(lambda: tasks() == before)


# A restart ------------------------------------------------------------------------------


def test_server_that_restarts_without_its_listener(a: Host, b: Host) -> None:
    """The port of the agent that takes over is where the client resumes."""
    client, _, _ = session(a, b)
    b.stop()
    b.start()
    until(lambda: bool(b.told("adopted") and b.told("resumed")))
    renews(client, 1)


def test_idle_server_that_restarted(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "KEPT", 0)
    monkeypatch.setattr(links, "IDLE", 0.1)
    client, _, _ = session(a, b)
    closed(a, b)
    b.stop()
    b.start()
    renews(client, 1)
    until(lambda: b.completed() == 1)
