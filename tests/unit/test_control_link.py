"""Frames, streams and heartbeats of the control link (control-link.md 2, 3), against a peer that
sends any bytes."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cbor2
import pytest

from srdma.agent.remote import link as links
from srdma.agent.remote import relay as relays
from srdma.agent.remote.link import BODY_MAX, Link, Type, Wire
from srdma.agent.remote.relay import Relay
from srdma.identity import Credentials, create_ca, issue
from srdma.keyex.fields import ExchangeError
from srdma.keyex.streams import STREAM_LEN
from srdma.keyex.tls import Truncated
from srdma.native.control import MAX_MESSAGE
from tests.control_players import HELLO, RawPeer, illegal_frames
from tests.tls_players import BlockingTLS

PATIENCE = 30.0  # seconds; long enough for a busy machine
OPEN = {"to": "agent", "uid": 1}
LATER = 2


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    folder = tmp_path_factory.mktemp("identities")
    create_ca(folder, "test")
    issue(folder, "spiffe://test/end", folder / "end")
    return Credentials.named(folder / "end")


class End:
    """A Link in a thread, and a peer with blocking calls. An agent's link, unless proxy.

    socks: local ends of the streams. later: streams of uid LATER, which the agent does not answer.
    """

    def __init__(
        self, credentials: Credentials, *, proxy: bool = False, stopped: bool = False
    ) -> None:
        """stopped: the link is stopped before it runs."""
        self._stopped = stopped
        self.result: Future[ExchangeError] = Future()
        self.proxy = proxy
        self.kind = socket.SOCK_SEQPACKET
        self.socks: list[socket.socket] = []
        self.later: list[int] = []
        ours, theirs = socket.socketpair()
        theirs.settimeout(PATIENCE)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(ours, credentials)), daemon=True
        )
        self.peer = RawPeer(theirs, "server" if proxy else "client", credentials)
        self._thread.start()
        self.peer.handshake()

    async def _run(self, sock: socket.socket, credentials: Credentials) -> None:
        self.loop = asyncio.get_running_loop()
        role = "client" if self.proxy else "server"
        self.link = Link(await Wire.open(sock, role, credentials))
        await self.link.handshake()
        self.link.opened = None if self.proxy else self._opened
        if self._stopped:
            self.link.stop(ExchangeError("busy", "not at all"))
        with contextlib.suppress(asyncio.CancelledError):
            self.result.set_result(await self.link.run())

    def _opened(self, number: int, fields: dict[str, Any]) -> None:
        if fields["uid"] == LATER:
            self.later.append(number)
        elif fields["uid"]:
            relay = self.relay()
            assert self.link.accept(number, relay)
            relay.start()
        else:
            self.link.refuse(number, ExchangeError("policy", "not you"))

    def relay(self) -> Relay:
        here, there = socket.socketpair(socket.AF_UNIX, self.kind)
        there.settimeout(PATIENCE)
        self.socks.append(there)
        return Relay(self.link, here)

    def call(self, work: Callable[[], Any]) -> Any:
        """Call a function in the event loop of the link."""

        async def called() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result(PATIENCE)

    def ahead(self) -> int:
        return self.link.ahead

    def send(self, number: int, kind: int, body: bytes | dict[str, Any] = b"") -> None:
        self.peer.frame(number, kind, body)

    def take(self) -> tuple[int, int, bytes]:
        """See RawPeer.take()."""
        return self.peer.take()

    def greet(self) -> None:
        assert self.take()[:2] == (0, Type.HELLO)
        self.send(0, Type.HELLO, HELLO)

    def over(self) -> ExchangeError:
        """Why the link ended."""
        return self.result.result(PATIENCE)

    def close(self) -> None:
        self.peer.sock.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        for sock in self.socks:
            sock.close()


@pytest.fixture
def agent(credentials: Credentials) -> Iterator[End]:
    end = End(credentials)
    yield end
    end.close()


@pytest.fixture
def proxy(credentials: Credentials) -> Iterator[End]:
    end = End(credentials, proxy=True)
    yield end
    end.close()


def refused(end: End) -> ExchangeError:
    """The link ends by REFUSED with the reason that it gives its owner."""
    number, kind, body = end.take()
    end.peer.sock.shutdown(socket.SHUT_RDWR)  # else the link waits a second for that
    over = end.over()
    assert (number, kind) == (0, Type.REFUSED)
    assert cbor2.loads(body) == {"code": over.code, "text": over.text}
    return over


def test_hello_of_both_ends(agent: End) -> None:
    number, kind, body = agent.take()
    assert (number, kind) == (0, Type.HELLO)
    fields = cbor2.loads(body)
    assert abs(fields["time"] - time.time()) < PATIENCE
    assert isinstance(fields["name"], str)
    assert not agent.call(lambda: agent.link.usable)
    agent.send(0, Type.HELLO, {**HELLO, "name": "p\x1b" + "x" * 60, "more": [1]})
    agent.send(0, Type.HEARTBEAT)
    while not agent.call(lambda: agent.link.usable):
        time.sleep(0.01)
    assert agent.link.name == "p?" + "x" * 60
    assert abs(agent.link.ahead + time.time()) < PATIENCE  # HELLO told 1970


def test_proxy_tells_the_time_again(proxy: End, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "TELL", 0.05)
    monkeypatch.setattr(links, "HEARTBEAT", 0.02)
    proxy.greet()
    for _ in range(2):
        number, kind, body = proxy.take()
        assert (number, kind) == (0, Type.HELLO)
        assert abs(cbor2.loads(body)["time"] - time.time()) < PATIENCE
    proxy.send(0, Type.HELLO, HELLO)  # only the proxy may
    while (frame := proxy.take())[1] == Type.HELLO:
        pass
    assert frame[:2] == (0, Type.REFUSED)


def test_host_that_tells_the_time_again(agent: End) -> None:
    calls: list[tuple[str, int]] = []
    agent.call(lambda: setattr(agent.link, "greeted", lambda: calls.append(("greeted", 0))))
    agent.call(lambda: setattr(agent.link, "told", lambda: calls.append(("told", agent.ahead()))))
    agent.greet()
    later = round(time.time()) + 5000
    agent.send(0, Type.HELLO, {**HELLO, "time": later})
    agent.send(1, Type.OPEN, OPEN)
    assert agent.take()[1] == Type.OPENED
    (first, early), greeted, (second, late) = calls
    assert (first, greeted, second) == ("told", ("greeted", 0), "told")
    assert abs(early + time.time()) < PATIENCE and abs(late - 5000) < PATIENCE


def test_link_that_is_stopped_before_it_runs(credentials: Credentials) -> None:
    with contextlib.closing(End(credentials, stopped=True)) as agent:
        assert agent.take()[:2] == (0, Type.REFUSED)
        agent.peer.sock.shutdown(socket.SHUT_RDWR)
        assert agent.over().text == "not at all"


def test_numbers_that_are_used_up(proxy: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link ends, so that another one follows."""
    monkeypatch.setattr(links, "NUMBER_MAX", 2)
    proxy.greet()
    proxy.call(lambda: proxy.link.open(proxy.relay(), OPEN))
    assert proxy.take()[:2] == (1, Type.OPEN)
    assert not proxy.call(lambda: proxy.link.usable)
    assert refused(proxy).text == "the numbers of its streams are used up"


