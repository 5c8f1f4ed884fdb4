"""System agents (agent.md 1, 6): two hosts whose agents are programs with policies."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import srdma
from srdma import Access
from srdma.errors import DeviceError, IntegrityError, LocalError, RemoteError
from srdma.identity import Credentials, issue
from tests.e2e.agents import Place, revoke, start, two_hosts, until
from tests.e2e.conftest import WAIT, A, B, Host, Site, run
from tests.e2e.tcp_relay import TcpRelay

DAY = dt.timedelta(days=1)


@pytest.fixture
def place(site: Site, pki: Path, tmp_path: Path) -> Iterator[Place]:
    with two_hosts(site, pki, tmp_path) as place:
        yield place


def write(client: srdma.Connection, host: Host) -> None:
    with host.pd.alloc(64, Access.LOCAL_WRITE | Access.REMOTE_WRITE) as region:
        client.qp.write(b"x" * 64, region.remote(), timeout=WAIT)
        assert bytes(region.buf) == b"x" * 64


def test_connections_by_name(place: Place) -> None:
    client, server = place.connect()
    assert (client.identity, server.identity) == (B, A)
    write(client, place.b)
    for end in (client, server):
        end.rekey(WAIT)
    for end in (client, server):
        end.close()
    lines = place.agents[1].audit()
    events = [line["event"] for line in lines]
    assert events[:2] == ["admitted", "connected"] and {*events[2:]} == {"renewed"}
    assert lines[1] | {"time": 0} == {
        "time": 0, "event": "connected", "uid": os.getuid(), "own": "host-b", "peer": A,
        "role": "server", "qps": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        ("host-b", "grants no identity 'host-b' to programs of user"),
        ("./a", "by their names in its policy"),
        (None, "by their names in its policy"),
    ],
)
def test_identities_that_the_policy_does_not_grant(place, pki, identity, text) -> None:
    wanted = identity or Credentials.named(pki / "a")
    with pytest.raises(LocalError, match=text):
        srdma.connect(("127.0.0.1", 1), place.a.pd, identity=wanted)
    with pytest.raises(LocalError, match=text):
        srdma.listen(("127.0.0.1", 0), place.a.pd, identity=wanted)


def test_another_worker(place: Place, site: Site) -> None:
    """An agent gives keys to the worker of its policy only."""
    with (
        srdma.Context(site.b.control, agent=place.agents[0].socket) as ctx,
        srdma.PD(ctx) as pd,
        pytest.raises(LocalError, match=f"serves the worker at {site.a.control}, not the one at"),
    ):
        srdma.connect(("127.0.0.1", 1), pd, identity="host-a")


def test_peers_that_the_policy_does_not_grant(place: Place) -> None:
    place.agents[1].change("spiffe://test/*", "spiffe://test/c")
    place.agents[1].reload()
    with (
        srdma.listen(("127.0.0.1", 0), place.b.pd, identity="host-b") as listener,
        pytest.raises((RemoteError, IntegrityError), match="not allowed"),
    ):
        srdma.connect(listener.address, place.a.pd, identity="host-a")


@pytest.mark.parametrize("end", (0, 1), ids=("client", "server"))
def test_wire_addresses_that_the_policy_does_not_permit(place: Place, end: int) -> None:
    """The workers name their folder's names, which are in no network."""
    place.agents[end].change('peers = ["', 'wire = ["10.0.0.0/8"]\npeers = ["')
    place.agents[end].reload()
    with (
        srdma.listen(("127.0.0.1", 0), place.b.pd, identity="host-b") as listener,
        pytest.raises(srdma.Error, match="does not permit the wire address"),
    ):
        accepted = run(listener.accept, WAIT)
        try:
            srdma.connect(listener.address, place.a.pd, identity="host-a")
        finally:
            with pytest.raises(srdma.Error, match="does not permit the wire address"):
                accepted()


def test_identity_withdrawn(place: Place) -> None:
    """Connections and listeners of the identity end, with a reason at both ends."""
    client, server = place.connect()
    listener = srdma.listen(("127.0.0.1", 0), place.a.pd, identity="host-a")
    place.agents[0].change('"host-a"', '"host-c"')
    until(lambda: not client.alive() and not server.alive())
    with pytest.raises(LocalError, match="no longer grants the identity"):
        client.rekey(WAIT)
    with pytest.raises(IntegrityError, match="the peer reports: the other end withdrew"):
        server.rekey(WAIT)
    with pytest.raises(LocalError, match="no longer grants the identity"):
        listener.accept(WAIT)
    for end in (client, server):
        with pytest.raises(srdma.Error):
            while True:
                end.qp.send(b"x", timeout=WAIT)
        assert end.qp.reason in ("KEY_LIMIT", "PEER_ERROR")


