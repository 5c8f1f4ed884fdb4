"""Key modes and trust groups in the exchange, without I/O (protocol.md 3.4, 8)."""

from __future__ import annotations

import os
from typing import Any

import cbor2
import pytest

from srdma.keyex.exchange import Agreed, Derive, Exchange, Role, Send
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import Confirm, decode, encode
from srdma.keyex.offers import QPS_MAX, Suite
from tests.exchange_players import (
    BASIC,
    CHACHA,
    GCM,
    MEM,
    NONE,
    PD,
    PD_MEM,
    SIZES,
    WAYS,
    Player,
    expected,
    form,
    frozen,
    made,
    parameters,
    players,
    until_confirm,
    until_keyed,
)

# Good flow -----------------------------------------------------------------------


@pytest.mark.parametrize("suite", SIZES)
@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_each_mode_and_policy(mode: int, group: str, suite: Suite) -> None:
    client, server = players(mode, group, suite)
    until_keyed(client, server)
    for one, other in ((client, server), (server, client)):
        assert one.exchange.agreed is not None
        assert one.exchange.agreed.mode == mode
        assert one.exchange.agreed.group == (group if mode & 1 else "")
        assert one.installed == expected(one, other, mode, group)
        wanted = form(one.role, mode, group)
        message = cbor2.loads(one.sent[1])
        assert set(message) == {"hash", wanted} - {""}
        assert message["hash"] == one.exchange.hash
        one.take(one.exchange.running())
    assert client.exchange.receive(server.sent[2]) and server.exchange.receive(client.sent[2])
    assert client.exchange.done and server.exchange.done


@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_secrets_are_sent_after_confirm_is_verified(mode: int, group: str) -> None:
    """Secrets are sent only after the server's worker has keys and the
    client's CONFIRM is verified."""
    client, server = players(mode, group)
    until_confirm(client, server)
    assert len(server.sent) == 1 and server.derived == ((), b"")
    [derive] = server.exchange.receive(client.sent[1])
    assert derive == Derive(form("server", mode, group))  # type: ignore[arg-type]
    server.take([derive])
    server.derive()
    assert len(server.sent) == 1
    server.install()
    assert len(server.sent) == 2


@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_secrets_are_wiped_after_the_worker_has_them(mode: int, group: str) -> None:
    client, server = players(mode, group)
    until_keyed(client, server)
    for one in (client, server):
        exchange = one.exchange
        for handover in (one.made, exchange._handover, exchange._peers):
            assert not any(map(any, handover.secrets)) and not any(handover.group_key)


# Choice of the mode ----------------------------------------------------------------


def agree(client: dict[str, Any], server: dict[str, Any]) -> Agreed:
    """Returns the agreed values, which must be equal at both ends."""
    one = Player("client", Exchange("client", parameters("client", **client)))
    other = Player("server", Exchange("server", parameters("server", **server)))
    until_confirm(one, other)
    of_client, of_server = one.exchange.agreed, other.exchange.agreed
    assert of_client and of_server
    assert (of_client.mode, of_client.group) == (of_server.mode, of_server.group)
    return of_client


@pytest.mark.parametrize(
    ("offered", "allowed", "mode"),
    [
        ((PD, BASIC), (BASIC, PD), PD),
        ((PD_MEM, PD, BASIC), (BASIC, PD), PD),
        ((BASIC,), (BASIC, PD, MEM, PD_MEM), BASIC),
        ((MEM, PD_MEM, BASIC, PD), (PD,), PD),
    ],
)
def test_server_takes_the_first_permitted_mode(
    offered: tuple[int, ...], allowed: tuple[int, ...], mode: int
) -> None:
    assert agree({"modes": offered}, {"modes": allowed}).mode == mode


def test_no_common_mode_names_both_lists() -> None:
    text = "no common mode: the client offers pd[+]mem, pd, the server allows basic, mem"
    with pytest.raises(ExchangeError, match=text) as raised:
        agree({"modes": (PD_MEM, PD)}, {"modes": (BASIC, MEM)})
    assert raised.value.code == "mode"


def changed_choice(mode: int, group: str, /, **changes: Any) -> ExchangeError:
    """Returns the client's error for a CHOICE with these changes."""
    client, server = players(mode, group)
    server.exchange.start()
    [offer] = client.exchange.start()
    assert isinstance(offer, Send)
    server.take(server.exchange.receive(offer.data))
    choice = cbor2.loads(server.sent[0]) | changes
    with pytest.raises(ExchangeError) as raised:
        client.exchange.receive(cbor2.dumps(choice, canonical=True))
    assert client.exchange.state == "failed" and not client.sent
    return raised.value


def test_mode_that_was_not_offered() -> None:
    error = changed_choice(PD, "", mode=BASIC)
    assert (error.code, error.text) == (
        "mode",
        "the peer chose basic, which this end did not offer",
    )


