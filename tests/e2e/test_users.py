"""Programs of other users than the worker's, and those of containers (agent.md 9)."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import srdma
from srdma import Access
from srdma.agent.client import message_of
from srdma.embedded import find_worker
from tests.e2e.agents import Agent, launch, until
from tests.e2e.conftest import WAIT, A, B, Host, Site, run, start_site
from tests.e2e.guests import ROOT, Guest, steal, try_numbers

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

NOBODY, STRANGER, THIRD = 65534, 65533, 65532


@dataclass
class Users:
    """Workers of root; the agent of worker a is for the programs of NOBODY too."""

    site: Site
    folder: Path
    undo: contextlib.ExitStack = field(repr=False)
    agents: list[Agent] = field(default_factory=list)

    def agent(self, name: str, worker: Path, users: list[int], more: str = "") -> Agent:
        path = self.folder / f"{name}.sock"
        policy = self.folder / f"{name}.toml"
        policy.write_text(
            f'worker = "{worker}"\nsocket = "{path}"\nmode = 0o666\n{more}\n'
            f'[[identity]]\nname = "host-{name}"\npath = "{name}"\nusers = {users}\n'
        )
        agent = Agent(policy, path, launch(policy))
        self.undo.callback(agent.kill)
        return agent

    def guest(self, agent: Agent, uid: int = NOBODY, *how: str, **env: str) -> Guest:
        guest = Guest(self.site.a.control, agent.socket, uid, *how, **env)
        self.undo.callback(guest.kill)
        return guest

    def server(self) -> Host:
        agent = self.agent("b", self.site.b.control, [0])
        ctx = self.undo.enter_context(srdma.Context(self.site.b.control, agent=agent.socket))
        return Host(ctx, self.undo.enter_context(srdma.PD(ctx)))


@pytest.fixture
def users(pki: Path) -> Iterator[Users]:
    with contextlib.ExitStack() as stack:
        site = start_site()
        stack.callback(site.embedded.close)
        folder = site.embedded.folder
        folder.chmod(0o711)
        for name in ("a.pem", "a.key", "b.pem", "b.key", "ca.pem"):
            (folder / name).write_bytes((pki / name).read_bytes())
        yield Users(site, folder, stack.enter_context(contextlib.ExitStack()))


def connect(users: Users, guest: Guest, host: Host) -> srdma.Connection:
    """A connection from the guest, which names it `c`, to this process. The listener stays, so that
    a restarted agent can connect again."""
    listener = users.undo.enter_context(
        srdma.listen(("127.0.0.1", 0), host.pd, identity="host-b", peer=A)
    )
    accepted = run(listener.accept, WAIT)
    guest.does(f"c = srdma.connect({listener.address!r}, pd, identity='host-a', peer={B!r})")
    return accepted()


def write(guest: Guest, host: Host, text: bytes) -> None:
    with host.pd.alloc(64, Access.LOCAL_WRITE | Access.REMOTE_WRITE, scope="pd") as region:
        remote = f"srdma.RemoteMR.parse({str(region.remote())!r})"
        guest.does(f"c.qp.write({text!r}, {remote}, timeout={WAIT})")
        assert bytes(region.buf[: len(text)]) == text


def test_program_of_another_user(users: Users) -> None:
    host, agent = users.server(), users.agent("a", users.site.a.control, [0, NOBODY])
    guest = users.guest(agent)
    assert guest.first is None
    server = connect(users, guest, host)
    assert server.identity == A
    write(guest, host, b"of nobody")
    server.rekey(WAIT)
    guest.does(f"c.rekey({WAIT})")
    # peers write into its memory, which is a memfd
    guest.does("m = pd.alloc(64, srdma.Access.LOCAL_WRITE | srdma.Access.REMOTE_WRITE, scope='pd')")
    remote = srdma.RemoteMR.parse(guest.ask("show(str(m.remote()))"))
    server.qp.write(b"to nobody", remote, timeout=WAIT)
    assert guest.ask("show(bytes(m.buf[:9]).decode())") == "to nobody"
    refused = guest.fails("pd.reg_mr(bytearray(64))", "pd.alloc()", "memfds only")
    assert refused["errno"] == errno.EPERM
    events = {line["event"]: line for line in agent.audit()}
    assert events["passed"]["account"] == f"uid {NOBODY}"


def test_connection_survives_the_agent(users: Users) -> None:
    host, agent = users.server(), users.agent("a", users.site.a.control, [0, NOBODY])
    guest = users.guest(agent)
    connect(users, guest, host)
    agent.process.kill()
    agent.process.communicate()
    write(guest, host, b"without an agent")
    # the role is vacant, and the guest does not get it
    assert guest.fails("pd.control.agent()", "restricted")["errno"] == errno.EPERM
    guest.fails("srdma.PD(ctx)", "no agent at")
    agent.process = launch(agent.policy)
    guest.does("srdma.PD(ctx).close()")
    write(guest, host, b"with another one")
    guest.does(f"c.rekey({WAIT})")


def test_leg_ends_with_its_program(users: Users) -> None:
    host, agent = users.server(), users.agent("a", users.site.a.control, [0, NOBODY])
    guest = users.guest(agent)
    server = connect(users, guest, host)
    guest.kill()
    with pytest.raises(srdma.Error):
        while True:
            server.qp.send(b"x", timeout=WAIT)
    with srdma.Context(users.site.a.control) as ctx:
        until(lambda: ctx.stats()["legs"] == 0)


def test_users_gate_the_identity(users: Users) -> None:
    """A user without an identity gets no connection, one with another identity not this one."""
    agent = users.agent("a", users.site.a.control, [0, NOBODY])
    stranger = users.guest(agent, STRANGER)
    assert stranger.first is not None
    assert f"the policy grants nothing to programs of user {STRANGER}" in stranger.first["error"]
    assert "belongs to another user" in stranger.first["error"]
    agent.policy.write_text(
        agent.policy.read_text()
        + f'[[identity]]\nname = "host-b"\npath = "b"\nusers = [{STRANGER}]\n'
    )
    agent.process.send_signal(signal.SIGHUP)
    assert agent.process.stderr
    until(lambda: '"event": "policy"' in agent.process.stderr.readline())  # type: ignore[union-attr]
    stranger.does("ctx = srdma.Context(worker, agent=agent); pd = srdma.PD(ctx)")
    stranger.fails(
        "srdma.connect(('127.0.0.1', 1), pd, identity='host-a')",
        f"grants no identity 'host-a' to programs of user {STRANGER}",
    )


# RFC 5042 R7.1-1
def test_program_cannot_use_qps_of_another(users: Users) -> None:
    """Neither by numbers nor by a stolen token."""
    host, agent = users.server(), users.agent("a", users.site.a.control, [NOBODY, STRANGER])
    owner, thief = users.guest(agent), users.guest(agent, STRANGER)
    connect(users, owner, host)
    steal(thief, try_numbers(thief, owner), host)
    write(owner, host, b"unharmed")


def test_quota(users: Users) -> None:
    agent = users.agent(
        "a", users.site.a.control, [NOBODY, STRANGER],
        "[quota]\nconnections = 4\nlegs = 2\nqps = 3\nregions = 5\nbytes = 2097152",
    )  # fmt: skip
    guest = users.guest(agent)
    guest.does("p = srdma.PD(ctx)")
    over = guest.fails("srdma.PD(ctx)", f"uid {NOBODY} has 2 of at most 2 legs")
    assert over["errno"] == errno.EDQUOT
    guest.does("q = ctx.connect()")
    over = guest.fails("ctx.connect()", f"uid {NOBODY} has 4 of at most 4 control connections")
    assert over["errno"] == errno.EDQUOT
    over = guest.fails("pd.alloc(2097153)", "of at most 2097152 bytes")
    assert over["errno"] == errno.EDQUOT
    guest.does("m = [pd.alloc(64, 1) for _ in range(5)]")
    assert guest.fails("p.alloc(64, 1)", "of at most 5 regions")["errno"] == errno.EDQUOT
    # others are not concerned, nor is the worker's own user
    users.guest(agent, STRANGER).does("m = [pd.alloc(64, 1) for _ in range(5)]")
    with srdma.Context(users.site.a.control, agent=agent.socket) as ctx:
        pds = [srdma.PD(ctx) for _ in range(6)]
        for pd in pds:
            pd.close()
    # a reloaded policy brings new limits with the next connection
    agent.change("legs = 2", "legs = 3")
    agent.process.send_signal(signal.SIGHUP)
    until(lambda: '"event": "policy"' in agent.process.stderr.readline())  # type: ignore[union-attr]
    guest.does("q.close(); p.close()")
    guest.does("pds = [srdma.PD(ctx) for _ in range(2)]")


def test_quotas_of_single_users_follow_the_policy_at_once(users: Users) -> None:
    agent = users.agent(
        "a", users.site.a.control, [NOBODY, STRANGER],
        f"[quota]\nlegs = 4\n[quota.user.{NOBODY}]\nlegs = 2\nrecords = 8192\n"
        "[quota.peers]\nqps = 0\n",
    )  # fmt: skip
    guest = users.guest(agent)
    guest.fails("srdma.PD(ctx, 8192)", f"uid {NOBODY} has 4096 of at most 8192 places")
    guest.does("p = srdma.PD(ctx)")
    guest.fails("srdma.PD(ctx)", f"uid {NOBODY} has 2 of at most 2 legs")
    users.guest(agent, STRANGER).does("pds = [srdma.PD(ctx) for _ in range(3)]")
    host = users.server()
    listener = users.undo.enter_context(
        srdma.listen(("127.0.0.1", 0), host.pd, identity="host-b", peer=A)
    )
    call = f"c = srdma.connect({listener.address!r}, pd, identity='host-a', peer={B!r})"
    accepted = run(listener.accept, WAIT)
    guest.fails(call, f"identity {B} has 0 of at most 0 QPs: close one", "[quota]")
    with pytest.raises(srdma.Error):
        accepted()
    agent.change("legs = 2", "legs = 3")
    agent.change("records = 8192", "records = 65536")
    agent.change("qps = 0", "qps = 1")
    agent.process.send_signal(signal.SIGHUP)
    until(lambda: '"event": "policy"' in agent.process.stderr.readline())  # type: ignore[union-attr]
    guest.does("p.more = srdma.PD(ctx)")
    guest.fails("srdma.PD(ctx)", f"uid {NOBODY} has 3 of at most 3 legs")
    accepted = run(listener.accept, WAIT)
    guest.does(call)
    assert accepted().identity == A


def test_container(users: Users) -> None:
    """Programs that come through a container's socket count by its name, whatever their uid."""
    host = users.server()
    door = users.folder / "web.sock"
    agent = users.agent(
        "a", users.site.a.control, [0, NOBODY],
        f'[[container]]\nname = "web"\npath = "{door}"\nmode = 0o600\nowner = {STRANGER}\n'
        'identities = ["host-a"]\nquota = { legs = 1 }',
    )  # fmt: skip
    assert (door.stat().st_uid, door.stat().st_mode & 0o777) == (STRANGER, 0o600)
    assert "grants nothing" in users.guest(agent, STRANGER).first["error"]
    web = Agent(agent.policy, door, agent.process)
    assert "Permission denied" in users.guest(web, NOBODY).first["error"]
    guest = users.guest(web, STRANGER)
    connect(users, guest, host)
    write(guest, host, b"of a container")
    guest.fails("srdma.PD(ctx)", "container web has 1 of at most 1 legs")
    # a token opens nothing to a program outside, nor to one in the container a leg from outside
    outside = users.guest(agent, NOBODY)
    steal(outside, guest.ask("show(pd.token.hex())"), host)
    with srdma.Context(users.site.a.control, agent=agent.socket) as ctx, srdma.PD(ctx) as pd:
        guest.does("own = type(pd).token")
        steal(guest, pd.token.hex(), host)
        guest.does("type(pd).token = own")
    # it is taken over by the next agent, and loses the identity with the policy
    agent.restart(signal.SIGTERM)
    guest.does(f"c.rekey({WAIT})")
    agent.policy.write_text(
        agent.policy.read_text().replace('identities = ["host-a"]', 'identities = ["host-c"]')
        + '[[identity]]\nname = "host-c"\npath = "b"\nusers = [0]\n'
    )
    until(lambda: guest.ask("show(c.alive())") is False)


