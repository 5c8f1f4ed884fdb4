"""Requests of which several are under way (Control.requests() of srdma/control/client.py), and the
secrets of many QPs by them (srdma/keyex/secrets.py)."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srdma.control import Control, Kind, client
from srdma.control.client import IN_FLIGHT
from srdma.errors import DeviceError, LocalError, RefusedError, Timeout, WorkerGone
from srdma.keyex.messages import Handover
from srdma.keyex.secrets import Secrets
from tests.exchange_players import QPS, end
from tests.keyex_players import KEYS, PATIENCE
from tests.renew_players import done

HEADER = struct.Struct(">HHII")
MANY = 5 * IN_FLIGHT + 3
# The status and the bytes of the answer to request number n; None: there is no answer.
Answer = Callable[[int], tuple[int, bytes] | None]


def accepts(_: int) -> tuple[int, bytes]:
    return 0, b""


class Far:
    """The worker's end of a control socket. got: kind and body of each request."""

    def __init__(self) -> None:
        ours, self.sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = Control(ours)
        self.got: list[tuple[int, bytes]] = []
        self.answer: Answer = accepts
        self.began = threading.Event()
        self.began.set()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while data := self._next():
            kind, _, tag, _ = HEADER.unpack_from(data)
            self.got.append((kind, data[HEADER.size :]))
            if found := self.answer(len(self.got) - 1):
                with contextlib.suppress(ConnectionError):  # of end()
                    self.sock.send(HEADER.pack(kind, 0, tag, found[0]) + found[1])

    def _next(self) -> bytes:
        try:
            select.select([self.sock], [], [])
            self.began.wait(PATIENCE)
            return self.sock.recv(8192)
        except OSError:
            return b""

    def end(self) -> None:
        """As the end of the worker."""
        self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.control.close()
        self._thread.join()
        self.sock.close()


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.close()


def lives(count: int) -> list[tuple[Kind, Any]]:
    return [(Kind.LIFE, (number, 60)) for number in range(count)]


def body(number: int) -> tuple[int, bytes]:
    return Kind.LIFE, struct.pack(">II", number, 60)


def refusing(*numbers: int, status: int = errno.EPERM) -> Answer:
    """Refuses these requests; the text has the number."""
    return lambda n: (status, f"no {n}".encode()) if n in numbers else (0, b"")


@pytest.mark.parametrize("count", [1, 2, IN_FLIGHT - 1, IN_FLIGHT, IN_FLIGHT + 1, MANY])
def test_all_are_answered_in_order(far: Far, count: int) -> None:
    assert far.control.requests(lives(count)) == [None] * count
    assert far.got == [body(number) for number in range(count)]


def test_requests_under_way_have_a_limit(monkeypatch: pytest.MonkeyPatch, far: Far) -> None:
    """The worker does not wait with an answer until this end reads: there is room for all."""
    under_way, seen = 0, []

    def post(self: Control, *_: object) -> None:
        nonlocal under_way
        under_way += 1

    def answer(self: Control, *_: object) -> None:
        nonlocal under_way
        seen.append(under_way)
        under_way -= 1

    monkeypatch.setattr(Control, "_post", post)
    monkeypatch.setattr(Control, "_answer", answer)
    far.control.requests(lives(MANY))
    assert seen[: MANY - IN_FLIGHT + 1] == [IN_FLIGHT] * (MANY - IN_FLIGHT + 1)
    assert seen[-IN_FLIGHT:] == [*range(IN_FLIGHT, 0, -1)]


def test_socket_has_room_for_the_answers() -> None:
    """The longest answers of IN_FLIGHT requests: refusals with a text."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.setblocking(False)
        for _ in range(IN_FLIGHT):
            theirs.send(bytes(HEADER.size + 256))


def test_refusals_in_a_burst(far: Far) -> None:
    """Each belongs to its request, and the others are executed."""
    which = (0, 3, IN_FLIGHT, MANY - 1)
    far.answer = refusing(*which)
    found = far.control.requests(lives(MANY))
    assert [number for number, each in enumerate(found) if each] == [*which]
    for number in which:
        refused = found[number]
        assert refused and refused.errno == errno.EPERM and f"LIFE: no {number}" in str(refused)
    assert len(far.got) == MANY


def used_again(far: Far) -> None:
    """Late answers do not answer the next request."""
    far.answer = lambda _: (0, struct.pack(">II64s", 77, 0, b""))
    assert far.control.attach(bytes(16)) == 77


def test_illegal_answer_in_a_burst(far: Far) -> None:
    far.answer = lambda n: (0, b"x" if n == 2 else b"")
    with pytest.raises(DeviceError, match="answered LIFE with 1 bytes"):
        far.control.requests(lives(MANY))
    used_again(far)


def test_value_that_does_not_fit_in_a_burst(far: Far) -> None:
    calls = lives(MANY)
    calls[3] = Kind.LIFE, (3, -1)
    with pytest.raises(LocalError, match="LIFE: a value does not fit"):
        far.control.requests(calls)
    used_again(far)
    assert far.got[:3] == [body(number) for number in range(3)] and len(far.got) == 4


def test_answer_that_is_missing(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT", 0.05)
    far.answer = lambda n: None if n == 1 else (0, b"")
    with pytest.raises(Timeout, match=r"did not answer LIFE in 0\.05 s"):
        far.control.requests(lives(3))
    used_again(far)


def test_worker_that_ends_in_a_burst(far: Far) -> None:
    def answer(number: int) -> tuple[int, bytes] | None:
        if number == 2:
            far.end()
            return None
        return 0, b""

    far.answer = answer
    with pytest.raises(WorkerGone):
        far.control.requests(lives(MANY))


def test_socket_that_is_full(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker reads late: send() is repeated when there is room (EAGAIN)."""
    usual, waits = Control._wait_for, []

    def wait_for(self: Control, events: int, deadline: float) -> None:
        waits.append(events)
        far.began.set()
        usual(self, events, deadline)

    monkeypatch.setattr(Control, "_wait_for", wait_for)
    far.control._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least
    far.began.clear()
    assert far.control.requests(lives(MANY)) == [None] * MANY
    assert waits[0] == select.POLLOUT
    assert far.got == [body(number) for number in range(MANY)]


