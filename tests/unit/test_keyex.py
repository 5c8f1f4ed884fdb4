"""The key exchange between two agents, each with a worker that only responds."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from OpenSSL import SSL

from srdma.agent import private
from srdma.control import Kind
from srdma.identity import Credentials, Validity, create_ca, issue, parse_certificates, parse_key
from srdma.keyex.fields import ExchangeError
from tests.keyex_players import (
    END,
    ERR,
    HOST_A,
    HOST_B,
    FakeWorker,
    Keyex,
    Listening,
    config,
    finished,
    load,
    run_pair,
    until,
)
from tests.tls_players import BlockingTLS


def configs(identities: Path, client: Any = None, server: Any = None) -> tuple[Any, Any]:
    return (
        config("client", load(identities, "a"), **(client or {})),
        config("server", load(identities, "b"), **(server or {})),
    )


def errors(
    client: Any,
    server: Any,
    workers: dict[str, FakeWorker] | None = None,
    *,
    on_server: str = "error",
) -> tuple[Any, Any]:
    """Returns the last event of each end of a pair that fails. on_server: name of the server's
    event, `refused` if the client is not authorised."""
    with run_pair(client, server, workers) as pair:
        last = tuple(one.events()[-1] for one in pair)
    assert [event["event"] for event in last] == ["error", on_server], last
    return last


def refused(client: Any, server: Any) -> tuple[Any, Any]:
    """The same for a client that never gets a connection, because one of both certificates is not
    accepted. Neither worker may get a request for keys."""
    workers = {"client": FakeWorker(), "server": FakeWorker()}
    last = errors(client, server, workers, on_server="refused")
    for worker in workers.values():
        assert not worker.keys and not worker.asked
    return last


def test_both_ends_agree(identities: Path) -> None:
    client, server = configs(identities, {"peer": ["spiffe://test/*"]}, {"peer": [HOST_A]})
    with run_pair(client, server) as (a, b):
        seen_a, seen_b = a.event(), b.event()
        assert seen_a["identity"] == HOST_B and seen_b["identity"] == HOST_A
        assert seen_a["data"] == b"from server" and seen_b["data"] == b"from client"
        assert seen_a["suite"] == seen_b["suite"] == [1, 3, 16]
        assert seen_a["group"] == seen_b["group"] != ""
        assert a.event() == b.event() == {"event": "ready"}
        a.hang_up()
        assert a.event() == b.event() == {"event": "closed"}
        assert a.event() == b.event() == END
    _check_keys(a, b)


def _check_keys(a: Keyex, b: Keyex) -> None:
    """Checks that each worker has the keys and numbers of the other, and opens packets that the
    other seals."""
    for number, (of_a, of_b) in enumerate(zip(a.worker.keys, b.worker.keys, strict=True)):
        qp = b.config["qps"][number]
        assert of_a[0] == a.config["qps"][number]["qpn"]
        assert of_a[1:7] == (0, 1, 3, 16, 0, 16) and of_b[1] == 1
        assert of_a[7] == of_b[7]  # generation
        assert of_a[8:14] == (qp["eid"], qp["qpn"], qp["pn"], 4096, 64, 16)
        assert of_a[14].rstrip(b"\0") == b"nicb"
        assert of_a[15].rstrip(b"\0").decode() == HOST_B
        assert (of_a[16], of_a[17]) == (of_b[17], of_b[16])
        assert of_a[16] != of_a[17] and any(of_a[16][:16]) and not any(of_a[16][16:])
    generations = {keys[7] for keys in a.worker.keys}
    secrets = {keys[16] for keys in a.worker.keys + b.worker.keys}
    assert len(generations) == 2 and len(secrets) == 4


def test_longer_keys_have_longer_secrets(identities: Path) -> None:
    wanted = {"suites": [[0x12, 2, 20]]}
    with run_pair(*configs(identities, wanted, wanted)) as (a, b):
        assert [a.event(), a.event()][1] == {"event": "ready"}
        assert [b.event(), b.event()][1] == {"event": "ready"}
    assert a.worker.keys[0][2:7] == (0x12, 2, 20, 0, 32)
    assert any(a.worker.keys[0][16][16:])


def test_level_none_has_no_secrets(identities: Path) -> None:
    wanted = {"suites": [[0, 0, 0]]}
    with run_pair(*configs(identities, wanted, wanted)) as (a, b):
        assert [a.event(), a.event()][1] == [b.event(), b.event()][1] == {"event": "ready"}
    assert a.worker.keys[0][2:7] == (0, 0, 0, 0, 0)
    assert not any(a.worker.keys[0][16])


# Refusals: the error at the server, and the error that the client reports ------------


def changed(identities: Path, tmp_path: Path, name: str, **extra: Any) -> dict[str, bytes]:
    """Returns cert, key and ca of a new certificate of the same CA."""
    issue(identities / "ca", f"spiffe://test/{name}", tmp_path / name, **extra)
    ca = (identities / "ca/ca.pem").read_bytes()
    cert, key = ((tmp_path / f"{name}.{end}").read_bytes() for end in ("pem", "key"))
    return {"cert": cert, "key": key, "ca": ca}


def test_expired_certificate(identities: Path, tmp_path: Path) -> None:
    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=9)
    old = changed(identities, tmp_path, "old", validity=Validity(1, start))
    on_client, on_server = refused(*configs(identities, old))
    assert on_server["text"] == "the peer's certificate has expired: issue a new one"
    assert "this end's certificate has expired" in on_client["text"]
    on_client, on_server = refused(*configs(identities, None, old))
    assert on_client["text"] == "the peer's certificate has expired: issue a new one"
    assert "this end's certificate has expired" in on_server["text"]


def test_certificate_not_valid_yet(identities: Path, tmp_path: Path) -> None:
    start = dt.datetime.now(dt.UTC) + dt.timedelta(days=9)
    young = changed(identities, tmp_path, "young", validity=Validity(1, start))
    with finished(server := Listening(vars(load(identities, "b")) | {"peer": []})):
        peer = BlockingTLS(
            server.dial(), "client", Credentials(**{k: young[k] for k in ("cert", "key", "ca")})
        )
        with contextlib.closing(peer), pytest.raises(ExchangeError, match="is not accepted"):
            peer.handshake()
            peer.message()
        assert server.listener.event()["event"] == "listening"
        event = server.listener.event()
        assert "is not valid yet" in event["text"] and event["code"] == "identity"


def test_foreign_ca(identities: Path, tmp_path: Path) -> None:
    create_ca(tmp_path / "ca", "foreign")
    issue(tmp_path / "ca", HOST_A, tmp_path / "a")
    foreign = load(tmp_path, "a")
    mine = {"cert": foreign.cert, "key": foreign.key}  # trusts the right CA
    on_client, on_server = refused(*configs(identities, mine))
    assert "was issued by another CA" in on_server["text"]
    assert "another CA than the peer's configured one" in on_client["text"]


def signed(identities: Path, uris: list[str]) -> dict[str, bytes]:
    """A certificate of the CA that names these identities."""
    ca = parse_certificates((identities / "ca/ca.pem").read_bytes(), "ca")[0]
    ca_key = parse_key((identities / "ca/ca.key").read_bytes(), "key")
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(
        ca.subject, x509.Name([]), ca_key.public_key(), 7, now, now + dt.timedelta(1)
    )
    if uris:
        names = [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    pem = serialization.Encoding.PEM
    key = ca_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {"cert": builder.sign(ca_key, hashes.SHA256()).public_bytes(pem), "key": key}


def certificate(issuer: dict[str, bytes], usage: x509.ObjectIdentifier | None) -> dict[str, bytes]:
    """A certificate for HOST_A, signed by the key in `issuer`, with its
    chain, for this usage only."""
    chain = parse_certificates(issuer["cert"], "cert")
    signer, key = parse_key(issuer["key"], "key"), ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(
        chain[0].subject, x509.Name([]), key.public_key(), 9, now, now + dt.timedelta(1)
    )
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(HOST_A)])
    builder = builder.add_extension(names, critical=True)
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    hash_ = hashes.SHA256() if isinstance(signer, ec.EllipticCurvePrivateKey) else None
    pem = serialization.Encoding.PEM
    made = builder.sign(signer, hash_).public_bytes(pem) + issuer["cert"]
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {"cert": made, "key": secret}


USAGE = ExtendedKeyUsageOID


@pytest.mark.parametrize("end", ["client", "server"])
def test_usage_of_a_certificate(identities: Path, end: str) -> None:
    """A certificate for the other TLS role, or for mail, is refused."""
    ca = {
        "cert": (identities / "ca/ca.pem").read_bytes(),
        "key": (identities / "ca/ca.key").read_bytes(),
    }
    other = USAGE.SERVER_AUTH if end == "client" else USAGE.CLIENT_AUTH
    for usage in (other, USAGE.EMAIL_PROTECTION):
        events = refused(*configs(identities, **{end: certificate(ca, usage)}))
        on_other = events[1 if end == "client" else 0]
        assert "does not permit TLS clients and servers" in on_other["text"], events


@pytest.mark.parametrize("end", ["client", "server"])
def test_host_cannot_issue_certificates(identities: Path, end: str) -> None:
    """A certificate that was issued with a host's certificate is refused, although the CA signed
    the host's."""
    host = {"cert": (identities / "b.pem").read_bytes(), "key": (identities / "b.key").read_bytes()}
    events = refused(*configs(identities, **{end: certificate(host, None)}))
    on_other = events[1 if end == "client" else 0]
    assert on_other["code"] == "identity" and "the CA of the peer's" in on_other["text"], events