def test_container_with_a_user_namespace(users: Users) -> None:
    """Its uids are others than outside, and the agent's user is unknown in it."""
    wrapper = ("unshare", "--user", "--map-root-user")
    if subprocess.run([*wrapper, "true"], user=STRANGER, check=False).returncode:
        pytest.skip("no user namespaces for users")
    host = users.server()
    door = users.folder / "web.sock"
    agent = users.agent(
        "a", users.site.a.control, [0],
        f'[[container]]\nname = "web"\npath = "{door}"\nmode = 0o600\nowner = {STRANGER}\n'
        'identities = ["host-a"]',
    )  # fmt: skip
    for known in ("", str(NOBODY)):
        guest = Guest(users.site.a.control, door, STRANGER, wrapper=wrapper, SRDMA_AGENT_USER=known)
        users.undo.callback(guest.kill)
        if not known:
            assert "is of user 65534, this process is of user 0" in guest.first["error"]
    connect(users, guest, host)
    write(guest, host, b"of a namespace")
    assert guest.fails("pd.reg_mr(bytearray(64))", "memfds only")["errno"] == errno.EPERM
    assert {"uid": "web", "account": "container web"}.items() <= next(
        line for line in agent.audit() if line["event"] == "passed"
    ).items()


@pytest.fixture
def third(users: Users) -> Iterator[tuple[Users, Path]]:
    """A worker of root whose agent is of user THIRD."""
    worker = users.site.embedded.start("c", options=["--agent-uid", str(THIRD)])
    yield users, worker.control


