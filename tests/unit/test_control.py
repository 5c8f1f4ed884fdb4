"""Control socket: the bytes of every message, and every error."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
from dataclasses import replace

import pytest

from srdma import control
from srdma.control import (
    CapabilityRequest,
    Control,
    Direction,
    Kept,
    KeptQP,
    KeyRequest,
    Keys,
    Kind,
    Limits,
    MRRequest,
    Proof,
    QPRequest,
    QPState,
    Rotation,
    socket_path,
)
from srdma.control.quotas import AccountKind, Quota, set_quota
from srdma.errors import (
    ClosedError,
    DeviceError,
    LocalError,
    NoWorkerError,
    RefusedError,
    Timeout,
    WorkerGone,
)
from tests.fake_worker import DEREG_MR, OPEN, REG_MR, STATS, FakeWorker, Refuse

HEADER = struct.Struct(">HHII")
QPN = 0xABCDEF


class Pair:
    """A Control, and the worker's end of its socket."""

    def __init__(self) -> None:
        ours, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = Control(ours, "the worker")
        self.request = b""
        self.fds: list[int] = []

    def answering(self, *bodies: bytes, status: int = 0, fds: list[int] | None = None) -> None:
        """Responds to the next request, in a thread. All bodies but the last are sent first, with
        another tag."""

        def run() -> None:
            self.request, self.fds, _, _ = socket.recv_fds(self.far, 8192, 4)
            kind, _, tag, _ = HEADER.unpack_from(self.request)
            for older in range(len(bodies) - 1, -1, -1):
                head = HEADER.pack(kind, 0, tag - older, status)
                socket.send_fds(self.far, [head + bodies[-1 - older]], fds or [])

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def body(self, kind: Kind) -> bytes:
        """Returns the body of the received request and checks its header."""
        self.thread.join()
        got, zero, tag, status = HEADER.unpack_from(self.request)
        assert (got, zero, status) == (kind, 0, 0)
        assert tag > 0
        return self.request[HEADER.size :]


@pytest.fixture
def pair():
    pair = Pair()
    yield pair
    pair.control.close()
    pair.far.close()
    for fd in pair.fds:
        os.close(fd)


@pytest.fixture
def worker(tmp_path):
    worker = FakeWorker(tmp_path / "w.sock")
    yield worker
    worker.close()


HELLO = struct.Struct(">IIII64s64s64s32sII16s")


def test_hello(pair):
    gid = bytes(range(16))
    names = b"dev", b"wire", b"name"
    pair.answering(HELLO.pack(1, 1, 1, 42, *names, bytes([1, 0x20, 0x30]), 3, 2, gid))
    hello = pair.control.hello()
    assert pair.body(Kind.HELLO) == struct.pack(">I", 1)
    assert (hello.pid, hello.host_device, hello.wire, hello.name) == (42, "dev", "wire", "name")
    assert hello.suites == (1, 0x20, 0x30)
    assert hello.allow_unprotected
    assert (hello.threads, hello.thread, hello.gid) == (3, 2, gid)


def test_hello_of_another_version(pair):
    pair.answering(HELLO.pack(2, 0, 1, 1, *[b""] * 4, 1, 0, b""))
    with pytest.raises(DeviceError, match="version 2, this library has 1"):
        pair.control.hello()
    pair.thread.join()


def test_open_passes_descriptors_both_ways(pair):
    read, write = os.pipe()
    pair.answering(struct.pack(">I16s64s", 7, b"t" * 16, b"1.2.3.4:5"), fds=[read, write])
    info, fds = pair.control.open(1024, [read, write, read])
    assert pair.body(Kind.OPEN) == struct.pack(">II", 1024, 0)
    assert (info.leg, info.token, info.address) == (7, b"t" * 16, "1.2.3.4:5")
    assert (len(fds), len(pair.fds)) == (2, 3)
    assert not os.get_inheritable(fds[0])
    for fd in (*fds, read, write):
        os.close(fd)


def test_open_for_a_trust_group(pair):
    pair.answering(struct.pack(">I16s64s", 7, b"t" * 16, b""))
    pair.control.open(64, shared=True)
    assert pair.body(Kind.OPEN) == struct.pack(">II", 64, 1)


TOKEN = bytes(range(88))
LONGEST = bytes(4584)
EVERYTHING = CapabilityRequest(leg=1, key=2, offset=3, length=2**40, expiry=2**32 - 1, rights=7)


