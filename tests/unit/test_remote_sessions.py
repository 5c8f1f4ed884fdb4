"""Sessions of programs on another computer whose link ends and comes back (control-link.md 2.5)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from srdma.agent import session as sessions
from srdma.agent.remote import entries
from srdma.agent.session import LOST
from srdma.keyex.messages import ClosedMessage, Rekey
from tests.exchange_players import NONE
from tests.keyex_players import END, FakeWorker, Wire, load, patient, until
from tests.ports import free_port
from tests.resume_players import ResumingPeer
from tests.unit.test_takeover import (
    PEER_CLOSED,
    ROLES,
    TOKEN,
    UID,
    Place,
    Running,
    refusal,
    session,
    settings_at,
)

pytestmark = pytest.mark.usefixtures("short_links")

USER, OTHER = "left:1000", "left:1001"
HOST = """
[control]
listen = "127.0.0.1:4794"
path = "b"
[[host]]
name = "left"
identity = "spiffe://test/left"
identities = ["host-b"]
listen = ["127.0.0.1:{port}"]
"""
LOSS = {"do": LOST}
KEPT = 2  # channels of a user: that with which the session began, and the present one


class RemotePlace(Place):
    """The agent of a NIC. Its programs are on a host."""

    user = USER

    def grant(self, users: list[int]) -> None:
        self.port = free_port()
        super().grant(users)
        with (self.folder / "agent.toml").open("a") as policy:
            policy.write(HOST.format(port=self.port))

    def listen(self, link: int, user: str = USER) -> Wire:
        """A listener at the port that the host may use. link: by which it comes."""
        self.link, self.user = link, user
        address = ["127.0.0.1", self.port]
        settings = {"do": "listen", "identity": "host-b", "peer": [], "address": address}
        return self.open(settings)

    def channels(self) -> int:
        """How many channels count for the user."""
        return self.agent.call(lambda: self.agent.service._users._channels[USER])

    def holds(self) -> int:
        """How many channels use the connections to the worker for the leg."""
        workers = self.agent.service._workers._of_legs
        return self.agent.call(lambda: sum(worker.sessions for worker in workers.values()))


@pytest.fixture(scope="module")
def identities(identities: Path) -> Path:
    """With the certificate of the CA where a policy expects it."""
    (identities / "ca.pem").write_bytes((identities / "ca/ca.pem").read_bytes())
    return identities


@pytest.fixture
def worker() -> Iterator[FakeWorker]:
    worker = FakeWorker()
    worker.tokens, worker.owner = {TOKEN}, (0, b"host left uid 1000")
    yield worker
    worker.close()


@pytest.fixture
def place(identities: Path, worker: FakeWorker) -> Iterator[RemotePlace]:
    place = RemotePlace(identities, worker)
    yield place
    place.close()


def lose(one: Running) -> None:
    """The link of the program ends."""
    one.wire.tell(LOSS)
    assert one.wire.event() == END


def rejoin(one: Running) -> None:
    one.wire = one.place.rejoin(one.qpns[0])
    assert one.wire.event() == {"event": "ready"}


def renews(one: Running) -> None:
    """The peer wants new secrets, and gets them."""
    before = one.asked()
    if one.peer.role == "server":
        one.peer.say(Rekey(b""))
    one.peer.exchange_secrets()
    until(lambda: one.asked() == before + len(one.qpns))


def closes(one: Running) -> None:
    """The program ends the session, and its peer hears of it."""
    one.wire.hang_up()
    assert [*iter(one.peer.hear, ClosedMessage())] == []
    one.peer.tls.until_closed()
    assert one.wire.events() == [{"event": "closed"}]
    assert one.place.worker.ended == [(qpn, PEER_CLOSED) for qpn in one.qpns]


@pytest.mark.parametrize("role", ROLES)
def test_loss_and_return(place: RemotePlace, role: str) -> None:
    """The session goes on without its program, which then has it again."""
    with session(place, role) as one:
        lose(one)
        until(lambda: place.told("lost"))
        renews(one)
        rejoin(one)
        one.wire.tell({"do": "renew", "wish": 3})
        if role == "server":
            assert one.peer.hear() == Rekey(b"")
        one.peer.exchange_secrets()
        event = one.wire.event()
        assert (event["event"], event["wish"]) == ("renewed", 3)
        closes(one)


def test_channels_of_former_links(place: RemotePlace) -> None:
    """They count no more, and use no connection to the worker, while the session goes on."""
    with session(place, "client") as one:
        for _ in range(3):
            lose(one)
            rejoin(one)
            until(lambda: place.channels() == place.holds() == KEPT)
        for _ in range(3):
            former = one.wire
            rejoin(one)
            assert former.event() == END
            until(lambda: place.channels() == place.holds() == KEPT)
        closes(one)
        until(lambda: place.channels() == 0)


def test_return_before_the_loss_is_noticed(place: RemotePlace) -> None:
    """The new channel has the session, and the end of the former one changes nothing."""
    with session(place, "client") as one:
        former = one.wire
        rejoin(one)
        former.tell(LOSS)
        assert former.event() == END
        renews(one)
        closes(one)


def test_return_of_another_user_or_leg(place: RemotePlace) -> None:
    with session(place, "client") as one:
        lose(one)
        place.user = OTHER
        assert refusal(place.rejoin(one.qpns[0])) == "policy"  # the leg is not of its account
        place.worker.owner = 0, b"host left uid 1001"
        place.worker.tokens = {TOKEN, bytes(16)}
        assert refusal(place.rejoin(one.qpns[0], token=bytes(16))) == "closed"
        place.user, place.worker.owner = USER, (0, b"host left uid 1000")
        rejoin(one)
        renews(one)


def test_return_after_the_end(place: RemotePlace) -> None:
    with session(place, "client") as one:
        closes(one)
        assert refusal(place.rejoin(one.qpns[0])) == "closed"


def test_loss_of_a_local_program(place: RemotePlace) -> None:
    """Only links of other computers end so. The session ends."""
    place.user = None
    place.worker.owner = UID, b""
    with session(place, "client") as one:
        one.wire.tell(LOSS)
        assert "malformed request" in one.wire.event()["text"]


def test_loss_before_ready(place: RemotePlace) -> None:
    """The key exchange fails, and the audit names the reason."""
    place.worker.silent = True
    values = settings_at(place, "client")
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        wire = place.open(values | {"do": "connect", "address": list(listening.getsockname())})
        peer = ResumingPeer(patient(listening.accept()[0]), "server", load(place.folder, "a"))
        connected = pool.submit(peer.connect)
        assert wire.event()["event"] == "peer"
        until(lambda: peer.exchange.state == "ready" and len(place.worker.keys) == 2)
        wire.tell(LOSS)
        assert "the link to the computer of the program ended" in wire.event()["text"]
        assert connected.exception()
        peer.tls.close()
    assert place.worker.expired == [qp["qpn"] for qp in values["qps"]]
    [ended] = place.told("ended")
    assert ended["code"] == "closed"
    until(lambda: place.channels() == 0)


# A session without renewals ---------------------------------------------------------


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ABSENT_LOOK", 0.01)


def lingering(one: Running) -> None:
    """The session, which cannot be resumed, loses its TLS connection."""
    one.peer.tls.cut()
    assert one.wire.event() == {"event": "closed"}


def returns_late(one: Running) -> None:
    """The program is lost after the connection, and learns from the new channel that this ended."""
    lingering(one)
    lose(one)
    rejoin(one)
    assert one.wire.event() == {"event": "closed"}


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize("connected", [True, False])
def test_loss_of_a_session_of_level_none(place: RemotePlace, connected: bool) -> None:
    """Its QPs go on, and it ends when they have ended."""
    with session(place, "client", suites=[list(NONE)]) as one:
        if not connected:
            lingering(one)
        lose(one)
        asked = place.worker.proofs
        until(lambda: place.worker.proofs > asked + 4)
        assert place.channels() == 1
        assert not place.worker.expired and not place.worker.ended
        place.worker.gone.update(one.qpns)
        until(lambda: place.channels() == place.holds() == 0)


@pytest.mark.usefixtures("looks")
def test_return_without_a_connection(place: RemotePlace) -> None:
    """The program learns that nothing renews its secrets any more, and closes the session."""
    with session(place, "client", suites=[list(NONE)]) as one:
        returns_late(one)
        assert not place.worker.ended
        one.wire.hang_up()
        assert one.wire.events() == []
        until(lambda: place.worker.ended == [(qpn, PEER_CLOSED) for qpn in one.qpns])
        until(lambda: place.channels() == 0)


def test_end_of_the_worker_without_a_connection(place: RemotePlace) -> None:
    with session(place, "client", suites=[list(NONE)]) as one:
        lingering(one)
        lose(one)
        place.worker.die()
        until(lambda: place.channels() == 0)
    assert place.told("ended")[-1]["code"] == "gone"


def test_wrong_request_without_a_connection(place: RemotePlace) -> None:
    """The present channel of the program gets the error."""
    with session(place, "client", suites=[list(NONE)]) as one:
        returns_late(one)
        one.wire.tell({"do": os.urandom(4)})
        assert "malformed request" in one.wire.event()["text"]
        until(lambda: place.channels() == 0)
        assert place.worker.expired == one.qpns


# Listeners --------------------------------------------------------------------------


def listens(wire: Wire) -> bool:
    return wire.event()["event"] == "listening"


def test_listener_by_a_newer_link(place: RemotePlace) -> None:
    """It takes the place of the former one, whose end of the link is not noticed yet."""
    former = place.listen(link=1)
    assert listens(former)
    for link in (2, 3):
        present = place.listen(link)
        assert former.event() == END
        assert listens(present)
        former = present
    with socket.create_connection(("127.0.0.1", place.port)) as peer:
        peer.sendall(bytes(100))
        assert present.event()["event"] == "refused"


def test_listener_in_the_way(place: RemotePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of another program of the host, or of another user, keeps its address."""
    monkeypatch.setattr(entries, "FREE", 0.2)
    present = place.listen(link=2)
    assert listens(present)
    for link, user in [(2, USER), (1, USER), (3, OTHER)]:
        assert refusal(place.listen(link, user)) == "busy"
    present.hang_up()
    assert present.events() == []
    until(lambda: listens(place.listen(1, OTHER)))