def third_agent(users: Users, worker: Path, more: str = "") -> Agent:
    """An agent of user THIRD. Its identities and socket are in its own folder."""
    folder = users.folder / "third"
    folder.mkdir()
    for name in ("a.pem", "a.key", "ca.pem"):
        (folder / name).write_bytes((users.folder / name).read_bytes())
    policy, path = folder / "a.toml", folder / "a.sock"
    policy.write_text(
        f'worker = "{worker}"\nsocket = "{path}"\nmode = 0o666\n{more}\n'
        f'[[identity]]\nname = "host-a"\npath = "a"\nusers = [0, {NOBODY}]\n'
    )
    for file in (folder, *folder.iterdir()):
        os.chown(file, THIRD, THIRD)
    agent = Agent(policy, path, launch(policy, user=THIRD), THIRD)
    users.undo.callback(agent.kill)
    return agent


def test_agent_of_a_third_user(third: tuple[Users, Path]) -> None:
    """Of neither the worker's user nor the program's."""
    users, worker = third
    host, agent = users.server(), third_agent(users, worker)
    guest = Guest(worker, agent.socket, NOBODY, SRDMA_AGENT_USER=str(THIRD))
    users.undo.callback(guest.kill)
    assert guest.first is None
    connect(users, guest, host)
    write(guest, host, b"by a third user")
    guest.does(f"c.rekey({WAIT})")
    # programs do not trust it unless they name it
    other = Guest(worker, agent.socket, NOBODY)
    users.undo.callback(other.kill)
    assert "name its user by agent_user= or SRDMA_AGENT_USER" in other.first["error"]
    other.does(f"srdma.Context(worker, agent=agent, agent_user={THIRD}).close()")
    other.fails("srdma.Context(worker, agent=agent, agent_user='no-such-user')", "there is no user")


