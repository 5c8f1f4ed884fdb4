"""The policy of a system agent (agent.md 6): its file, and what it grants."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tomllib
from pathlib import Path
from typing import Any

import pytest

from srdma import gid
from srdma.agent.accounts import KEYS as DOOR_KEYS
from srdma.agent.accounts import Door
from srdma.agent.groups import GROUP_KEYS
from srdma.agent.peers import PEER_KEYS
from srdma.agent.policy import IDENTITY_KEYS, KEYS, PATH_MAX, Policy, PolicyError, Private
from srdma.agent.program import begin_key_log, bound
from srdma.agent.remote.entries import CONTROL_KEYS
from srdma.agent.remote.entries import KEYS as HOST_KEYS
from srdma.agent.settings import Terms
from srdma.agent.wires import check_wires
from srdma.cli.app import build
from srdma.control import Limits
from srdma.errors import LocalError
from srdma.identity import Credentials, create_ca, issue
from srdma.keyex.fields import ExchangeError
from srdma.keyex.offers import End, Suite
from tests.keyex_players import config

A = "spiffe://test/a"
GOOD = """
worker = "/run/w.ctl"
socket = "agent.sock"
[[identity]]
name = "host-a"
path = "a"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_ca(tmp_path, "test")
    issue(tmp_path, A, tmp_path / "a")
    (tmp_path / "agent.toml").write_text(GOOD)
    return tmp_path


def policy(folder: Path, text: str = GOOD) -> Policy:
    (folder / "agent.toml").write_text(text)
    return Policy(folder / "agent.toml")


def settings(name: object = "host-a", peer: object = ()) -> dict[str, object]:
    return {"identity": name, "peer": list(peer) if isinstance(peer, tuple) else peer}


def test_defaults(folder: Path) -> None:
    made = policy(folder)
    assert (made.worker, made.socket, made.mode) == (Path("/run/w.ctl"), Path("agent.sock"), 0o600)
    identity = made.identity(settings(), os.getuid())
    assert identity.credentials.identity == A
    identity.check("spiffe://anything")
    assert made.permits("host-a", os.getuid()) and not made.permits("host-a", os.getuid() + 1)
    assert not made.permits("host-b", os.getuid())
    assert made.summary() == {"host-a": f"{A} for users {os.getuid()}"}


PEER = (
    'listen = "10.0.0.1:7000"'
    + GOOD
    + """
[[peer]]
gid = "10.0.0.2"
agent = 4793
identity = "spiffe://test/b"
"""
)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('listen = "10.0.0.1:7000"', "", r"\[\[peer\]\] needs `listen`"),
        ("[[peer]]", "[peer]", r"peer must be entries \[\[peer\]\]"),
        ("agent =", "agents =", r"\[\[peer\]\] has the unknown key 'agents'"),
        ('gid = "10.0.0.2"\n', "", r"needs a gid"),
        ('"10.0.0.2"', "7", r"needs a gid"),
        ('"10.0.0.2"', '"host-b"', "'host-b' does not appear to be an IPv4 or IPv6"),
        ('"10.0.0.2"', '"10.0.0.2/24"', "has host bits set"),
        ("agent = 4793\n", "", r"agent of \[\[peer\]\] 10.0.0.2 must be"),
        ("4793", "0", r"agent of \[\[peer\]\] 10.0.0.2 must be"),
        ("4793", "65536", r"agent of \[\[peer\]\] 10.0.0.2 must be"),
        ("4793", "true", r"agent of \[\[peer\]\] 10.0.0.2 must be"),
        ("4793", '"10.0.0.2:x"', r"agent of \[\[peer\]\] 10.0.0.2 must be"),
        ("4793", '"10.0.0.2"', "does not appear to be an IPv4 or IPv6"),
        ('identity = "spiffe://test/b"', "", "10.0.0.2 needs an identity"),
        ('"spiffe://test/b"', "7", "10.0.0.2 needs an identity"),
        ('"spiffe://test/b"', '"spiffe://test/b"\nsan = 1', "must be true or false"),
        ("test/b", "test/*", "has a pattern as identity"),
        ("test/b", "test:1/b", r"identity .* of \[\[peer\]\] 10.0.0.2: .* no trust domain"),
        ('"10.0.0.2"', '"10.0.0.0/24"', ""),
        ("4793", '"10.0.0.2:4793"', ""),
        ('"10.0.0.2"\nagent = 4793', '"10.0.0.0/24"\nagent = "10.0.0.2:4793"', "give the port"),
        ('test/b"', 'test/*"\nsan = true', ""),
    ],
)
def test_peers_of_a_policy(folder: Path, old: str, new: str, error: str) -> None:
    assert old in PEER
    text = PEER.replace(old, new)
    if error:
        with pytest.raises(PolicyError, match=error):
            policy(folder, text)
    else:
        policy(folder, text)