@pytest.mark.parametrize("uris", [[], [HOST_A, HOST_B]])
def test_peer_must_name_one_identity(identities: Path, uris: list[str]) -> None:
    bad = signed(identities, uris)
    with serving(identities) as server:
        peer = TLSPeer(server.other_end(), bad["cert"], bad["key"])
        assert peer.converse() == b"identity"
        [event] = server.events()
        assert event["event"] == "refused" and "exactly one identity" in event["text"]


def test_local_certificate_must_name_one_identity(identities: Path) -> None:
    client, _ = configs(identities, signed(identities, []))
    program = Keyex(client)
    with finished(program):
        event = program.event()
        assert event["code"] == "credentials" and "exactly one identity" in event["text"]


def test_identity_not_allowed(identities: Path) -> None:
    on_client, on_server = refused(*configs(identities, None, {"peer": ["spiffe://test/host-c"]}))
    want = f"the peer is {HOST_A}, which is not allowed: allowed are spiffe://test/host-c"
    address = "127.0.0.1"
    assert on_server == {"event": "refused", "address": address, "code": "identity", "text": want}
    assert on_client["code"] == "identity"
    assert on_client["text"] == f"the peer reports: this is {HOST_A}, which is not allowed"
    on_client, on_server = errors(*configs(identities, {"peer": [HOST_A]}))
    assert on_client["text"].startswith(f"the peer is {HOST_B}, which is not allowed")
    assert on_server["text"].startswith("the peer reports: ")


