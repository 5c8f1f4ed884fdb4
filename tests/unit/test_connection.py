"""Options, listeners and connections. The key exchange is real, the workers are simulated."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from dataclasses import replace

import pytest

import srdma
from srdma import Options
from srdma.agent import client as agent_client
from srdma.agent import private
from srdma.errors import ClosedError, DeviceError, IntegrityError, LocalError, RemoteError, Timeout
from srdma.identity import Credentials, IdentityError, create_ca, issue
from srdma.options import HEADER_ONLY
from tests.e2e.conftest import run
from tests.fake_worker import (
    ATTACH,
    DEREG_MR,
    DESTROY,
    END,
    EXPIRE,
    INIT,
    KEYS,
    REKEY,
    ROTATE,
    FakeWorker,
    Refuse,
)

A, B = "spiffe://test/a", "spiffe://test/b"


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    create_ca(folder, "test")
    issue(folder, A, folder / "a")
    issue(folder, B, folder / "b")
    return folder


@pytest.fixture
def server_worker(tmp_path):
    worker = FakeWorker(tmp_path / "server.sock")
    yield worker
    worker.close()


@pytest.fixture
def server_pd(server_worker):
    with srdma.Context(server_worker.path) as ctx, srdma.PD(ctx, 1024) as pd:
        yield pd


@pytest.fixture
def client_pd(worker):
    with srdma.Context(worker.path) as ctx, srdma.PD(ctx, 1024) as pd:
        yield pd


@pytest.fixture
def join(pki, client_pd, server_pd):
    """Connects both ends. Options of the client, then of the server."""
    made = []

    def join(client=None, server=None):
        server_options = {"identity": pki / "b", "timeout": 20} | (server or {})
        listener = srdma.listen(("127.0.0.1", 0), server_pd, **server_options)
        accepted: list[object] = []

        def accept():
            try:
                accepted.append(listener.accept(20))
            except srdma.Error as e:
                accepted.append(e)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            client_options = {"identity": pki / "a", "timeout": 20} | (client or {})
            ours = srdma.connect(listener.address, client_pd, **client_options)
        except srdma.Error as e:
            ours = e
        thread.join()
        listener.close()
        made.extend(end for end in (ours, accepted[0]) if not isinstance(end, srdma.Error))
        return ours, accepted[0]

    yield join
    for end in made:
        end.close()


def agents():
    """Private agents of this process."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as cmdline, open(f"/proc/{pid}/status") as s:
                if b"srdma.agent" in cmdline.read() and f"PPid:\t{os.getpid()}\n" in s.read():
                    found.append(int(pid))
        except OSError:
            continue
    return found


# Options -----------------------------------------------------------------------


def wanted(**options):
    return [tuple(s) for s in Options(identity="x", **options).wanted]


def test_suites_and_levels():
    assert wanted() == [(1, 3, 16), (3, 3, 16), (7, 3, 16)]
    assert wanted(suites=["aes-256-gcm"]) == [(3, 3, 16)]
    assert wanted(level="packet") == [(0x30, 2, 16), (0x20, 2, 16), (0x12, 2, 32)]
    assert wanted(suites=["hmac-sha256"]) == [(0x12, 2, 32)]
    assert wanted(level="header", unprotected_payload=True, suites=["aes-128-cmac"]) == [
        (0x20, 1, 16)
    ]
    assert wanted(level="none") == [(0, 0, 0)]
    assert wanted(suites=["hmac-sha1", "aes-256-cmac"], tag_len=12) == [
        (0x10, 2, 12),
        (0x22, 2, 12),
    ]


