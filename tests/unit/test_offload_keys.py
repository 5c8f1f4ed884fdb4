"""KEY, and KEYS in every key mode, at running workers (protocol.md 3.4; local-interface.md 3)."""

from __future__ import annotations

import errno
import json
import signal
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.daemon import BINARY, ERR, RTS, Client, Kind, Qp, RefusedError, Worker, keys, u32, worker

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

BASIC, PD, MEM, PD_MEM = range(4)
NAMES = {BASIC: "basic", PD: "pd", MEM: "mem", PD_MEM: "pd_mem"}
SHARED = 1  # flag of OPEN
NO_KEY = bytes(48)
GENERATION = b"generate"  # the generation in keys()
AES_256_GCM = 3
KEY_LIMIT = 26


class End(NamedTuple):
    """A QP and its leg."""

    client: Client
    leg: int
    qp: Qp
    token: bytes


def end(found: Worker, flags: int = 0) -> End:
    client = found.client()
    leg, token = client.open(flags=flags)
    return End(client, leg, client.init(leg), token)


def key(own: End, peer: End, **changes: Any) -> bytes:
    """The body of KEY."""
    v: dict[str, Any] = {
        "qpn": own.qp.qpn,
        "size": 16,
        "group": 0,
        "generation": GENERATION,
        "eid": peer.qp.eid,
        "peer_qpn": peer.qp.qpn,
    } | changes
    return struct.pack(">IBB2x8s16sI", *v.values())


def ask(own: End, peer: End, **changes: Any) -> tuple[bytes, bytes]:
    """Requests KEY. Returns the secret and the group's key."""
    answer = own.client.request(Kind.KEY, key(own, peer, **changes))[0]
    assert len(answer) == 80
    return answer[:32], answer[32:]


def give(own: End, peer: End, role: int, **changes: Any) -> None:
    own.client.request(Kind.KEYS, keys(own.qp, peer.qp, role, **changes))


# --- KEY ----------------------------------------------------------------------------


def test_secret_depends_on_direction_and_generation(a: Worker, b: Worker) -> None:
    one, two = end(a), end(b)
    first, group = ask(one, two)
    assert group == NO_KEY and any(first[:16]) and not any(first[16:])
    assert ask(one, two) == (first, group)
    others = [
        {"size": 32},
        {"generation": b"another "},
        {"eid": bytes(16)},
        {"peer_qpn": two.qp.qpn ^ 2},
        {"qpn": one.client.init(one.leg).qpn},
        {"qpn": one.client.init(one.client.open()[0]).qpn},
    ]
    found = [ask(one, two, **change)[0] for change in others]
    assert len({first, *found}) == len(others) + 1
    assert any(found[0][16:])


def test_group_key_of_a_leg_for_a_trust_group(a: Worker, b: Worker) -> None:
    one, two = end(a, SHARED), end(b, SHARED)
    secret, group = ask(one, two, group=1)
    assert any(secret[:16]) and any(group[:16]) and any(group[16:])
    assert ask(end(a, SHARED), two, group=1)[1] != group
    said = one.client.refused(errno.EPERM, Kind.KEY, key(one, two))
    assert "members of the group only" in said
    body = keys(one.qp, two.qp, 1, mode=PD, secrets=(b"", b"t"))
    assert "members of the group only" in one.client.refused(errno.EPERM, Kind.KEYS, body)


def test_refusals_of_key(a: Worker, b: Worker) -> None:
    one, two = end(a), end(b)
    for changes, status, said in (
        ({"qpn": one.qp.qpn ^ 2}, errno.ENOENT, "does not exist"),  # before INIT
        ({"qpn": 0}, errno.ENOENT, "does not exist"),
        ({"size": 0}, errno.EINVAL, "16 or 32"),
        ({"size": 24}, errno.EINVAL, "16 or 32"),
        ({"size": 33}, errno.EINVAL, "16 or 32"),
        ({"group": 2}, errno.EINVAL, "0 or 1"),
        ({"group": 1}, errno.EPERM, "was not opened for a trust group"),
        ({"peer_qpn": 0}, errno.EINVAL, "the peer's QP"),
        ({"peer_qpn": 1 << 24}, errno.EINVAL, "the peer's QP"),
    ):
        assert said in one.client.refused(status, Kind.KEY, key(one, two, **changes)), changes
    give(one, two, 1)
    assert "already" in one.client.refused(errno.EISCONN, Kind.KEY, key(one, two))
    assert "this connection" in a.client().refused(errno.EPERM, Kind.KEY, key(one, two))


