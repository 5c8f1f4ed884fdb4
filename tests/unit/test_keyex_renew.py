"""New secrets between two agents with workers that only respond, and between one agent and a peer
that lies, is silent or disconnects (protocol.md 8.5; agent.md 4, 5)."""

from __future__ import annotations

import datetime as dt
import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cbor2
import pytest
from OpenSSL import SSL

from srdma.control import Kind
from srdma.identity import Credentials, Validity, create_ca, issue, parse_certificates
from srdma.keyex import tls
from srdma.keyex.messages import ErrorMessage, Ready, Rekey, Renew, Taken, encode
from srdma.keyex.pace import PEERS_BURST
from tests.exchange_players import made
from tests.keyex_players import FakeWorker, Keyex, config, finished, load, run_pair
from tests.renew_players import Peer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("first_version")]

ROLES = ["client", "server"]
RX, TX, ASKED = 1, 2, 0
LATE = 1.5  # seconds, for a limit that must be reached
FOREVER = 10**9  # REKEYs refused with EBUSY
AGE, GRACE, DAY = 86_400, 300, 86_400  # seconds


@contextmanager
def ready(
    folder: Path, both: dict[str, Any] | None = None, **workers: FakeWorker
) -> Iterator[tuple[Keyex, Keyex]]:
    """Yields two programs after `ready`. `both` changes both configurations."""
    client, server = (
        config(role, load(folder, name), **(both or {}))
        for role, name in zip(ROLES, "ab", strict=True)
    )
    with run_pair(client, server, workers) as pair:
        for one in pair:
            assert [one.event()["event"], one.event()["event"]] == ["peer", "ready"]
        yield pair


def renewed(one: Keyex, count: int, wish: int) -> None:
    """Waits until exchange `count` is complete at this end. An event reports it only if this end
    requested it (wish is not 0)."""
    if wish:
        assert one.event() == {"event": "renewed", "count": count, "wish": wish}
    end = time.monotonic() + 20
    while len(brought(one, ASKED)) < count * len(one.config["qps"]):
        assert time.monotonic() < end
        time.sleep(0.001)


def qps(one: Keyex) -> list[int]:
    """Returns the numbers of its QPs."""
    return [qp["qpn"] for qp in one.config["qps"]]


def brought(one: Keyex, direction: int) -> list[bytes]:
    """Returns the secrets of the REKEY requests for this direction that its worker got."""
    return [body[3] for body in one.worker.rekeys if body[1] == direction]


# Good flow ------------------------------------------------------------------------


@pytest.mark.parametrize("first", ROLES)
@pytest.mark.parametrize("size", [16, 32])
def test_secrets_from_tls(folder: Path, first: str, size: int) -> None:
    suite = {16: [1, 3, 16], 32: [7, 3, 16]}[size]
    with ready(folder, {"suites": [suite]}) as (a, b):
        one, other = (a, b) if first == "client" else (b, a)
        for count in (1, 2, 3):
            one.wish(count)
            renewed(one, count, count)
            renewed(other, count, 0)
    for one, other in ((a, b), (b, a)):
        assert brought(one, RX) == brought(other, TX)
        assert [body[:3] for body in one.worker.rekeys if body[1] != ASKED] == [
            (qp["qpn"], direction, size)
            for _ in range(3)
            for direction in (RX, TX)
            for qp in one.config["qps"]
        ]
        assert all(any(s[:size]) and not any(s[size:]) for s in brought(one, RX))
        assert not one.worker.asked and not one.worker.rotations and not one.worker.expired
    old = {keys[16] for keys in a.worker.keys + b.worker.keys}
    new = {*brought(a, RX), *brought(b, RX)}
    assert len(new) == 12 and not old & new


