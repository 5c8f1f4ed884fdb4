"""Programs whose worker is on another computer (control-link.md): all but the leg, which needs an
RDMA device (tests/rxe)."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cbor2
import pytest

import srdma
from srdma.agent.client import ListenerChannel, SystemAgent, message_of
from srdma.agent.remote.link import Type
from srdma.cli import doctor_host, doctor_nic
from srdma.control import Control
from srdma.errors import DeviceError, LocalError, RefusedError, WorkerGone
from srdma.identity import Credentials, Validity, create_ca, issue
from srdma.keyex.fields import ExchangeError
from srdma.keyex.tls import PeerClosed
from tests.control_players import HELLO, RawPeer
from tests.e2e.agents import until
from tests.e2e.conftest import WAIT, Site
from tests.e2e.nic import LEFT, NIC, Nic, Proxy, make_files, nic_of, on_another_computer
from tests.ports import free_port

SETTINGS = {"identity": "host-a", "peer": []}


@pytest.fixture
def nic(site: Site, tmp_path: Path) -> Iterator[Nic]:
    low = free_port()
    ports = f'listen = ["127.0.0.1:{low}-{low + 2}"]'
    quota = "quota = { connections = 2 }"
    make_files(tmp_path)
    with nic_of(tmp_path, "a", site.a.control, left=f"{ports}\n{quota}") as nic:
        yield nic


def event_of(proxy_socket: Path, settings: dict[str, object]) -> dict[str, object]:
    """The first event of a channel."""
    with SystemAgent(proxy_socket).open() as channel:
        channel.settimeout(WAIT)
        channel.sendall(message_of(settings))
        return read_event(channel)


def read_event(channel: socket.socket) -> dict[str, object]:
    head = channel.recv(4, socket.MSG_WAITALL)
    return dict(cbor2.loads(channel.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)))


def test_worker_of_the_nic(nic: Nic, site: Site) -> None:
    """The worker answers as on one machine."""
    proxy = nic.proxy()
    assert [line["event"] for line in proxy.lines] == ["linked", "started"]
    with contextlib.closing(proxy.connect(nic.worker)) as control:
        with contextlib.closing(Control.connect(nic.worker)) as here:
            assert control.hello() == here.hello()
        assert len(control.stats()) > 50
        assert control.alive()
        with pytest.raises(RefusedError) as refused:
            control.expire(77)
        assert refused.value.errno == errno.EPERM


def test_worker_without_a_device_for_hosts(
    nic: Nic, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = nic.proxy()
    on_another_computer(monkeypatch)
    with pytest.raises(DeviceError, match=r"on another computer.*start it with --host-dev"):
        srdma.Context(nic.worker, agent=proxy.socket)


def test_each_user_of_each_host_has_an_account(nic: Nic) -> None:
    left, right = nic.proxy("left"), nic.proxy("right")
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(contextlib.closing(left.connect(nic.worker)))
        with pytest.raises(RefusedError, match=f"host left uid {os.geteuid()}") as refused:
            left.connect(nic.worker)
        assert refused.value.errno == errno.EDQUOT
        for _ in range(3):
            stack.enter_context(contextlib.closing(right.connect(nic.worker)))
    until(lambda: attempt(lambda: left.connect(nic.worker).close()))


def test_leg_of_another_user(nic: Nic) -> None:
    """Its token admits no program of a host, and the leg goes on."""
    with srdma.Context(nic.worker) as ctx, srdma.PD(ctx) as pd:
        token = pd._info.token
        for host in ("left", "right"):
            with contextlib.closing(nic.proxy(host).connect(nic.worker)) as control:
                with pytest.raises(RefusedError, match="no leg has this token") as refused:
                    control.attach(token)
                assert refused.value.errno == errno.EPERM
                with pytest.raises(RefusedError) as refused:
                    control.dereg_mr(pd.leg, 1)
                assert refused.value.errno == errno.EPERM
        with contextlib.closing(Control.connect(nic.worker)) as here:
            assert here.attach(token) == pd.leg


def test_container(nic: Nic) -> None:
    """Its programs are a user of their own, whatever their uids are. Its identities are withdrawn
    with the file."""
    proxy = nic.proxy()
    proxy.kill()
    door = nic.folder / "web.sock"
    proxy.change(f"users = [{os.geteuid()}]", "users = [12345]")
    with proxy.policy.open("a") as file:
        file.write(f'[[container]]\nname = "web"\npath = "{door}"\nidentities = ["host-a"]\n')
    proxy.start()
    web = replace(proxy, socket=door)
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(contextlib.closing(proxy.connect(nic.worker)))
            stack.enter_context(contextlib.closing(web.connect(nic.worker)))
        with pytest.raises(RefusedError, match="host left/web has 2 of at most 2 control"):
            web.connect(nic.worker)
    settings = {"do": "listen", **SETTINGS, "address": ["", 0]}
    assert event_of(proxy.socket, settings)["code"] == "policy"
    listener = ListenerChannel.open(SystemAgent(door), settings, None)
    proxy.change('identities = ["host-a"]', 'identities = ["host-b"]')
    with proxy.policy.open("a") as file:
        file.write('[[identity]]\nname = "host-b"\n')
    assert proxy.reload()["withdrawn"] == 1
    assert "no identity 'host-a' to programs of user web" in str(event_of(door, settings)["text"])
    until(lambda: nobody_listens(listener.address))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"uid": -1}, "uid"),
        ({}, "OPEN lacks 'uid'"),
        ({"container": "web", "uid": 0}, "OPEN has a uid and a container"),
        ({"container": 0}, "whose name is not legal"),
        ({"container": "left:0"}, "whose name is not legal"),
        ({"container": "x" * 17}, "whose name is not legal"),
    ],
)
def test_open_with_an_illegal_user(nic: Nic, fields: dict[str, object], text: str) -> None:
    """The link ends."""
    with socket.create_connection(("127.0.0.1", nic.port), WAIT) as sock:
        peer = RawPeer(sock, "client", Credentials.named(nic.folder / "left"))
        peer.handshake()
        assert peer.take()[:2] == (0, Type.HELLO)
        peer.frame(0, Type.HELLO, HELLO)
        peer.frame(1, Type.OPEN, {"to": "agent", **fields})
        stream, kind, body = peer.take()
        assert (stream, kind) == (0, Type.REFUSED)
        assert text in cbor2.loads(body)["text"]


def attempt(call) -> bool:
    """True if it raises no error of srdma."""
    try:
        call()
    except srdma.Error:
        return False
    return True


def test_another_worker(nic: Nic) -> None:
    with pytest.raises(LocalError, match="serves the worker at"):
        nic.proxy().connect(nic.folder / "other.sock")


@pytest.mark.parametrize("do", ["connect", "listen", "accept", "serve", "talk", "answer", "group"])
def test_identity_that_the_proxy_does_not_grant(nic: Nic, do: str) -> None:
    proxy = nic.proxy(users=(12345,))
    event = event_of(proxy.socket, {"do": do, **SETTINGS})
    assert (event["event"], event["code"]) == ("error", "policy")
    assert "proxy grants no identity 'host-a'" in str(event["text"])
    assert event_of(proxy.socket, {"do": do})["code"] == "policy"


def test_identity_that_the_nic_does_not_grant(nic: Nic) -> None:
    proxy = nic.proxy()
    proxy.change('name = "host-a"', 'name = "host-z"')
    assert proxy.reload()["withdrawn"] == 0
    event = event_of(proxy.socket, {"do": "connect", **SETTINGS, "identity": "host-z"})
    assert event["code"] == "config"  # no address
    settings = {"do": "connect", "identity": "host-z", "peer": [], "address": ["127.0.0.1", 1]}
    event = event_of(proxy.socket, settings)
    assert (event["code"], event["event"]) == ("policy", "error")
    assert f"left:{os.geteuid()}" in str(event["text"])


def test_listener_at_the_nic(nic: Nic) -> None:
    """At an address of the policy. The agent reports peers that it refuses, and who came."""
    agent = SystemAgent(nic.proxy().socket)
    settings = {"do": "listen", **SETTINGS}
    first = ListenerChannel.open(agent, {**settings, "address": ["127.0.0.1", 0]}, None)
    second = ListenerChannel.open(agent, {**settings, "address": ["", 0]}, None)
    assert second.address[0] == first.address[0]
    assert 0 < abs(second.address[1] - first.address[1]) < 3
    with socket.create_connection(second.address) as peer:
        peer.sendall(bytes(100))
        refused = second.next(deadline())
        assert "TLS failed" in refused.text
    second.close()
    third = ListenerChannel.open(agent, {**settings, "address": [*second.address]}, None)
    for channel in (first, third):
        channel.close()


def deadline() -> float:
    return time.monotonic() + WAIT


@pytest.mark.parametrize(
    ("address", "code", "text"),
    [
        (["127.0.0.2", 0], "policy", "may not listen at 127.0.0.2:0 of the NIC: .* permits 127.0"),
        (["127.0.0.1", 80], "policy", "may not listen at 127.0.0.1:80"),
        (["127.0.0.1", 1 << 16], "config", "65536 is no TCP port"),
        (["nic", 0], "config", "'nic' is no IP address of the NIC"),
        (["127.0.0.1"], "config", "address is not"),
    ],
)
def test_address_that_the_nic_does_not_grant(nic: Nic, address, code, text) -> None:
    event = event_of(nic.proxy().socket, {"do": "listen", **SETTINGS, "address": address})
    assert event["code"] == code
    assert re.search(text, str(event["text"]))


def test_listener_of_a_host_without_addresses(nic: Nic) -> None:
    settings = {"do": "listen", **SETTINGS, "address": ["", 0]}
    event = event_of(nic.proxy("right").socket, settings)
    assert "its policy permits none" in str(event["text"])


def test_port_in_use_at_the_nic(nic: Nic) -> None:
    proxy = nic.proxy()
    settings = {"do": "listen", **SETTINGS}
    first = ListenerChannel.open(SystemAgent(proxy.socket), {**settings, "address": ["", 0]}, None)
    event = event_of(proxy.socket, {**settings, "address": [*first.address]})
    assert "the NIC cannot listen" in str(event["text"])
    first.close()


def test_listener_by_a_newer_link(nic: Nic) -> None:
    """It takes the address of one whose proxy hangs, as its link is still there."""
    first = nic.proxy()
    settings = {"do": "listen", **SETTINGS}
    former = ListenerChannel.open(SystemAgent(first.socket), {**settings, "address": ["", 0]}, None)
    assert first.process
    first.process.send_signal(signal.SIGSTOP)
    nic.undo.callback(first.process.send_signal, signal.SIGCONT)
    second = Proxy(nic.folder / "second.toml", nic.folder / "second.sock", None)  # type: ignore[arg-type]
    second.policy.write_text(first.policy.read_text().replace("left.sock", "second.sock"))
    second.start()
    nic.undo.callback(second.kill)
    again = {**settings, "address": [*former.address]}
    present = ListenerChannel.open(SystemAgent(second.socket), again, None)
    assert present.address == former.address
    present.close()


def test_program_of_the_nic_gives_no_address(nic: Nic) -> None:
    event = event_of(nic.agent.socket, {"do": "listen", **SETTINGS, "address": ["", 0]})
    assert (event["code"], event["event"]) == ("policy", "error")


def test_files_do_not_leave_the_host(nic: Nic) -> None:
    proxy = nic.proxy()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with SystemAgent(proxy.socket).open() as channel:
            channel.settimeout(WAIT)
            message = message_of({"do": "listen", **SETTINGS})
            socket.send_fds(channel, [message], [listening.fileno()])
            event = read_event(channel)
        assert (event["code"], event["event"]) == ("config", "error")
        assert "the worker is on another computer" in str(event["text"])
        control = nic.undo.enter_context(contextlib.closing(proxy.connect(nic.worker)))
        with pytest.raises(WorkerGone):
            control.open(64, [listening.fileno()])


def test_nic_agent_restarts(nic: Nic) -> None:
    """Its end is the end of the programs' connections. The proxy connects again."""
    proxy = nic.proxy()
    control = proxy.connect(nic.worker)
    nic.agent.restart(signal.SIGTERM)
    until(lambda: not control.alive())
    with pytest.raises(WorkerGone):
        control.hello()
    with contextlib.closing(proxy.connect(nic.worker)) as again:
        again.hello()


