"""The exchange under any order of messages and events gives correct results or none."""

from __future__ import annotations

import contextlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srdma.keyex.exchange import TABLE, Install
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import Confirm, Ready, encode
from tests.exchange_players import WAYS, Player, expected, form, made, players, until_keyed

DO = ["step", "deliver", "reflect", "foreign", "forged", "derived", "keyed", "running", "start"]
WHOLE = 28  # number of alternating steps of both ends after which any exchange is complete


# The states in which each message and event is legal, by role. It is legal in no other state.
LEGAL = {
    "start": {"client": {"idle"}, "server": {"idle"}},
    "OFFER": {"client": set(), "server": {"listening"}},
    "CHOICE": {"client": {"offered"}, "server": set()},
    "CONFIRM": {"client": {"confirming"}, "server": {"chosen"}},
    "derived": {"client": {"deriving"}, "server": {"deriving"}},
    "keyed": {"client": {"keying"}, "server": {"keying"}},
    "running": {role: {"connecting", "awaited"} for role in ("client", "server")},
    "READY": {role: {"connecting", "ready"} for role in ("client", "server")},
}


@pytest.mark.parametrize("role", ["client", "server"])
def test_legal_states_of_messages_and_events(role: str) -> None:
    events = {event for moves in TABLE[role].values() for event in moves}
    assert events <= set(LEGAL)
    for event, states in LEGAL.items():
        assert {s for s, moves in TABLE[role].items() if event in moves} == states[role]


def _foreign(mode: int, group: str) -> list[bytes]:
    """Returns all messages of another exchange of the same kind."""
    client, server = players(mode, group)
    until_keyed(client, server)
    return [*client.sent, *server.sent, encode(Ready())]


def _step(one: Player, other: Player, seen: dict[str, int]) -> None:
    """Runs the next step of this end in a correct exchange, if there is one."""
    if one.exchange.state == "idle":
        one.take(one.exchange.start())
    elif one.waiting:
        one.work_once()
    elif one.exchange.state in ("connecting", "awaited"):
        one.take(one.exchange.running())
    elif seen[one.role] < len(other.sent):
        seen[one.role] += 1
        one.take(one.exchange.receive(other.sent[seen[one.role] - 1]))


@settings(max_examples=500, deadline=None)
@given(
    way=st.sampled_from(WAYS),
    honest=st.integers(0, WHOLE),
    script=st.lists(st.tuples(st.booleans(), st.sampled_from(DO), st.integers(0, 9)), max_size=12),
)
def test_keys_need_verified_hashes_and_exchanged_secrets(
    way: tuple[int, str], honest: int, script: list[tuple[bool, str, int]]
) -> None:
    """A worker gets keys only if both ends have the same transcript hash, and its keys are those
    that follow from what both ends made.

    A run has `honest` regular steps, then arbitrary ones, then regular steps to the end.
    """
    mode, group = way
    client, server = players(mode, group)
    foreign = _foreign(mode, group)
    seen = {"client": 0, "server": 0}
    by_turns = [(bool(n % 2), "step", 0) for n in range(WHOLE)]
    for first, what, number in [*by_turns[:honest], *script, *by_turns]:
        one, other = (client, server) if first else (server, client)
        with contextlib.suppress(ExchangeError):
            _play(one, other, what, (number, foreign, seen))
        if one.exchange.state == "failed":
            one.waiting.clear()  # after a failure the caller stops
        for player, peer in ((client, server), (server, client)):
            _check(player, peer, mode, group)


def _check(player: Player, peer: Player, mode: int, group: str) -> None:
    if player.installed is not None:
        assert player.exchange.hash == peer.exchange.hash != b""
        assert player.installed == expected(player, peer, mode, group)
    assert player.installed is not None or not player.exchange.done


def _play(
    one: Player, other: Player, what: str, how: tuple[int, list[bytes], dict[str, int]]
) -> None:
    number, foreign, seen = how
    sources = {"deliver": other.sent, "reflect": one.sent, "foreign": foreign}
    match what:
        case "step":
            _step(one, other, seen)
        case "start":
            one.take(one.exchange.start())
        case "running":
            one.take(one.exchange.running())
        case "derived":
            wrong = sorted({"", "secrets", "kpd"} - {form(one.role, *_way(one))})
            one.exchange.derived(made(wrong[number % 2]))
        case "keyed":
            if not any(isinstance(event, Install) for event in one.waiting):
                one.take(one.exchange.keyed())
        case "forged":  # right form, wrong hash
            peers = "server" if one.role == "client" else "client"
            handover = made(form(peers, *_way(one)))  # type: ignore[arg-type]
            one.take(one.exchange.receive(encode(Confirm(os.urandom(32), handover))))
        case _:
            if source := sources[what]:
                one.take(one.exchange.receive(source[number % len(source)]))


def _way(one: Player) -> tuple[int, str]:
    mine = one.exchange._mine
    return mine.modes[0], mine.group


@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_regular_steps_complete_the_exchange(mode: int, group: str) -> None:
    """Control for the test above: regular steps alone reach the end."""
    client, server = players(mode, group)
    seen = {"client": 0, "server": 0}
    for _ in range(WHOLE // 2):
        _step(server, client, seen)
        _step(client, server, seen)
    for player, peer in ((client, server), (server, client)):
        assert player.exchange.done
        _check(player, peer, mode, group)
