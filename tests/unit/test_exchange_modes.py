"""Key modes and trust groups in the exchange, without I/O (protocol.md 3.4, 8)."""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass, field, replace
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srdma.exchange import Agreed, Derive, Event, Exchange, Install, Parameters, Role, Send
from srdma.exchange_messages import (
    MODES,
    QPS_MAX,
    Confirm,
    ExchangeError,
    Handover,
    Ready,
    Suite,
    decode,
    encode,
)
from tests.unit.test_exchange import HASHES, end

GCM, CHACHA, NONE = Suite(1, 3, 16), Suite(7, 3, 16), Suite(0, 0, 0)
SIZES = {GCM: 16, CHACHA: 32}
BASIC, PD, MEM, PD_MEM = MODES.values()
WAYS = [(mode, group) for mode in MODES.values() for group in ("", "rack 7")]
QPS = 2


def parameters(role: str, **changes: Any) -> Parameters:
    letter = role[0].upper().encode()
    ends = tuple(end(100 + i, letter * 16, wire=role) for i in range(QPS))
    mine = Parameters((GCM,), os.urandom(32), ends, b"", HASHES)
    return replace(mine, **changes)


def form(role: Role, mode: int, group: str) -> str:
    """8.3, said once more."""
    if mode not in (PD, PD_MEM):
        return ""
    if group:
        return {"client": "", "server": "kpd"}[role]
    return "secrets"


def made(wanted: str, size: int = 16, count: int = QPS) -> Handover:
    if wanted == "secrets":
        return Handover(secrets=tuple(bytearray(os.urandom(size)) for _ in range(count)))
    return Handover(group_key=bytearray(os.urandom(48))) if wanted else Handover()


def frozen(handover: Handover) -> tuple[tuple[bytes, ...], bytes]:
    """What is in it now."""
    return tuple(map(bytes, handover.secrets)), bytes(handover.group_key)


@dataclass
class Player:
    """One end and its worker: does what events say, as `Program` does."""

    role: Role
    exchange: Exchange
    size: int = 16
    sent: list[bytes] = field(default_factory=list)
    derived: tuple[Any, Any] = ((), b"")
    installed: tuple[Any, Any] | None = None
    made: Handover = field(default_factory=Handover)
    waiting: list[Event] = field(default_factory=list)

    def take(self, events: list[Event]) -> None:
        self.sent += [e.data for e in events if isinstance(e, Send)]
        self.waiting += [e for e in events if isinstance(e, Derive | Install)]

    def derive(self) -> None:
        wanted = self.waiting.pop()
        assert isinstance(wanted, Derive)
        self.made = made(wanted.form, self.size)
        self.derived = frozen(self.made)
        self.take(self.exchange.derived(self.made))

    def install(self) -> None:
        install = self.waiting.pop()
        assert isinstance(install, Install)
        self.installed = frozen(install.handover)
        self.take(self.exchange.keyed())

    def work(self) -> None:
        """Whatever its worker is to do."""
        while self.waiting:
            self.derive() if isinstance(self.waiting[-1], Derive) else self.install()


def players(mode: int, group: str, suite: Suite = GCM) -> tuple[Player, Player]:
    changes: dict[str, Any] = {"suites": (suite,), "modes": (mode,), "group": group}
    client = Exchange("client", parameters("client", **changes))
    server = Exchange("server", parameters("server", **changes))
    size = SIZES.get(suite, 0)
    return Player("client", client, size), Player("server", server, size)


def until_confirm(client: Player, server: Player) -> None:
    """The client's CONFIRM is sent."""
    server.take(server.exchange.start())
    client.take(client.exchange.start())
    server.take(server.exchange.receive(client.sent[0]))
    client.take(client.exchange.receive(server.sent[0]))
    client.work()


def until_keyed(client: Player, server: Player) -> None:
    """Both workers have KEYS."""
    until_confirm(client, server)
    for one, other in ((server, client), (client, server)):
        one.take(one.exchange.receive(other.sent[1]))
        one.work()


def expected(player: Player, peer: Player, mode: int, group: str) -> tuple[Any, Any]:
    """What KEYS of this end carries."""
    if not mode & 1:
        return (), b""
    if group:
        return (), (player if player.role == "server" else peer).derived[1]
    return peer.derived[0], b""


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
def test_order_of_steps(mode: int, group: str) -> None:
    """The server's worker is armed, and the client's CONFIRM verified, before secrets go back."""
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
def test_secrets_are_wiped_when_the_worker_has_them(mode: int, group: str) -> None:
    client, server = players(mode, group)
    until_keyed(client, server)
    for one in (client, server):
        exchange = one.exchange
        for handover in (one.made, exchange._handover, exchange._peers):
            assert not any(map(any, handover.secrets)) and not any(handover.group_key)