@pytest.mark.parametrize("mode", [1, 3])
def test_secrets_of_the_workers(folder: Path, mode: int) -> None:
    with ready(folder, {"modes": [mode], "every": 600.0}) as (a, b):
        for count, one, other in ((1, a, b), (2, b, a)):
            one.wish(1)
            renewed(one, count, 1)
            renewed(other, count, 0)
    assert a.worker.rotations == [0, 300] and b.worker.rotations == [300, 0]
    for one, other in ((a, b), (b, a)):
        assert brought(one, TX) == [secret.ljust(32, b"\0") for secret in other.worker.made[2:]]
        assert brought(one, RX) == [bytes(32)] * 4
        assert one.worker.asked == one.worker.asked[:2] * 3  # the values of the session


@pytest.mark.parametrize(
    "how", [{"modes": [1], "group": "rack 7"}, {"suites": [[0, 0, 0]]}], ids=["group", "none"]
)
def test_identity_check_only_where_there_are_no_secrets(folder: Path, how: dict[str, Any]) -> None:
    with ready(folder, how | {"every": 0.1}) as (a, b):
        asked = len(a.worker.asked) + len(b.worker.asked)
        for one, wish, count in ((a, 1, 1), (b, 1, 2), (a, 2, 3)):
            one.wish(wish)
            assert one.event() == {"event": "renewed", "count": count, "wish": wish}
            time.sleep(0.2)  # and no exchange by timer: there is nothing to renew
    for one in (a, b):
        assert not one.worker.rekeys and not one.worker.rotations
    assert len(a.worker.asked) + len(b.worker.asked) == asked


def test_receiver_gets_the_secret_first(folder: Path) -> None:
    workers = {role: FakeWorker() for role in ROLES}
    workers["server"].busy = {RX: 20}
    with ready(folder, **workers) as (a, b):
        a.wish(1)
        renewed(a, 1, 1)
        renewed(b, 1, 0)
    for one, other in ((a, b), (b, a)):
        taken = max(at for at, body in _rekeys(other) if body[1] == RX)
        given = min(at for at, body in _rekeys(one) if body[1] == TX)
        assert taken < given


def _rekeys(one: Keyex) -> list[tuple[float, Any]]:
    return list(zip(one.worker.times, one.worker.rekeys, strict=True))


def test_concurrent_requests_of_both_ends(folder: Path) -> None:
    with ready(folder) as (a, b):
        for wish in range(1, 8):
            a.wish(wish)
            b.wish(wish)
            counts = [_until(one, wish) for one in (a, b)]
            assert abs(counts[0] - counts[1]) <= 1
    assert brought(a, RX) == brought(b, TX) and brought(b, RX) == brought(a, TX)


def _until(one: Keyex, wish: int) -> int:
    """Returns the count of the exchange that serves this request."""
    while (event := one.event())["wish"] < wish:
        assert event["event"] == "renewed"
    return event["count"]


def test_request_after_begin_starts_another_exchange(folder: Path) -> None:
    worker = FakeWorker()
    worker.busy = {RX: 30}
    with ready(folder, client=worker) as (a, b):
        a.wish(1)
        while not b.worker.rekeys:
            time.sleep(0.001)
        a.wish(2)
        b.wish(1)
        renewed(a, 1, 1)
        renewed(a, 2, 2)
        renewed(b, 1, 0)
        renewed(b, 2, 1)


@pytest.mark.parametrize("role", ROLES)
def test_rekey_by_timer(folder: Path, role: str) -> None:
    client, server = (
        config(r, load(folder, n), every=0.2 if r == role else 0.0)
        for r, n in zip(ROLES, "ab", strict=True)
    )
    with run_pair(client, server) as pair:
        for one in pair:
            assert [one.event()["event"], one.event()["event"]] == ["peer", "ready"]
        for count in (1, 2, 3):
            for one in pair:
                renewed(one, count, 0)


@pytest.mark.parametrize("role", ROLES)
def test_busy_worker(folder: Path, role: str) -> None:
    """The worker refuses REKEY with EBUSY until the previous secret is in use. The exchange, and
    further requests for one, wait until then."""
    worker = FakeWorker()
    worker.busy = {RX: 3, TX: 2, ASKED: 9}
    with ready(folder, **{role: worker}) as (a, b):
        for wish in (1, 2):
            a.wish(wish)
            renewed(a, wish, wish)
            renewed(b, wish, 0)
    assert worker.busy == {RX: 0, TX: 0, ASKED: 0}
    assert len(brought(a, RX)) == len(brought(b, TX)) == 4


