"""Unmodified programs that connect by RDMA-CM: `srdma run` with programs of Debian (docs/run.md
5)."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from srdma import gid
from tests.e2e.agents import gid_hosts, until
from tests.e2e.conftest import WAIT
from tests.e2e.test_run import LIBRARY, PROGRAMS, Ended, Hosts, ended, needs
from tests.keyex_players import Wire
from tests.ports import free_port

CM = LIBRARY.with_name("librdmacm.so.1")
UDADDY_PORT = 7174  # it has no option for it
RPING = "rping -s -a 127.0.0.2 -p {port}", "rping -c -a 127.0.0.2 -p {port}"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CM.exists(), reason=f"no {CM}: make run"),
]


@pytest.fixture(scope="module")
def hosts(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("run-cm")
    with gid_hosts(pki, folder) as place:
        yield Hosts(place, folder)


def start(hosts: Hosts, name: str, words: str, port: int, **narrowed: str) -> subprocess.Popen[str]:
    """{port}: of RDMA-CM."""
    needs(words.split()[0])
    return hosts.start(name, words.format(port=port).split(), **narrowed)


@contextlib.contextmanager
def channel(agent: Path, fields: dict[str, object]) -> Iterator[Wire]:
    """A channel to an agent, with its first message."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(agent))
        wire = Wire(sock)
        wire.tell(fields)
        yield wire


def call(hosts: Hosts, port: int, data: bytes) -> contextlib.AbstractContextManager[Wire]:
    """A talk of host a to a port of host b."""
    fields: dict[str, object] = {
        "do": "talk",
        "identity": "host-a",
        "worker": str(hosts.place.a.ctx.path),
    }
    fields |= {"peer": [], "to": [gid.parse(hosts.place.address), port]}
    return channel(hosts.place.agents[0].socket, fields | {"from": 0, "data": data})


def served(hosts: Hosts, port: int) -> bool:
    """True if a program of host b serves a port. It refuses a talk that is no request, and does
    not notice it."""
    with call(hosts, port, b"no request") as talk:
        event = talk.event()
    assert event["event"] == "closed" or event["code"] == "closed", event
    return bool(event["event"] == "closed")


def listen(hosts: Hosts, words: str, port: int, **narrowed: str) -> subprocess.Popen[str]:
    """A server on host b, which listens."""
    server = start(hosts, "b", words, port, **narrowed)
    until(lambda: served(hosts, port) or server.poll() is not None)
    return server


def pair(hosts: Hosts, server: str, client: str) -> tuple[Ended, Ended]:
    """A server on b, then a client on a."""
    port = UDADDY_PORT if server.startswith("udaddy") else free_port()
    listener = listen(hosts, server, port)
    return ended(start(hosts, "a", client, port)), ended(listener)


def runs_protected(hosts: Hosts, server: str, client: str) -> None:
    before = hosts.sealed()
    for code, out in pair(hosts, server, client):
        assert code == 0, out
    assert all(now > then for now, then in zip(hosts.sealed(), before, strict=True))


def perftest(words: str) -> tuple[str, str]:
    words += " -R -p {port} -n 100"
    return words, f"{words} 127.0.0.2"


def cmatose(options: str) -> tuple[str, str]:
    return (
        f"ucmatose {options} -b 127.0.0.2 -p {{port}}",
        f"ucmatose {options} -s 127.0.0.2 -p {{port}}",
    )


def udaddy(options: str = "", bind: tuple[str, str] = ("", "")) -> tuple[str, str]:
    return f"udaddy {bind[0]} {options}", f"udaddy {bind[1]} -s 127.0.0.2 {options}"


