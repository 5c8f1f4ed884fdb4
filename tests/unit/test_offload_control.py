"""The control socket of the daemon: every message, every refusal (local-interface.md 3)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from srdma.control.client import Control
from tests.daemon import (
    BINARY,
    ERR,
    HEADER,
    LENGTHS,
    MAX_MESSAGE,
    PAGE,
    PATIENCE,
    RING,
    RTS,
    TOKEN_MAX,
    TOKEN_MIN,
    Client,
    Kind,
    Qp,
    RefusedError,
    Worker,
    keys,
    leg_fds,
    leg_size,
    memfd,
    reg_mr,
    text,
    u32,
    until,
    worker,
)
from tests.lingering import LINGER, inside, lingering, release
from tests.native import bindings

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

PEER_CLOSED, PEER_HOST_GONE, WIRE_LOST = 22, 23, 24
MAPPED = bytes(10) + b"\xff\xff"  # IPv4-mapped: then the IPv4 address


# --- messages -----------------------------------------------------------------------


def test_hello(a: Worker) -> None:
    body, _ = a.client().request(Kind.HELLO, u32(1))
    fields = struct.unpack(">4I64s64s64s32s2I16s", body)
    *head, device, wire, name, suites, threads, thread, gid = fields
    assert head == [1, 0, 1, a.process.pid]
    assert (threads, thread, gid) == (1, 0, bytes(16))
    assert (device, wire, name) == (text("shm", 64), text("a", 64), text("a", 64))
    found = list(suites.rstrip(b"\0"))
    table = {row["id"]: row["recommended"] for row in bindings.suites()}
    assert sorted(found) == sorted(table)
    assert [table[i] for i in found] == sorted(table.values(), reverse=True)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="OPENSSL_ia32cap is of x86")
# review A44
def test_chacha_is_preferred_without_aes_hardware(tmp_path: Path) -> None:
    """A44: AES by tables leaks by the cache. It is also slower, and the fastest suite is first."""
    masked = "~0x200000200000000:~0x60000000000"  # AES-NI, PCLMULQDQ; VAES, VPCLMULQDQ
    with worker(tmp_path, "c", "--provider", "openssl", OPENSSL_ia32cap=masked) as found:
        body, _ = found.client().request(Kind.HELLO, u32(1))
    suites = list(body[16 + 3 * 64 :][:32])
    aead = {row["id"]: row["name"] for row in bindings.suites() if 3 in row["levels"]}
    assert next(aead[i] for i in suites if i in aead) == "chacha20-poly1305"


@pytest.mark.parametrize(
    ("options", "gid"),
    [
        ([], bytes(16)),
        (["--gid", "10.0.0.7"], MAPPED + bytes([10, 0, 0, 7])),
        (["--gid", "::ffff:10.0.0.7"], MAPPED + bytes([10, 0, 0, 7])),
        (["--gid", "2001:db8::7"], ip_address("2001:db8::7").packed),
        (["--wire-dev", "udp", "--wire-listen", "127.0.0.78:0"], MAPPED + bytes([127, 0, 0, 78])),
    ],
    ids=["none", "IPv4", "mapped", "IPv6", "listen"],
)
def test_gid(tmp_path: Path, options: list[str], gid: bytes) -> None:
    with worker(tmp_path, "g", *options, "--workers", "2") as found:
        for path in (found.control, Path(f"{found.control}.1")):
            with contextlib.closing(Control.connect(path)) as control:
                assert control.hello().gid == gid


def test_hello_has_the_flag_of_allow_unprotected(tmp_path: Path) -> None:
    with worker(tmp_path, "u", "--allow-unprotected") as found:
        body, _ = found.client().request(Kind.HELLO, u32(1))
        assert body[4:8] == u32(1)


def test_other_versions_are_refused(a: Worker) -> None:
    said = a.client().refused(errno.EPROTONOSUPPORT, Kind.HELLO, u32(2))
    assert "version 2" in said and "version 1" in said


@pytest.mark.parametrize("kind", LENGTHS, ids=lambda k: k.name)
def test_bodies_of_wrong_length_are_refused(a: Worker, kind: Kind) -> None:
    client = a.client()
    most = least = LENGTHS[kind]
    right = f"{least}"
    if kind is Kind.INSTALL:
        most += TOKEN_MAX - TOKEN_MIN
        right = f"{least} to {most}"
    for length in {0, 1, least - 1, most + 1, MAX_MESSAGE - HEADER.size} - {least, -1}:
        said = client.refused(errno.EPROTO, kind, bytes(length))
        assert said == f"{kind.name} has a body of {right} bytes, not {length}"


@pytest.mark.parametrize(
    ("kind", "at", "size"),
    [
        (Kind.REG_MR, 42, 2),
        (Kind.KEYS, 10, 2),
        (Kind.KEY, 6, 2),
        (Kind.CAP, 29, 3),
        (Kind.REKEY, 6, 2),
        (Kind.PROVE, 5, 3),
    ],
)
def test_reserved_fields_must_be_zero(a: Worker, kind: Kind, at: int, size: int) -> None:
    client = a.client()
    for i in range(size):
        body = bytearray(LENGTHS[kind])
        body[at + i] = 1
        assert "a reserved field is not zero" in client.refused(errno.EPROTO, kind, bytes(body))


@pytest.mark.parametrize("kind", [0, max(Kind) + 1, 0xFFFF])
def test_unknown_kinds(a: Worker, kind: int) -> None:
    assert f"accepts 1 to {max(Kind)}" in a.client().refused(errno.EOPNOTSUPP, kind, b"x" * 30)


@pytest.mark.parametrize("flags", [2, 3, 0x80000000, 0xFFFFFFFF])
def test_unknown_flags_of_open(a: Worker, flags: int) -> None:
    said = a.client().refused(errno.EINVAL, Kind.OPEN, u32(RING, flags), leg_fds())
    assert said == f"OPEN with flags 0x{flags:x}: give 0, or 1 for a trust group"


def test_request_with_a_status_is_refused(a: Worker) -> None:
    client = a.client()
    client.send_raw(HEADER.pack(Kind.STATS, 0, 7, 1))
    assert client.receive()[:3] == (Kind.STATS, 7, errno.EPROTO)
    assert client.alive()


@pytest.mark.parametrize(
    "data", [b"\0", bytes(11), HEADER.pack(Kind.STATS, 1, 0, 0), b"\xff" * 100], ids=len
)
def test_broken_headers_end_the_connection(a: Worker, data: bytes) -> None:
    client = a.client()
    client.send_raw(data)
    assert client.closed()
    assert a.client().alive()


def test_too_long_request_is_refused(a: Worker) -> None:
    client = a.client()
    client.send_raw(HEADER.pack(Kind.STATS, 0, 7, 0) + bytes(10_000))
    assert client.receive()[:3] == (Kind.STATS, 7, errno.EPROTO)
    assert client.alive()


def test_garbage_is_answered_or_refused(a: Worker) -> None:
    random = Random("garbage")
    client = a.client()
    leg, _ = client.open()
    for _ in range(3000):
        kind = random.randrange(0, max(Kind) + 2)
        length = LENGTHS.get(kind, 0) if random.random() < 0.9 else random.randrange(8181)
        body = random.choice([bytes, random.randbytes])(length)
        if random.random() < 0.5:
            body = (u32(leg) + body[4:])[:length]  # so that some pass the first checks
        tag = client.send(kind, body)
        assert client.receive()[:2] == (kind, tag)
    assert client.alive()


# --- descriptors --------------------------------------------------------------------


def count_fds(found: Worker) -> int:
    try:
        return len(os.listdir(f"/proc/{found.process.pid}/fd"))
    except PermissionError:
        pytest.skip("the worker is not dumpable: only root may count its descriptors")


def test_too_many_descriptors(a: Worker) -> None:
    client = a.client()
    assert client.alive()  # the worker has accepted it now
    before = count_fds(a)
    extra = [memfd(PAGE) for _ in range(6)]
    for kind in LENGTHS:
        for n in range(1, 7):
            if (kind, n) in ((Kind.OPEN, 3), (Kind.REG_MR, 1)):
                continue
            said = client.refused(errno.EPROTO, kind, bytes(LENGTHS[kind]), extra[:n])
            assert "file descriptors" in said
    client.refused(errno.EPROTO, Kind.OPEN, u32(RING, 0))  # no descriptors
    client.refused(errno.EOPNOTSUPP, 99, b"", extra)
    assert count_fds(a) == before


def test_refused_open_keeps_no_descriptor(a: Worker) -> None:
    client = a.client()
    assert client.alive()  # the worker has accepted it now
    before = count_fds(a)
    good = leg_fds()
    client.refused(errno.EINVAL, Kind.OPEN, u32(100, 0), good)  # not a power of two
    client.refused(errno.EINVAL, Kind.OPEN, u32(32, 0), good)
    client.refused(errno.EINVAL, Kind.OPEN, u32(1 << 17, 0), good)
    small, loose = memfd(PAGE), memfd(leg_size(RING), seals=0)
    for fds in ([small, *good[1:]], [loose, *good[1:]], [good[0], small, good[2]]):
        with pytest.raises(RefusedError):
            client.request(Kind.OPEN, u32(RING, 0), fds)
    assert client.alive() and count_fds(a) == before


@pytest.mark.parametrize("make", [lingering, inside])
@pytest.mark.parametrize("where", ["refused", "many", "wake-up", "unread"])
def test_file_whose_close_blocks(a: Worker, make: Callable[[], socket.socket], where: str) -> None:
    """The worker serves others while the kernel closes a file that a program passed."""
    hostile, other = a.client(), a.client()
    _, token = other.open()
    file = make()
    match where:
        case "refused":
            send(hostile, Kind.HELLO, u32(1), [file.fileno()])
        case "many":  # more than any kind takes
            send(hostile, Kind.HELLO, u32(1), [memfd(PAGE)] * 9 + [file.fileno()])
        case "wake-up":
            fds = leg_fds()
            send(hostile, Kind.OPEN, u32(RING, 0), [fds[0], file.fileno(), fds[2]])
        case "unread":  # behind a message that ends the connection
            hostile.socket.send(b"x")
            with contextlib.suppress(BrokenPipeError):  # the worker was quicker
                send(hostile, Kind.HELLO, u32(1), [file.fileno()])
    file.close()
    hostile.close()
    other.socket.settimeout(LINGER / 2)  # a worker that closes the file itself answers later
    for _ in range(100):
        other.attach(token)
        time.sleep(0.001)
    release()


def send(client: Client, kind: Kind, body: bytes, fds: list[int]) -> None:
    """Sends a request, and does not wait for its answer."""
    message = struct.pack(">HHII", kind, 0, 1, 0) + body
    socket.send_fds(client.socket, [message], fds)


def test_end_of_a_leg_closes_its_descriptors(a: Worker) -> None:
    client = a.client()
    assert client.alive()
    before = count_fds(a)
    for _ in range(5):
        other = a.client()
        other.open()
        assert count_fds(a) > before
        other.close()
    until(lambda: count_fds(a) == before)


# --- legs and connections that may use them -----------------------------------------


def test_legs_have_distinct_ids_and_tokens(a: Worker) -> None:
    client = a.client()
    found = [client.open() for _ in range(4)]
    assert len({leg for leg, _ in found}) == len({token for _, token in found}) == 4


def test_only_connections_of_a_leg_may_use_it(a: Worker) -> None:
    owner, other = a.client(), a.client()
    leg, _ = owner.open()
    qp = owner.init(leg)
    key = owner.number(Kind.REG_MR, reg_mr(leg), [memfd(PAGE)])
    for kind, body in (
        (Kind.INIT, u32(leg, 16, 16, 0, 0)),
        (Kind.REG_MR, reg_mr(leg)),
        (Kind.DEREG_MR, u32(leg, key)),
        (Kind.WAIT, u32(qp.qpn)),
        (Kind.DESTROY, u32(qp.qpn)),
        (Kind.KEYS, keys(qp, qp, 0)),
        (Kind.KEY, u32(qp.qpn) + bytes(32)),
        (Kind.CAP, u32(leg, key) + bytes(40)),
        (Kind.INSTALL, u32(leg) + bytes(88)),
        (Kind.UNINSTALL, u32(leg, 1)),
        (Kind.REVOKE, u32(leg, key) + bytes(16)),
        (Kind.ROTATE, u32(leg, 0)),
        (Kind.REKEY, u32(qp.qpn) + bytes(36)),
        (Kind.EXPIRE, u32(qp.qpn)),
        (Kind.LIFE, u32(qp.qpn, 1)),
        (Kind.END, u32(qp.qpn, PEER_CLOSED)),
        (Kind.SHARE, u32(qp.qpn, qp.qpn)),
        (Kind.REPLACE, u32(leg, key, key + 1)),
        (Kind.RESET, u32(qp.qpn, 0)),
        (Kind.REINIT, u32(qp.qpn, 1, 1, 0, 0)),
    ):
        assert "this connection" in other.refused(errno.EPERM, kind, body)
    owner.request(Kind.DESTROY, u32(qp.qpn))


def test_reset_waits_for_descriptors(a: Worker) -> None:
    """RESET is answered later, and refused if the host lies; REINIT keeps the QPN."""
    client = a.client()
    leg, _ = client.open()
    qp, lying = client.init(leg), client.init(leg)
    client.request(Kind.RESET, u32(qp.qpn, 0))
    client.request(Kind.RESET, u32(qp.qpn, 0))
    client.send(Kind.RESET, u32(lying.qpn, 1))
    answer, _ = client.request(Kind.REINIT, u32(qp.qpn, 16, 8, 0, 0))
    assert (len(answer), answer[:4]) == (140, u32(qp.qpn))
    assert "was not reset" in client.refused(errno.EINVAL, Kind.REINIT, u32(lying.qpn, 16, 8, 0, 0))
    client.request(Kind.DESTROY, u32(qp.qpn))
    assert client.refused(errno.ENOENT, Kind.REINIT, u32(qp.qpn, 16, 8, 0, 0))
    client.request(Kind.RESET, u32(lying.qpn, 0))
    *_, status, text, _ = client.receive()
    assert status == errno.ECANCELED and b"a newer RESET" in text


def test_attached_connection_may_use_the_leg(a: Worker) -> None:
    owner, other = a.client(), a.client()
    leg, token = owner.open()
    qp = owner.init(leg)
    assert "no leg has this token" in other.refused(errno.EPERM, Kind.ATTACH, bytes(16))
    assert other.attach(token) == leg
    other.send(Kind.WAIT, u32(qp.qpn))
    other.request(Kind.DESTROY, u32(other.init(leg).qpn))
    other.close()  # does not end the leg
    assert owner.init(leg).qpn != qp.qpn


def test_end_of_the_owner_ends_the_leg(a: Worker) -> None:
    owner, other = a.client(), a.client()
    leg, token = owner.open()
    qp = owner.init(leg)
    other.attach(token)
    tag = other.send(Kind.WAIT, u32(qp.qpn))
    owner.close()
    kind, got, status, _, _ = other.receive()
    assert (kind, got, status) == (Kind.WAIT, tag, errno.ECONNRESET)
    other.refused(errno.EPERM, Kind.INIT, u32(leg, 16, 16, 0, 0))
    other.refused(errno.ENOENT, Kind.DESTROY, u32(qp.qpn))
    other.refused(errno.EPERM, Kind.ATTACH, token)


# --- memory regions and QPs ---------------------------------------------------------


def test_memory_region(a: Worker) -> None:
    client = a.client()
    leg, _ = client.open()
    fd = memfd(PAGE)
    first, second = (client.number(Kind.REG_MR, reg_mr(leg), [fd]) for _ in range(2))
    assert first and second and first != second
    assert client.request(Kind.DEREG_MR, u32(leg, first)) == (b"", [])
    client.refused(errno.ENOENT, Kind.DEREG_MR, u32(leg, first))
    client.refused(errno.ENOENT, Kind.DEREG_MR, u32(leg, second ^ 1))


def test_memory_region_refusals(a: Worker) -> None:
    client = a.client()
    leg, _ = client.open()
    fd = memfd(PAGE)
    assert "memfd" in client.refused(errno.EINVAL, Kind.REG_MR, reg_mr(leg, offset=PAGE))
    client.refused(errno.EINVAL, Kind.REG_MR, reg_mr(leg, length=0), [fd])
    client.refused(errno.EOPNOTSUPP, Kind.REG_MR, reg_mr(leg, access=16), [fd])
    client.refused(errno.EINVAL, Kind.REG_MR, reg_mr(leg, access=8), [fd])
    for body in (reg_mr(leg, length=2 * PAGE), reg_mr(leg, offset=PAGE)):
        with pytest.raises(RefusedError):
            client.request(Kind.REG_MR, body, [fd])
    assert client.alive()


def test_memory_without_a_descriptor_is_probed(a: Worker) -> None:
    client = a.client()
    leg, _ = client.open()
    body = reg_mr(leg, access=1)  # not mapped in this process
    with pytest.raises(RefusedError, match="first or last byte"):
        client.request(Kind.REG_MR, body)


def test_reused_pid_of_a_dead_process_is_detected(a: Worker) -> None:
    """The process that connected has ended, and another process has its pid. The leg must not
    access the memory of that process."""
    memory = mmap.mmap(-1, PAGE)  # at the same address in the child processes below
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    dead, fd = connected_and_dead(a.control)
    victim = fork_as(dead)
    try:
        client = Client.of(socket.socket(fileno=fd))
        a.clients.append(client)
        leg, _ = client.open()
        body = reg_mr(leg, access=1, address=address)
        assert "use pd.alloc()" in client.refused(errno.ESRCH, Kind.REG_MR, body)
        assert client.number(Kind.REG_MR, reg_mr(leg), [memfd(PAGE)])
    finally:
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)


def connected_and_dead(path: Path) -> tuple[int, int]:
    """Returns the pid of a process that connected, passed its socket on and
    ended; and that socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.connect(str(path))
                socket.send_fds(theirs, [b"!"], [s.fileno()])
            os._exit(0)
        fd = socket.recv_fds(ours, 1, 1)[1][0]
    os.waitpid(pid, 0)
    return pid, fd


