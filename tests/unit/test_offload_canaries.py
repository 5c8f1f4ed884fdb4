"""Keys in the memory of a worker: there while a connection lives, gone when it has ended.

The memory is that of a core dump: all mappings that can be read, stacks, heaps and shared memory.
"""

from __future__ import annotations

import errno
import os
import time
from random import Random

import pytest

from tests.daemon import BINARY, RTS, Client, Kind, Qp, RefusedError, Worker, keys, u32
from tests.memory import found
from tests.reference.kdf import next_secret, traffic_keys
from tests.reference.memory import Region, grant
from tests.reference.renewal import renewal_key
from tests.reference.suites import SUITES, Level
from tests.unit.test_offload_keys import RX, TX, ask, end, rekey

pytestmark = [
    pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the memory of a worker"),
]

AES_128_GCM = 1
FORM = (SUITES[AES_128_GCM], Level(3), 16)
GENERATION = b"generate"  # the generation in keys()
REGION = Region(0x10000, 0x20000, 4096, 48)


def canary(name: str, size: int = 16) -> bytes:
    return Random(name).randbytes(size)


def derived(secret: bytes, epoch: int = 0) -> set[bytes]:
    """The keys of both directions that a worker derives from a secret."""
    return {traffic_keys(secret, GENERATION, way, epoch, FORM)[0] for way in (RX, TX)}


def until_no_legs(client: Client) -> None:
    for _ in range(2000):
        counters, _ = client.request(Kind.STATS)
        if not int.from_bytes(counters[48 * 8 : 49 * 8], "big"):
            return
        time.sleep(0.005)
    raise AssertionError("the legs did not end")


def connect(a: Worker, b: Worker, secrets: tuple[bytes, bytes]) -> tuple[Client, Qp, int]:
    """A connection in key mode basic. Returns the client of the end at worker a."""
    one, two = end(a), end(b)
    for own, peer, role in ((two, one, 1), (one, two, 0)):
        own.client.request(Kind.KEYS, keys(own.qp, peer.qp, role, secrets=secrets))
    assert all(own.client.wait(own.qp.qpn)[0] == RTS for own in (one, two))
    return one.client, one.qp, one.leg


def test_no_key_is_left_after_the_connection(a: Worker, b: Worker) -> None:
    """A43, V23."""
    secrets = canary("to server"), canary("to client")
    capability = grant(canary("region"), REGION, 77, 0, 0x10000, 1)
    token = capability.encode()
    client, qp, leg = connect(a, b, secrets)
    handle = client.number(Kind.INSTALL, u32(leg) + token)
    assert handle
    expected = {renewal_key(*secrets, GENERATION), *secrets}
    traffic = derived(secrets[0]) | derived(secrets[1])
    planted = expected | traffic | set(capability.keys) | {token}
    alive = found(a.process.pid, planted)
    assert expected <= alive, "the search finds keys that are in use"
    assert alive & traffic, "a cipher holds its key"

    client.request(Kind.DESTROY, u32(qp.qpn))
    client.close()
    other = a.client()
    until_no_legs(other)
    assert found(a.process.pid, planted) == set()


def test_no_key_is_left_of_a_former_secret(a: Worker, b: Worker) -> None:
    first, second = (canary("1"), canary("2")), (canary("3"), canary("4"))
    one, two = end(a), end(b)
    for own, peer, role in ((two, one, 1), (one, two, 0)):
        own.client.request(Kind.KEYS, keys(own.qp, peer.qp, role, secrets=first))
    assert all(own.client.wait(own.qp.qpn)[0] == RTS for own in (one, two))
    for receiver, sender, secret in ((one, two, second[0]), (two, one, second[1])):
        receiver.client.request(Kind.REKEY, rekey(receiver, RX, secret))
        sender.client.request(Kind.REKEY, rekey(sender, TX, secret))
    client = a.client()
    for _ in range(1000):  # an epoch ends 2 s after its successor began
        if not found(a.process.pid, set(first)):
            break
        time.sleep(0.01)
    assert not found(a.process.pid, set(first))
    one.client.close()
    two.client.close()
    until_no_legs(client)
    late = {next_secret(s, GENERATION, way, 2) for s in second for way in (RX, TX)}
    assert not found(a.process.pid, {*first, *second} | late)


def test_no_key_is_left_of_a_pd(a: Worker, b: Worker) -> None:
    """K_PD is known from a leg for a trust group, whose key the worker tells."""
    one, two = end(a, 1), end(b, 1)
    _, group = ask(one, two, group=1)
    parts = {group[:16], group[16:48]}
    assert found(a.process.pid, parts) == parts
    one.client.close()
    client = a.client()
    until_no_legs(client)
    assert not found(a.process.pid, parts)


def test_no_key_is_left_of_a_refusal(a: Worker, b: Worker) -> None:
    secrets = canary("x"), canary("y")
    one, two = end(a), end(b)
    body = keys(one.qp, two.qp, 0, secrets=secrets, suite=200)
    with pytest.raises(RefusedError) as refused:
        one.client.request(Kind.KEYS, body)
    assert refused.value.status in (errno.ENOTSUP, errno.EINVAL)
    one.client.alive()  # a later request replaces the buffer of the former
    assert not found(a.process.pid, set(secrets))