@pytest.mark.parametrize("direction", [RX, TX])
@pytest.mark.parametrize("role", ROLES)
def test_worker_that_stays_busy(folder: Path, role: str, direction: int) -> None:
    worker = FakeWorker()
    worker.busy = {direction: FOREVER}
    with ready(folder, {"limit": LATE}, **{role: worker}) as (a, b):
        begin = time.monotonic()
        a.wish(1)
        last = [one.events()[-1] for one in (a, b)]
        mine = (a, b)[ROLES.index(role)]
        assert worker.expired == qps(mine)
        assert worker.expired_at - begin >= LATE
    assert {event["code"] for event in last} == {"timeout"}
    text = last[ROLES.index(role)]["text"]
    assert "no new secrets in 1.5 s, waiting for " in text


def test_slow_wire_does_not_end_the_exchange(folder: Path) -> None:
    """Both workers have the secrets, but no packet makes use of them for a while. No other exchange
    begins until then."""
    worker = FakeWorker()
    worker.busy = {ASKED: FOREVER}
    with ready(folder, client=worker) as (a, b):
        a.wish(1)
        renewed(b, 1, 0)
        a.wish(2)
        time.sleep(0.5)
        assert len(brought(a, TX)) == 2
        worker.busy = {}
        renewed(a, 1, 1)
        renewed(a, 2, 2)
        assert not a.worker.expired and not b.worker.expired


@pytest.mark.parametrize("role", ROLES)
def test_secrets_that_nobody_uses(folder: Path, role: str) -> None:
    """The peer takes the new secrets, and its worker never sends with them: EXPIRE at both ends,
    not before the limit."""
    worker = FakeWorker()
    worker.busy = {ASKED: FOREVER}
    with ready(folder, {"limit": LATE}, **{role: worker}) as (a, b):
        mine, other = (a, b) if role == "client" else (b, a)
        begin = time.monotonic()
        mine.wish(1)
        renewed(other, 1, 0)
        event = mine.events()[-1]
        assert event["code"] == "timeout"
        assert event["text"] == (
            "no new secrets in 1.5 s, waiting for both directions of all QPs to use the new secrets"
        )
        assert worker.expired == qps(mine) and worker.expired_at - begin >= LATE
        assert other.events()[-1]["text"] == f"the peer reports: {event['text']}"


@pytest.mark.parametrize("kind", [Kind.REKEY, Kind.KEY, Kind.ROTATE])
@pytest.mark.parametrize("role", ROLES)
def test_worker_that_refuses(folder: Path, role: str, kind: Kind) -> None:
    worker = FakeWorker()
    with ready(folder, {"modes": [1]}, **{role: worker}) as (a, b):
        worker.refuses, worker.refuse = kind, "not today"
        a.wish(1)
        last = [one.events()[-1] for one in (a, b)]
    assert all(event["code"] == "worker" and "not today" in event["text"] for event in last)
    for one in (a, b):
        assert len(one.worker.expired) == 2


@pytest.mark.parametrize("status", [errno.ENOTCONN, errno.ENOENT])
@pytest.mark.parametrize("kind", [Kind.REKEY, Kind.KEY])
def test_qps_that_have_ended(folder: Path, kind: Kind, status: int) -> None:
    """QPs that have ended do not prevent an exchange for the others."""
    worker = FakeWorker()
    with ready(folder, {"modes": [1]}, client=worker) as (_, b):
        worker.refuses, worker.refuse, worker.status = kind, "no such QP", status
        b.wish(1)
        renewed(b, 1, 1)
    secrets = brought(b, TX)
    assert len(secrets) == 2 and all(any(s[:16]) for s in secrets)


