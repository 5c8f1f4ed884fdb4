"""Channels of a program whose agent, or the link to it, is away for a while (agent.md 8,
control-link.md 2.5)."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest

from srdma.agent.client import Arrival, ConnectionChannel, ListenerChannel, SystemAgent
from srdma.errors import DeviceError

CAME = {"event": "arrived", "arrival": 5, "identity": "spiffe://test/b"}
NO_LINK = {"event": "error", "code": "worker", "text": "no link to the NIC"}
WAIT = 20.0
SETTINGS = {"identity": "a", "worker": "/far/away", "token": bytes(16), "qps": [{"qpn": 7}]}


def message(event: dict[str, Any]) -> bytes:
    body = cbor2.dumps(event)
    return len(body).to_bytes(4, "big") + body


@contextlib.contextmanager
def proxy(path: Path, *channels: list[dict[str, Any]]) -> Iterator[SystemAgent]:
    """Each channel has these events, and ends; the last one does not."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            for number, events in enumerate(channels, 1):
                sock, _ = listening.accept()
                with sock:
                    sock.recv(4096)
                    sock.sendall(b"".join(map(message, events)))
                    while number == len(channels) and sock.recv(4096):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield SystemAgent(path)
        thread.join(WAIT)


def test_connection_without_a_link(tmp_path: Path) -> None:
    """The proxy refuses while it has no link. The connection ends only for another reason."""
    over: dict[str, Any] = {"event": "error", "code": "closed", "text": "no such session"}
    ready: list[dict[str, Any]] = [{"event": "ready"}, {"event": "renewed", "wish": 1}]
    with proxy(tmp_path / "p", [], [NO_LINK], [NO_LINK], ready, [over]) as agent:
        channel = ConnectionChannel(agent, SETTINGS)
        channel.wait_renewed(channel.wish(), time.monotonic() + WAIT)
        while not channel.ended():
            time.sleep(0.01)
        channel.close()


def test_listener_without_a_link(tmp_path: Path) -> None:
    listening = {"event": "listening", "address": ["127.0.0.1", 7000]}
    with proxy(tmp_path / "p", [listening], [NO_LINK], [NO_LINK], [listening, CAME]) as agent:
        channel = ListenerChannel.open(agent, {"do": "listen", "address": ["", 0]}, None)
        assert channel.next(time.monotonic() + WAIT) == Arrival(5, "spiffe://test/b")
        channel.close()


def test_listener_that_is_refused_at_once(tmp_path: Path) -> None:
    with (
        proxy(tmp_path / "p", [NO_LINK]) as agent,
        pytest.raises(DeviceError, match="no link to the NIC"),
    ):
        ListenerChannel.open(agent, {"do": "listen", "address": ["", 0]}, None)