@pytest.mark.parametrize(
    ("server", "client"),
    [
        (f"{RPING[0]} -v -C 10", f"{RPING[1]} -v -C 10"),
        ("rdma_server -s 127.0.0.2 -p {port}", "rdma_client -s 127.0.0.2 -p {port}"),
        cmatose("-c 20"),
        perftest("ib_send_lat"),
        udaddy(),
    ],
    ids=["rping", "rdma_server", "ucmatose", "ib_send_lat", "udaddy"],
)
def test_programs_run_protected(hosts: Hosts, server: str, client: str) -> None:
    runs_protected(hosts, server, client)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("server", "client"),
    [
        (f"{RPING[0]} -C 1000", f"{RPING[1]} -C 1000"),
        ("rdma_xserver -p {port}", "rdma_xclient -s 127.0.0.2 -p {port}"),
        cmatose("-c 200 -C 20"),
        cmatose("-m -c 50"),
        udaddy("-c 10"),
        udaddy("-c 10 -S 1"),
        udaddy("-C 200 -S 4096"),
        udaddy("-C 1024 -S 2048"),
        udaddy("-c 10", ("-b 127.0.0.2", "-b 127.0.0.1")),
        *(
            perftest(f"ib_{program}_{what} {options}")
            for program in ("write", "read", "send", "atomic")
            for what in ("bw", "lat")
            for options in (("", "-q 4") if what == "bw" else ("",))
        ),
        perftest("ib_send_lat -c UD"),
        perftest("ib_send_bw -c UD -q 4"),
    ],
)
def test_more_programs(hosts: Hosts, server: str, client: str) -> None:
    runs_protected(hosts, server, client)


def test_udaddy_without_messages(hosts: Hosts) -> None:
    for code, out in pair(hosts, *udaddy("-S 0")):
        assert code == 0, out


def built(name: str) -> list[str]:
    program = PROGRAMS / name
    if not program.exists():
        pytest.skip(f"no {program}: make host-tests")
    return [str(program)]


@pytest.mark.parametrize("name", ["cm", "cm_fork", "cm_mcast", "cm_srq", "cm_ud"])
def test_functions_and_refusals(hosts: Hosts, name: str) -> None:
    code, out = ended(hosts.start("a", built(name)))
    assert code == 0, out


MCKEY = ["mckey", "-m", "230.1.2.3"]
SENDERS = 50  # that may miss a member


def receiver(hosts: Hosts, name: str, **narrowed: str) -> subprocess.Popen[str]:
    """A member of the group, which has joined."""
    needs("mckey", "rdmacm-utils")
    process = hosts.start(name, ["stdbuf", "-oL", *MCKEY], **narrowed)
    assert process.stdout
    for line in process.stdout:
        if "joined dgid: ::ffff:230.1.2.3" in line:
            return process
    raise AssertionError(f"it has ended with {process.wait()}")


def send_until_they_end(hosts: Hosts, receivers: list[subprocess.Popen[str]]) -> None:
    """A sender whose agents are slow may miss members."""
    for _ in range(SENDERS):
        if all(each.poll() is not None for each in receivers):
            break
        code, out = ended(hosts.start("a", [*MCKEY, "-s"]))
        assert code == 0, out
    for code, out in map(ended, receivers):
        assert code == 0, out


def test_multicast(hosts: Hosts) -> None:
    """Members at both hosts get what one of them sends."""
    before = hosts.sealed()
    send_until_they_end(hosts, [receiver(hosts, name) for name in ("b", "b", "a")])
    assert all(now > then for now, then in zip(hosts.sealed(), before, strict=True))


def test_multicast_that_run_toml_does_not_permit(hosts: Hosts) -> None:
    """The agent of the receiver does not tell the sender of it. No session is tried."""
    before = hosts.sealed()
    stranger = receiver(hosts, "b", allow="spiffe://test/other")
    code, out = ended(hosts.start("a", [*MCKEY, "-s"]))
    assert code == 0, out
    assert "no session" not in out
    assert stranger.poll() is None
    assert hosts.sealed() == before
    stranger.kill()
    ended(stranger)


def test_multicast_group_that_the_agent_does_not_permit(hosts: Hosts) -> None:
    needs("mckey", "rdmacm-utils")
    _, out = ended(hosts.start("a", ["mckey", "-m", "239.1.2.3"]))
    assert "RDMA_CM_EVENT_MULTICAST_ERROR, error: -1" in out


def test_members_survive_their_agents(hosts: Hosts) -> None:
    """They join again at agents that start again."""
    receivers = [receiver(hosts, name) for name in ("b", "a")]
    for agent in hosts.place.agents:
        agent.restart(signal.SIGTERM)
    send_until_they_end(hosts, receivers)


