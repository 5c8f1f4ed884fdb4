"""Rendezvous by (GID, QPN) (protocol.md 8.8, agent.md 11): system agents in threads of the test,
with workers that only respond."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from srdma import gid as gids
from srdma.agent import links, rendezvous
from srdma.agent.rendezvous import Call, Rendezvous
from srdma.control import Control, Hello
from srdma.errors import Error, Timeout, WorkerGone
from srdma.gid import QPName
from srdma.identity import Names, issue
from srdma.keyex import streams
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ClosedMessage, ErrorMessage, Offer, Ready, encode
from srdma.keyex.offers import To
from srdma.keyex.pace import Pace
from srdma.keyex.tls import Truncated
from tests.exchange_players import GCM, end
from tests.gid_players import NAMES, A, B, C, Stranger, entry, host, identities, running, uri
from tests.host_players import Host, cut, renews
from tests.keyex_players import Wire, until
from tests.ports import free_port

pytestmark = pytest.mark.usefixtures("quick_links")

LOW, HIGH = 0x100, 0x200  # QPNs: the end with the lower one is the client


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


@pytest.fixture
def c(folder: Path, port: int) -> Iterator[Host]:
    yield from running(folder, C, port)


def call(one: Host, qpn: int, gid: bytes, theirs: int, **changes: Any) -> Wire:
    """A program connects its QP with the QP `theirs` of the worker with a GID."""
    name = changes.pop("name", NAMES.get(one.worker.gid, "a"))
    settings = one.settings("client", name, qpn) | {"peer": []} | changes
    return one.open(settings | {"do": "connect", "to": [gid, theirs]})


def meet(*wires: Wire) -> None:
    for wire in wires:
        assert [wire.event()["event"], wire.event()["event"]] == ["peer", "ready"]


def refused(wire: Wire) -> tuple[str, str]:
    """Code and text of the error that ends a call."""
    [error] = [event for event in wire.events() if event["event"] == "error"]
    return error["code"], error["text"]


def offers(one: Host) -> int:
    """How many OFFERs wait for a program."""
    return one.agent.call(lambda: len(one.agent.service.rendezvous._offers))


def offerers(one: Host) -> set[str]:
    """Of the peers whose OFFERs wait for a program."""
    waiting = one.agent.service.rendezvous._offers
    return one.agent.call(lambda: {meeting.identity for meeting in waiting.values()})


def calls(one: Host) -> int:
    """How many programs wait for an OFFER."""
    return one.agent.call(lambda: len(one.agent.service.rendezvous._calls))


def role(one: Host) -> int:
    """The role in KEYS: 0 client, 1 server."""
    [keys] = one.worker.keys
    return int(keys[1])


# The main path ----------------------------------------------------------------------


@pytest.mark.parametrize("first", ["client", "server"])
def test_rendezvous(a: Host, b: Host, first: str) -> None:
    if first == "client":
        client = call(a, LOW, B, HIGH)
        until(lambda: offers(b) == 1)
        server = call(b, HIGH, A, LOW)
    else:
        server = call(b, HIGH, A, LOW)
        until(lambda: calls(b) == 1)
        client = call(a, LOW, B, HIGH)
    meet(client, server)
    assert (role(a), role(b), offers(b), calls(b)) == (0, 1, 0, 0)
    renews(client, 1)
    renews(server, 1)


@pytest.mark.parametrize(("qpns", "roles"), [((7, 6), (1, 0)), ((7, 8), (0, 1)), ((7, 7), (0, 1))])
def test_roles(a: Host, b: Host, qpns: tuple[int, int], roles: tuple[int, int]) -> None:
    """With equal QPNs the lower GID is the client's."""
    meet(call(a, qpns[0], B, qpns[1]), call(b, qpns[1], A, qpns[0]))
    assert (role(a), role(b)) == roles


def test_two_qps_of_one_worker(a: Host) -> None:
    meet(call(a, HIGH, A, LOW), call(a, LOW, A, HIGH))