def test_no_common_suite(identities: Path) -> None:
    mine = {"suites": [[3, 3, 16]]}
    on_client, on_server = errors(*configs(identities, mine))
    assert on_server["code"] == on_client["code"] == "suite"
    assert "no common suite: the client offers [3, 3, 16]" in on_client["text"]


def test_no_common_level(identities: Path) -> None:
    """Both ends get the code `level`, and no worker is asked for keys."""
    workers = {"client": FakeWorker(), "server": FakeWorker()}
    ends = configs(identities, {"suites": [[0x20, 1, 16]]})
    on_client, on_server = errors(*ends, workers)
    assert on_server["code"] == on_client["code"] == "level"
    assert "client offers level header and the server permits level aead" in on_client["text"]
    for worker in workers.values():
        assert not worker.keys and not worker.asked


def test_unequal_numbers_of_qps(identities: Path) -> None:
    client, server = configs(identities)
    server["qps"] = server["qps"][:1]
    on_client, on_server = errors(client, server)
    assert on_client["code"] == on_server["code"] == "count"
    assert on_server["text"] == (
        "the peer has 2 QPs, this end has 1: give the same number at both ends"
    )


def test_worker_refuses_keys(identities: Path) -> None:
    workers = {"server": FakeWorker(refuse="suite 1 is not in this worker")}
    on_client, on_server = errors(*configs(identities), workers)
    assert "suite 1 is not in this worker" in on_server["text"]
    assert "suite 1 is not in this worker" in on_client["text"]
    assert on_client["code"] == "worker"


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("kind", [Kind.KEYS, Kind.LIFE])
def test_worker_refuses_one_of_two_qps(identities: Path, number: int, kind: Kind) -> None:
    """The requests are under way together, so that the worker may have the keys of the other QP:
    both QPs end."""
    client, server = configs(identities)
    qpns = [qp["qpn"] for qp in client["qps"]]
    worker = FakeWorker(refuse="not this one", refuses=kind)
    worker.refused = qpns[number]
    on_client, _ = errors(client, server, {"client": worker})
    assert on_client["text"].startswith(f"the worker refused {kind.name}: not this one")
    assert [keys[0] for keys in worker.keys] == qpns == worker.expired
    lived = qpns if kind == Kind.KEYS else [qpns[1 - number]]
    assert [qpn for qpn, _ in worker.lives] == lived


