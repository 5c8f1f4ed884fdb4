"""An agent for tests of libsrdma (agent.md 2): it answers the messages of programs on a Unix socket
and makes the keys of two ends itself. Both ends of a connection use the same fake agent, so there
is no TLS; an identity NAME stands for spiffe://test/NAME.
"""

from __future__ import annotations

import array
import contextlib
import fnmatch
import socket
import threading
from pathlib import Path
from typing import Any

import cbor2

from srdma.control import Control, QPInfo
from srdma.keyex.offers import Suite
from srdma.native.constants import REASON_PEER_CLOSED
from tests.keying import End, Protection, key, until_running
from tests.unix_server import UnixServer

WAIT = 20
Fields = dict[str, Any]


class Channel:
    """The agent's end of one channel."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fds: list[int] = []
        self.fields: Fields = {}  # the first message
        self.control: Control | None = None
        self.peer: Channel | None = None
        self.tcp: socket.socket | None = None  # of a listener

    def message(self) -> Fields | None:
        head = self._exactly(4)
        return cbor2.loads(self._exactly(int.from_bytes(head, "big"))) if head else None

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            try:
                part, control, _, _ = self.sock.recvmsg(size - len(got), socket.CMSG_SPACE(16))
            except ConnectionError:  # the program ended with unread events
                return b""
            for _, _, data in control:
                fds = array.array("i")
                fds.frombytes(data)
                self.fds += fds
            if not part:
                return b""
            got += part
        return got

    def report(self, event: str, **fields: Any) -> None:
        raw = cbor2.dumps({"event": event, **fields}, canonical=True)
        with contextlib.suppress(OSError):
            self.sock.sendall(len(raw).to_bytes(4, "big") + raw)

    @property
    def identity(self) -> str:
        return f"spiffe://test/{self.fields['identity']}"

    def permits(self, identity: str) -> bool:
        patterns = self.fields["peer"]
        return not patterns or any(fnmatch.fnmatchcase(identity, p) for p in patterns)

    def attach(self) -> Control:
        self.control = Control.connect(Path(self.fields["worker"]))
        self.control.attach(self.fields["token"])
        return self.control

    def ends(self) -> list[End]:
        control = self.attach()
        return [End(control, QPInfo(**qp), self.identity) for qp in self.fields["qps"]]

    def closed(self) -> None:
        """The program closed its end: the peer's QPs end."""
        if self.peer is not None and self.peer.control is not None:
            for qp in self.peer.fields["qps"]:
                with contextlib.suppress(Exception):  # QPs that were destroyed before
                    self.peer.control.end(qp["qpn"], REASON_PEER_CLOSED)
            self.peer.report("closed")
        if self.control is not None:
            self.control.close()
        if self.tcp is not None:
            self.tcp.close()
        self.sock.close()


class FakeAgent:
    """Serves channels until close(). `first` are the first messages of all channels."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first: list[Fields] = []
        self._lock = threading.Lock()
        self._listeners: dict[int, Channel] = {}
        self._waiting: dict[int, Channel] = {}
        self._server = UnixServer(path, lambda sock: self._serve(Channel(sock)))

    def close(self) -> None:
        self._server.close()

    def _serve(self, channel: Channel) -> None:
        fields = channel.message()
        if fields is None:
            channel.sock.close()
            return
        channel.fields = fields
        self.first.append(fields)
        match fields["do"]:
            case "listen":
                self._listen(channel)
            case "connect":
                self._connect(channel)
            case "accept":
                self._join(self._waiting.pop(fields["arrival"]), channel)
        while message := channel.message():
            assert message["do"] == "renew"
            channel.report("renewed", count=message["wish"], wish=message["wish"])
        channel.closed()

    def _listen(self, channel: Channel) -> None:
        (fd,) = channel.fds
        channel.tcp = socket.socket(fileno=fd)
        self._listeners[channel.tcp.getsockname()[1]] = channel
        channel.report("listening")

    def _connect(self, channel: Channel) -> None:
        listener = self._listeners.get(channel.fields["address"][1])
        if listener is None:
            channel.report("error", code="tls", text="no listener there")
        elif not channel.permits(listener.identity) or not listener.permits(channel.identity):
            channel.report("error", code="identity", text="the peer's identity is not permitted")
            listener.report("refused", address="127.0.0.1", code="identity", text="not permitted")
        else:
            with self._lock:
                arrival = len(self.first)
                self._waiting[arrival] = channel
            listener.report("arrived", arrival=arrival, identity=channel.identity)

    def _join(self, client: Channel, server: Channel) -> None:
        mode = next(m for m in client.fields["modes"] if m in server.fields["modes"])
        suite = next(s for s in client.fields["suites"] if s in server.fields["suites"])
        ends = list(zip(client.ends(), server.ends(), strict=True))
        for a, b in ends:
            key(a, b, Protection(Suite(*suite), mode))
        for a, b in ends:
            until_running(a, b, WAIT)
        client.peer, server.peer = server, client
        for one, other in ((client, server), (server, client)):
            one.report(
                "peer",
                identity=other.identity,
                data=other.fields["data"],
                suite=suite,
                mode=mode,
                trust_group=one.fields["group"],
                group="X25519",
            )
            one.report("ready")