def test_three_users(users: Users) -> None:
    """Worker, agent and program have a user each; the agent's policy names the worker's."""
    folder = users.folder / "w"
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    worker, log = folder / "w.ctl", (users.folder / "w.log").open("wb")
    program = [find_worker(), "--name", "w", "--control", worker]
    process = subprocess.Popen(
        [*program, "--wire-dev", f"shm:{folder}", "--agent-uid", str(THIRD)],
        user=STRANGER, group=STRANGER, extra_groups=[], stdout=log, stderr=log,
    )  # fmt: skip
    users.undo.callback(process.wait)
    users.undo.callback(process.kill)
    until(worker.exists)
    folder.chmod(0o711)
    agent = third_agent(users, worker)
    guest = Guest(worker, agent.socket, NOBODY, SRDMA_AGENT_USER=str(THIRD))
    users.undo.callback(guest.kill)
    assert (
        f"the worker is of user {STRANGER}, this process is of user {THIRD}" in guest.first["error"]
    )
    agent.change("mode =", f"worker_user = {STRANGER}\nmode =")
    agent.restart(signal.SIGTERM)
    guest.does("ctx = srdma.Context(worker, agent=agent); pd = srdma.PD(ctx)")
    guest.does("pd.alloc(64)")
    guest.does("pd.rotate(0)")


def test_worker_processes(users: Users) -> None:
    """Each process of a worker has an account of the user."""
    worker = users.site.embedded.start("d", options=["--workers", "2"]).control
    agent = users.agent("a", worker, [NOBODY], "[quota]\nlegs = 1")
    guest = Guest(worker, agent.socket, NOBODY, "late")
    users.undo.callback(guest.kill)
    guest.does("ctx = srdma.Context(worker, agent=agent)")
    guest.does("pds = [srdma.PD(ctx, thread=i) for i in range(2)]")
    guest.fails("srdma.PD(ctx, thread=1)", "has 1 of at most 1 legs")
    assert guest.ask("show(ctx.stats()['legs'])") == 2
    other = Guest(users.site.a.control, agent.socket, NOBODY)
    users.undo.callback(other.kill)
    assert f"serves the worker at {worker}, not the one at" in other.first["error"]


