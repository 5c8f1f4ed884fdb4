"""Multicast groups of programs at two agents (protocol.md 8.10, agent.md 14)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from srdma import gid as gids
from srdma.agent import (
    dialogue,
    links,
    meeting,
    memberships,
    multicast,
    repeat,
    settings,
    subscriptions,
)
from srdma.agent.calls import Calls
from srdma.agent.memberships import Memberships
from srdma.keyex.groups import Ask, Members
from srdma.keyex.messages import ErrorMessage, Hello, Message, Ready, decode, encode
from srdma.keyex.pace import Pace
from srdma.keyex.streams import Link
from srdma.keyex.talks import QPN_BIT
from srdma.keyex.tls import REACHABLE, Outer
from tests.gid_players import NAMES, A, B, C, Stranger, entry, host, identities, uri
from tests.host_players import TOKEN, Host, cut
from tests.keyex_players import END, PATIENCE, Wire, until
from tests.ports import free_port
from tests.thread_agent import ThreadAgent

pytestmark = pytest.mark.usefixtures("quick_links")

GROUP, OTHER = gids.parse("239.1.2.3"), gids.parse("ff0e::7")
HOSTS = [gids.text_of(gid) for gid in (A, B)]
ENTRY = """
[[group]]
gid = "{gid}"
identities = {names}
hosts = {hosts}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return identities(tmp_path_factory.mktemp("identities"))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """`joined` waits for slow hosts."""
    rounds(monkeypatch, PATIENCE)


