"""Talks of programs at two agents (protocol.md 8.9, agent.md 13)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from srdma.agent import calls, dialogue, links, ports, repeat, talks
from srdma.agent.places import Places
from srdma.identity import Names, issue
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ClosedMessage, ErrorMessage, Ready, decode, encode
from srdma.keyex.pace import Pace
from srdma.keyex.talks import QPN_BIT, Say, Talk
from srdma.keyex.tls import Truncated
from tests.gid_players import A, B, C, Stranger, entry, host, identities, running, uri
from tests.host_players import TOKEN, Host, cut
from tests.keyex_players import END, PATIENCE, Wire, until
from tests.ports import free_port
from tests.thread_agent import ThreadAgent

pytestmark = pytest.mark.usefixtures("quick_links")

PORT = 7000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return identities(tmp_path_factory.mktemp("identities"))


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def a(folder: Path, port: int) -> Iterator[Host]:
    yield from running(folder, A, port)


@pytest.fixture
def b(folder: Path, port: int) -> Iterator[Host]:
    yield from running(folder, B, port)


def ask(one: Host, do: str, name: str, **fields: Any) -> Wire:
    settings = {"identity": name, "peer": [], "worker": str(one.worker.path)}
    return one.open(settings | fields | {"do": do})


def of_user(one: Host, fields: dict[str, Any]) -> Wire:
    """As ask() by a program of another user, whom the policy permits the identity "b"."""
    text = one.file.read_text()
    if "12345" not in text:
        one.file.write_text(text.replace("users = [", "users = [12345, "))
        one.agent.call(one.policy.load)
    wire = Wire(one.agent.open(user=12345))
    one.wires.append(wire)
    wire.tell({"identity": "b", "peer": [], "worker": str(one.worker.path)} | fields)
    return wire


def serve(one: Host, port: int = PORT, name: str = "b", **changes: Any) -> Wire:
    wire = ask(one, "serve", name, port=port, **changes)
    event = wire.event()
    assert event["event"] == "serving"
    assert port in (0, event["port"])
    return wire


def call(one: Host, data: bytes = b"hello", name: str = "a", **changes: Any) -> Wire:
    fields: dict[str, Any] = {"to": [B, PORT], "from": 9, "data": data}
    return ask(one, "talk", name, **fields | changes)


def answer(one: Host, service: Wire, name: str = "b", **changes: Any) -> Wire:
    """Takes the next talk."""
    wire = ask(one, "answer", name, talk=service.event()["talk"], **changes)
    assert wire.event() == {"event": "talking"}
    return wire


def say(wire: Wire, data: bytes) -> None:
    wire.tell({"do": "say", "data": data})


def heard(wire: Wire) -> bytes:
    event = wire.event()
    assert event["event"] == "heard", event
    return bytes(event["data"])


def refused(wire: Wire) -> tuple[str, str]:
    """Code and text of the error that ends a channel."""
    event = wire.event()
    assert event["event"] == "error", event
    return event["code"], event["text"]


def waiting(one: Host) -> int:
    """How many talks have no answer."""
    found = one.agent.service._admission.talks
    return int(one.agent.call(lambda: sum(found._places.count((s, "")) for s in services(one))))


def services(one: Host) -> list[ports.Service]:
    return [*one.agent.service._admission.talks._ports._services.values()]


def talking(a: Host, b: Host) -> tuple[Wire, Wire, Wire]:
    """A talk whose caller has heard the answer: the channels of the service and of both ends."""
    service = serve(b)
    caller = call(a)
    other = answer(b, service)
    say(other, b"yes")
    heard(caller)
    return service, caller, other


# The main path ----------------------------------------------------------------------


def test_talk(a: Host, b: Host) -> None:
    service = serve(b)
    caller = call(a)
    event = service.event()
    number = event.pop("talk")
    assert event == {
        "event": "called", "identity": uri("a"), "gid": A, "port": 9, "data": b"hello",
    }  # fmt: skip
    other = ask(b, "answer", "b", talk=number)
    assert other.event() == {"event": "talking"}
    say(other, b"who is there?")
    assert heard(caller) == b"who is there?"
    for n in range(3):
        say(caller, bytes([n]))
        assert heard(other) == bytes([n])
    caller.close()
    assert other.event() == {"event": "closed"}
    assert other.event() == END
    assert waiting(b) == 0
    assert b.told("called")


def test_program_that_serves_ends_a_talk(a: Host, b: Host) -> None:
    """Its last message arrives before the end."""
    service = serve(b)
    caller = call(a)
    other = answer(b, service)
    say(other, b"no")
    other.close()
    assert heard(caller) == b"no"
    assert caller.event() == {"event": "closed"}


def test_any_port(b: Host) -> None:
    wire = ask(b, "serve", "b", port=0)
    assert wire.event()["port"] in ports.FREE_PORTS


def test_many_share_a_connection(a: Host, b: Host) -> None:
    service = serve(b)
    callers = [call(a, bytes([n])) for n in range(20)]
    others = [answer(b, service) for _ in callers]
    for other in others:
        say(other, b"yes")
    assert [heard(caller) for caller in callers] == [b"yes"] * 20
    assert len([link for link in a.links() if not link.end]) == 1


def test_listener_ends_before_the_answer(a: Host, b: Host) -> None:
    """A talk that the program has goes on."""
    service = serve(b)
    first, second = call(a), call(a)
    other = answer(b, service)
    until(lambda: waiting(b) == 2)
    service.close()
    say(other, b"yes")
    assert sorted(wire.event()["event"] for wire in (first, second)) == ["error", "heard"]


# Refusals ----------------------------------------------------------------------------


def test_nobody_serves(a: Host, b: Host) -> None:
    code, text = refused(call(a))
    assert code == "closed" and "no program serves port 7000 of 127.0.0.2" in text
    service = serve(b)
    service.close()
    assert refused(call(a))[0] == "closed"


def test_program_that_serves_again(a: Host, b: Host) -> None:
    """It is absent for a moment: the caller's agent repeats the talk."""
    caller = call(a)
    until(lambda: bool(b.told("refused")))
    say(answer(b, serve(b)), b"yes")
    assert heard(caller) == b"yes"


