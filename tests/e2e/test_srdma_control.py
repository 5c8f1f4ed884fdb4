"""srdma-control, and the proxy that forwards to it (control-link.md 7). The worker has shared
memory to its hosts: legs over RDMA are in tests/rxe."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import errno
import fcntl
import itertools
import json
import os
import re
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import cbor2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from srdma.agent.access import Passed, worker_connection
from srdma.agent.client import SystemAgent
from srdma.agent.remote.link import BODY_MAX, Type
from srdma.control import Control, Limits, thread_path
from srdma.errors import DeviceError, RefusedError, WorkerGone
from srdma.identity import (
    Credentials,
    IdentityError,
    Validity,
    create_ca,
    issue,
    parse_certificates,
    parse_key,
)
from srdma.keyex.fields import ExchangeError
from srdma.keyex.tls import Truncated
from tests import daemon
from tests.control_players import HELLO, RawPeer, illegal_frames
from tests.daemon import HEADER, MAX_MESSAGE, Kind, until
from tests.e2e.agents import revoke, start
from tests.e2e.conftest import WAIT
from tests.e2e.nic import LEFT, NIC, Proxy, make_files
from tests.e2e.small_nic import CONTROL, SmallNic, options_of, run, small_nic
from tests.ports import free_port

pytestmark = pytest.mark.skipif(not CONTROL.exists(), reason="built without srdma-control")

UNKNOWN = 999  # kind of a request that no worker has
QUESTION = HEADER.pack(Kind.HELLO, 0, 7, 0) + struct.pack(">I", 1)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[daemon.Worker]:
    with daemon.worker(tmp_path) as worker:
        yield worker


@pytest.fixture
def nic(worker: daemon.Worker, tmp_path: Path) -> Iterator[SmallNic]:
    make_files(tmp_path)
    with small_nic(tmp_path, worker.control) as nic:
        yield nic


def gone(control: Control) -> bool:
    """True once the connection has ended."""
    try:
        control.hello(WAIT)
    except WorkerGone:
        return True
    return False


def end_of(peer: RawPeer, number: int) -> dict[str, str]:
    """The reason for which the agent ended a stream. Frames before are dropped."""
    while (frame := peer.take())[1] != Type.END:
        pass
    assert frame[0] == number
    return dict(cbor2.loads(frame[2]))


def refused(peer: RawPeer) -> dict[str, str]:
    """The reason for which the agent ended the link."""
    while (frame := peer.take())[1] != Type.REFUSED:
        assert frame[1] in (Type.OPENED, Type.HELLO, Type.DATA, Type.END)
    assert frame[0] == 0
    return dict(cbor2.loads(frame[2]))


# Programs of the host ------------------------------------------------------


def test_worker_of_the_nic(nic: SmallNic) -> None:
    """The worker answers as on one machine."""
    proxy = nic.proxy()
    assert [line["event"] for line in proxy.lines] == ["linked", "started"]
    control = nic.connect(proxy)
    with contextlib.closing(Control.connect(nic.worker)) as here:
        assert control.hello() == here.hello()
    assert len(control.stats()) > 50
    assert control.alive()
    linked = nic.said("linked")
    assert (linked["computer"], linked["ahead"]) == (socket.gethostname(), 0)
    assert os.stat(proxy.socket).st_mode & 0o777 == 0o600


def test_role_of_the_agent(nic: SmallNic) -> None:
    """All connections are of one process. No other process may have the role meanwhile."""
    proxy = nic.proxy()
    first, second = nic.connect(proxy), nic.connect(proxy)
    first.agent()
    second.agent(attached=True)
    with contextlib.closing(Control.connect(nic.worker)) as here:
        with pytest.raises(RefusedError) as error:
            here.agent()
        assert error.value.errno == errno.EBUSY
        first.close()
        second.close()

        def free() -> bool:
            try:
                here.agent()
            except RefusedError:
                return False
            return True

        until(free)


def test_programs_of_the_host(nic: SmallNic) -> None:
    """The agent on the host gives them restricted connections."""
    agent = start(nic.folder, "a", nic.proxy().socket)
    nic.undo.callback(lambda: agent.process.poll() is None and agent.kill())
    passed = worker_connection(SystemAgent(agent.socket), nic.folder / "proxy.ctl", WAIT)
    control = passed.control
    with contextlib.closing(control):
        with contextlib.closing(Control.connect(nic.worker)) as here:
            assert control.hello() == here.hello()
        with pytest.raises(RefusedError) as error:
            control.expire(77)
        assert error.value.errno == errno.EPERM
        agent.kill()
        assert control.alive()  # it does not depend on the agent


def test_agent_of_a_worker_on_another_computer(nic: SmallNic) -> None:
    """It passes connections that the program makes again, and comes back itself."""
    agent = start(nic.folder, "a", nic.proxy().socket)
    nic.undo.callback(agent.kill)
    agent.change("worker =", "worker_remote = true\nworker =")
    agent.restart(signal.SIGTERM)

    def passed() -> Passed | None:
        try:
            return worker_connection(SystemAgent(agent.socket), nic.folder / "proxy.ctl", WAIT)
        except DeviceError:
            return None

    for _ in range(2):
        while (found := passed()) is None:
            time.sleep(0.05)
        assert found.lasting and not found.remote
        nic.process.kill()
        nic.process.wait()
        while found.control.alive():
            time.sleep(0.05)
        found.control.close()
        assert passed() is None
        nic.start()


def test_accounts_of_the_host(nic: SmallNic) -> None:
    proxy = nic.proxy()
    first, second = nic.connect(proxy), nic.connect(proxy)
    for control in (first, second):
        control.agent()
    first.restrict("uid 1", Limits(connections=1))
    with pytest.raises(RefusedError) as error:
        second.restrict("uid 1", Limits(connections=1))
    assert error.value.errno == errno.EDQUOT


def test_worker_processes(tmp_path: Path) -> None:
    make_files(tmp_path)
    with (
        daemon.worker(tmp_path, "a", "--workers", "3") as worker,
        small_nic(tmp_path, worker.control) as nic,
    ):
        proxy = nic.proxy(processes=3)
        for number in range(3):
            path = thread_path(proxy.socket, number)
            with contextlib.closing(Control.connect(path, WAIT)) as control:
                assert control.hello().thread == number


def test_files_do_not_leave_the_host(nic: SmallNic) -> None:
    control = nic.connect(nic.proxy())
    with socket.socket() as file, pytest.raises(WorkerGone):
        control.open(64, [file.fileno()])


def test_many_streams(nic: SmallNic) -> None:
    proxy = nic.proxy()
    controls = [nic.connect(proxy) for _ in range(300)]
    for control in controls:
        control.hello(WAIT)
    for control in controls[::2]:
        control.close()
    for control in controls[1::2]:
        control.hello(WAIT)


def test_worker_restarts(nic: SmallNic, worker: daemon.Worker) -> None:
    """The end of its connections is that of the streams. The link goes on."""
    proxy = nic.proxy()
    control = nic.connect(proxy)
    control.hello()
    worker.stop(signal.SIGKILL)
    until(lambda: gone(control))
    assert gone(nic.connect(proxy))
    assert proxy.process.stderr
    failed = json.loads(proxy.process.stderr.readline())
    assert (failed["event"], failed["code"]) == ("failed", "worker")
    assert f"worker at {nic.worker} has ended" in failed["text"]
    with daemon.worker(nic.folder):
        assert nic.connect(proxy).hello()
    assert not nic.log("unlinked")


def test_nic_restarts(nic: SmallNic) -> None:
    proxy = nic.proxy()
    control = nic.connect(proxy)
    control.hello()
    nic.stop()
    until(lambda: gone(control))
    nic.start()
    until(lambda: not gone(nic.connect(proxy)))


def test_proxy_without_a_nic(nic: SmallNic) -> None:
    """Connections to the worker end, with the reason in the proxy's log."""
    nic.stop()
    proxy = nic.proxy()
    assert [line["event"] for line in proxy.lines] == ["unlinked", "started"]
    began = time.monotonic()
    assert gone(nic.connect(proxy))
    assert time.monotonic() - began < 3
    assert proxy.process.stderr
    for line in map(json.loads, proxy.process.stderr):
        if line["event"] == "failed":
            break
    assert "no link to the NIC" in line["text"]