@pytest.mark.parametrize("kind", [Kind.REKEY, Kind.KEY])
def test_another_agent_took_the_role(folder: Path, kind: Kind) -> None:
    """EPERM is no end of a QP. Without the new secrets at its worker, no end may use them."""
    worker = FakeWorker()
    with ready(folder, {"modes": [1]}, client=worker) as (a, b):
        worker.refuses, worker.refuse, worker.status = kind, "the agent only", errno.EPERM
        b.wish(1)
        assert a.events()[-1]["code"] == "worker"
        assert b.events()[-1]["text"].endswith("the agent only")
    assert not brought(b, TX)


def test_local_worker_dies(folder: Path) -> None:
    worker = FakeWorker()
    worker.busy = {RX: FOREVER}
    with ready(folder, server=worker) as (a, b):
        a.wish(1)
        while not a.worker.rekeys:
            time.sleep(0.001)
        worker.die()
        on_client, on_server = (one.events()[-1] for one in (a, b))
        assert a.worker.ended == [(0x1234, 24), (0x1235, 24)] and not a.worker.expired
    assert on_client["code"] == on_server["code"] == "gone"


# The program --------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        cbor2.dumps([]),
        cbor2.dumps({"do": "renew"}),
        cbor2.dumps({"do": "renew", "wish": "1"}),
        cbor2.dumps({"do": "renew", "wish": 1, "more": 1}),
        cbor2.dumps({"do": "stop", "wish": 1}),
    ],
)
def test_invalid_requests(folder: Path, raw: bytes) -> None:
    with ready(folder) as (a, _):
        a.wire.say(raw)
        assert a.events()[-1]["code"] == "config"


def test_too_long_request(folder: Path) -> None:
    with ready(folder) as (a, _):
        a.wire.sock.sendall((1 << 24).to_bytes(4, "big"))
        assert a.event()["code"] == "config"


def test_requests_in_pieces(folder: Path) -> None:
    raw = cbor2.dumps({"do": "renew", "wish": 7})
    with ready(folder) as (a, _):
        for byte in len(raw).to_bytes(4, "big") + raw:
            a.wire.sock.sendall(bytes([byte]))
        renewed(a, 1, 7)


@pytest.mark.parametrize("role", ROLES)
def test_program_hangs_up_during_an_exchange(folder: Path, role: str) -> None:
    worker = FakeWorker()
    worker.busy = {RX: FOREVER}
    with ready(folder, **{role: worker}) as pair:
        pair[0].wish(1)
        one = pair[ROLES.index(role)]
        while worker.busy[RX] > FOREVER - 3:
            time.sleep(0.001)
        one.hang_up()
        assert [p.event() for p in pair] == [{"event": "closed"}] * 2
        assert not worker.expired


# A peer with arbitrary messages ---------------------------------------------------


@contextmanager
def against(folder: Path, role: str, **changes: Any) -> Iterator[tuple[Peer, Keyex]]:
    """Yields a peer of this role, and the program, after `ready`."""
    other = ROLES[1 - ROLES.index(role)]
    program = Keyex(config(other, load(folder, "b"), **changes))
    with finished(program):
        mode = changes.get("modes", [0])[0]
        peer = Peer(program.other_end(), role, load(folder, "a"), mode)  # type: ignore[arg-type]
        try:
            peer.connect()
            assert [program.event()["event"], program.event()["event"]] == ["peer", "ready"]
            yield peer, program
        finally:
            peer.tls.close()


def begun(peer: Peer, program: Keyex) -> None:
    """Begins an exchange. If the agent is the client, its program requests it."""
    if peer.role == "server":
        program.wish(1)
    peer.begin()


def check_end(peer: Peer, program: Keyex, code: str) -> str:
    """The agent reports this error to its peer and its program, and its QPs end."""
    assert peer.error() == code
    peer.tls.close()
    event = program.events()[-1]
    assert event["event"] == "error" and event["code"] == code, event
    assert program.worker.expired == qps(program)
    return str(event["text"])


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("role", ROLES)
def test_correct_peer(folder: Path, role: str, mode: int) -> None:
    """Control for the following tests: a correct peer succeeds."""
    with against(folder, role, modes=[mode]) as (peer, program):
        for count in (1, 2):
            if role == "server":
                program.wish(count)
            peer.exchange_secrets()
            renewed(program, count, count if role == "server" else 0)