def test_many_between_two_agents_share_a_connection(a: Host, b: Host) -> None:
    """Also if the server's agent made it."""
    pairs = [(n, 100 - n) for n in range(1, 40)]
    wires = [call(a, mine, B, theirs) for mine, theirs in pairs]
    wires += [call(b, theirs, A, mine) for mine, theirs in pairs]
    wires += [call(b, 200 + n, A, 300 + n) for n in range(3)]
    wires += [call(a, 300 + n, B, 200 + n) for n in range(3)]
    meet(*wires)
    assert 1 <= len([link for link in a.links() if not link.end]) <= 2


def test_session_resumes(a: Host, b: Host) -> None:
    client, server = call(a, LOW, B, HIGH), call(b, HIGH, A, LOW)
    meet(client, server)
    cut(a)
    until(lambda: bool(a.told("resumed") and b.told("resumed")))
    renews(client, 1)
    renews(server, 1)


def test_agents_restart(a: Host, b: Host) -> None:
    meet(call(a, LOW, B, HIGH), call(b, HIGH, A, LOW))
    done = a.completed(), b.completed()
    for one in (a, b):
        one.stop()
    for one in (a, b):
        one.start()
    until(lambda: a.completed() > done[0] and b.completed() > done[1])
    assert not a.worker.expired + b.worker.expired


# Limits of time ---------------------------------------------------------------------


def test_server_whose_peer_does_not_call(b: Host) -> None:
    code, text = refused(call(b, HIGH, A, LOW, timeout=0.2))
    assert code == "timeout" and "QP 0x000100 of 127.0.0.1, whose program must call too" in text
    assert calls(b) == 0


def test_client_whose_peer_does_not_call(a: Host, b: Host) -> None:
    """A call of the server that comes too late waits for another OFFER."""
    code, text = refused(call(a, LOW, B, HIGH, timeout=0.5))
    assert code == "timeout" and "CHOICE" in text
    server = call(b, HIGH, A, LOW)
    until(lambda: calls(b) == 1 and offers(b) == 0)
    meet(call(a, LOW, B, HIGH), server)


def test_programs_that_give_up(a: Host, b: Host) -> None:
    server = call(b, HIGH, A, LOW)
    until(lambda: calls(b) == 1)
    server.close()
    assert calls(b) == 0
    client = call(a, LOW, B, HIGH)
    until(lambda: offers(b) == 1)
    client.close()
    meet(call(b, HIGH, A, LOW), call(a, LOW, B, HIGH))


def test_second_offer_replaces_the_first(a: Host, b: Host) -> None:
    first = call(a, LOW, B, HIGH)
    until(lambda: offers(b) == 1)
    second = call(a, LOW, B, HIGH)
    code, text = refused(first)
    assert code == "state" and "replaces" in text
    meet(second, call(b, HIGH, A, LOW))


# Whose GID it is --------------------------------------------------------------------


def test_another_host_calls_as_a_gid(a: Host, b: Host, folder: Path, port: int) -> None:
    """Host C has the GID of B. The call that waits for B goes on."""
    server = call(a, HIGH, B, LOW)
    until(lambda: calls(a) == 1)
    thief = host(folder, B, port, names=["c"], address="127.0.0.3")
    code, text = refused(call(thief, LOW, A, HIGH, name="c"))
    assert code == "identity" and f"{uri('c')}, which may not have the GID 127.0.0.2" in text
    assert [line["code"] for line in a.told("refused")] == ["identity"]
    thief.close()
    meet(call(b, LOW, A, HIGH), server)


def test_another_host_answers_as_a_gid(a: Host, folder: Path, port: int) -> None:
    """Host C is at the address of the agent of B."""
    thief = host(folder, B, port, names=["c"])
    server = call(thief, HIGH, A, LOW, name="c", timeout=1.0)
    code, text = refused(call(a, LOW, B, HIGH))
    assert code == "identity" and f"{uri('c')}, which may not have the GID 127.0.0.2" in text
    assert not a.worker.keys and refused(server)[0] == "timeout"
    thief.close()