@pytest.mark.parametrize("auto", ["auto", ["auto"], ("auto",)])
def test_auto_selects_the_recommended_suites(auto):
    assert wanted(suites=auto) == [(1, 3, 16), (3, 3, 16), (7, 3, 16)]
    packet = wanted(suites=auto, level="packet")
    assert packet == [(0x12, 2, 32), *((i, 2, 16) for i in (0x20, 0x22, 0x30, 0x32, 0x38))]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"level": "header"}, "does not protect the bytes.*give unprotected_payload=True"),
        ({"unprotected_payload": True}, "legal with level"),
        ({"level": "packet", "unprotected_payload": True}, "legal with level"),
        ({"level": "best"}, "level 'best': give one of none, header, packet, aead"),
        ({"level": "none", "suites": ["aes-128-gcm"]}, "has no suite"),
        ({"suites": ["none"]}, '"none" is no suite: '),
        ({"suites": "aes-128-gcm"}, "give a list"),
        ({"suites": ["auto", "hmac-sha1"]}, '"auto" cannot be combined'),
        ({"suites": "auto", "level": "none"}, "has no suite"),
        ({"suites": "auto", "level": "packet", "tag_len": 12}, "tag_len=12: name the suites"),
        ({"level": "packet", "tag_len": 12}, "tag_len=12: name the suites"),
        ({"suites": ["aes-128-gcm"], "tag_len": 12}, r"give one of \[16\]"),
        ({"suites": ["hmac-sha1"], "tag_len": 32}, r"give one of \[12, 16, 20\]"),
        ({"suites": ["rot13"]}, "unknown suite 'rot13': give one of aes-128-gcm"),
        ({"suites": ["aes-128-gcm"], "level": "packet"}, "aes-128-gcm does not support level 2"),
        ({"suites": ["hmac-sha256"], "level": "aead"}, "hmac-sha256 does not support level 3"),
        ({"mode": "best"}, "mode 'best': give one of basic, pd, mem, pd[+]mem"),
        ({"mode": ""}, "mode '': give one of basic"),
        ({"mode": ["pd", "sealed"]}, "mode 'sealed'"),
        ({"mode": ["pd", "mem", "pd"]}, "name each mode once"),
        ({"mode": "pd", "level": "none"}, 'has no keys, so it has "basic" only'),
        ({"mode": ["basic", "mem"], "level": "none"}, "has no keys"),
        ({"data": bytes(257)}, "257 bytes of data: at most 256"),
        ({"qps": 0}, "qps=0: one connection has 1 to 256"),
        ({"qps": 257}, "qps=257"),
        ({"require": "header"}, "require='header': give one of packet, aead"),
        (
            {"require": "aead", "level": "packet"},
            "require='aead', but .* aes-128-gmac, level packet",
        ),
        ({"require": "packet", "level": "none"}, "require='packet', but .*NOT protected"),
        ({"require": "aead", "suites": ["aes-128-gcm", "hmac-sha256"]}, "permit hmac-sha256"),
    ],
)
def test_illegal_options(options, text):
    with pytest.raises(LocalError, match=text):
        Options(identity="x", **options)


@pytest.mark.parametrize(
    ("options", "client", "server"),
    [
        ({}, [0], [0, 1, 2, 3]),
        ({"mode": "pd"}, [1], [1]),
        ({"mode": ["pd+mem", "basic"]}, [3, 0], [3, 0]),
        ({"level": "none"}, [0], [0]),
        ({"level": "none", "mode": "basic"}, [0], [0]),
    ],
)
def test_modes_of_each_role(options, client, server):
    chosen = Options(identity="x", **options)
    assert (chosen.modes("client"), chosen.modes("server")) == (client, server)


def test_credentials(join, pki, client_pd, tmp_path):
    """Credentials may be given as a path, which only the agent reads, or as PEM."""
    ours, theirs = join({"identity": Credentials.named(pki / "a")})
    assert (ours.identity, theirs.identity) == (B, A)
    wrong = replace(Credentials.named(pki / "a"), key=(pki / "b.key").read_bytes())
    for identity, text in (
        (tmp_path / "nobody", r"cannot read .*nobody.pem"),
        (wrong, "key is not the key of cert"),
    ):
        with pytest.raises(IdentityError, match=text):
            srdma.listen(("127.0.0.1", 0), client_pd, identity=identity)
        with pytest.raises(IdentityError, match=text):
            srdma.connect(("127.0.0.1", 1), client_pd, identity=identity)


