"""Accounts and quotas of a running worker (local-interface.md 3.10): what a greedy program gets,
and what its neighbour gets. RFC 5042 R6.4.1-1, R6.4.1-2, R7.2-2."""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from srdma.control import Control
from srdma.control.quotas import (
    LOCAL,
    NO_LIMIT,
    REMOTE,
    AccountKind,
    Quota,
    Usage,
    accounts,
    qps,
    set_quota,
)
from srdma.errors import RefusedError
from tests import daemon
from tests.daemon import (
    BINARY,
    HEADER,
    PAGE,
    Client,
    Kind,
    Qp,
    Worker,
    keys,
    memfd,
    reg_mr,
    u32,
    until,
    worker,
)
from tests.unit.test_offload_memory import Owner, register, token
from tests.unit.test_offload_memory import install as install_token

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

DEFAULT = (AccountKind.PROCESS, "")


@pytest.fixture
def agent(a: Worker) -> Iterator[Control]:
    control = Control.connect(a.control)
    control.agent()
    yield control
    control.close()


def program(a: Worker, connections: int = 1) -> list[Client]:
    """Connections of one more process, which makes them and passes them on. The account is that of
    the process that connected."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        for _ in range(connections):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                sock.connect(str(a.control))
                socket.send_fds(theirs, [b"x"], [sock.fileno()])
        os._exit(0)
    theirs.close()
    found = []
    for _ in range(connections):
        _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
        found.append(Client.of(socket.socket(fileno=fd)))
    ours.close()
    os.waitpid(child, 0)
    a.clients += found
    return found


def refusal(client: Client) -> str:
    """The text with which the worker closed a connection beyond a limit."""
    data = client.socket.recv(8192)
    kind, _, tag, status = HEADER.unpack(data[: HEADER.size])
    assert (kind, tag, status) == (Kind.HELLO, 0, errno.EDQUOT)
    assert client.closed()
    return data[HEADER.size :].decode()


def usage(agent: Control, name: str) -> Usage:
    (found,) = (one for one in accounts(agent) if one.name == name)
    return found


# --- each resource, by two processes ----------------------------------------------------


def open_leg(client: Client, leg: int) -> None:
    client.open(64)


def make_qp(client: Client, leg: int) -> None:
    client.init(leg)


def make_region(client: Client, leg: int) -> None:
    fd = memfd(PAGE)
    try:
        client.number(Kind.REG_MR, reg_mr(leg), [fd])
    finally:
        os.close(fd)


def install(client: Client, leg: int) -> None:
    owner = Owner(client, leg, register(client, leg))
    install_token(owner, token(owner))


# name, what makes one, units of each, units of a program that only opened a leg, noun
ROWS = [
    ("legs", open_leg, 1, 1, "legs"),
    ("records", open_leg, 64, 256, "places of completion rings"),
    ("qps", make_qp, 1, 0, "QPs"),
    ("entries", make_qp, 32, 0, "places of send and receive queues"),
    ("regions", make_region, 1, 0, "regions"),
    ("bytes", make_region, PAGE, 0, "bytes of registered memory"),
    ("capabilities", install, 1, 0, "installed capabilities"),
]


def test_the_table_has_every_local_resource() -> None:
    """Connections have a test below. Resources that packets take have their table in
    tests/c/relay/test_relay_identity_quota.c; addresses and homes: test_relay_addresses.c."""
    assert {row[0] for row in ROWS} | {"connections"} == set(LOCAL)
    assert set(REMOTE) == {"qps", "ops", "kept", "reads", "addresses", "homes"}


@pytest.mark.parametrize(("name", "make", "each", "first", "noun"), ROWS)
# RFC 5042 R6.4.1-1
def test_a_limit_stops_the_greedy_program_only(
    a: Worker,
    agent: Control,
    name: str,
    make: Callable[[Client, int], None],
    each: int,
    first: int,
    noun: str,
) -> None:
    """It gets a text that says what to do, keeps what it has, and is counted; its neighbour gets
    all that its own limit permits, whatever the order."""
    before = {one.name for one in accounts(agent)}
    (greedy,), (neighbour,) = program(a), program(a)
    leg, other = greedy.open(256)[0], neighbour.open(256)[0]
    most = first + 2 * each
    set_quota(agent, DEFAULT, Quota(limits={name: most}, minima={name: 0}))
    for _ in range(2):
        make(greedy, leg)
    with pytest.raises(
        daemon.RefusedError, match=f"has {most} of at most {most} {noun}"
    ) as refused:
        make(greedy, leg)
    assert refused.value.status == errno.EDQUOT
    assert f"raise {name} in [quota]" in str(refused.value)
    for _ in range(2):
        make(neighbour, other)
    assert greedy.alive()
    found = [one for one in accounts(agent) if one.name not in before]
    uses = [(one.uses[name].used, one.uses[name].refused) for one in found]
    assert uses == [(most, 1), (most, 0)]
    with pytest.raises(daemon.RefusedError):
        make(neighbour, other)
    greedy.close()  # what it had is given back, and changes nothing for the other
    until(lambda: found[0].name not in {one.name for one in accounts(agent)})
    assert usage(agent, found[1].name).uses[name].used == most


@pytest.mark.parametrize(("name", "make", "each", "first", "noun"), ROWS)
def test_a_minimum_is_there_when_others_took_all(
    a: Worker,
    agent: Control,
    name: str,
    make: Callable[[Client, int], None],
    each: int,
    first: int,
    noun: str,
) -> None:
    """A third account has all that no minimum holds back."""
    (neighbour,) = program(a)
    leg = neighbour.open(256)[0]
    (own,) = (
        one for one in accounts(agent) if one.uses["legs"].used and one.kind is AccountKind.PROCESS
    )
    wanted = first + 2 * each
    set_quota(agent, (own.kind, own.name), Quota({name: wanted}))
    taker = (AccountKind.PROCESS, "all the others")
    set_quota(agent, taker, Quota({name: 2**62}))
    assert usage(agent, own.name).uses[name].minimum == wanted
    (greedy,) = program(a)
    greedy_leg = 0 if make is open_leg else greedy.open(256)[0]
    with pytest.raises(daemon.RefusedError, match=f"the worker has its limit of .* {noun}"):
        for _ in range(64):
            make(greedy, greedy_leg)
    for _ in range(2):
        make(neighbour, leg)
    with pytest.raises(daemon.RefusedError, match=f"the worker has its limit of .* {noun}"):
        make(neighbour, leg)


def test_connections_beyond_the_limit_are_told_why(a: Worker, agent: Control) -> None:
    set_quota(agent, DEFAULT, Quota(limits={"connections": 4}))
    *four, fifth = program(a, 5)
    assert all(one.alive() for one in four)
    assert "has 4 of at most 4 control connections: close one" in refusal(fifth)
    assert program(a)[0].alive()
    four[0].close()
    (before,) = (
        one
        for one in accounts(agent)
        if one.kind is AccountKind.PROCESS and one.uses["connections"].refused
    )
    until(lambda: usage(agent, before.name).uses["connections"].used == 3)


def test_the_library_tells_why_a_connection_was_refused(a: Worker, agent: Control) -> None:
    set_quota(agent, DEFAULT, Quota(limits={"connections": 1}))
    for _ in range(20):
        control = Control.connect(a.control)
        with pytest.raises(RefusedError, match="has 1 of at most 1 control connections") as refused:
            control.hello()
        assert refused.value.errno == errno.EDQUOT
        control.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process, and workers that it starts, may open 12,000 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12000:
        pytest.skip(f"the limit of open files is {hard}; 12,000 are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_the_greedy_leaves_connections_to_a_neighbour(tmp_path: Path) -> None:
    """V9: without any policy one process takes all that is not held back for others."""
    with worker(tmp_path, "a") as found:
        greedy = [found.client() for _ in range(4096 - 16 * 4)]
        assert greedy[-1].alive()
        assert "the worker has its limit of 4096 control connections" in refusal(found.client())
        for _ in range(3):
            (neighbour,) = program(found)
            assert neighbour.open()
        # The room of those that came is held back for others again.
        for client in greedy[:20]:
            client.close()
        until(lambda: is_alive(found.client()))


@pytest.mark.usefixtures("many_files")
def test_1024_legs_of_100_processes_are_admitted(tmp_path: Path) -> None:
    with worker(tmp_path, "a") as found:
        before = resident(found)
        for _ in range(103):
            (one,) = program(found)
            for _ in range(10):
                one.open(64)
        each = (resident(found) - before) / 1030
        print(f"an idle worker: {before} KiB; a leg: {each:.1f} KiB")
        assert each < 64
        greedy = found.client()
        with pytest.raises(daemon.RefusedError, match="the worker has its limit of 2048 legs"):
            while True:
                greedy.open(64)
        (neighbour,) = program(found)
        assert neighbour.open(64)
        greedy.close()
        until(lambda: can_open(neighbour))


def resident(found: Worker) -> int:
    """Memory of the worker in KiB."""
    status = Path(f"/proc/{found.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def can_open(client: Client) -> bool:
    try:
        client.open(64)
    except daemon.RefusedError:
        return False
    return True


def is_alive(client: Client) -> bool:
    try:
        return client.alive()
    except (AssertionError, EOFError, ConnectionError):
        return False


# RFC 5042 A6.4.1
def test_the_greedy_leaves_qps_to_a_neighbour(tmp_path: Path) -> None:
    with worker(tmp_path, "a", "--max-qps", "256") as found:
        greedy = found.client()
        leg, _ = greedy.open(2048)
        for _ in range(256 - 32):
            greedy.init(leg, 1, 1)
        text = greedy.refused(errno.EDQUOT, Kind.INIT, u32(leg, 1, 1, 0, 0))
        assert "the worker has its limit of 256 QPs" in text
        for _ in range(3):
            (neighbour,) = program(found)
            other, _ = neighbour.open()
            neighbour.init(other)
            neighbour.init(other)


# RFC 5042 A6.4.1
def test_sparse_memory_leaves_address_space_to_a_neighbour(a: Worker) -> None:
    """V9: regions of a memfd without pages took all of the worker's address space."""
    size = 2**40
    greedy = a.client()
    leg, _ = greedy.open()
    fd = memfd(size)
    made = 0
    try:
        while True:
            greedy.number(Kind.REG_MR, reg_mr(leg, length=size), [fd])
            made += 1
    except daemon.RefusedError as refused:
        assert refused.status == errno.EDQUOT
        assert "bytes of registered memory" in str(refused)
    assert made == 63
    (neighbour,) = program(a)
    other, _ = neighbour.open(65536)
    own = memfd(2**30)
    neighbour.number(Kind.REG_MR, reg_mr(other, length=2**30), [own])
    os.close(own)
    os.close(fd)


