"""The file of a proxy, and the entries of hosts in a policy (control-link.md 1)."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path

import pytest

from srdma.agent import port as agent_port
from srdma.agent.accounts import REMOTE_NAME_MAX, account, host_of, remote_user
from srdma.agent.clock import SystemClock
from srdma.agent.policy import Policy, PolicyError
from srdma.agent.remote import entries
from srdma.agent.remote.entries import NAME_MAX, Ports
from srdma.agent.remote.proxy_file import ProxyFile
from srdma.control import Limits
from srdma.errors import LocalError
from srdma.identity import create_ca, issue
from srdma.keyex.fields import ExchangeError

PROXY = """socket = "agent.sock"
nic = "10.1.0.2:4794"
control = "control"
peer = "spiffe://test/nic"
[[identity]]
name = "host-a"
users = ["root", 1001]
[[identity]]
name = "host-b"
"""
FORWARD = """forward = "nic.ctl"
worker = "/run/nic.ctl"
nic = "10.1.0.2:4794"
control = "control"
peer = "spiffe://test/nic"
"""
POLICY = """worker = "w.sock"
socket = "a.sock"
[control]
listen = "127.0.0.1:4794"
path = "control"
[quota]
qps = 7
[[identity]]
name = "host-a"
path = "control"
[[container]]
name = "1001"
path = "c.sock"
identities = ["host-a"]
quota = { qps = 9 }
[[host]]
name = "left"
identity = "spiffe://test/left"
identities = ["host-a"]
listen = ["127.0.0.1:7000-7002", "[::1]:7003"]
quota = { qps = 8 }
[[host]]
name = "right"
identity = "spiffe://test/right"
identities = ["host-a"]
"""


LOCAL = POLICY[: POLICY.index("[control]")] + POLICY[POLICY.index("[quota]") :]
LOCAL = LOCAL[: LOCAL.index("[[host]]")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files")
    create_ca(path, "test")
    issue(path, "spiffe://test/nic", path / "control")
    return path


def proxy_of(folder: Path, text: str) -> ProxyFile:
    (folder / "proxy.toml").write_text(text)
    return ProxyFile(folder / "proxy.toml")


def policy_of(folder: Path, text: str) -> Policy:
    (folder / "agent.toml").write_text(text)
    return Policy(folder / "agent.toml")


def test_values_of_a_proxy(folder: Path) -> None:
    file = proxy_of(folder, PROXY)
    assert (file.socket, file.mode) == (Path("agent.sock"), 0o600)
    assert (file.nic, file.peer) == (("10.1.0.2", 4794), "spiffe://test/nic")
    assert file.control.identity == "spiffe://test/nic"
    assert file.permits("host-a", 0) and file.permits("host-a", 1001)
    assert not file.permits("host-a", 1002) and not file.permits("host-c", 0)
    assert file.permits("host-b", os.getuid()) and not file.permits("host-b", 77)
    assert not file.permits(["host-a"], 0)
    before = file.stamp()
    os.utime(folder / "control.pem", (1e9, 1e9))
    assert file.stamp() != before
    assert set(file.summary()) == {"socket", "nic", "host-a", "host-b"}


CONTAINER = '[[container]]\nname = "web"\npath = "web.sock"\nidentities = ["host-a"]\n'


def test_containers_of_a_proxy(folder: Path) -> None:
    """The programs of a container have its identities, whatever their uids are."""
    other = CONTAINER.replace("web", "1001").replace("host-a", "host-b") + "mode = 0o666\n"
    file = proxy_of(folder, PROXY + CONTAINER + other)
    found = [(place.socket.name, place.mode) for place in file.places()]
    assert found == [("agent.sock", 0o600), ("web.sock", 0o600), ("1001.sock", 0o666)]
    assert [file.permits("host-a", user) for user in ("web", "1001", 1001, "x")] == [
        True, False, True, False,
    ]  # fmt: skip
    assert file.permits("host-b", "1001") and not file.permits("host-b", 1001)
    assert not file.permits(["host-a"], "web")
    assert file.summary()["[web]"] == "web.sock for host-a"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"web"', f'"{"x" * 17}"', "at most 16 letters"),
        ('"web"', '"a:b"', "1 to 48 letters"),
        ("name", "quota = { qps = 1 }\nname", r"limits are those of \[\[host\]\]"),
        ("name", "more = 1\nname", "unknown key 'more'"),
        ("host-a", "host-z", "there is no .*'host-z'"),
        (CONTAINER, "", "no list of tables"),
    ],
)
def test_container_of_a_proxy_that_is_not_legal(
    folder: Path, old: str, new: str, text: str
) -> None:
    before = "" if new else "container = 1\n"
    with pytest.raises(LocalError, match=text):
        proxy_of(folder, before + PROXY + CONTAINER.replace(old, new, 1))
    with pytest.raises(LocalError, match="unknown key 'container'"):
        proxy_of(folder, FORWARD + CONTAINER)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('socket = "agent.sock"', "", "socket is missing"),
        ('socket = "agent.sock"', "more = 1\nsocket = 'a'", "the file has the unknown key 'more'"),
        ('socket = "agent.sock"', 'socket = "a"\nmode = 512', "mode must be 0 to 0o777"),
        ("10.1.0.2:4794", "nic.local:4794", 'nic must be "ADDRESS:PORT"'),
        ("10.1.0.2:4794", "10.1.0.2:80", 'nic must be "ADDRESS:PORT"'),
        ('control = "control"', 'control = "absent"', "absent.pem"),
        ("spiffe://test/nic", "spiffe://test/*", "peer must be one identity"),
        ('peer = "spiffe://test/nic"', "peer = 3", "peer must be one identity"),
        ('"root", 1001', "", "users of an .* is no list"),
        ('"root"', '"no such user"', "no user 'no such user'"),
        ('name = "host-b"', 'name = "host-b"\npath = "b"', "unknown key 'path'"),
        ("socket", "=", "is not TOML"),
    ],
)
def test_proxy_file_that_is_not_legal(folder: Path, old: str, new: str, text: str) -> None:
    assert old in PROXY
    with pytest.raises(LocalError, match=text):
        proxy_of(folder, PROXY.replace(old, new, 1))


def test_values_of_forward(folder: Path) -> None:
    file = proxy_of(folder, FORWARD)
    (place,) = file.places()
    assert (place.socket, place.mode, file.kind) == (Path("nic.ctl"), 0o600, socket.SOCK_SEQPACKET)
    assert file.worker_paths() == [Path("/run/nic.ctl")]
    assert not file.permits("host-a", os.getuid())
    assert file.summary()["worker"] == "/run/nic.ctl"
    file = proxy_of(folder, FORWARD + "processes = 3")
    names = ["nic.ctl", "nic.ctl.1", "nic.ctl.2"]
    assert [place.socket.name for place in file.places()] == names
    assert [path.name for path in file.worker_paths()] == names
    assert len(proxy_of(folder, FORWARD + "processes = 64").places()) == 64
    file = proxy_of(folder, PROXY)
    assert (file.places(), file.kind) == ([file], socket.SOCK_STREAM)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("processes = 0", "processes must be 1 to 64"),
        ("processes = 65", "processes must be 1 to 64"),
        ("processes = true", "processes must be 1 to 64"),
        ("mode = 0o666", "unknown key 'mode'"),
        ("socket = 'a.sock'", "unknown key 'socket'"),
        ("[[identity]]\nname = 'host-a'", "unknown key 'identity'"),
    ],
)
def test_forward_that_is_not_legal(folder: Path, more: str, text: str) -> None:
    with pytest.raises(LocalError, match=text):
        proxy_of(folder, FORWARD + more)
    with pytest.raises(LocalError, match="worker is missing"):
        proxy_of(folder, FORWARD.replace("worker", "processes", 1).replace('"/run/nic.ctl"', "1"))
    with pytest.raises(LocalError, match="unknown key 'processes'"):
        proxy_of(folder, "processes = 1\n" + PROXY)


def test_proxy_file_without_identities(folder: Path) -> None:
    with pytest.raises(LocalError, match="there is no"):
        proxy_of(folder, PROXY[: PROXY.index("[[")])
    with pytest.raises(LocalError, match="cannot read"):
        ProxyFile(folder / "absent.toml")


def test_file_that_is_not_legal_changes_nothing(folder: Path) -> None:
    file = proxy_of(folder, PROXY)
    file.path.write_text(PROXY.replace("10.1.0.2", "nowhere"))
    with pytest.raises(LocalError):
        file.load()
    assert file.nic == ("10.1.0.2", 4794)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (PROXY, "agent.sock", "other.sock"),
        (PROXY, "nic =", "mode = 0o666\nnic ="),
        (FORWARD, "/run/nic.ctl", "/run/other.ctl"),
        (FORWARD, "nic =", "processes = 2\nnic ="),
    ],
)
def test_values_that_take_effect_at_the_start(folder: Path, text: str, old: str, new: str) -> None:
    file = proxy_of(folder, text)
    way = file.way
    file.path.write_text(text.replace("10.1.0.2", "10.1.0.3"))
    file.load()
    assert file.way != way
    file.path.write_text(text.replace(old, new, 1))
    with pytest.raises(LocalError, match="start it again"):
        file.load()
    assert file.nic == ("10.1.0.3", 4794)


def test_form_of_a_proxy_takes_effect_at_the_start(folder: Path) -> None:
    file = proxy_of(folder, PROXY)
    file.path.write_text(FORWARD)
    with pytest.raises(LocalError, match="start it again"):
        file.load()
    assert file.permits("host-a", 1001)


def test_host_that_tells_the_time(folder: Path) -> None:
    """One of several must be named; a single one needs not."""
    clocks = 'clock = "control"\n'
    both, one = clocks + POLICY, clocks + POLICY[: POLICY.index('[[host]]\nname = "right"')]
    named = both.replace('name = "right"', 'name = "right"\nclock = true')
    for text in (both, named.replace('name = "left"', 'name = "left"\nclock = true')):
        with pytest.raises(PolicyError, match="give one of several clock = true"):
            policy_of(folder, text)
    for text, name in ((one, "left"), (named, "right")):
        policy = policy_of(folder, text)
        own = policy.identity({"identity": "host-a", "peer": []}, os.getuid())
        with pytest.raises(ExchangeError, match=f"host {name} did not tell the time"):
            own.clock.check(own.credentials)


def test_users_of_a_host(folder: Path) -> None:
    """They are neither local users nor containers."""
    policy = policy_of(folder, POLICY)
    left, right = remote_user("left", 1001), remote_user("right", 0)
    assert account(left) == "host left uid 1001"
    assert (host_of(left), host_of(1001), host_of("left")) == ("left", "", "")
    assert policy.permits("host-a", left) and policy.permits("host-a", right)
    assert not policy.permits("host-b", left)
    assert not policy.permits("host-a", remote_user("middle", 0))
    limits = [policy.limits(user).qps for user in (left, right, "1001", 1001)]
    assert limits == [8, 7, 9, 7]
    assert policy.host_at(left).name == "left"
    for user in (1001, "1001", remote_user("middle", 0)):
        with pytest.raises(ExchangeError, match="only programs of a"):
            policy.host_at(user)
    names = ("left", "right", "middle")
    found = [policy.host_named(f"spiffe://test/{name}") for name in names]
    assert [host and host.name for host in found] == ["left", "right", None]
    for longest in ((1 << 32) - 2, "y" * REMOTE_NAME_MAX):
        assert len(account(remote_user("x" * NAME_MAX, longest))) < 64


def test_containers_of_a_host(folder: Path) -> None:
    """They are neither users of the host nor containers of the NIC."""
    policy = policy_of(folder, POLICY)
    web, number = remote_user("left", "web"), remote_user("left", "1001")
    assert [account(user) for user in (web, number)] == ["host left/web", "host left/1001"]
    assert [host_of(user) for user in (web, number)] == ["left", "left"]
    assert policy.permits("host-a", web) and not policy.permits("host-b", web)
    assert (policy.limits(web).qps, policy.limits(number).qps) == (8, 8)
    assert not policy.permits("host-a", remote_user("middle", "web"))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('name = "left"', 'name = "left:"', "a name of a .*host"),
        ('name = "left"', f'name = "{"x" * 41}"', "1 to 40 letters"),
        ('name = "left"', 'name = "right"', "same name: right"),
        ('name = "left"', 'name = "left"\nport = 1', "unknown key 'port'"),
        ('name = "left"', 'name = "left"\nclock = 1', "neither true nor false"),
        ('"spiffe://test/left"', '"spiffe://test/right"', "same identity"),
        ('"spiffe://test/left"', '"spiffe://test/*"', "must be one identity"),
        ('identities = ["host-a"]\nlisten', "identities = []\nlisten", "no list of names"),
        ('["host-a"]\nlisten', '["host-z"]\nlisten', "there is no .*'host-z'"),
        ('listen = ["127.0.0.1:7000-7002", "[::1]:7003"]', "listen = 1", "no list of addresses"),
        ("127.0.0.1:7000-7002", "127.0.0.1:7002-7000", "give .ADDRESS:PORT"),
        ("127.0.0.1:7000-7002", "127.0.0.1:80-7000", "ports of 1024 to 65535"),
        ("127.0.0.1:7000-7002", "0.0.0.0:7000", "an address of this NIC"),
        ("127.0.0.1:7000-7002", "nic:7000", "an address of this NIC"),
        ("127.0.0.1:4794", "127.0.0.1", "control.: listen must be"),
        ('listen = "127.0.0.1:4794"\n', "", "has the keys listen and path"),
        ('path = "control"\n[quota]', 'path = ""\n[quota]', "path is no text"),
        ('path = "control"\n[quota]', 'path = "absent"\n[quota]', "absent.pem"),
    ],
)
def test_policy_that_is_not_legal(folder: Path, old: str, new: str, text: str) -> None:
    assert old in POLICY
    with pytest.raises(PolicyError, match=text):
        policy_of(folder, POLICY.replace(old, new, 1))


def test_control_and_hosts_need_each_other(folder: Path) -> None:
    with pytest.raises(PolicyError, match=r"needs .control. and one"):
        policy_of(folder, 'clock = "control"\n' + LOCAL)
    control = POLICY[POLICY.index("[control]") : POLICY.index("[quota]")]
    for text in (POLICY.replace(control, ""), POLICY[: POLICY.index("[[host]]")]):
        with pytest.raises(PolicyError, match="need each other"):
            policy_of(folder, text)
    for text in ("host = 1\n", "host = [1]\n"):
        with pytest.raises(PolicyError, match="host is no list of tables"):
            policy_of(folder, text + POLICY[: POLICY.index("[[host]]")])


def test_clock_of_the_host(folder: Path) -> None:
    """The policy demands it of handshakes with peers, not of control links."""
    clock = FakeClock()
    text = POLICY.replace('name = "left"', 'name = "left"\nclock = true')
    (folder / "agent.toml").write_text('clock = "control"\n' + text)
    policy = Policy(folder / "agent.toml", clock)
    own = policy.identity({"identity": "host-a", "peer": []}, os.getuid())
    link = policy.control_identity()
    link.clock.check(link.credentials)
    with pytest.raises(ExchangeError, match="host left did not tell the time"):
        own.clock.check(own.credentials)
    epoch = clock.now - clock.monotonic()
    policy.host_time.told("right", epoch)  # another host
    with pytest.raises(ExchangeError, match="host left did not tell the time"):
        own.clock.check(own.credentials)
    for off, sane in ((60, True), (-60, True), (61, False), (-61, False)):
        policy.host_time.told("left", epoch + off)
        if sane:
            own.clock.check(own.credentials)
        else:
            with pytest.raises(ExchangeError, match="more than 60 s from the time of host left"):
                own.clock.check(own.credentials)
    clock.now += 61  # is set
    policy.host_time.told("left", epoch + 61)
    own.clock.check(own.credentials)
    policy.load()
    assert policy.identity({"identity": "host-a", "peer": []}, os.getuid()).clock.host
    clock.passed += 24 * 3600 + 1
    with pytest.raises(ExchangeError, match="host left did not tell the time"):
        own.clock.check(own.credentials)


class FakeClock(SystemClock):
    """now: time of day; passed: seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.now, self.passed = time.time(), 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.passed