def test_qp_fails_during_the_exchange(identities: Path) -> None:
    on_client, _ = errors(*configs(identities), {"client": FakeWorker(state=ERR)})
    assert "went to error: WIRE_LOST" in on_client["text"]


def test_timeouts(identities: Path) -> None:
    worker = FakeWorker(silent=True)
    on_client, on_server = errors(*configs(identities, {"timeout": 1.5}), {"client": worker})
    assert on_client["code"] == "timeout" and "local worker to reach" in on_client["text"]
    assert on_server["code"] == "timeout"
    program = Keyex(config("client", load(identities, "a"), timeout=0.2))
    with finished(program), program.other_end():
        assert (
            program.event()["text"]
            == "the key exchange did not complete in 0.2 s, waiting for the peer's TLS handshake"
        )


def test_worker_dies_later(identities: Path) -> None:
    with run_pair(*configs(identities)) as (a, b):
        assert [a.event(), a.event(), b.event(), b.event()][3] == {"event": "ready"}
        a.worker.die()
        assert a.event()["text"] == "the local worker ended"
        assert "the local worker ended" in b.event()["text"]


@pytest.mark.parametrize("role", ["client", "server"])
def test_worker_dies_during_the_exchange(identities: Path, role: str) -> None:
    """The agent waits for RTS then. It writes nothing to stderr, as in all tests here."""
    workers = {role: FakeWorker(silent=True)}
    with run_pair(*configs(identities), workers) as (client, server):
        program = client if role == "client" else server
        until(lambda: len(program.worker.keys) == 2)
        program.worker.die()
        assert program.events()[-1]["code"] == "gone"


def test_peer_is_killed(identities: Path) -> None:
    with run_pair(*configs(identities)) as (a, b):
        assert [a.event(), a.event(), b.event(), b.event()][3] == {"event": "ready"}
        a.kill()
        b.worker.gone.update(qp["qpn"] for qp in b.config["qps"])
        assert b.event() == {"event": "closed"}


# A peer with arbitrary messages ---------------------------------------------------


