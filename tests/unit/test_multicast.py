"""Multicast groups of programs at two agents (protocol.md 8.10, agent.md 14)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srdma import gid as gids
from srdma.agent import links, memberships, multicast
from srdma.keyex.groups import Ask, Members
from srdma.keyex.messages import ErrorMessage, Message, Ready, decode, encode
from srdma.keyex.pace import Pace
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
    monkeypatch.setattr(multicast, "ROUND", PATIENCE)


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
    """The GID and the QPNs of the next event."""
    event = wire.event()
    assert event["event"] == "members", event
    data = event["data"]
    found = [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]
    return event["gid"], found


def joined(wire: Wire) -> dict[bytes, list[int]]:
    """All members, when the hosts have answered."""
    found: dict[bytes, list[int]] = {}
    while (event := wire.event())["event"] != "joined":
        assert event["event"] == "members", event
        data = event["data"]
        found[event["gid"]] = [
            int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)
        ]
    return found


def refused(wire: Wire) -> tuple[str, str]:
    """Code and text of the error that ends a channel."""
    while (event := wire.event())["event"] in ("members", "joined"):
        pass
    assert event["event"] == "error", event
    return event["code"], event["text"]


def asking(one: Host) -> int:
    """How many streams of peers ask for members."""
    found = one.agent.service._admission.memberships
    return int(one.agent.call(lambda: sum(len(each) for each in found._asking.values())))


def uses(one: Host) -> int:
    return int(one.agent.call(lambda: len(one.agent.service._admission.memberships._uses)))


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


def test_newer_use_of_a_qp(a: Host) -> None:
    """A program that has ended its channel may come back before the agent notices it."""
    former = use(a, "a", 9)
    joined(former)
    wire = use(a, "a", 9, member=0)
    assert refused(former) == ("taken", "a newer use of this UD QP replaces it")
    assert joined(wire) == {}
    assert uses(a) == 1


def test_use_that_begins_while_the_former_one_ends(a: Host) -> None:
    """The program has hung up: its channel has no event any more."""
    for _ in range(20):
        former = use(a, "a", 9)
        joined(former)
        former.hang_up()
        wire = use(a, "a", 9)
        assert joined(wire) == {A: [9]}
        wire.close()
    assert uses(a) == 0


def test_host_that_is_not_there(a: Host, folder: Path, port: int) -> None:
    """The others are known without it, and its members as soon as it is there."""
    wire = use(a, "a", 9)
    assert joined(wire) == {A: [9]}
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


def test_host_that_does_not_answer(a: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """`joined` waits for it no longer than ROUND."""
    monkeypatch.setattr(multicast, "ROUND", 0.05)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(multicast, "_hear", never)
    assert joined(use(a, "a", 9)) == {}


def test_old_connection(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent asks again in another one; the members stay known meanwhile."""
    joined(use(b, "b", 7))
    monkeypatch.setattr(multicast, "AGE_MAX", 0.3)
    monkeypatch.setattr(links, "AGE_MAX", 0.3)
    wire = use(a, "a", 9)
    assert joined(wire) == {A: [9], B: [7]}
    old = b.links()
    until(lambda: any(link not in old for link in b.links()))
    other = use(b, "b", 8)
    joined(other)
    assert members(wire) == (B, [7, 8])


def test_stale_connection(a: Host, b: Host) -> None:
    """ASK is refused with `stale` there, and repeated at once in another one."""
    joined(use(b, "b", 7))
    joined(use(a, "a", 9))
    old = a.links() + b.links()
    for link in b.links():
        link.made_at -= links.AGE_HERE + 1
    assert joined(use(a, "a", 10)) == {A: [9, 10], B: [7]}
    assert any(link not in old for link in b.links())


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


def test_request_in_a_use(a: Host) -> None:
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
    joined(use(b, "b", 7))
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