@pytest.mark.parametrize("own", ["c-san", "b"])
def test_certificate_without_the_gid(own: str, folder: Path, port: int) -> None:
    """Neither another address in it nor none gives the GID, to the client or to the server."""
    known = entry("127.0.0.0/24", port, "spiffe://test/*", san=True)
    a, b = host(folder, A, port, known, names=["a-san"]), host(folder, B, port, known, names=[own])
    for mine, theirs in ((LOW, HIGH), (HIGH, LOW)):
        waits = call(a, mine, B, theirs, name="a-san", timeout=1.0)
        other = call(b, theirs, A, mine, name=own, timeout=1.0)
        client, server = (waits, other) if mine < theirs else (other, waits)
        code, text = refused(client)
        assert code == "identity" and "which may not have the GID 127.0.0.2" in text
        assert refused(server)[0] == "timeout"
    a.close()
    b.close()


def test_certificate_with_the_gid(folder: Path, port: int) -> None:
    known = entry("127.0.0.0/24", port, "spiffe://test/*", san=True)
    a, b = (host(folder, gid, port, known, names=[f"{NAMES[gid]}-san"]) for gid in (A, B))
    for mine, theirs in ((LOW, HIGH), (HIGH + 1, LOW + 1)):
        meet(
            call(a, mine, B, theirs, name="a-san"),
            call(b, theirs, A, mine, name="b-san"),
        )
    a.close()
    b.close()


def test_mapped_address_in_a_certificate(folder: Path, port: int) -> None:
    """It is no name of an IPv4 GID (RFC 5280 4.2.1.6)."""
    mapped = ipaddress.IPv6Address("::ffff:127.0.0.2")
    issue(folder / "ca", Names(uri("b"), (mapped,)), folder / "b-mapped")
    known = entry("127.0.0.0/24", port, "spiffe://test/*", san=True)
    a = host(folder, A, port, known, names=["a-san"])
    b = host(folder, B, port, known, names=["b-mapped"])
    code, text = refused(call(b, LOW, A, HIGH, name="b-mapped"))
    assert code == "identity" and "which may not have the GID" in text
    a.close()
    b.close()


def test_peers_of_the_program(a: Host, b: Host) -> None:
    """A program can narrow what the policy grants."""
    server = call(b, HIGH, A, LOW, peer=[uri("c")])
    code, text = refused(call(a, LOW, B, HIGH))
    assert (code, refused(server)[0]) == ("identity", "identity")
    assert "not allowed" in text


def test_identity_of_the_server_program(folder: Path, port: int, a: Host) -> None:
    """It is the one that the client asked for by SNI."""
    b = host(folder, B, port, names=["b", "c"])
    server = call(b, HIGH, A, LOW, name="c")
    assert refused(call(a, LOW, B, HIGH))[0] == "identity"
    assert refused(server)[0] == "policy"
    b.close()


def test_identities_with_the_same_uri(a: Host, folder: Path, port: int) -> None:
    """The port presents one of them. The program may have the other one."""
    for suffix in ("pem", "key"):
        (folder / f"b2.{suffix}").write_bytes((folder / f"b.{suffix}").read_bytes())
    b = host(
        folder, B, port, names=["b", "b2", "b-san"]
    )  # the last one has a certificate of its own
    for n, name in enumerate(("b", "b2", "b-san")):
        meet(call(a, LOW + n, B, HIGH + n), call(b, HIGH + n, A, LOW + n, name=name))
    b.close()


def test_gid_that_the_policy_loses(a: Host, b: Host, port: int) -> None:
    """The QPs end at the next renewal."""
    client, server = call(a, LOW, B, HIGH), call(b, HIGH, A, LOW)
    meet(client, server)
    text = a.file.read_text()
    a.file.write_text(text.replace(uri("b"), uri("c")))
    a.agent.call(a.policy.load)
    client.tell({"do": "renew", "wish": 1})
    code, why = refused(client)
    assert code == "identity" and "by the policy of this end" in why
    assert a.worker.expired == [LOW]
    assert refused(server)[0] == "identity"


def test_peer_that_the_policy_loses(a: Host, b: Host) -> None:
    """The QPs end at the next renewal."""
    client, server = call(a, LOW, B, HIGH), call(b, HIGH, A, LOW)
    meet(client, server)
    text = a.file.read_text()
    a.file.write_text(text.replace("users =", f'peers = ["{uri("c")}"]\nusers ='))
    a.agent.call(a.policy.load)
    client.tell({"do": "renew", "wish": 1})
    code, why = refused(client)
    assert code == "identity" and "not allowed" in why
    assert a.worker.expired == [LOW]
    assert refused(server)[0] == "identity"