@pytest.mark.parametrize(
    ("call", "kind", "body", "answer", "result"),
    [
        (
            lambda c: c.attach(b"0123456789abcdef"),
            Kind.ATTACH,
            b"0123456789abcdef",
            struct.pack(">II64s", 3, 1000, b"uid 1000"),
            3,
        ),
        (
            lambda c: c.reg_mr(MRRequest(1, 0x107, 2**63, 2**40, 5, QPN, 8192, 12, 48, "x:y", 9)),
            Kind.REG_MR,
            struct.pack(">IIQQIIQ", 1, 0x107, 2**63, 2**40, 5, QPN, 8192)
            + struct.pack(">BBH256sQ", 12, 48, 0, b"x:y", 9),
            struct.pack(">I", 0xFFFFFFFF),
            0xFFFFFFFF,
        ),
        (
            lambda c: c.capability(EVERYTHING),
            Kind.CAP,
            struct.pack(">IIQQIBBH16s", 1, 2, 3, 2**40, 2**32 - 1, 7, 0, 0, b""),
            TOKEN,
            TOKEN,
        ),
        (
            lambda c: c.capability(replace(EVERYTHING, expiry=0, holder=b"h" * 16)),
            Kind.CAP,
            struct.pack(">IIQQIBBH16s", 1, 2, 3, 2**40, 0, 7, 0, 0, b"h" * 16),
            LONGEST,
            LONGEST,
        ),
        (
            lambda c: c.install(1, TOKEN),
            Kind.INSTALL,
            struct.pack(">I", 1) + TOKEN,
            struct.pack(">I", 2**32 - 1),
            2**32 - 1,
        ),
        (
            lambda c: c.install(1, bytearray(LONGEST)),
            Kind.INSTALL,
            struct.pack(">I", 1) + LONGEST,
            struct.pack(">I", 5),
            5,
        ),
        (lambda c: c.uninstall(1, 9), Kind.UNINSTALL, struct.pack(">II", 1, 9), b"", None),
        (lambda c: c.revoke(1, 9), Kind.REVOKE, struct.pack(">IIQQ", 1, 9, 0, 0), b"", None),
        (
            lambda c: c.revoke(1, 9, 2**40, 2**41, timeout=5.0),
            Kind.REVOKE,
            struct.pack(">IIQQ", 1, 9, 2**40, 2**41),
            b"",
            None,
        ),
        (
            lambda c: c.key(KeyRequest(QPN, 16, b"g" * 8, b"p" * 16, 5)),
            Kind.KEY,
            struct.pack(">IBBH8s16sI", QPN, 16, 0, 0, b"g" * 8, b"p" * 16, 5),
            b"s" * 16 + bytes(16) + bytes(48),
            (bytearray(b"s" * 16), bytearray(48)),
        ),
        (
            lambda c: c.key(KeyRequest(QPN, 32, b"g" * 8, b"p" * 16, 5, True)),
            Kind.KEY,
            struct.pack(">IBBH8s16sI", QPN, 32, 1, 0, b"g" * 8, b"p" * 16, 5),
            b"s" * 32 + b"k" * 48,
            (bytearray(b"s" * 32), bytearray(b"k" * 48)),
        ),
        (lambda c: c.withdraw(1, 9), Kind.WITHDRAW, struct.pack(">II", 1, 9), b"", None),
        (lambda c: c.dereg_mr(1, 9), Kind.DEREG_MR, struct.pack(">II", 1, 9), b"", None),
        (
            lambda c: c.wait(QPN, 1.0),
            Kind.WAIT,
            struct.pack(">I", QPN),
            struct.pack(">II", 3, 0),
            (QPState.RTS, 0),
        ),
        (lambda c: c.destroy(QPN), Kind.DESTROY, struct.pack(">I", QPN), b"", None),
        (lambda c: c.expire(QPN), Kind.EXPIRE, struct.pack(">I", QPN), b"", None),
        (lambda c: c.life(QPN, 60), Kind.LIFE, struct.pack(">II", QPN, 60), b"", None),
        (lambda c: c.end(QPN, 24), Kind.END, struct.pack(">II", QPN, 24), b"", None),
        (
            lambda c: c.rotate(3, 3600),
            Kind.ROTATE,
            struct.pack(">II", 3, 3600),
            struct.pack(">II", 7, 2),
            Rotation(7, 2),
        ),
        (
            lambda c: c.rekey(QPN, Direction.TX, 16, bytearray(b"s" * 16)),
            Kind.REKEY,
            struct.pack(">IBBH32s", QPN, 2, 16, 0, b"s" * 16),
            b"",
            None,
        ),
        (
            lambda c: c.rekey(QPN, Direction.RX, 32),
            Kind.REKEY,
            struct.pack(">IBBH32s", QPN, 1, 32, 0, b""),
            b"",
            None,
        ),
        (
            lambda c: c.rekey(QPN, Direction.BOTH),
            Kind.REKEY,
            struct.pack(">I36s", QPN, b""),
            b"",
            None,
        ),
        (
            lambda c: c.rekey(QPN, Direction.WITHDRAW),
            Kind.REKEY,
            struct.pack(">IB35s", QPN, 3, b""),
            b"",
            None,
        ),
        (lambda c: c.agent(), Kind.AGENT, bytes(4), b"", None),
        (lambda c: c.agent(attached=True), Kind.AGENT, bytes([0, 0, 0, 1]), b"", None),
        (
            lambda c: c.prove(QPN, b"c" * 32),
            Kind.PROVE,
            struct.pack(">I4x32s32x", QPN, b"c" * 32),
            struct.pack(">II32s", 3, 2, b"p" * 32),
            Proof(3, 2, b"p" * 32),
        ),
        (
            lambda c: c.prove(QPN, b"c" * 32, b"p" * 32),
            Kind.PROVE,
            struct.pack(">IB3x32s32s", QPN, 1, b"c" * 32, b"p" * 32),
            struct.pack(">II32x", 0, 2**32 - 1),
            Proof(0, 2**32 - 1, bytes(32)),
        ),
        (
            lambda c: c.keep([QPN, 0, 5], b"data"),
            Kind.KEEP,
            struct.pack(">5I1012x4s1020x", 3, 4, QPN, 0, 5, b"data"),
            b"",
            None,
        ),
        (
            lambda c: c.adopt(7),
            Kind.ADOPT,
            struct.pack(">Q", 7),
            struct.pack(">QIIIIB3s16s", 2**40, 6, 1, 4, QPN, 255, b"\0\0\5", b"e" * 16)
            + struct.pack(">6120x4s1020x", b"data"),
            Kept(2**40, 6, (KeptQP(QPN, 255, 5, b"e" * 16),), b"data"),
        ),
        (
            lambda c: c.restrict("uid 7", Limits(1, 2, 3, 4, 2**40), 9),
            Kind.RESTRICT,
            struct.pack(">4IQ64sI64x", 1, 2, 3, 4, 2**40, b"uid 7", 9),
            b"",
            None,
        ),
        (
            lambda c: c.restrict("uid 7", Limits(1, 2, 3, 4, 2**40), 9, "host a"),
            Kind.RESTRICT,
            struct.pack(">4IQ64sI64s", 1, 2, 3, 4, 2**40, b"uid 7", 9, b"host a"),
            b"",
            None,
        ),
        (
            lambda c: set_quota(
                c,
                (AccountKind.IDENTITY, "spiffe://x/a"),
                Quota({"qps": 4}, {"legs": 9}, 60),
                7,
                last=True,
            ),
            Kind.QUOTA,
            struct.pack(">4I256s", 4, 1, 7, 60, b"spiffe://x/a")
            + struct.pack(">6Q", *[2**64 - 1] * 3, 9, 4, 2**64 - 1)
            + b"\xff" * (10 * 16)
            + bytes(3 * 16),
            b"",
            None,
        ),
        (lambda c: c.stats(), Kind.STATS, b"", struct.pack(">2Q", 5, 2**60), (5, 2**60)),
    ],
)
def test_request_bytes_and_response(pair, call, kind, body, answer, result):
    pair.answering(answer)
    assert call(pair.control) == result
    assert pair.body(kind) == body


