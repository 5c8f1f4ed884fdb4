"""The turns of an agent's exchanges (srdma/keyex/pace.py), and their use by the renewals of a
session (srdma/keyex/renew.py), in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srdma.control import Direction
from srdma.identity import Credentials
from srdma.keyex import pace, renew
from srdma.keyex.agreement import Agreement
from srdma.keyex.exchange_renew import Renewal
from srdma.keyex.messages import Handover
from srdma.keyex.pace import BURST, EVERY, HELD, TURNS, Turns
from srdma.keyex.renew import Job, Renewing, Times
from tests.exchange_players import QPS
from tests.keyex_players import HOST_A, HOST_B, load
from tests.renew_players import agreement, done

LIMIT = 60.0


class Loop:
    """In place of the clock and of the event loop. A timer runs in pass_to()."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_at(self, when: float, call: Callable[[], None]) -> object:
        self.timers.append((when, call))
        return call

    def pass_to(self, now: float) -> None:
        self.now = now
        due = [timer for timer in self.timers if timer[0] <= now]
        self.timers = [timer for timer in self.timers if timer[0] > now]
        for _, call in due:
            call()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    for module in (pace, renew):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now))
    monkeypatch.setattr(pace, "asyncio", SimpleNamespace(get_running_loop=lambda: made))
    return made


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch, loop: Loop) -> Loop:
    """One exchange at a time."""
    monkeypatch.setattr(pace, "TURNS", 1)
    return loop


