"""Programs that wait for a peer go on waiting when unauthorised peers connect (agent.md 3).

Goal: whatever such a peer sends, the program that waits neither ends nor
reports an error, and serves the next authorised peer.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from srdma.embedded import spawn, stop
from srdma.identity import create_ca, issue
from tests import agent_door
from tests.e2e.agents import start
from tests.e2e.conftest import A, B, Site
from tests.e2e.test_c_library import EXAMPLES, Program

WAIT = 60.0
# The head of a TLS record and of a ClientHello, then bytes that are no ClientHello.
BAD_CLIENT_HELLO = b"\x16\x03\x01\x00\x80\x01\x00\x00\x7c\x03\x03" + bytes(range(117))


@pytest.fixture(scope="module")
def others(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Identities that the programs under test must refuse: a of another CA, c of the same."""
    folder = tmp_path_factory.mktemp("others")
    create_ca(folder, "other")
    issue(folder, A, folder / "a")
    issue(pki, "spiffe://test/c", folder / "c")
    return folder


def visit(port: int, certificate: Path | None) -> None:
    """A TLS handshake, without a certificate or with one; then wait until the server closes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["srdma/2"])
    if certificate:
        context.load_cert_chain(f"{certificate}.pem", f"{certificate}.key")
    with (
        contextlib.suppress(OSError),  # the server may refuse during the handshake or after it
        socket.create_connection(("127.0.0.1", port), WAIT) as plain,
        context.wrap_socket(plain) as sock,
    ):
        while sock.recv(4096):
            pass


def say(port: int, words: bytes) -> None:
    """Send bytes, then wait until the server closes."""
    with (
        socket.create_connection(("127.0.0.1", port), WAIT) as sock,
        contextlib.suppress(ConnectionError),
    ):
        sock.sendall(words)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass


def reset(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), WAIT) as sock:
        sock.sendall(b"\x16")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def call(port: int, pki: Path, others: Path, stack: contextlib.ExitStack) -> None:
    """All of them, one after the other. Two that are silent stay until the stack closes."""
    for _ in range(2):
        stack.enter_context(socket.create_connection(("127.0.0.1", port), WAIT))
    say(port, b"hello\n")
    say(port, BAD_CLIENT_HELLO)
    reset(port)
    for certificate in (None, others / "a", others / "c"):
        visit(port, certificate)
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), WAIT):
        pass  # a port scan


@pytest.fixture
def srdma_runs() -> Iterator[list[subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        stop(process)
        process.communicate()


@pytest.mark.parametrize("command", ["recv", "perf"])
def test_command_waits_for_an_authorised_peer(
    command: str, site: Site, pki: Path, others: Path, tmp_path: Path,
    srdma_runs: list[subprocess.Popen[bytes]],
) -> None:  # fmt: skip
    def run(*words: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        srdma_runs.append(spawn([sys.executable, "-m", "srdma", *words], stdout=pipe, stderr=pipe))
        return srdma_runs[-1]

    waits = ["--worker", str(site.b.control), "--identity", str(pki / "b"), "--peer", A]
    calls = ["--worker", str(site.a.control), "--identity", str(pki / "a"), "--peer", B]
    if command == "recv":
        server = run("recv", "--json", "--listen", "127.0.0.1:0", "--out", str(tmp_path), *waits)
    else:
        server = run("perf", "write_lat", "-n", "20", "-p", "0", "--json", *waits)
    assert server.stdout
    told = json.loads(server.stdout.readline())["listening"]
    port = int(told.rpartition(":")[2]) if command == "recv" else told[0]
    with contextlib.ExitStack() as stack:
        call(port, pki, others, stack)
        assert server.poll() is None
        if command == "recv":
            client = run("send", str(pki / "a.pem"), f"127.0.0.1:{port}", *calls)
        else:
            client = run("perf", "write_lat", "-n", "20", "-p", str(port), "127.0.0.1", *calls)
        _, err = client.communicate(timeout=WAIT)
        assert client.returncode == 0, err
        _, err = server.communicate(timeout=WAIT)
        assert server.returncode == 0, err
    assert b"refused a peer at 127.0.0.1" in err


@pytest.mark.parametrize("kind", ["private", "system"])
@pytest.mark.skipif(not EXAMPLES.exists(), reason="libsrdma was not built: install libcbor")
def test_c_program_waits_for_an_authorised_peer(
    kind: str, site: Site, pki: Path, others: Path, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        if kind == "private":
            door = agent_door.DoorAgent(tmp_path / "agent", pki)
            stack.callback(door.close)
            sockets, names = [door.path, door.path], ("a", "b")
        else:
            agents = [start(pki, name, w.control) for name, w in (("a", site.a), ("b", site.b))]
            for agent in agents:
                stack.callback(agent.audit)
            sockets, names = [agent.socket for agent in agents], ("host-a", "host-b")
        server = Program("pingpong", site.b.control, sockets[1], "server", names[1], A)
        port = server.port()
        with contextlib.ExitStack() as silent:
            call(int(port), pki, others, silent)
            assert server.process.poll() is None, server.result()
            client = Program(
                "pingpong", site.a.control, sockets[0], "client", names[0], B, port, "3"
            )
            assert f"connected to {B}" in client.succeeds()
            assert re.search(f"connected to {A}", server.succeeds())