def test_end_of_the_proxy(nic: SmallNic) -> None:
    """The worker learns of it: the role of the agent is free again."""
    proxy = nic.proxy()
    nic.connect(proxy).agent()
    proxy.kill()
    assert nic.said("unlinked")["code"] == "unreachable"
    with contextlib.closing(Control.connect(nic.worker)) as here:
        here.agent()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["host", "nic"])
def test_end_that_stops(nic: SmallNic, end: str) -> None:
    """The other end closes the link within 10 s, and its streams. SIGCONT brings a new link."""
    proxy = nic.proxy()
    control = nic.connect(proxy)
    control.agent()
    stopped = proxy.process if end == "host" else nic.process
    stopped.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    if end == "host":
        assert nic.said("unlinked")["text"] == "the other end is silent for 10 s"
        with contextlib.closing(Control.connect(nic.worker)) as here:
            here.agent()
    else:
        assert gone(control)
    assert 5 < time.monotonic() - began < 15
    stopped.send_signal(signal.SIGCONT)
    until(lambda: not gone(nic.connect(proxy)))


@pytest.mark.slow
def test_link_without_requests(nic: SmallNic) -> None:
    """Heartbeats keep it."""
    control = nic.connect(nic.proxy())
    time.sleep(11)
    control.hello()
    assert len(nic.log("linked")) == 1


# Users ---------------------------------------------------------------------

NOBODY, THIRD = 65534, 65532
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder, with the files of make_files(), that other users reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        make_files(folder)
        yield folder


@pytest.fixture
def worker_of_third(open_folder: Path) -> Iterator[Path]:
    """The control socket of a worker of THIRD, whose agent is NOBODY."""
    folder = open_folder / "third"
    folder.mkdir(mode=0o711)
    os.chown(folder, THIRD, THIRD)
    path = folder / "w.ctl"
    command = [daemon.BINARY, "--control", path, "--wire-dev", f"shm:{folder}"]
    process = subprocess.Popen([*command, "--agent-uid", str(NOBODY)], user=THIRD)
    until(path.exists)
    yield path
    process.terminate()
    process.wait(WAIT)