def test_ports_of_a_host(folder: Path) -> None:
    assert str(Ports("::1", 7003, 7003)) == "[::1]:7003"
    host = policy_of(folder, POLICY).host_at(remote_user("left", 0))
    assert host.listen == (Ports("127.0.0.1", 7000, 7002), Ports("::1", 7003, 7003))
    assert host.limits == Limits(qps=8)


def test_any_port_of_a_large_range(folder: Path) -> None:
    """A look at each port would delay all other work of the agent."""
    large = POLICY.replace("127.0.0.1:7000-7002", "127.0.0.1:1024-65535")
    host = policy_of(folder, large).host_at(remote_user("left", 0))
    with host.bound("127.0.0.1", 0) as one, host.bound("127.0.0.1", 0) as other:
        assert one.getsockname() != other.getsockname()
    tried: list[object] = []

    def in_use(address: object) -> None:
        tried.append(address)
        raise OSError(errno.EADDRINUSE, "Address already in use")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "listening", in_use)
        with pytest.raises(ExchangeError, match="Address already in use") as busy:
            host.bound("127.0.0.1", 0)
    assert busy.value.code == "busy" and len(set(tried)) == len(tried) == entries.TRIES
    absent = policy_of(folder, large.replace("127.0.0.1:1024", "192.0.2.1:1024"))
    with pytest.raises(ExchangeError, match="annot assign") as error:
        absent.host_at(remote_user("left", 0)).bound("192.0.2.1", 0)
    assert error.value.code == "config"


def test_control_address_in_use() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(LocalError, match=r"cannot listen at .* of .control"),
    ):
        agent_port.bound(other.getsockname()[:2], "[control]")