def test_proxy_without_an_agent(nic: Nic) -> None:
    nic.agent.kill()
    proxy = nic.proxy()
    assert [line["event"] for line in proxy.lines] == ["unlinked", "started"]
    with pytest.raises(DeviceError, match=r"no link to the NIC at .*no listener at"):
        proxy.connect(nic.worker)
    nic.agent.start()
    until(lambda: attempt(lambda: proxy.connect(nic.worker).close()))


def test_end_of_the_proxy(nic: Nic) -> None:
    """The worker learns of it."""
    proxy = nic.proxy()
    controls = [proxy.connect(nic.worker) for _ in range(2)]
    proxy.kill()
    for control in controls:
        with pytest.raises(WorkerGone):
            control.hello()
    proxy.start()
    until(lambda: attempt(lambda: proxy.connect(nic.worker).close()))


@pytest.mark.parametrize("end", ["host", "nic"])
@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("identity", "not allowed"),
        ("ca", "another CA"),
        ("expired", "expired"),
    ],
)
def test_wrong_identities(nic: Nic, end: str, how: str, text: str) -> None:
    """Both ends name the reason."""
    name = {"host": "left", "nic": "nic"}[end]
    ca, uri = nic.folder, f"spiffe://test/{name}"
    if how == "identity":
        uri = "spiffe://test/somebody-else"
    elif how == "ca":
        ca = nic.folder / "foreign"
        create_ca(ca, "foreign")
    issue(ca, uri, nic.folder / name, force=True, validity=old() if how == "expired" else None)
    nic.agent.restart(signal.SIGTERM)
    proxy = nic.proxy()
    with pytest.raises(DeviceError, match=text):
        proxy.connect(nic.worker)
    if end == "host":
        refused = [line for line in nic.agent.audit() if line["event"] == "refused"]
        assert refused and text in str(refused[0]["text"])