def test_bytes_of_a_channel(agent: End) -> None:
    agent.kind = socket.SOCK_STREAM
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    assert agent.take() == (1, Type.OPENED, b"")
    (sock,) = agent.socks
    agent.send(1, Type.DATA, bytes(BODY_MAX))
    assert sock.recv(BODY_MAX, socket.MSG_WAITALL) == bytes(BODY_MAX)
    sock.sendall(b"answer")
    assert agent.take() == (1, Type.DATA, b"answer")
    agent.send(1, Type.DATA, b"last")
    agent.send(1, Type.END)
    assert sock.recv(10) == b"last"
    assert sock.recv(10) == b""
    agent.send(1, Type.DATA, b"late")  # is ignored
    agent.send(1, Type.END)
    agent.send(2, Type.OPEN, OPEN)
    assert agent.take() == (2, Type.OPENED, b"")


def test_messages_of_a_control_connection(agent: End) -> None:
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    agent.take()
    (sock,) = agent.socks
    for size in (1, MAX_MESSAGE):
        agent.send(1, Type.DATA, b"q" * size)
        agent.send(1, Type.DATA, b"r" * size)
        assert [sock.recv(9000), sock.recv(9000)] == [b"q" * size, b"r" * size]
        sock.send(b"a" * size)
        assert agent.take() == (1, Type.DATA, b"a" * size)
    sock.close()
    assert agent.take() == (1, Type.END, b"")


def test_stream_that_is_refused(agent: End) -> None:
    agent.greet()
    agent.send(1, Type.OPEN, {**OPEN, "uid": 0})
    agent.send(1, Type.DATA, b"early")
    number, kind, body = agent.take()
    assert (number, kind) == (1, Type.END)
    assert cbor2.loads(body) == {"code": "policy", "text": "not you"}