def test_options_that_the_worker_does_not_permit(worker, client_pd, pki):
    with pytest.raises(LocalError, match="needs a worker started with --allow-unprotected"):
        srdma.listen(("127.0.0.1", 0), client_pd, identity=pki / "a", level="none")
    with pytest.raises(LocalError, match="fake has none of the requested suites"):
        srdma.connect(("127.0.0.1", 1), client_pd, identity=pki / "a", suites=["hmac-sha256"])
    assert INIT not in worker.kinds()


def test_auto_uses_the_order_of_the_worker(worker, client_pd):
    worker.suites = bytes([7, 1, 0x20, 3])
    with srdma.Context(worker.path) as ctx, srdma.PD(ctx) as pd:
        auto = Options(identity="x", suites="auto").allowed_by(pd)
        assert [suite.id for suite in auto] == [7, 1, 3]
        named = Options(identity="x", suites=["aes-256-gcm", "aes-128-gcm"]).allowed_by(pd)
        assert [suite.id for suite in named] == [3, 1]


# Addresses -----------------------------------------------------------------------


def test_connect_without_a_listener(client_pd, pki, worker):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    with pytest.raises(RemoteError, match=f"no listener at 127.0.0.1:{address[1]}"):
        srdma.connect(address, client_pd, identity=pki / "a")
    with pytest.raises(LocalError, match="no such host"):
        srdma.connect(("no.such.host.invalid", 1), client_pd, identity=pki / "a")
    assert worker.kinds().count(INIT) == worker.kinds().count(DESTROY) == 2


def test_cannot_listen(client_pd, pki):
    with pytest.raises(DeviceError, match=r"cannot listen at 192\.0\.2\.1:80"):
        srdma.listen(("192.0.2.1", 80), client_pd, identity=pki / "a")


def test_accept_times_out(client_pd, pki):
    with srdma.listen(("127.0.0.1", 0), client_pd, identity=pki / "a") as listener:
        with pytest.raises(Timeout, match=r"no authorised peer connected in 0\.05 s"):
            listener.accept(0.05)
        assert listener.fileno() >= 0
    with pytest.raises(srdma.ClosedError):
        listener.accept(1)


# Connections ---------------------------------------------------------------------


def test_connect(join, worker, server_worker):
    client, server = join(
        {"qps": 3, "data": b"from a", "peer": B}, {"qps": 3, "data": b"from b", "peer": [A]}
    )
    assert (client.identity, client.data) == (B, b"from b")
    assert (server.identity, server.data) == (A, b"from a")
    assert tuple(client.suite) == tuple(server.suite) == (1, 3, 16)
    assert client.mode == server.mode == "basic"
    assert client.trust_group == server.trust_group == ""
    assert client.group == server.group
    assert len(client.qps) == len(server.qps) == 3
    assert client.qp is client.qps[0]
    assert {qp.state for qp in client.qps + server.qps} == {srdma.QPState.RTS}
    for kinds in (worker.kinds(), server_worker.kinds()):
        assert (kinds.count(INIT), kinds.count(ATTACH), kinds.count(KEYS)) == (3, 2, 3)
    assert client.alive()
    assert len(agents()) == 2


def test_end_of_a_connection(join, worker):
    client, server = join()
    server.close()
    deadline = time.monotonic() + 10
    while client.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not client.alive()
    client.close()
    client.close()
    assert worker.kinds().count(DESTROY) == 1
    assert not server.alive()


def test_refused_destroy_ends_the_rest(join, worker):
    ours, _ = join({"qps": 2}, {"qps": 2})

    def refuse(leg, body, fds):
        raise Refuse(16, "busy")

    worker.handlers[DESTROY] = refuse
    with pytest.raises(DeviceError, match="refused DESTROY: busy"):
        ours.close()
    assert worker.kinds().count(DESTROY) == 2
    assert not ours.alive()