def old() -> Validity:
    return Validity(1, dt.datetime.now(dt.UTC) - dt.timedelta(days=2))


def test_host_that_the_policy_loses(nic: Nic) -> None:
    left, right = nic.proxy("left"), nic.proxy("right")
    gone, kept = left.connect(nic.worker), right.connect(nic.worker)
    nic.agent.change(f'identity = "{LEFT}"', 'identity = "spiffe://test/other"')
    nic.agent.reload()
    until(lambda: not gone.alive())
    with pytest.raises(DeviceError, match=r"not allowed|no more"):
        left.connect(nic.worker)
    kept.hello()


def test_identity_that_the_proxy_withdraws(nic: Nic) -> None:
    proxy = nic.proxy()
    settings = {"do": "listen", **SETTINGS, "address": ["", 0]}
    listener = ListenerChannel.open(SystemAgent(proxy.socket), settings, None)
    proxy.change(f"users = [{os.geteuid()}]", "users = [12345]")
    assert proxy.reload()["withdrawn"] == 1
    event = event_of(proxy.socket, settings)
    assert event["code"] == "policy"
    until(lambda: nobody_listens(listener.address))


def test_rejoin_with_an_identity_that_the_proxy_does_not_grant(nic: Nic) -> None:
    """A program comes back to a session of an identity that was withdrawn from it meanwhile."""
    proxy = nic.proxy()
    settings = {
        "do": "rejoin", "identity": "host-a", "worker": str(nic.worker), "token": bytes(16),
        "qpns": [1],
    }  # fmt: skip
    assert event_of(proxy.socket, settings)["code"] == "closed"
    proxy.change(f"users = [{os.geteuid()}]", "users = [12345]")
    proxy.reload()
    assert event_of(proxy.socket, settings)["code"] == "policy"


