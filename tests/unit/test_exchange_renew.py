"""New secrets without I/O: both ends, every order, every refusal (protocol.md 8.5)."""

from __future__ import annotations

import contextlib
import os

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from srdma.keyex.exchange_renew import TABLE, WAITING, Give
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import (
    COUNT_MAX,
    MESSAGE_MAX,
    Confirm,
    ErrorMessage,
    Handover,
    Ready,
    Rekey,
    Renew,
    Taken,
    decode,
    encode,
)
from tests.exchange_players import BASIC, CHACHA, NONE, PD, WAYS, frozen, made
from tests.renew_players import Renewer, ends, until_offered

HASH = bytes(32)


# Messages ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        Rekey(b""),
        Rekey(b"records"),
        Renew(HASH, 1),
        Renew(HASH, COUNT_MAX, made("secrets")),
        Taken(7),
    ],
)
def test_messages_round_trip(message) -> None:
    raw = encode(message)
    assert decode(raw) == message and encode(decode(raw)) == raw


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"rekey": "text"}, "value"),
        ({"rekey": 1}, "value"),
        ({"rekey": b"", "more": 1}, "format"),
        ({"taken": 0}, "value"),
        ({"taken": COUNT_MAX + 1}, "value"),
        ({"taken": True}, "value"),
        ({"taken": b"1"}, "value"),
        ({"taken": 1, "count": 1}, "format"),
        ({"count": 1}, "format"),
        ({"hash": HASH, "count": 0}, "value"),
        ({"hash": HASH, "count": -1}, "value"),
        ({"hash": HASH[1:], "count": 1}, "value"),
        ({"hash": HASH, "count": 1, "secrets": []}, "value"),
        ({"hash": HASH, "count": 1, "secrets": [bytes(17)]}, "value"),
        ({"hash": HASH, "count": 1, "secrets": [bytes(16), bytes(32)]}, "value"),
        ({"hash": HASH, "count": 1, "secrets": [bytes(16)] * 257}, "value"),
        ({"hash": HASH, "count": 1, "secrets": [bytes(16)], "kpd": bytes(48)}, "format"),
        ({"hash": HASH, "count": 1, "more": 1}, "format"),
    ],
)
def test_invalid_messages(fields, code: str) -> None:
    with pytest.raises(ExchangeError) as refusal:
        decode(cbor2.dumps(fields, canonical=True))
    assert refusal.value.code == code
    assert "1717" not in str(refusal.value)


def test_message_that_is_too_long() -> None:
    with pytest.raises(ExchangeError, match="at most 65536"):
        decode(encode(Rekey(bytes(MESSAGE_MAX))))


def test_secrets_are_not_shown() -> None:
    secret = bytearray(b"\x11" * 16)
    shown = repr(Renew(HASH, 1, Handover(secrets=(secret,)))) + repr(Rekey(b"\x11\x11"))
    assert "x11" not in shown


# State table -----------------------------------------------------------------------

LEGAL = {
    "begin": {"client": {"idle"}, "server": set()},
    "REKEY": {
        "client": {"shaking", "offered", "taking", "said"},
        "server": {"idle", "shaking", "offered", "taking", "said"},
    },
    "shaken": {role: {"shaking"} for role in ("client", "server")},
    "derived": {role: {"deriving"} for role in ("client", "server")},
    "RENEW": {role: {"offered"} for role in ("client", "server")},
    "taken": {role: {"taking", "heard"} for role in ("client", "server")},
    "TAKEN": {role: {"taking", "said"} for role in ("client", "server")},
}


@pytest.mark.parametrize("role", ["client", "server"])
def test_legal_states_of_messages(role: str) -> None:
    assert {event for moves in TABLE[role].values() for event in moves} <= set(LEGAL)
    for event, states in LEGAL.items():
        assert {s for s, moves in TABLE[role].items() if event in moves} == states[role]
    assert set(WAITING) == set(TABLE[role]) - {"idle", "deriving", "failed"}


@pytest.mark.parametrize(
    ("mode", "group", "suite"), [*((*way, CHACHA) for way in WAYS), (BASIC, "", NONE)]
)
def test_whole_exchanges(mode: int, group: str, suite) -> None:
    client, server = ends(mode, group, suite)
    contexts = set()
    for count in (1, 2, 3):
        until_offered(client, server)
        handed = [frozen(one.made) for one in (client, server)]
        for one, other in ((server, client), (client, server)):
            one.hear(other.said[-1])
        contexts |= {one.renewal.exporter_context(qp) for one in (client, server) for qp in (0, 1)}
        server.taken()
        client.hear(server.said[-1])
        assert client.gives == server.gives == []
        client.taken()
        server.hear(client.said[-1])
        assert (client.gives, server.gives) == ([handed[1]], [handed[0]])
        assert bool(handed[0][0]) == bool(mode & 1 and not group) and not handed[0][1]
        assert client.renewal.count == server.renewal.count == count
        assert client.takes == server.takes == client.began == server.began == count
        for one in (client, server):
            assert one.renewal.idle and not any(map(any, one.made.secrets))  # wiped
            one.gives.clear()
    assert len(contexts) == 6


