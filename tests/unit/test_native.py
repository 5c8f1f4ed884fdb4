"""The bindings of csrc: life cycle, and errors that name the wrong argument."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests import fields
from tests.native import bindings
from tests.reference import random_packets
from tests.reference.suites import Level
from tests.reference.wire import Op

SEND: Any = {"opcode": Op.SEND_ONLY, "request_id": 0}


def params(**changes: Any) -> Any:
    found = random_packets.params(Random("native"), 0x01, Level.AEAD)
    return fields.of_params(found) | changes


def test_closed_session_raises() -> None:
    session = bindings.Session(params())
    session.close()
    session.close()
    with pytest.raises(ValueError, match="closed"):
        session.seal(SEND, b"")
    with pytest.raises(ValueError, match="closed"):
        session.open(b"")


@pytest.mark.parametrize(
    "changes",
    [
        {"role": 2},
        {"suite": 0},
        {"tag_len": 12},
        {"tag_len": 0},
        {"window": 63},
        {"mtu": 255},
        {"mtu": 4097},
        {"local_qpn": 0},
        {"peer_qpn": 1 << 24},
        {"tx_pn": 1 << 62},
        {"tx_secret": bytes(32), "rx_secret": bytes(32)},
        {"tx_secret": b"", "rx_secret": b""},
        {"tx_secret": bytes(16), "rx_secret": bytes(15)},
        {"tx_secret": bytes(300), "rx_secret": bytes(300)},
        {"generation": bytes(7)},
        {"local_eid": bytes(17)},
        {"level": Level.NONE},
    ],
)
def test_session_refuses(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        bindings.Session(params(**changes))


@pytest.mark.parametrize("changes", [{"mode": 4}, {"suite": 0x08}, {"level": 2}, {"level": 9}])
def test_session_of_a_later_version(changes: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match="not in this version"):
        bindings.Session(params(**changes))


def test_illegal_packets_use_no_number() -> None:
    session = bindings.Session(params())
    before = session.next_pn
    for packet, payload in (
        (SEND | {"opcode": 0x15}, b""),
        (SEND | {"opcode": Op.SEND_FIRST}, b""),
        (SEND | {"flags": 0x80}, b""),
        (SEND | {"request_id": 1 << 62}, b""),
        (SEND | {"proof": b"short"}, b""),
        (SEND | {"opcode": Op.ACKNOWLEDGE}, b""),
        (SEND, bytes(4097)),
    ):
        with pytest.raises(ValueError):
            session.seal(packet, payload)
    too_many = {"kind": 4, "gaps": ((0, 0, 0),) * 9}
    with pytest.raises(ValueError, match="at most 8"):
        session.seal(SEND | {"opcode": Op.ACKNOWLEDGE, "ack": too_many}, b"")
    assert session.next_pn == before


def test_packet_limit_is_hard() -> None:
    session = bindings.Session(params())
    session.limit(10, 1)
    session.seal(SEND, b"")
    session.seal(SEND, b"")
    with pytest.raises(OSError, match="packet"):
        session.seal(SEND, b"")
    with pytest.raises(ValueError):
        session.limit(11, 1)


def test_forgery_limit_ends_the_session() -> None:
    client, server = (
        params(),
        fields.of_params(random_packets.params(Random("native"), 0x01, Level.AEAD).mirrored()),
    )
    sender, receiver = bindings.Session(client), bindings.Session(server)
    receiver.limit(1 << 20, 1)
    data = sender.seal(SEND, b"text")
    with pytest.raises(bindings.RefusedError, match="tag"):
        receiver.open(data[:-1] + bytes([data[-1] ^ 1]))
    assert (receiver.forgeries, receiver.spent) == (1, True)
    with pytest.raises(bindings.RefusedError, match="qp_state"):
        receiver.open(data)


def pd_params(**changes: Any) -> Any:
    """Parameters of a key mode with all keys that it needs."""
    return params(mode=3, group_key=bytes(48), key_cache=bindings.KeyCache(1)) | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"group_key": None},
        {"key_cache": None},
        {"group_key": bytes(47)},
        {"tx_secret": b"", "rx_secret": b""},
        {"level": Level.NONE, "suite": 0, "tag_len": 0, "tx_secret": b"", "rx_secret": b""},
    ],
)
def test_session_of_a_pd_refuses(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        bindings.Session(pd_params(**changes))


def test_key_cache_may_be_dropped_before_its_sessions() -> None:
    """The interpreter may drop them in any order."""
    cache = bindings.KeyCache(2)
    sessions = [bindings.Session(pd_params(key_cache=cache, local_qpn=n)) for n in range(1, 5)]
    for session in sessions:
        session.seal(SEND, b"")
    assert cache.counts == {"hits": 0, "misses": 4, "kept": 2}
    sessions[3].seal(SEND, b"")
    assert cache.counts == {"hits": 1, "misses": 4, "kept": 2}
    sessions[2].close()
    assert cache.counts["kept"] == 1
    del cache
    sessions[0].seal(SEND, b"")
    del sessions, session


def test_claims_belong_to_the_packet_opened_last() -> None:
    ends = random_packets.params(Random("native"), 0x01, Level.AEAD)
    client, server = (
        bindings.Session(fields.of_params(end) | {"mode": 2}) for end in (ends, ends.mirrored())
    )
    proven: Any = {"opcode": Op.WRITE_ONLY, "request_id": 0, "flags": 0x80, "rkey": 7}
    for count in range(2):
        with pytest.raises(ValueError, match="no proof"):
            server.claim()
        data = client.seal(proven | {"request_id": count, "access_key": bytes(16)}, b"")
        found = server.open(data)
        assert found["proof"] not in (bytes(16), b"") and server.claim()[8 + 3] == 2
        with pytest.raises(bindings.RefusedError):
            server.open(data)
    server.close()
    with pytest.raises(ValueError, match="no proof"):
        server.claim()


def test_proofs_need_a_key_and_the_mode() -> None:
    proven: Any = {"opcode": Op.WRITE_ONLY, "request_id": 0, "flags": 0x80}
    with pytest.raises(ValueError, match="K_access has 16"):
        bindings.Session(params(mode=2)).seal(proven | {"access_key": bytes(15)}, b"")
    with pytest.raises(ValueError, match="packet"):
        bindings.Session(params(mode=0)).seal(proven | {"access_key": bytes(16)}, b"")


def test_state_of_the_modes() -> None:
    """Key bytes of 3.4: two traffic keys and their S; S of the sending direction; none."""
    key = {mode: bindings.Session(pd_params(mode=mode)).state["key_bytes"] for mode in range(4)}
    assert key == {0: 64, 1: 16, 2: 64, 3: 16}
    assert bindings.Session(pd_params(shared=True)).state["key_bytes"] == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"group_key": bytes(47)}, "group_key has 48"),
        ({"receiver": (bytes(15), 1)}, "receiver has 16"),
        ({"generation": bytes(9)}, "generation has 8"),
        ({"size": 24}, "pd_secret"),
        ({"size": 64}, "pd_secret"),
    ],
)
def test_pd_secret_refuses(change: dict[str, Any], why: str) -> None:
    end = bytes(16), 1
    legal: dict[str, Any] = {"group_key": bytes(48), "receiver": end, "sender": end}
    legal |= {"generation": bytes(8), "size": 16}
    assert len(bindings.pd_secret(**legal)) == 16
    with pytest.raises(ValueError, match=why):
        bindings.pd_secret(**legal | change)


def test_suite_refuses() -> None:
    with pytest.raises(ValueError, match="no suite"):
        bindings.Suite("rot13", bytes(16))
    with pytest.raises(ValueError, match="key of 16"):
        bindings.Suite("aes-128-gcm", bytes(15))
    with pytest.raises(ValueError, match="tag of 15"):
        bindings.Suite("aes-128-gcm", bytes(16), 15)
    suite = bindings.Suite("aes-128-gcm", bytes(16))
    with pytest.raises(ValueError, match="nonce"):
        suite.seal(bytes(16), b"", b"")
    with pytest.raises(ValueError, match="tag"):
        suite.open(bytes(12), b"", b"", bytes(12))


def test_formats_of_the_host_leg_refuse() -> None:
    with pytest.raises(OSError, match="descriptor"):
        bindings.decode_descriptor(bytes(63))
    with pytest.raises(ValueError, match="32 bytes"):
        bindings.decode_record(bytes(31))
    with pytest.raises(ValueError, match="255"):
        bindings.kdf(bytes(16), "traffic", b"", 256)