def rounds(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for module in (multicast, subscriptions):
        monkeypatch.setattr(module, "ROUND", seconds)


@pytest.fixture
def port() -> int:
    return free_port()


def group_entry(names: list[str], hosts: list[str] = HOSTS, gid: str = "239.1.0.0/16") -> str:
    return ENTRY.format(gid=gid, names=names, hosts=hosts)


def member_host(folder: Path, gid: bytes, port: int, *more: str, **changes: Any) -> Host:
    """The host of a GID, whose policy has all GIDs, and the group for A and B."""
    peers = tuple(entry(each, port) for each in NAMES)
    names = changes.get("names", [NAMES[gid]])
    return host(folder, gid, port, *peers, *(more or (group_entry(names),)), **changes)


@pytest.fixture
def a(folder: Path, port: int) -> Iterator[Host]:
    made = member_host(folder, A, port)
    yield made
    made.close()


@pytest.fixture
def b(folder: Path, port: int) -> Iterator[Host]:
    made = member_host(folder, B, port)
    yield made
    made.close()


@pytest.fixture
def alone(folder: Path, port: int) -> Iterator[Host]:
    """The host of A, which is the only one of the group."""
    made = member_host(folder, A, port, group_entry(["a"], HOSTS[:1]))
    yield made
    made.close()


def use(one: Host, name: str, qpn: int, user: int | None = None, **changes: Any) -> Wire:
    """A program uses the group, as a member."""
    fields = {
        "do": "group", "identity": name, "peer": [], "worker": str(one.worker.path),
        "token": TOKEN, "group": GROUP, "qpn": qpn, "member": 1,
    }  # fmt: skip
    if user is None:
        return one.open(fields | changes)
    wire = Wire(one.agent.open(user=user))
    one.wires.append(wire)
    wire.tell(fields | changes)
    return wire


def members(wire: Wire) -> tuple[bytes, list[int]]:
    """The GID and the QPNs of the next event but `joined`, whose place depends on ROUND."""
    while (event := wire.event())["event"] == "joined":
        pass
    return told(event)


def told(event: dict[str, Any]) -> tuple[bytes, list[int]]:
    assert event["event"] == "members", event
    data = event["data"]
    return event["gid"], [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]


def joined(wire: Wire) -> dict[bytes, list[int]]:
    """All members, when the hosts have answered."""
    found: dict[bytes, list[int]] = {}
    while (event := wire.event())["event"] != "joined":
        found |= [told(event)]
    return {gid: qpns for gid, qpns in found.items() if qpns}


def learns(wire: Wire, expected: dict[bytes, list[int]]) -> None:
    """The program knows these members sooner or later."""
    found: dict[bytes, list[int]] = {}
    while {gid: qpns for gid, qpns in found.items() if qpns} != expected:
        if (event := wire.event())["event"] != "joined":
            found |= [told(event)]


def refused(wire: Wire) -> tuple[str, str]:
    """Code and text of the error that ends a channel."""
    while (event := wire.event())["event"] in ("members", "joined"):
        pass
    assert event["event"] == "error", event
    return event["code"], event["text"]


def asking(one: Host) -> int:
    """How many streams of peers ask for members."""
    return int(one.agent.call(lambda: len(of(one)._all_asking())))


def uses(one: Host) -> int:
    return int(one.agent.call(lambda: sum(len(each.uses) for each in of(one)._rolls.values())))


def of(one: Host) -> Memberships:
    found = one.agent.service._admission.memberships
    assert isinstance(found, Memberships)
    return found


def waits(calls: Calls) -> bool:
    """True if a call waits for its turn."""
    return calls._turn.locked()


# The main path ----------------------------------------------------------------------


def test_members_of_two_hosts(a: Host, b: Host) -> None:
    """A program that joins knows those that joined before, and these learn of it."""
    first = use(b, "b", 7)
    assert joined(first) == {B: [7]}
    second = use(a, "a", 9)
    assert joined(second) == {A: [9], B: [7]}
    assert members(first) == (A, [9])
    third = use(b, "b", 5)
    assert joined(third) == {A: [9], B: [5, 7]}
    assert members(first) == (B, [5, 7])
    assert members(second) == (B, [5, 7])
    first.close()
    assert members(second) == (B, [5])
    assert a.told("joined") == [
        {"event": "joined", "uid": os.getuid(), "group": "239.1.2.3", "qpn": 9}
    ]


def test_program_that_sends_only(a: Host, b: Host) -> None:
    """It learns the members, and does not count as one."""
    member = use(b, "b", 7)
    joined(member)
    sender = use(a, "a", 9, member=0)
    assert joined(sender) == {B: [7]}
    member.close()
    assert members(sender) == (B, [])
    assert not a.told("joined")


def test_groups_are_apart(a: Host, b: Host) -> None:
    joined(use(b, "b", 7))
    assert joined(use(a, "a", 9, group=gids.parse("239.1.2.4"))) == {A: [9]}


def test_newer_use_of_a_qp(alone: Host) -> None:
    """A program that has ended its channel may come back before the agent notices it."""
    a = alone
    former = use(a, "a", 9)
    joined(former)
    wire = use(a, "a", 9, member=0)
    assert refused(former) == ("taken", "a newer use of this UD QP replaces it")
    assert joined(wire) == {}
    assert uses(a) == 1


def test_use_that_begins_while_the_former_one_ends(alone: Host) -> None:
    """The program has hung up: its channel has no event any more."""
    a = alone
    for _ in range(20):
        former = use(a, "a", 9)
        joined(former)
        former.hang_up()
        wire = use(a, "a", 9)
        assert joined(wire) == {A: [9]}
        wire.close()
    assert uses(a) == 0


def test_host_that_is_not_there(
    a: Host, folder: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are known without it, and its members as soon as it is there."""
    rounds(monkeypatch, 0.05)
    monkeypatch.setattr(subscriptions, "KEPT", 0.0)
    wire = use(a, "a", 9)
    learns(wire, {A: [9]})
    until(lambda: bool(a.told("failed")))
    (line,) = a.told("failed")
    assert (line["gid"], line["code"]) == ("127.0.0.2", "unreachable")
    b = member_host(folder, B, port)
    other = use(b, "b", 7)
    assert members(wire) == (B, [7])
    b.stop()  # its members end with it
    assert members(wire) == (B, [])
    assert refused_or_end(other)
    b.start()
    joined(use(b, "b", 8))
    assert members(wire) == (B, [8])
    b.close()


def refused_or_end(wire: Wire) -> bool:
    return all(event["event"] != "error" for event in wire.events())


def test_host_that_does_not_answer(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """`joined` waits for it no longer than ROUND, and the agent asks again after ANSWER. It holds
    nothing of the user's calls meanwhile. Further programs do not wait."""
    monkeypatch.setattr(subscriptions, "AGAIN", 0.01)
    with monkeypatch.context() as silent:
        rounds(silent, 0.05)
        silent.setattr(subscriptions, "ANSWER", 0.5)
        silent.setattr(Memberships, "_tell", lambda *_: None)
        wire = use(a, "a", 9)
        assert joined(wire) == {}
        until(lambda: {line["code"] for line in a.told("failed")} == {"timeout"})
        assert len(a.told("failed")) == 2  # one of each host
        users = a.agent.service._admission.multicast.users
        assert users.of(os.getuid())._open == a.agent.service.callers.of(os.getuid())._open == 0
    learns(wire, {A: [9]})
    joined(use(b, "b", 7))
    assert members(wire) == (B, [7])


def test_pauses_grow_while_a_host_does_not_answer(
    alone: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin anew after a stream of LASTED, not after an attempt that took so long."""
    begun, drawn = list[repeat.Pauses](), list[float]()

    class Pauses(repeat.Pauses):
        def __init__(self) -> None:
            super().__init__()
            begun.append(self)

        def drawn(self, pause: float) -> float:
            drawn.append(pause)
            return super().drawn(pause)

    monkeypatch.setattr(repeat, "Pauses", Pauses)
    for name, value in (("ANSWER", 0.05), ("LASTED", 0.01), ("AGAIN", 0.001)):
        monkeypatch.setattr(subscriptions, name, value)
    with monkeypatch.context() as silent:
        silent.setattr(Memberships, "_tell", lambda *_: None)
        wire = use(alone, "a", 9)
        until(lambda: len(drawn) >= 3)
        assert len(begun) == 1
    learns(wire, {A: [9]})
    time.sleep(subscriptions.LASTED)
    cut(alone)
    until(lambda: len(begun) > 1)


def test_host_that_was_silent_does_not_delay(a: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """B is not there. The first program waits for ROUND, and the next one not at all."""
    rounds(monkeypatch, 0.05)
    wire = use(a, "a", 9)
    learns(wire, {A: [9]})
    [absent] = a.agent.service._admission.subscriptions._all[B].values()

    def done_at_once() -> bool:
        return bool(a.agent.call(lambda: absent.added(next(iter(absent._uses)))).done())

    until(done_at_once)
    monkeypatch.setattr(subscriptions, "ROUND", PATIENCE)
    assert not done_at_once()


def test_host_that_knows_no_groups(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its HELLO lacks `groups`: the agent does not ask it. It has no members, and delays no use."""
    monkeypatch.setattr(Hello, "as_map", lambda self: {"agent": self.agent})
    joined(use(b, "b", 7))
    assert joined(use(a, "a", 9)) == {}
    assert [line["code"] for line in a.told("failed")] == ["version"] * 2
    assert asking(a) == asking(b) == 0 and not a.told("refused") and not b.told("refused")


def test_hello_of_another_connection(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent waits for the HELLO of the connection that replaces one that was too old."""
    joined(use(b, "b", 7))
    joined(use(a, "a", 9))
    for link in b.links():
        link.made_at -= links.AGE_HERE + 1
    monkeypatch.setattr(Hello, "as_map", lambda self: {"agent": self.agent})
    use(b, "b", 8)
    until(lambda: [line["code"] for line in a.told("failed")] == ["version"])
    assert asking(b) == 0


def test_connection_that_ends_before_hello(alone: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent sends no ASK in another one whose HELLO it does not know."""
    rounds(monkeypatch, 0.05)

    async def ended(self: Link) -> None:
        self.drop()

    monkeypatch.setattr(Link, "hello", ended)
    assert joined(use(alone, "a", 9)) == {}
    until(lambda: [line["code"] for line in alone.told("failed")] == ["lost"])
    assert asking(alone) == 0


def test_fault_of_the_agent(alone: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an audit line, and the host has no members."""
    rounds(monkeypatch, 0.05)
    monkeypatch.setattr(subscriptions.Subscription, "_met", lambda *_: 1 // 0)
    assert joined(use(alone, "a", 9)) == {}
    assert [line["text"] for line in alone.told("fault")] == [
        "ZeroDivisionError: integer division or modulo by zero"
    ]
    alone.audit.clear()


def test_programs_share_a_stream(a: Host, b: Host) -> None:
    """Each asks again in it, and so knows those that joined before it. The stream ends with the
    last one."""
    first = use(a, "a", 9)
    assert joined(first) == {A: [9]}
    for qpn in (5, 6, 7):
        joined(use(b, "b", qpn))
        assert joined(use(a, "a", 10 + qpn, member=0))[B] == [*range(5, qpn + 1)]
    assert asking(b) == asking(a) == 2
    for wire in a.wires:
        wire.close()
    until(lambda: asking(b) == asking(a) == 1)
    assert not any(roll.timer for roll in of(a)._rolls.values())


def test_program_that_permits_other_peers(a: Host, b: Host) -> None:
    """It learns nothing of a host whose identity it does not permit, and others do."""
    joined(use(b, "b", 7))
    assert joined(use(a, "a", 9, peer=[uri("a")])) == {A: [9]}
    assert joined(use(a, "a", 10)) == {A: [9, 10], B: [7]}


def test_program_with_many_patterns(alone: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity of a peer is compared with them once until the policy changes. Else each change
    of a group would stop the agent for all programs."""
    patterns, compared = [uri("a")], list[str]()
    check = settings.check_identity

    def counted(identity: str, allowed: Sequence[str]) -> None:
        if [*allowed] == patterns:
            compared.append(identity)
        check(identity, allowed)

    monkeypatch.setattr(settings, "check_identity", counted)
    joined(use(alone, "a", 9, peer=patterns))
    for qpn in (10, 11):
        joined(use(alone, "a", qpn))
    assert compared == [uri("a")]
    change(alone, "users", "users")
    joined(use(alone, "a", 12))
    assert compared == [uri("a")] * 2


def test_program_that_many_peers_ask_for(alone: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """It remembers COMPARED_MAX identities at most."""
    monkeypatch.setattr(memberships, "COMPARED_MAX", 2)
    joined(use(alone, "a", 9, peer=[uri("a")]))
    [one] = of(alone)._rolls[GROUP].uses.values()
    assert [one.permits(uri(name)) for name in "abcabc"] == [True, False, False] * 2
    assert len(one._compared) <= 2


def test_old_connection(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent asks again in another one; the members stay known meanwhile."""
    joined(use(b, "b", 7))
    monkeypatch.setattr(subscriptions, "AGE_MAX", 0.3)
    monkeypatch.setattr(links, "AGE_MAX", 0.3)
    wire = use(a, "a", 9)
    assert joined(wire) == {A: [9], B: [7]}
    old = b.links()
    until(lambda: any(link not in old for link in b.links()))
    other = use(b, "b", 8)
    joined(other)
    assert members(wire) == (B, [7, 8])


@pytest.mark.parametrize("group", [GROUP, gids.parse("239.1.2.4")])
def test_stale_connection(a: Host, b: Host, group: bytes) -> None:
    """ASK is refused with `stale` there, in a stream that has had an answer and in another one, and
    repeated at once in another connection."""
    joined(use(b, "b", 7))
    joined(use(b, "b", 8, group=group))
    joined(use(a, "a", 9))
    old = a.links() + b.links()
    for link in b.links():
        link.made_at -= links.AGE_HERE + 1
    assert joined(use(a, "a", 10, group=group))[B] == ([7, 8] if group == GROUP else [8])
    assert any(link not in old for link in b.links())
    assert not a.told("failed")


# Refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group": OTHER}, "policy"),
        ({"group": A}, "value"),
        ({"group": b""}, "value"),
        ({"group": "239.1.2.3"}, "config"),
        ({"qpn": 0}, "value"),
        ({"qpn": 1 << 24}, "value"),
        ({"qpn": "7"}, "config"),
        ({"member": 2}, "config"),
        ({"member": None}, "config"),
        ({"token": bytes(15)}, "config"),
        ({"token": bytes(16)}, "worker"),
        ({"token": "text"}, "config"),
        ({"identity": "b"}, "policy"),
        ({"peer": ["no pattern"]}, "config"),
    ],
)
def test_wrong_use(a: Host, changes: dict[str, Any], code: str) -> None:
    assert refused(use(a, "a", **({"qpn": 9} | changes)))[0] == code
    assert uses(a) == 0


def test_identity_without_the_group(folder: Path, port: int) -> None:
    one = member_host(folder, A, port, group_entry(["b"]), names=["a", "b"])
    code, text = refused(use(one, "a", 9))
    assert code == "policy" and "does not permit 'a' the group 239.1.0.0/16" in text
    one.close()


def test_qp_of_another_program(a: Host) -> None:
    a.worker.foreign = {9}
    assert refused(use(a, "a", 9))[0] == "config"


def test_worker_without_a_gid(folder: Path, port: int) -> None:
    one = Host(folder, "a", port=port, peers=entry(B, port) + group_entry(["a"], [gids.text_of(B)]))
    code, text = refused(use(one, "a", 9))
    assert code == "config" and "a worker with a GID" in text
    one.close()


def test_private_agent(folder: Path) -> None:
    agent = ThreadAgent()
    wire = Wire(agent.open())
    wire.tell(
        {
            "do": "group",
            "identity": str(folder / "a"),
            "peer": [],
            "worker": "/w",
            "token": TOKEN,
            "group": GROUP,
            "qpn": 9,
            "member": 1,
        }
    )
    code, text = refused(wire)
    assert code == "policy" and "system agent" in text
    wire.close()
    agent.close()


def test_request_in_a_use(alone: Host) -> None:
    a = alone
    wire = use(a, "a", 9)
    joined(wire)
    wire.tell({"do": "say", "data": b""})
    assert refused(wire)[0] == "config"
    until(lambda: uses(a) == 0)


def test_peers_of_a_member(a: Host, b: Host) -> None:
    """A program that does not permit the identity of A is not told to its agent."""
    joined(use(b, "b", 7, peer=[uri("c")]))
    joined(use(b, "b", 8, peer=[uri("a"), uri("b")]))
    assert joined(use(a, "a", 9)) == {A: [9], B: [8]}


def test_member_with_another_identity(a: Host, folder: Path, port: int) -> None:
    """A came to the identity that its policy has for the GID of B."""
    b = member_host(folder, B, port, names=["b", "c"])
    joined(use(b, "c", 7))
    assert joined(use(a, "a", 9)) == {A: [9]}
    b.close()


def ask_of(**changes: bytes) -> Ask:
    return Ask(**{"group": GROUP, "of": A, "gid": B} | changes)


@pytest.mark.parametrize(
    ("name", "ask", "code", "told"),
    [
        ("c", ask_of(), "identity", "which may not have the GID 127.0.0.1"),
        ("c", ask_of(of=C), "policy", "127.0.0.3 is no host of the group"),
        ("a", ask_of(of=bytes(16)), "policy", "no [[peer]]"),
        ("a", ask_of(group=OTHER), "policy", "no [[group]]"),
        ("a", ask_of(gid=C), "closed", "the GID here is not 127.0.0.3"),
    ],
)
def test_agent_that_may_not_ask(
    b: Host, folder: Path, name: str, ask: Ask, code: str, told: str
) -> None:
    learns(use(b, "b", 7), {B: [7]})
    stranger = Stranger(b, folder, name)
    stranger.send_on(1, encode(ask))
    assert stranger.error() == (1, "identity" if code == "policy" else code)
    (line,) = [line for line in b.told("refused") if told in line["text"]]
    assert line["code"] == code
    stranger.close()


def test_first_version(first_version: None, a: Host, b: Host) -> None:
    joined(use(b, "b", 7))
    assert joined(use(a, "a", 9)) == {}


def asks(one: Host, folder: Path, name: str = "a", **changes: bytes) -> Stranger:
    """An agent of A, or another one, that has asked B and has its answer."""
    stranger = Stranger(one, folder, name)
    stranger.send_on(1, encode(ask_of(**changes)))
    return stranger


def heard(stranger: Stranger) -> Message:
    return decode(stranger.message()[4:])


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([encode(Ready())], "state"),
        ([encode(ask_of(group=OTHER))], "state"),
        ([encode(ask_of()), encode(ask_of())], "state"),
        ([b"no CBOR"], "format"),
    ],
)
def test_second_message_of_an_agent_that_asks(
    b: Host, folder: Path, monkeypatch: pytest.MonkeyPatch, messages: list[bytes], code: str
) -> None:
    monkeypatch.setattr(memberships, "CHANGES", (1, 1000))
    stranger = asks(b, folder)
    assert heard(stranger) == Members(())
    b.agent.call(lambda: of(b)._changed(GROUP))  # the next answer is due in 1,000 s
    for message in messages:
        stranger.send_on(1, message)
    assert stranger.error() == (1, code)
    until(lambda: asking(b) == 0)
    stranger.close()


def test_agent_that_asks_again(b: Host, folder: Path) -> None:
    """It gets an answer, which has the number of its questions, also if nothing has changed."""
    stranger = asks(b, folder)
    assert heard(stranger) == Members((), 1)
    stranger.send_on(1, encode(ask_of()))
    assert heard(stranger) == Members((), 2)
    use(b, "b", 7)
    assert heard(stranger) == Members((7,), 2)
    stranger.send_on(1, encode(ask_of()))
    assert heard(stranger) == Members((7,), 3)
    stranger.close()


def test_agent_that_asks_no_longer(b: Host, folder: Path) -> None:
    stranger = asks(b, folder)
    assert heard(stranger) == Members(())
    assert asking(b) == 1
    stranger.send_on(1, encode(ErrorMessage("closed", "")))
    until(lambda: asking(b) == 0)
    stranger.send_on(3, encode(ask_of()))
    assert heard(stranger) == Members(())
    stranger.close()
    until(lambda: asking(b) == 0)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (encode(Members((2, 1))), "value"),
        (encode(Members((2,), 2)), "value"),
        (encode(Ready()), "state"),
        (b"no CBOR", "format"),
        (encode(ErrorMessage("busy", "")), None),
    ],
)
def test_answer_that_is_not_legal(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch, answer: bytes, code: str | None
) -> None:
    """The host is told why, and is asked again later."""
    joined(use(b, "b", 7))
    monkeypatch.setattr(subscriptions, "AGAIN", 0.01)
    monkeypatch.setattr(subscriptions, "AGAIN_FINAL", 0.01)
    codes, encoded = list[str](), meeting.encoded
    monkeypatch.setattr(
        meeting, "encoded", lambda error: (codes.append(error.code), encoded(error))[1]
    )
    right, wrong = memberships.encode, [answer]
    monkeypatch.setattr(
        memberships, "encode", lambda message: wrong.pop() if wrong else right(message)
    )
    wire = use(a, "a", 9, member=0)
    found = joined(wire)
    assert found == {B: [7]} or (found == {} and members(wire) == (B, [7]))
    assert codes == ([code] if code else [])


# Limits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("USES_PER_LEG", "this program has 1 uses"),
        ("USES_PER_USER", "has 1 uses"),
        ("USES_MAX", "this agent has 1 uses"),
        ("MEMBERS_MAX", "this group has 1 uses"),
    ],
)
def test_too_many_uses(alone: Host, monkeypatch: pytest.MonkeyPatch, limit: str, text: str) -> None:
    a = alone
    monkeypatch.setattr(memberships, limit, 1)
    first = use(a, "a", 9)
    joined(first)
    code, told = refused(use(a, "a", 10))
    assert code == "quota" and text in told
    first.close()
    joined(use(a, "a", 10))


@pytest.mark.parametrize("limit", ["USES_MAX", "MEMBERS_MAX"])
def test_users_share_the_places(alone: Host, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """The oldest use of the user that has the most gives way."""
    a = alone
    monkeypatch.setattr(memberships, limit, 2)
    permit_another_user(a)
    a.worker.owner = 12345, b""
    others = [use(a, "a", qpn, user=12345) for qpn in (1, 2)]
    for other in others:
        joined(other)
    a.worker.owner = os.getuid(), b""
    a.worker.tokens = {TOKEN, bytes(16)}
    joined(use(a, "a", 3, token=bytes(16)))
    assert refused(others[0]) == ("quota", memberships.GIVES_WAY)
    assert refused(use(a, "a", 4, token=bytes(16)))[0] == "quota"  # they have as many now


def permit_another_user(one: Host) -> None:
    one.file.write_text(one.file.read_text().replace("users = [", "users = [12345, "))
    one.agent.call(one.policy.load)


def test_user_who_joins_and_leaves_in_a_loop(a: Host, b: Host) -> None:
    """Further uses of this user wait, so that the peers do not end the connection of all. Uses of
    another user begin at once."""
    joined(use(b, "b", 7))
    users = a.agent.service._admission.multicast.users
    users.limit = 3, 1e6
    permit_another_user(a)
    for qpn in (1, 2, 3):
        wire = use(a, "a", qpn)
        joined(wire)
        if qpn == 1:
            for link in b.links():
                link._busy = Pace(3, 1e6)
        wire.close()
        until(lambda: asking(b) == 1)
    waiting = use(a, "a", 4)
    until(lambda: a.agent.call(lambda: waits(users.of(os.getuid()))))
    a.worker.owner = 12345, b""
    a.worker.tokens = {TOKEN, bytes(16)}
    assert joined(use(a, "a", 5, user=12345, token=bytes(16))) == {A: [5], B: [7]}
    assert not any(link.end for link in b.links()) and not a.told("failed")
    waiting.close()
    until(lambda: not a.agent.call(lambda: waits(users.of(os.getuid()))))


def test_policy_and_qp_are_checked_in_the_turn_of_a_use(alone: Host) -> None:
    """They may change while it waits."""
    a = alone
    users = a.agent.service._admission.multicast.users
    users.limit = 1, 1e6
    first = use(a, "a", 1)
    joined(first)
    calls = users.of(os.getuid())

    def waiting() -> Wire:
        made = use(a, "a", 2)
        until(lambda: a.agent.call(lambda: waits(calls)))
        return made

    def turn() -> None:
        calls._failed = Pace(1, 1e6)
        a.agent.call(calls._bell.ring)

    wire = waiting()
    a.worker.foreign = {2}
    turn()
    assert refused(wire)[0] == "config"
    wire, a.worker.foreign = waiting(), set()
    change(a, "239.1.0.0/16", "239.2.0.0/16")
    assert refused(first)[0] == "policy"
    turn()
    assert refused(wire)[0] == "policy"


def test_calls_to_members_have_a_number_of_their_own(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that do not answer delay no other call of the user."""
    monkeypatch.setattr(dialogue, "ABSENT_REPEATS", 0)
    joined(use(b, "b", 7))
    joined(use(a, "a", 9))
    admission = a.agent.service._admission
    admission.member_callers.limit = 1, 1e6

    def talk(qpn: int) -> Wire:
        return a.open(
            {
                "do": "talk", "identity": "a", "peer": [], "worker": str(a.worker.path),
                "to": [B, QPN_BIT | qpn], "from": 0, "data": b"",
            }
        )  # fmt: skip

    assert refused(talk(7))[0] == "closed"
    waiting = talk(7)
    until(lambda: a.agent.call(lambda: waits(admission.member_callers.of(os.getuid()))))
    assert refused(talk(8))[0] == "closed"
    waiting.close()


def test_qpn_of_another_program(alone: Host) -> None:
    """Uses of a QP end once the worker has given its QPN to another leg."""
    a, other = alone, bytes(16)
    a.worker.tokens = {TOKEN, other}
    own, former, served = use(a, "a", 8), use(a, "a", 9), use(a, "a", 10)
    for wire in (own, former, served):
        joined(wire)
    joined(use(a, "a", 9, token=other, group=gids.parse("239.1.2.4")))
    assert refused(former) == ("taken", memberships.OTHER_QP)
    serve = {"do": "serve", "identity": "a", "peer": [], "worker": str(a.worker.path)}
    for qpn, token in ((8, TOKEN), (10, other)):
        assert a.open(serve | {"qpn": qpn, "token": token}).event() == {"event": "serving"}
    assert refused(served) == ("taken", memberships.OTHER_QP)
    assert uses(a) == 2
    own.hang_up()
    assert learned_nothing(own)


def learned_nothing(wire: Wire) -> bool:
    """No error ended the channel."""
    return all(event["event"] == "members" for event in wire.events())


@pytest.mark.parametrize(
    "limit", ["ASKING_MAX", "ASKING_PER_IDENTITY", "ASKING_PER_GID", "ASKING_TWICE"]
)
def test_too_many_agents_ask(
    b: Host, folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(memberships, limit, 1)
    stranger = asks(b, folder)
    assert heard(stranger) == Members(())
    stranger.send_on(3, encode(ask_of()))
    assert stranger.error() == (3, "busy")
    stranger.close()


def test_others_have_all_places(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent that asks most gives way to another identity, which then has its answer."""
    monkeypatch.setattr(memberships, "ASKING_MAX", 2)
    hosts = [*HOSTS, gids.text_of(C)]
    b = member_host(folder, B, port, group_entry(["b"], hosts))
    crowd = asks(b, folder)
    crowd.send_on(3, encode(ask_of()))
    assert [heard(crowd), heard(crowd)] == [Members(()), Members(())]
    peer = asks(b, folder, "c", of=C)
    assert heard(peer) == Members(())
    assert crowd.error() == (1, "busy")
    assert asking(b) == 2
    crowd.close()
    peer.close()
    b.close()


def test_refusals_have_the_rate_of_talks(b: Host, folder: Path) -> None:
    stranger = asks(b, folder)
    heard(stranger)
    [link] = b.links()
    link._refusals = Pace(0)
    stranger.send_on(3, encode(ask_of(group=OTHER)))
    assert stranger.error() == (3, "identity")
    assert not link.end
    link._busy = Pace(0)
    stranger.send_on(1, encode(ErrorMessage("closed", "")))
    assert stranger.error() == (0, "rate")
    until(lambda: asking(b) == 0)
    stranger.close()


def test_many_changes(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of a group that come too soon are told in one message when it is due. Programs that
    only send change nothing. B does not ask itself, which would take a part of CHANGES."""
    monkeypatch.setattr(memberships, "CHANGES", (2, 1000))
    b = member_host(folder, B, port, group_entry(["b"], HOSTS[:1]))
    stranger = asks(b, folder)
    assert heard(stranger) == Members(())
    use(b, "b", 100, member=0)
    for qpn in range(1, 11):
        use(b, "b", qpn)
        until(lambda qpn=qpn: uses(b) == 1 + qpn)
    assert [heard(stranger), heard(stranger)] == [Members((1,)), Members((1, 2))]
    of(b)._rolls[GROUP].pace = Pace(1)
    b.agent.call(lambda: of(b)._due(GROUP))
    assert heard(stranger) == Members(tuple(range(1, 11)))
    stranger.close()
    b.close()


def test_agent_that_tells_too_much(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream ends, its members are forgotten, and the agent asks again."""
    monkeypatch.setattr(subscriptions, "HEARD", (2, 1000))
    wire = use(a, "a", 9, member=0)
    joined(wire)
    first = use(b, "b", 7)
    assert members(wire) == (B, [7])
    joined(first)
    joined(use(b, "b", 8))
    assert members(wire) == (B, [])


# Ends ----------------------------------------------------------------------------------


def test_connection_is_lost(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its members are forgotten if the agent gets no answer in time."""
    monkeypatch.setattr(subscriptions, "KEPT", 0.0)
    joined(use(b, "b", 7))
    wire = use(a, "a", 9, member=0)
    joined(wire)
    cut(b)
    assert members(wire) == (B, [])
    assert members(wire) == (B, [7])


def test_agent_is_restarted(a: Host, b: Host) -> None:
    """The members stay known meanwhile, until its programs have joined again."""
    joined(use(b, "b", 7))
    wire = use(a, "a", 9, member=0)
    joined(wire)
    b.stop()
    b.start()
    until(lambda: asking(b) == 1)  # it has told that there are none
    joined(use(b, "b", 7))
    joined(use(b, "b", 8))
    assert members(wire) == (B, [7, 8])


def after_a_restart(a: Host, b: Host) -> Wire:
    """A program of A that knew the member 7 of B, whose agent was restarted. 8 has joined since."""
    joined(use(b, "b", 7))
    wire = use(a, "a", 9, member=0)
    joined(wire)
    b.stop()
    b.start()
    joined(use(b, "b", 8))
    return wire


def test_former_members_give_way(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is told no more members of a host than MEMBERS may have."""
    monkeypatch.setattr(subscriptions, "MEMBERS_MAX", 1)
    assert members(after_a_restart(a, b)) == (B, [8])


def test_members_of_a_former_agent(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that have not joined again are forgotten."""
    monkeypatch.setattr(subscriptions, "KEPT", 1.0)
    wire = after_a_restart(a, b)
    while (event := members(wire)) != (B, [8]):  # (B, [7, 8]), or (B, []) on a slow machine
        assert event in [(B, [7, 8]), (B, [])]


def test_host_that_is_silent(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends give up a connection without acknowledgements, though it has no session. The agent
    asks in another one."""
    joined(use(b, "b", 7))
    wire = use(a, "a", 9, member=0)
    joined(wire)
    old: list[Link] = [link for link in a.links() + b.links() if link.streams]
    assert len(old) == 6  # of A to A, of A to B, of B to B, and the other ends
    assert all(link.replaceable for link in old)
    with monkeypatch.context() as silent:
        silent.setattr(links, "LOOK", 0.01)
        silent.setattr(Outer, "reachable", lambda _, seconds=REACHABLE: seconds != links.SILENCE)
        for link in old:
            link.look_at = 0.0
        until(lambda: all(link.end for link in old))
    joined(use(b, "b", 8))
    assert members(wire) == (B, [7, 8])


def test_host_that_asks_keeps_its_connection(a: Host, b: Host) -> None:
    """It is not closed as idle: it tells changes at any time."""
    joined(use(b, "b", 7))
    joined(use(a, "a", 9))
    assert not any(link.parks() for link in a.links() + b.links() if link.streams)


def test_worker_with_another_gid(b: Host, folder: Path) -> None:
    """The agents that asked the former one are refused."""
    stranger = asks(b, folder)
    assert heard(stranger) == Members(())
    for gid in (gids.NONE, B):
        b.agent.call(lambda gid=gid: b.agent.service._admission.know(gid))
    assert asking(b) == 1
    b.agent.call(lambda: b.agent.service._admission.know(C))
    assert stranger.error() == (1, "closed")
    assert asking(b) == 0
    stranger.close()


def test_worker_ends(alone: Host) -> None:
    a = alone
    wire = use(a, "a", 9)
    joined(wire)
    a.worker.cut()
    assert refused(wire)[0] == "worker"
    until(lambda: uses(a) == 0)


def test_identity_is_withdrawn(a: Host, b: Host) -> None:
    joined(use(b, "b", 7))
    wire = use(a, "a", 9)
    joined(wire)
    b.agent.call(lambda: b.agent.service.withdraw(lambda name, user: False))
    assert members(wire) == (B, [])


def change(one: Host, old: str, new: str) -> None:
    text = one.file.read_text()
    assert old in text
    one.file.write_text(text.replace(old, new))
    one.agent.call(one.policy.load)
    one.agent.call(lambda: one.agent.service.withdraw(one.policy.permits))


def test_policy_without_the_group(a: Host, b: Host) -> None:
    """Uses of the group end, and so do the streams of agents that ask."""
    member = use(b, "b", 7)
    joined(member)
    wire = use(a, "a", 9)
    joined(wire)
    change(b, "239.1.0.0/16", "239.2.0.0/16")
    code, text = refused(member)
    assert code == "policy" and "no [[group]]" in text
    assert members(wire) == (B, [])
    assert asking(b) == 0


def test_policy_with_other_hosts(a: Host, b: Host) -> None:
    """The program uses the group again, with these hosts."""
    member = use(b, "b", 7)
    joined(member)
    wire = use(a, "a", 9)
    joined(wire)
    change(b, str(HOSTS), str(HOSTS[1:]))
    assert refused(member) == ("policy", memberships.CHANGED)
    assert members(wire) == (B, [])
    change(b, "users", "users")
    assert joined(use(b, "b", 7)) == {B: [7]}
    assert asking(b) == 1  # its own


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('identity = "spiffe://test/host-b"', 'identity = "spiffe://test/host-c"'),
        ("users", 'peers = ["spiffe://test/host-a"]\nusers'),
    ],
)
def test_policy_that_does_not_permit_a_host(a: Host, b: Host, old: str, new: str) -> None:
    """The stream that this end opened ends, and its members are forgotten at once."""
    joined(use(b, "b", 7))
    wire = use(a, "a", 9)
    assert joined(wire) == {A: [9], B: [7]}
    assert asking(b) == 2
    change(a, old, new)
    assert members(wire) == (B, [])
    until(lambda: asking(b) == 1)
    assert [line["code"] for line in a.told("failed")] == ["identity"]


def test_policy_that_does_not_permit_the_agent_that_asks(a: Host, b: Host) -> None:
    """Its stream goes on, without the members that do not permit its identity any more."""
    joined(use(b, "b", 7))
    wire = use(a, "a", 9)
    assert joined(wire) == {A: [9], B: [7]}
    change(b, "users", 'peers = ["spiffe://test/host-b"]\nusers')
    assert members(wire) == (B, [])
    assert asking(b) == 2


def test_policy_that_does_not_change_the_group(alone: Host) -> None:
    a = alone
    wire = use(a, "a", 9)
    joined(wire)
    change(a, "users", "users")
    wire.hang_up()
    assert wire.event() == END
