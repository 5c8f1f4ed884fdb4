"""The proxy, whose NIC is a peer that sends any frames (control-link.md 2, 3)."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest

from srdma.agent.client import message_of
from srdma.agent.remote import proxy as proxies
from srdma.agent.remote.link import Type
from srdma.agent.remote.proxy import Proxy
from srdma.agent.remote.proxy_file import ProxyFile
from srdma.identity import Credentials, create_ca, issue
from tests.control_players import HELLO, RawPeer

PATIENCE = 30.0  # seconds; long enough for a busy machine
NIC = "spiffe://test/nic"
FILE = """socket = "agent.sock"
nic = "127.0.0.1:{port}"
control = "end"
peer = "{peer}"
[[identity]]
name = "host-a"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    create_ca(folder, "test")
    issue(folder, NIC, folder / "end")
    return folder


class Host:
    """A Proxy in a thread, and the socket to which it connects."""

    def __init__(self, folder: Path) -> None:
        self._credentials = Credentials.named(folder / "end")
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PATIENCE)
        port = self._listening.getsockname()[1]
        (folder / "proxy.toml").write_text(FILE.format(port=port, peer=NIC))
        self._file = ProxyFile(folder / "proxy.toml")
        self.audit: list[dict[str, Any]] = []
        self.linked = threading.Event()
        self._socks: list[socket.socket] = [self._listening]
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._started.wait(PATIENCE)

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._proxy = Proxy(self._file, self._tell)
        running = asyncio.ensure_future(self._proxy.run())
        self._started.set()
        await self._over.wait()
        running.cancel()
        await self._proxy.close()

    def _tell(self, event: str, **fields: Any) -> None:
        self.audit.append({"event": event, **fields})
        if event == "linked":
            self.linked.set()

    def nic(self) -> RawPeer:
        """The NIC of the next link, after both HELLOs."""
        self.linked.clear()
        sock, _ = self._listening.accept()
        sock.settimeout(PATIENCE)
        self._socks.append(sock)
        peer = RawPeer(sock, "server", self._credentials)
        peer.handshake()
        assert peer.take()[:2] == (0, Type.HELLO)
        peer.frame(0, Type.HELLO, HELLO)
        assert self.linked.wait(PATIENCE)
        return peer

    def program(self, settings: dict[str, Any]) -> socket.socket:
        """A channel that begins with these settings."""
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE)
        self._socks.append(ours)
        self._loop.call_soon_threadsafe(self._proxy.open, theirs)
        ours.sendall(message_of(settings))
        return ours

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        for sock in self._socks:
            sock.close()


@pytest.fixture
def host(folder: Path) -> Iterator[Host]:
    host = Host(folder)
    yield host
    host.close()


def event_of(channel: socket.socket) -> dict[str, Any]:
    size = int.from_bytes(channel.recv(4, socket.MSG_WAITALL), "big")
    return dict(cbor2.loads(channel.recv(size, socket.MSG_WAITALL)))


OPEN = {"do": "open", "worker": "/run/nic.ctl"}


def test_nic_that_answers_late(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is ended, so that the NIC keeps no connection to its worker."""
    monkeypatch.setattr(proxies, "SETTINGS_TIMEOUT", 0.3)
    nic = host.nic()
    program = host.program(OPEN)
    number, kind, body = nic.take()
    assert (number, kind) == (1, Type.OPEN)
    assert cbor2.loads(body) == {"to": "worker", "uid": os.getuid(), "path": "/run/nic.ctl"}
    assert event_of(program)["text"] == "the NIC did not answer"
    assert nic.take() == (1, Type.END, b"")
    nic.frame(1, Type.OPENED)
    host.program(OPEN)
    assert nic.take()[:2] == (2, Type.OPEN)


def test_program_during_the_end_of_a_link(host: Host) -> None:
    """It waits for the next link, although the former one takes some time to end."""
    nic = host.nic()
    nic.frame(0, Type.HEARTBEAT, b"not legal")
    while host._proxy._link is None or host._proxy._link.over is None:
        time.sleep(0.001)
    program = host.program(OPEN)
    time.sleep(0.2)
    nic.sock.shutdown(socket.SHUT_RDWR)
    again = host.nic()
    assert again.take()[:2] == (1, Type.OPEN)
    again.frame(1, Type.OPENED)
    assert event_of(program)["event"] == "opened"