# Which mode ----------------------------------------------------------------------


def agree(client: dict[str, Any], server: dict[str, Any]) -> Agreed:
    """As both ends see it."""
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
def test_server_takes_the_first_mode_that_it_allows(
    offered: tuple[int, ...], allowed: tuple[int, ...], mode: int
) -> None:
    assert agree({"modes": offered}, {"modes": allowed}).mode == mode


def test_no_common_mode_names_both_lists() -> None:
    text = "no common mode: the client offers pd[+]mem, pd, the server allows basic, mem"
    with pytest.raises(ExchangeError, match=text) as raised:
        agree({"modes": (PD_MEM, PD)}, {"modes": (BASIC, MEM)})
    assert raised.value.code == "mode"


def changed_choice(mode: int, group: str, /, **changes: Any) -> ExchangeError:
    """What the client says to a CHOICE with these changes."""
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
    assert (error.code, error.text) == ("mode", "the peer chose basic, which was not offered")


@pytest.mark.parametrize("mode", [4, -1, True, "pd", [1], None])
def test_mode_out_of_range(mode: object) -> None:
    assert changed_choice(PD, "", mode=mode).code in ("value", "format")


def test_none_has_mode_basic_only() -> None:
    assert (
        changed_choice(PD, "", suite=list(NONE)).text
        == "mode is 1: it must be 0, basic, with `none`"
    )
    client, server = players(PD, "", NONE)
    server.exchange.start()
    [offer] = client.exchange.start()
    assert isinstance(offer, Send)
    with pytest.raises(ExchangeError, match=r"modes is \[1\]: it must be \[0\], basic, with"):
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
    with pytest.raises(ExchangeError, match=r"mode pd.* needs the same at both ends") as raised:
        agree({"modes": (mode,), "group": of_client}, {"modes": (mode,), "group": of_server})
    assert raised.value.code == "group"
    for group in (of_client, of_server):
        assert (repr(group) if group else "no trust group") in raised.value.text
    error = changed_choice(mode, of_client, group=of_server)
    assert error.code == "group" and "needs the same" in error.text


@pytest.mark.parametrize("mode", [BASIC, MEM])
@pytest.mark.parametrize(("of_client", "of_server"), GROUPS)
def test_group_does_not_count_without_pd(of_client: str, of_server: str, mode: int) -> None:
    agreed = agree({"modes": (mode,), "group": of_client}, {"modes": (mode,), "group": of_server})
    assert agreed.group == ""


def test_refusal_of_a_group_is_fit_for_a_terminal() -> None:
    error = changed_choice(PD, "", group="\x1b[2J")
    assert error.code == "group" and error.text.isprintable()


# CONFIRM as it must not be ---------------------------------------------------------


def receiver(role: Role, mode: int, group: str, suite: Suite = GCM) -> tuple[Player, Player]:
    """This end, when it waits for CONFIRM, and its peer."""
    client, server = players(mode, group, suite)
    until_confirm(client, server)
    return (server, client) if role == "server" else (client, server)


def refusal(one: Player, message: dict[str, Any]) -> ExchangeError:
    """Nothing that was handed over is shown, and nothing reaches the worker."""
    with pytest.raises(ExchangeError) as raised:
        one.exchange.receive(cbor2.dumps(message, canonical=True))
    assert one.exchange.state == "failed" and one.installed is None
    assert not any(map(any, one.made.secrets))  # those that it had made are wiped
    handed = [*_leaves(message.get("secrets")), *_leaves(message.get("kpd"))]
    _assert_hidden(handed, f"{raised.value} {raised.value!r} {raised.value.told} {one.exchange!r}")
    return raised.value


def _leaves(value: object) -> list[bytes]:
    if isinstance(value, list):
        return [leaf for entry in value for leaf in _leaves(entry)]
    return [value] if isinstance(value, bytes) and len(value) >= 8 else []


def _assert_hidden(secrets: list[bytes], text: str) -> None:
    for secret in secrets:
        for at in range(0, len(secret) - 7, 4):  # no part of it
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
        assert error.text.startswith(f"CONFIRM of the {peers} with the hash")
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


