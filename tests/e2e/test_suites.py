"""Negotiation of suites over two real workers: tag lengths, explicit suites, `auto`.

Every suite and level carries data in test_api.py.
"""

from __future__ import annotations

import pytest

import srdma
from srdma import Access
from srdma.native.suites import suites
from tests.e2e.conftest import WAIT, pattern, run

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
IDS = {row["name"]: row["id"] for row in suites()}
RECOMMENDED = {row["id"]: row["levels"] for row in suites() if row["recommended"]}


@pytest.mark.parametrize(
    ("suite", "tag_len"),
    [
        ("hmac-sha1", 12),
        ("aes-256-cmac", 12),
        ("hmac-sha224", 16),
        ("hmac-sha3-256", 20),
        ("hmac-sha384", 28),
        ("hmac-sha3-384", 32),
        ("hmac-sha512", 48),
        ("hmac-sha3-512", 64),
    ],
)
def test_tag_length(join, site, suite, tag_len):
    pair = join(site, suites=[suite], level="packet", tag_len=tag_len)
    assert pair.client.suite == pair.server.suite == (IDS[suite], 2, tag_len)
    before = pair.a.ctx.stats()
    with pair.b.pd.alloc(10_000, ALL, scope="pd") as target:
        pair.client.qp.write(pattern(9000), target.remote(), 1, timeout=WAIT)
        assert target.buf[1:9001] == pattern(9000)
        assert pair.client.qp.read(target.remote(), 1, 9000, timeout=WAIT) == pattern(9000)
    assert pair.a.ctx.stats()["refused_tag"] == before["refused_tag"]


def refused(join, site, pki, client, server, said="no common suite"):
    """Connecting fails at both ends, because no suite is common."""
    a, b = join.host(site.a), join.host(site.b)
    server = {"identity": pki / "b", "timeout": 20} | server
    with srdma.listen(("127.0.0.1", 0), b.pd, **server) as listener:
        accepted = run(listener.accept, WAIT)
        with pytest.raises(srdma.Error, match=said):
            srdma.connect(listener.address, a.pd, identity=pki / "a", timeout=20, **client)
        with pytest.raises(srdma.Error, match=said):
            accepted()


@pytest.mark.parametrize(
    "client",
    [
        {"suites": ["hmac-sha1"]},
        {"suites": ["hmac-sha256"], "tag_len": 12},
        {"suites": ["aes-128-cmac"], "tag_len": 12},
    ],
)
@pytest.mark.parametrize("server", [{}, {"suites": "auto"}])
def test_some_suites_must_be_requested_by_both(join, site, pki, client, server):
    """SHA-1 and short tags are in no default, and `auto` takes none of them."""
    refused(join, site, pki, client | {"level": "packet"}, server | {"level": "packet"})


@pytest.mark.parametrize("level", ["aead", "packet"])
def test_auto(join, site, level):
    """The client takes the first suite of its own worker's list. The server permits all of them."""
    pair = join(site, suites="auto", level=level)
    number = {"aead": 3, "packet": 2}[level]
    order = [i for i in pair.a.ctx.hello.suites if number in RECOMMENDED.get(i, ())]
    assert pair.client.suite[:2] == pair.server.suite[:2] == (order[0], number)
    message = run(pair.server.qp.recv, WAIT)
    pair.client.qp.send(pattern(5000), timeout=WAIT)
    assert message().data == pattern(5000)


def test_suite_preference_of_a_worker_is_constant(join, site):
    """The worker measures at its start: the list has all suites, the recommended first, and is
    the same for all clients."""
    told = join.host(site.a).ctx.hello.suites
    assert join.host(site.a).ctx.hello.suites == told
    assert sorted(told) == sorted(IDS.values())
    assert set(told[: len(RECOMMENDED)]) == set(RECOMMENDED)


@pytest.mark.parametrize(
    ("client", "server", "said"),
    [
        ({"require": "aead"}, {"level": "packet"}, "offers level aead .* permits level packet"),
        ({"level": "packet"}, {"require": "aead"}, "offers level packet .* permits level aead"),
        (
            {"level": "header", "unprotected_payload": True},
            {"level": "packet", "require": "packet"},
            "offers level header .* permits level packet",
        ),
    ],
)
def test_required_level(join, site, pki, client, server, said):
    """Whichever end is stricter, both name the levels, and no packet is sealed."""
    before = [sealed_by(worker) for worker in (site.a, site.b)]
    refused(join, site, pki, client, server, said)
    assert before == [sealed_by(worker) for worker in (site.a, site.b)]


def sealed_by(worker):
    with srdma.Context(worker.control) as ctx:
        return ctx.stats()["packets_sealed"]