class Queue:
    """Exchanges that take turns. called: those that had to wait and whose turn came."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.called: list[str] = []

    def take(self, who: str, due: float = 0.0) -> bool:
        return self.turns.take(who, due, lambda: self.called.append(who))

    def give(self, *names: str) -> None:
        for who in names:
            self.turns.give(who)


@pytest.fixture
def queue() -> Queue:
    return Queue()


# Turns ------------------------------------------------------------------------------


@pytest.mark.usefixtures("loop")
def test_exchanges_at_the_same_time(queue: Queue) -> None:
    """The number is that of agent.md 4."""
    assert TURNS == 64
    assert all(queue.take(f"{n}") for n in range(64))
    assert not queue.take("later") and queue.called == []
    queue.give("7")
    assert queue.called == ["later"] and queue.take("later")
    assert not queue.take("one more")


@pytest.mark.usefixtures("single")
def test_turn_that_is_taken_twice(queue: Queue) -> None:
    assert queue.take("a") and queue.take("a")
    assert not queue.take("b") and not queue.take("b")
    queue.give("a")
    assert queue.called == ["b"]
    queue.give("b")
    assert queue.called == ["b"] and queue.take("c")


@pytest.mark.usefixtures("single")
def test_order_of_due_times(queue: Queue) -> None:
    queue.take("first", 50)
    for who, due in (("c", 30), ("a", 10), ("d", 30), ("b", 20)):
        assert not queue.take(who, due)
    for who in ("first", "a", "b", "c"):
        queue.give(who)
    assert queue.called == ["a", "b", "c", "d"]


@pytest.mark.usefixtures("single")
def test_exchange_that_was_due_earlier_does_not_pass_those_that_wait(queue: Queue) -> None:
    """A free turn goes to the one that was due first, not to the one that asks."""
    queue.take("first")
    assert not queue.take("waits", 10) and not queue.take("late", 20)
    queue.give("first")
    assert not queue.take("late", 20) and queue.called == ["waits"]


@pytest.mark.usefixtures("single")
def test_exchange_that_gives_up_its_wait(queue: Queue) -> None:
    queue.take("first")
    for due, who in enumerate("abc"):
        queue.take(who, due)
    queue.give("a", "c")
    assert queue.called == []
    queue.give("first")
    assert queue.called == ["b"]
    queue.give("b")
    assert queue.called == ["b"] and queue.take("free")


@pytest.mark.usefixtures("single")
def test_wait_after_one_that_was_given_up(queue: Queue) -> None:
    """The former due time has no effect any more."""
    queue.take("first")
    queue.take("a", 10)
    queue.take("b", 20)
    queue.give("a")
    queue.take("a", 30)
    queue.give("first")
    assert queue.called == ["b"]
    queue.give("b")
    assert queue.called == ["b", "a"]


@pytest.mark.usefixtures("single")
def test_turn_of_a_stranger_is_given(queue: Queue) -> None:
    queue.take("a")
    queue.give("b")
    assert not queue.take("c") and queue.called == []


def test_slow_exchange_counts_no_longer(queue: Queue, single: Loop) -> None:
    """After HELD seconds the next one has the turn, without a call of the slow one."""
    assert HELD == 2.0
    begin = single.now
    queue.take("slow")
    single.pass_to(begin + 1)
    assert not queue.take("b", 1) and not queue.take("c", 2)
    assert [when for when, _ in single.timers] == [begin + HELD]
    single.pass_to(begin + HELD - 0.01)
    assert queue.called == []
    single.pass_to(begin + HELD)
    assert queue.called == ["b"]
    assert [when for when, _ in single.timers] == [begin + 2 * HELD]
    queue.give("slow")  # its turn was over
    assert queue.called == ["b"]
    single.pass_to(begin + 2 * HELD)
    assert queue.called == ["b", "c"] and not single.timers


def test_slow_exchange_needs_another_turn(queue: Queue, single: Loop) -> None:
    queue.take("slow")
    queue.take("b")
    single.pass_to(single.now + HELD)
    assert not queue.take("slow")
    queue.give("b")
    assert queue.called == ["b", "slow"]


def test_timer_only_while_an_exchange_waits(queue: Queue, single: Loop) -> None:
    queue.take("a")
    assert not single.timers
    queue.take("b")
    assert len(single.timers) == 1
    queue.give("b", "a")
    single.pass_to(single.now + HELD)
    assert not single.timers and queue.called == []


def test_timer_that_is_early(queue: Queue, single: Loop) -> None:
    """An event loop may call a timer a little before its time."""
    queue.take("a")
    queue.take("b")
    [(when, call)] = single.timers
    single.timers, single.now = [], when - 1e-9
    call()
    assert queue.called == [] and [at for at, _ in single.timers] == [when]


# Renewals of a session ----------------------------------------------------------------


class Secrets:
    """In place of NewSecrets."""

    def __init__(self, agreed: Agreement) -> None:
        self.agreement = agreed

    def derive(self, *_: object) -> Handover:
        return Handover()

    def received(self, *_: object) -> list[bytearray]:
        return [bytearray(b"s" * 16) for _ in range(QPS)]

    sent = received

    def give(self, *_: object) -> None:
        """The worker accepts each REKEY."""


class End:
    """A Renewing with a connection, and its owner. sent: its messages; rings: calls of ring();
    completed: the numbers of the exchanges that took effect."""

    def __init__(self, agreed: Agreement, credentials: Credentials, limit: float = LIMIT) -> None:
        self._credentials = credentials
        self.sent: list[bytes] = []
        self.rings = 0
        self.completed: list[int] = []
        self.turns = Turns()
        self.renewing = Renewing(
            Renewal(agreed, 0), cast(Any, Secrets(agreed)), Times(0.0, limit), self, self.turns
        )
        self.connect()

    def connect(self) -> None:
        stream = SimpleNamespace(version=2, send=self.sent.append, reachable=lambda: True)
        self.renewing.attach(cast(Any, stream))

    def credentials(self) -> Credentials:
        return self._credentials

    def began(self, count: int) -> None:
        pass

    def renewed(self, count: int, *_: object) -> None:
        self.completed.append(count)

    def ring(self) -> None:
        self.rings += 1

    def wants(self) -> None:
        """Its program wants an exchange. Work follows until nothing is due."""
        self.renewing.wish(1)
        self.renewing.step()

    def hear(self, other: End) -> None:
        """Process what the other end has sent."""
        while other.sent:
            self.renewing.receive(other.sent.pop(0))
            self.renewing.step()

    def occupy(self) -> None:
        """Another session of the agent gets the turn."""
        assert self.turns.take("another", 0.0, lambda: None)

    def vacate(self) -> None:
        self.turns.give("another")

    @property
    def has_turn(self) -> bool:
        free = self.turns.take("a probe", 1e9, lambda: None)
        self.turns.give("a probe")
        return not free


@pytest.fixture
def ends(identities: Path, single: Loop) -> tuple[End, End]:
    """A client and a server, each of an agent of its own that has one turn."""
    return made(identities)


def made(identities: Path, limit: float = LIMIT) -> tuple[End, End]:
    client, server = (player.exchange for player in done())
    return (
        End(agreement(client, HOST_B), load(identities, "a"), limit),
        End(agreement(server, HOST_A), load(identities, "b"), limit),
    )


def exchange(client: End, server: End) -> None:
    """All messages arrive."""
    while client.sent or server.sent:
        server.hear(client)
        client.hear(server)


@pytest.mark.parametrize("number", [0, 1])
def test_exchange_takes_a_turn_and_gives_it(ends: tuple[End, End], number: int) -> None:
    """number: of the end that wants an exchange."""
    end = ends[number]
    end.wants()
    assert end.sent and end.has_turn
    end.renewing.step()  # the next step is the peer's
    assert end.has_turn
    exchange(*ends)
    assert [end.completed for end in ends] == [[1], [1]]
    assert not end.has_turn and end.rings == 0


@pytest.mark.parametrize("number", [0, 1])
def test_exchange_waits_for_its_turn(ends: tuple[End, End], number: int, single: Loop) -> None:
    """A client begins, and a server asks for, an exchange when its turn has come. number: of the
    end that wants one."""
    end = ends[number]
    end.occupy()
    end.wants()
    assert not end.sent and end.renewing.wanted
    assert end.renewing.wake > single.now  # no call of step() without a pause
    end.vacate()
    assert end.rings == 1 and not end.sent
    end.renewing.step()
    assert len(end.sent) == 1 and end.has_turn
    exchange(*ends)
    assert [end.completed for end in ends] == [[1], [1]]
    assert not end.has_turn


def test_order_of_two_sessions(identities: Path, single: Loop) -> None:
    """It is that of the times at which they wanted an exchange, not of their steps."""
    one, other = made(identities)
    one.turns = other.renewing._turns = other.turns
    one.renewing._turns = other.turns
    one.occupy()
    one.renewing.wish(1)
    single.now += 1
    other.wants()
    one.renewing.step()
    one.vacate()
    assert (one.rings, other.rings) == (1, 0)


def test_exchange_that_the_peer_begins_needs_no_turn(ends: tuple[End, End]) -> None:
    client, server = ends
    server.occupy()
    client.wants()
    exchange(client, server)
    assert server.completed == [1] and server.rings == 0


def test_wish_of_the_server_needs_a_turn_of_the_client(ends: tuple[End, End]) -> None:
    client, server = ends
    client.occupy()
    server.wants()
    client.hear(server)
    assert not client.sent and server.has_turn
    client.vacate()
    client.renewing.step()
    exchange(client, server)
    assert server.completed == [1] and not server.has_turn


def test_peer_begins_while_this_end_waits(ends: tuple[End, End]) -> None:
    """The exchange completes what this end wanted, so that its wait is over."""
    client, server = ends
    server.occupy()
    server.wants()
    client.wants()
    exchange(client, server)
    assert server.completed == [1]
    server.vacate()
    assert server.rings == 0 and not server.has_turn


def test_period_without_length(ends: tuple[End, End], single: Loop) -> None:
    """A program that wants new secrets all the time does not keep its agent busy."""
    client, server = ends
    client.renewing._times = Times(1e-9, LIMIT)
    client.renewing._schedule(single.now)
    client.occupy()
    single.now += 1
    client.renewing.step()
    single.now += 1
    assert client.renewing.wanted and client.renewing.wake > single.now
    client.vacate()
    client.renewing.step()
    assert client.sent
    single.now += 1
    client.renewing.step()  # the next one is due, and waits for the end of this one
    assert client.renewing.wake > single.now
    exchange(client, server)
    assert client.completed == [1, 2]


def test_secrets_of_a_job_are_not_shown() -> None:
    secret = bytearray(b"key material")
    job = Job(Direction.RX, [partial(print, secret)], "", lambda: None, [secret])
    assert "material" not in repr(job)


def test_rate_permits_the_exchange_between_step_and_wake(
    ends: tuple[End, End], single: Loop
) -> None:
    """step() came a little too early for the rate (8.5). The next one follows at once."""
    client, _ = ends
    for _ in range(BURST):
        client.renewing._pace.take(single.now)
    permitted = single.now + EVERY
    single.now = permitted - 1e-4
    client.wants()
    assert not client.sent and client.renewing.wake == permitted
    single.now = permitted + 1e-4
    assert client.renewing.wake == permitted
    client.renewing.step()
    assert client.sent


@pytest.mark.parametrize("limit", [60.0, 12.0, 4.0, 0.5])
def test_overdue_exchange_waits_no_longer(identities: Path, single: Loop, limit: float) -> None:
    """It begins when half of its limit is over."""
    client, server = made(identities, limit)
    client.occupy()
    begin = single.now
    client.wants()
    while not client.sent:
        assert client.renewing.wake <= begin + limit / 2
        single.now = client.renewing.wake  # and no turn is over, without a timer
        client.renewing.step()
    assert single.now == begin + limit / 2
    exchange(client, server)
    assert client.completed == [1]
    client.vacate()
    assert not client.has_turn


def test_turn_that_is_over_does_not_end_the_exchange(ends: tuple[End, End], single: Loop) -> None:
    client, server = ends
    client.wants()
    single.pass_to(single.now + HELD)
    assert not client.has_turn
    exchange(client, server)
    assert client.completed == [1]


def test_lost_connection_ends_the_turn(ends: tuple[End, End]) -> None:
    client, _ = ends
    client.wants()
    client.renewing.lost()
    client.renewing.step()
    assert not client.has_turn


def test_end_of_a_session_ends_its_turn_and_its_wait(identities: Path, single: Loop) -> None:
    for waits in (False, True):
        client, _ = made(identities)
        if waits:
            client.occupy()
        client.wants()
        client.renewing.forget()
        client.vacate()
        assert not client.has_turn and client.rings == 0


def test_session_without_a_connection_keeps_its_turn(ends: tuple[End, End]) -> None:
    """It has taken the turn in order to connect (upkeep.py), and uses it for the exchange."""
    client, server = ends
    client.renewing.lost()
    client.occupy()
    client.wants()
    assert client.renewing.wanted and not client.renewing.turn
    assert not client.turns.take("the next", 1e9, lambda: None)
    client.vacate()
    assert client.rings == 1
    client.renewing.step()
    assert client.renewing.turn
    client.turns.give("the next")
    client.connect()
    client.renewing.resumed(0)
    client.renewing.step()
    server.renewing.resumed(0)
    exchange(client, server)
    assert client.completed == [1] and not client.has_turn