def test_peer_of_a_gid(folder: Path) -> None:
    """The narrowest range counts; IPv4 and IPv4-mapped addresses are the same."""
    more = PEER[PEER.index("[[peer]]") :]
    made = policy(
        folder,
        PEER
        + more.replace("10.0.0.2", "10.0.0.0/24").replace("test/b", "test/net")
        + more.replace("10.0.0.2", "fd00::/16").replace("test/b", "test/*")
        + "san = true\n"
        + more.replace("10.0.0.2", "fd00::7").replace("4793", '"[fd00::1]:99"')
        + more.replace("10.0.0.2", "fd00::8").replace("4793", '"[::ffff:10.0.0.1]:99"'),
    )
    found = {
        text: (peer.expected, peer.agent_of(gid.parse(text)))
        for text in ("10.0.0.2", "::ffff:10.0.0.2", "10.0.0.3", "fd00::1", "fd00::7", "fd00::8")
        for peer in [made.peer_at(gid.parse(text))]
    }
    assert found == {
        "10.0.0.2": ("spiffe://test/b", ("10.0.0.2", 4793)),
        "::ffff:10.0.0.2": ("spiffe://test/b", ("10.0.0.2", 4793)),
        "10.0.0.3": ("spiffe://test/net", ("10.0.0.3", 4793)),
        "fd00::1": ("", ("fd00::1", 4793)),
        "fd00::7": ("spiffe://test/b", ("fd00::1", 99)),
        "fd00::8": ("spiffe://test/b", ("10.0.0.1", 99)),
    }
    with pytest.raises(ExchangeError, match=r"no \[\[peer\]\] with the GID 10.0.1.0"):
        made.peer_at(gid.parse("10.0.1.0"))
    assert {
        "[10.0.0.2]": "spiffe://test/b",
        "[10.0.0.0/24]": "spiffe://test/net",
        "[fd00::/16]": "spiffe://test/* with this address in its certificate",
    }.items() <= made.summary().items()
    for twice in ("10.0.0.2", "10.0.0.0/24"):
        text = PEER + more.replace("10.0.0.2", "10.0.0.0/24") + more.replace("10.0.0.2", twice)
        with pytest.raises(PolicyError, match=f"two entries .* have the gid {twice}"):
            policy(folder, text)


@pytest.mark.parametrize(
    ("text", "host"),
    [("[::ffff:10.0.0.1]", "10.0.0.1"), ("[fd00::01]", "fd00::1"), ("[fe80::1%e]", "fe80::1%e")],
)
def test_listening_address(folder: Path, text: str, host: str) -> None:
    """IPv4-mapped addresses are those of IPv4. A link-local address keeps its interface."""
    assert policy(folder, f'listen = "{text}:7000"' + GOOD).listen == (host, 7000)