@contextlib.contextmanager
def serving(identities: Path, **changes: Any) -> Iterator[Keyex]:
    """A server with this configuration, which ends afterwards."""
    server = Keyex(config("server", load(identities, "b"), **changes))
    with finished(server):
        yield server


class TLSPeer:
    """A TLS client that sends arbitrary messages."""

    def __init__(
        self, sock: socket.socket, cert: bytes, key: bytes, alpn: bytes = b"srdma/1"
    ) -> None:
        context = SSL.Context(SSL.TLS_METHOD)
        context.use_certificate(x509.load_pem_x509_certificate(cert))
        context.use_privatekey(parse_key(key, "key"))
        if alpn:
            context.set_alpn_protos([alpn])
        self.connect(context, sock)

    def connect(self, context: SSL.Context, sock: socket.socket, session: Any = None) -> None:
        self.tls = SSL.Connection(context, sock)
        if session:
            self.tls.set_session(session)
        self.tls.set_connect_state()

    def converse(self, *messages: bytes) -> bytes:
        """Sends messages. Returns the code of the ERROR that comes back."""
        self.tls.do_handshake()
        for message in messages:
            self.tls.sendall(message)
        answer = b""
        with contextlib.suppress(SSL.ZeroReturnError):
            while part := self.tls.recv(4096):
                answer += part
        self.tls.shutdown()
        self.tls.sock_shutdown(socket.SHUT_RDWR)
        at = answer.index(b"dcode") + 5
        return answer[at + 1 : at + 1 + (answer[at] & 0x1F)]


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([b"\0\1\0\1"], b"format"),
        ([b"\xff\xff\xff\xff"], b"format"),
        ([b"\0\0\0\1\xa0"], b"format"),
        ([b"\0\0\0\0"], b"format"),
        ([b"\0\0\0\x08\xa1\x65ready\xf5"], b"state"),
    ],
)
def test_hostile_messages(identities: Path, messages: list[bytes], code: bytes) -> None:
    mine = load(identities, "a")
    with serving(identities) as server:
        assert TLSPeer(server.other_end(), mine.cert, mine.key).converse(*messages) == code
        assert server.events()[-1]["code"] == code.decode()
        assert not server.worker.keys


def test_flood_after_a_refusal(identities: Path) -> None:
    """The agent closes the connection although the refused peer keeps sending."""
    mine = load(identities, "a")
    with serving(identities) as server:
        sock = server.other_end()
        peer = TLSPeer(sock, mine.cert, mine.key)
        peer.tls.do_handshake()
        peer.tls.sendall(bytes(4))
        end = time.monotonic() + 20
        with contextlib.suppress(OSError):
            while time.monotonic() < end:
                sock.send(bytes(65_536))
        assert time.monotonic() < end
        assert server.events()[-1]["code"] == "format"


def test_deadline_holds_for_a_peer_that_keeps_sending(identities: Path) -> None:
    mine = load(identities, "a")
    with serving(identities, timeout=1.0) as server:
        peer = TLSPeer(server.other_end(), mine.cert, mine.key)
        peer.tls.do_handshake()
        peer.tls.sendall(b"\0\0\xff\xff")  # a message of 65,535 bytes
        end = time.monotonic() + 20
        with contextlib.suppress(SSL.Error):
            while time.monotonic() < end:
                peer.tls.sendall(b"\0")
                time.sleep(0.001)
        assert server.events()[-1] == {
            "event": "error",
            "code": "timeout",
            "text": "the key exchange did not complete in 1 s, waiting for the peer's OFFER",
        }


@pytest.mark.parametrize("alpn", [b"", b"h2"])
def test_no_alpn(identities: Path, alpn: bytes) -> None:
    mine = load(identities, "a")
    with serving(identities) as server:
        assert TLSPeer(server.other_end(), mine.cert, mine.key, alpn).converse() == b"tls"
        [event] = server.events()
        assert event["event"] == "refused"
        assert event["text"] == "the peer supports no version of this protocol (ALPN)"