def fork_as(pid: int) -> int:
    """Forks a process with this pid that only sleeps. Returns the pid."""
    for _ in range(100):
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        except OSError:
            pytest.skip("pids cannot be chosen here")
        found = os.fork()
        if found == 0:
            while True:
                signal.pause()
        if found == pid:
            return found
        os.kill(found, signal.SIGKILL)
        os.waitpid(found, 0)
    pytest.skip("the pid was taken")


def test_init(a: Worker) -> None:
    client = a.client()
    leg, _ = client.open()
    first, second = client.init(leg), client.init(leg)
    assert first.eid == second.eid and first.qpn != second.qpn
    assert first.random != second.random
    assert 0 < first.qpn < 1 << 24 and 1 << 23 <= first.pn < 1 << 24
    assert (first.mtu, first.reads, first.wire) == (4096, 16, "a")
    assert first.window == 480  # of 512, limited by its 1,024 buffers
    client.refused(errno.EINVAL, Kind.INIT, u32(leg, 0, 16, 0, 0))
    client.refused(errno.EINVAL, Kind.INIT, u32(leg, 16, 16, 600_001, 0))
    client.refused(errno.EINVAL, Kind.INIT, u32(leg, 16, 16, 0, 255))
    assert "ring" in client.refused(errno.ENOSPC, Kind.INIT, u32(leg, 128, 128, 0, 0))