def test_init(pair):
    pair.answering(
        struct.pack(
            ">I16sQIII32s64s", QPN, b"e" * 16, 2**23, 4096, 64, 16, b"r" * 32, "näme".encode()
        )
    )
    info = pair.control.init(QPRequest(2, 10, 20, 1500, 256))
    assert pair.body(Kind.INIT) == struct.pack(">IIIII", 2, 10, 20, 1500, 256)
    assert info == control.QPInfo(QPN, b"e" * 16, 2**23, 4096, 64, 16, b"r" * 32, "näme")


def keys(**changes):
    fields = {
        "qpn": QPN, "role": 1, "suite": 1, "level": 3, "tag_len": 16, "mode": 0,
        "secret_len": 16, "generation": b"g" * 8, "peer_eid": b"p" * 16, "peer_qpn": 5,
        "peer_pn": 2**23, "peer_mtu": 4096, "peer_window": 64, "peer_reads": 16,
        "peer_wire": "b", "peer_identity": "spiffe://x/y", "tx_secret": bytearray(b"t" * 16),
        "rx_secret": bytearray(b"r" * 16),
    }  # fmt: skip
    return Keys(**(fields | changes))


def test_keys(pair):
    pair.answering(b"")
    pair.control.keys(keys())
    assert pair.body(Kind.KEYS) == struct.pack(
        ">IBBBBBBH8s16sIQIII64s256s32s32s48s",
        *(QPN, 1, 1, 3, 16, 0, 16, 0, b"g" * 8, b"p" * 16, 5, 2**23, 4096, 64, 16),
        *(b"b", b"spiffe://x/y", b"t" * 16, b"r" * 16, b""),
    )