def test_secrets_are_as_long_as_the_suite_wants() -> None:
    one, _ = receiver("server", PD, "", CHACHA)
    error = refusal(one, {"hash": one.exchange.hash, "secrets": [S16, S16]})
    assert error.text == "secrets of the client that are not the 32 bytes of the suite"


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
    with pytest.raises(ExchangeError, match="CONFIRM in state connecting") as raised:
        one.exchange.receive(other.sent[1])
    assert raised.value.code == "state" and one.exchange.state == "failed"
    early = players(mode, group)[0 if role == "client" else 1].exchange
    early.start()
    with pytest.raises(ExchangeError, match=r"CONFIRM in state (offered|listening)"):
        early.receive(other.sent[1])


def test_reflected_secrets() -> None:
    """The server sends the client's own CONFIRM back, or one secret of it."""
    for take in (slice(0, 2), slice(0, 1), slice(1, 2)):
        client, server = players(PD, "")
        until_confirm(client, server)
        own = list(client.derived[0])
        mixed = [os.urandom(16), os.urandom(16)]
        mixed[take] = own[take]
        error = refusal(client, {"hash": client.exchange.hash, "secrets": mixed})
        assert error.code == "value" and "reflection" in error.text


@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_own_worker_gives_what_the_mode_has_not(mode: int, group: str) -> None:
    """Own misuse changes nothing: the right one may follow."""
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


# Nothing shows ---------------------------------------------------------------------


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


# Any order -------------------------------------------------------------------------

DO = ["step", "step", "step", "deliver", "reflect", "foreign", "forged", "derived", "keyed"]
DO += ["running", "start"]


def _foreign(mode: int, group: str) -> list[bytes]:
    """All messages of another exchange of the same kind."""
    client, server = players(mode, group)
    until_keyed(client, server)
    return [*client.sent, *server.sent, encode(Ready())]


def _step(one: Player, other: Player, seen: dict[str, int]) -> None:
    """What comes next for this end, if anything."""
    if one.exchange.state == "idle":
        one.take(one.exchange.start())
    elif one.waiting:
        one.work()
    elif one.exchange.state in ("connecting", "awaited"):
        one.take(one.exchange.running())
    elif seen[one.role] < len(other.sent):
        seen[one.role] += 1
        one.take(one.exchange.receive(other.sent[seen[one.role] - 1]))


@settings(max_examples=300, deadline=None)
@given(
    way=st.sampled_from(WAYS),
    script=st.lists(st.tuples(st.booleans(), st.sampled_from(DO), st.integers(0, 9)), max_size=60),
)
def test_no_order_gets_through_without_hashes_and_secrets(
    way: tuple[int, str], script: list[tuple[bool, str, int]]
) -> None:
    """Ends that are done have verified one hash, and have each what the other's worker made."""
    mode, group = way
    client, server = players(mode, group)
    foreign = _foreign(mode, group)
    seen = {"client": 0, "server": 0}
    for first, what, number in script:
        one, other = (client, server) if first else (server, client)
        with contextlib.suppress(ExchangeError):
            _play(one, other, what, (number, foreign, seen))
        for player, peer in ((client, server), (server, client)):
            if player.installed is not None:
                assert player.exchange.hash == peer.exchange.hash != b""
                assert player.installed == expected(player, peer, mode, group)
            assert not player.exchange.done or player.installed is not None


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
            if not one.waiting:
                one.take(one.exchange.keyed())
        case "forged":  # the right form, without the hash
            peers = "server" if one.role == "client" else "client"
            handover = made(form(peers, *_way(one)))  # type: ignore[arg-type]
            one.take(one.exchange.receive(encode(Confirm(os.urandom(32), handover))))
        case _:
            if source := sources[what]:
                one.take(one.exchange.receive(source[number % len(source)]))


def _way(one: Player) -> tuple[int, str]:
    mine = one.exchange._mine
    return mine.modes[0], mine.group


def test_the_script_that_only_steps_gets_through() -> None:
    """So the test above does reach its end."""
    for (mode, group), _ in itertools.product(WAYS, range(2)):
        client, server = players(mode, group)
        seen = {"client": 0, "server": 0}
        for _ in range(12):
            _step(server, client, seen)
            _step(client, server, seen)
        assert client.exchange.done and server.exchange.done