def test_connection_is_not_alive_after_the_end_of_its_worker(join, worker):
    ours, _ = join()
    assert ours.alive()
    worker.die()
    assert not ours.alive()


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOENT, errno.ECONNRESET])
def test_objects_of_an_ended_leg_close(join, worker, client_pd, number):
    """Over verbs a leg may end while its worker lives. The worker then does
    not know its objects."""
    ours, _ = join({}, {})
    region = client_pd.alloc(64)

    def refuse(leg, body, fds):
        raise Refuse(number, "leg 1 has ended or is not a leg of this connection")

    worker.handlers[DESTROY] = worker.handlers[DEREG_MR] = refuse
    ours.close()
    region.close()
    assert {DESTROY, DEREG_MR} <= set(worker.kinds())
    assert region.closed


def test_unprotected_connections_log_a_warning(caplog, tmp_path, pki):
    with caplog.at_level(logging.WARNING, "srdma"):
        ends = []
        for name in ("x", "y"):
            worker = FakeWorker(tmp_path / f"{name}.sock")
            worker.flags, worker.suites = 1, bytes([0x20])
            ends.append(worker)
        try:
            header = {"level": "header", "unprotected_payload": True, "suites": ["aes-128-cmac"]}
            for options in (header, {"level": "none"}):
                with (
                    srdma.Context(ends[0].path) as x,
                    srdma.Context(ends[1].path) as y,
                    srdma.listen(
                        ("127.0.0.1", 0), srdma.PD(x, 1024), identity=pki / "a", **options
                    ) as listener,
                ):
                    thread = threading.Thread(target=listener.accept, args=(20,))
                    thread.start()
                    srdma.connect(
                        listener.address, srdma.PD(y, 1024), identity=pki / "b", **options
                    )
                    thread.join()
        finally:
            for worker in ends:
                worker.close()
    text = caplog.text
    assert text.count("SRDMA_UNPROTECTED_PAYLOAD") == 2
    assert "It does not protect the bytes themselves" in text
    assert text.count("without any protection (level none)") == 2


@pytest.mark.parametrize(
    ("client", "server", "kind", "text"),
    [
        ({"peer": "spiffe://test/c"}, {}, IntegrityError, f"{B}, which is not allowed"),
        (
            {"suites": ["aes-256-gcm"]},
            {"suites": ["chacha20-poly1305"]},
            RemoteError,
            "suite",
        ),
        ({"mode": ["pd+mem", "mem"]}, {"mode": "basic"}, RemoteError, "no common mode"),
        ({"qps": 2}, {"qps": 1}, RemoteError, "2|1"),
    ],
)
def test_ends_without_common_options(join, client, server, kind, text, worker, server_worker):
    ours, theirs = join(client, server)
    assert isinstance(ours, srdma.Error)
    assert isinstance(theirs, srdma.Error)
    assert any(isinstance(e, kind) for e in (ours, theirs))
    assert all(re.search(text, str(e)) for e in (ours, theirs))
    assert worker.kinds().count(DESTROY) == client.get("qps", 1)


@pytest.mark.parametrize("foreign", [True, False])
def test_refused_peers_do_not_end_accept(
    join, client_pd, server_pd, server_worker, pki, tmp_path, caplog, foreign
):
    """A peer of another CA, or with an identity that is not allowed, makes no QP at the server,
    and accept() returns the next peer."""
    create_ca(tmp_path / "other", "other")
    issue(tmp_path / "other", A, tmp_path / "other" / "a")
    issue(pki, "spiffe://test/c", tmp_path / "c")
    shutil.copy(pki / "ca.pem", tmp_path)
    refused = tmp_path / "other" / "a" if foreign else tmp_path / "c"
    text = "another CA" if foreign else "not allowed"
    with srdma.listen(("127.0.0.1", 0), server_pd, identity=pki / "b", peer=A) as listener:
        with pytest.raises((IntegrityError, RemoteError), match=text):
            srdma.connect(listener.address, client_pd, identity=refused)
        with pytest.raises(Timeout):
            listener.accept(0.05)
        assert INIT not in server_worker.kinds()
    assert "refused a peer at 127.0.0.1: " in caplog.text and text in caplog.text