def test_request_from_the_server(folder: Path) -> None:
    with against(folder, "server") as (peer, program):
        peer.say(Rekey(b""))
        peer.exchange_secrets()
        renewed(program, 1, 0)


@pytest.mark.parametrize("role", ROLES)
def test_other_certificate(folder: Path, role: str) -> None:
    """The identity of a connection cannot change, even to another one of the same CA."""
    with against(folder, role) as (peer, program):
        peer.credentials = load(folder, "m")
        begun(peer, program)
        peer.shake()
        text = check_end(peer, program, "identity")
        assert text == (
            "the peer's identity changed from spiffe://test/host-a to spiffe://test/host-m: "
            "a connection has one peer identity"
        )
        assert not program.worker.rekeys


@pytest.mark.parametrize("role", ROLES)
def test_foreign_ca(folder: Path, tmp_path: Path, role: str) -> None:
    create_ca(tmp_path / "ca", "foreign")
    issue(tmp_path / "ca", "spiffe://test/host-a", tmp_path / "a")
    foreign, right = load(tmp_path, "a"), load(folder, "a")
    with against(folder, role) as (peer, program):
        peer.credentials = type(right)(foreign.cert, foreign.key, right.ca)
        begun(peer, program)
        peer.shake()
        assert "was issued by another CA" in check_end(peer, program, "identity")


