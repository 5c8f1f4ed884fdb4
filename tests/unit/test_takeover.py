"""Take-over of sessions by a restarted system agent (local-interface.md 3.8, protocol.md 8.6): its
services are in threads of the test, its worker and its peer are the test's."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import cbor2
import pytest

from srdma.agent import listener as admission
from srdma.agent import takeover
from srdma.agent.accounts import User
from srdma.agent.channel import Absent, Channel
from srdma.agent.policy import Policy, Private
from srdma.agent.record import Record
from srdma.agent.service import Service
from srdma.agent.session import Session
from srdma.agent.settings import Identity
from srdma.agent.takeover import Keeper
from srdma.control import Kept, KeptQP, Kind
from srdma.errors import RefusedError
from srdma.identity import Credentials
from srdma.keyex.agreement import Agreement
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import COUNT_MAX, ClosedMessage, Rekey
from srdma.keyex.offers import Suite
from srdma.keyex.renew import Presented, Times
from srdma.keyex.tls import PeerClosed, Truncated
from tests.exchange_players import NONE
from tests.keyex_players import END, LEG, FakeWorker, Wire, config, dial, load, patient, until
from tests.resume_players import ResumingPeer
from tests.thread_agent import ServiceThread

pytestmark = pytest.mark.usefixtures("short_links")

ROLES = ["client", "server"]  # of the agent
RX, TX, ASKED = 1, 2, 0
PEER_CLOSED = 22
HOST_A, HOST_B = "spiffe://test/host-a", "spiffe://test/host-b"
DATA_MAX = 1024  # of KEEP
TOKEN = bytes(range(16))
UID = os.getuid()
POLICY = """
worker = "{worker}"
worker_remote = {remote}
socket = "agent.sock"
[[identity]]
name = "host-b"
path = "b"
users = {users}
"""


# Records --------------------------------------------------------------------------


def agreement(**changes: Any) -> Agreement:
    values: dict[str, Any] = {
        "role": "client",
        "hash": os.urandom(32),
        "suite": Suite(7, 3, 16),
        "mode": 1,
        "group": "",
        "identity": HOST_A,
        "qpns": (0x1234, 0x1235),
        "peers": ((b"E" * 16, 77), (b"F" * 16, 78)),
    }
    return Agreement(**values | changes)


def record(**changes: Any) -> Record:
    values: dict[str, Any] = {
        "agreement": agreement(),
        "own": "host-b",
        "uid": 1000,
        "leg": LEG,
        "address": ("::1", 7000),
        "times": Times(3600.0, 60.0),
        "max_age": 86_400.0,
    }
    return Record(**values | changes)


def kept(one: Record, data: bytes, without: frozenset[int] = frozenset()) -> Kept:
    """The answer of a worker to ADOPT. without: places of QPs that have ended."""
    qps = tuple(
        KeptQP(qpn, index, peer[1], peer[0])
        for index, (qpn, peer) in enumerate(
            zip(one.agreement.qpns, one.agreement.peers, strict=True)
        )
        if index not in without
    )
    return Kept(1, one.leg, qps, data)


@pytest.mark.parametrize(
    "one",
    [
        record(),
        record(address=None, agreement=agreement(role="server", mode=0)),
        record(agreement=agreement(group="rack 7"), times=Times(0.0, 0.001), max_age=2.5),
    ],
)
@pytest.mark.parametrize("count", [0, 3, COUNT_MAX])
def test_record_round_trip(one: Record, count: int) -> None:
    one = replace(one, count=count, agent=("10.0.0.1", 7001) if count else None)
    assert Record.of(kept(one, one.to_bytes())) == one


def test_largest_record() -> None:
    """It fits into KEEP. Texts have their greatest lengths, in UTF-8."""
    n = 256
    one = record(
        agreement=agreement(
            identity="spiffe://" + "x" * 246,
            group="é" * 32,
            qpns=tuple(range(2**24 - n, 2**24)),
            peers=tuple((os.urandom(16), 2**24 - 1) for _ in range(n)),
            suite=Suite(255, 3, 64),
            mode=3,
        ),
        own="y" * 200,
        uid=2**32 - 2,
        address=("h" * 253, 65_535),
        agent=("f" * 45, 65_535),
        times=Times(1 / 3, 2**31 - 1.1),
        max_age=1e9 / 3,
    )
    raw = replace(one, count=COUNT_MAX).to_bytes()
    assert len(raw) <= DATA_MAX
    assert Record.of(kept(one, raw)) == replace(one, count=COUNT_MAX)


@pytest.mark.parametrize("ended", [{0}, {1}, {2}, {0, 1}, {1, 2}])
def test_qps_keep_their_places(ended: set[int]) -> None:
    """A QP that has ended has the QPN 0."""
    peers = tuple((bytes([n]) * 16, 70 + n) for n in range(3))
    one = record(agreement=agreement(qpns=(11, 12, 13), peers=peers))
    found = Record.of(kept(one, one.to_bytes(), frozenset(ended)))
    assert found.agreement.qpns == tuple(0 if n in ended else 11 + n for n in range(3))
    assert all(found.agreement.peers[n] == peers[n] for n in range(3) if n not in ended)
    assert [found.agreement.generation(n) for n in range(3)] == [
        one.agreement.generation(n) for n in range(3)
    ]


def test_record_has_no_secret() -> None:
    """Nothing but the fields that the next agent needs."""
    assert set(cbor2.loads(record().to_bytes())) == {
        "v", "role", "hash", "suite", "mode", "group", "identity", "own", "uid", "address", "agent",
        "every", "limit", "max_age", "count", "qps", "gid",
    }  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        b"\xa0",
        b"\x01",
        cbor2.dumps([]),
        cbor2.dumps({"v": 2}),
        cbor2.dumps({"v": "1"}),
        cbor2.dumps(cbor2.loads(record().to_bytes()) | {"v": 2}),
        cbor2.dumps(cbor2.loads(record().to_bytes()) | {"v": 0}),
    ],
)
def test_other_version(data: bytes) -> None:
    with pytest.raises(ValueError):
        Record.of(kept(record(), data))


# Keeper ---------------------------------------------------------------------------


@pytest.fixture
def worker() -> Iterator[FakeWorker]:
    worker = FakeWorker()
    yield worker
    worker.close()


def with_keeper(work: Callable[[Keeper], Any]) -> Any:
    async def run() -> Any:
        keeper = Keeper()
        try:
            return await work(keeper)
        finally:
            keeper.close()

    return asyncio.run(run())


def test_role_of_another_agent(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "ROLE_TIMEOUT", 0.1)
    worker.others = 10**9
    with pytest.raises(RefusedError) as caught:
        with_keeper(lambda keeper: keeper.worker(worker.path))
    assert caught.value.errno == errno.EBUSY
    assert f"another agent serves the worker at {worker.path}: stop it first" in str(caught.value)


def test_role_is_taken_when_the_former_agent_has_ended(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "ROLE_RETRY", 0.001)
    worker.others = 5

    async def twice(keeper: Keeper) -> bool:
        return await keeper.worker(worker.path) is await keeper.worker(worker.path)

    assert with_keeper(twice)
    assert worker.others == 0
    assert worker.agents == [0, 0]  # both connections, for every leg


def test_role_that_is_refused(worker: FakeWorker) -> None:
    """For another reason it is not tried again."""
    worker.refuses, worker.refuse, worker.status = Kind.AGENT, "not this user", errno.EPERM
    with pytest.raises(RefusedError, match="not this user") as caught:
        with_keeper(lambda keeper: keeper.worker(worker.path))
    assert caught.value.errno == errno.EPERM


# A service that restarts ------------------------------------------------------------


class Place:
    """A system agent with the identity host-b, its worker, and the policy's file.

    user: of the programs, if they are of another computer; link: number of its link.
    """

    user: User | None = None
    link = 0

    def __init__(self, folder: Path, worker: FakeWorker, *, remote: bool = False) -> None:
        self.folder, self.worker, self.remote = folder, worker, remote
        self.audit: list[dict[str, Any]] = []
        self.agents: list[ServiceThread] = []
        self._following: asyncio.Future[NoReturn] | None = None
        self.wires: list[Wire] = []
        self.grant([UID])
        self.start()

    def grant(self, users: list[int]) -> None:
        remote = str(self.remote).lower()
        text = POLICY.format(worker=self.worker.path, users=users, remote=remote)
        (self.folder / "agent.toml").write_text(text)

    def start(self) -> None:
        def make() -> Service:
            self._keeper = Keeper()
            return Service(Policy(self.folder / "agent.toml"), self._tell, self._keeper)

        self.agent = ServiceThread(make)
        self.agents.append(self.agent)
        self.agent.run(self.agent.service.take_over(self.worker.path))
        if self.remote:
            follow = self.agent.service.follow
            self._following = self.agent.call(
                lambda: asyncio.ensure_future(follow(self.worker.path))
            )

    def _tell(self, event: str, **fields: Any) -> None:
        self.audit.append({"event": event, **fields})

    def told(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.audit if line["event"] == event]

    def stop(self) -> None:
        """End the agent as by SIGTERM."""
        if self._following:
            self.agent.call(self._following.cancel)
        self.agent.run(self.agent.service.close(restart=True))
        self.agent.call(self._keeper.close)
        self.agent.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def open(self, settings: dict[str, Any], listening: Any = None) -> Wire:
        wire = Wire(self.agent.open(self.user, self.link))
        self.wires.append(wire)
        wire.tell(settings, [listening.fileno()] if listening else [])
        return wire

    def rejoin(self, qpn: object, **changes: Any) -> Wire:
        settings = {
            "do": "rejoin", "identity": "host-b", "worker": str(self.worker.path),
            "token": TOKEN, "qpns": [qpn],
        }  # fmt: skip
        return self.open(settings | changes)

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        for wire in self.wires:
            wire.sock.close()
        assert not self.told("fault"), self.audit
        assert not any(agent.faults for agent in self.agents)


@pytest.fixture(scope="module")
def identities(identities: Path) -> Path:
    """With the certificate of the CA where a policy expects it."""
    (identities / "ca.pem").write_bytes((identities / "ca/ca.pem").read_bytes())
    return identities


@pytest.fixture
def place(identities: Path, worker: FakeWorker) -> Iterator[Place]:
    worker.tokens = {TOKEN}
    place = Place(identities, worker)
    yield place
    place.close()


class Settings:
    """In place of a Keyex, for ResumingPeer: the settings of the program and the peer's sockets."""

    def __init__(self, config: dict[str, Any], other_end: Callable[[], socket.socket]) -> None:
        self.config, self.other_end = config, other_end


