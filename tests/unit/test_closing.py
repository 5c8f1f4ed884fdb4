"""Files whose close() blocks, at a system agent (srdma/agent/closing.py)."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import cbor2
import pytest

from srdma.agent import channel, closing, users
from srdma.identity import create_ca, issue
from tests.host_players import Host
from tests.keyex_players import Wire, load, until
from tests.lingering import LINGER, inside, linger, lingering, release
from tests.tls_players import BlockingTLS

MAKERS = [lingering, inside]
USER, OTHER = 7, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("identities")
    create_ca(path / "ca", "test")
    issue(path / "ca", "spiffe://test/host-a", path / "a")
    (path / "ca.pem").write_bytes((path / "ca/ca.pem").read_bytes())
    return path


@pytest.fixture
def a(folder: Path) -> Iterator[Host]:
    host = Host(folder, "a", port=0)
    yield host
    release()
    host.close()
    until(lambda: closing._threads == 0)


def serves(a: Host) -> None:
    """The agent answers another program while a close() blocks."""
    ours, theirs = socket.socketpair()
    a.agent.post(lambda: a.agent.service.open(theirs))
    with ours:
        wire = Wire(ours)
        ours.settimeout(LINGER / 2)
        wire.tell({"do": "nothing"})
        assert wire.event()["code"] == "config"


@contextlib.contextmanager
def paused(a: Host) -> Iterator[None]:
    """The agent processes nothing, so that its close() of a file is the last one."""
    begun, over = threading.Event(), threading.Event()
    pause = threading.Thread(target=a.agent.call, args=(lambda: begun.set() or over.wait(),))
    pause.start()
    begun.wait()
    try:
        yield
    finally:
        over.set()
        pause.join()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("where", ["first", "many", "later", "unread", "silent"])
def test_file_whose_close_blocks(a: Host, make: Callable[[], socket.socket], where: str) -> None:
    file = make()
    fds = [file.fileno()]
    with contextlib.closing(a.agent.open()) as sock:
        wire = Wire(sock)
        if where == "later":
            with socket.create_server(("127.0.0.1", 0)) as listening:
                settings = {"do": "listen", "identity": "a", "peer": []}
                wire.tell(settings, [listening.fileno()])
            assert wire.event() == {"event": "listening"}
        with paused(a):
            match where:
                case "first":
                    wire.tell({"do": "listen"}, fds)
                case "many":  # more than any message takes
                    with open(os.devnull) as null:
                        wire.tell({"do": "listen"}, [null.fileno()] * 9 + fds)
                case "later":  # beside another message
                    wire.tell({"do": "nothing"}, fds)
                case "unread":  # behind a message that ends the channel
                    size = (1 << 17) + 1
                    sock.sendall(size.to_bytes(4, "big"))
                    socket.send_fds(sock, [b"x"], fds)
                case "silent":  # the program hangs up before its first message is complete
                    socket.send_fds(sock, [b"x"], fds)
            file.close()
    for _ in range(10):
        serves(a)


def test_file_of_one_channel_too_many(a: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srdma.agent.users.CHANNELS_MAX", 0)
    file = lingering()
    ours, theirs = socket.socketpair()
    with ours:
        socket.send_fds(ours, [b"x"], [file.fileno()])
        file.close()
        a.agent.call(lambda: a.agent.service.open(theirs))
        assert theirs.fileno() < 0
    monkeypatch.undo()
    serves(a)


def test_listening_socket_with_linger(a: Host, folder: Path) -> None:
    """Connections do not inherit its SO_LINGER."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        linger(listening)
        wire = a.open({"do": "listen", "identity": "a", "peer": []}, listening)
        assert wire.event() == {"event": "listening"}
        made = BlockingTLS(
            socket.create_connection(listening.getsockname()), "client", load(folder, "a")
        )
        made.handshake()
        until(lambda: len(a.links()) == 1)
        [link] = a.links()
        found = link.outer._writer.get_extra_info("socket")
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER) == 0
        made.close()
        wire.close()