@as_root
@pytest.mark.parametrize("named", [True, False])
def test_worker_of_another_user(open_folder: Path, worker_of_third: Path, named: bool) -> None:
    """--worker-uid names the user whose worker gets the secrets."""
    os.chown(open_folder / "nic.key", NOBODY, NOBODY)
    more = ("--worker-uid", str(THIRD)) if named else ()
    with small_nic(open_folder, worker_of_third, *more, user=NOBODY) as nic:
        peer = nic.greeted()
        peer.frame(1, Type.OPEN, nic.opening)
        if named:
            assert peer.take() == (1, Type.OPENED, b"")
            peer.frame(1, Type.DATA, HEADER.pack(Kind.AGENT, 0, 1, 0) + bytes(4))
            assert HEADER.unpack(peer.take()[2]) == (Kind.AGENT, 0, 1, 0)
        else:
            assert f"the worker is of user {THIRD}" in end_of(peer, 1)["text"]


@as_root
def test_control_sockets_of_the_host_are_for_one_user(
    open_folder: Path, worker: daemon.Worker
) -> None:
    """Even if their files permit more."""
    with small_nic(open_folder, worker.control) as nic:
        proxy = nic.proxy()
        proxy.socket.chmod(0o777)
        refused_by(proxy)


def refused_by(proxy: Proxy) -> None:
    """The proxy closes a connection of another user."""
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "s.connect(sys.argv[1])\n"
        "sys.exit(s.recv(1) == b'')\n"
    )
    command = [sys.executable, "-c", code, str(proxy.socket)]
    assert subprocess.run(command, user=NOBODY, timeout=WAIT).returncode == 1
    assert proxy.process.stderr
    line = json.loads(proxy.process.stderr.readline())
    assert (line["event"], line["uid"], line["code"]) == ("refused", NOBODY, "policy")


# Identities ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "here", "there"),
    [
        ("identity", "not allowed", "not allowed"),
        ("ca", "another CA than the peer's", "local issuer"),
        ("expired", "certificate has expired", "expired"),
        ("early", "not valid yet", "not yet valid: compare the clocks"),
        ("usage", "key usage", "purpose"),
    ],
)
def test_wrong_identities_of_the_host(nic: SmallNic, how: str, here: str, there: str) -> None:
    """Both ends name the reason. here: in the proxy's log; there: of srdma-control."""
    spoil(nic.folder, how, "left", LEFT)
    assert here in str(nic.proxy().lines[0]["text"])
    line = nic.said("refused")
    assert (line["code"], line["address"]) == ("identity", "127.0.0.1")
    assert there in line["text"]


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("identity", "not allowed"),
        ("ca", "another CA"),
        ("expired", "has expired"),
        ("usage", "extended key usage"),
    ],
)
def test_wrong_identities_of_the_nic(nic: SmallNic, how: str, text: str) -> None:
    spoil(nic.folder, how, "nic", NIC)
    assert text in str(nic.proxy().lines[0]["text"])


def spoil(folder: Path, how: str, name: str, uri: str) -> None:
    """Replaces a certificate of make_files() by one that the other end refuses."""
    now = dt.datetime.now(dt.UTC)
    if how == "identity":
        issue(folder, "spiffe://test/somebody-else", folder / name, force=True)
    elif how == "ca":
        create_ca(folder / "foreign", "foreign")
        issue(folder / "foreign", uri, folder / name, force=True)
    elif how == "usage":
        usages = {"left": ExtendedKeyUsageOID.SERVER_AUTH, "nic": ExtendedKeyUsageOID.CLIENT_AUTH}
        certify(folder, name, [x509.UniformResourceIdentifier(uri)], usages[name])
    else:
        start = now + dt.timedelta(days={"expired": -2, "early": 1}[how])
        issue(folder, uri, folder / name, force=True, validity=Validity(1, start))