def test_keys_of_a_group(pair):
    pair.answering(b"")
    pair.control.keys(keys(mode=1, tx_secret=b"", rx_secret=b"", group_key=bytearray(b"k" * 48)))
    assert pair.body(Kind.KEYS)[-112:] == bytes(64) + b"k" * 48


@pytest.mark.parametrize("change", [{"peer_wire": "w" * 64}, {"peer_identity": "i" * 256}])
def test_text_longer_than_its_field_is_refused(pair, change):
    with pytest.raises(LocalError, match="at most"):
        pair.control.keys(keys(**change))


def test_value_out_of_range_is_refused(pair):
    with pytest.raises(LocalError, match="REG_MR: a value does not fit"):
        pair.control.reg_mr(MRRequest(1, 7, -1, 10))


@pytest.mark.parametrize("length", [0, 87, 4585])
def test_token_of_illegal_length_is_not_sent(pair, length):
    with pytest.raises(LocalError, match=f"a token of {length} bytes: a capability has 88 to 4584"):
        pair.control.install(1, bytes(length))
    assert not select.select([pair.far], [], [], 0)[0]


@pytest.mark.parametrize("length", [0, 87, 4585])
def test_response_that_is_not_a_token(pair, length):
    pair.answering(bytes(length))
    with pytest.raises(DeviceError, match=f"answered CAP with {length} bytes"):
        pair.control.capability(EVERYTHING)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.capability(replace(EVERYTHING, expiry=2**32)), "CAP: a value does not fit"),
        (lambda c: c.capability(replace(EVERYTHING, rights=256)), "CAP: a value does not fit"),
        (lambda c: c.key(KeyRequest(QPN, 256, b"", b"", 1)), "KEY: a value does not fit"),
        (lambda c: c.revoke(1, 2, -1, 1), "REVOKE: a value does not fit"),
        (lambda c: c.rotate(1, 2**32), "ROTATE: a value does not fit"),
        (lambda c: c.life(1, 2**32), "LIFE: a value does not fit"),
        (lambda c: c.life(1, -1), "LIFE: a value does not fit"),
        (lambda c: c.keep([1] * 257, b"x"), "KEEP: a value does not fit"),
        (lambda c: c.keep([1], bytes(1025)), "KEEP: a value does not fit"),
        (lambda c: c.adopt(2**64), "ADOPT: a value does not fit"),
        (lambda c: c.restrict("x" * 64, Limits()), "RESTRICT: a value does not fit"),
        (lambda c: c.restrict("x", Limits(legs=2**32)), "RESTRICT: a value does not fit"),
        (lambda c: c.prove(1, bytes(31)), "PROVE with 31 bytes: 32 are needed"),
        (lambda c: c.prove(1, bytes(32), bytes(33)), "PROVE with 33 bytes: 32 are needed"),
        (lambda c: c.uninstall(1, 2**32), "UNINSTALL: a value does not fit"),
        (lambda c: c.install(-1, TOKEN), "INSTALL: a value does not fit"),
        (lambda c: c.attach(bytes(17)), "ATTACH: a value does not fit"),
        (lambda c: c.rekey(1, Direction.TX, 32, bytes(33)), "REKEY: a value does not fit"),
        (lambda c: c.keys(keys(peer_wire="a\0b")), "KEYS: a value does not fit"),
    ],
)
def test_values_out_of_range_are_refused(pair, call, said):
    with pytest.raises(LocalError, match=said):
        call(pair.control)