def documented(page: str, block: int) -> dict[str, Any]:
    """A block of TOML of a page, counted from 1."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    return tomllib.loads(text.split("```toml\n")[block].split("```")[0])


def test_policy_of_the_documentation() -> None:
    """Its keys are in the tables to which they belong."""
    fields = documented("agent.md", 1) | documented("control-link.md", 2)
    assert set(fields) == KEYS
    assert set(fields["control"]) == CONTROL_KEYS
    assert {key for each in fields["host"] for key in each} == HOST_KEYS
    for name, keys in (
        ("identity", IDENTITY_KEYS),
        ("peer", PEER_KEYS),
        ("group", GROUP_KEYS),
        ("container", DOOR_KEYS),
    ):
        assert {key for each in fields[name] for key in each} == keys


def test_both_lists_of_peers_count(folder: Path) -> None:
    made = policy(folder, GOOD + 'peers = ["spiffe://test/*"]\nusers = ["root", 7]\n')
    identity = made.identity(settings(peer=("spiffe://test/b", "spiffe://other/b")), 7)
    identity.check("spiffe://test/b")
    for peer in ("spiffe://test/c", "spiffe://other/b"):
        with pytest.raises(ExchangeError, match="not allowed"):
            identity.check(peer)


def test_wire_addresses_of_an_identity(folder: Path) -> None:
    made = policy(folder, GOOD + 'wire = ["10.0.0.0/24", "fd00::/16"]\n')
    identity = made.identity(settings(), os.getuid())
    check_wires([end("10.0.0.9:4791"), end("[fd00::1]:4791")], identity.wires)
    for wire in ("10.0.1.9:4791", "[fe00::1]:4791", "worker-b", "10.0.0.9", "10.0.0.0/24:1"):
        with pytest.raises(ExchangeError, match="does not permit the wire address") as refused:
            check_wires([end("10.0.0.9:4791"), end(wire)], identity.wires)
        assert refused.value.code == "worker"
    (folder / "agent.toml").write_text(GOOD)
    made.load()
    assert identity.wires == ()
    check_wires([end("worker-b")], identity.wires)


def end(wire: str) -> End:
    return End(bytes(16), 1, 1 << 23, 1024, 64, 16, wire)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("worker = ", "is not TOML"),
        ("other = 1" + GOOD, "the file has the unknown key 'other'"),
        (GOOD.replace('worker = "/run/w.ctl"', ""), "worker is missing"),
        (GOOD.replace('"agent.sock"', "7"), "socket is missing, or is not a text"),
        (GOOD.replace("worker", 'mode = "rw"\nworker'), "mode must be 0 to 0o777"),
        (GOOD.replace("worker", "mode = 0o1777\nworker"), "mode must be 0 to 0o777"),
        ("key_log = 1" + GOOD, "key_log must be true or false"),
        ("worker_remote = 1" + GOOD, "worker_remote must be true or false"),
        ('worker = "w"\nsocket = "s"', r"has no \[\[identity\]\]"),
        ('worker = "w"\nsocket = "s"\nidentity = "host-a"', r"has no \[\[identity\]\]"),
        (GOOD + "other = 1", r"\[\[identity\]\] has the unknown key 'other'"),
        (GOOD.replace('"host-a"', '"a/b"'), "has a slash"),
        (GOOD.replace('path = "a"', ""), "path is missing"),
        (GOOD.replace('"a"', '"nobody"'), "identity 'host-a': cannot read .*nobody.pem"),
        (GOOD + "users = []", "users of 'host-a' is no list"),
        (GOOD + 'users = "root"', "users of 'host-a' is no list"),
        (GOOD + 'users = ["no-such-user"]', "no user 'no-such-user'"),
        (GOOD + "users = [-1]", "no user -1"),
        (GOOD + "users = [true]", "no user True"),
        (GOOD + 'peers = "spiffe://test/b"', "peers of 'host-a' is no list of patterns"),
        (GOOD + 'wire = "10.0.0.0/24"', "wire of 'host-a': wire is no list of networks"),
        (GOOD + "wire = []", "wire of 'host-a': wire is no list of networks"),
        (GOOD + "wire = [7]", "wire of 'host-a': wire is no list of networks"),
        (GOOD + 'wire = ["10.0.0.1/24"]', "wire of 'host-a': 10.0.0.1/24 has host bits set"),
        (GOOD + 'wire = ["host-b"]', "wire of 'host-a': 'host-b' does not appear to be"),
        (GOOD + 'require = "header"', "require must be one of packet, aead"),
        (GOOD + "require = 3", "require must be one of packet, aead"),
        ("require = []" + GOOD, "require must be one of packet, aead"),
        (GOOD + 'peers = ["spiffe://*/b"]', r"peers of 'host-a': .*\* may stand in the path only"),
        (GOOD + 'peers = ["spiffe://test/../b"]', r"peers of 'host-a': .*segment '\.\.'"),
        (GOOD + 'peers = ["host-b"]', "peers of 'host-a': 'host-b' is no pattern of identities"),
        (GOOD + GOOD[GOOD.index("[[") :], "two entries .* have the name 'host-a'"),
    ],
)
def test_files_that_are_refused(folder: Path, text: str, error: str) -> None:
    with pytest.raises(PolicyError, match=error):
        policy(folder, text)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"cannot read .*none.toml: No such file"):
        Policy(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(PolicyError, match="is not TOML"):
        Policy(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("wanted", "uid", "code", "text"),
    [
        (settings("host-b"), 0, "policy", "no identity 'host-b' to programs of user 0"),
        (settings("host-a"), 99, "policy", "no identity 'host-a' to programs of user 99"),
        (settings("/etc/host-a"), 0, "policy", "by their names in its policy"),
        (settings(7), 0, "policy", "by their names in its policy"),
        ({"cert": b"", "key": b"", "ca": b"", "peer": []}, 0, "policy", "by their names"),
        (settings(peer=A), 0, "config", "not a list of patterns"),
        ({"identity": "host-a"}, 0, "config", "malformed: KeyError: 'peer'"),
    ],
)
def test_requests_that_are_refused(
    folder: Path, wanted: dict[str, object], uid: int, code: str, text: str
) -> None:
    made = policy(folder, GOOD + "users = [0]")
    with pytest.raises(ExchangeError, match=text) as error:
        made.identity(wanted, uid)
    assert error.value.code == code


@pytest.mark.parametrize("path", ["/run/w.ctl", "/run/w.ctl.1", "/run/w.ctl.12"])
def test_processes_of_the_worker(folder: Path, path: str) -> None:
    assert policy(folder).worker_at(Path(path)) == Path(path)
    assert Private().worker_at(Path(path)) == Path(path)


@pytest.mark.parametrize("path", ["/run/w.ctl.x", "/run/w.ctl.", "/run/other.ctl", "/tmp/w.ctl"])
def test_other_workers(folder: Path, path: str) -> None:
    with pytest.raises(ExchangeError, match=f"serves the worker at /run/w.ctl, not .* {path}"):
        policy(folder).worker_at(Path(path))


CONTAINER = (
    GOOD
    + """
