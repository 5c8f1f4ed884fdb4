"""Key modes and trust groups through agents: requests for KEY, contents of KEYS, and the end of a
peer that lies (protocol.md 3.4, 8)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import cbor2
import pytest
from OpenSSL import SSL

from srdma.control import Control, Kind
from srdma.errors import RefusedError
from srdma.identity import create_ca, fingerprint, issue, parse_certificates, parse_key
from srdma.keyex.exchange import Agreed, Event, Exchange, Install, Parameters, Send
from srdma.keyex.messages import Handover
from srdma.keyex.offers import End, Suite
from srdma.keyex.secrets import Secrets
from tests.keyex_players import END, FakeWorker, Keyex, config, finished, load, run_pair

A, B = "spiffe://test/a", "spiffe://test/b"
# An identity that a URI library would normalize in many places.
ODD = "X-Odd://Test:443/A%2fb/../~x;p=1,q=%41&r"
LONG = "spiffe://test/" + "x" * 241  # 255 bytes
WAYS = [(mode, group) for mode in range(4) for group in ("", "rack 7")]
GCM = Suite(1, 3, 16)
ROLES = ["client", "server"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("identities")
    create_ca(path / "ca", "test")
    for name, uri in {"a": A, "b": B, "odd": ODD, "long": LONG}.items():
        issue(path / "ca", uri, path / name)
    return path


@contextmanager
def pair(
    folder: Path, client: dict[str, Any], server: dict[str, Any], /, **workers: FakeWorker
) -> Iterator[tuple[Keyex, Keyex]]:
    names = {"client": client.pop("name", "a"), "server": server.pop("name", "b")}
    left, right = (
        config(role, load(folder, names[role]), **how)
        for role, how in zip(ROLES, (client, server), strict=True)
    )
    with run_pair(left, right, workers) as ends:
        yield ends


@pytest.mark.parametrize(("suite", "size"), [([1, 3, 16], 16), ([7, 3, 16], 32)])
@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_keys_of_each_mode(
    folder: Path, mode: int, group: str, suite: list[int], size: int
) -> None:
    how = {"modes": [mode], "group": group, "suites": [suite]}
    with pair(folder, dict(how), dict(how)) as (a, b):
        for one in (a, b):
            peer = one.event()
            assert peer["mode"] == mode
            assert peer["trust_group"] == (group if mode & 1 else "")
            assert one.event() == {"event": "ready"}
    shared = bool(group and mode & 1)
    for one, other in ((a, b), (b, a)):
        _check_asked(one, other, mode, group, size)
        for number, keys in enumerate(one.worker.keys):
            assert keys[5:7] == (mode, size)
            tx, rx, group_key = keys[16:19]
            if not mode & 1:
                assert tx == other.worker.keys[number][17] and any(tx)
            else:
                want = b"" if shared else other.worker.made[number]
                assert (tx, rx) == (want.ljust(32, b"\0"), bytes(32))
            assert group_key == (b.worker.group_key if shared else bytes(48))


def _check_asked(one: Keyex, other: Keyex, mode: int, group: str, size: int) -> None:
    """KEY is requested for every QP without a group, and for one QP, by the
    server only, with a group."""
    qps = zip(one.config["qps"], other.config["qps"], one.worker.keys, strict=True)
    asked = [(own["qpn"], size, 0, keys[7], peer["eid"], peer["qpn"]) for own, peer, keys in qps]
    if not mode & 1:
        asked = []
    elif group:
        server = one.config["role"] == "server"
        asked = [(*asked[0][:2], 1, *asked[0][3:])] if server else []
    assert one.worker.asked == asked


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("name", "uri"), [("odd", ODD), ("long", LONG)])
def test_identity_reaches_the_worker_as_in_the_certificate(
    folder: Path, name: str, uri: str, role: str
) -> None:
    how: dict[str, Any] = {"client": {}, "server": {}}
    how[role] = {"name": name}
    with pair(folder, how["client"], how["server"]) as (a, b):
        for one in (a, b):
            assert [one.event()["event"], one.event()["event"]] == ["peer", "ready"]
    other = b if role == "client" else a
    assert [keys[15] for keys in other.worker.keys] == [uri.encode().ljust(256, b"\0")] * 2


# Refusals --------------------------------------------------------------------------


def refused(
    folder: Path, client: dict[str, Any], server: dict[str, Any], /, **workers: FakeWorker
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the last events of both, which are errors."""
    with pair(folder, client, server, **workers) as ends:
        last = [one.events()[-1] for one in ends]
    assert [event["event"] for event in last] == ["error"] * 2
    return last[0], last[1]