def test_gid_that_the_certificate_loses(folder: Path, port: int) -> None:
    """The QPs end at the next renewal."""
    ca, changes = folder / "ca", folder / "b-changes"
    issue(ca, Names(uri("b"), (ipaddress.ip_address("127.0.0.2"),)), changes)
    a = host(folder, A, port, entry("127.0.0.0/24", port, "spiffe://test/*", san=True))
    b = host(folder, B, port, names=["b-changes"])
    client, server = call(a, LOW, B, HIGH), call(b, HIGH, A, LOW, name="b-changes")
    meet(client, server)
    renews(client, 1)
    issue(ca, uri("b"), changes, force=True)
    b.agent.call(b.policy.load)
    client.tell({"do": "renew", "wish": 2})
    code, why = refused(client)
    assert code == "identity" and "by a subjectAltName of its certificate" in why
    assert a.worker.expired == [LOW]
    assert refused(server)[0] == "identity"
    a.close()
    b.close()


def test_gid_that_the_policy_loses_while_an_offer_waits(a: Host, b: Host) -> None:
    """The server compares once more when its program calls."""
    client = call(a, LOW, B, HIGH)
    until(lambda: offers(b) == 1)
    text = b.file.read_text()
    b.file.write_text(text.replace(uri("a"), uri("c")))
    b.agent.call(b.policy.load)
    code, why = refused(call(b, HIGH, A, LOW))
    assert code == "identity" and "by the policy of this end" in why
    assert refused(client)[0] == "identity"
    assert not b.worker.keys and offers(b) == 0


def test_unknown_gid(b: Host, folder: Path, port: int) -> None:
    a = host(folder, A, port, entry(A, port))
    for mine, theirs in ((LOW, HIGH), (HIGH, LOW)):
        code, text = refused(call(a, mine, B, theirs))
        assert code == "policy" and "has no [[peer]] with the GID 127.0.0.2" in text
    code, text = refused(call(b, LOW, A, HIGH))
    assert code == "identity" and "does not know this GID" in text
    a.close()


def test_agent_of_another_gid(a: Host, folder: Path, port: int) -> None:
    """The policy of A has the address of B for the GID of C."""
    b = host(folder, B, port)
    where = f'"127.0.0.2:{port}"'
    a.file.write_text(a.file.read_text() + entry("10.0.0.9", where, uri("b")))
    a.agent.call(a.policy.load)
    code, why = refused(call(a, LOW, gids.parse("10.0.0.9"), HIGH))
    assert code == "closed" and "the GID here is 127.0.0.2" in why
    b.close()


# Whose QP it is ---------------------------------------------------------------------


@pytest.mark.parametrize("qpn", [LOW, HIGH])
def test_qp_of_another_program(a: Host, qpn: int) -> None:
    """Nothing waits under its number."""
    a.worker.foreign = {qpn}
    code, text = refused(call(a, qpn, B, LOW + HIGH - qpn))
    assert code == "config" and f"QP {qpn:#08x} is no new QP of this program" in text
    assert calls(a) == 0


def test_qp_that_is_connected(a: Host, b: Host) -> None:
    meet(call(a, LOW, B, HIGH), call(b, HIGH, A, LOW))
    for one, mine, gid, theirs in ((a, LOW, B, HIGH), (b, HIGH, A, LOW)):
        code, text = refused(call(one, mine, gid, theirs))
        assert code == "config" and "is connected already" in text


def test_two_calls_of_one_qp(a: Host, b: Host) -> None:
    """The second one is refused, and the first goes on."""
    server = call(b, HIGH, A, LOW)
    until(lambda: calls(b) == 1)
    code, text = refused(call(b, HIGH, A, LOW))
    assert code == "config" and "is under way already" in text
    meet(call(a, LOW, B, HIGH), server)


def test_qp_that_calls_itself(a: Host) -> None:
    code, text = refused(call(a, LOW, A, LOW))
    assert code == "config" and "with itself" in text