[[container]]
name = "web"
path = "web.sock"
identities = ["host-a"]
"""
)


def test_limits_and_containers(folder: Path) -> None:
    made = policy(
        folder,
        GOOD.replace("worker", "quota = { legs = 3, bytes = 5 }\nworker", 1)
        + 'users = [7]\n[[identity]]\nname = "b"\npath = "a"\n'
        + '[[container]]\nname = "web"\npath = "web.sock"\nidentities = ["host-a"]\n'
        + 'mode = 0o666\nowner = "root"\ngroup = 5\nquota = { legs = 4 }\n',
    )
    assert made.limits(7) == made.limits("gone") == Limits(legs=3, bytes=5)
    assert made.limits("web") == Limits(legs=4, bytes=5)
    assert made.doors == (
        Door("web", Path("web.sock"), 0o666, 0, 5, frozenset({"host-a"}), made.doors[0].quota),
    )
    assert made.permits("host-a", "web") and not made.permits("b", "web")
    assert not made.permits("host-a", "other") and not made.permits("other", "web")
    assert made.identity(settings(), "web").credentials.identity == A
    made.check_user("web")
    made.check_user(7)
    for user in ("other", 8):
        with pytest.raises(ExchangeError, match=f"grants nothing to programs of user {user}"):
            made.check_user(user)
    assert "web.sock for host-a; 64 connections, 4 legs" in made.summary()["[web]"]
    assert policy(folder).limits(7) == Limits()
    assert policy(folder).worker_user is None and policy(folder).doors == ()
    assert policy(folder, 'worker_user = "root"' + GOOD).worker_user == 0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("quota = 7" + GOOD, "quota is not a table"),
        (
            "quota = { qp = 7 }" + GOOD,
            "quota has the unknown key 'qp': known are connections, legs",
        ),
        ("quota = { qps = -1 }" + GOOD, "quota: qps must be 0 to 4294967295"),
        ("quota = { qps = 4294967296 }" + GOOD, "quota: qps must be 0 to 4294967295"),
        ("quota = { qps = true }" + GOOD, "quota: qps must be 0"),
        ('quota = { bytes = "1G" }' + GOOD, "quota: bytes must be 0 to 9223372036854775807"),
        ('worker_user = "no-such-user"' + GOOD, "no user 'no-such-user'"),
        ("worker_user = 4294967295" + GOOD, "no user 4294967295"),
        ("container = 1" + GOOD, r"container is no list of tables"),
        ("container = [1]" + GOOD, r"container is no list of tables"),
        (CONTAINER + "other = 1", r"\[\[container\]\] has the unknown key 'other'"),
        (CONTAINER.replace('"web"', '"a/b"'), "a name of a .* has 1 to 48 letters"),
        (CONTAINER.replace('"web"', '"' + 49 * "x" + '"'), "has 1 to 48 letters"),
        (CONTAINER.replace('"web"', "7"), "has 1 to 48 letters"),
        (CONTAINER.replace('path = "web.sock"', ""), "'web' has no path"),
        (CONTAINER + "mode = 0o1777", "'web': mode must be 0 to 0o777"),
        (CONTAINER.replace('["host-a"]', "[]"), "'web': identities is no list"),
        (CONTAINER.replace('["host-a"]', '"host-a"'), "'web': identities is no list"),
        (CONTAINER.replace('["host-a"]', '["b"]'), "'web': there is no .* 'b'"),
        (CONTAINER + 'owner = "no-such-user"', "no user 'no-such-user'"),
        (CONTAINER + 'group = "no-such-group"', "no group 'no-such-group'"),
        (CONTAINER + "quota = { x = 1 }", "quota has the unknown key 'x'"),
        (
            CONTAINER + '[[container]]\nname = "web"\npath = "x"\nidentities = ["host-a"]',
            "have the same name: web",
        ),
        (
            CONTAINER + '[[container]]\nname = "x"\npath = "web.sock"\nidentities = ["host-a"]',
            "have the same socket: web.sock",
        ),
    ],
)
def test_limits_and_containers_that_are_refused(folder: Path, text: str, error: str) -> None:
    with pytest.raises(PolicyError, match=error):
        policy(folder, text)


def test_socket_of_a_container(folder: Path) -> None:
    text = CONTAINER.replace("web.sock", str(folder / "web.sock")) + "mode = 0o666\n"
    (door,) = policy(folder, text).doors
    with bound(door):
        assert door.socket.stat().st_mode & 0o777 == 0o666
        with pytest.raises(LocalError, match=r"an agent serves .*web.sock already"), bound(door):
            pass
    assert not door.socket.exists()


def test_worker_behind_symbolic_links(folder: Path) -> None:
    """The paths of the policy and of the program are those of the same socket."""
    (folder / "real").mkdir()
    (folder / "way").symlink_to("real")
    (folder / "link").symlink_to(folder / "way" / "w")
    (folder / "link1").symlink_to("real/w.1")
    (folder / "loop").symlink_to("loop")
    for worker in ("real/w", "way/w", "link"):
        made = policy(folder, GOOD.replace("/run/w.ctl", str(folder / worker)))
        for path, number in (("real/w", ""), ("way/w", ""), ("link", ""), ("link1", ".1")):
            assert made.worker_at(folder / path) == folder / f"real/w{number}"
        assert made.worker_at(folder / "way/w.12") == folder / "real/w.12"
        for path in ("real/v", "loop", "link.x", "real/w\0"):
            with pytest.raises(ExchangeError, match="serves the worker at"):
                made.worker_at(folder / path)


def test_long_name_of_the_worker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked up: each part of the path would be a system call, while all others wait."""
    made = policy(folder, GOOD.replace("/run/w.ctl", str(folder / "w")))
    longest = f"{folder}/" + "a/" * PATH_MAX
    with pytest.raises(ExchangeError, match="serves the worker at"):
        made.worker_at(Path(longest[: PATH_MAX - 1] + "a"))
    monkeypatch.delattr("os.path.realpath")
    for path in (longest[: PATH_MAX - 1] + "aa", "/a" * 65_000):
        with pytest.raises(ExchangeError, match=f"has at most {PATH_MAX}") as caught:
            made.worker_at(Path(path))
        assert caught.value.code == "policy" and len(caught.value.text) < 200