@pytest.mark.parametrize(("of_client", "of_server"), [("g", ""), ("", "g"), ("g", "h")])
def test_different_groups_are_refused(folder: Path, of_client: str, of_server: str) -> None:
    on_client, on_server = refused(
        folder, {"modes": [1], "group": of_client}, {"modes": [1], "group": of_server}
    )
    assert on_client["code"] == on_server["code"] == "group"
    assert on_client["text"] == f"the peer reports: {on_server['text']}"


def test_no_common_mode(folder: Path) -> None:
    on_client, on_server = refused(folder, {"modes": [3, 1]}, {"modes": [0, 2]})
    assert on_client["code"] == on_server["code"] == "mode"
    assert "the client offers pd+mem, pd, the server allows basic, mem" in on_client["text"]


@pytest.mark.parametrize(("role", "group"), [("client", ""), ("server", ""), ("server", "g")])
def test_worker_refuses_key(folder: Path, role: str, group: str) -> None:
    worker = FakeWorker(refuse="this leg has another group's key", refuses=Kind.KEY)
    how = {"modes": [1], "group": group}
    last = refused(folder, dict(how), dict(how), **{role: worker})
    for event in last:
        assert event["code"] == "worker"
        assert "the worker refused KEY: this leg has another group's key" in event["text"]
    assert not worker.keys


def test_client_of_a_second_group(folder: Path) -> None:
    worker = FakeWorker(refuse="the leg is in use: one leg, one group", refuses=Kind.KEYS)
    how = {"modes": [1], "group": "g"}
    on_client, on_server = refused(folder, dict(how), dict(how), client=worker)
    assert "one leg, one group" in on_client["text"] and "one leg, one group" in on_server["text"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"modes": []}, "modes is []: it must be a list of 1 to 4 modes"),
        ({"modes": [4]}, "mode is 4"),
        ({"modes": [1, 1]}, "without repetitions"),
        ({"modes": 1}, "modes is 1: it must be a list"),
        ({"group": "g" * 65}, "group is"),
        ({"group": 7}, "group is 7"),
        ({"modes": [1], "suites": [[0, 0, 0]]}, "it must be [0] (basic) with suite `none`"),
    ],
)
def test_wrong_configurations(folder: Path, changes: dict[str, Any], text: str) -> None:
    program = Keyex(config("client", load(folder, "a"), **changes))
    with finished(program):
        event = program.event()
        assert event["event"] == "error" and text in event["text"]
        assert program.event() == END


def test_secrets_made_before_a_refusal_are_wiped() -> None:
    made: list[bytearray] = []

    class Refusing:
        """A control connection whose worker makes one secret and then refuses."""

        def key(self, *_: object, **__: object) -> tuple[bytearray, bytearray]:
            if made:
                raise RefusedError(16, "the worker refused KEY")
            made.append(bytearray(b"S" * 16))
            return made[0], bytearray(48)

    ends = tuple(End(b"E" * 16, n, 1 << 23, 4096, 64, 16, "nic") for n in (1, 2))
    exchange = Exchange(
        "client", Parameters((GCM,), b"R" * 32, ends, b"", (b"C" * 32, b"S" * 32), (1,))
    )
    exchange.agreed = Agreed(GCM, ends, b"", 1)
    secrets = Secrets(cast(Control, Refusing()), lambda *_: b"", exchange, ends, B)
    with pytest.raises(RefusedError):
        secrets.derive("secrets")
    assert made == [bytearray(16)]


# A peer that lies in CONFIRM ---------------------------------------------------------