@pytest.mark.parametrize("message", [encode(Ready()), encode(ask_of()), b"no CBOR"])
def test_second_message_of_an_agent_that_asks(b: Host, folder: Path, message: bytes) -> None:
    stranger = asks(b, folder)
    assert heard(stranger) == Members(())
    stranger.send_on(1, message)
    assert stranger.error() == (1, "state")
    until(lambda: asking(b) == 0)
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
    "answer", [encode(Members((2, 1))), encode(Ready()), encode(ErrorMessage("busy", ""))]
)
def test_answer_that_is_not_legal(
    a: Host, b: Host, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """The agent asks again later."""
    joined(use(b, "b", 7))
    monkeypatch.setattr(multicast, "AGAIN", 0.01)
    right, wrong = memberships.encode, [answer]
    monkeypatch.setattr(
        memberships, "encode", lambda message: wrong.pop() if wrong else right(message)
    )
    wire = use(a, "a", 9, member=0)
    found = joined(wire)
    assert found == {B: [7]} or (found == {} and members(wire) == (B, [7]))


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
def test_too_many_uses(a: Host, monkeypatch: pytest.MonkeyPatch, limit: str, text: str) -> None:
    monkeypatch.setattr(memberships, limit, 1)
    first = use(a, "a", 9)
    joined(first)
    code, told = refused(use(a, "a", 10))
    assert code == "quota" and text in told
    first.close()
    joined(use(a, "a", 10))


@pytest.mark.parametrize("limit", ["USES_MAX", "MEMBERS_MAX"])
def test_users_share_the_places(a: Host, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """The oldest use of the user that has the most gives way."""
    monkeypatch.setattr(memberships, limit, 2)
    a.file.write_text(a.file.read_text().replace("users = [", "users = [12345, "))
    a.agent.call(a.policy.load)
    a.worker.owner = 12345, b""
    others = [use(a, "a", qpn, user=12345) for qpn in (1, 2)]
    for other in others:
        joined(other)
    a.worker.owner = os.getuid(), b""
    a.worker.tokens = {TOKEN, bytes(16)}
    joined(use(a, "a", 3, token=bytes(16)))
    assert refused(others[0]) == ("quota", memberships.GIVES_WAY)
    assert refused(use(a, "a", 4, token=bytes(16)))[0] == "quota"  # they have as many now


@pytest.mark.parametrize("limit", ["ASKING_MAX", "ASKING_PER_IDENTITY", "ASKING_PER_GID"])
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


def test_many_changes(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that come too soon for an agent are told in one message when it is due."""
    monkeypatch.setattr(memberships, "CHANGES", (2, 1000))
    wire = use(a, "a", 9, member=0)
    joined(wire)
    for qpn in range(1, 11):
        joined(use(b, "b", qpn))
    assert members(wire) == (B, [1])
    found = b.agent.service._admission.memberships
    (asking,) = (each for each in found._asking[GROUP] if each.ask.of == A)
    asking.pace = Pace(1)
    b.agent.call(lambda: found._due(asking))
    assert members(wire) == (B, [*range(1, 11)])


def test_agent_that_tells_too_much(a: Host, b: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream ends, its members are forgotten, and the agent asks again."""
    monkeypatch.setattr(multicast, "HEARD", (2, 1000))
    wire = use(a, "a", 9, member=0)
    joined(wire)
    first = use(b, "b", 7)
    assert members(wire) == (B, [7])
    joined(first)
    joined(use(b, "b", 8))
    assert members(wire) == (B, [])


# Ends ----------------------------------------------------------------------------------


def test_connection_is_lost(a: Host, b: Host) -> None:
    joined(use(b, "b", 7))
    wire = use(a, "a", 9, member=0)
    joined(wire)
    cut(b)
    assert members(wire) == (B, [])
    assert members(wire) == (B, [7])


def test_worker_ends(a: Host) -> None:
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


def test_policy_that_does_not_change_the_group(a: Host) -> None:
    wire = use(a, "a", 9)
    joined(wire)
    change(a, "users", "users")
    wire.hang_up()
    assert wire.event() == END
