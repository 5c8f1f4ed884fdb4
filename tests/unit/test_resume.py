"""Resumption of a session in another TLS connection: one agent, in a thread of the test, and a peer
that speaks srdma/2 by hand (protocol.md 8.6)."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srdma.agent import links, upkeep
from srdma.control import Kind
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import (
    ClosedMessage,
    ErrorMessage,
    Offer,
    Ready,
    Rekey,
    Renew,
    Resume,
    Taken,
    Wake,
    decode,
    encode,
)
from srdma.keyex.offers import End, Suite
from srdma.keyex.tls import Truncated
from tests import keyex_players
from tests.exchange_players import CHACHA, NONE
from tests.keyex_players import Keyex, Listening, accepting, config, finished, load, until
from tests.resume_players import ResumingPeer, exchanged, only_first, refused
from tests.thread_agent import ThreadAgent
from tests.tls_players import HELLO, IDLE, BlockingTLS

ROLES = ["client", "server"]  # of the peer of the test
RX, TX, ASKED, WITHDRAW = 1, 2, 0, 3
PEER_CLOSED, WIRE_LOST = 22, 24
FOREVER = 10**9  # REKEYs refused with EBUSY
SHORT = 0.2  # seconds of limits that a test waits for


@pytest.fixture(autouse=True)
def in_threads(short_links: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent is in a thread."""
    monkeypatch.setattr(keyex_players, "PrivateAgent", ThreadAgent)


@contextmanager
def against(
    folder: Path, role: str, *, first: bool = False, **changes: Any
) -> Iterator[tuple[ResumingPeer, Keyex]]:
    """Yields a peer of this role, and the program, after `ready`. first: with srdma/1."""
    other = ROLES[1 - ROLES.index(role)]
    program = Keyex(config(other, load(folder, "b"), **changes))
    with finished(program):
        mine = load(folder, "a")
        mode = changes.get("modes", [0])[0]
        peer = ResumingPeer(program.other_end(), role, mine, mode)  # type: ignore[arg-type]
        peer.program = program
        if "suites" in changes:
            peer.suite = Suite(*changes["suites"][0])
        if first:
            only_first(peer.tls, peer.role, mine)
        try:
            peer.connect(len(program.config["qps"]))
            assert [program.event()["event"], program.event()["event"]] == ["peer", "ready"]
            yield peer, program
        finally:
            peer.tls.close()


def qps(one: Keyex) -> list[int]:
    return [qp["qpn"] for qp in one.config["qps"]]


def made(one: Keyex, qp: int = 0) -> list[int]:
    """The directions of the REKEYs of QP number `qp` that its worker accepted, without 0."""
    return [way for qpn, way, *_ in [*one.worker.rekeys] if qpn == qps(one)[qp] and way]


def completed(program: Keyex) -> int:
    """How many exchanges have taken effect."""
    asked = [body for body in [*program.worker.rekeys] if body[1] == ASKED]
    return len(asked) // len(qps(program))


def in_effect(program: Keyex, count: int) -> None:
    until(lambda: completed(program) == count)


def renews(peer: ResumingPeer, program: Keyex) -> None:
    """One more exchange takes effect. As client the agent begins it, because it has resumed."""
    before = completed(program)
    peer.exchange_secrets()
    in_effect(program, before + 1)
    untouched(program)


def untouched(program: Keyex) -> None:
    assert not program.worker.expired and not program.worker.ended


def lose(peer: ResumingPeer, way: str) -> None:
    if way == "close_notify":
        peer.tls.close()
    else:
        peer.tls.cut(reset=way == "rst")


# A right peer ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("way", ["fin", "rst", "close_notify"])
@pytest.mark.parametrize("role", ROLES)
def test_resumes_after_a_loss(folder: Path, role: str, way: str, mode: int) -> None:
    with against(folder, role, modes=[mode]) as (peer, program):
        for count in (0, 1):
            lose(peer, way)
            theirs = peer.resume()
            assert (theirs.count, theirs.given) == (count, (count, count))
            assert all(theirs.proofs)
            renews(peer, program)
            assert peer.count == count + 1
        assert made(program) == [RX, TX] * 2
        peer.say(ClosedMessage())
        peer.tls.close()
        assert program.event() == {"event": "closed"}
        assert program.worker.ended == [(qpn, PEER_CLOSED) for qpn in qps(program)]


@pytest.mark.parametrize("role", ROLES)
def test_new_secrets_from_the_exporter_of_32_bytes(folder: Path, role: str) -> None:
    with against(folder, role, suites=[list(CHACHA)]) as (peer, program):
        peer.tls.cut()
        peer.resume()
        renews(peer, program)