def test_worker_refuses_the_keys(join, server_worker):
    def refuse(leg, body, fds):
        raise Refuse(22, "no such wire")

    server_worker.handlers[KEYS] = refuse
    ours, theirs = join()
    assert isinstance(theirs, DeviceError)
    assert "no such wire" in str(theirs)
    assert isinstance(ours, RemoteError | DeviceError)


def test_silent_peer(client_pd, pki, worker):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        start = time.monotonic()
        with pytest.raises(Timeout, match=r"did not complete in 0\.5 s|in time"):
            srdma.connect(mute.getsockname(), client_pd, identity=pki / "a", timeout=0.5)
        assert time.monotonic() - start < 10
    assert worker.kinds().count(DESTROY) == 1


def test_an_agent_serves_one_context(worker, server_worker, pki):
    """It starts with the first listener or connection, and ends with the Context."""
    with srdma.Context(worker.path) as a, srdma.Context(server_worker.path) as b:
        assert agents() == []
        for pd in (srdma.PD(a), srdma.PD(a), srdma.PD(b)):
            srdma.listen(("127.0.0.1", 0), pd, identity=pki / "b")
        assert len(agents()) == 2
    assert agents() == []


def test_a_new_agent_replaces_one_that_died(join, client_pd, worker, server_worker):
    """The end of an agent ends no QP: its TCP connections end without close_notify."""
    client, server = join()
    os.kill(client_pd.ctx.agent().pid, signal.SIGKILL)
    while client.alive():
        time.sleep(0.01)
    with pytest.raises(DeviceError, match="the agent ended unexpectedly"):
        client.rekey(20)
    assert join()[0].alive()
    assert server.alive()  # it waits for another connection
    assert not {EXPIRE, END} & {*worker.kinds(), *server_worker.kinds()}


def test_silent_peers_block_no_accept(client_pd, server_pd, pki):
    """A peer that connects and says nothing, before or after another one, delays no other."""
    with (
        srdma.listen(("127.0.0.1", 0), server_pd, identity=pki / "b", timeout=20) as listener,
        socket.create_connection(listener.address),
        socket.create_connection(listener.address),
    ):
        theirs = run(listener.accept, 20)
        with srdma.connect(listener.address, client_pd, identity=pki / "a", timeout=20) as ours:
            assert ours.identity == B and theirs().identity == A


def test_peer_that_does_not_speak_srdma(client_pd, pki):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def talk():
            conn, _ = other.accept()
            conn.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            conn.close()

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(srdma.Error, match=r"TLS|closed"):
            srdma.connect(other.getsockname(), client_pd, identity=pki / "a", timeout=10)
        thread.join()


# New secrets ---------------------------------------------------------------------


def test_rekey(join, worker, server_worker):
    client, server = join({"qps": 2}, {"qps": 2})
    client.rekey(20)
    server.rekey(20)
    deadline = time.monotonic() + 20
    for one in (worker, server_worker):
        while one.kinds().count(REKEY) < 2 * 3 * 2:  # rx, tx and asked, of two QPs
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert ROTATE not in one.kinds() and EXPIRE not in one.kinds()
    assert client.alive() and server.alive()


def busy(leg, body, fds):
    raise Refuse(errno.EBUSY, "one waits already")


def test_rekey_timeout(join, worker):
    """A Timeout ends neither the exchange nor the connection."""
    answer = worker.handlers[REKEY]
    worker.handlers[REKEY] = busy
    client, server = join()
    with pytest.raises(Timeout, match="no new secrets in time"):
        client.rekey(0.2)
    worker.handlers[REKEY] = answer
    client.rekey(20)
    assert server.alive()