# --- KEYS in each mode --------------------------------------------------------------


def connect(one: End, two: End, mode: int, size: int = 16, **changes: Any) -> None:
    """Moves both to RTS. `one` is the client. In modes with pd the secrets come from KEY."""
    secrets = [(b"0" * size, b"1" * size)] * 2
    if mode & PD:
        to_two, to_one = ask(two, one, size=size)[0], ask(one, two, size=size)[0]
        secrets = [(to_two, b""), (b"", to_one)]
    more = changes | {"mode": mode, "secret": size}
    give(two, one, 1, secrets=secrets[1], **more)
    give(one, two, 0, secrets=secrets[0], **more)
    until_running(one, two)


def until_running(*ends: End) -> None:
    for own in ends:
        assert own.client.wait(own.qp.qpn) == (RTS, 0)


def statistics(found: Worker) -> dict[str, Any]:
    found.process.send_signal(signal.SIGUSR1)
    line: dict[str, Any] = json.loads(found.line())
    return line


@pytest.mark.parametrize("mode", NAMES, ids=NAMES.values())
@pytest.mark.parametrize(("suite", "size"), [(1, 16), (AES_256_GCM, 32)])
def test_connection(a: Worker, b: Worker, mode: int, suite: int, size: int) -> None:
    one, two = end(a), end(b)
    connect(one, two, mode, size, suite=suite)
    found, name = statistics(a), NAMES[mode]
    assert {n: found[f"qps_{n}"] for n in NAMES.values()} == {
        n: int(number == mode) for number, n in NAMES.items()
    }
    assert found[f"key_bytes_{name}"] == (size if mode & PD else 2 * (suite_key(suite) + size))
    assert found[f"nonce_bytes_{name}"] > 0 and found[f"window_bytes_{name}"] > 0
    assert (found["legs"], found["key_bytes_legs"]) == (1, 64)
    assert (found["key_cache_kept"] > 0) == bool(mode & PD)
    one.client.request(Kind.DESTROY, u32(one.qp.qpn))
    found = statistics(a)
    assert (found[f"qps_{name}"], found[f"key_bytes_{name}"]) == (0, 0)


def suite_key(suite: int) -> int:
    """Returns the key length of a suite in bytes."""
    return {1: 16, AES_256_GCM: 32}[suite]


def test_connection_of_a_trust_group(a: Worker, b: Worker) -> None:
    one, two = end(a, SHARED), end(b, SHARED)
    group = ask(two, one, group=1)[1]
    for own, peer, role in ((two, one, 1), (one, two, 0)):
        give(own, peer, role, mode=PD, secrets=(b"", b""), group=group)
    until_running(one, two)
    found = statistics(a)
    assert (found["qps_pd"], found["key_bytes_pd"]) == (1, 0)
    another = one._replace(qp=one.client.init(one.leg))
    assert ask(another, two, group=1)[1] == group  # the leg now has the group's key


def test_leg_in_use_takes_no_group_key(a: Worker, b: Worker) -> None:
    one, two = end(a, SHARED), end(b, SHARED)
    ask(one, two, group=1)  # its local K_PD is in use
    body = keys(one.qp, two.qp, 1, mode=PD, secrets=(b"", b""), group=b"g" * 48)
    assert "another group, or its own" in one.client.refused(errno.EBUSY, Kind.KEYS, body)


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"mode": 4}, errno.EOPNOTSUPP, "not in this version"),
        ({"mode": 255, "secrets": (b"", b"t")}, errno.EOPNOTSUPP, "not in this version"),
        ({"mode": PD}, errno.EINVAL, "rx secret"),
        ({"mode": PD_MEM, "secrets": (b"", b"")}, errno.EINVAL, "neither"),
        ({"mode": PD, "secrets": (b"", b""), "group": b"g" * 48}, errno.EPERM, "trust group"),
        ({"mode": PD, "secrets": (b"", b"t"), "group": b"g" * 48}, errno.EINVAL, "both"),
        ({"mode": BASIC, "group": b"g" * 48}, errno.EINVAL, "group key"),
        ({"mode": MEM, "group": b"\0" * 47 + b"g"}, errno.EINVAL, "group key"),
    ],
)
def test_refusals_of_keys(
    a: Worker, b: Worker, changes: dict[str, Any], status: int, said: str
) -> None:
    one, two = end(a), end(b)
    body = keys(one.qp, two.qp, 1, **changes)
    assert said in one.client.refused(status, Kind.KEYS, body)
    connect(one, two, BASIC)  # the refusals changed nothing