def test_stream_that_ends_before_its_answer(agent: End) -> None:
    agent.greet()
    for number in (1, 2):
        agent.send(number, Type.OPEN, {**OPEN, "uid": LATER})
        agent.send(number, Type.END)
    agent.send(3, Type.OPEN, OPEN)
    assert agent.take() == (3, Type.OPENED, b"")
    assert agent.later == [1, 2]
    assert not agent.call(lambda: agent.link.accept(1, agent.relay()))
    agent.call(lambda: agent.link.refuse(2, ExchangeError("policy", "late")))
    assert agent.call(lambda: agent.link.streams) == 1
    agent.socks[0].send(b"next")
    assert agent.take() == (3, Type.DATA, b"next")


def test_streams_of_a_link_are_limited(agent: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without an answer counts until it has one, also if the proxy ended it: work goes on
    for it."""
    monkeypatch.setattr(links, "STREAMS_MAX", 2)
    agent.greet()
    agent.send(1, Type.OPEN, {**OPEN, "uid": LATER})
    agent.send(1, Type.END)
    agent.send(2, Type.OPEN, OPEN)
    assert agent.take() == (2, Type.OPENED, b"")
    agent.send(3, Type.OPEN, OPEN)
    number, kind, body = agent.take()
    assert (number, kind, cbor2.loads(body)["code"]) == (3, Type.END, "busy")
    agent.send(2, Type.END)
    agent.send(4, Type.OPEN, OPEN)
    assert agent.take() == (4, Type.OPENED, b"")
    assert not agent.call(lambda: agent.link.accept(1, agent.relay()))
    agent.send(5, Type.OPEN, OPEN)
    assert agent.take() == (5, Type.OPENED, b"")


def test_stream_that_ends_after_its_answer(proxy: End) -> None:
    """OPENED and END arrive before the program's bytes are read: the socket is not watched, because
    its descriptor may be of another file by then."""
    proxy.greet()

    async def begin() -> None:
        relay = proxy.relay()
        relay.ready = asyncio.get_running_loop().create_future()
        proxy.link.open(relay, OPEN)
        await relay.ready
        while not relay._closed:
            await asyncio.sleep(0.01)
        relay.start()
        with pytest.raises(KeyError):
            asyncio.get_running_loop()._selector.get_key(relay._fd)  # type: ignore[attr-defined]

    started = asyncio.run_coroutine_threadsafe(begin(), proxy.loop)
    assert proxy.take()[:2] == (1, Type.OPEN)
    proxy.send(1, Type.OPENED)
    proxy.send(1, Type.END)
    started.result(PATIENCE)
    assert proxy.socks[0].recv(1) == b""


@pytest.mark.parametrize("side", ["peer", "local"])
def test_long_control_messages(agent: End, side: str) -> None:
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    agent.take()
    if side == "peer":
        agent.send(1, Type.DATA, bytes(MAX_MESSAGE + 1))
    else:
        agent.socks[0].send(bytes(MAX_MESSAGE + 1))
    number, kind, body = agent.take()
    assert (number, kind) == (1, Type.END)
    assert "more than 8192 bytes" in cbor2.loads(body)["text"]
    assert agent.socks[0].recv(1) == b""


def test_files_are_not_carried(agent: End) -> None:
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    agent.take()
    with socket.socket() as file:
        socket.send_fds(agent.socks[0], [b"x"], [file.fileno()])
    number, kind, body = agent.take()
    assert (number, kind) == (1, Type.END)
    assert "files cannot be passed" in cbor2.loads(body)["text"]


def test_program_that_does_not_read(agent: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream ends, and other streams do not wait."""
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    agent.send(2, Type.OPEN, OPEN)
    assert [agent.take()[0], agent.take()[0]] == [1, 2]
    for _ in range(relays.WAITING_MAX // MAX_MESSAGE + 300):
        agent.send(1, Type.DATA, bytes(MAX_MESSAGE))
    agent.send(2, Type.DATA, b"mine")
    assert agent.socks[1].recv(10) == b"mine"
    number, kind, body = agent.take()
    assert (number, kind) == (1, Type.END)
    assert "does not read" in cbor2.loads(body)["text"]


def test_last_bytes_for_a_program_that_reads_late(agent: End) -> None:
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    agent.take()
    for number in range(200):  # more than the socket takes, and less than the limit
        agent.send(1, Type.DATA, number.to_bytes(2, "big") + bytes(1000))
    agent.send(1, Type.END)
    agent.send(2, Type.OPEN, OPEN)
    assert agent.take() == (2, Type.OPENED, b"")  # it has taken END
    got = [agent.socks[0].recv(2000)[:2] for _ in range(201)]
    assert got == [number.to_bytes(2, "big") for number in range(200)] + [b""]


def test_last_bytes_for_a_program_that_does_not_read(
    agent: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "LAST", 0.05)
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    agent.take()
    for _ in range(200):  # more than the socket takes, and less than the limit
        agent.send(1, Type.DATA, bytes(1024))
    agent.send(1, Type.END)
    poll = select.poll()
    poll.register(agent.socks[0], 0)
    assert poll.poll(PATIENCE * 1000) == [(agent.socks[0].fileno(), select.POLLHUP)]
    got = 0
    while agent.socks[0].recv(1024):
        got += 1
    assert 0 < got < 200


def test_peer_that_reads_no_refusals(agent: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are no local data that could wait: the link ends."""
    monkeypatch.setattr(links, "UNREAD_MAX", 1 << 16)
    agent.greet()
    with contextlib.suppress(OSError):
        for number in range(1, 1 << 16):
            agent.send(number, Type.OPEN, {**OPEN, "uid": 0})
    assert agent.over().text == "the other end does not read"


def test_many_streams_to_a_peer_that_does_not_read(
    agent: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No stream reads its socket while too much waits: they do not end the link together."""
    monkeypatch.setattr(links, "CROWDED", 1 << 16)
    monkeypatch.setattr(links, "UNREAD_MAX", 1 << 18)
    agent.kind = socket.SOCK_STREAM
    agent.greet()
    for number in range(1, 31):
        agent.send(number, Type.OPEN, OPEN)
        assert agent.take() == (number, Type.OPENED, b"")
    data = bytes(50_000)
    for sock in agent.socks:
        sock.sendall(data)
    got = 0
    while got < 30 * len(data):
        number, kind, body = agent.take()
        assert kind == Type.DATA
        got += len(body)
    assert agent.call(lambda: agent.link.usable)


def test_peer_that_does_not_read(agent: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local sockets are not read until TCP takes bytes again. Nothing is lost."""
    monkeypatch.setattr(links, "CROWDED", 1 << 16)
    agent.kind = socket.SOCK_STREAM
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    agent.take()
    (sock,) = agent.socks
    size, sent = 8 << 20, 0
    sock.setblocking(False)
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        try:
            sent += sock.send(bytes(65536))
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < size
    got = 0
    while got < sent:
        number, kind, body = agent.take()
        assert (number, kind) == (1, Type.DATA)
        got += len(body)
    sock.send(b"again")
    assert agent.take()[2] == b"again"


def test_heartbeats(credentials: Credentials, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent end sends them, and a link with a silent peer ends."""
    monkeypatch.setattr(links, "HEARTBEAT", 0.02)
    monkeypatch.setattr(links, "SILENCE", 3.0)
    with contextlib.closing(End(credentials)) as agent:
        agent.greet()
        agent.send(1, Type.OPEN, OPEN)
        agent.take()
        for _ in range(50):
            assert agent.peer.message() == bytes(STREAM_LEN) + bytes((Type.HEARTBEAT,))
            agent.send(0, Type.HEARTBEAT)
        over = agent.over()
        assert (over.code, over.text) == ("unreachable", "the other end is silent for 3 s")
        assert agent.socks[0].recv(1) == b""


def test_end_of_the_connection(agent: End) -> None:
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    agent.take()
    agent.peer.sock.shutdown(socket.SHUT_RDWR)
    assert agent.over().code == "unreachable"
    assert agent.socks[0].recv(1) == b""


@pytest.mark.parametrize(("frames", "text"), illegal_frames(OPEN))
def test_frames_that_are_not_legal(agent: End, frames, text) -> None:
    assert agent.take()[1] == Type.HELLO
    for frame in frames:
        agent.send(*frame)
    while (frame := agent.take())[1] == Type.OPENED:
        pass
    assert frame[:2] == (0, Type.REFUSED)
    agent.peer.sock.shutdown(socket.SHUT_RDWR)
    assert text in agent.over().text


def test_frame_that_is_too_long_or_too_short(credentials: Credentials) -> None:
    for message in (bytes(BODY_MAX + STREAM_LEN + 2), b"", b"\0\0\0\0"):
        end = End(credentials)
        end.greet()
        end.peer.say(message)
        end.peer._flush()
        assert refused(end).code in ("format", "state")
        end.close()


def test_link_that_is_stopped(agent: End) -> None:
    """The peer learns the reason, and so do the streams."""
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    agent.take()
    agent.call(lambda: agent.link.stop(ExchangeError("policy", "not any more")))
    assert refused(agent).code == "policy"
    assert agent.socks[0].recv(1) == b""


def test_reason_of_the_peer(agent: End) -> None:
    agent.take()
    agent.send(0, Type.REFUSED, {"code": "busy", "text": "too many\x07"})
    over = agent.over()
    assert (over.code, over.text, over.from_peer) == ("busy", "too many?", True)


def test_peer_without_a_reason(agent: End) -> None:
    agent.take()
    agent.send(0, Type.REFUSED)
    assert agent.over().text == "no reason"


def test_proxy_takes_no_streams(proxy: End) -> None:
    proxy.greet()
    proxy.send(1, Type.OPEN, OPEN)
    assert "type 2 is not legal" in refused(proxy).text


def test_stream_of_the_proxy(proxy: End) -> None:
    """OPENED completes it, and the agent's reason ends it."""
    proxy.greet()
    while not proxy.call(lambda: proxy.link.usable):
        time.sleep(0.01)

    def begin() -> Relay:
        relay = proxy.relay()
        relay.ready = proxy.loop.create_future()
        proxy.link.open(relay, OPEN)
        assert relay.number == len(proxy.socks)
        return relay

    first, second = proxy.call(begin), proxy.call(begin)
    assert [proxy.take()[:2], proxy.take()[:2]] == [(1, Type.OPEN), (2, Type.OPEN)]
    proxy.send(1, Type.OPENED)
    proxy.send(2, Type.END, {"code": "quota", "text": "no more"})

    async def outcome(relay: Relay) -> None:
        assert relay.ready
        await relay.ready

    def wait(relay: Relay) -> None:
        asyncio.run_coroutine_threadsafe(outcome(relay), proxy.loop).result(PATIENCE)

    wait(first)
    with pytest.raises(ExchangeError, match="no more") as error:
        wait(second)
    assert error.value.code == "quota"
    assert proxy.call(lambda: proxy.link.streams) == 1
    proxy.send(1, Type.END)
    proxy.send(1, Type.OPENED, b"x")  # of a stream that ended
    third = proxy.call(begin)
    proxy.take()
    proxy.send(3, Type.OPENED, b"x")
    assert refused(proxy).code == "state"
    assert third.ready
    assert "type 3 is not legal" in str(third.ready.exception())


def test_another_protocol(credentials: Credentials) -> None:
    """An agent of the key exchange is no proxy."""
    ours, theirs = socket.socketpair()
    outcome: Future[str] = Future()

    async def serve() -> None:
        wire = await Wire.open(ours, "server", credentials)
        try:
            await wire.handshake()
        except ExchangeError as error:
            outcome.set_result(error.text)
        finally:
            wire.drop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    theirs.settimeout(PATIENCE)
    peer = BlockingTLS(theirs, "client", credentials)
    with pytest.raises((ExchangeError, Truncated)):
        peer.handshake()
    assert "supports no version of this protocol" in outcome.result(PATIENCE)
    thread.join(PATIENCE)


def test_end_of_the_local_socket_while_it_writes(agent: End) -> None:
    agent.greet()
    agent.send(1, Type.OPEN, OPEN)
    agent.take()
    for _ in range(200):
        agent.send(1, Type.DATA, bytes(1024))
    agent.socks[0].close()
    assert agent.take()[:2] == (1, Type.END)


def test_name_of_this_computer(monkeypatch: pytest.MonkeyPatch, credentials: Credentials) -> None:
    """A long one is cut between two characters."""
    monkeypatch.setattr(links.platform, "node", lambda: "x" + "é" * 40)
    end = End(credentials)
    fields = cbor2.loads(end.take()[2])
    assert fields["name"] == "x" + "é" * 31
    end.close()


def test_end_that_is_cancelled(tmp_path: Path, credentials: Credentials) -> None:
    end = End(credentials)
    end.greet()
    end.send(1, Type.OPEN, OPEN)
    end.take()

    def cancel() -> None:
        for task in asyncio.all_tasks(end.loop):
            if "End._run" in repr(task):
                task.cancel()

    end.loop.call_soon_threadsafe(cancel)
    assert end.socks[0].recv(1) == b""
    end.close()