def test_rekey_that_fails(join, worker, server_worker):
    def refuse(leg, body, fds):
        raise Refuse(errno.EINVAL, "not these")

    server_worker.handlers[REKEY] = refuse
    client, server = join()
    with pytest.raises(DeviceError, match="refused REKEY: not these"):
        server.rekey(20)
    with pytest.raises(DeviceError, match=r"the peer reports: .*not these"):
        client.rekey(20)
    assert not client.alive() and not server.alive()
    assert worker.kinds().count(EXPIRE) == server_worker.kinds().count(EXPIRE) == 1


def test_rekey_after_the_end(join):
    client, server = join()
    server.close()
    with pytest.raises(RemoteError, match="the connection was closed"):
        client.rekey(20)
    client.close()
    for end in (client, server):
        with pytest.raises(ClosedError):
            end.rekey()


def test_close_while_a_thread_waits(join, worker):
    worker.silent = {REKEY}
    client, _ = join()
    failed = []

    def wait():
        try:
            client.rekey(20)
        except srdma.Error as e:
            failed.append(e)

    thread = threading.Thread(target=wait)
    thread.start()
    while REKEY not in worker.kinds():
        time.sleep(0.01)
    client.close()
    thread.join(10)
    assert not thread.is_alive() and len(failed) == 1


def test_rotation(join, client_pd, worker):
    """ROTATE, new secrets for the connections in key mode pd, and a query of
    QPs that still use the old key."""
    behind = [1, 0, 3, 2, 1, 0]
    ages = []

    def rotate(leg, body, fds):
        ages.append(struct.unpack(">II", body)[1])
        if ages[-1] != 0xFFFFFFFF:
            return struct.pack(">II", 7, 0), []
        return struct.pack(">II", 8, behind.pop(0)), []

    worker.handlers[ROTATE] = rotate
    both = {"mode": "pd"}
    join(both, both)
    join()
    assert client_pd.rotate(20) == 8 and behind == []
    look, now = 0xFFFFFFFF, 0
    assert ages == [look, now, look, now, now, look, look, look, look]
    qpns = {struct.unpack_from(">I", body)[0] for kind, body, _ in worker.seen if kind == REKEY}
    assert len(qpns) == 1  # of the connection in mode `pd`


def test_rotation_that_does_not_end(join, client_pd, worker, server_worker):
    worker.handlers[ROTATE] = lambda leg, body, fds: (struct.pack(">II", 1, 5), [])
    with pytest.raises(Timeout, match="5 keys of QPs depend on the PD's former key"):
        client_pd.rotate(0.0)
    both = {"mode": "pd"}
    _, server = join(both, both)
    server_worker.handlers[REKEY] = busy
    with pytest.raises(Timeout, match=f"again; {B}: no new secrets in time"):
        client_pd.rotate(0.3)
    server.close()
    with pytest.raises(Timeout, match=f"again; {B}: the connection was closed"):
        client_pd.rotate(2.0)


@pytest.mark.parametrize("every", [-1, 0.01, 1e7])
def test_invalid_rekey_intervals(every):
    with pytest.raises(LocalError, match=r"it must be 0.1 to 1000000.0 seconds, or 0 for never"):
        Options(identity="x", rekey_every=every)


# The agent as a program ------------------------------------------------------------