def nobody_listens(address: tuple[str, int]) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(address) == errno.ECONNREFUSED


def test_links_of_one_host_are_limited(nic: Nic) -> None:
    """The oldest gives way."""
    proxies = [nic.proxy("left")]
    first = proxies[0].connect(nic.worker)
    for number in range(4):
        file = nic.folder / f"more-{number}.toml"
        text = proxies[0].policy.read_text()
        file.write_text(text.replace("left.sock", f"more-{number}.sock"))
        command = [sys.executable, "-m", "srdma", "agent", "--proxy", str(file)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        nic.undo.callback(process.communicate)
        nic.undo.callback(process.kill)
        assert process.stderr
        assert json.loads(process.stderr.readline())["event"] == "linked"
    until(lambda: not first.alive())
    unlinked = [line for line in proxies[0].audit() if line["event"] == "unlinked"]
    assert "more than 4 links" in str(unlinked[0]["text"])


def test_many_links_of_one_host_at_once(nic: Nic) -> None:
    """At most 4 stay open, although links that end take some time: their peers do not read."""
    credentials, peers = Credentials.named(nic.folder / "left"), []
    for _ in range(14):
        sock = nic.undo.enter_context(socket.create_connection(("127.0.0.1", nic.port), WAIT))
        peer = RawPeer(sock, "client", credentials)
        peer.handshake()
        peer.frame(0, Type.HELLO, HELLO)
        peers.append(peer)
    assert [last_type(peer) for peer in peers[:10]] == [Type.REFUSED] * 10
    for peer in peers[10:]:
        assert peer.take()[1] == Type.HELLO
        peer.frame(1, Type.OPEN, {"to": "worker", "uid": 1, "path": "/absent"})
        assert peer.take()[:2] == (1, Type.END)


def last_type(peer: RawPeer) -> int:
    """Type of the last frame of a link that ends."""
    found = -1
    with contextlib.suppress(ExchangeError, PeerClosed):
        while True:
            found = peer.take()[1]
    return found


def test_proxy_whose_file_names_another_nic(nic: Nic) -> None:
    """The link ends, and with it what the programs have."""
    proxy = nic.proxy()
    control = proxy.connect(nic.worker)
    proxy.change(f'peer = "{NIC}"', 'peer = "spiffe://test/another"')
    assert proxy.reload()["withdrawn"] == 1
    until(lambda: not control.alive())
    with pytest.raises(DeviceError, match="not allowed"):
        proxy.connect(nic.worker)


def test_nic_that_does_not_answer(nic: Nic) -> None:
    """Programs are served from the start: they learn the state at once, and an error soon."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nic.port = silent.getsockname()[1]
        proxy = nic.proxy(wait=False)
        until(lambda: attempt(lambda: SystemAgent(proxy.socket).open().close()))
        assert event_of(proxy.socket, {"do": "status"})["text"] == "the proxy has just started"
        with pytest.raises(DeviceError, match="just started"):
            proxy.connect(nic.worker)


def test_config_check_of_a_proxy(nic: Nic) -> None:
    proxy = nic.proxy()
    command = [sys.executable, "-m", "srdma", "config", "check", "--proxy", "--json"]
    done = subprocess.run([*command, str(proxy.policy)], capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["host-a"] == f"for users {os.geteuid()}"
    assert "spiffe://test/nic" in found["nic"]
    check = [*command[:5], "--json", str(nic.agent.policy)]
    done = subprocess.run(check, capture_output=True, text=True)
    assert LEFT in json.loads(done.stdout)["[left]"]


@pytest.mark.parametrize("options", [[], ["--config", "a", "--proxy", "b"]])
def test_one_file_is_named(options: list[str]) -> None:
    command = [sys.executable, "-m", "srdma", "agent", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "give either --config FILE, or --proxy FILE" in done.stderr


def test_process_of_the_worker(nic: Nic) -> None:
    """The pid in HELLO is one of this computer only for a program that connects itself."""
    with contextlib.closing(nic.proxy().connect(nic.worker)) as control:
        assert not control.is_of(control.hello().pid)
    with contextlib.closing(Control.connect(nic.worker)) as control:
        assert control.is_of(control.hello().pid)
        assert not control.is_of(os.getpid())
        assert not control.is_of(1 << 22)


def test_doctor_about_the_nic(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what is the NIC's."""
    policy, *certificates, agent, own = doctor_nic.nic(nic.agent.policy)
    assert [policy.state, *(each.state for each in certificates), agent.state] == ["ok"] * 4
    assert own.state == "note" and "serves programs of this machine only" in own.detail
    proxy = nic.proxy()
    monkeypatch.setenv("SRDMA_WORKER", str(nic.worker))
    on_another_computer(monkeypatch)
    file, certificate, link, worker = doctor_host.agents(proxy.policy)
    assert [file.state, certificate.state] == ["ok", "ok"]
    assert (link.name, link.state) == ("proxy", "ok")
    assert "linked to spiffe://test/nic on" in link.detail
    assert (worker.name, worker.state) == ("NIC's worker", "note")
    assert "start it with --host-dev" in worker.detail  # this one has no device for hosts
    monkeypatch.setenv("SRDMA_AGENT", str(proxy.socket))
    assert [each.name for each in doctor_host.agents()] == ["proxy", "NIC's worker"]
    nic.agent.kill()
    until(lambda: [finding.state for finding in doctor_host.agents()] == ["note"])
    (finding,) = doctor_host.agents()
    assert "no link to the NIC" in finding.detail
    nic.agent.start()
    monkeypatch.setenv("SRDMA_AGENT", str(nic.agent.socket))
    (finding,) = doctor_host.agents()
    assert (finding.name, finding.state) == ("agent", "ok")
    monkeypatch.setenv("SRDMA_AGENT", str(nic.folder / "absent.sock"))
    (finding,) = doctor_host.agents()
    assert (finding.name, finding.state) == ("agent", "note")
    monkeypatch.delenv("SRDMA_AGENT")
    assert not list(doctor_host.agents())