def test_threads_while_the_agent_is_stopped(hosts: Hosts) -> None:
    agent = hosts.place.agents[0].process
    signals = {"stop\n": signal.SIGSTOP, "continue\n": signal.SIGCONT}
    process = hosts.start("a", built("cm_threads"))
    assert process.stdin
    assert process.stdout
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if line in signals:
                agent.send_signal(signals[line])
                process.stdin.write("\n")
                process.stdin.flush()
    finally:
        agent.send_signal(signal.SIGCONT)
    code, _ = ended(process)
    assert code == 0, said


def test_server_that_run_toml_does_not_permit(hosts: Hosts) -> None:
    port, before = free_port(), hosts.sealed()
    server = listen(hosts, f"{RPING[0]} -C 1", port)
    client = start(hosts, "a", f"{RPING[1]} -C 1", port, allow="spiffe://test/other")
    code, out = ended(client)
    assert code != 0
    assert "RDMA_CM_EVENT_CONNECT_ERROR, error -13" in out
    assert hosts.sealed() == before
    server.kill()
    ended(server)


@pytest.mark.parametrize(
    ("narrowed", "event"),
    [
        ({"allow": "spiffe://test/other"}, "RDMA_CM_EVENT_CONNECT_ERROR, error -13"),
        ({"gid": "127.0.0.9"}, "RDMA_CM_EVENT_REJECTED, error 28"),
    ],
    ids=["identity", "gid"],
)
def test_client_that_run_toml_does_not_permit(
    hosts: Hosts, narrowed: dict[str, str], event: str
) -> None:
    """The server's program does not see its call."""
    port, before = free_port(), hosts.sealed()
    server = start(hosts, "b", f"{RPING[0]} -C 1", port, **narrowed)
    until(lambda: refuses(hosts, port, event))
    assert server.poll() is None
    assert hosts.sealed() == before
    server.kill()
    ended(server)


def refuses(hosts: Hosts, port: int, event: str) -> bool:
    """A call fails; by this event, once the server listens."""
    code, out = ended(start(hosts, "a", f"{RPING[1]} -C 1", port))
    assert code != 0
    return event in out


def message(kind: int, reason: int = 0, qpn: int = 0) -> bytes:
    """A message of RDMA-CM without private data, whose other fields are 0."""
    return struct.pack("!BBHI8x", 1, kind, reason, qpn)


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        (b"nonsense", "RDMA_CM_EVENT_CONNECT_ERROR, error -71"),
        (message(2, qpn=0), "RDMA_CM_EVENT_CONNECT_ERROR, error -71"),
        (message(2, qpn=1 << 24), "RDMA_CM_EVENT_CONNECT_ERROR, error -71"),
        (message(3, reason=27), "RDMA_CM_EVENT_REJECTED, error 27"),
        (message(3), "RDMA_CM_EVENT_REJECTED, error 28"),
    ],
    ids=["nonsense", "no QPN", "large QPN", "reason", "no reason"],
)
def test_answers_of_a_peer(hosts: Hosts, answer: bytes, event: str) -> None:
    code, out = answered(hosts, f"{RPING[1]} -C 1", free_port(), answer)
    assert code != 0
    assert event in out


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        (message(7, qpn=0), "RDMA_CM_EVENT_CONNECT_ERROR, error: -71"),
        (message(2, qpn=1), "RDMA_CM_EVENT_CONNECT_ERROR, error: -71"),
        (message(3, reason=3), "RDMA_CM_EVENT_UNREACHABLE, error: 3"),
        (message(3), "RDMA_CM_EVENT_UNREACHABLE, error: 2"),
    ],
    ids=["no QPN", "reply of RC", "status", "no status"],
)
def test_answers_of_a_peer_to_udaddy(hosts: Hosts, answer: bytes, event: str) -> None:
    _, out = answered(hosts, udaddy()[1], UDADDY_PORT, answer)
    assert event in out


def answered(hosts: Hosts, words: str, port: int, answer: bytes) -> Ended:
    """A program of host a, whose call a peer answers."""
    agent = hosts.place.agents[1].socket
    common = {"identity": "host-b", "peer": [], "worker": str(hosts.place.b.ctx.path)}
    with channel(agent, common | {"do": "serve", "port": port}) as service:
        assert service.event()["event"] == "serving"
        client = start(hosts, "a", words, port)
        number = service.event()["talk"]
        with channel(agent, common | {"do": "answer", "talk": number}) as talk:
            talk.tell({"do": "say", "data": answer})
            return ended(client)


