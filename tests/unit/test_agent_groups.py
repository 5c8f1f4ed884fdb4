"""The multicast groups of a policy, and the messages by which agents ask for members (agent.md 14,
protocol.md 8.10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from srdma import gid
from srdma.agent import groups
from srdma.agent.policy import Policy, PolicyError, Private
from srdma.identity import create_ca, issue
from srdma.keyex.fields import ExchangeError
from srdma.keyex.groups import MEMBERS_MAX, Ask, Members
from srdma.keyex.messages import Hello, Message, decode, encode
from srdma.keyex.offers import DATA_MAX

A, B = (gid.parse(f"10.0.0.{n}") for n in (1, 2))
GROUP = gid.parse("239.1.2.3")
ENTRY = """
[[group]]
gid = "239.1.0.0/16"
identities = ["host-a"]
hosts = ["10.0.0.1", "10.0.0.2"]
"""
GOOD = (
    """
worker = "/run/w.ctl"
socket = "agent.sock"
listen = "10.0.0.1:7000"
[[identity]]
name = "host-a"
path = "a"
[[peer]]
gid = "10.0.0.0/24"
agent = 4793
identity = "spiffe://test/net"
[[peer]]
gid = "10.0.0.2"
agent = 4793
identity = "spiffe://test/b"
"""
    + ENTRY
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("groups")
    create_ca(folder, "test")
    issue(folder, "spiffe://test/a", folder / "a")
    return folder


def policy(folder: Path, text: str = GOOD) -> Policy:
    (folder / "agent.toml").write_text(text)
    return Policy(folder / "agent.toml")


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("[[group]]", "[group]", r"group must be entries \[\[group\]\]"),
        ("hosts =", "host =", r"\[\[group\]\] has the unknown key 'host'"),
        ('gid = "239.1.0.0/16"\n', "", r"\[\[group\]\] needs a gid"),
        ("239.1.0.0/16", "10.1.0.0/16", "must be in 224.0.0.0/4 or ff00::/8"),
        ("239.1.0.0/16", "224.0.0.0/3", "must be in 224.0.0.0/4 or ff00::/8"),
        ("239.1.0.0/16", "fe00::/8", "must be in 224.0.0.0/4 or ff00::/8"),
        ("239.1.0.0/16", "239.1.0.1/16", "has host bits set"),
        ('identities = ["host-a"]\n', "", "identities of .* must be names"),
        ('["host-a"]', "[]", "identities of .* must be names"),
        ('["host-a"]', '["host-b"]', "identities of .* must be names"),
        ('["host-a"]', "[{}]", "not legal"),
        ('["10.0.0.1", "10.0.0.2"]', '"10.0.0.1"', "hosts of .* is no list of GIDs"),
        ('["10.0.0.1", "10.0.0.2"]', "[7]", "hosts of .* is no list of GIDs"),
        ('["10.0.0.1", "10.0.0.2"]', "[]", "has 0 hosts: name 1 to 64"),
        ('"10.0.0.1", "10.0.0.2"', '"host-b"', "'host-b' does not appear to be an IPv4 or IPv6"),
        ('"10.0.0.1", ', '"10.0.1.1", ', r"hosts of .*no \[\[peer\]\] with the GID 10.0.1.1"),
        ("239.1.0.0/16", "ff0e::/16", ""),
        ("239.1.0.0/16", "224.0.0.0/4", ""),
        ("239.1.0.0/16", "239.1.0.0", ""),
    ],
)
def test_groups_of_a_policy(folder: Path, old: str, new: str, error: str) -> None:
    assert old in GOOD
    if error:
        with pytest.raises(PolicyError, match=error):
            policy(folder, GOOD.replace(old, new))
    else:
        policy(folder, GOOD.replace(old, new))


def test_group_of_a_gid(folder: Path) -> None:
    """The narrowest range counts."""
    narrow = ENTRY.replace("239.1.0.0/16", "239.1.2.3").replace('"10.0.0.1", ', "")
    made = policy(folder, GOOD + narrow)
    assert made.group_at(GROUP).hosts == (B,)
    wide = made.group_at(gid.parse("239.1.2.4"))
    assert wide.hosts == (A, B)
    wide.check_own("host-a")
    wide.check_host(A)
    with pytest.raises(ExchangeError, match=r"does not permit 'host-b' the group 239.1.0.0/16"):
        wide.check_own("host-b")
    with pytest.raises(ExchangeError, match=r"10.0.0.9 is no host of the group 239.1.0.0/16"):
        wide.check_host(gid.parse("10.0.0.9"))
    with pytest.raises(ExchangeError, match=r"no \[\[group\]\] with the gid 239.2.0.1"):
        made.group_at(gid.parse("239.2.0.1"))
    assert made.summary()["[239.1.2.3]"] == "for host-a; hosts 10.0.0.2"
    with pytest.raises(PolicyError, match=r"two entries .* have the gid 239.1.2.3"):
        policy(folder, GOOD + narrow + narrow)


def test_hosts_by_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the peers that are no range."""
    text = GOOD.replace('hosts = ["10.0.0.1", "10.0.0.2"]\n', "")
    assert policy(folder, text).group_at(GROUP).hosts == (B,)
    monkeypatch.setattr(groups, "HOSTS_MAX", 0)
    with pytest.raises(PolicyError, match="has 1 hosts: name 1 to 0 GIDs by `hosts`"):
        policy(folder, text)


def test_too_many_entries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "ENTRIES_MAX", 0)
    with pytest.raises(PolicyError, match="at most 0"):
        policy(folder)


def test_private_agent() -> None:
    with pytest.raises(ExchangeError, match="needs a system agent"):
        Private().group_at(GROUP)


@pytest.mark.parametrize(
    "message",
    [
        Ask(GROUP, A, B),
        Members(()),
        Members((1, 2**24 - 1), 2**32 - 1),
        Members(tuple(range(1, 65))),
        Hello(7, groups=True),
        Hello(0),
    ],
)
def test_round_trip(message: Message) -> None:
    assert decode(encode(message)) == message


def test_members_fit_into_an_event() -> None:
    """The host library takes a field `data` of DATA_MAX bytes at most; a QPN has 4 (agent.md 2)."""
    assert 4 * MEMBERS_MAX <= DATA_MAX


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Ask(GROUP[:-1], A, B), "multicast is 15 bytes"),
        (Ask(A, A, B), "multicast is 10.0.0.1: it must be in 224.0.0.0/4"),
        (Ask(GROUP, A[:-1], B), "from is 15 bytes"),
        (Ask(GROUP, A, b""), "gid is 0 bytes"),
        (Members((0,)), "members is 0"),
        (Members((2**24,)), "members is 16777216"),
        (Members((2, 1)), "in ascending order"),
        (Members((1, 1)), "in ascending order"),
        (Members(tuple(range(1, MEMBERS_MAX + 2))), "at most 64 QPNs"),
        (Members((), 0), "asks is 0"),
        (Members((), 2**32), "asks is 4294967296"),
    ],
)
def test_malformed_message(message: Message, error: str) -> None:
    with pytest.raises(ExchangeError, match=error):
        decode(encode(message))