def test_absence_has_the_rate_of_busy(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls without success do not end the connection of other sessions."""
    assert refused(call(a))[0] == "closed"
    [link] = b.links()
    link._refusals = Pace(0)
    assert refused(call(a))[0] == "closed"
    assert not link.end
    link._busy = Pace(0)
    monkeypatch.setattr(dialogue, "ABSENT_REPEATS", 0)
    assert refused(call(a))[0] == "closed"
    until(lambda: bool(link.end) and not a.links())
    assert refused(call(a))[0] == "closed"  # in another connection


def test_port_that_is_served(b: Host) -> None:
    service = serve(b)
    assert refused(ask(b, "serve", "b", port=PORT))[0] == "taken"
    service.close()
    serve(b)


def test_no_port_is_free(b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "FREE_PORTS", range(PORT, PORT + 1))
    serve(b)
    assert refused(ask(b, "serve", "b", port=0))[0] == "taken"


def test_users_share_the_free_ports(b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user serves at most as many of them as others find, by number or not."""
    monkeypatch.setattr(ports, "FREE_PORTS", range(PORT, PORT + 4))
    first, _ = serve(b), serve(b, 0)
    for port in (0, *range(PORT, PORT + 4)):
        assert refused(ask(b, "serve", "b", port=port))[0] in ("quota", "taken")
    serve(b, PORT + 4)  # none of them
    others = [of_user(b, {"do": "serve", "port": 0}) for _ in range(2)]
    assert others[0].event()["event"] == "serving"
    code, text = refused(others[1])
    assert code == "quota" and f"only 1 ports from {PORT} on are free" in text
    first.close()
    until(lambda: len(services(b)) == 3)
    serve(b, 0)


@pytest.mark.parametrize("limit", ["PER_USER", "PER_HOST"])
def test_too_many_ports(b: Host, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(ports, limit, 2)
    monkeypatch.setattr(ports, "group", lambda user: "host left" if limit == "PER_HOST" else "")
    first, _ = serve(b), serve(b, PORT + 1)
    code, text = refused(ask(b, "serve", "b", port=0))
    assert code == "quota" and "serve 2 ports" in text
    if limit == "PER_USER":
        assert of_user(b, {"do": "serve", "port": 0}).event()["event"] == "serving"
    first.close()
    serve(b, 0)


KEY = bytes(range(ports.KEY_LEN))


def by_link(one: Host, link: int, key: object = KEY, user: str = "left:7") -> Wire:
    """A program of another computer serves the port."""
    wire = Wire(one.agent.open(user=user, link=link))
    one.wires.append(wire)
    wire.tell(
        {"do": "serve", "identity": "b", "peer": [], "worker": str(one.worker.path), "port": PORT,
         "key": key}
    )  # fmt: skip
    return wire


@pytest.fixture
def remote(b: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Host B, whose policy permits programs of another computer."""
    monkeypatch.setattr(b.policy, "permits", lambda *_: True)
    return b


def test_program_that_comes_back(a: Host, remote: Host) -> None:
    """By a newer link it has its port, whose talks that wait are refused. The agent of their
    callers repeats them."""
    former = by_link(remote, 1)
    assert former.event()["event"] == "serving"
    caller = call(a)
    assert former.event()["event"] == "called"
    service = by_link(remote, 2)
    assert service.event() == {"event": "serving", "port": PORT}
    assert former.event() == END
    assert service.event()["event"] == "called"
    caller.close()
    until(lambda: waiting(remote) == 0)
    for wire in (by_link(remote, 2), by_link(remote, 1)):
        assert refused(wire)[0] == "taken"
    service.close()
    assert serve(remote).sock


def test_program_that_comes_back_while_few_ports_are_free(
    remote: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its port still, though its user could not serve another one."""
    monkeypatch.setattr(ports, "FREE_PORTS", range(PORT, PORT + 2))
    assert by_link(remote, 1).event()["event"] == "serving"
    serve(remote, 0)
    assert by_link(remote, 2).event() == {"event": "serving", "port": PORT}


@pytest.mark.parametrize("changes", [{"key": bytes(16)}, {"key": b""}, {"user": "left:8"}])
def test_port_of_another_program(remote: Host, changes: dict[str, Any]) -> None:
    """A newer link alone proves nothing."""
    assert by_link(remote, 1).event()["event"] == "serving"
    assert refused(by_link(remote, 2, **changes))[0] == "taken"


def test_port_without_a_key(remote: Host) -> None:
    assert by_link(remote, 1, b"").event()["event"] == "serving"
    assert refused(by_link(remote, 2, b""))[0] == "taken"


@pytest.mark.parametrize("key", [bytes(15), bytes(17), "text", None])
def test_malformed_key(remote: Host, key: object) -> None:
    assert refused(by_link(remote, 1, key))[0] == "config"


def test_privileged_port(b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root may serve it."""
    monkeypatch.setattr(ports, "PRIVILEGED", PORT + 1)
    assert refused(of_user(b, {"do": "serve", "port": PORT}))[0] == "policy"
    monkeypatch.setattr(ports, "PRIVILEGED", PORT)
    assert of_user(b, {"do": "serve", "port": PORT}).event()["event"] == "serving"


def serve_qp(one: Host, qpn: int = 0x100, **changes: Any) -> Wire:
    return ask(one, "serve", "b", **{"qpn": qpn, "token": TOKEN, **changes})


def test_ud_qp(a: Host, b: Host) -> None:
    service = serve_qp(b)
    assert service.event() == {"event": "serving"}
    caller = call(a, to=[B, QPN_BIT | 0x100])
    other = answer(b, service)
    say(other, b"yes")
    assert heard(caller) == b"yes"
    assert refused(serve_qp(b)) == ("taken", "another program serves UD QP 0x000100")
    port = serve(b, 0x100)  # the port with this number is another service
    assert refused(call(a, to=[B, QPN_BIT | 0x101]))[0] == "closed"
    port.close()


def test_ud_qp_that_another_program_had(a: Host, b: Host) -> None:
    """The program that had the QP serves it still; the worker has given the QPN to another leg."""
    former = serve_qp(b)
    former.event()
    b.worker.tokens = {bytes([7]) * 16}
    service = serve_qp(b, token=bytes([7]) * 16)
    assert service.event() == {"event": "serving"}
    assert former.event() == END
    call(a, to=[B, QPN_BIT | 0x100])
    assert service.event()["event"] == "called"


def test_ud_qp_of_another_program(b: Host) -> None:
    b.worker.foreign = {0x100}
    code, text = refused(serve_qp(b))
    assert code == "config" and "QP 0x000100 is no new QP of this program" in text
    assert refused(serve_qp(b, 0x101, token=bytes(16)))[0] == "worker"
    assert refused(ask(b, "serve", "b", qpn=0x101))[0] == "config"


@pytest.mark.parametrize("qpn", [-1, 0, 1 << 24])
def test_ud_qp_out_of_range(a: Host, b: Host, qpn: int) -> None:
    assert refused(serve_qp(b, qpn))[0] == "value"
    assert refused(call(a, to=[B, QPN_BIT + qpn]))[0] == "config"


@pytest.mark.parametrize("number", [-1, 65_536])
def test_port_out_of_range(a: Host, b: Host, number: int) -> None:
    assert refused(ask(b, "serve", "b", port=number))[0] == "value"
    assert refused(call(a, to=[B, number]))[0] == "config"
    assert refused(call(a, **{"from": number}))[0] == "config"


@pytest.mark.parametrize(
    "changes",
    [{"to": [B, 0]}, {"to": [b"", 1]}, {"to": [B]}, {"data": bytes(257)}, {"data": "text"}],
)
def test_malformed_call(a: Host, b: Host, changes: dict[str, Any]) -> None:
    serve(b)
    assert refused(call(a, **changes))[0] == "config"
    assert waiting(b) == 0


def test_unknown_gid(a: Host) -> None:
    code, text = refused(call(a, to=[bytes(16), PORT]))
    assert code == "policy" and "no [[peer]]" in text


def test_worker_without_a_gid(folder: Path, port: int) -> None:
    one = Host(folder, "a", port=port, peers=entry(B, port))
    assert refused(call(one))[0] == "config"
    assert refused(ask(one, "serve", "a", port=PORT))[0] == "config"
    one.close()


def test_agent_is_not_there(a: Host) -> None:
    assert refused(call(a))[0] == "unreachable"


def test_another_host_calls_as_a_gid(b: Host, folder: Path, port: int) -> None:
    """Host C has the GID of A. The program does not see the call."""
    service = serve(b)
    thief = host(folder, A, port, names=["c"])
    code, text = refused(call(thief, name="c"))
    assert code == "identity" and "which may not have the GID 127.0.0.1" in text
    assert waiting(b) == 0
    thief.close()
    service.hang_up()
    assert service.events() == []


def test_another_host_answers_as_a_gid(a: Host, folder: Path, port: int) -> None:
    thief = host(folder, B, port, names=["c"])
    serve(thief, name="c")
    code, text = refused(call(a, b"secret"))
    assert code == "identity" and "which may not have the GID 127.0.0.2" in text
    assert not thief.told("called")
    thief.close()


def test_peers_of_the_programs(a: Host, b: Host) -> None:
    """Each program can narrow what the policy grants."""
    service = serve(b, peer=[uri("c")])
    assert refused(call(a))[0] == "identity"
    service.close()
    service = serve(b)
    assert refused(call(a, peer=[uri("c")]))[0] == "identity"
    caller = call(a)
    number = service.event()["talk"]
    assert refused(ask(b, "answer", "b", talk=number, peer=[uri("c")]))[0] == "identity"
    assert refused(caller)[0] == "identity"
    assert waiting(b) == 0


def test_identity_of_the_program_that_serves(a: Host, folder: Path, port: int) -> None:
    b = host(folder, B, port, names=["b", "c"])
    serve(b, name="c")
    code, text = refused(call(a))
    assert code == "identity" and "no program serves this port" in text
    b.close()


def test_other_gid_of_the_worker(a: Host, folder: Path, port: int) -> None:
    """The policy of A has the address of B for the GID of C."""
    b = host(folder, B, port)
    serve(b)
    a.file.write_text(a.file.read_text() + entry("10.0.0.9", f'"127.0.0.2:{port}"', uri("b")))
    a.agent.call(a.policy.load)
    to = [bytes(10) + b"\xff\xff\x0a\0\0\x09", PORT]
    assert refused(call(a, to=to))[0] == "closed"
    b.close()


def test_answers_to_no_talk(a: Host, b: Host) -> None:
    assert refused(ask(b, "answer", "b", talk=1))[0] == "closed"
    service = serve(b)
    call(a)
    number = service.event()["talk"]
    assert refused(of_user(b, {"do": "answer", "talk": number}))[0] == "closed"
    assert ask(b, "answer", "b", talk=number).event() == {"event": "talking"}
    assert refused(ask(b, "answer", "b", talk=number))[0] == "closed"


def test_caller_that_leaves(a: Host, b: Host) -> None:
    service = serve(b)
    caller = call(a)
    number = service.event()["talk"]
    caller.close()
    until(lambda: waiting(b) == 0)
    assert refused(ask(b, "answer", "b", talk=number))[0] == "closed"


def test_first_version(first_version: None, a: Host, b: Host) -> None:
    serve(b)
    code, text = refused(call(a))
    assert code == "version" and "needs srdma/2 at both agents" in text


def test_old_connection(a: Host, b: Host) -> None:
    """TALK is refused with `stale` there, and the caller repeats it once in another one."""
    service = serve(b)
    call(a)
    answer(b, service)
    old = a.links() + b.links()
    for link in b.links():
        link.made_at -= links.AGE_HERE + 1
    caller = call(a)
    say(answer(b, service), b"yes")
    assert heard(caller) == b"yes"
    assert any(link not in old for link in b.links())


def test_program_of_no_rights(a: Host) -> None:
    assert refused(call(a, name="b"))[0] == "policy"
    assert refused(ask(a, "serve", "b", port=PORT))[0] == "policy"


def test_private_agent(folder: Path) -> None:
    """It knows no GIDs."""
    agent = ThreadAgent()
    common = {"identity": str(folder / "a"), "peer": [], "worker": "/w"}
    for fields in (
        {"do": "serve", "port": PORT},
        {"do": "talk", "to": [B, PORT], "from": 0, "data": b""},
    ):
        wire = Wire(agent.open())
        wire.tell(common | fields)
        code, text = refused(wire)
        assert code == "config" and "system agent" in text
        wire.close()
    agent.close()


# Rules of a talk -----------------------------------------------------------------------


def test_caller_speaks_before_the_answer(a: Host, b: Host) -> None:
    service = serve(b)
    caller = call(a)
    other = answer(b, service)
    say(caller, b"again")
    assert refused(caller)[0] == "config"
    assert refused(other)[0] == "config"


@pytest.mark.parametrize("server", [True, False])
def test_too_many_messages(a: Host, b: Host, server: bool) -> None:
    _, caller, other = talking(a, b)
    one, peer = (other, caller) if server else (caller, other)
    for n in range(dialogue.SAYS_MAX - server):
        say(one, bytes([n]))
        assert heard(peer) == bytes([n])
    say(one, b"more")
    code, text = refused(one)
    assert code == "config" and "16 messages" in text
    assert refused(peer)[0] == "config"


@pytest.mark.parametrize(
    "request_of",
    [{"do": "renew", "wish": 1}, {"do": "say"}, {"do": "say", "data": bytes(257)},
     {"do": "say", "data": b"", "more": 1}, {"do": "say", "data": "text"}],
)  # fmt: skip
def test_malformed_request(a: Host, b: Host, request_of: dict[str, Any]) -> None:
    service = serve(b)
    caller = call(a)
    other = answer(b, service)
    other.tell(request_of)
    assert refused(other)[0] in ("config", "value")
    assert refused(caller)[0] in ("config", "value")


def test_request_of_a_listener(b: Host) -> None:
    service = serve(b)
    service.tell({"do": "say", "data": b""})
    assert refused(service)[0] == "config"


# Limits and ends -----------------------------------------------------------------------


def test_talks_that_wait(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """More are `busy`, and the caller's agent repeats them until there is room. A talk that the
    program has, and has not answered, counts."""
    monkeypatch.setattr(talks, "WAITING_PER_IDENTITY", 2)
    service = serve(b)
    callers = [call(a) for _ in range(4)]
    others = [answer(b, service) for _ in range(2)]
    assert waiting(b) == 2
    until(lambda: bool(b.told("refused")))
    for _ in range(2):
        say(others.pop(0), b"yes")
        others.append(answer(b, service))
    for other in others:
        say(other, b"yes")
    assert [heard(caller) for caller in callers] == [b"yes"] * 4
    assert waiting(b) == 0


@pytest.mark.parametrize(
    "limit", ["WAITING_PER_IDENTITY", "WAITING_PER_GID", "WAITING_MAX", "WAITING_OF_IDENTITY"]
)
def test_refusal_names_the_limit(
    b: Host, folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(talks, limit, 1)
    serve(b)
    stranger = Stranger(b, folder)
    stranger.send_on(1, talk_of())
    stranger.send_on(3, talk_of())
    told = decode(stranger.message()[4:])
    of = {
        "WAITING_MAX": "1 talks wait at port 7000",
        "WAITING_PER_IDENTITY": f"1 talks of identity {uri('a')} wait at port 7000",
        "WAITING_PER_GID": "1 talks of GID 127.0.0.1 wait at port 7000",
        "WAITING_OF_IDENTITY": f"1 talks of identity {uri('a')} wait at the ports of this user",
    }
    assert isinstance(told, ErrorMessage) and told.code == "busy"
    assert of[limit] in told.text
    stranger.close()


def test_other_identity_of_a_gid(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One identity has all places of its GID, and gives way to another one of this GID."""
    monkeypatch.setattr(talks, "WAITING_PER_GID", 2)
    with crowd_and_peer(folder, port) as (service, crowd, peer):
        for stream in (1, 3):
            crowd.send_on(stream, talk_of())
            service.event()
        peer.send_on(1, talk_of())
        assert crowd.error() == (1, "busy")
        assert service.event()["identity"] == "spiffe://test/other"
        crowd.send_on(5, talk_of())
        assert crowd.error() == (5, "busy")


@contextlib.contextmanager
def crowd_and_peer(folder: Path, port: int) -> Iterator[tuple[Wire, Stranger, Stranger]]:
    """The program that serves at B, and agents of two identities at the GID A."""
    own = ipaddress.ip_address("127.0.0.1")
    issue(folder / "ca", Names("spiffe://test/other", (own,)), folder / "other", force=True)
    entries = entry("127.0.0.1", port, "spiffe://test/*", san=True), entry(B, port)
    b = host(folder, B, port, *entries)
    crowd, peer = (Stranger(b, folder, name) for name in ("a-san", "other"))
    yield serve(b), crowd, peer
    crowd.close()
    peer.close()
    b.close()


def test_others_have_all_places(b: Host, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity with the most gives way to a peer, with its oldest talk that the program has
    not taken. Its connection is not charged for that."""
    monkeypatch.setattr(talks, "WAITING_MAX", 3)
    service = serve(b)
    crowd, peer = Stranger(b, folder), Stranger(b, folder, "c")
    for stream in (1, 3, 5):
        crowd.send_on(stream, talk_of())
    other = answer(b, service)  # of stream 1
    gone = service.event()["talk"]
    service.event()
    [link] = [link for link in b.links() if link.identity == uri("a")]
    link._busy = Pace(0)
    peer.send_on(1, talk_of(of=C))
    assert crowd.error() == (3, "busy")
    (told,) = b.told("refused")
    assert (told["code"], told["text"]) == ("busy", talks.GIVES_WAY)
    assert service.event()["identity"] == uri("c")
    assert refused(ask(b, "answer", "b", talk=gone)) == ("closed", talks.NO_LONGER)
    assert not link.end and waiting(b) == 3
    say(other, b"yes")
    assert decode(crowd.message()[4:]) == Say(b"yes")
    crowd.close()
    peer.close()


def test_identity_that_has_all_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A further talk of it takes the place of one of its own, and no other identity's too, though
    the port is full as well."""
    monkeypatch.setattr(talks, "WAITING_PER_IDENTITY", 4)
    monkeypatch.setattr(talks, "WAITING_MAX", 8)
    found, service = Places[int](), Mock()
    service.channel.uid = 7
    each = [("a", A)] * 4 + [("b", B)] * 4 + [("a", C)]
    waiting = [
        talks.Waiting(number, service, Mock(identity=identity), gid)
        for number, (identity, gid) in enumerate(each)
    ]
    for one in waiting[:-1]:
        found.add(one.number, one.limits)
    for one in waiting[:2]:  # the program has taken them
        found.fix(one.number, one.limits)
    assert found.make_room(waiting[-1].limits) == [2]


def test_user_whose_ports_are_full(b: Host, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of one user that leaves talks unanswered takes no places of another user."""
    monkeypatch.setattr(talks, "WAITING_OF_IDENTITY", 1)
    serve(b)
    other = of_user(b, {"do": "serve", "port": PORT + 1})
    other.event()
    stranger = Stranger(b, folder)
    for stream in (1, 3):
        stranger.send_on(stream, talk_of(port=PORT + 1))
    assert stranger.error() == (3, "busy")
    stranger.send_on(5, talk_of())
    until(lambda: waiting(b) == 2)
    stranger.close()


def test_gid_of_several_identities(
    folder: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs of one host take a part of the places, whatever their identities are."""
    monkeypatch.setattr(talks, "WAITING_PER_GID", 1)
    with crowd_and_peer(folder, port) as (service, first, second):
        first.send_on(1, talk_of())
        assert service.event()["event"] == "called"
        second.send_on(1, talk_of())
        assert second.error() == (1, "busy")


def test_caller_that_gives_up_while_busy(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talks, "WAITING_MAX", 0)
    serve(b)
    caller = call(a)
    until(lambda: bool(b.told("refused")))
    caller.close()
    until(lambda: not a.agent.call(lambda: a.agent.service._tasks))  # it is not repeated


def test_connection_is_lost(a: Host, b: Host) -> None:
    _, caller, other = talking(a, b)
    cut(a)
    assert refused(caller)[0] == "lost"
    assert refused(other)[0] == "lost"


def test_agent_ends(a: Host, b: Host) -> None:
    service, caller, other = talking(a, b)
    b.stop()
    assert other.event() == END and service.event() == END
    assert refused(caller)[0] == "lost"
    b.start()
    serve(b)


def test_identity_is_withdrawn(a: Host, b: Host) -> None:
    service = serve(b)
    caller = call(a)
    other = answer(b, service)
    b.agent.call(lambda: b.agent.service.withdraw(lambda name, user: False))
    for wire in (service, other):
        assert refused(wire)[0] == "policy"
        assert wire.event() == END
    code, text = refused(caller)
    assert code == "identity" and "withdrew" in text


def test_identity_is_withdrawn_before_the_answer(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is told, also while its talk waits to be repeated."""
    monkeypatch.setattr(talks, "WAITING_MAX", 0)
    monkeypatch.setattr(repeat.Pauses, "drawn", lambda *_: PATIENCE)
    serve(b)
    caller = call(a)
    until(lambda: bool(b.told("refused")))
    a.agent.call(lambda: a.agent.service.withdraw(lambda name, user: False))
    assert refused(caller)[0] == "policy"


# Repeated and refused talks ------------------------------------------------------------


def test_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is twice as long as the one before; an attempt in another connection does not count."""
    monkeypatch.setattr(repeat.random, "uniform", lambda least, most: most)
    pauses = repeat.Pauses()
    assert [pauses.drawn(0), pauses.drawn(0.1), pauses.drawn(0), pauses.drawn(0.1)] == [
        0,
        0.1,
        0,
        0.2,
    ]
    assert [pauses.drawn(0.1) for _ in range(7)][-2:] == [10, 10]


def test_absence_does_not_lengthen_the_pauses(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pauses for an absent program, and those for a busy one, are counted apart."""
    drawn: list[tuple[int, float]] = []
    real = repeat.Pauses.drawn

    def noted(pauses: repeat.Pauses, pause: float) -> float:
        if pause:
            drawn.append((id(pauses), pauses._factor))
        return min(real(pauses, pause), 0.01)

    monkeypatch.setattr(repeat.Pauses, "drawn", noted)
    monkeypatch.setattr(talks, "WAITING_MAX", 0)
    monkeypatch.setattr(dialogue, "ABSENT_REPEATS", 1 << 20)
    caller = call(a)
    until(lambda: bool(b.told("refused")))
    serve(b)
    until(lambda: len({which for which, _ in drawn}) == 2)
    caller.close()
    first = drawn[0][0]
    assert next(factor for which, factor in drawn if which != first) == 1


@pytest.mark.parametrize("way", ["closed", "identity", "left"])
def test_refused_talks_end_no_connection(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Programs cause them, and the sessions of others use the connection too."""
    monkeypatch.setattr(dialogue, "ABSENT_REPEATS", 0)
    service = None if way == "closed" else serve(b, peer=[uri("c")] if way == "identity" else [])
    for _ in range(2):
        caller = call(a)
        if service and way == "left":
            service.event()
            caller.close()
            until(lambda: waiting(b) == 0)
        else:
            assert refused(caller)[0] == way
        [link] = b.links()
        assert not link.end
        link._refusals = Pace(0)


def test_neighbour_that_ends_the_connection(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused calls of others end the connection. A talk that waits in it is repeated."""
    monkeypatch.setattr(dialogue, "ABSENT_REPEATS", 0)
    service = serve(b)
    caller = call(a)
    assert service.event()["event"] == "called"
    [link] = b.links()
    link._busy = Pace(0)
    assert refused(call(a, to=[B, PORT + 1]))[0] == "closed"
    say(answer(b, service), b"yes")
    assert heard(caller) == b"yes"
    assert link.end and link.end.error.code == "rate"


@pytest.mark.parametrize(
    ("code", "pause"), [("rate", 0.1), ("busy", 0.1), ("idle", 0.0), ("state", None)]
)
def test_error_of_the_connection(code: str, pause: float | None) -> None:
    """Also of one that was made for this call."""
    meeting: Any = SimpleNamespace(stream=SimpleNamespace(number=1))
    end = Truncated()
    assert repeat.pause_after(meeting, end, repeat.TALK) is None
    end.error = ExchangeError(code, "")
    assert repeat.pause_after(meeting, end, repeat.TALK) == pause


def test_user_who_calls_without_success(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further calls of this user wait, and those of another user do not. A call that is answered
    makes room."""
    a.agent.service.callers.limit = 2, 1e6
    monkeypatch.setattr(dialogue, "ABSENT_REPEATS", 0)
    service = serve(b)
    first = call(a)
    other = answer(b, service)
    call(a)
    answer(b, service)
    third = call(a)
    text = a.file.read_text()
    a.file.write_text(text.replace("users = [", "users = [12345, "))
    a.agent.call(a.policy.load)
    wire = Wire(a.agent.open(user=12345))
    a.wires.append(wire)
    wire.tell(
        {"do": "talk", "identity": "a", "peer": [], "worker": str(a.worker.path), "to": [B, PORT],
         "from": 0, "data": b"other"}
    )  # fmt: skip
    event = service.event()
    assert event["data"] == b"other"
    assert waiting(b) == 3
    say(other, b"yes")
    heard(first)
    answer(b, service)
    third.close()


def test_user_who_calls_nobody(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A talk that was refused is used up, and one that reached no agent is not."""
    a.agent.service.callers.limit = 1, 1e6
    monkeypatch.setattr(dialogue, "ABSENT_REPEATS", 0)
    for _ in range(3):
        assert refused(call(a, to=[C, PORT]))[0] == "unreachable"
    assert refused(call(a))[0] == "closed"
    caller = call(a)
    until(lambda: a.agent.call(lambda: callers_of(a)[0]._turn.locked()))
    caller.close()
    until(lambda: not a.agent.call(lambda: callers_of(a)[0]._turn.locked()))


def callers_of(one: Host) -> list[calls.Calls]:
    return [*one.agent.service.callers._of.values()]


def test_calls_of_a_host() -> None:
    """A host can name any number of users: they are one."""
    callers = calls.Callers(calls.UNANSWERED)
    assert callers.of("left:0") is callers.of("left:1")
    assert callers.of("left:0") is not callers.of("right:0")
    assert callers.of(0) is not callers.of(1)


@pytest.mark.parametrize(("every", "failed"), [(1e-6, 0), (1e6, 1)])
def test_calls_count_while_they_wait(every: float, failed: int) -> None:
    """Time makes room for calls that failed, and not for those that have no answer."""

    async def run() -> None:
        user = calls.Calls(1 + failed, every)
        for _ in range(failed):
            (await user.begin()).end(failed=True)
        slow = await user.begin()
        further = asyncio.ensure_future(user.begin())
        await asyncio.sleep(0.05)
        assert not further.done()
        slow.end(failed=False)
        await further
        slow.end(failed=True)  # without effect
        assert user._failed.used(time.monotonic()) == failed

    asyncio.run(run())


# Messages of an agent that breaks the rules ---------------------------------------------


def talk_of(**changes: Any) -> bytes:
    return encode(Talk(**{"of": A, "gid": B, "port": PORT} | changes))


def test_message_before_the_answer(b: Host, folder: Path) -> None:
    service = serve(b)
    stranger = Stranger(b, folder)
    stranger.send_on(1, talk_of())
    number = service.event()["talk"]
    stranger.send_on(1, encode(Say(b"")))
    assert stranger.error() == (1, "state")
    assert refused(ask(b, "answer", "b", talk=number))[0] == "closed"
    stranger.send_on(3, talk_of())
    other = answer(b, service)
    stranger.send_on(3, encode(Say(b"")))
    assert stranger.error() == (3, "state")
    assert refused(other)[0] == "state"
    stranger.close()


def test_wrong_messages_of_a_stranger(b: Host, folder: Path) -> None:
    service = serve(b)
    stranger = Stranger(b, folder)
    stranger.send_on(1, encode(Say(b"")))
    assert stranger.error() == (1, "state")
    stranger.send_on(3, talk_of(of=C))
    assert stranger.error() == (3, "identity")
    stranger.send_on(5, talk_of())
    other = answer(b, service)
    say(other, b"yes")
    stranger.message()
    stranger.send_on(5, encode(Ready()))
    assert stranger.error() == (5, "state")
    assert refused(other)[0] == "state"
    stranger.send_on(7, talk_of())
    other = answer(b, service)
    say(other, b"yes")
    stranger.message()
    for _ in range(dialogue.SAYS_MAX + 1):
        stranger.send_on(7, encode(Say(b"x")))
    assert stranger.error() == (7, "state")
    stranger.send_on(9, talk_of())
    other = answer(b, service)
    stranger.send_on(9, encode(ClosedMessage()))
    assert other.event() == {"event": "closed"}
    stranger.close()


# Messages ---------------------------------------------------------------------------------


def test_messages_are_read_back() -> None:
    for message in (Talk(A, B, 1, 2, b"data"), Say(b"data"), Say(b"")):
        assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [Talk(A, B, 0), Talk(A, B, 65_536), Talk(A, B, 1, 65_536), Talk(b"", B, 1), Talk(A, A + B, 1),
     Talk(A, B, 1, 0, bytes(257)), Say(bytes(257))],
)  # fmt: skip
def test_values_out_of_range(message: Talk | Say) -> None:
    with pytest.raises(ExchangeError) as found:
        decode(encode(message))
    assert found.value.code == "value"