def certify(folder: Path, name: str, names: list[x509.GeneralName], *usages: object) -> None:
    """Replaces a certificate of make_files() by one with these names and extended key usages."""
    ca = parse_certificates((folder / "ca.pem").read_bytes(), "ca")[0]
    key = parse_key((folder / f"{name}.key").read_bytes(), "key")
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
    )
    if usages:
        made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=False)  # type: ignore
    signed = made.sign(parse_key((folder / "ca.key").read_bytes(), "key"), hashes.SHA256())
    (folder / f"{name}.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


@pytest.mark.parametrize("names", [0, 2])
def test_certificate_without_one_identity(nic: SmallNic, names: int) -> None:
    uris = [x509.UniformResourceIdentifier(f"spiffe://test/{n}") for n in range(names)]
    certify(nic.folder, "left", [x509.DNSName("left"), *uris])
    with pytest.raises(IdentityError):  # a proxy does not use it
        Credentials.named(nic.folder / "left")
    text = refused_raw(nic, "left")
    assert text == nic.said("refused")["text"]
    assert f"a certificate with {names} URIs" in text


@pytest.mark.parametrize("uri", ["left", "spiffe://", "spiffe://test/" + "x" * 250])
def test_certificate_whose_identity_is_malformed(nic: SmallNic, uri: str) -> None:
    certify(nic.folder, "left", [x509.UniformResourceIdentifier(uri)])
    assert "is no identity" in refused_raw(nic, "left")


def refused_raw(nic: SmallNic, name: str) -> str:
    """The text of REFUSED for a peer whose own check of its certificate is left out."""
    files = [(nic.folder / f).read_bytes() for f in (f"{name}.pem", f"{name}.key", "ca.pem")]
    peer = RawPeer(nic.tcp(), "client", Credentials(*files))
    peer.handshake()
    return refused(peer)["text"]


def test_peer_without_certificate_or_protocol(nic: SmallNic) -> None:
    for protocols, text in ((["srdma-control/1"], "did not return"), (["h2"], "protocol")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(protocols)
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(nic.tcp()) as sock:
            assert sock.recv(1) == b""
        until(lambda text=text: text in str(nic.log("refused")))  # type: ignore[misc]


def test_peer_without_alpn(nic: SmallNic) -> None:
    context = ssl.create_default_context(cafile=nic.folder / "ca.pem")
    context.check_hostname = False
    context.load_cert_chain(nic.folder / "left.pem", nic.folder / "left.key")
    with context.wrap_socket(nic.tcp()) as sock:
        frame = sock.recv(1000)
    assert cbor2.loads(frame[9:])["code"] == "tls"
    assert "no version of this protocol" in nic.said("refused")["text"]


def test_older_version_of_tls(nic: SmallNic) -> None:
    context = ssl.create_default_context(cafile=nic.folder / "ca.pem")
    context.check_hostname = False
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(nic.tcp())
    assert "unsupported protocol" in nic.said("refused")["text"]


def test_peer_without_tls(nic: SmallNic) -> None:
    sock = nic.tcp()
    sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
    while sock.recv(100):
        pass
    assert nic.said("refused")["code"] == "tls"


@pytest.mark.parametrize(("last", "text"), [(1, "certificate revoked"), (-1, "CRL has expired")])
def test_revocation_list(nic: SmallNic, last: int, text: str) -> None:
    """It is read again when it was replaced."""
    nic.stop()
    revoke(nic.folder, nic.folder / "right.pem", dt.timedelta(days=1))
    (nic.folder / "crl.pem").rename(nic.folder / "nic.crl")
    nic.more = ("--crl", nic.folder / "nic.crl")
    nic.start()
    proxy = nic.proxy()
    control = nic.connect(proxy)
    control.hello()
    revoke(nic.folder, nic.folder / "left.pem", dt.timedelta(days=last))
    (nic.folder / "crl.pem").rename(nic.folder / "nic.crl")
    control.hello()
    proxy.kill()
    again = nic.proxy()
    assert nic.said("refused")["text"].endswith(text)
    assert again.lines[0]["event"] == "unlinked"


def test_files_that_are_replaced(nic: SmallNic) -> None:
    """They are used for the next link. Files that cannot be used leave the former in force."""
    proxy = nic.proxy()
    (nic.folder / "nic.key").write_text("no key")
    with contextlib.closing(nic.peer().sock):
        assert "nic.key cannot be used" in nic.said("credentials")["text"]
    issue(nic.folder, "spiffe://test/new", nic.folder / "nic", force=True)
    proxy.kill()
    other = nic.proxy()
    assert "spiffe://test/new, which is not allowed" in str(other.lines[0]["text"])
    nic.connect(nic.proxy(peer="spiffe://test/new", file="new")).hello()


def test_clock_of_the_nic(nic: SmallNic) -> None:
    """Certificates cannot be checked by a clock that was never set."""
    tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    issue(nic.folder, NIC, nic.folder / "nic", force=True, validity=Validity(9, tomorrow))
    with pytest.raises((ExchangeError, Truncated)):
        nic.peer()
    line = nic.said("refused")
    assert line["code"] == "clock"
    assert "the clock of the NIC is at" in line["text"]


# Frames --------------------------------------------------------------------

PLACE = {"to": "worker", "uid": 1}


@pytest.mark.parametrize(("frames", "text"), illegal_frames(PLACE))
def test_frames_that_are_not_legal(nic: SmallNic, frames, text) -> None:
    peer = nic.peer()
    for number, kind, body in frames:
        peer.frame(number, kind, nic.opening if body is PLACE else body)
    reason = refused(peer)
    assert text in reason["text"]
    with pytest.raises(ExchangeError):  # close_notify
        peer.take()
    assert nic.said("unlinked")["text"] == reason["text"]


@pytest.mark.parametrize(
    ("opening", "text"),
    [
        ({"to": "worker", "path": "x"}, "OPEN lacks 'uid'"),
        ({"uid": 1, "path": "x"}, "OPEN lacks 'to'"),
        ({"to": "worker", "uid": 1}, "OPEN is to"),
        ({"to": "worker", "uid": 1, "path": 3}, "OPEN is to"),
        ({"to": "host", "uid": 1, "path": "x"}, "OPEN is to"),
        ({"to": "worker", "uid": (1 << 32) - 1, "path": "x"}, "uid is"),
        ({"to": "worker", "uid": "root", "path": "x"}, "uid is"),
        ({"to": "worker", "uid": -1, "path": "x"}, "uid is"),
    ],
)
def test_open_that_is_not_legal(nic: SmallNic, opening, text) -> None:
    peer = nic.greeted()
    peer.frame(1, Type.OPEN, opening)
    assert text in refused(peer)["text"]


def test_frame_that_is_too_long_or_too_short(nic: SmallNic) -> None:
    for message in (bytes(BODY_MAX + 6), b"", bytes(4)):
        peer = nic.greeted()
        peer.say(message)
        peer._flush()
        assert refused(peer)["code"] in ("format", "state")


def test_reason_of_the_peer(nic: SmallNic) -> None:
    nic.peer().frame(0, Type.REFUSED, {"code": "busy", "text": 'too "many"\x07\n'})
    line = nic.said("unlinked")
    assert (line["code"], line["text"]) == ("busy", 'too "many"??')


def test_streams_that_are_refused(nic: SmallNic) -> None:
    """Other streams and the link go on."""
    peer = nic.greeted()
    others = [os.fspath(nic.worker) + end for end in ("x", ".0", ".01", ".64", "/")]
    for number, path in enumerate(["", "/other.ctl", "x" * 300, *others], 1):
        peer.frame(number, Type.OPEN, {**nic.opening, "path": path})
        assert end_of(peer, number)["code"] == "policy"
    peer.frame(9, Type.OPEN, {"to": "agent", "uid": 1})
    reason = end_of(peer, 9)
    assert reason["code"] == "policy" and "no agent" in reason["text"]
    peer.frame(10, Type.OPEN, {**nic.opening, "path": f"{nic.worker}.7"})
    reason = end_of(peer, 10)
    assert reason["code"] == "worker" and "no worker at" in reason["text"]
    peer.frame(10, Type.DATA, b"late")
    peer.frame(10, Type.END)
    peer.frame(11, Type.OPEN, nic.opening)
    assert peer.take() == (11, Type.OPENED, b"")


def test_messages_of_a_stream(nic: SmallNic) -> None:
    peer = nic.greeted()
    peer.frame(1, Type.OPEN, nic.opening)
    peer.frame(2, Type.OPEN, nic.opening)
    assert [peer.take()[:2], peer.take()[:2]] == [(1, Type.OPENED), (2, Type.OPENED)]
    for number in (1, 2, 1):
        peer.frame(number, Type.DATA, QUESTION)
        stream, kind, body = peer.take()
        assert (stream, kind) == (number, Type.DATA)
        assert HEADER.unpack(body[: HEADER.size]) == (Kind.HELLO, 0, 7, 0)
    peer.frame(1, Type.DATA, HEADER.pack(UNKNOWN, 0, 7, 0) + bytes(MAX_MESSAGE - HEADER.size))
    stream, kind, body = peer.take()
    assert HEADER.unpack(body[: HEADER.size])[3] == errno.EOPNOTSUPP
    peer.frame(1, Type.DATA, bytes(MAX_MESSAGE + 1))
    assert "more than 8192 bytes" in end_of(peer, 1)["text"]
    peer.frame(2, Type.DATA, b"short")  # the worker closes the connection
    assert peer.take() == (2, Type.END, b"")
    peer.frame(3, Type.OPEN, nic.opening)
    assert peer.take() == (3, Type.OPENED, b"")
    peer.frame(3, Type.DATA, QUESTION)
    peer.frame(3, Type.END)
    peer.frame(4, Type.OPEN, nic.opening)
    while (frame := peer.take())[0] == 3:
        assert frame[1] == Type.DATA
    assert frame == (4, Type.OPENED, b"")


def test_worker_that_does_not_read(nic: SmallNic, worker: daemon.Worker) -> None:
    """The stream ends, and the messages of another one, which has ended, arrive."""
    peer = nic.greeted()
    for number in (1, 2):
        peer.frame(number, Type.OPEN, nic.opening)
        peer.take()
    peer.frame(2, Type.DATA, HEADER.pack(Kind.AGENT, 0, 1, 0) + bytes(4))
    assert peer.take()[:2] == (2, Type.DATA)
    worker.process.send_signal(signal.SIGSTOP)
    for _ in range(100):
        peer.frame(1, Type.DATA, bytes(MAX_MESSAGE))
    assert "worker does not read" in end_of(peer, 1)["text"]
    for _ in range(20):
        peer.frame(2, Type.DATA, QUESTION + bytes(8000))
    peer.frame(2, Type.END)
    peer.frame(3, Type.OPEN, {"to": "agent", "uid": 1})
    end_of(peer, 3)
    worker.process.send_signal(signal.SIGCONT)
    with contextlib.closing(Control.connect(nic.worker)) as here:
        until(lambda: has_role(here))


def has_role(control: Control) -> bool:
    try:
        control.agent()
    except RefusedError:
        return False
    return True


def test_proxy_that_does_not_read(nic: SmallNic) -> None:
    """The worker is not read until TCP takes bytes again. Nothing is lost."""
    peer = nic.greeted()
    streams = range(1, 5)
    for number in streams:
        peer.frame(number, Type.OPEN, nic.opening)
        assert peer.take() == (number, Type.OPENED, b"")
    stats = HEADER.pack(Kind.STATS, 0, 7, 0)
    asked = 4_500  # 18 MB of answers in all: more than TCP and the limit take together
    for _ in range(asked):
        for number in streams:
            peer.frame(number, Type.DATA, stats)
    got: collections.Counter[int] = collections.Counter()
    while got.total() < asked * len(streams):
        number, kind, body = peer.take()
        assert kind == Type.DATA, cbor2.loads(body)
        assert len(body) > 1000
        got[number] += 1
    assert got == dict.fromkeys(streams, asked)
    assert memory_of(nic) < 64 << 20


def memory_of(nic: SmallNic) -> int:
    """The most bytes of memory that the process used; 0 if it has the memory of a sanitizer."""
    if b"__asan_init" in CONTROL.read_bytes():
        return 0
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{nic.process.pid}/status").read_text())
    return int(line) << 10


def test_proxy_that_reads_no_refusals(nic: SmallNic) -> None:
    """The bytes that wait for it are limited."""
    peer = nic.greeted(receive=4096)
    for number in range(1, 1_000_000):
        peer.frame(number, Type.OPEN, {"to": "agent", "uid": 1})
        if number % 1000 == 0 and nic.log("unlinked"):
            break
    assert nic.said("unlinked")["text"] == "the other end does not read"
    assert memory_of(nic) < 64 << 20


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[socket.socket]:
    """The listening socket of a worker that the test controls."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(os.fspath(tmp_path / "a.ctl"))
        sock.listen(5000)
        sock.settimeout(WAIT)
        yield sock


@pytest.fixture
def fake_nic(fake: socket.socket, tmp_path: Path) -> Iterator[SmallNic]:
    make_files(tmp_path)
    with small_nic(tmp_path, tmp_path / "a.ctl") as nic:
        yield nic


def opened(peer: RawPeer, nic: SmallNic, fake: socket.socket, number: int) -> socket.socket:
    """The worker's end of a new stream."""
    peer.frame(number, Type.OPEN, nic.opening)
    assert peer.take() == (number, Type.OPENED, b"")
    return nic.undo.enter_context(contextlib.closing(fake.accept()[0]))


def fill(conn: socket.socket) -> int:
    """Sends messages of the worker until the link takes no more. Returns their number."""
    conn.settimeout(1)
    for sent in itertools.count():
        try:
            conn.send(bytes(MAX_MESSAGE))
        except TimeoutError:
            return sent
    raise AssertionError


def processed(peer: RawPeer, number: int, conn: socket.socket) -> None:
    """Returns after srdma-control has processed what came before. It ends a stream."""
    peer.frame(number, Type.END)
    assert conn.recv(1) == b""


def test_many_streams_of_a_proxy_that_does_not_read(
    fake_nic: SmallNic, fake: socket.socket
) -> None:
    """The worker is read in none of them. Nothing is lost."""
    peer = fake_nic.greeted()
    first, *others, last = (opened(peer, fake_nic, fake, n) for n in range(1, 603))
    sent = fill(first)
    for conn in others:
        conn.send(bytes(MAX_MESSAGE))
    processed(peer, 602, last)
    got = collections.Counter(peer.take()[:2] for _ in range(sent + len(others)))
    assert got == {(1, Type.DATA): sent, **{(n, Type.DATA): 1 for n in range(2, 602)}}


@pytest.mark.parametrize("message", ["none", "unread", "late"])
def test_last_answers_of_the_worker(fake_nic: SmallNic, fake: socket.socket, message: str) -> None:
    """They arrive after the worker has closed the connection, also if it is not read at that time.
    The end, which epoll reports at once, costs no time meanwhile. The peer sends a message before,
    which the worker does not read, or after that."""
    peer = fake_nic.greeted()
    conn, other = (opened(peer, fake_nic, fake, n) for n in (1, 2))
    if message == "unread":
        peer.frame(1, Type.DATA, b"unread")
        select.select([conn], [], [], WAIT)
    sent = fill(conn)
    conn.close()
    if message == "late":
        peer.frame(1, Type.DATA, b"late")
    processed(peer, 2, other)
    before = daemon.cpu_seconds(fake_nic.process.pid)
    time.sleep(1)
    assert daemon.cpu_seconds(fake_nic.process.pid) - before < 0.2
    for _ in range(sent):
        assert peer.take()[:2] == (1, Type.DATA)
    assert peer.take() == (1, Type.END, b"")


def test_streams_of_a_link_are_limited(fake_nic: SmallNic) -> None:
    peer = fake_nic.greeted()
    for number in range(1, 4097):
        peer.frame(number, Type.OPEN, fake_nic.opening)
        assert peer.take() == (number, Type.OPENED, b"")
    peer.frame(4097, Type.OPEN, fake_nic.opening)
    assert end_of(peer, 4097) == {"code": "busy", "text": "the link has too many streams"}
    peer.frame(1000, Type.END)
    peer.frame(4098, Type.OPEN, fake_nic.opening)
    assert peer.take() == (4098, Type.OPENED, b"")


def test_worker_that_accepts_nothing(tmp_path: Path) -> None:
    """The stream is refused. The link does not wait."""
    make_files(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(os.fspath(tmp_path / "a.ctl"))
        sock.listen(0)
        with small_nic(tmp_path, tmp_path / "a.ctl") as nic:
            peer = nic.greeted()
            for number in (1, 2):
                peer.frame(number, Type.OPEN, nic.opening)
            assert peer.take() == (1, Type.OPENED, b"")
            assert "accepts no connection" in end_of(peer, 2)["text"]


@pytest.mark.parametrize("how", ["long", "files"])
def test_messages_of_the_worker_that_are_not_legal(
    fake_nic: SmallNic, fake: socket.socket, how: str
) -> None:
    peer = fake_nic.greeted()
    peer.frame(1, Type.OPEN, fake_nic.opening)
    peer.take()
    with contextlib.closing(fake.accept()[0]) as conn, socket.socket() as file:
        if how == "long":
            conn.send(bytes(MAX_MESSAGE + 1))
        else:
            socket.send_fds(conn, [b"x"], [file.fileno()])
        reason = end_of(peer, 1)
        assert reason["code"] == "config"
        assert {"long": "more than 8192", "files": "files cannot"}[how] in reason["text"]
        assert conn.recv(1) == b""


@pytest.mark.slow
def test_last_messages_for_a_worker_that_does_not_read(
    fake_nic: SmallNic, fake: socket.socket
) -> None:
    """They wait for 10 s, also after a stream without such messages has ended."""
    peer = fake_nic.greeted()
    idle, conn = (opened(peer, fake_nic, fake, n) for n in (1, 2))
    processed(peer, 1, idle)
    for _ in range(240):
        peer.frame(2, Type.DATA, bytes(1024))
    peer.frame(2, Type.END)
    poll = select.poll()
    poll.register(conn, select.POLLRDHUP)
    began = time.monotonic()
    while not poll.poll(1000) and time.monotonic() - began < 15:
        peer.frame(0, Type.HEARTBEAT)
    assert 8 < time.monotonic() - began < 15
    opened(peer, fake_nic, fake, 3)


def test_bytes_that_are_not_tls(nic: SmallNic) -> None:
    peer = nic.greeted()
    peer.sock.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert nic.said("unlinked")["code"] == "tls"


# Limits --------------------------------------------------------------------


@pytest.mark.slow
def test_connections_that_are_silent(nic: SmallNic) -> None:
    """One more than 64 of an address closes the oldest, and a proxy is not delayed."""
    proxy = nic.proxy()
    control = nic.connect(proxy)
    silent = [nic.tcp() for _ in range(65)]
    assert silent[0].recv(1) == b""
    silent[64].setblocking(False)
    with pytest.raises(BlockingIOError):
        silent[1].setblocking(False)
        silent[1].recv(1)
    control.hello()
    with contextlib.closing(nic.greeted().sock):
        assert len(nic.log("linked")) <= 2
    began = time.monotonic()
    silent[64].settimeout(WAIT)
    assert silent[64].recv(1) == b""
    assert 5 < time.monotonic() - began < 15
    control.hello()


@pytest.mark.slow
def test_handshake_that_takes_too_long(nic: SmallNic) -> None:
    sock = nic.tcp()
    sock.sendall(b"\x16\x03\x01\x02\x00")
    began = time.monotonic()
    assert sock.recv(1) == b""
    assert 5 < time.monotonic() - began < 15


def test_links_of_one_host_are_limited(nic: SmallNic) -> None:
    """The oldest ends."""
    first = nic.greeted()
    others = [nic.greeted() for _ in range(4)]
    assert "more than 4 links" in refused(first)["text"]
    for peer in others:
        peer.frame(1, Type.OPEN, nic.opening)
        assert peer.take() == (1, Type.OPENED, b"")


def test_many_links_at_once(nic: SmallNic) -> None:
    """Links that are ending do not keep out others."""
    peers = [nic.peer() for _ in range(14)]
    peers[-1].take()
    peers[-1].frame(0, Type.HELLO, HELLO)
    peers[-1].frame(1, Type.OPEN, nic.opening)
    assert peers[-1].take() == (1, Type.OPENED, b"")


def test_links_that_are_ending_give_way_first(nic: SmallNic) -> None:
    """A link in use stays, although it is the oldest."""
    first = nic.greeted()
    first.frame(1, Type.OPEN, nic.opening)
    assert first.take() == (1, Type.OPENED, b"")
    for _ in range(8):  # peers that do not close the refused link
        peer = nic.peer()
        peer.frame(0, Type.HEARTBEAT)
        refused(peer)
    first.frame(1, Type.DATA, QUESTION)
    assert first.take()[:2] == (1, Type.DATA)


def test_log_that_nobody_reads(nic: SmallNic) -> None:
    """It delays nothing. The next line that is read tells how many were dropped."""
    nic.stop()
    read, write = os.pipe()
    fcntl.fcntl(write, 1031, 4096)  # F_SETPIPE_SZ
    options = options_of(nic.folder, nic.worker, nic.port)
    process = subprocess.Popen([CONTROL, *options], stderr=write)
    os.close(write)
    nic.undo.callback(process.wait)
    nic.undo.callback(process.kill)
    assert b"started" in os.read(read, 4096)
    proxy = nic.proxy()
    control = nic.connect(proxy)
    for _ in range(60):
        sock = nic.tcp()
        sock.sendall(b"no TLS at all")
        while sock.recv(100):
            pass
    control.hello()
    with open(read) as log:
        log.readline()
        time.sleep(1)
        proxy.kill()
        for line in map(json.loads, log):
            if line["event"] == "dropped":
                break
        assert line["lines"] > 10


# The process ---------------------------------------------------------------


def test_secrets_do_not_stay(fake_nic: SmallNic, fake: socket.socket) -> None:
    """Bytes of messages are wiped in both directions."""
    peer = fake_nic.greeted()
    conn, other = (opened(peer, fake_nic, fake, n) for n in (1, 2))
    question, answer = os.urandom(16), os.urandom(16)
    peer.frame(1, Type.DATA, question * 200)
    assert conn.recv(MAX_MESSAGE) == question * 200
    conn.send(answer * 200)
    assert peer.take() == (1, Type.DATA, answer * 200)
    processed(peer, 2, other)
    process = daemon.Worker(fake_nic.folder, "control", fake_nic.process, fake_nic.errors)
    assert (process.copies(question), process.copies(answer)) == (0, 0)
    limits = Path(f"/proc/{fake_nic.process.pid}/limits").read_text()
    assert re.search(r"Max core file size +0 ", limits)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--listen", "127.0.0.1", "give IP:PORT"),
        ("--listen", "host:4794", "give IP:PORT"),
        ("--listen", "127.0.0.1:0", "give IP:PORT"),
        ("--control", "w.ctl", "give an absolute path"),
        ("--control", "/" + "x" * 110, "give an absolute path"),
        ("--peer", "left", "give one identity"),
        ("--peer", "spiffe:///left", "give one identity"),
        ("--worker-uid", "-1", "number of a user"),
        ("--worker-uid", "4294967295", "number of a user"),
        ("--worker-uid", "", "number of a user"),
        ("--crl", None, "--crl needs a value"),
        ("--more", "x", "is not an option"),
        ("more", "x", "only options are taken"),
    ],
)
def test_options_that_are_wrong(tmp_path: Path, option, value, text) -> None:
    options = options_of(tmp_path, tmp_path / "w.ctl", 4794)
    done = run(*options, option, *([] if value is None else [value]))
    assert done.returncode == 2
    assert done.stderr.startswith("srdma-control: error: ") and text in done.stderr


def test_options_that_are_absent(tmp_path: Path) -> None:
    options = options_of(tmp_path, tmp_path / "w.ctl", 4794)
    for at in range(0, len(options), 2):
        done = run(*options[:at], *options[at + 2 :])
        assert done.returncode == 2
        assert f"give {options[at]} " in done.stderr
    help = run("--help").stdout
    assert help.startswith("Usage: srdma-control") and max(map(len, help.splitlines())) < 80
    page = (daemon.ROOT / "docs/man/srdma-control.8").read_text().replace("\\-", "-")
    named = set(re.findall(r"--[a-z-]+", page)) - {"--proxy"}
    assert set(re.findall(r"--[a-z-]+", help)) - {"--agent-uid"} == named
    assert run("--version").stdout == "srdma-control 0.1.0 (srdma-control/1)\n"


@pytest.mark.parametrize("name", ["nic.pem", "nic.key", "ca.pem", "nic.crl"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN NOTHING-----\n"])
def test_files_that_cannot_be_used(tmp_path: Path, name: str, content: bytes | None) -> None:
    make_files(tmp_path)
    revoke(tmp_path, tmp_path / "left.pem", dt.timedelta(days=1))
    (tmp_path / "crl.pem").rename(tmp_path / "nic.crl")
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    options = options_of(tmp_path, tmp_path / "w.ctl", free_port())
    done = run(*options, "--crl", tmp_path / "nic.crl")
    assert done.returncode == 1
    assert f"{name} cannot be used" in done.stderr


def test_key_of_another_certificate(tmp_path: Path) -> None:
    make_files(tmp_path)
    (tmp_path / "nic.key").write_bytes((tmp_path / "left.key").read_bytes())
    done = run(*options_of(tmp_path, tmp_path / "w.ctl", free_port()))
    assert "nic.key cannot be used: key values mismatch" in done.stderr


def test_own_certificate_without_an_identity(tmp_path: Path) -> None:
    make_files(tmp_path)
    certify(tmp_path, "nic", [x509.DNSName("nic")])
    done = run(*options_of(tmp_path, tmp_path / "w.ctl", free_port()))
    assert done.returncode == 1
    assert "a certificate with 0 URIs" in done.stderr


def test_key_with_a_password(tmp_path: Path) -> None:
    """It is refused. No password is asked for."""
    make_files(tmp_path)
    key = parse_key((tmp_path / "nic.key").read_bytes(), "key")
    (tmp_path / "nic.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    done = run(*options_of(tmp_path, tmp_path / "w.ctl", free_port()))
    assert "nic.key cannot be used" in done.stderr


def test_address_in_use(nic: SmallNic) -> None:
    done = run(*options_of(nic.folder, nic.worker, nic.port))
    assert done.returncode == 1
    assert "cannot listen at 127.0.0.1" in done.stderr and "in use" in done.stderr