@dataclass
class Running:
    """A session with a peer of the test. wire: the channel of its program."""

    place: Place
    peer: ResumingPeer
    listening: socket.socket
    wire: Wire
    qpns: list[int]

    def restart(self) -> None:
        """Restarts the agent. A program that listens passes its socket again."""
        self.place.restart()
        if self.peer.role == "client":
            listen(self.place, self.listening)

    def renews(self) -> None:
        """Resumes, and completes an exchange."""
        self.peer.resume()
        before = self.asked()
        self.peer.exchange_secrets()
        until(lambda: self.asked() == before + len(self.qpns))
        assert not self.place.worker.expired and not self.place.worker.ended

    def asked(self) -> int:
        return sum(way == ASKED for _, way, *_ in [*self.place.worker.rekeys])

    def made(self, qp: int) -> list[int]:
        """The directions of the REKEYs of this QP."""
        rekeys = [*self.place.worker.rekeys]
        return [way for qpn, way, *_ in rekeys if qpn == self.qpns[qp] and way]


def listen(place: Place, listening: socket.socket) -> Wire:
    wire = place.open({"do": "listen", "identity": "host-b", "peer": []}, listening)
    assert wire.event()["event"] == "listening"
    return wire


def settings_at(place: Place, role: str, **changes: Any) -> dict[str, Any]:
    values = config(role, load(place.folder, "a"), **changes)
    for name in ("role", "cert", "key", "ca"):
        del values[name]
    return values | {"identity": "host-b", "worker": str(place.worker.path), "token": TOKEN}