def test_two_threads(far: Far) -> None:
    """A burst is not mixed with the requests of another thread."""
    threads = [
        threading.Thread(target=far.control.lives, args=([number] * MANY, 60)) for number in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = far.got[0]
    assert far.got[:MANY] == [first] * MANY and first not in far.got[MANY:]
    assert len(far.got) == 2 * MANY


# Calls by bursts ----------------------------------------------------------------------


def test_lives_of_qps_of_which_some_have_ended(far: Far) -> None:
    far.control.lives((), 60)
    assert not far.got
    for status in (errno.ENOTCONN, errno.ENOENT):
        far.answer = refusing(*range(0, 1000, 2), status=status)
        far.control.lives((7, 8, 9), 60)
    assert far.got == [body(number) for number in (7, 8, 9)] * 2


def test_life_that_is_refused(far: Far) -> None:
    """The first refusal is raised. Without its end no QP may go on, so that the others matter."""
    far.answer = refusing(1, 2)
    with pytest.raises(RefusedError, match="LIFE: no 1"):
        far.control.lives((7, 8, 9), 60)
    assert len(far.got) == 3


class Exported:
    """The secrets of a first exchange with two QPs, from the TLS exporter."""

    def __init__(self, control: Any) -> None:
        player, _ = done()
        ends = tuple(end(100 + number) for number in range(QPS))
        self.secrets = Secrets(control, self.export, player.exchange, ends, "spiffe://test/b")
        self.made: list[bytes] = []

    def export(self, label: bytes, context: bytes, size: int) -> bytes:
        self.made.append(bytes([len(self.made) + 1]) * size)
        return self.made[-1]


def test_keys_of_all_qps_before_their_lives(far: Far) -> None:
    made = Exported(far.control)
    made.secrets.install(Handover(), 60)
    assert [kind for kind, _ in far.got] == [Kind.KEYS] * QPS + [Kind.LIFE] * QPS
    qpns = [struct.unpack_from(">I", raw)[0] for _, raw in far.got]
    assert qpns == [100, 101] * 2
    given = [KEYS.unpack(raw)[16:18] for kind, raw in far.got if kind == Kind.KEYS]
    assert [secret[:16] for each in given for secret in each] == made.made


def test_keys_without_a_life(far: Far) -> None:
    Exported(far.control).secrets.install(Handover())
    assert [kind for kind, _ in far.got] == [Kind.KEYS] * QPS


@pytest.mark.parametrize("number", range(QPS))
@pytest.mark.parametrize("status", [errno.EPERM, errno.ENOTCONN])
def test_keys_of_one_qp_are_refused(far: Far, number: int, status: int) -> None:
    """Also if the QP has ended: the exchange fails."""
    far.answer = refusing(number, status=status)
    with pytest.raises(RefusedError, match=f"KEYS: no {number}"):
        Exported(far.control).secrets.install(Handover(), 60)


def test_life_of_a_qp_that_ended_during_the_exchange(far: Far) -> None:
    far.answer = refusing(QPS, status=errno.ENOTCONN)
    Exported(far.control).secrets.install(Handover(), 60)
    far.got.clear()
    far.answer = refusing(QPS + 1)
    with pytest.raises(RefusedError, match=f"LIFE: no {QPS + 1}"):
        Exported(far.control).secrets.install(Handover(), 60)


def test_secret_beside_the_key_of_a_group_is_wiped() -> None:
    """The worker makes both; a group has no use for the first one."""
    secret, key = bytearray(b"s" * 16), bytearray(b"k" * 48)
    made = Exported(cast(Control, SimpleNamespace(key=lambda _: (secret, key))))
    assert made.secrets.derive("kpd") == Handover(group_key=key)
    assert any(key) and not any(secret)


@pytest.mark.parametrize("end", [None, RefusedError(errno.EPERM, "no"), KeyboardInterrupt()])
def test_secrets_are_wiped(end: BaseException | None) -> None:
    given: list[Any] = []

    def keys(*each: Any, life: int) -> None:
        given.extend(secret for one in each for secret in (one.tx_secret, one.rx_secret))
        assert all(map(any, given))
        if end:
            raise end

    made = Exported(cast(Control, SimpleNamespace(keys=keys)))
    try:
        made.secrets.install(Handover(), 60)
    except (RefusedError, KeyboardInterrupt) as raised:
        assert raised is end
    assert len(given) == 2 * QPS and not any(map(any, given))