def test_name_of_the_worker_that_leads_elsewhere(folder: Path) -> None:
    """A program names another worker by a link with a name of the policy's worker."""
    made = policy(folder, GOOD.replace("/run/w.ctl", str(folder / "w")))
    (folder / "w.1").symlink_to("other")
    with pytest.raises(ExchangeError, match="serves the worker at"):
        made.worker_at(folder / "w.1")


def test_reading_again(folder: Path) -> None:
    """New credentials reach the identities in use. A policy that is not legal changes nothing."""
    made = policy(folder)
    used, before = made.identity(settings(), os.getuid()), made.stamp()
    old = used.credentials
    issue(folder, A, folder / "a", force=True)
    os.utime(folder / "a.pem", ns=(1, 1))
    assert made.stamp() != before
    made.load()
    assert used.credentials != old and used.credentials.identity == A
    new = used.credentials
    for broken in (GOOD.replace("host-a", "a/b"), GOOD.replace('"a"', '"b"')):
        (folder / "agent.toml").write_text(broken)
        with pytest.raises(PolicyError):
            made.load()
        assert used.credentials is new and made.permits("host-a", os.getuid())
    (folder / "agent.toml").write_text(GOOD)
    shutil.move(folder / "a.key", folder / "b.key")
    assert made.stamp() != before
    with pytest.raises(PolicyError, match=r"cannot read .*a.key"):
        made.load()
    (folder / "agent.toml").write_text(GOOD.replace('"a"', '"c"').replace("host-a", "host-c"))
    issue(folder, "spiffe://test/c", folder / "c")
    made.load()
    assert used.credentials is new and not made.permits("host-a", os.getuid())