# --- identities -------------------------------------------------------------------------


def connected(a: Client, b: Client, identity: str) -> tuple[Qp, Qp]:
    """Two QPs with keys, whose peer at `a` has this identity."""
    one, two = a.init(a.open()[0]), b.init(b.open()[0])
    b.request(Kind.KEYS, keys(two, one, 1))
    a.request(Kind.KEYS, keys(one, two, 0, identity=identity.encode()))
    return one, two


def test_an_identity_at_its_limit_gets_no_keys(a: Worker, b: Worker) -> None:
    greedy, other = "spiffe://x/greedy", "spiffe://x/other"
    agent = Control.connect(a.control)
    agent.agent()
    set_quota(agent, (AccountKind.IDENTITY, greedy), Quota(limits={"qps": 2}))
    agent.close()  # the quota stays; without the role every client gives keys
    ca, cb = a.client(), b.client()
    until(lambda: is_free(a))
    for _ in range(2):
        connected(ca, cb, greedy)
    with pytest.raises(
        daemon.RefusedError, match=f"identity {greedy} has 2 of at most 2 QPs: close one"
    ):
        connected(ca, cb, greedy)
    for _ in range(3):
        connected(ca, cb, other)


def is_free(a: Worker) -> bool:
    """True once no process has the role."""
    control = Control.connect(a.control)
    try:
        control.agent()
    except RefusedError:
        return False
    finally:
        control.close()
    return True