def test_limits_come_from_the_options(tmp_path: Path) -> None:
    with worker(tmp_path, "c", "--mtu", "1024", "--window", "32", "--reads", "4") as found:
        client = found.client()
        qp = client.init(client.open()[0])
        assert (qp.mtu, qp.window, qp.reads) == (1024, 32, 4)


def test_keys_refusals(a: Worker) -> None:
    client = a.client()
    leg, _ = client.open()
    qp = client.init(leg)
    for changes, status in (
        ({"qpn": qp.qpn ^ 1}, errno.ENOENT),
        ({"level": 0, "suite": 0, "tag": 0, "secret": 0}, errno.EPERM),
        ({"mtu": 0}, errno.EINVAL),
        ({"identity": b"\xff"}, errno.EPROTO),
        ({"identity": b"x" * 256}, errno.EPROTO),
        ({"suite": 0x08}, None),
        ({"mode": 1}, None),
        ({"secret": 32}, None),
        ({"tag": 12}, None),
    ):
        with pytest.raises(RefusedError) as caught:
            client.request(Kind.KEYS, keys(qp, qp, 1, **changes))
        assert status in (None, caught.value.status), (changes, caught.value)
    client.request(Kind.KEYS, keys(qp, qp, 1))
    assert "already" in client.refused(errno.EISCONN, Kind.KEYS, keys(qp, qp, 1))