def test_socket(folder: Path) -> None:
    text = GOOD.replace("agent.sock", str(folder / "agent.sock")).replace(
        "worker =", "mode = 0o660\nworker ="
    )
    made = policy(folder, text)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as left:  # by an agent that was killed
        left.bind(str(made.socket))
    with bound(made):
        assert made.socket.stat().st_mode & 0o777 == 0o660
        with pytest.raises(LocalError, match=r"an agent serves .* already"), bound(made):
            pass
        assert made.socket.exists()
    assert not made.socket.exists()
    nowhere = policy(folder, text.replace("agent.sock", "none/agent.sock"))
    with (
        pytest.raises(LocalError, match=r"cannot listen at .*none/agent.sock: No such file"),
        bound(nowhere),
    ):
        pass


@pytest.mark.parametrize("kind", ["file", "folder", "live"])
def test_file_in_place_of_the_socket(folder: Path, kind: str) -> None:
    """Only the socket of an agent that has ended is replaced, and no other program's."""
    made = policy(folder, GOOD.replace("agent.sock", str(folder / "agent.sock")))
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as live:
        if kind == "live":  # such as the wire of a worker over shared memory
            live.bind(str(made.socket))
            live.listen()
        elif kind == "file":
            made.socket.touch()
        else:
            made.socket.mkdir()
        with pytest.raises(LocalError, match="not the socket of an agent"), bound(made):
            pass
        assert made.socket.exists()