def test_worker_of_the_peer_finishes_first() -> None:
    """The peer's TAKEN arrives before the local worker has installed its secrets. The sending
    secrets are given to it only afterwards."""
    client, server = ends(PD)
    until_offered(client, server)
    server.hear(client.said[0])
    server.taken()
    client.hear(server.said[0], server.said[1])
    assert client.renewal.state == "heard" and client.gives == []
    client.taken()
    assert client.renewal.idle and len(client.gives) == 1


# Requests for new secrets -------------------------------------------------------------


def test_server_requests_new_secrets() -> None:
    client, server = ends()
    server.act(server.renewal.ask())
    assert server.sent == [encode(Rekey(b""))]
    client.receive(Rekey(b""))
    assert client.wanted == 1 and client.renewal.idle


def test_request_during_an_exchange_is_served_by_it() -> None:
    client, server = ends()
    client.act(client.renewal.begin())
    client.receive(Rekey(b""))
    client.receive(Rekey(b"hello"))
    client.shake()
    client.receive(Rekey(b""))
    assert client.wanted == 0
    server.receive(Rekey(b"hello"))
    server.shake()
    client.hear(server.said[0])
    client.receive(Rekey(b""))  # after the server's RENEW: a request for the next exchange
    client.taken()
    client.receive(Rekey(b""))
    assert client.wanted == 2


# Refusals -----------------------------------------------------------------------


def refused(one: Renewer, code: str, call, *args: object) -> str:
    """Checks that the call is refused, the end has failed for good, and no secret is left."""
    with pytest.raises(ExchangeError) as refusal:
        call(*args)
    assert refusal.value.code == code, refusal.value
    assert one.renewal.state == "failed"
    assert not any(map(any, one.made.secrets))
    with pytest.raises(ExchangeError):
        one.receive(Rekey(b"records"))
    assert one.gives == []
    return str(refusal.value)


@pytest.mark.parametrize("message", [Ready(), Confirm(HASH), Renew(HASH, 1), Taken(1)])
def test_other_messages_of_the_outer_connection(message) -> None:
    for one in ends():
        text = refused(one, "state", one.receive, message)
        assert text.endswith("is not legal after READY; legal: REKEY")


def test_error_of_the_peer() -> None:
    client, _ = ends()
    with pytest.raises(ExchangeError, match="no more") as refusal:
        client.receive(ErrorMessage("identity", "no more"))
    assert refusal.value.from_peer and client.renewal.state == "failed"


def test_records_at_an_idle_client() -> None:
    client, _ = ends()
    refused(client, "state", client.receive, Rekey(b"records"))


def test_request_from_the_client_is_refused() -> None:
    _, server = ends()
    refused(server, "value", server.receive, Rekey(b""))


def test_server_cannot_begin() -> None:
    client, server = ends()
    with pytest.raises(ExchangeError, match="begin is not legal in state idle of the server"):
        server.renewal.begin()
    client.renewal.begin()
    with pytest.raises(ExchangeError, match="begin is not legal in state shaking"):
        client.renewal.begin()


@pytest.mark.parametrize("role", [0, 1])
def test_records_after_taken(role: int) -> None:
    pair = ends()
    one, other = pair[role], pair[1 - role]
    until_offered(*pair)
    one.hear(other.said[0], Taken(1))
    refused(one, "state", one.receive, Rekey(b"records"))


@pytest.mark.parametrize("role", [0, 1])
def test_other_identity(role: int) -> None:
    pair = ends(PD)
    client, server = pair
    client.act(client.renewal.begin())
    server.receive(Rekey(b"hello"))
    one = pair[role]
    text = refused(one, "identity", one.shake, "spiffe://test/mallory")
    assert "changed from spiffe://test/peer to spiffe://test/mallory" in text


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda r: Renew(os.urandom(32), r.count, r.handover), "hash"),
        (lambda r: Renew(r.hash, r.count + 1, r.handover), "value"),
        (lambda r: Renew(r.hash, r.count), "format"),
        (lambda r: Renew(r.hash, r.count, made("kpd")), "format"),
        (lambda r: Renew(r.hash, r.count, made("secrets", 16, 1)), "count"),
        (lambda r: Renew(r.hash, r.count, made("secrets", 32)), "value"),
        (lambda r: Taken(r.count), "state"),
        (lambda r: Rekey(b"records"), "state"),
        (lambda r: Ready(), "state"),
        (lambda r: ErrorMessage("x", "y"), "state"),
        (lambda r: b"\xa0", "format"),
        (lambda r: b"\xff", "format"),
    ],
)
def test_wrong_renew(role: int, change, code: str) -> None:
    pair = ends(PD)
    one, other = pair[role], pair[1 - role]
    until_offered(*pair)
    right = decode(other.said[0])
    assert isinstance(right, Renew)
    text = refused(one, code, one.hear, change(right))
    assert right.handover.secrets[0].hex() not in text