# --- USAGE, QPS and revisions -------------------------------------------------------------


def test_usage_and_qps_tell_what_is_used(a: Worker, b: Worker, agent: Control) -> None:
    ca, cb = a.client(), b.client()
    one = ca.init(ca.open()[0])
    ca.init(ca.open()[0])
    cb.open()
    me = usage(agent, f"process {os.getpid()} of user {os.getuid()}")
    assert me.kind is AccountKind.PROCESS and me.group == f"user {os.getuid()}"
    assert me.uses["legs"].used == me.uses["qps"].used == 2
    assert me.uses["legs"].minimum == 4
    assert me.counts["packets_sent"] == 0
    group = usage(agent, f"user {os.getuid()}")
    assert group.kind is AccountKind.GROUP and group.uses["qps"].used == 2
    found = {qp.qpn: qp for qp in qps(agent)}
    assert len(found) == 2 and found[one.qpn].identity == ""


def test_quotas_of_an_old_policy_end(a: Worker, agent: Control) -> None:
    old = (AccountKind.IDENTITY, "spiffe://x/old")
    new = (AccountKind.IDENTITY, "spiffe://x/new")
    set_quota(agent, old, Quota({"qps": 5}, {"qps": 9}, 7), revision=1)
    assert usage(agent, old[1]).uses["qps"].minimum == 5
    assert usage(agent, old[1]).idle == 7
    set_quota(agent, new, Quota({"qps": 3}), revision=2, last=True)
    assert [one.name for one in accounts(agent) if one.name in (old[1], new[1])] == [new[1]]


@pytest.mark.parametrize(
    ("quota", "match"),
    [
        (Quota({"qp": 1}), "unknown resources: qp; this version has connections, legs"),
        (Quota({"qps": -1}), "must be 0 to"),
        (Quota(limits={"qps": 2**64 - 1}), "must be 0 to"),
    ],
)
def test_quotas_that_cannot_be_packed(quota: Quota, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        quota.pack()


def test_a_limit_of_zero_is_no_absent_place(a: Worker, agent: Control) -> None:
    named = (AccountKind.PROCESS, "process 1 of user 1")
    set_quota(agent, named, Quota({"qps": 0, "legs": 0}, {"qps": 0}))
    uses = usage(agent, named[1]).uses
    assert (uses["qps"].minimum, uses["qps"].limit) == (0, 0)
    assert (uses["legs"].minimum, uses["legs"].limit) == (0, NO_LIMIT)


def test_quota_needs_the_role(a: Worker) -> None:
    control = Control.connect(a.control)
    with pytest.raises(RefusedError, match="QUOTA without the role AGENT"):
        set_quota(control, DEFAULT, Quota())
    assert [one.kind for one in accounts(control)] == [AccountKind.GROUP, AccountKind.PROCESS]
    assert list(qps(control)) == []
    control.close()


def test_the_tables_of_quota_and_usage_have_the_same_places() -> None:
    assert len(Quota().pack()) == 256 and struct.calcsize(">4Q") * 16 == 512