class Liar:
    """A client over real TLS. The test makes its CONFIRM."""

    def __init__(self, folder: Path, sock: socket.socket, mode: int, group: str) -> None:
        mine = load(folder, "a")
        context = SSL.Context(SSL.TLS_METHOD)
        context.use_certificate(parse_certificates(mine.cert, "cert")[0])
        context.use_privatekey(parse_key(mine.key, "key"))
        context.set_alpn_protos([b"srdma/1"])
        self.sock = sock
        self.tls = SSL.Connection(context, sock)
        self.tls.set_connect_state()
        self.tls.do_handshake()
        certificates = [
            fingerprint(parse_certificates(load(folder, name).cert, "cert")[0]) for name in "ab"
        ]
        ends = tuple(
            End(b"C" * 16, 7 + i, pn=1 << 23, mtu=4096, window=64, reads=16, wire="nica")
            for i in range(2)
        )
        self.exchange = Exchange(
            "client",
            Parameters(
                (GCM,),
                b"C" * 32,
                ends,
                b"",
                (certificates[0], certificates[1]),
                (mode,),
                group,
            ),
        )
        self.send(self.exchange.start())
        self.exchange.receive(self.receive())

    def send(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Send):
                self.send_raw(event.data)

    def send_raw(self, message: bytes) -> None:
        self.tls.sendall(struct.pack(">I", len(message)) + message)

    def receive(self) -> bytes:
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def close(self) -> None:
        self.sock.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self.tls.recv(size - len(data))
        return data


Lie = Callable[[bytes], dict[str, Any]]
MARK = bytes(range(0xA0, 0xB0))  # in the liar's secrets
LIES: dict[str, tuple[str, str, Lie]] = {
    "no secrets": ("", "format", lambda h: {"hash": h}),
    "one secret": ("", "count", lambda h: {"hash": h, "secrets": [MARK]}),
    "long secrets": ("", "value", lambda h: {"hash": h, "secrets": [MARK * 2] * 2}),
    "a group's key": ("", "format", lambda h: {"hash": h, "kpd": MARK * 3}),
    "wrong hash": ("", "hash", lambda h: {"hash": bytes(32), "secrets": [MARK] * 2}),
    "secrets in a group": ("g", "format", lambda h: {"hash": h, "secrets": [MARK] * 2}),
    "the server's form": ("g", "format", lambda h: {"hash": h, "kpd": MARK * 3}),
}


@pytest.mark.parametrize("lie", LIES)
def test_false_confirm_is_refused(folder: Path, lie: str) -> None:
    """It is refused before the worker gets a request, and no error shows a secret."""
    group, code, message = LIES[lie]
    server = Keyex(config("server", load(folder, "b"), modes=[1], group=group))
    with finished(server):
        liar = Liar(folder, server.other_end(), 1, group)
        liar.send_raw(cbor2.dumps(message(liar.exchange.hash), canonical=True))
        answer = liar.receive()
        liar.close()
        said = server.events()[-1]
        assert said["code"] == cbor2.loads(answer)["code"] == code
        assert not server.worker.asked and not server.worker.keys
    for text in (answer, cbor2.dumps(said)):
        assert MARK not in text and MARK.hex().encode() not in text


def test_confirm_twice(folder: Path) -> None:
    """The first CONFIRM is valid. The second one is out of sequence and refused."""
    worker = FakeWorker(silent=True)  # keeps the server waiting
    server = Keyex(config("server", load(folder, "b"), modes=[1]), worker)
    with finished(server):
        liar = Liar(folder, server.other_end(), 1, "")
        handover = Handover(secrets=(bytearray(MARK), bytearray(MARK[::-1])))
        [confirm] = liar.exchange.derived(handover)
        assert isinstance(confirm, Send)
        liar.send_raw(confirm.data)
        [install] = liar.exchange.receive(liar.receive())
        assert isinstance(install, Install)
        assert [bytes(s) for s in install.handover.secrets] == worker.made
        liar.send_raw(confirm.data)
        assert cbor2.loads(liar.receive())["code"] == "state"
        liar.close()
        assert server.events()[-1]["code"] == "state"