def test_identity_withdrawn_after_the_tcp_connection(place: Place) -> None:
    """The QPs of a connection that lost its TCP connection end too."""
    with srdma.listen(("127.0.0.1", 0), place.b.pd, identity="host-b", peer=A) as listener:
        accepted = run(listener.accept, WAIT)
        with contextlib.closing(TcpRelay(listener.address)) as relay:
            client = srdma.connect(relay.address, place.a.pd, identity="host-a", peer=B)
            accepted()
    write(client, place.b)
    place.agents[0].change('"host-a"', '"host-c"')
    with pytest.raises(srdma.Error):
        while True:
            client.qp.send(b"x", timeout=WAIT)
    assert client.qp.reason == "KEY_LIMIT"


def test_accept_with_another_identity(place: Place) -> None:
    """A peer that came to one identity is not served with another."""
    agent = place.agents[1]
    agent.change("[[identity]]", '[[identity]]\nname = "other"\npath = "b"\n[[identity]]')
    agent.process.send_signal(signal.SIGHUP)
    until(lambda: "policy" in agent.process.stderr.readline())  # type: ignore[union-attr]
    with srdma.listen(("127.0.0.1", 0), place.b.pd, identity="host-b") as listener:
        ours = run(srdma.connect, listener.address, place.a.pd, identity="host-a")
        arrival = listener.take(WAIT)
        with pytest.raises(LocalError, match="came to identity 'host-b': accept it with that"):
            srdma.Connection(place.b.pd, srdma.Options(identity="other"), arrival)
        with pytest.raises(srdma.Error):
            ours()


def test_certificate_replaced_under_load(place: Place, pki: Path) -> None:
    """The next renewal uses the new certificate; no request is lost."""
    client, server = place.connect()
    for name in ("a", "b"):
        issue(pki, f"spiffe://test/{name}", place.agents[0].policy.with_name(name), force=True)
    for agent in place.agents:
        agent.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        write(client, place.b)
        server.rekey(WAIT)
    assert place.connect()[0].identity == B
    for agent in place.agents:
        assert "policy" in {line["event"] for line in agent.audit()}


@pytest.mark.parametrize(
    ("last", "text"), [(DAY, "has been revoked"), (-DAY, r"crl.pem has expired")]
)
def test_revoked_certificate(place: Place, pki: Path, last: dt.timedelta, text: str) -> None:
    """It ends the next renewal, and admits no new connection."""
    client, server = place.connect()
    folder = place.agents[1].policy.parent
    shutil.copy(pki / "ca.key", folder)
    revoke(folder, folder / "a.pem", last)
    place.agents[1].reload()
    with pytest.raises(IntegrityError, match=f"the peer's certificate .*{text}"):
        server.rekey(WAIT)
    until(lambda: not client.alive())
    with (
        srdma.listen(("127.0.0.1", 0), place.b.pd, identity="host-b") as listener,
        pytest.raises(IntegrityError),
    ):
        srdma.connect(listener.address, place.a.pd, identity="host-a", timeout=WAIT)


def test_policy_that_is_not_legal(place: Place) -> None:
    """The former one stays in force."""
    place.agents[0].change("[[identity]]", "[[wrong]]")
    refused = place.agents[0].reload("policy-refused")
    assert "unknown key 'wrong'" in str(refused["text"])
    assert place.connect()[0].alive()
    assert "policy-refused" not in {line["event"] for line in place.agents[0].audit()}


def test_agent_that_was_killed(place: Place, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its QPs go on. The program waits for another one for a time."""
    monkeypatch.setattr("srdma.agent.client.REJOIN_TIMEOUT", 0.5)
    client, server = place.connect()
    old = place.agents[0]
    old.process.kill()
    until(lambda: not client.alive())
    assert server.alive()
    write(client, place.b)
    with pytest.raises(DeviceError, match=r"no agent at .*: Connection refused: start one"):
        srdma.connect(("127.0.0.1", 1), place.a.pd, identity="host-a")
    new = start(old.policy.parent, "a", site.a.control)
    try:
        write(place.connect()[0], place.b)
    finally:
        new.audit()


def test_second_agent_at_a_socket(place: Place) -> None:
    agent = place.agents[0]
    command = [sys.executable, "-m", "srdma", "agent", "--config", str(agent.policy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 3 and "an agent serves" in " ".join(done.stderr.split())
    assert place.connect()[0].alive()


def test_programs_that_do_not_speak(place: Place) -> None:
    """Channels that end at once, or begin with other bytes, harm no other program."""
    for data in (b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\1\xff"):
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(str(place.agents[0].socket))
            channel.sendall(data)
    assert place.connect()[0].alive()