@pytest.mark.parametrize("holder", [b"h", b"h" * 15, b"h" * 17])
def test_holder_of_wrong_length_is_refused(pair, holder):
    with pytest.raises(LocalError, match="it must have 16 or 0"):
        pair.control.capability(replace(EVERYTHING, holder=holder))


def test_revoke_has_its_own_timeout(pair):
    with pytest.raises(Timeout, match=r"did not answer REVOKE in 0\.01"):
        pair.control.revoke(1, 2, timeout=0.01)


def test_received_secrets_are_wiped_from_the_buffer(pair):
    pair.answering(b"secret-only-here" * 5)
    secret, group = pair.control.key(KeyRequest(QPN, 32, b"g" * 8, b"p" * 16, 5, True))
    assert (len(secret), len(group)) == (32, 48)
    assert b"secret-only-here" not in pair.control._buffer


def test_late_secret_is_wiped(pair):
    with pytest.raises(Timeout):
        pair.control.wait(QPN, 0.01)
    pair.far.send(pair.far.recv(1024)[:8] + struct.pack(">I", 0) + b"secret-only-here")
    assert pair.control.alive()
    assert b"secret-only-here" not in pair.control._buffer


def test_refusal_keeps_the_workers_text(pair):
    pair.answering(b"give less than 4 legs", status=errno.ENOSPC)
    with pytest.raises(RefusedError, match="refused DESTROY: give less than 4 legs") as e:
        pair.control.destroy(QPN)
    assert e.value.errno == errno.ENOSPC


def test_nothing_more_to_adopt(pair):
    pair.answering(b"", status=errno.ENOENT)
    assert pair.control.adopt(5) is None
    pair.thread.join()
    pair.answering(b"send AGENT first", status=errno.EPERM)
    with pytest.raises(RefusedError, match="send AGENT first"):
        pair.control.adopt()


def test_refusal_without_text(pair):
    pair.answering(b"", status=errno.ENOMEM)
    with pytest.raises(RefusedError, match="Cannot allocate memory"):
        pair.control.destroy(QPN)


def test_response_to_an_older_request_is_ignored(pair):
    read, write = os.pipe()
    pair.answering(b"", struct.pack(">II64s", 8, 0, b""), fds=[read])
    assert pair.control.attach(bytes(16)) == 8
    os.close(read)
    os.close(write)


def test_response_of_wrong_length(pair):
    pair.answering(b"abc")
    with pytest.raises(DeviceError, match="answered ATTACH with 3 bytes"):
        pair.control.attach(bytes(16))


@pytest.mark.parametrize("address", [b"\xff", b"a\0b", b"a" * 64])
def test_answer_with_a_text_that_is_not_legal(pair, address):
    pair.answering(struct.pack(">I16s64s", 7, b"t" * 16, address))
    with pytest.raises(DeviceError, match="answered OPEN with 84 bytes"):
        pair.control.open(64)


def test_refusal_with_a_text_that_is_not_legal(pair):
    pair.answering(b"\xff", status=errno.ENOMEM)
    with pytest.raises(RefusedError, match="refused DESTROY: Cannot allocate memory"):
        pair.control.destroy(QPN)


def test_end_of_the_worker(pair):
    assert pair.control.alive()
    pair.far.close()
    assert not pair.control.alive()
    with pytest.raises(WorkerGone):
        pair.control.destroy(QPN)


def test_end_of_the_worker_while_waiting(pair):
    threading.Timer(0.05, pair.far.close).start()
    with pytest.raises(WorkerGone):
        pair.control.wait(QPN, 5.0)


def test_timeout_then_the_late_response_is_dropped(pair):
    with pytest.raises(Timeout, match="did not answer WAIT in 0"):
        pair.control.wait(QPN, 0.01)
    pair.far.send(pair.far.recv(1024)[:8] + struct.pack(">III", 0, 3, 0))
    assert pair.control.alive()  # reads the late response, so that no thread wakes for it again
    with pytest.raises(BlockingIOError):
        pair.control._sock.recv(1)