def test_level_none_has_no_key_mode(tmp_path: Path) -> None:
    with worker(tmp_path, "u", "--allow-unprotected") as found:
        one, two = end(found), end(found)
        for mode in (PD, MEM, PD_MEM):
            body = keys(
                one.qp, two.qp, 1, level=0, suite=0, tag=0, secret=0, mode=mode, secrets=(b"", b"")
            )
            with pytest.raises(RefusedError):
                one.client.request(Kind.KEYS, body)
            assert one.client.alive()


@pytest.mark.parametrize(("contexts", "kept"), [("0", 0), ("1", 1), ("65536", 2)])
def test_key_cache(tmp_path: Path, b: Worker, contexts: str, kept: int) -> None:
    with worker(tmp_path, "c", "--key-cache", contexts) as found:
        one, two = end(found), end(b)
        connect(one, two, PD)
        counts = statistics(found)
        assert counts["key_cache_kept"] == kept
        packets = counts["packets_sealed"] + counts["packets_verified"]
        assert counts["key_cache_hits"] + counts["key_cache_misses"] == packets > 1
        if contexts == "0":
            assert counts["key_cache_hits"] == 0


# --- secrets ------------------------------------------------------------------------


def test_secrets_are_wiped_after_use(a: Worker, b: Worker) -> None:
    """They are neither in the log nor in buffers of messages and responses."""
    one, two = end(a, SHARED), end(b, SHARED)
    secret, group = ask(one, two, group=1)
    owner = end(a)
    give(owner, two, 1, mode=PD, secrets=(b"", b"-tx secret-only-"))
    assert "secret-only" not in a.log()
    try:
        assert a.copies(group[:16]) == 1  # K_PD itself
        assert a.copies(secret[:16]) == 0  # derived when a packet needs it
        assert a.copies(b"-tx secret-only-") == 1  # in the session
    except PermissionError:
        pytest.skip("the worker is not dumpable: only root may read its memory")


# --- ROTATE, REKEY, EXPIRE, LIFE -----------------------------------------------------------

RX, TX, ASKED, WITHDRAW = 1, 2, 0, 3
BUSY_WAIT = 10.0


def rekey(own: End, direction: int, secret: bytes = b"", size: int | None = None) -> bytes:
    """The body of REKEY."""
    length = (16 if direction else 0) if size is None else size
    return struct.pack(">IBB2x32s", own.qp.qpn, direction, length, secret)


def connected(a: Worker, b: Worker, mode: int) -> tuple[End, End]:
    one, two = end(a), end(b)
    secrets = (b"0" * 16, b"1" * 16)
    if mode & PD:
        secrets = (ask(two, one)[0][:16], ask(one, two)[0][:16])
    for own, peer, role in ((two, one, 1), (one, two, 0)):
        body = keys(own.qp, peer.qp, role, mode=mode, secrets=secrets)
        if mode & PD:
            body = body[:-112] + secrets[role].ljust(32, b"\0") + bytes(80)
        own.client.request(Kind.KEYS, body)
    assert [own.client.wait(own.qp.qpn)[0] for own in (one, two)] == [RTS, RTS]
    return one, two


def until_taken_up(*ends: End) -> None:
    for own in ends:
        limit = time.monotonic() + BUSY_WAIT
        while True:
            try:
                own.client.request(Kind.REKEY, rekey(own, ASKED))
                break
            except RefusedError as refusal:
                assert refusal.status == errno.EBUSY and time.monotonic() < limit
            time.sleep(0.01)


def rotate(own: End, age: int = 0) -> tuple[int, int]:
    """Returns the new serial, and how many keys still use an older one."""
    return struct.unpack(">II", own.client.request(Kind.ROTATE, u32(own.leg, age))[0])


def test_rekey_with_new_secrets(a: Worker, b: Worker) -> None:
    one, two = connected(a, b, BASIC)
    for number in range(3):
        for receiver, sender in ((one, two), (two, one)):
            secret = bytes([number + 1]) * 16
            receiver.client.request(Kind.REKEY, rekey(receiver, RX, secret))
            busy = receiver.client.refused(errno.EBUSY, Kind.REKEY, rekey(receiver, RX, secret))
            assert "waits for the next epoch" in busy
            receiver.client.refused(errno.EBUSY, Kind.REKEY, rekey(receiver, ASKED))
            sender.client.request(Kind.REKEY, rekey(sender, TX, secret))
            until_taken_up(one, two)