def test_key_log_needs_permission(folder: Path) -> None:
    with pytest.raises(LocalError, match="does not allow a key log"):
        begin_key_log(policy(folder), folder / "log")
    assert not (folder / "log").exists()
    with pytest.raises(LocalError, match=r"cannot write .*none/log: No such file"):
        begin_key_log(policy(folder, "key_log = true" + GOOD), folder / "none/log")


def run_cli(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        build()(list(words))
    return int(end.value.code or 0)


def test_config_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(folder / "agent.toml")
    assert run_cli("config", "check", file) == 0
    assert f"host-a  {A} for users {os.getuid()}" in capsys.readouterr().out
    assert run_cli("config", "check", "--json", file) == 0
    assert json.loads(capsys.readouterr().out)["worker"] == "/run/w.ctl"
    (folder / "agent.toml").write_text(GOOD.replace("worker", "socket2"))
    for command in (["config", "check", file], ["agent", "--config", file]):
        assert run_cli(*command) == 3
        assert "unknown key 'socket2'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("old", "new"),
    [('worker = "', 'worker = "/other'), ("worker =", "worker_remote = true\nworker =")],
)
def test_worker_takes_effect_at_the_start(folder: Path, old: str, new: str) -> None:
    """The agent follows the worker that it has."""
    (folder / "agent.toml").write_text(GOOD)
    made = Policy(folder / "agent.toml")
    before = made.worker, made.worker_remote
    (folder / "agent.toml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(PolicyError, match="start it again"):
        made.load()
    assert (made.worker, made.worker_remote) == before


@pytest.mark.parametrize(
    ("of_all", "of_one", "level"),
    [("", "", 0), ("packet", "", 2), ("", "aead", 3), ("packet", "aead", 3), ("aead", "packet", 2)],
)
def test_required_level(folder: Path, of_all: str, of_one: str, level: int) -> None:
    """The level of an identity counts, else that of the file; a changed file counts at once."""
    head = f'require = "{of_all}"\n' if of_all else ""
    made = policy(folder, head + GOOD + (f'require = "{of_one}"\n' if of_one else ""))
    identity = made.identity(settings(), os.getuid())
    assert identity.require == level
    (folder / "agent.toml").write_text(GOOD + 'require = "aead"')
    made.load()
    assert identity.require == 3


def test_suites_below_the_required_level(folder: Path) -> None:
    """They are left out; without any other one the program is told what to do."""
    made = policy(folder, GOOD + 'require = "packet"')
    identity = made.identity(settings(), os.getuid())

    def terms(*suites: list[int]) -> Terms:
        own = Credentials.named(folder / "a")
        return Terms.of(config("client", own, suites=[*suites], worker="/w", token=bytes(16)))

    some = terms([0x20, 1, 16], [0x20, 2, 16], [1, 3, 16])
    assert identity.narrowed(some).suites == (Suite(0x20, 2, 16), Suite(1, 3, 16))
    with pytest.raises(ExchangeError, match=r"requires level packet for 'host-a', .* header") as e:
        identity.narrowed(terms([0x20, 1, 16]))
    assert e.value.code == "level" and "cmac" not in e.value.told
