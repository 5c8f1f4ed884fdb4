"""The rate of exchanges of a session (protocol.md 8.5)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from srdma.keyex import renew
from srdma.keyex.exchange import Role
from srdma.keyex.messages import Rekey, Renew, Taken
from srdma.keyex.pace import BURST, EVERY, PEERS_BURST, Pace
from tests import keyex_players
from tests.keyex_players import Keyex, config, finished, load, until
from tests.renew_players import Peer
from tests.thread_agent import ThreadAgent

ASKED = 0
MORE = 3  # exchanges beyond a burst


@contextmanager
def against(folder: Path, role: Role) -> Iterator[tuple[Peer, Keyex]]:
    """Yields a peer of this role, and the program, after `ready`."""
    program = Keyex(config("server" if role == "client" else "client", load(folder, "b")))
    with finished(program):
        peer = Peer(program.other_end(), role, load(folder, "a"))
        try:
            peer.connect()
            assert [program.event()["event"], program.event()["event"]] == ["peer", "ready"]
            yield peer, program
        finally:
            peer.tls.close()


def completed(program: Keyex) -> int:
    asked = [body for body in [*program.worker.rekeys] if body[1] == ASKED]
    return len(asked) // len(program.config["qps"])


# Without a clock ------------------------------------------------------------------------


def test_burst_then_one_per_second() -> None:
    pace = Pace(3)
    assert [pace.take(100.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert pace.next == 100.0 + EVERY
    assert not pace.take(100.0 + EVERY - 0.01)
    assert pace.take(pace.next) and not pace.take(100.0 + EVERY)


def test_rest_restores_the_burst_and_no_more() -> None:
    pace = Pace(3)
    assert pace.next < 0 and pace.take(0.0)
    assert [pace.take(1000.0) for _ in range(4)] == [True, True, True, False]
    taken = sum(pace.take(1000.0 + n / 8) for n in range(8 * 60))
    assert 58 <= taken <= 60


# Ends that want exchanges without pause ---------------------------------------------------


def test_client_that_begins_exchanges_without_pause(folder: Path) -> None:
    """It gets a burst, then an ERROR. The QPs end, as in every exchange that fails."""
    with against(folder, "client") as (peer, program):
        begin, count = time.monotonic(), 0
        while count < 10 * PEERS_BURST:
            peer.begin()
            if not peer.shake():
                break
            peer.say_inner(peer.renew())
            assert isinstance(peer.hear_inner(), Renew)
            assert peer.hear_inner() == Taken(peer.count)
            peer.say_inner(Taken(peer.count))
            count += 1
        assert PEERS_BURST <= count <= PEERS_BURST + 1 + (time.monotonic() - begin) / EVERY
        assert peer.error() == "rate"
        event = program.events()[-1]
        assert (event["event"], event["code"], event["text"]) == ("error", "rate", renew.TOO_OFTEN)
        assert program.worker.expired == [qp["qpn"] for qp in program.config["qps"]]


def test_exchanges_that_the_server_asks_for_are_not_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without a pace of its own begins each at once."""
    monkeypatch.setattr(keyex_players, "PrivateAgent", ThreadAgent)
    monkeypatch.setattr(renew, "BURST", 1000)
    with against(folder, "client") as (peer, program):
        for count in range(1, PEERS_BURST + MORE + 1):
            program.wish(count)
            assert peer.hear() == Rekey(b"")
            peer.exchange_secrets()
            assert program.event() == {"event": "renewed", "count": count, "wish": count}
        assert not program.worker.expired


def test_server_that_wishes_without_pause(folder: Path) -> None:
    """The client delays the exchanges, and ends nothing."""
    with against(folder, "server") as (peer, program):
        begin = time.monotonic()
        for _ in range(BURST + MORE):
            for _ in range(3):
                peer.say(Rekey(b""))
            peer.exchange_secrets()
        assert time.monotonic() - begin > (MORE - 1) * EVERY
        until(lambda: completed(program) >= BURST + MORE)
        assert not program.worker.expired


@pytest.mark.parametrize("role", ["client", "server"])
def test_program_that_wishes_without_pause(folder: Path, role: Role) -> None:
    """Each of its requests is completed, in time. role: of the peer."""
    with against(folder, role) as (peer, program):
        begin = time.monotonic()
        for count in range(1, BURST + MORE + 1):
            program.wish(count)
            if role == "client":
                assert peer.hear() == Rekey(b"")
            peer.exchange_secrets()
            assert program.event() == {"event": "renewed", "count": count, "wish": count}
        assert time.monotonic() - begin > (MORE - 1) * EVERY
        assert not program.worker.expired