@pytest.mark.parametrize("role", ROLES)
def test_no_alpn(folder: Path, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with against(folder, role) as (peer, program):
        monkeypatch.setattr(tls, "_context", tls._context.__wrapped__)  # not one in the cache
        monkeypatch.setattr(SSL.Context, "set_alpn_protos", lambda *_: None)
        monkeypatch.setattr(SSL.Context, "set_alpn_select_callback", lambda *_: None)
        monkeypatch.setattr("srdma.keyex.tls.Inner._checked", lambda _: ("somebody", ""))
        begun(peer, program)
        peer.shake()
        assert "ALPN" in check_end(peer, program, "tls")


def test_inner_connection_of_tls_1_2(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with against(folder, "client") as (peer, program):
        make = tls._context.__wrapped__

        def old(credentials: Credentials, names: tuple[bytes, ...]) -> SSL.Context:
            context = make(credentials, names)
            context.set_min_proto_version(SSL.TLS1_2_VERSION)
            context.set_max_proto_version(SSL.TLS1_2_VERSION)
            return context

        monkeypatch.setattr(tls, "_context", old)
        peer.begin()
        check_end(peer, program, "tls")


@pytest.mark.parametrize(
    ("role", "raw", "code"),
    [
        ("client", b"\xa0", "format"),
        ("server", b"\xff", "format"),
        ("client", b"", "format"),
        ("server", cbor2.dumps({"rekey": b"x", "more": 1}, canonical=True), "format"),
        ("client", cbor2.dumps({"rekey": "x"}), "value"),
        ("server", encode(Ready()), "state"),
        ("client", encode(Taken(1)), "state"),
        ("server", encode(Renew(bytes(32), 1)), "state"),
    ],
)
def test_hostile_messages_of_the_outer_connection(
    folder: Path, role: str, raw: bytes, code: str
) -> None:
    with against(folder, role) as (peer, program):
        peer.say(raw)
        check_end(peer, program, code)


@pytest.mark.parametrize(
    ("role", "records", "code"),
    [
        ("client", b"", "value"),
        ("client", b"no TLS", "tls"),
        ("client", os.urandom(60_000), "tls"),
        ("server", b"unasked", "state"),
    ],
)
def test_hostile_records(folder: Path, role: str, records: bytes, code: str) -> None:
    with against(folder, role) as (peer, program):
        peer.say(Rekey(records))
        check_end(peer, program, code)


@pytest.mark.parametrize(
    ("role", "change", "code"),
    [
        ("client", {"hash": bytes(32)}, "hash"),
        ("server", {"count": 2}, "value"),
        ("client", {"handover": made("")}, "format"),
        ("server", {"handover": made("kpd")}, "format"),
        ("client", {"handover": made("secrets", 16, 1)}, "count"),
        ("server", {"handover": made("secrets", 32)}, "value"),
    ],
)
def test_wrong_renew_of_a_peer(folder: Path, role: str, change: dict[str, Any], code: str) -> None:
    with against(folder, role, modes=[1]) as (peer, program):
        begun(peer, program)
        peer.shake()
        peer.say_inner(peer.renew(**change))
        check_end(peer, program, code)
        assert not program.worker.rekeys


@pytest.mark.parametrize(
    ("role", "messages"),
    [
        ("client", [Taken(1)]),
        ("server", [b"\xa0"]),
        ("client", ["renew", "renew"]),
        ("server", ["renew", Taken(2)]),
        ("client", ["renew", Taken(1), Taken(1)]),
        ("server", ["renew", Taken(1), b"\xa0"]),
    ],
)
def test_wrong_order_of_a_peer(folder: Path, role: str, messages: list[Any]) -> None:
    with against(folder, role) as (peer, program):
        begun(peer, program)
        peer.shake()
        peer.say_inner(*(peer.renew() if m == "renew" else m for m in messages))
        assert peer.error() in ("state", "format", "value")
        peer.tls.close()
        assert program.events()[-1]["event"] == "error"
        assert len(program.worker.expired) == 2


@pytest.mark.parametrize("role", ROLES)
def test_too_long_message_in_the_inner_connection(folder: Path, role: str) -> None:
    with against(folder, role) as (peer, program):
        begun(peer, program)
        peer.shake()
        peer.inner._tls.send(b"\x7f\xff\xff\xff")
        peer.flush()
        assert "at most 65536" in check_end(peer, program, "format")


@pytest.mark.parametrize("role", ROLES)
def test_peer_closes_the_inner_connection(folder: Path, role: str) -> None:
    with against(folder, role) as (peer, program):
        begun(peer, program)
        peer.shake()
        peer.inner._tls.shutdown()
        peer.flush()
        assert check_end(peer, program, "tls") == "the peer ended the inner connection"


@pytest.mark.parametrize("under_way", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_error_of_a_peer(folder: Path, role: str, under_way: bool) -> None:
    """An ERROR of the peer ends the QPs only if its code concerns their keys."""
    with against(folder, role) as (peer, program):
        if under_way:
            begun(peer, program)
            peer.shake()
        peer.say(ErrorMessage("worker", "the local worker ended"))
        event = program.events()[-1]
        assert event["text"] == "the peer reports: the local worker ended"
        assert len(program.worker.expired) == (2 if under_way else 0)


STEPS = ["nothing", "begin", "shake", "renew", "hear", "taken"]


def _walk(peer: Peer, program: Keyex, steps: int) -> None:
    """Runs the given number of steps."""
    if peer.role == "server":
        program.wish(1)
    for step in STEPS[1 : steps + 1]:
        match step:
            case "begin":
                peer.begin()
                if peer.role == "server":
                    peer.feed()
            case "shake":
                peer.shake()
            case "renew":
                peer.say_inner(peer.renew())
            case "hear":
                assert isinstance(peer.hear_inner(), Renew)
                assert peer.hear_inner() == Taken(1)
            case "taken":
                peer.say_inner(Taken(1))


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize("steps", range(len(STEPS)))
@pytest.mark.parametrize("role", ROLES)
def test_peer_disconnects(folder: Path, role: str, steps: int, reset: bool) -> None:
    """The end of the TCP connection without close_notify ends no QP. The life of their secrets
    stands."""
    with against(folder, role) as (peer, program):
        _walk(peer, program, steps)
        peer.tls.cut(reset=reset)
        events = [program.event()["event"]]
        while events[-1] != "closed":
            events.append(program.event()["event"])
        assert ("renewed" in events) <= (STEPS[steps] == "taken")
        worker = program.worker
        assert not worker.expired and not worker.ended
        assert [qp for qp, _ in worker.lives[:2]] == qps(program)
        assert all(seconds > 0 for _, seconds in worker.lives)


@pytest.mark.parametrize("steps", range(1, len(STEPS) - 1))
@pytest.mark.parametrize("role", ROLES)
def test_peer_becomes_silent(folder: Path, role: str, steps: int) -> None:
    with against(folder, role, limit=LATE) as (peer, program):
        begin = time.monotonic()
        _walk(peer, program, steps)
        text = check_end(peer, program, "timeout")
        assert text.startswith("no new secrets in 1.5 s, waiting for the peer")
        assert program.worker.expired_at - begin >= LATE


@pytest.mark.parametrize("way", ["wish", "timer"])
def test_client_that_ignores_the_wish_of_the_server(folder: Path, way: str) -> None:
    every = 0.5 if way == "timer" else 0.0
    with against(folder, "client", limit=LATE, every=every) as (peer, program):
        begin = time.monotonic()
        if way == "wish":
            program.wish(1)
        assert peer.hear() == Rekey(b"")
        text = check_end(peer, program, "timeout")
        assert text == "no new secrets in 1.5 s, waiting for the peer to begin the exchange"
        assert program.worker.expired_at - begin >= LATE


def test_further_wishes_do_not_restart_the_clock(folder: Path) -> None:
    with against(folder, "client", limit=LATE) as (peer, program):
        begin = time.monotonic()
        wish = 0
        while not program.worker.expired and time.monotonic() < begin + 20:
            wish += 1
            program.wish(wish)
            time.sleep(0.1)
        check_end(peer, program, "timeout")
        assert wish >= 2


@pytest.mark.parametrize("role", ROLES)
def test_peer_that_takes_secrets_and_never_uses_them(folder: Path, role: str) -> None:
    """The peer behaves up to its TAKEN. Then no packet of it has the new secrets."""
    with against(folder, role, limit=LATE) as (peer, program):
        program.worker.busy = {ASKED: FOREVER}
        begin = time.monotonic()
        if role == "server":
            program.wish(1)
        peer.exchange_secrets()
        text = check_end(peer, program, "timeout")
        assert text.startswith("no new secrets in 1.5 s, waiting for both directions")
        assert program.worker.expired_at - begin >= LATE


def test_exchange_that_begins_before_the_previous_one_is_in_effect(folder: Path) -> None:
    """It has a clock of its own once the secrets of the previous one are in effect."""
    with against(folder, "client", limit=LATE) as (peer, program):
        program.worker.busy = {ASKED: FOREVER}
        peer.exchange_secrets()
        peer.begin()
        assert peer.feed()  # the server's records: the exchange has begun there too
        begin = time.monotonic()
        program.worker.busy = {}
        renewed(program, 1, 0)
        text = check_end(peer, program, "timeout")
        assert text.startswith("no new secrets in 1.5 s, waiting for the peer's messages")
        assert program.worker.expired_at - begin >= LATE


def test_renewals_in_time_stop_the_clock(folder: Path) -> None:
    """After a renewal the connection goes on for longer than the limit."""
    with against(folder, "client", limit=LATE) as (peer, program):
        for count in (1, 2):
            peer.exchange_secrets()
            renewed(program, count, 0)
            time.sleep(LATE + 0.2)
        assert not program.worker.expired
        peer.say(ErrorMessage("worker", "the local worker ended"))
        assert program.events()[-1]["event"] == "error"


# The life of secrets --------------------------------------------------------------


def lives(one: Keyex, count: int) -> list[int]:
    """Waits for `count` rounds of LIFE for all QPs. Returns the seconds of each round."""
    numbers, end = qps(one), time.monotonic() + 20
    while len(one.worker.lives) < count * len(numbers):
        assert time.monotonic() < end
        time.sleep(0.001)
    found = one.worker.lives
    assert [qp for qp, _ in found] == numbers * count
    assert [*found[:: len(numbers)]] == [(numbers[0], s) for _, s in found[1 :: len(numbers)]]
    return [seconds for _, seconds in found[:: len(numbers)]]


def test_each_renewal_gives_a_new_life(folder: Path) -> None:
    with ready(folder, {"max_age": 1000.0}) as (a, b):
        for one in (a, b):
            assert lives(one, 1) == [1000]
        for count in (1, 2):
            b.wish(count)
            renewed(b, count, count)
            renewed(a, count, 0)
            for one in (a, b):
                assert lives(one, count + 1) == [1000] * (count + 1)


def test_life_begins_when_new_secrets_are_in_effect(folder: Path) -> None:
    worker = FakeWorker()
    with ready(folder, client=worker) as (a, b):
        assert lives(a, 1) == [AGE]
        worker.busy = {ASKED: FOREVER}
        a.wish(1)
        renewed(b, 1, 0)
        assert lives(b, 2) == [AGE] * 2 and lives(a, 1) == [AGE]
        worker.busy = {}
        renewed(a, 1, 1)
        assert lives(a, 2) == [AGE] * 2


@pytest.mark.parametrize("short", ROLES)
def test_life_ends_soon_after_the_certificates(folder: Path, tmp_path: Path, short: str) -> None:
    """The certificate of either end limits the life at both ends."""
    name = "ab"[ROLES.index(short)]
    issue(
        folder / "ca",
        f"spiffe://test/host-{name}",
        tmp_path / name,
        validity=Validity(600 / DAY),
    )
    ca = (folder / "ca/ca.pem").read_bytes()
    cert, key = ((tmp_path / f"{name}.{end}").read_bytes() for end in ("pem", "key"))
    client, server = (config(r, load(folder, n)) for r, n in zip(ROLES, "ab", strict=True))
    (client if short == "client" else server).update(cert=cert, key=key, ca=ca)
    not_after = parse_certificates(cert, "cert")[0].not_valid_after_utc
    with run_pair(client, server) as (a, b):
        for one in (a, b):
            assert [one.event()["event"], one.event()["event"]] == ["peer", "ready"]
        a.wish(1)
        renewed(a, 1, 1)
        renewed(b, 1, 0)
        left = (not_after - dt.datetime.now(dt.UTC)).total_seconds() + GRACE
        for one in (a, b):
            first, second = lives(one, 2)
            assert left - 1 <= second <= first <= left + 30, (left, first, second)


@pytest.mark.parametrize("role", ROLES)
def test_max_age_is_the_least_of_all(folder: Path, role: str) -> None:
    """The ages of both ends are their own: a long one does not lengthen the other."""
    client, server = (
        config(r, load(folder, n), max_age=60.0 if r == role else 2e9)
        for r, n in zip(ROLES, "ab", strict=True)
    )
    with run_pair(client, server) as (a, b):
        for one in (a, b):
            assert [one.event()["event"], one.event()["event"]] == ["peer", "ready"]
        mine, other = (a, b) if role == "client" else (b, a)
        assert lives(mine, 1) == [60]
        assert 80 * DAY < lives(other, 1)[0] < 91 * DAY  # that of the certificates


def test_life_is_without_effect_for_qps_that_have_ended(folder: Path) -> None:
    worker = FakeWorker(refuse="no such QP", refuses=Kind.LIFE)
    worker.status = errno.ENOENT
    with ready(folder, client=worker) as (a, b):
        a.wish(1)
        renewed(a, 1, 1)
        renewed(b, 1, 0)


def test_worker_that_refuses_life(folder: Path) -> None:
    """A QP whose life the worker does not limit must not go on."""
    worker = FakeWorker(refuse="not today", refuses=Kind.LIFE)
    with run_pair(
        *(config(r, load(folder, n)) for r, n in zip(ROLES, "ab", strict=True)),
        {"server": worker},
    ) as (_, b):
        event = b.events()[-1]
        assert event["code"] == "worker" and "not today" in event["text"]


def test_client_that_begins_exchanges_back_to_back(folder: Path) -> None:
    """As soon as it has sent TAKEN a client may begin another exchange. The server may then still
    be completing the previous one."""
    with against(folder, "client") as (peer, program):
        for count in range(1, PEERS_BURST + 1):
            peer.exchange_secrets()
            renewed(program, count, 0)
    assert len(brought(program, RX)) == 2 * PEERS_BURST