def test_peer_without_a_worker(a: Worker) -> None:
    client = a.client()
    qp = client.init(client.open()[0])
    with pytest.raises(RefusedError, match="wire to nobody"):
        client.request(Kind.KEYS, keys(qp, qp, 0, wire="nobody"))
    assert client.alive()


# --- delayed responses --------------------------------------------------------------


def test_later_requests_overtake_a_wait(a: Worker) -> None:
    client = a.client()
    qp = client.init(client.open()[0])
    waiting = client.send(Kind.WAIT, u32(qp.qpn))
    assert client.alive()  # this response overtakes that of WAIT
    destroy = client.send(Kind.DESTROY, u32(qp.qpn))
    answers = {answer[1]: answer for answer in (client.receive(), client.receive())}
    assert answers[destroy][2] == 0
    assert answers[waiting][2] == errno.ENOENT and b"destroyed" in answers[waiting][3]


def test_number_of_waiting_requests_is_limited(a: Worker) -> None:
    client = a.client()
    qp = client.init(client.open()[0])
    for _ in range(1024):
        client.send(Kind.WAIT, u32(qp.qpn))
    with pytest.raises(RefusedError, match="1024 requests"):
        client.wait(qp.qpn)
    client.send_raw(HEADER.pack(Kind.STATS, 0, 0, 0))
    assert client.receive()[2] == errno.EBUSY