@pytest.mark.parametrize(("mine", "next_"), [(0, 1), (7, 8), (2**32 - 2, 2**32 - 1)])
@pytest.mark.parametrize("role", ROLES)
def test_count_of_the_peer_is_higher(folder: Path, role: str, mine: int, next_: int) -> None:
    with against(folder, role) as (peer, program):
        peer.tls.cut()
        assert peer.resume(count=mine).count == 0
        renews(peer, program)
        assert peer.count == next_
        peer.tls.cut()
        assert peer.resume(count=next_ if role == "client" else 0).count == next_


def test_count_of_the_agent_is_higher(folder: Path) -> None:
    """As client: that of a server may be lower, because its agent was restarted."""
    with against(folder, "server") as (peer, program):
        program.wish(1)
        peer.exchange_secrets()
        in_effect(program, 1)
        peer.tls.cut()
        assert peer.resume(count=0).count == 1
        renews(peer, program)
        assert peer.count == 2


@pytest.mark.parametrize("role", ROLES)
def test_no_exchange_is_left_at_the_last_count(folder: Path, role: str) -> None:
    with against(folder, role) as (peer, program):
        peer.tls.cut()
        peer.resume(count=2**32 - 1)
        if role == "client":
            peer.count = 0
            peer.begin()
        assert peer.error() == "value"
        peer.tls.close()
        assert program.events()[-1]["code"] == "value"
        assert program.worker.expired == qps(program)


@pytest.mark.parametrize("role", ROLES)
def test_wish_during_the_loss(folder: Path, role: str) -> None:
    """The exchange in the next connection serves it."""
    with against(folder, role) as (peer, program):
        peer.tls.cut()
        program.wish(1)
        peer.resume()
        if role == "client":
            assert peer.hear() == Rekey(b"")
        peer.exchange_secrets()
        assert program.event() == {"event": "renewed", "count": 1, "wish": 1}


def test_wish_of_the_server_is_repeated_in_the_next_connection(folder: Path) -> None:
    with against(folder, "client") as (peer, program):
        program.wish(1)
        assert peer.hear() == Rekey(b"")
        peer.tls.cut()
        peer.resume()
        assert peer.hear() == Rekey(b"")
        peer.exchange_secrets()
        assert program.event() == {"event": "renewed", "count": 1, "wish": 1}