@pytest.mark.parametrize("mode", [4, -1, True, "pd", [1], None])
def test_mode_out_of_range(mode: object) -> None:
    assert changed_choice(PD, "", mode=mode).code in ("value", "format")


def test_level_none_has_mode_basic_only() -> None:
    assert (
        changed_choice(PD, "", suite=list(NONE)).text
        == "mode is 1: it must be 0 (basic) with suite `none`"
    )
    client, server = players(PD, "", NONE)
    server.exchange.start()
    [offer] = client.exchange.start()
    assert isinstance(offer, Send)
    with pytest.raises(ExchangeError, match=r"modes is \[1\]: it must be \[0\] \(basic\) with"):
        server.exchange.receive(offer.data)
    assert agree({"suites": (NONE,)}, {"suites": (NONE,), "modes": (MEM, BASIC)}).mode == BASIC


# Groups --------------------------------------------------------------------------

GROUPS = [
    ("", "g"),
    ("g", ""),
    ("g", "G"),
    ("g", "g "),
    ("g" * 64, "g" * 63),
    ("\u00e9", "e\u0301"),
]


@pytest.mark.parametrize("mode", [PD, PD_MEM])
@pytest.mark.parametrize(("of_client", "of_server"), GROUPS)
def test_group_of_one_end_only(of_client: str, of_server: str, mode: int) -> None:
    with pytest.raises(
        ExchangeError, match=r"mode pd.* needs the same trust group at both ends"
    ) as raised:
        agree({"modes": (mode,), "group": of_client}, {"modes": (mode,), "group": of_server})
    assert raised.value.code == "group"
    for group in (of_client, of_server):
        assert (repr(group) if group else "no trust group") in raised.value.text
    error = changed_choice(mode, of_client, group=of_server)
    assert error.code == "group" and "needs the same" in error.text


@pytest.mark.parametrize("mode", [BASIC, MEM])
@pytest.mark.parametrize(("of_client", "of_server"), GROUPS)
def test_group_is_ignored_without_mode_pd(of_client: str, of_server: str, mode: int) -> None:
    agreed = agree({"modes": (mode,), "group": of_client}, {"modes": (mode,), "group": of_server})
    assert agreed.group == ""


def test_refusal_of_a_group_has_no_control_characters() -> None:
    error = changed_choice(PD, "", group="\x1b[2J")
    assert error.code == "group" and error.text.isprintable()


# Wrong CONFIRM ---------------------------------------------------------------------


def receiver(role: Role, mode: int, group: str, suite: Suite = GCM) -> tuple[Player, Player]:
    """Returns the end of this role, which waits for CONFIRM, and its peer."""
    client, server = players(mode, group, suite)
    until_confirm(client, server)
    return (server, client) if role == "server" else (client, server)


def refusal(one: Player, message: dict[str, Any]) -> ExchangeError:
    """Returns the error for a CONFIRM that must be refused. Checks that it shows no secret of the
    message and that no secret reaches the worker."""
    with pytest.raises(ExchangeError) as raised:
        one.exchange.receive(cbor2.dumps(message, canonical=True))
    assert one.exchange.state == "failed" and one.installed is None
    assert not any(map(any, one.made.secrets))  # the secrets that it had made are wiped
    handed = [*_leaves(message.get("secrets")), *_leaves(message.get("kpd"))]
    _assert_hidden(handed, f"{raised.value} {raised.value!r} {raised.value.told} {one.exchange!r}")
    return raised.value


def _leaves(value: object) -> list[bytes]:
    if isinstance(value, list):
        return [leaf for entry in value for leaf in _leaves(entry)]
    return [value] if isinstance(value, bytes) and len(value) >= 8 else []


def _assert_hidden(secrets: list[bytes], text: str) -> None:
    for secret in secrets:
        for at in range(0, len(secret) - 7, 4):  # no part of 8 bytes either
            part = secret[at : at + 8]
            assert part.hex() not in text and repr(part)[2:-1] not in text


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_wrong_form(mode: int, group: str, role: Role) -> None:
    peers: Role = "server" if role == "client" else "client"
    forms = {"", "secrets", "kpd"}
    right = form(peers, mode, group)
    for wrong in forms - {right}:
        one, _ = receiver(role, mode, group)
        error = refusal(one, cbor2.loads(encode(Confirm(one.exchange.hash, made(wrong)))))
        assert error.code == "format"
        assert error.text.startswith(f"CONFIRM of the {peers} carries the hash")
    one, _ = receiver(role, mode, group)
    both = {"hash": one.exchange.hash, "secrets": [os.urandom(16)] * 2, "kpd": os.urandom(48)}
    assert refusal(one, both).code == "format"


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_wrong_hash(mode: int, group: str, role: Role) -> None:
    one, other = receiver(role, mode, group)
    handover = made(form(other.role, mode, group))
    wrong = bytes([one.exchange.hash[0] ^ 1]) + one.exchange.hash[1:]
    assert refusal(one, cbor2.loads(encode(Confirm(wrong, handover)))).code == "hash"