def test_client_that_does_not_read(a: Worker) -> None:
    client = a.client()
    client.socket.setblocking(False)
    sent = 0
    while select.select([], [client.socket], [], 0.3)[1]:
        client.send(Kind.STATS)
        sent += 1
    assert sent > 64  # the queue and the socket were full
    assert a.client().alive()
    client.socket.settimeout(PATIENCE)
    assert [client.receive()[1] for _ in range(sent)] == list(range(1, sent + 1))
    assert client.alive()


def test_client_that_closes_with_unread_responses(a: Worker) -> None:
    client = a.client()
    leg, _ = client.open()
    for _ in range(40):
        client.send(Kind.STATS)
    client.send(Kind.WAIT, u32(client_init_unread(client, leg)))
    client.close()
    assert a.client().alive()


def client_init_unread(client: Client, leg: int) -> int:
    """Sends INIT after other requests, and reads the responses up to its own. Returns the QPN."""
    tag = client.send(Kind.INIT, u32(leg, 1, 1, 0, 0))
    while True:
        _, got, _, body, _ = client.receive()
        if got == tag:
            return Qp.of(body).qpn


# --- two workers --------------------------------------------------------------------


def connect(a: Client, b: Client) -> tuple[Qp, Qp]:
    """Makes a QP on each, gives both their keys, and waits until both are in RTS."""
    one, two = a.init(a.open()[0]), b.init(b.open()[0])
    b.request(Kind.KEYS, keys(two, one, 1))
    a.request(Kind.KEYS, keys(one, two, 0))
    assert a.wait(one.qpn) == b.wait(two.qpn) == (RTS, 0)
    return one, two