@contextmanager
def session(place: Place, role: str, **changes: Any) -> Iterator[Running]:
    """Yields a session after `ready`. role: of the agent."""
    mine = load(place.folder, "a")
    values = settings_at(place, role, **changes)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()

        def other_end() -> socket.socket:
            return dial(address) if role == "server" else patient(listening.accept()[0])

        def begin() -> Wire:
            if role == "client":
                return place.open(values | {"do": "connect", "address": list(address)})
            arrived = listener.event()
            return place.open(values | {"do": "accept", "arrival": arrived["arrival"]})

        with ThreadPoolExecutor(1) as pool:
            if role == "server":
                listener = listen(place, listening)
            begun = pool.submit(begin)
            other = ROLES[1 - ROLES.index(role)]
            peer = ResumingPeer(other_end(), other, mine)  # type: ignore[arg-type]
            peer.program = Settings(values, other_end)  # type: ignore[assignment]
            peer.suite = Suite(*values["suites"][0])
            peer.connect()
            wire = begun.result()
        try:
            assert [wire.event()["event"] for _ in range(2)] == ["peer", "ready"]
            yield Running(place, peer, listening, wire, [qp["qpn"] for qp in values["qps"]])
        finally:
            peer.tls.close()


@pytest.mark.parametrize("role", ROLES)
def test_restart(place: Place, role: str) -> None:
    """The next agent has the role and the session, and goes on with its count."""
    with session(place, role) as one:
        if role == "client":
            one.wire.tell({"do": "renew", "wish": 1})
        one.peer.exchange_secrets()
        until(lambda: one.asked() == 2)
        counts = [cbor2.loads(data)["count"] for _, data in place.worker.kept]
        assert counts == [0, 1, 1]  # at READY, when the exchange began, in effect
        one.place.stop()
        with pytest.raises(Truncated):  # no CLOSED, no close_notify
            one.peer.tls.message()
        assert one.wire.events()[-1:] in ([], [{"event": "renewed", "count": 1, "wish": 1}])
        assert not place.worker.expired and not place.worker.ended
        place.start()
        if role == "server":
            listen(place, one.listening)
        [adopted] = place.told("adopted")
        assert adopted == {
            "event": "adopted", "uid": UID, "own": "host-b", "peer": HOST_A, "role": role, "qps": 2,
        }  # fmt: skip
        one.renews()
        assert one.peer.count == 2
        assert one.made(0) == one.made(1) == [RX, TX] * 2
        one.restart()
        one.renews()
        assert one.peer.count == 3
        # each service: both connections to the process, and those of the leg that it attached to
        assert place.worker.agents == [0, 0, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("role", ROLES)
def test_restart_in_an_exchange(place: Place, role: str) -> None:
    """The next agent knows its number: otherwise a server would take the RESUME of a client for a
    late one."""
    with session(place, role) as one:
        if role == "client":
            one.wire.tell({"do": "renew", "wish": 1})
        one.peer.begin()
        if role == "client":
            one.peer.feed()
        else:
            assert one.peer.feed()
        one.restart()
        assert one.peer.resume(count=1).count == 1


@contextmanager
def begun(place: Place) -> Iterator[tuple[Wire, Any, list[int]]]:
    """A session whose QPs have keys, before `ready`: the channel of the program, the result of the
    peer, and the QPs."""
    place.worker.silent = True
    values = settings_at(place, "client")
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        wire = place.open(values | {"do": "connect", "address": list(listening.getsockname())})
        mine = load(place.folder, "a")
        peer = ResumingPeer(patient(listening.accept()[0]), "server", mine)
        connected = pool.submit(peer.connect)
        assert wire.event()["event"] == "peer"
        until(lambda: peer.exchange.state == "ready" and len(place.worker.keys) == 2)
        yield wire, connected, [qp["qpn"] for qp in values["qps"]]
        peer.tls.close()


def test_restart_before_ready(place: Place) -> None:
    """The next agent does not get the session: its QPs end, which have keys already."""
    with begun(place) as (_, connected, qpns):
        place.stop()
        with pytest.raises(Truncated):
            connected.result()
    assert place.worker.expired == qpns
    assert not place.worker.kept and not place.worker.ended


def test_address_of_the_peer_after_a_restart(place: Place) -> None:
    """The reserved share of agent.md 3 is there before the peer comes back."""
    with session(place, "server") as one:
        one.restart()
        assert place.agent.call(lambda: place.agent.service.sessions.know("127.0.0.1"))
        assert not place.agent.call(lambda: place.agent.service.sessions.know(""))
        one.renews()
    place.stop()
    assert not place.agent.service.sessions.know("127.0.0.1")


@pytest.mark.parametrize("role", ROLES)
def test_peer_closes_after_a_restart(place: Place, role: str) -> None:
    with session(place, role) as one:
        one.restart()
        one.renews()
        one.peer.say(ClosedMessage())
        until(lambda: place.worker.ended == [(qpn, PEER_CLOSED) for qpn in one.qpns])


def test_level_none_is_not_kept(place: Place) -> None:
    with session(place, "client", suites=[list(NONE)]) as one:
        assert not place.worker.kept
        place.restart()
        assert not place.told("adopted")
        assert not place.worker.expired
        with pytest.raises(PeerClosed):
            one.peer.tls.message()


def test_qps_that_ended_before_the_restart(place: Place) -> None:
    """They are not adopted, and the others keep their places."""
    with session(place, "client") as one:
        place.worker.gone.add(one.qpns[0])
        one.restart()
        theirs = one.peer.resume()
        assert [bool(proof) for proof in theirs.proofs] == [False, True]
        one.peer.exchange_secrets()
        until(lambda: one.made(1) == [RX, TX])
        assert one.made(0) == []
        assert one.place.rejoin(one.qpns[0]).events()[-1]["event"] == "error"
        assert one.place.rejoin(one.qpns[1]).event() == {"event": "ready"}


def test_all_qps_ended_before_the_restart(place: Place) -> None:
    with session(place, "client") as one:
        place.worker.gone.update(one.qpns)
        one.restart()
        assert not place.told("adopted")


def test_record_of_another_version_is_left_out(place: Place) -> None:
    """Its QPs go on until their secrets are too old. The next record is adopted."""
    with session(place, "client") as one:
        [(_, data)] = place.worker.kept
        place.worker.keys.append((99, *place.worker.keys[0][1:]))
        other = cbor2.dumps(cbor2.loads(data) | {"v": 2, "qps": 1})
        place.worker.kept.insert(0, ((99,), other))
        one.restart()
        assert len(place.told("adopted")) == 1
        one.renews()
        assert 99 not in place.worker.expired


def test_worker_that_is_not_there(identities: Path, worker: FakeWorker) -> None:
    """It keeps nothing, and the agent starts."""
    place = Place(identities, worker)
    worker.close()
    place.restart()
    place.close()


def test_policy_that_no_longer_grants_the_identity(place: Place) -> None:
    with session(place, "client") as one:
        place.grant([UID + 1])
        place.restart()
        assert place.worker.expired == one.qpns
        assert not place.told("adopted") and place.told("failed")[-1]["code"] == "policy"
        assert [e["event"] for e in place.rejoin(one.qpns[0]).events()] == ["error"]


def test_policy_that_withdraws_the_identity_of_an_adopted_session(place: Place) -> None:
    with session(place, "client") as one:
        one.restart()
        service = place.agent.service
        assert place.agent.call(lambda: service.withdraw(lambda *_: True)) == 0
        assert place.agent.call(lambda: service.withdraw(lambda *_: False)) == 1
        until(lambda: place.worker.expired == one.qpns)


def test_record_that_the_worker_refuses(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program notices nothing, the audit has it, and the next exchange gives the record again.
    The next agent knows the session if the worker has taken it by then."""
    real, refusals = Keeper.keep, [RefusedError(errno.EINVAL, "1025 bytes")]

    def keep(keeper: Keeper, record: Record, path: Path) -> None:
        if refusals:
            raise refusals.pop()
        real(keeper, record, path)

    monkeypatch.setattr(Keeper, "keep", keep)
    with session(place, "client"):
        [line] = place.told("failed")
        assert line["code"] == "keep" and "1025 bytes" in line["text"]
        place.restart()
        assert not place.told("adopted") and not place.worker.expired
    refusals.append(RefusedError(errno.EINVAL, "1025 bytes"))
    with session(place, "client") as one:
        before = one.asked()
        one.wire.tell({"do": "renew", "wish": 1})
        one.peer.exchange_secrets()
        assert one.wire.event() == {"event": "renewed", "count": 1, "wish": 1}
        assert one.asked() == before + 2
        place.restart()
        assert len(place.told("adopted")) == 1


# The program comes back -----------------------------------------------------------


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_rejoin(place: Place, role: str, resumed: bool) -> None:
    """The program then has its session again: it renews and closes it."""
    with session(place, role) as one:
        one.restart()
        if resumed:
            one.renews()
        wire = place.rejoin(one.qpns[1])
        assert wire.event() == {"event": "ready"}
        wire.tell({"do": "renew", "wish": 5})
        if not resumed:
            one.peer.resume()
        if role == "server":
            assert one.peer.hear() == Rekey(b"")
        one.peer.exchange_secrets()
        event = wire.event()
        assert (event["event"], event["wish"]) == ("renewed", 5)
        wire.hang_up()
        assert [*iter(one.peer.hear, ClosedMessage())] in ([], [Rekey(b"")])
        one.peer.tls.until_closed()
        assert wire.events() == [{"event": "closed"}]
        assert place.worker.ended == [(qpn, PEER_CLOSED) for qpn in one.qpns]


def refusal(wire: Wire) -> str:
    """The code of the only event."""
    [event] = wire.events()
    assert event["event"] == "error", event
    return str(event["code"])


def test_rejoin_that_is_refused(place: Place) -> None:
    """Each leaves the session to the right program."""
    with session(place, "client") as one:
        one.restart()
        qpn = one.qpns[0]
        assert refusal(place.rejoin(qpn, token=os.urandom(16))) == "worker"
        assert refusal(place.rejoin(qpn, token=TOKEN[:-1])) == "config"
        assert refusal(place.rejoin(qpn, token=b"")) == "config"
        assert refusal(place.rejoin(0xABC)) == "closed"
        assert refusal(place.rejoin(0)) == "closed"
        assert refusal(place.rejoin(qpn, worker="/nonexistent/w.sock")) == "policy"
        assert refusal(place.rejoin(qpn, identity="host-c")) == "closed"
        assert refusal(place.rejoin(qpn, identity=None)) == "config"
        assert refusal(place.rejoin("1")) == refusal(place.rejoin([])) == "closed"
        assert refusal(place.rejoin(0xABC, qpns=[*range(257)])) == "config"
        assert place.rejoin(qpn).event() == {"event": "ready"}
        assert refusal(place.rejoin(qpn)) == "closed"
        assert refusal(place.rejoin(one.qpns[1])) == "closed"  # the same session
        one.renews()


def test_rejoin_of_another_user(place: Place) -> None:
    """A program of this user cannot take the session of another one, with the right token too."""
    with session(place, "client") as one:
        numbers, data = place.worker.kept[0]
        fields = cbor2.loads(data) | {"uid": UID + 1}
        place.worker.kept[0] = numbers, cbor2.dumps(fields)
        place.grant([UID, UID + 1])
        place.restart()
        assert place.told("adopted")[0]["uid"] == UID + 1
        assert refusal(place.rejoin(one.qpns[0])) == "closed"
        one.renews()


@pytest.mark.parametrize("do", ["connect", "rotate"])
def test_wrong_token_costs_no_connection(place: Place, do: str) -> None:
    """The worker takes 4,096 connections, and a program can name any number of tokens."""
    place.restart()
    before = place.worker.connections
    for number in range(3):
        changes = {
            "do": do,
            "token": bytes([99, number]) * 8,
            "address": ["127.0.0.1", 1],
            "age": 0,
        }
        assert refusal(place.open(settings_at(place, "client") | changes)) == "worker"
    assert place.worker.connections == before


def test_rejoin_of_a_user_without_rights(place: Place) -> None:
    """The policy grants it nothing: it learns nothing of sessions."""
    place.grant([UID + 1])
    place.restart()
    assert refusal(place.rejoin(0xABC)) == "policy"


def test_two_programs_that_rejoin_at_once() -> None:
    """The first one has the session, also before the session has noticed it."""

    async def both() -> list[bool]:
        own = Identity(Credentials(b"", b"", b""), ())
        house = cast(Any, SimpleNamespace(sessions=None, links=None))
        session = Session(Absent(7), lambda: own, house)
        channels = [cast(Channel, SimpleNamespace(uid=uid)) for uid in (8, 7, 7)]
        return [session.returned(channel) for channel in channels]

    assert asyncio.run(both()) == [False, True, False]


@pytest.mark.parametrize("newest", [4, 5])
def test_number_kept_after_an_exchange(newest: int) -> None:
    """An exchange takes effect, while a newer one may have begun: an agent that resumes with a
    smaller number than its peer has seen is refused."""
    stored: list[int] = []
    house = SimpleNamespace(
        keep=lambda one, _: stored.append(one.count), audit=lambda *_, **__: None
    )
    own = SimpleNamespace(check=lambda _: None, clock=SimpleNamespace(clock=time))
    session = Session(Absent(7), lambda: cast(Any, own), cast(Any, house))
    session._worker = cast(Any, SimpleNamespace(control=SimpleNamespace(lives=lambda *_: None)))
    session._upkeep = cast(Any, SimpleNamespace(record=record(), resumable=True, count=newest))
    forever = dt.datetime.max.replace(tzinfo=dt.UTC)
    session.renewed(4, 0, Presented(forever, cast(Any, None)))
    assert stored == [newest]


def test_session_whose_qpn_is_of_a_newer_one() -> None:
    """The worker used the QPN of a destroyed QP again before the former session ended."""

    async def both() -> list[Any]:
        service, place = Service(Private()), Path("worker.ctl")
        over = [asyncio.Event(), asyncio.Event()]
        sessions: list[Any] = [SimpleNamespace(qpns=[7], remote=True) for _ in over]

        async def hold(which: int) -> None:
            with service._returnable(sessions[which], cast(Any, SimpleNamespace(path=place))):
                await over[which].wait()

        tasks = [asyncio.ensure_future(hold(which)) for which in (0, 1)]
        found = []
        for which in (0, 1):
            await asyncio.sleep(0)
            over[which].set()
            await tasks[which]
            session, _ = service._adopted.get((place, 7), (None, None))
            found.append(session is sessions[1])
        return found

    assert asyncio.run(both()) == [True, False]


def test_rejoin_of_a_session_that_was_not_adopted(place: Place) -> None:
    """The QP is in the hands of this agent since its beginning."""
    with session(place, "client") as one:
        assert refusal(place.rejoin(one.qpns[0])) == "closed"


def test_rejoin_after_the_end(place: Place) -> None:
    with session(place, "client") as one:
        one.restart()
        one.renews()
        one.peer.say(ClosedMessage())
        until(lambda: len(place.worker.ended) == 2)
        assert refusal(place.rejoin(one.qpns[0])) == "closed"


@pytest.mark.parametrize("owner", [(UID + 1, b""), (UID, b"uid 4242"), (0, b"container web")])
def test_leg_of_another_user(place: Place, owner: tuple[int, bytes]) -> None:
    """A stolen token. The session and the leg's program go on."""
    settings = {"do": "rotate", "worker": str(place.worker.path), "token": TOKEN, "age": 7}
    with session(place, "client") as one:
        one.restart()
        place.worker.owner = owner
        for wire in (place.rejoin(one.qpns[0]), place.open(settings)):
            event = wire.events()[-1]
            assert event["code"] == "policy" and f"not of uid {UID}" in event["text"]
        assert not place.worker.rotations
        place.worker.owner = 0, f"uid {UID}".encode()
        assert place.rejoin(one.qpns[0]).event() == {"event": "ready"}


def test_rotate(place: Place) -> None:
    settings = {"do": "rotate", "worker": str(place.worker.path), "token": TOKEN, "age": 7}
    wire = place.open(settings)
    assert wire.events() == [{"event": "rotated", "serial": 1, "behind": 0}]
    assert place.worker.rotations == [7] and place.worker.attached[-1] == TOKEN
    assert place.worker.agents[-2:] == [1, 1]  # for this leg only
    assert refusal(place.open(settings | {"token": os.urandom(16)})) == "worker"
    assert refusal(place.open(settings | {"token": b"short"})) == "config"
    assert refusal(place.open(settings | {"worker": "/nonexistent/w.sock"})) == "policy"
    assert refusal(place.open(settings | {"age": "7"})) == "config"
    assert place.worker.rotations == [7]


# A worker on another computer -------------------------------------------------------


@pytest.fixture
def far(identities: Path, worker: FakeWorker) -> Iterator[Place]:
    """The worker is behind srdma-control (control-link.md 7)."""
    worker.tokens = {TOKEN}
    place = Place(identities, worker, remote=True)
    yield place
    place.close()


@pytest.mark.parametrize("role", ROLES)
def test_end_of_the_link_to_the_worker(far: Place, role: str) -> None:
    """Peers and programs see what they see when the agent starts again."""
    with session(far, role) as one:
        for _ in range(2):
            far.worker.cut()
            with pytest.raises(Truncated):  # no CLOSED, no close_notify
                one.peer.tls.message()
            assert one.wire.events() == []
            until(lambda: refusal(far.rejoin(one.qpns[0])) == "worker")
            far.worker.away = False
            one.wire = come_back(far, one)
            if role == "server":
                listen(far, one.listening)
            one.renews()
        assert len(far.told("adopted")) == 2
        assert {e["code"] for e in far.told("failed")} == {"worker"}


def come_back(place: Place, one: Running) -> Wire:
    """As a program that tries again while there is no link."""
    while True:
        wire = place.rejoin(one.qpns[0])
        if (event := wire.event())["event"] == "ready":
            return wire
        assert event["code"] == "worker"


def test_end_of_the_link_before_ready(far: Place) -> None:
    """A key exchange that is not complete fails."""
    with begun(far) as (wire, connected, _):
        far.worker.cut()
        # The agent may notice the end of its own connection before that of the session's.
        assert (event := wire.event()) == END or event["code"] == "gone"
        # On a busy machine the connection may end before the agent has told the reason.
        with pytest.raises((Truncated, ExchangeError)) as failed:
            connected.result()
        assert isinstance(failed.value, Truncated) or "worker" in str(failed.value)
    assert not far.worker.kept


def test_agent_that_starts_without_a_link(far: Place) -> None:
    """It takes the sessions over when it reaches the worker."""
    with session(far, "client") as one:
        far.stop()
        far.worker.cut()
        far.start()
        assert refusal(far.rejoin(one.qpns[0])) == "worker"
        far.worker.away = False
        one.wire = come_back(far, one)
        one.renews()
        assert len(far.told("adopted")) == 1


def test_program_that_reads_no_events(far: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other programs do not wait for it after the end of the link."""
    monkeypatch.setattr(admission, "REFUSALS_EVERY", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listening, session(far, "client") as one:
        listen(far, listening)
        for _ in range(800):
            with socket.create_connection(listening.getsockname()) as peer:
                peer.sendall(b"no TLS at all")
                while peer.recv(100):
                    pass
        far.worker.cut()
        far.worker.away = False
        until(lambda: far.rejoin(one.qpns[0]).event()["event"] == "ready")


def test_sessions_that_ended_without_a_link(far: Place) -> None:
    """The worker kept them for some time only."""
    with session(far, "client") as one:
        far.worker.cut()
        assert one.wire.events() == []
        far.worker.gone.update(one.qpns)
        far.worker.away = False

        def refused() -> bool:
            """The session may still be there at first: then it ends without an event."""
            return [e["code"] for e in far.rejoin(one.qpns[0]).events()] == ["closed"]

        until(refused)
        assert not far.told("adopted")