def test_peer_without_tls(identities: Path) -> None:
    with serving(identities) as server, server.other_end() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        event = server.event()
        assert (event["event"], event["code"]) == ("refused", "tls")


def test_sessions_are_never_resumed(identities: Path) -> None:
    mine, theirs = load(identities, "a"), load(identities, "b")
    program = Listening(vars(theirs) | {"peer": []})
    with finished(program):
        assert program.listener.event() == {"event": "listening"}
        peer = TLSPeer(program.dial(), mine.cert, mine.key)
        peer.tls.do_handshake()
        assert program.listener.event()["event"] == "arrived"
        peer.connect(peer.tls.get_context(), program.dial(), peer.tls.get_session())
        peer.tls.do_handshake()
        assert program.listener.event()["event"] == "arrived"
        assert not SSL._lib.SSL_session_reused(peer.tls._ssl)  # type: ignore[attr-defined]


# The process -------------------------------------------------------------------


def test_process_is_not_dumpable_and_shows_no_secret(identities: Path) -> None:
    client, server = configs(identities)
    with run_pair(client, server) as (a, b):
        assert [a.event(), a.event(), b.event(), b.event()][3] == {"event": "ready"}
        proc = Path(f"/proc/{a.program.pid}")
        assert "Max core file size        0 " in (proc / "limits").read_text()
        assert (proc / "cmdline").stat().st_uid == 0  # root owns it if the process is not dumpable
        arguments = (proc / "cmdline").read_bytes().split(b"\0")
        assert len(arguments) == 7 and arguments[4] == b"--door-fd"
        secret = a.worker.keys[0][16][:16]
        for text in ((proc / "cmdline").read_bytes(), (proc / "environ").read_bytes()):
            assert secret not in text and client["key"] not in text


def test_environment_variables_that_leak_secrets_are_removed(monkeypatch: Any) -> None:
    for name in ("SSLKEYLOGFILE", "PYTHONINSPECT", "LANG"):
        monkeypatch.setenv(name, "x")
    passed = private._environment()
    assert "LANG" in passed and not {"SSLKEYLOGFILE", "PYTHONINSPECT"} & passed.keys()


def test_wrong_configurations(identities: Path) -> None:
    good = config("client", load(identities, "a"))
    bad: list[tuple[dict[str, Any], str]] = [
        ({"qps": []}, "settings are malformed: IndexError"),
        ({"suites": [[1, 1, 16]]}, "aes-128-gcm does not support level 1"),
        ({"suites": [[8, 3, 16]]}, "unknown suite id 8"),
        ({"key": b"x"}, "key is not a PEM private key"),
        ({"cert": b"x"}, "cert is not a PEM certificate"),
        ({"ca": b"x"}, "ca is not a PEM certificate"),
        ({"data": bytes(257)}, "settings are malformed: TypeError: a value is not at most 256"),
        ({"data": 500_000_000}, "settings are malformed: TypeError: a value is not at most 256"),
        ({"timeout": "soon"}, "settings are malformed: ValueError"),
        ({"peer": "spiffe://test/*"}, "peer is not a list of patterns"),
        ({"peer": [1]}, "peer is not a list of patterns"),
    ]
    for change, text in bad:
        program = Keyex(good | change)
        with finished(program):
            event = program.event()
            assert event["event"] == "error" and text in event["text"], event
            assert program.event() == END
            assert not program.worker.attached


def test_usage() -> None:
    for options, text in (([], "--door-fd"), (["--door-fd", "99"], "file descriptor 99: Bad")):
        command = [sys.executable, "-m", "srdma.agent", *options]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 2 and text in run.stderr


def test_program_closes_a_connection_under_way(identities: Path) -> None:
    program = Keyex(config("client", load(identities, "a")))
    with finished(program), program.other_end():
        program.hang_up()
        assert program.events() == [{"event": "closed"}]