def ended(client: Client, qpn: int) -> int:
    """Waits until the QP is in error. Returns the reason."""
    until(lambda: client.wait(qpn)[0] == ERR)
    return client.wait(qpn)[1]


def test_connection(a: Worker, b: Worker) -> None:
    one, two = connect(a.client(), b.client())
    first, second = a.clients[0], b.clients[0]
    assert first.request(Kind.DESTROY, u32(one.qpn)) == (b"", [])
    assert ended(second, two.qpn) == PEER_CLOSED
    assert second.request(Kind.DESTROY, u32(two.qpn)) == (b"", [])
    first.refused(errno.ENOENT, Kind.WAIT, u32(one.qpn))


def test_dead_host_ends_the_peer_qp(a: Worker, b: Worker) -> None:
    _, two = connect(a.client(), b.client())
    a.clients[0].close()
    assert ended(b.clients[0], two.qpn) == PEER_HOST_GONE


@pytest.mark.parametrize("reason", [PEER_CLOSED, PEER_HOST_GONE, WIRE_LOST])
def test_end_request_sets_the_reason(a: Worker, b: Worker, reason: int) -> None:
    one, two = connect(a.client(), b.client())
    a.clients[0].request(Kind.END, u32(one.qpn, reason))
    assert ended(a.clients[0], one.qpn) == reason
    a.clients[0].request(Kind.END, u32(one.qpn, WIRE_LOST))  # repeated: no effect
    assert ended(a.clients[0], one.qpn) == reason
    assert b.clients[0].wait(two.qpn)[0] == RTS
    for wrong in (0, PEER_CLOSED - 1, WIRE_LOST + 1, 255):
        b.clients[0].refused(errno.EINVAL, Kind.END, u32(two.qpn, wrong))