@pytest.mark.parametrize("under_way", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_error_in_the_next_connection(folder: Path, role: str, under_way: bool) -> None:
    with against(folder, role) as (peer, program):
        peer.tls.cut()
        peer.resume()
        renews(peer, program)
        if under_way:
            if role == "server":
                program.wish(1)
            peer.begin()
            peer.shake()
        peer.say(ErrorMessage("worker", "not today"))
        event = program.events()[-1]
        assert (event["event"], event["text"]) == ("error", "the peer reports: not today")
        assert program.worker.expired == (qps(program) if under_way else [])


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_program_closes(folder: Path, role: str, resumed: bool) -> None:
    """The peer gets CLOSED, and then close_notify."""
    with against(folder, role) as (peer, program):
        if resumed:
            peer.tls.cut()
            peer.resume()
            renews(peer, program)
        program.hang_up()
        assert peer.hear() == ClosedMessage()
        peer.tls.until_closed()
        assert program.event() == {"event": "closed"}
        assert program.worker.ended == [(qpn, PEER_CLOSED) for qpn in qps(program)]


@pytest.mark.parametrize("role", ROLES)
def test_program_closes_during_the_loss(folder: Path, role: str) -> None:
    with against(folder, role) as (peer, program):
        peer.tls.cut()
        program.hang_up()
        assert program.event() == {"event": "closed"}
        assert program.worker.ended == [(qpn, PEER_CLOSED) for qpn in qps(program)]


@pytest.mark.parametrize("role", ROLES)
def test_local_worker_ends_during_the_loss(folder: Path, role: str) -> None:
    with against(folder, role) as (peer, program):
        peer.tls.cut()
        program.worker.die()
        assert program.events()[-1]["code"] == "gone"


# An exchange that the loss ends ---------------------------------------------------

STEPS = ["nothing", "begin", "shake", "renew", "hear", "taken"]


def walk(peer: ResumingPeer, program: Keyex, steps: int, done: int = 0) -> None:
    """Runs the given number of steps but for those done, and waits until the agent has done its
    part."""
    if peer.role == "server" and steps:
        program.wish(1)
    for step in STEPS[done + 1 : steps + 1]:
        match step:
            case "begin":
                peer.begin()
                if peer.role == "server":
                    peer.feed()
                else:
                    assert peer.feed()
            case "shake":
                peer.shake()
            case "renew":
                peer.say_inner(peer.renew())
                until(lambda: made(program, 1) == [RX])
            case "hear":
                assert isinstance(peer.hear_inner(), Renew)
                assert peer.hear_inner() == Taken(1)
            case "taken":
                peer.say_inner(Taken(1))
                in_effect(program, 1)


LOSSES = [("client", "none"), *((role, way) for role in ROLES for way in ("fin", "rst"))]
CUTS = [(step, 0) for step in STEPS] + [("taken", 1)]


@pytest.mark.parametrize(("step", "given"), CUTS)
@pytest.mark.parametrize(("role", "way"), LOSSES)
def test_half_an_exchange(folder: Path, role: str, step: str, given: int, way: str) -> None:
    """The secret that waits is withdrawn if the worker of the peer has not got it.

    given: REKEY tx at the peer's worker. way: "none" for a connection that stays open, which only
    an agent with the role server gives up for another one.
    """
    with against(folder, role) as (peer, program):
        walk(peer, program, STEPS.index(step))
        before = made(program)
        old = peer.tls
        if way != "none":
            lose(peer, way)
        theirs = peer.resume(count=peer.count, given=(given, given))
        assert theirs.count == (1 if step != "nothing" else 0)
        assert theirs.given == ((1, 1) if step == "taken" else (0, 0))
        peer.given = given
        renews(peer, program)
        withdrawn = [WITHDRAW] if RX in before and not given else []
        for qp in (0, 1):
            assert made(program, qp) == before + withdrawn + [RX, TX]
        assert peer.count == theirs.count + 1
        old.close()


@pytest.mark.parametrize(("given", "taken"), [(1, 0), (2, 0), (2**32 - 1, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("role", ROLES)
def test_wrong_given(folder: Path, role: str, given: int, taken: int) -> None:
    """taken: REKEY rx at the agent's worker."""
    with against(folder, role) as (peer, program):
        walk(peer, program, STEPS.index("hear") if taken else 0)
        peer.tls.cut()
        for wrong in ((given, given), (taken, given), (given, taken)):
            again = peer.again()
            mine = replace(peer.resume_of(again), given=wrong)
            assert refused(peer.role, again, mine) == "value"
        assert WITHDRAW not in made(program) + made(program, 1)
        peer.given = 0
        peer.resume()
        renews(peer, program)


@pytest.mark.parametrize("role", ROLES)
def test_given_that_is_two_behind(folder: Path, role: str) -> None:
    with against(folder, role) as (peer, program):
        for count in (1, 2):
            if role == "server":
                program.wish(count)
            peer.exchange_secrets()
            in_effect(program, count)
        peer.tls.cut()
        again = peer.again()
        mine = replace(peer.resume_of(again), given=(0, 2))
        assert refused(peer.role, again, mine) == "value"
        assert WITHDRAW not in made(program)
        assert peer.resume().given == (2, 2)
        renews(peer, program)


@pytest.mark.parametrize("role", ROLES)
def test_secret_that_one_qp_has_taken(folder: Path, role: str) -> None:
    """The loss comes between two REKEYs rx. Only the first QP has one to withdraw."""
    with against(folder, role) as (peer, program):
        worker = program.worker
        worker.stuck = {(qps(program)[1], RX)}
        walk(peer, program, STEPS.index("shake"))
        peer.say_inner(peer.renew())
        until(lambda: made(program) == [RX])
        peer.tls.cut()
        worker.stuck = set()
        peer.resume()
        renews(peer, program)
        # The agent may have had time to repeat the second one before it noticed the loss.
        assert made(program, 0) == [RX, WITHDRAW, RX, TX]
        assert made(program, 1) in ([RX, TX], [RX, WITHDRAW, RX, TX])


@pytest.mark.parametrize("role", ROLES)
def test_withdrawal_of_one_qp(folder: Path, role: str) -> None:
    """The worker of the peer has taken the secret of the second QP only."""
    with against(folder, role) as (peer, program):
        walk(peer, program, STEPS.index("taken"))
        peer.tls.cut()
        peer.resume(given=(0, 1))
        renews(peer, program)
        assert made(program, 0) == [RX, TX, WITHDRAW, RX, TX]
        assert made(program, 1) == [RX, TX, RX, TX]


def silent(again: BlockingTLS) -> bool:
    """True if no message of a stream arrives soon. Records of TLS itself do not count."""
    with contextlib.suppress(Truncated):  # a connection without a stream may be closed
        while select.select([again.sock], [], [], SHORT)[0]:
            again._read()
    with contextlib.suppress(ExchangeError):  # close_notify
        while frame := again.receive():
            if not frame.endswith((HELLO, IDLE)):
                return False
    return True


@pytest.mark.parametrize("role", ROLES)
def test_secrets_for_sending_are_given_before_the_next_connection(folder: Path, role: str) -> None:
    """REKEY tx goes on after the loss, because the worker of the peer may have the secret. The
    agent's RESUME waits for it."""
    with against(folder, role) as (peer, program):
        worker = program.worker
        worker.stuck = {(qps(program)[1], TX)}
        walk(peer, program, STEPS.index("hear"))
        peer.say_inner(Taken(1))
        until(lambda: made(program) == [RX, TX])
        peer.tls.cut()
        if role == "client":
            again = peer.again()
            again.send(encode(replace(peer.resume_of(again), given=(1, 1))))
            assert silent(again)
            worker.stuck = set()
            theirs = decode(again.message())
            assert isinstance(theirs, Resume)
            peer.tls, peer.count = again, max(1, theirs.count)
        else:
            listening = program._listening
            assert listening and not select.select([listening], [], [], SHORT)[0]
            worker.stuck = set()
            peer.given = 1
            theirs = peer.resume()
        assert theirs.given == (1, 1)
        renews(peer, program)
        assert made(program, 0) == made(program, 1) == [RX, TX, RX, TX]


@pytest.mark.parametrize("role", ROLES)
def test_secret_for_receiving_is_not_given_after_the_loss(folder: Path, role: str) -> None:
    with against(folder, role) as (peer, program):
        worker = program.worker
        worker.busy = {RX: FOREVER}
        walk(peer, program, STEPS.index("shake"))
        peer.say_inner(peer.renew())
        until(lambda: worker.busy[RX] < FOREVER)
        peer.tls.cut()
        peer.resume()
        worker.busy = {}
        renews(peer, program)
        assert made(program) == [RX, TX]


# A RESUME that comes late ---------------------------------------------------------


@pytest.mark.parametrize("step", STEPS[1:])
def test_resume_from_before_an_exchange(
    folder: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network delivers it after the client gave up its connection, resumed in another one and
    began an exchange. It is refused, and the exchange goes on: the client may have the secret that
    waits, which a withdrawal would take from the agent."""
    monkeypatch.setattr(links, "UNUSED_HERE", 60.0)
    with against(folder, "client") as (peer, program):
        peer.tls.cut()
        late = peer.again()
        raw = encode(peer.resume_of(late))
        peer.resume()
        walk(peer, program, STEPS.index(step))
        assert refused("client", late, raw) == "resume"
        walk(peer, program, len(STEPS) - 1, STEPS.index(step))
        peer.given = 1
        assert made(program) == made(program, 1) == [RX, TX]
        peer.tls.cut()
        peer.resume()
        renews(peer, program)
        assert made(program) == made(program, 1) == [RX, TX] * 2


def test_resume_from_before_two_exchanges(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "UNUSED_HERE", 60.0)
    with against(folder, "client") as (peer, program):
        late = peer.again()
        raw = encode(peer.resume_of(late))
        for count in (1, 2):
            peer.exchange_secrets()
            in_effect(program, count)
        assert refused("client", late, raw) == "resume"
        renews(peer, program)
        assert WITHDRAW not in made(program)


@pytest.mark.parametrize("renewed", [False, True])
def test_late_resume_without_a_later_exchange(
    folder: Path, renewed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is right, and takes the session to a connection that the client has given up. The client
    learns of it, and resumes again."""
    monkeypatch.setattr(links, "UNUSED_HERE", 60.0)
    with against(folder, "client") as (peer, program):
        if renewed:
            peer.exchange_secrets()
            in_effect(program, 1)
        peer.tls.cut()
        late = peer.again()
        mine = peer.resume_of(late)
        peer.resume()
        assert isinstance(exchanged("client", late, mine), Resume)
        assert peer.error() == "resume"
        late.cut()
        peer.resume()
        renews(peer, program)
        assert WITHDRAW not in made(program)


def test_agent_learns_of_its_late_resume(folder: Path) -> None:
    """As client, also in an exchange: it resumes in another connection."""
    with against(folder, "server") as (peer, program):
        for steps in (0, STEPS.index("shake")):
            walk(peer, program, steps)
            peer.say(ErrorMessage("resume", "another stream has the session"))
            peer.tls.close()
            peer.resume()
            renews(peer, program)
        assert made(program) == [RX, TX] * 2


# Refusals -------------------------------------------------------------------------


def changed(peer: ResumingPeer, again: BlockingTLS, what: str) -> Resume:
    """This end's RESUME, with something wrong."""
    mine = peer.resume_of(again)
    other = "client" if peer.role == "server" else "server"
    proofs = mine.proofs
    wrong = bytes([proofs[0][0] ^ 1]) + proofs[0][1:]
    match what:
        case "hash":
            return replace(mine, hash=os.urandom(32))
        case "first":
            return replace(mine, proofs=(wrong, proofs[1]))
        case "last":
            return replace(mine, proofs=(proofs[0], proofs[1][:-1] + bytes([proofs[1][-1] ^ 1])))
        case "all":
            return replace(mine, proofs=(os.urandom(32), os.urandom(32)))
        case "wrong and empty":
            return replace(mine, proofs=(b"", wrong))
        case "empty":
            return replace(mine, proofs=(b"", b""))
        case "fewer":
            return replace(mine, given=mine.given[:1], proofs=proofs[:1])
        case "more":
            return replace(mine, given=(0,) * 3, proofs=(*proofs, proofs[1]))
        case "most":
            return replace(mine, given=(0,) * 256, proofs=proofs * 128)
        case "swapped":
            return replace(mine, proofs=proofs[::-1])
        case "reflected":
            return replace(mine, proofs=tuple(peer.proof(again, qp, other) for qp in (0, 1)))
        case "another connection":
            return peer.resume_of(peer.tls)
        case _:
            raise AssertionError(what)


WRONG = [
    "hash",
    "first",
    "last",
    "all",
    "wrong and empty",
    "empty",
    "fewer",
    "more",
    "most",
    "swapped",
    "reflected",
    "another connection",
]


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize(("role", "lost"), [("client", True), ("client", False), ("server", True)])
def test_wrong_resume(folder: Path, role: str, what: str, lost: bool) -> None:
    """The session stays as it was: with its connection if that was not lost, and without REKEY."""
    with against(folder, role) as (peer, program):
        if role == "server":
            program.wish(1)
        peer.exchange_secrets()
        in_effect(program, 1)
        if lost:
            peer.tls.cut()
        again = peer.again()
        assert refused(peer.role, again, changed(peer, again, what)) == "resume"
        untouched(program)
        assert made(program) == [RX, TX]
        if lost:
            peer.resume()
        renews(peer, program)


@pytest.mark.parametrize("role", ROLES)
def test_another_identity_of_the_peer(folder: Path, role: str) -> None:
    """With the right hash and proofs, as if it had stolen everything but the certificate."""
    with against(folder, role) as (peer, program):
        peer.tls.cut()
        again = peer.again(load(folder, "m"))
        if role == "client":
            assert refused("client", again, peer.resume_of(again)) == "resume"
        else:  # the agent refuses the peer before it sends anything
            told = decode(again.message())
            assert isinstance(told, ErrorMessage) and told.code == "identity"
            again.close()
        untouched(program)
        peer.resume()
        renews(peer, program)


@pytest.mark.parametrize(
    "answer",
    [
        Ready(),
        ClosedMessage(),
        Rekey(b"hello"),
        Rekey(b""),
        Taken(1),
        b"\xff",
        b"",
        ErrorMessage("resume", "no such session"),
        ErrorMessage("gone", "the worker ended"),
    ],
    ids=repr,
)
def test_another_answer_to_resume(folder: Path, answer: Any) -> None:
    """Another answer of a server does not end the session, and the agent tries again."""
    with against(folder, "server") as (peer, program):
        peer.tls.cut()
        again = peer.again()
        assert isinstance(exchanged("server", again, answer), Resume)
        if not isinstance(answer, ErrorMessage | ClosedMessage):  # they end the stream
            told = decode(again.message())
            assert isinstance(told, ErrorMessage) and told.code in ("state", "format")
        again.close()
        peer.resume()
        untouched(program)
        renews(peer, program)


@pytest.mark.parametrize(
    "first",
    [Ready(), Rekey(b"hello"), Rekey(b""), Taken(1), b"\xff", b""],
    ids=repr,
)
def test_another_first_message(folder: Path, first: Any) -> None:
    """It is not of the session, which the stream has not resumed."""
    with against(folder, "client") as (peer, program):
        again = peer.again()
        again.send(first if isinstance(first, bytes) else encode(first))
        told = decode(again.message())
        assert isinstance(told, ErrorMessage)
        again.close()
        untouched(program)
        renews(peer, program)


def accept(program: Keyex, folder: Path) -> None:
    """Lets the program accept the next peer of its listener, for QPs of their own."""
    assert isinstance(program.program, Listening)
    wire = program.program.listener
    while (event := wire.event())["event"] != "arrived":
        assert event["event"] == "refused"
    settings = accepting(folder, program.worker, event["arrival"])
    for qp in settings["qps"]:
        qp["qpn"] += 100
    program.program.open(settings)


def test_resume_over_the_first_version(folder: Path) -> None:
    """As server the agent takes it for a peer of a new session; as client it tries again."""
    with against(folder, "client") as (peer, program):
        peer.tls.cut()
        again = peer.again(first=True)
        assert again.version == 1
        again.send(encode(peer.resume_of(again)))
        accept(program, folder)
        told = decode(again.message())
        assert isinstance(told, ErrorMessage) and told.code == "state"
        again.close()
        untouched(program)
        peer.resume()
        renews(peer, program)


def test_server_has_only_the_first_version_now(folder: Path) -> None:
    with against(folder, "server") as (peer, program):
        peer.tls.cut()
        again = peer.again(first=True)
        told = decode(again.message())
        assert isinstance(told, ErrorMessage) and told.code == "resume"
        again.close()
        untouched(program)
        peer.resume()
        renews(peer, program)


@pytest.mark.parametrize("lost", [True, False])
def test_session_of_the_first_version_is_not_resumed(folder: Path, lost: bool) -> None:
    with against(folder, "client", first=True) as (peer, program):
        assert peer.tls.version == 1
        if lost:
            peer.tls.cut()
        again = peer.again()
        assert again.version == 2
        assert refused("client", again, peer.resume_of(again)) == "resume"
        if lost:
            assert program.event() == {"event": "closed"}
        untouched(program)


@pytest.mark.parametrize("role", ROLES)
def test_resume_in_the_middle_of_a_session(folder: Path, role: str) -> None:
    """It is a message out of turn of the peer itself."""
    with against(folder, role) as (peer, program):
        peer.say(peer.resume_of(peer.tls))
        assert peer.error() == "state"
        peer.tls.close()
        assert program.events()[-1]["code"] == "state"
        assert program.worker.expired == qps(program)


def test_resume_as_second_message(folder: Path) -> None:
    """It ends only the exchange of its own connection."""
    with against(folder, "client") as (peer, program):
        again = peer.again()
        ends = tuple(End(os.urandom(16), qpn, 1 << 23, 4096, 64, 16, "peer") for qpn in (7, 8))
        again.send(encode(Offer((peer.suite,), (0,), "", os.urandom(32), ends)))
        again.send(encode(peer.resume_of(again)))
        accept(program, folder)
        while not isinstance(told := decode(again.message()), ErrorMessage):
            pass
        assert told.code == "state"
        again.close()
        untouched(program)
        renews(peer, program)


@pytest.mark.parametrize("role", ROLES)
def test_no_first_message(folder: Path, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a stream is closed. As client the agent tries again, in another stream
    of the connection."""
    with against(folder, role) as (peer, program):
        monkeypatch.setattr(links, "UNUSED_HERE", SHORT)
        monkeypatch.setattr(upkeep, "RESUME_TIMEOUT", SHORT)
        peer.tls.cut()
        again = peer.again()
        if role == "client":
            again.until_closed()
        else:
            for again.stream in (1, 3, 5):
                assert isinstance(decode(again.message()), Resume)
        again.close()
        monkeypatch.undo()
        untouched(program)
        peer.resume()
        renews(peer, program)


@pytest.mark.parametrize("way", ["fin", "rst", "close_notify"])
@pytest.mark.parametrize("role", ROLES)
def test_connection_ends_before_its_first_message(folder: Path, role: str, way: str) -> None:
    with against(folder, role) as (peer, program):
        peer.tls.cut()
        again = peer.again()
        again.close() if way == "close_notify" else again.cut(reset=way == "rst")
        peer.resume()
        untouched(program)
        renews(peer, program)


# Another host with the same certificate -------------------------------------------


def test_host_with_the_same_certificate(folder: Path) -> None:
    """It knows hash and counts, not the renewal keys. It cannot resume, renew or end the session,
    neither by first messages nor behind a refused RESUME."""
    with against(folder, "client") as (peer, program):
        for message in (ClosedMessage(), ErrorMessage("gone", "the worker ended"), Rekey(b"x")):
            thief = peer.again()
            thief.send(encode(message))
            thief.close()
        for proofs in ((os.urandom(32), os.urandom(32)), (b"", b"")):
            for last in (ClosedMessage(), ErrorMessage("gone", "the worker ended"), Rekey(b"x")):
                thief = peer.again()
                thief.send(encode(replace(peer.resume_of(thief), proofs=proofs)))
                thief.send(encode(last))
                if isinstance(last, Rekey):  # the others end the stream
                    told = decode(thief.message())
                    assert isinstance(told, ErrorMessage) and told.code == "resume"
                thief.close()
        untouched(program)
        assert not made(program)
        renews(peer, program)


def test_proofs_of_another_session_of_the_same_hosts(folder: Path) -> None:
    with against(folder, "client") as (peer, program):
        other = ResumingPeer(program.other_end(), "client", peer.credentials)
        other.program = program
        thread = threading.Thread(target=accept, args=(program, folder))
        thread.start()
        other.connect()
        thread.join()
        for one, stranger in ((peer, other), (other, peer)):
            again = one.again()
            mine = replace(one.resume_of(again), proofs=stranger.resume_of(again).proofs)
            assert refused("client", again, mine) == "resume"
        other.resume()
        other.say(ClosedMessage())
        until(lambda: len(program.worker.ended) == 2)
        assert not {qpn for qpn, _ in program.worker.ended} & {*qps(program)}
        peer.resume()
        peer.exchange_secrets()
        in_effect(program, 1)
        other.tls.close()


def test_wish_that_is_ignored_behind_each_resumption(folder: Path) -> None:
    """Clock (a) counts the time of each connection."""
    with against(folder, "client", limit=1.0) as (peer, program):
        program.wish(1)
        with contextlib.suppress(AssertionError, ExchangeError, Truncated):  # when it has ended
            for _ in range(100):
                peer.resume()
                time.sleep(0.15)
        until(lambda: sorted(program.worker.expired) == qps(program))


def test_resumptions_have_a_rate(folder: Path) -> None:
    """The worker checks each proof. One that comes too early is refused and changes nothing."""
    with against(folder, "client") as (peer, program):
        made = peer.again()
        codes = []
        for made.stream in range(1, 41, 2):
            made.send(encode(peer.resume_of(made)))
            answer = decode(made.message())
            codes.append(answer.code if isinstance(answer, ErrorMessage) else "")
        right = codes.index("rate")
        assert right >= 10 and codes[:right] == [""] * right and set(codes) == {"", "rate"}
        assert codes.count("") < 15
        peer.tls, made.stream = made, 1 + 2 * max(n for n, code in enumerate(codes) if not code)
        renews(peer, program)


def test_wakes_have_a_rate(folder: Path) -> None:
    with against(folder, "server") as (peer, program):
        peer.tls.raw = True
        for number in range(2, 42, 2):
            peer.tls.send_on(number, encode(Wake(peer.exchange.hash)))
        told: dict[int, str] = {}
        while 40 not in told:
            frame = peer.tls.message()
            error = decode(frame[4:])
            assert isinstance(error, ErrorMessage)
            told[int.from_bytes(frame[:4], "big")] = error.code
        assert min(told) > 20 and set(told.values()) == {"rate"}
        untouched(program)


def test_client_that_refuses_the_proofs_of_the_server(folder: Path) -> None:
    """The server's session is lost again, and not ended."""
    with against(folder, "client") as (peer, program):
        peer.tls.cut()
        made = peer.again()
        theirs = exchanged("client", made, peer.resume_of(made))
        assert isinstance(theirs, Resume)
        made.send(encode(ErrorMessage("resume", "a proof is wrong")))
        peer.resume()
        renews(peer, program)


def test_wish_right_behind_ready(folder: Path) -> None:
    """Both arrive in one read."""
    program = Keyex(config("client", load(folder, "b")))
    with finished(program):
        peer = ResumingPeer(program.other_end(), "server", load(folder, "a"), 0)
        peer.program = program
        usual = peer.tls.send

        def send(message: bytes) -> None:
            if message == encode(Ready()):
                for each in (message, encode(Rekey(b""))):
                    peer.tls.say(peer.tls.stream.to_bytes(4, "big") + each)
                peer.tls._flush()
            else:
                usual(message)

        peer.tls.send = send  # type: ignore[method-assign]
        peer.connect(len(program.config["qps"]))
        peer.exchange_secrets()
        in_effect(program, 1)
        peer.tls.close()


# The former connection ------------------------------------------------------------


@pytest.mark.parametrize("renewed", [False, True])
def test_resume_while_the_former_connection_is_open(folder: Path, renewed: bool) -> None:
    """The agent ends its stream. Later messages of it have no effect."""
    with against(folder, "client") as (peer, program):
        old = peer.tls
        peer.resume()
        if renewed:
            renews(peer, program)
        told = decode(old.message())
        assert isinstance(told, ErrorMessage) and told.code == "resume"
        for message in (ClosedMessage(), ErrorMessage("gone", "the end"), Rekey(b"")):
            old.send(encode(message))
        assert silent(old)
        old.close()
        renews(peer, program)


def test_several_connections_one_after_the_other(folder: Path) -> None:
    """The newest one stays."""
    with against(folder, "client") as (peer, program):
        old = []
        for _ in range(5):
            old.append(peer.tls)
            peer.resume()
        for one in old:
            told = decode(one.message())
            assert isinstance(told, ErrorMessage) and told.code == "resume"
            assert silent(one)
            one.close()
        renews(peer, program)


def test_second_resume_replaces_one_that_waits_for_its_answer(folder: Path) -> None:
    with against(folder, "client") as (peer, program):
        worker = program.worker
        worker.stuck = {(qps(program)[1], TX)}
        walk(peer, program, STEPS.index("hear"))
        peer.say_inner(Taken(1))
        until(lambda: made(program) == [RX, TX])
        peer.given = 1
        first = peer.again()
        first.send(encode(peer.resume_of(first)))
        assert peer.error() == "resume"
        second = peer.again()
        second.send(encode(peer.resume_of(second)))
        assert silent(first)
        worker.stuck = set()
        assert isinstance(decode(second.message()), Resume)
        peer.tls = second
        renews(peer, program)


# QPs that have ended --------------------------------------------------------------


@pytest.mark.parametrize("qp", [0, 1])
@pytest.mark.parametrize("role", ROLES)
def test_qp_that_ended_at_the_agent(folder: Path, role: str, qp: int) -> None:
    """Its proof is empty, and that of the peer is not checked."""
    with against(folder, role) as (peer, program):
        program.worker.gone.add(qps(program)[qp])
        peer.tls.cut()
        again = peer.again()
        mine = peer.resume_of(again)
        proofs, given = [*mine.proofs], [*mine.given]
        proofs[qp], given[qp] = os.urandom(32), 17
        theirs = peer.resume_by(again, replace(mine, proofs=tuple(proofs), given=tuple(given)))
        assert [bool(proof) for proof in theirs.proofs] == [qp != 0, qp != 1]
        assert theirs.given[qp] == 0
        peer.exchange_secrets()
        until(lambda: made(program, 1 - qp) == [RX, TX])
        assert made(program, qp) == []
        untouched(program)


@pytest.mark.parametrize("role", ROLES)
def test_only_proofs_of_qps_that_ended_at_the_agent(folder: Path, role: str) -> None:
    """They prove nothing."""
    with against(folder, role) as (peer, program):
        program.worker.gone.add(qps(program)[0])
        peer.tls.cut()
        again = peer.again()
        mine = peer.resume_of(again)
        assert refused(peer.role, again, replace(mine, proofs=(mine.proofs[0], b""))) == "resume"
        peer.resume()
        untouched(program)


def test_all_qps_ended_at_the_server(folder: Path) -> None:
    with against(folder, "client") as (peer, program):
        program.worker.gone.update(qps(program))
        peer.tls.cut()
        again = peer.again()
        assert refused("client", again, peer.resume_of(again)) == "resume"


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "not checked"])
def test_qps_end_while_a_peer_resumes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, checked: bool
) -> None:
    """The session ends in the turn in which the RESUME arrives: the peer is told nevertheless."""
    check = upkeep.Upkeep._check_offer

    def end(session: upkeep.Upkeep) -> None:
        if checked:
            check(session)
        session._look_at = 0.0

    monkeypatch.setattr(upkeep.Upkeep, "_check_offer", end)
    with against(folder, "client") as (peer, program):
        program.worker.gone.update(qps(program))
        peer.tls.cut()
        again = peer.again()
        assert refused("client", again, peer.resume_of(again)) == "resume"


def test_all_qps_ended_at_the_client(folder: Path) -> None:
    """There is nothing to resume."""
    with against(folder, "server") as (peer, program):
        program.worker.gone.update(qps(program))
        peer.tls.cut()
        assert program.event() == {"event": "closed"}
        assert program._listening and not select.select([program._listening], [], [], SHORT)[0]


@pytest.mark.parametrize("role", ROLES)
def test_session_ends_with_the_connection_at_level_none(folder: Path, role: str) -> None:
    """It has no renewal keys. A client does not connect again, and a server refuses."""
    with against(folder, role, suites=[list(NONE)]) as (peer, program):
        peer.tls.cut()
        assert program.event() == {"event": "closed"}
        if role == "client":
            again = peer.again()
            assert refused("client", again, peer.resume_of(again)) == "resume"
        else:
            assert program._listening and not select.select([program._listening], [], [], SHORT)[0]
        untouched(program)


def test_worker_that_refuses_withdrawal(folder: Path) -> None:
    """The session fails: the next secrets could not be taken."""
    with against(folder, "client") as (peer, program):
        walk(peer, program, STEPS.index("hear"))
        program.worker.refuses, program.worker.refuse = Kind.REKEY, "not today"
        peer.tls.cut()
        again = peer.again()
        again.send(encode(peer.resume_of(again)))
        event = program.events()[-1]
        assert event["code"] == "worker" and "not today" in event["text"]
        assert program.worker.expired == qps(program)
        again.close()