def test_programs_that_end_early(users: Users) -> None:
    """The agent has no fault when a program does not wait for its connection."""
    agent = users.agent("a", users.site.a.control, [0])
    request = message_of({"do": "open", "worker": str(users.site.a.control)})
    for linger in (0, 0.001, 0.01) * 5:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(os.fspath(agent.socket))
            channel.sendall(request)
            time.sleep(linger)
    with srdma.Context(users.site.a.control) as ctx:
        until(lambda: ctx.stats()["legs"] == 0)
    assert "fault" not in {line["event"] for line in agent.audit()}


# libsrdma ----------------------------------------------------------------------------

LIBRARY = Path(os.environ.get("BUILD", ROOT / "build")) / "libsrdma.so.0"
needs_library = pytest.mark.skipif(
    not LIBRARY.exists(), reason="libsrdma was not built: install libcbor"
)
REGISTER = f"""
import ctypes
lib = ctypes.CDLL({str(LIBRARY)!r})
lib.srdma_error_text.restype = ctypes.c_char_p
class Attr(ctypes.Structure):
    _fields_ = [("addr", ctypes.c_void_p), ("length", ctypes.c_size_t),
                ("access", ctypes.c_uint32), ("qp", ctypes.c_void_p),
                ("identity", ctypes.c_char_p), ("whole_pd", ctypes.c_int),
                ("block_size", ctypes.c_uint32), ("depth_limit", ctypes.c_uint8)]
device, pd2, mr = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
def opened():
    r = lib.srdma_open_device(ctypes.byref(device), worker.encode(), agent.encode())
    return [r, lib.srdma_error_text().decode()]
def allocated():
    r = lib.srdma_alloc_pd(ctypes.byref(pd2), device, None)
    return [r, lib.srdma_error_text().decode()]
memory = ctypes.create_string_buffer(4096)
def registered(call, addr):
    attr = Attr(addr, 4096, 1)
    r = getattr(lib, call)(ctypes.byref(mr), pd2, ctypes.byref(attr))
    return [r, lib.srdma_error_text().decode()]
"""


@needs_library
def test_library(users: Users) -> None:
    """Devices, PDs and memory of a C program of another user."""
    limits = "[quota]\nlegs = 1"
    agent = users.agent("a", users.site.a.control, [0, NOBODY], limits)
    guest, stranger = users.guest(agent, NOBODY, "late"), users.guest(agent, STRANGER, "late")
    for one in (guest, stranger):
        one.does(f"exec({REGISTER!r}, globals())")
    code, text = stranger.ask("show(opened())")
    assert code == -errno.EPERM
    assert f"the policy grants nothing to programs of user {STRANGER}" in text
    assert "connecting to the worker itself" in text
    assert guest.ask("show(opened())")[0] == 0
    assert guest.ask("show(allocated())")[0] == 0
    assert guest.ask("show(registered('srdma_alloc_mr', None))")[0] == 0
    code, text = guest.ask("show(registered('srdma_reg_mr', ctypes.addressof(memory)))")
    assert code == -errno.EPERM and "pd.alloc() or srdma_alloc_mr()" in text
    code, text = guest.ask("show(allocated())")
    assert code == -errno.EDQUOT and f"uid {NOBODY} has 1 of at most 1 legs" in text


@needs_library
def test_library_in_traffic(users: Users) -> None:
    """Both ends of an example program: a program of NOBODY, and one of root with its own agent."""
    agents = {
        "a": users.agent("a", users.site.a.control, [NOBODY]),
        "b": users.agent("b", users.site.b.control, [0]),
    }
    sites = {"a": users.site.a.control, "b": users.site.b.control}

    def program(name: str, uid: int, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [LIBRARY.parent / "examples" / "pingpong", *words],
            env=os.environ
            | {"SRDMA_WORKER": str(sites[name]), "SRDMA_AGENT": str(agents[name].socket)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            user=uid, group=uid, extra_groups=[],
        )  # fmt: skip
        users.undo.callback(process.wait)
        users.undo.callback(process.kill)
        return process

    server = program("b", 0, "server", "host-b", A)
    assert server.stdout
    port = server.stdout.readline().rpartition(" ")[2].strip()
    client = program("a", NOBODY, "client", "host-a", B, port, "1000")
    out, _ = client.communicate(timeout=WAIT)
    assert client.returncode == 0, out
    assert f"connected to {B}" in out