@pytest.mark.parametrize(
    ("sign", "reason"), [(signal.SIGTERM, PEER_CLOSED), (signal.SIGKILL, WIRE_LOST)]
)
def test_end_of_a_worker_ends_the_qps_of_its_peers(
    tmp_path: Path, a: Worker, sign: int, reason: int
) -> None:
    with worker(tmp_path, "impatient", "--ping", "0.2", "--silence", "0.4") as b:
        _, two = connect(a.client(), b.client())
        a.stop(sign)
        assert ended(b.clients[0], two.qpn) == reason
        assert b.client().alive()


def test_secrets_are_neither_logged_nor_kept(a: Worker, b: Worker) -> None:
    secrets = b"-tx secret-only-", b"-rx secret-only-"
    client, other = a.client(), b.client()
    one, two = client.init(client.open()[0]), other.init(other.open()[0])
    client.request(Kind.KEYS, keys(one, two, 1, secrets=secrets))
    client.request(Kind.STATS)  # a later request wipes the buffer of the previous message
    assert "secret-only" not in a.log() and "spiffe://test/peer" in a.log()
    try:
        # Only the session has them. It derives the secrets of the next epoch from them.
        assert [*map(a.copies, secrets)] == [1, 1]
        client.request(Kind.DESTROY, u32(one.qpn))
        assert [*map(a.copies, secrets)] == [0, 0]
    except PermissionError:
        pytest.skip("the worker is not dumpable: only root may read its memory")


def test_connection_of_another_user_is_closed() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        with worker(folder) as found:
            found.control.chmod(0o666)  # so that the mode alone does not refuse it
            assert as_nobody(found.control) == b"closed"
            assert "only user 0 and root may connect" in found.log()


def as_nobody(path: Path) -> bytes:
    """Connects as another user. Returns the outcome: b"closed", b"open" or the error."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setresuid(65534, 65534, 65534)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            try:
                s.connect(str(path))
                os.write(write_end, b"closed" if s.recv(1) == b"" else b"open")
            except OSError as e:
                os.write(write_end, str(e).encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(pid, 0)
    found = os.read(read_end, 100)
    os.close(read_end)
    return found