REQUEST, CONFIRMATION, DEPARTURE = message(1, qpn=1), message(4), message(5)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("first", DEPARTURE),
        ("first", b"nonsense"),
        ("first", None),
        pytest.param("first", b"", marks=pytest.mark.soak),
        ("second", DEPARTURE),
        ("second", DEPARTURE + DEPARTURE),
        ("second", None),
    ],
    ids=["crossing", "nonsense", "ends", "silent", "departure", "two departures", "end"],
)
def test_departures(hosts: Hosts, place: str, says: bytes | None) -> None:
    """says: what the peer says, a message after the other; nothing; or None: it ends."""
    port = free_port()
    server = hosts.start("b", [*built("cm_depart"), str(port), place])
    until(lambda: served(hosts, port))
    with call(hosts, port, REQUEST) as talk:
        assert talk.event()["event"] == "heard"
        talk.tell({"do": "say", "data": CONFIRMATION})
        if place == "first":
            assert talk.event()["data"] == DEPARTURE
        for at in range(0, len(says or b""), len(DEPARTURE)):
            talk.tell({"do": "say", "data": (says or b"")[at : at + len(DEPARTURE)]})
        if says is not None:
            talk.sock.settimeout(2 * WAIT)  # the program waits a minute for a silent peer
            assert talk.event()["event"] == "closed"
    code, out = ended(server)
    assert code == 0, out


@pytest.mark.parametrize(
    ("words", "event"),
    [
        (f"{RPING[1]} -C 1", "RDMA_CM_EVENT_CONNECT_ERROR, error -2"),
        (udaddy()[1], "RDMA_CM_EVENT_CONNECT_ERROR, error: -2"),
    ],
    ids=["rping", "udaddy"],
)
def test_without_agent_a_call_fails(hosts: Hosts, words: str, event: str) -> None:
    needs(words.split()[0])
    config = hosts.config("a")
    config.write_text(config.read_text().replace("agent = ", 'agent = "/nowhere" #'))
    program = words.format(port=7000).split()
    command = [sys.executable, "-m", "srdma", "run", "--config", str(config), "--", *program]
    found = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert found.returncode != 0
    assert event in found.stdout + found.stderr


def test_identity_of_a_listener_is_withdrawn(hosts: Hosts) -> None:
    port, agent = free_port(), hosts.place.agents[1]
    server = listen(hosts, f"{RPING[0]} -P", port)
    agent.change('"host-b"', '"host-x"')
    try:
        agent.reload()
        code, out = ended(server)
    finally:
        agent.change('"host-x"', '"host-b"')
        agent.reload()
    assert code != 0
    assert "device removal" in out


def stop(hosts: Hosts, process: subprocess.Popen[str]) -> None:
    """Stop one end of rping by SIGSTOP. The other end has no request under way afterwards: one that
    failed would end it before the DISCONNECTED event."""
    process.send_signal(signal.SIGSTOP)
    before: list[int] = []
    while before != (now := hosts.sealed()):
        before = now
        time.sleep(0.3)


def test_killed_server_disconnects_the_client(hosts: Hosts) -> None:
    port, before = free_port(), hosts.sealed()[0]
    server = listen(hosts, RPING[0], port)
    client = start(hosts, "a", RPING[1], port)
    until(lambda: hosts.sealed()[0] > before + 100)
    stop(hosts, server)
    server.kill()
    server.communicate()
    assert "client DISCONNECT EVENT" in ended(client)[1]


def test_connections_and_listeners_survive_their_agents(hosts: Hosts) -> None:
    """The talk of a connection is lost, and its end is noticed nevertheless."""
    port, before = free_port(), hosts.sealed()[0]
    server = listen(hosts, f"{RPING[0]} -P", port)
    client = start(hosts, "a", RPING[1], port)
    until(lambda: hosts.sealed()[0] > before + 100)
    for agent in hosts.place.agents:
        agent.restart(signal.SIGTERM)
    after = hosts.sealed()[0]
    until(lambda: hosts.sealed()[0] > after + 100)
    until(lambda: served(hosts, port))
    code, out = ended(start(hosts, "a", f"{RPING[1]} -C 5", port))
    assert code == 0, out
    stop(hosts, server)
    server.kill()
    server.communicate()
    assert "client DISCONNECT EVENT" in ended(client)[1]