class Closes:
    """os.close() of files of the closer waits until `go` is set, but of the files `quick`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.closed: list[int] = []
        self.quick: list[int] = []
        self._real = os.close
        monkeypatch.setattr("srdma.agent.closing.os.close", self._close)

    def _close(self, fd: int) -> None:
        if fd not in self.quick:
            self.go.wait()
        self.closed.append(fd)
        self._real(fd)


@pytest.fixture
def closes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Closes]:
    made = Closes(monkeypatch)
    yield made
    made.go.set()
    until(lambda: closing._threads == 0)
    assert not closing._files and not closing._busy


def nulls(count: int) -> list[int]:
    return [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]


def test_threads_are_limited(monkeypatch: pytest.MonkeyPatch, closes: Closes) -> None:
    """Further files wait for a thread, and all are closed at last."""
    monkeypatch.setattr(closing, "THREADS", 2)
    fds = nulls(5)
    for user, fd in enumerate(fds):
        closing.close_soon(user, [fd])
    assert closing._threads == 2 and not closes.closed
    closes.go.set()
    until(lambda: sorted(closes.closed) == fds and closing._threads == 0)


def test_files_of_one_user_hang(closes: Closes) -> None:
    """They hold two threads, and those of another user are closed."""
    fds = nulls(10)
    closing.close_soon(USER, fds)
    until(lambda: closing.waiting(USER) == 10 - closing.THREADS_OF_USER)
    closes.quick = nulls(3)
    closing.close_soon(OTHER, closes.quick)
    until(lambda: sorted(closes.closed) == sorted(closes.quick))
    assert closing.waiting(USER) == 10 - closing.THREADS_OF_USER


def test_queue_of_a_user_with_too_many_files(
    monkeypatch: pytest.MonkeyPatch, closes: Closes
) -> None:
    """The files in it are not received: the socket is one file more. An empty one is closed."""
    monkeypatch.setattr(closing, "FILES_MAX", 1)
    closing.close_soon(USER, nulls(3))
    until(lambda: closing.waiting(USER) == 1)
    for files, more in ((0, 0), (2, 1)):
        ours, theirs = socket.socketpair()
        with ours:
            if files:
                socket.send_fds(ours, [b"x"], [ours.fileno()] * files)
            before = len(os.listdir("/proc/self/fd"))
            closing.close_drained(USER, theirs)
            assert theirs.fileno() < 0 and ours.recv(1) == b""
            assert closing.waiting(USER) == 1 + more
            assert len(os.listdir("/proc/self/fd")) == before - 1 + more
    monkeypatch.setattr(users, "CHANNELS_MAX", 2)
    assert users.Users().may_enter(OTHER) and not users.Users().may_enter(USER)


def test_channels_of_a_user_with_too_many_files(a: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read when its files are closed; those of another user are read now."""
    monkeypatch.setattr(closing, "FILES_MAX", 1)
    monkeypatch.setattr(channel, "CROWDED_LOOK", 0.05)
    request = cbor2.dumps({"do": "nothing"})
    new, begun, bad = (a.agent.open() for _ in range(3))
    begun.send(bytes(1))
    files = [lingering() for _ in range(3)]
    with paused(a):
        Wire(bad).tell({"do": "listen"}, [file.fileno() for file in files])
        for file in files:
            file.close()
    until(lambda: closing._busy[os.getuid()] == closing.THREADS_OF_USER)
    until(lambda: closing.crowded(os.getuid()))  # the last file was received
    Wire(new).say(request)
    begun.send(bytes(2) + bytes([len(request)]) + request)
    other = Wire(a.agent.open(user=OTHER))
    other.say(request)
    assert other.event()["code"] == "config"
    assert select.select([new, begun], [], [], 0) == ([], [], [])
    release()
    for sock in (new, begun):
        assert Wire(sock).event()["code"] == "config"
        sock.close()
    other.close()
    bad.close()


def test_threads_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file waits for the next thread that can."""

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        closing.close_soon(USER, fds[:1])
    assert closing._threads == 0 and os.fstat(fds[0])
    closing.close_soon(USER, fds[1:])
    until(lambda: closing._threads == 0)
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_files_behind_the_first_message(a: Host) -> None:
    """They end the channel: a program could pass any number of them."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        wire = a.open({"do": "listen", "identity": "a", "peer": []}, listening)
        assert wire.event() == {"event": "listening"}
        with open(os.devnull) as null:
            wire.tell({"do": "nothing"}, [null.fileno()])
        assert wire.events() == []


def test_drained_socket() -> None:
    """The files in its queue are closed too."""
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    with ours:
        for size in (1, 70_000):
            socket.send_fds(ours, [bytes(size)], [writer, writer])
        os.close(writer)
        closing.close_drained(USER, theirs)
        with open(reader, "rb") as pipe:
            assert pipe.read() == b""  # no end for writing is left
        with pytest.raises(BrokenPipeError):
            ours.send(b"x")