def test_several_qps(a: Host) -> None:
    two = [one | {"qpn": LOW + n} for n in range(2) for one in a.settings("client", "a", 1)["qps"]]
    code, text = refused(call(a, LOW, B, HIGH, qps=two))
    assert code == "config" and "one QP, not 2" in text


def test_worker_without_a_gid(folder: Path, port: int) -> None:
    one = Host(folder, "a", port=port, peers=entry(B, port))
    code, text = refused(call(one, LOW, B, HIGH))
    assert code == "config" and "--gid" in text
    one.close()


@pytest.mark.parametrize("to", [[b"", 1], [A, "1"], [A], [A + b"0", 1], ["127.0.0.1", 1]])
def test_malformed_call(a: Host, to: list[Any]) -> None:
    settings = a.settings("client", "a", LOW)
    assert refused(a.open(settings | {"do": "connect", "to": to}))[0] == "config"


@pytest.mark.parametrize("qpn", [0, -1, 1 << 24])
def test_qpn_out_of_range(a: Host, b: Host, qpn: int) -> None:
    code, text = refused(call(a, LOW, B, qpn))
    assert code == "config" and "1 to 16777215" in text
    assert offers(b) == 0


# Limits -----------------------------------------------------------------------------


def test_offers_of_an_identity(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """More are `busy`, and the client repeats them until there is room."""
    monkeypatch.setattr(rendezvous, "OFFERS_PER_IDENTITY", 2)
    wires = [call(a, n, B, HIGH + n) for n in range(1, 5)]
    until(lambda: offers(b) == 2)
    wires += [call(b, HIGH + n, A, n) for n in range(1, 5)]
    meet(*wires)
    assert offers(b) == 0


def test_offers_of_all(a: Host, b: Host, c: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """An OFFER whose client has given up does not count."""
    monkeypatch.setattr(rendezvous, "OFFERS_MAX", 1)
    first = call(a, LOW, C, HIGH)
    until(lambda: offers(c) == 1)
    code, text = refused(call(b, LOW, C, HIGH, timeout=0.3))
    assert code in ("busy", "timeout"), text
    second = call(b, LOW, C, HIGH)
    first.close()
    until(lambda: offers(c) == 1)
    meet(call(c, HIGH, B, LOW), second)


def test_agent_that_has_not_met_its_worker(folder: Path, port: int, a: Host) -> None:
    """An OFFER waits until the worker has started, and is refused if it has another GID."""
    b = host(folder, B, port)
    b.agent.call(lambda: b.agent.service.rendezvous.know(gids.NONE))
    clients = [call(a, LOW, B, HIGH), call(a, LOW + 1, B, HIGH + 1)]
    until(lambda: offers(b) == 2)
    meet(call(b, HIGH, A, LOW), clients[0])
    b.agent.call(lambda: b.agent.service.rendezvous.know(C))
    code, text = refused(clients[1])
    assert code == "closed" and "the GID here is 127.0.0.3" in text
    assert offers(b) == 0
    b.close()


def test_worker_that_ends(a: Host, b: Host) -> None:
    """Its GID is not known any more."""
    b.worker.close()
    until(lambda: b.agent.call(lambda: b.agent.service.rendezvous.gid) == gids.NONE)


@pytest.mark.parametrize("error", [WorkerGone, Timeout])
def test_worker_that_does_not_say_its_gid(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch, error: type[Error]
) -> None:
    """It is asked again for the next program. No GID stays known when it ends."""
    service, answer = b.agent.service, Control.hello
    parted = [*service._workers._met]
    for met in parted:
        b.agent.call(met.close)
    until(lambda: not service._workers._met)
    failures = [error("no answer to HELLO")]

    def hello(control: Control) -> Hello:
        if failures:
            raise failures.pop()
        return answer(control)

    monkeypatch.setattr(Control, "hello", hello)
    code, text = refused(call(b, HIGH, A, LOW))
    assert (code, text) == ("worker", "no answer to HELLO")
    assert not service._workers._met
    meet(call(b, HIGH, A, LOW), call(a, LOW, B, HIGH))
    assert service.rendezvous.gid == B
    b.worker.close()
    until(lambda: b.agent.call(lambda: service.rendezvous.gid) == gids.NONE)
    assert not service._workers._met


def test_offer_gives_way_to_other_identities(
    a: Host, b: Host, c: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity with the most OFFERs gives its oldest one up, which comes back later."""
    monkeypatch.setattr(rendezvous, "OFFERS_MAX", 3)
    wires = [call(a, n, C, HIGH + n) for n in (1, 2, 3)]
    until(lambda: offers(c) == 3)
    second = call(b, LOW, C, HIGH)
    until(lambda: len(offerers(c)) == 2)
    meet(call(c, HIGH, B, LOW), second)
    meet(*wires, *(call(c, HIGH + n, A, n) for n in (1, 2, 3)))


def test_busy_has_a_rate_of_its_own(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that are `busy` for some time do not end the connection of other sessions."""
    meet(call(a, LOW, B, HIGH), call(b, HIGH, A, LOW))
    monkeypatch.setattr(rendezvous, "OFFERS_PER_IDENTITY", 1)
    for link in b.links():
        link._refusals = Pace(1)
    wires = [call(a, n, B, HIGH + n) for n in range(1, 5)]
    until(lambda: len(b.told("refused")) >= 6)
    meet(*wires, *(call(b, HIGH + n, A, n) for n in range(1, 5)))
    assert not a.told("lost")


def test_abandoned_calls_end_no_connection(a: Host, b: Host) -> None:
    """Programs cause them, and the sessions of others use the connection too."""
    meet(call(a, LOW, B, HIGH), call(b, HIGH, A, LOW))
    for link in b.links():
        link._refusals = Pace(0)
    wire = call(a, 1, B, HIGH + 1)
    until(lambda: offers(b) == 1)
    wire.close()
    until(lambda: offers(b) == 0)
    meet(call(a, 2, B, HIGH + 2), call(b, HIGH + 2, A, 2))
    assert not a.told("lost")


def test_calls_without_an_answer(a: Host, b: Host) -> None:
    """Further calls of the user wait, and an answer makes room."""
    a.agent.service.callers.limit = 1, 1e6
    first = call(a, 1, B, HIGH + 1)
    until(lambda: offers(b) == 1)
    second = call(a, 2, B, HIGH + 2)
    until(lambda: a.agent.call(lambda: a.agent.service.callers.of(os.getuid())._turn.locked()))
    assert offers(b) == 1
    meet(first, call(b, HIGH + 1, A, 1))
    meet(second, call(b, HIGH + 2, A, 2))


class Client(Stranger):
    """A host that may call as A, and sends what it wants."""

    def offer(self, number: int, qpn: int = LOW) -> None:
        ends = (end(qpn, os.urandom(16)),)
        to = To(A, B, HIGH)
        self.send_on(number, encode(Offer((GCM,), (0,), "", os.urandom(32), ends, to=to)))


class Waiting:
    """A meeting without a connection. refusals: codes of refuse()."""

    def __init__(self, identity: str = "a") -> None:
        self.identity, self.refusals = uri(identity), list[str]()
        self.certificate = None  # not needed without `san`
        link = SimpleNamespace(refused=lambda _: None, address="192.0.2.1")
        self.stream = SimpleNamespace(watch=lambda _: None, link=link)

    def refuse(self, error: ExchangeError) -> None:
        self.refusals.append(error.code)


def server_of(b: Rendezvous, qpn: int, waiting: Waiting, of: bytes = A) -> None:
    """of: the GID of the client."""
    offer = Offer((GCM,), (0,), "", bytes(32), (end(qpn, bytes(16)),))
    b.offered(cast(Any, waiting), offer, To(of, B, HIGH))


@pytest.fixture
def alone() -> Rendezvous:
    """A rendezvous whose policy permits all peers."""
    return Rendezvous(Mock(), lambda _: cast(Any, SimpleNamespace(check=lambda *_: None)))


def test_identity_with_the_most_offers_gives_no_way_to_itself(
    alone: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "OFFERS_MAX", 4)
    waiting = [Waiting(name) for name in "aaac"]
    for number, one in enumerate(waiting, 1):
        server_of(alone, number, one)
    with pytest.raises(ExchangeError, match="too many OFFERs") as caught:
        server_of(alone, 5, Waiting("a"))
    assert caught.value.code == "busy" and not any(one.refusals for one in waiting)
    server_of(alone, 6, Waiting("c"))
    assert [one.refusals for one in waiting] == [["busy"], [], [], []]
    cast(Mock, alone._audit).assert_called_once_with(
        "refused", address="192.0.2.1", code="busy", text=rendezvous.BUSY_TEXT
    )


def test_gids_share_the_places_of_their_identity(
    alone: Rendezvous, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "OFFERS_PER_IDENTITY", 3)
    waiting = [Waiting() for _ in range(3)]
    for number, one in enumerate(waiting, 1):
        server_of(alone, number, one)
    server_of(alone, 4, Waiting(), of=C)
    assert [one.refusals for one in waiting] == [["busy"], [], []]
    with pytest.raises(ExchangeError, match="too many OFFERs"):
        server_of(alone, 1, Waiting())


def test_program_gives_up_as_an_offer_arrives(alone: Rendezvous) -> None:
    """The client learns that the call is over."""

    async def give_up() -> Waiting:
        met = asyncio.ensure_future(alone.met(Call(QPName(B, HIGH), QPName(A, LOW)), cast(Any, 0)))
        await asyncio.sleep(0)
        waiting = Waiting()
        server_of(alone, LOW, waiting)
        met.cancel()
        await asyncio.wait({met})
        assert met.cancelled()
        return waiting

    assert asyncio.run(give_up()).refusals == ["closed"]
    assert not alone._calls and not alone._offers


def test_message_behind_a_waiting_offer(b: Host, folder: Path) -> None:
    client = Client(b, folder)
    client.offer(1)
    until(lambda: offers(b) == 1)
    client.send_on(1, encode(Ready()))
    assert client.error() == (1, "state")
    assert offers(b) == 0
    client.close()


@pytest.mark.parametrize("end", [encode(ClosedMessage()), encode(ErrorMessage("timeout", "late"))])
def test_client_that_gives_up(b: Host, folder: Path, end: bytes) -> None:
    """Its OFFER is dropped at once."""
    client = Client(b, folder)
    client.offer(1)
    until(lambda: offers(b) == 1)
    client.send_on(1, end)
    until(lambda: offers(b) == 0)
    client.offer(3)
    until(lambda: offers(b) == 1)
    client.close()
    until(lambda: offers(b) == 0)
    assert not b.agent.call(lambda: b.agent.service.rendezvous._places._crowds)


@pytest.mark.parametrize("how", ["replaced", "abandoned"])
def test_offers_have_a_rate(
    b: Host, folder: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """OFFERs that replace each other, or end at once, end the connection, as `busy` does."""
    monkeypatch.setattr(streams, "REFUSALS", 3)
    monkeypatch.setattr(streams, "BUSY_REFUSALS", (3, 1.0))
    client = Client(b, folder)
    told = []
    with contextlib.suppress(Truncated, ExchangeError, OSError):
        for number in range(1, 21, 2):
            client.offer(number)
            if how == "abandoned":
                client.send_on(number, encode(ClosedMessage()))
        while True:
            told.append(client.error())
    assert told[-1] == (0, "rate")
    assert offers(b) == 0


def test_old_connection(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """An OFFER that waited in one is refused with `stale`, and the client repeats it once."""
    client = call(a, LOW, B, HIGH)
    until(lambda: offers(b) == 1)
    old = {link: link.made_at for link in b.links()}
    for link in old:
        link.made_at -= links.AGE_HERE + 1
    server = call(b, HIGH, A, LOW)
    meet(client, server)
    assert len(b.links()) > len(old) or not any(link in old for link in b.links())


def test_program_of_no_rights(a: Host, b: Host) -> None:
    settings = a.settings("client", "b", LOW) | {"do": "connect", "to": [B, HIGH]}
    assert refused(a.open(settings))[0] == "policy"
    assert offers(b) == 0 and os.getuid() == a.worker.owner[0]


def test_first_version(first_version: None, a: Host, b: Host) -> None:
    code, text = refused(call(a, LOW, B, HIGH))
    assert code == "version" and "needs srdma/2 at both agents" in text
    assert not a.worker.keys