@pytest.mark.parametrize("role", [0, 1])
def test_reflected_secret(role: int) -> None:
    pair = ends(PD)
    one = pair[role]
    until_offered(*pair)
    mine = Handover(secrets=tuple(map(bytearray, one.made.secrets)))
    right = decode(one.said[0])
    assert isinstance(right, Renew)
    refused(one, "value", one.hear, Renew(right.hash, 1, mine))


def test_secrets_in_mode_basic_are_refused() -> None:
    client, server = ends(BASIC)
    until_offered(client, server)
    right = decode(server.said[0])
    assert isinstance(right, Renew)
    refused(client, "format", client.hear, Renew(right.hash, 1, made("secrets")))


@pytest.mark.parametrize("role", [0, 1])
def test_wrong_taken(role: int) -> None:
    for wrong, code in ((Taken(2), "value"), (Rekey(b"x"), "state"), (b"", "format")):
        pair = ends(PD)
        one, other = pair[role], pair[1 - role]
        until_offered(*pair)
        one.hear(other.said[0])
        one.taken()
        refused(one, code, one.hear, wrong)


@pytest.mark.parametrize("role", [0, 1])
def test_repeated_message(role: int) -> None:
    for twice in ("renew", "taken"):
        pair = ends()
        one, other = pair[role], pair[1 - role]
        until_offered(*pair)
        one.hear(other.said[0])
        if twice == "taken":
            one.hear(Taken(1))
        refused(one, "state", one.hear, other.said[0] if twice == "renew" else Taken(1))


def test_local_worker_makes_too_few_secrets() -> None:
    client, _ = ends(PD)
    client.act(client.renewal.begin())
    client.receive(Rekey(b"hello"))
    client.renewal.shaken("spiffe://test/peer")
    with pytest.raises(ExchangeError, match="1 secrets for 2 QPs"):
        client.renewal.derived(made("secrets", 16, 1))


def test_last_exchange() -> None:
    client, _ = ends()
    client.renewal.count = COUNT_MAX
    with pytest.raises(ExchangeError, match="was the last one"):
        client.renewal.begin()


# Any order ------------------------------------------------------------------------

DO = ["deliver", "reflect", "foreign", "taken", "shaken", "begin", "records", "ask", "forged"]


def is_renew(said: bytes) -> bool:
    """True for RENEW, the only message that the test below reflects. A reflected TAKEN is as good
    as a false TAKEN of the peer, which cannot be detected."""
    return isinstance(decode(said), Renew)


@settings(max_examples=300, deadline=None)
@example(
    way=(0, ""),
    honest=True,
    script=[(False, "deliver", 0), (False, "taken", 0), (False, "reflect", 1)],
)
@given(
    way=st.sampled_from(WAYS),
    honest=st.booleans(),
    script=st.lists(st.tuples(st.booleans(), st.sampled_from(DO), st.integers(0, 3)), max_size=25),
)
def test_no_order_gives_secrets_before_taken(
    way: tuple[int, str], honest: bool, script: list[tuple[bool, str, int]]
) -> None:
    """An end gives its worker the sending secrets only after the other worker
    has the receiving ones."""
    pair = ends(*way)
    foreign = ends(*way)
    until_offered(*foreign)
    if honest:
        until_offered(*pair)
    heard = {True: 0, False: 0}
    for first, what, number in script:
        one, other = pair if first else (pair[1], pair[0])
        with contextlib.suppress(ExchangeError):
            match what:
                case "deliver" if heard[first] < len(other.said):
                    heard[first] += 1
                    one.hear(other.said[heard[first] - 1])
                case "reflect" if renews := [m for m in one.said if is_renew(m)]:
                    one.hear(renews[number % len(renews)])
                case "foreign":
                    one.hear(foreign[number % 2].said[0])
                case "taken" if one.takes > one.took:
                    one.taken()
                case "shaken":
                    one.shake()
                case "begin":
                    one.act(one.renewal.begin())
                case "records":
                    one.receive(Rekey(b"records"))
                case "ask":
                    one.receive(Rekey(b""))
                case "forged":
                    one.hear(Renew(os.urandom(32), one.renewal.count or 1))
        for end, peer in (pair, (pair[1], pair[0])):
            taken = [m for m in map(decode, peer.said) if isinstance(m, Taken)]
            assert len(end.gives) <= len(taken)
            assert peer.takes >= len(taken)


def test_caller_of_give_owns_the_secrets() -> None:
    """The exchange keeps no copy of the peer's secrets. The caller wipes them."""
    client, server = ends(PD)
    until_offered(client, server)
    server.hear(client.said[0])
    server.taken()
    client.hear(server.said[0])
    client.taken()
    (give,) = client.renewal.hear(server.said[1])
    assert isinstance(give, Give)
    client.renewal.forget()
    assert any(map(any, give.handover.secrets))


def test_loss_wipes_the_secrets_of_the_peer() -> None:
    client, server = ends(PD)
    until_offered(client, server)
    client.hear(server.said[0])
    kept = client.renewal._peers.secrets
    assert kept and all(map(any, kept))
    client.renewal.lost()
    assert not any(map(any, kept))