def test_rotation_of_a_leg(a: Worker, b: Worker) -> None:
    one, two = connected(a, b, PD)
    assert rotate(one, 3600) == (0, 0)
    serial, behind = rotate(one)
    assert serial == 1 and behind > 0
    assert rotate(one) == (serial, behind)
    secret = ask(one, two)[0]
    one.client.request(Kind.REKEY, rekey(one, RX))
    two.client.request(Kind.REKEY, rekey(two, TX, secret[:16]))
    until_taken_up(one, two)
    limit = time.monotonic() + BUSY_WAIT
    while rotate(one, 3600)[1]:
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert rotate(one)[0] == 2
    assert rotate(two)[0] == 1


def test_refused_secrets(a: Worker, b: Worker) -> None:
    one, two = connected(a, b, PD)
    fresh = end(a)
    assert "not connected" in fresh.client.refused(errno.ENOTCONN, Kind.REKEY, rekey(fresh, TX))
    for body, text in (
        (rekey(one, 4, b"S" * 16), "direction 4"),
        (rekey(one, WITHDRAW, b"", 16), "a secret of 16 bytes"),
        (rekey(one, WITHDRAW, b"S", 0), "where none belongs"),
        (rekey(one, TX, b"S" * 16, 32), "a secret of 32 bytes"),
        (rekey(one, ASKED, b"", 16), "a secret of 16 bytes"),
        (rekey(one, TX), "all bytes are zero"),
        (rekey(one, RX, b"S" * 16), "where none belongs"),
        (rekey(one, ASKED, b"S"), "where none belongs"),
    ):
        assert text in one.client.refused(errno.EINVAL, Kind.REKEY, body)
    other = key(one, two, generation=b"another ")
    assert "keys already" in one.client.refused(errno.EISCONN, Kind.KEY, other)


def test_group_is_not_rotated(a: Worker) -> None:
    member = end(a, SHARED)
    assert "trust group" in member.client.refused(errno.EPERM, Kind.ROTATE, u32(member.leg, 0))


def test_expired_keys_end_the_qp(a: Worker, b: Worker) -> None:
    one, two = connected(a, b, BASIC)
    one.client.request(Kind.EXPIRE, u32(one.qp.qpn))
    assert one.client.wait(one.qp.qpn) == (ERR, KEY_LIMIT)
    limit = time.monotonic() + BUSY_WAIT
    while two.client.wait(two.qp.qpn)[0] != ERR:  # ended by the CLOSE of its peer
        assert time.monotonic() < limit
        time.sleep(0.01)
    one.client.request(Kind.EXPIRE, u32(one.qp.qpn))  # repeated: no effect
    assert one.client.wait(one.qp.qpn) == (ERR, KEY_LIMIT)
    assert "not renewed" in a.log()


def test_life_ends_the_qp_without_a_client(a: Worker, b: Worker) -> None:
    """The QP ends in time although the connection that sent LIFE has ended."""
    one, two = connected(a, b, BASIC)
    short = a.client()
    short.attach(one.token)
    one.client.request(Kind.LIFE, u32(one.qp.qpn, 2**31 - 1))
    short.request(Kind.LIFE, u32(one.qp.qpn, 1))  # replaces the one before
    start = time.monotonic()
    short.close()
    limit = start + BUSY_WAIT
    while one.client.wait(one.qp.qpn)[0] != ERR:
        assert time.monotonic() < limit
        time.sleep(0.01)
    assert time.monotonic() - start > 0.9
    assert one.client.wait(one.qp.qpn) == (ERR, KEY_LIMIT)
    while two.client.wait(two.qp.qpn)[0] != ERR:  # ended by the CLOSE of its peer
        assert time.monotonic() < limit
        time.sleep(0.01)
    one.client.request(Kind.LIFE, u32(one.qp.qpn, 1))  # in ERR: no effect
    assert "in 1 s unless its keys are renewed" in a.log()


def test_refused_lives(a: Worker, b: Worker) -> None:
    one, _ = connected(a, b, BASIC)
    fresh = end(a)
    text = fresh.client.refused(errno.ENOTCONN, Kind.LIFE, u32(fresh.qp.qpn, 1))
    assert "no keys yet" in text
    for seconds in (0, 2**31, 2**32 - 1):
        text = one.client.refused(errno.EINVAL, Kind.LIFE, u32(one.qp.qpn, seconds))
        assert "it must be 1 to 2147483647" in text
    assert one.client.wait(one.qp.qpn)[0] == RTS