S16, S32 = bytes(range(16)), bytes(range(32, 64))


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize(
    ("secrets", "code"),
    [
        ([], "value"),
        ([S16], "count"),
        ([S16] * 3, "count"),
        ([S32, S32], "value"),
        ([S16, S32], "value"),
        ([S16, S16[:15]], "value"),
        ([S16, S16 + b"x"], "value"),
        ([S16, b""], "value"),
        ([S16, "abcdefghijklmnop"], "value"),
        ([S16, None], "format"),
        ([[S16], S16], "value"),
        ([S16] * (QPS_MAX + 1), "value"),
        ({"a": S16}, "value"),
        (S16, "value"),
        (7, "value"),
    ],
)
def test_wrong_secrets(secrets: object, code: str, role: Role) -> None:
    one, _ = receiver(role, PD, "")
    assert refusal(one, {"hash": one.exchange.hash, "secrets": secrets}).code == code


def test_secrets_must_have_the_length_of_the_suite() -> None:
    one, _ = receiver("server", PD, "", CHACHA)
    error = refusal(one, {"hash": one.exchange.hash, "secrets": [S16, S16]})
    assert error.text == "a secret of the client has a wrong size: the suite needs 32 bytes"


@pytest.mark.parametrize("key", [b"", S32, bytes(range(47)), bytes(range(49)), "x" * 48, [S32], 1])
def test_wrong_group_key(key: object) -> None:
    one, _ = receiver("client", PD, "g")
    error = refusal(one, {"hash": one.exchange.hash, "kpd": key})
    assert (error.code, error.text) == ("value", "kpd must be 48 bytes")


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_confirm_twice_or_too_early(mode: int, group: str, role: Role) -> None:
    client, server = players(mode, group)
    until_keyed(client, server)
    one, other = (client, server) if role == "client" else (server, client)
    with pytest.raises(ExchangeError, match="CONFIRM is not legal in state connecting") as raised:
        one.exchange.receive(other.sent[1])
    assert raised.value.code == "state" and one.exchange.state == "failed"
    early = players(mode, group)[0 if role == "client" else 1].exchange
    early.start()
    with pytest.raises(ExchangeError, match=r"CONFIRM is not legal in state (offered|listening)"):
        early.receive(other.sent[1])


def test_reflected_secrets() -> None:
    """The server returns both secrets of the client's CONFIRM, or one of them."""
    for take in (slice(0, 2), slice(0, 1), slice(1, 2)):
        client, server = players(PD, "")
        until_confirm(client, server)
        own = list(client.derived[0])
        mixed = [os.urandom(16), os.urandom(16)]
        mixed[take] = own[take]
        error = refusal(client, {"hash": client.exchange.hash, "secrets": mixed})
        assert error.code == "value" and "reflection" in error.text


@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_local_worker_gives_the_wrong_kind_of_secrets(mode: int, group: str) -> None:
    """A wrong answer of the local worker changes no state: the right secrets may follow."""
    client, server = players(mode, group)
    server.exchange.start()
    client.take(client.exchange.start())
    server.take(server.exchange.receive(client.sent[0]))
    client.exchange.receive(server.sent[0])
    right = form("client", mode, group)
    for wrong in {"", "secrets", "kpd"} - {right}:
        with pytest.raises(ExchangeError):
            client.exchange.derived(made(wrong))
    for bad in (made("secrets", 32), made("secrets", 16, 3)):
        with pytest.raises(ExchangeError):
            client.exchange.derived(bad)
    assert client.exchange.state == "deriving"
    assert client.exchange.derived(made(right))


# Secrets are not shown ---------------------------------------------------------------


@pytest.mark.parametrize("group", ["", "g"])
def test_no_repr_shows_a_secret(group: str) -> None:
    client, server = players(PD, group)
    until_confirm(client, server)
    events: list[object] = [Send(client.sent[1]), decode(client.sent[1])]
    events += server.exchange.receive(client.sent[1])
    handover = made(form("server", PD, group))
    kept = frozen(handover)
    events += [handover, *server.exchange.derived(handover)]
    events += [server.exchange, vars(server.exchange)]
    events += (answer := server.exchange.keyed())
    assert isinstance(answer[0], Send)
    events += [decode(answer[0].data), *client.exchange.receive(answer[0].data)]
    events += [client.exchange, vars(client.exchange)]
    secrets = [*client.derived[0], *kept[0], kept[1]]
    _assert_hidden([s for s in secrets if s], " ".join(map(repr, events)))