def test_late_response_is_wiped(pair, monkeypatch):
    """It may be that of KEY, with a secret."""
    late, usual = [], Control._receive
    monkeypatch.setattr(Control, "_receive", lambda self: late.append(usual(self)) or late[-1])
    pair.far.send(b"key material")
    assert pair.control.alive()
    assert late == [(bytes(12), [])]


def test_closed(pair):
    pair.control.close()
    with pytest.raises(ClosedError):
        pair.control.stats()
    assert not pair.control.alive()


def test_many_threads_get_their_own_responses(worker):
    worker.handlers[REG_MR] = lambda leg, body, fds: (body[:4], [])
    connection = Control.connect(worker.path)
    wrong: list[int] = []

    def ask(n: int) -> None:
        for i in range(n, n + 50):
            if connection.reg_mr(MRRequest(i, 0, 0, 0)) != i:
                wrong.append(i)

    threads = [threading.Thread(target=ask, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connection.close()
    assert not wrong


# Finding a worker --------------------------------------------------------------


def test_no_worker_is_named(monkeypatch):
    monkeypatch.delenv("SRDMA_WORKER", raising=False)
    with pytest.raises(NoWorkerError, match=r"SRDMA_WORKER.*srdma-offload"):
        socket_path()


def test_paths(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.setenv("SRDMA_WORKER", "nic0")
    assert str(socket_path()) == "/run/user/7/srdma/nic0.sock"
    assert str(socket_path("other")) == "/run/user/7/srdma/other.sock"
    assert socket_path(tmp_path / "x") == tmp_path / "x"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with pytest.raises(NoWorkerError, match="XDG_RUNTIME_DIR"):
        socket_path("nic0")


def test_no_worker_at_the_path(tmp_path):
    with pytest.raises(NoWorkerError, match=r"start one: srdma-offload --control .*none.sock"):
        Control.connect(tmp_path / "none.sock")


def test_socket_left_by_a_dead_worker(tmp_path):
    worker = FakeWorker(tmp_path / "w.sock")
    worker.close()
    with pytest.raises(NoWorkerError, match=r"the worker at .* has ended"):
        Control.connect(worker.path)


def test_path_that_is_not_a_worker_socket(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NoWorkerError):
        Control.connect(tmp_path / "file")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(tmp_path / "stream"))
        other.listen()
        with pytest.raises(NoWorkerError, match="no worker's control socket"):
            Control.connect(tmp_path / "stream")


def test_path_too_long(tmp_path):
    with pytest.raises(NoWorkerError, match="too long"):
        Control.connect(tmp_path / ("x" * 200))


def test_worker_of_another_user(tmp_path, monkeypatch):
    """Another user's process that managed to bind the path must not get secrets and memory."""
    path, user, nobody = tmp_path / "w.sock", os.geteuid(), 65534
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(os.fspath(path))
        if user == 0:
            os.seteuid(nobody)
        try:
            server.listen()
        finally:
            os.seteuid(user)
        Control.connect(path).close()  # of the same user, or this process is root
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(NoWorkerError, match="this process is of user 12345"):
            Control.connect(path)


def test_repr_shows_no_secrets():
    secret, token = b"s" * 32, b"t" * 16
    keys = Keys(
        1, 0, 1, 3, 16, 0, 16, bytes(8), bytes(16), 2, 3, 256, 1, 1, "w", "i", *[secret] * 3
    )
    shown = repr(keys) + str(keys) + repr(control.LegInfo(1, token, ""))
    assert "ssss" not in shown and "tttt" not in shown


def test_refusals_of_a_worker_leave_the_connection_usable(worker):
    def refuse(leg, body, fds):
        raise Refuse(errno.EPERM, "not you")

    worker.handlers[OPEN] = worker.handlers[DEREG_MR] = refuse
    connection = Control.connect(worker.path)
    with pytest.raises(RefusedError, match="not you"):
        connection.open(64)
    with pytest.raises(RefusedError, match="not you"):
        connection.dereg_mr(1, 1)
    assert connection.stats() == (5, 6, 7)
    assert worker.kinds() == [OPEN, DEREG_MR, STATS]
    connection.close()