def channel_to(code, monkeypatch):
    """A ConnectionChannel to another program in place of the agent: it has the door `door`."""
    real = private.subprocess.Popen
    begin = """
import array, os, socket, sys, time, cbor2
door = socket.socket(fileno=int(sys.argv[-1]))
def take():
    _, (fd, *_), _, _ = socket.recv_fds(door, 1, 2)
    return socket.socket(fileno=fd)
"""
    monkeypatch.setattr(
        private.subprocess,
        "Popen",
        lambda command, **how: real([sys.executable, "-c", begin + code, *command[4:]], **how),
    )
    agent = private.PrivateAgent()
    return agent, agent_client.ConnectionChannel(agent, {"do": "connect"})


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        ("take(); raise SystemExit('its last words')", DeviceError, "unexpectedly: its last words"),
        ("take()", DeviceError, "exit code 0"),
        ("take().sendall(b'\\xff' * 8)", DeviceError, "ended unexpectedly"),
        ("c = take(); time.sleep(60)", Timeout, "did not answer in time"),
    ],
)
def test_agent_that_fails(code, kind, text, monkeypatch):
    monkeypatch.setattr(agent_client, "GRACE", 0.3)
    agent, channel = channel_to(code, monkeypatch)
    try:
        with pytest.raises(kind, match=text):
            channel.wait_ready(time.monotonic() + (0.2 if kind is Timeout else 10))
    finally:
        channel.close()
        agent.close()


TALKS = """
c = take()
def say(**event):
    raw = cbor2.dumps(event)
    for byte in len(raw).to_bytes(4, "big") + raw:
        c.sendall(bytes([byte]))
        time.sleep(0.001)
def hear():
    size = int.from_bytes(c.recv(4, socket.MSG_WAITALL), "big")
    return cbor2.loads(c.recv(size, socket.MSG_WAITALL))
hear()
for _ in range(2):
    assert hear()["do"] == "renew"
say(event="renewed", count=2, wish=1)
say(event="renewed", count=3, wish=2)
say(event="error", code="tls", text="enough")
"""


def test_threads_wait_for_their_rekeys(monkeypatch):
    """Each thread gets its result, whichever thread reads the event. Events may arrive in
    pieces."""
    agent, channel = channel_to(TALKS, monkeypatch)
    try:
        deadline = time.monotonic() + 20
        wishes = [channel.wish(), channel.wish()]
        threads = [
            threading.Thread(target=channel.wait_renewed, args=(wish, deadline))
            for wish in wishes * 2
        ]
        for thread in threads:
            thread.start()
        while not channel.ended():
            assert time.monotonic() < deadline
            time.sleep(0.002)
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
        channel.wait_renewed(2, 0)
        with pytest.raises(IntegrityError, match="enough"):
            channel.wait_renewed(3, deadline)
    finally:
        channel.close()
        agent.close()
    assert channel.ended()


def test_agent_that_cannot_start(monkeypatch):
    monkeypatch.setattr(private.sys, "executable", "/no/such/python")
    with pytest.raises(DeviceError, match="cannot start the agent"):
        private.PrivateAgent()


def test_agent_that_ended_takes_no_channel():
    agent = private.PrivateAgent()
    os.kill(agent.pid, signal.SIGKILL)
    while agent.alive():
        time.sleep(0.01)
    with pytest.raises(DeviceError, match="the agent ended unexpectedly: exit code -9"):
        agent.open()
    agent.close()


def test_cancelled_attempts(client_pd, pki, worker):
    """An attempt may be cancelled before it has begun, and while the peer says nothing."""
    options = Options(identity=pki / "a", timeout=60)
    early = agent_client.Attempt()
    early.cancel()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = mute.getsockname()
        with pytest.raises(ClosedError, match="cancelled"):
            srdma.Connection(client_pd, options, address, attempt=early)
        late = agent_client.Attempt()
        call = run(srdma.Connection, client_pd, options, address, attempt=late)
        mute.settimeout(60)
        try:
            mute.accept()[0].recv(1)
        except TimeoutError:
            call()  # says why it did not connect
            raise
        late.cancel()
        with pytest.raises(srdma.Error):
            call()
    assert worker.kinds().count(INIT) == worker.kinds().count(DESTROY) == 2


def test_text_of_header_level():
    assert "Anyone on the path can replace them unnoticed" in HEADER_ONLY
