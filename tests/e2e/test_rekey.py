"""New secrets under load: connection.rekey(), pd.rotate(), the clock, and
refusals (protocol.md 8.5)."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
import time
from collections.abc import Iterator

import pytest

import srdma
import srdma.aio
from srdma import Access
from srdma.errors import IntegrityError, LocalError, RemoteError, Timeout, WCError
from srdma.identity import Validity, issue
from tests.e2e.cable import why_not
from tests.e2e.conftest import WAIT, B, pattern, run
from tests.e2e.load import Load
from tests.e2e.mitm import OF, Faults, build, shm_middle, udp_middle

MODES = ["basic", "pd", "mem", "pd+mem"]
TIMES = 15  # more than a burst (protocol.md 8.5)
REASON = why_not()
WIRES = [
    "shm",
    pytest.param("udp", marks=pytest.mark.skipif(REASON is not None, reason=str(REASON))),
]
ATTACK = Faults(*[OF // 40] * 4)
SIZE = 20_000
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ


class Calls:
    """A load of WRITEs that are read back, in both directions, and of SENDs, until end() is called.

    Every posted request must complete with the right data; a failed one is not posted again.
    """

    def __init__(self, pair) -> None:
        self.done = 0
        self._stop = threading.Event()
        ends = (pair.client, pair.b.pd), (pair.server, pair.a.pd)
        self._regions = [pd.alloc(SIZE, ALL, scope="pd") for _, pd in ends]
        self._working = [
            run(self._work, connection.qp, region)
            for (connection, _), region in zip(ends, self._regions, strict=True)
        ]
        self._talking = run(self._talk, pair.client.qps[-1], pair.server.qps[-1])

    def _work(self, qp, region) -> None:
        seed = 0
        while not self._stop.is_set():
            seed += 1
            data = pattern(SIZE, seed)
            qp.write(data, region.remote(), timeout=WAIT)
            assert region.buf[:] == data
            assert qp.read(region.remote(), 0, SIZE, timeout=WAIT) == data
            self.done += 2

    def _talk(self, one, other) -> None:
        seed = 0
        while not self._stop.is_set():
            seed += 1
            message = run(other.recv, WAIT, size=5000)
            one.send(pattern(5000, seed), timeout=WAIT)
            assert message()[0] == pattern(5000, seed)
            self.done += 2

    def end(self) -> int:
        """Stops the load. Returns the number of requests."""
        self._stop.set()
        for working in (*self._working, self._talking):
            working()
        for region in self._regions:
            region.close()
        return self.done


@contextlib.contextmanager
def under_load(*pairs) -> Iterator[None]:
    loads = [Calls(pair) for pair in pairs]
    yield
    for load in loads:
        before = load.done
        while load.done < before + 4:  # the load continues after the last new secret
            time.sleep(0.01)
        assert load.end() > 0


def epochs(host) -> int:
    """Returns how many epochs the host's worker has begun."""
    return host.ctx.stats()["rekeys_sent"]


@pytest.mark.parametrize("mode", MODES)
# review A27
def test_rekeys_under_load(site, join, mode):
    pair = join(site, mode=mode, qps=2)
    before = epochs(pair.a), epochs(pair.b)
    with under_load(pair):
        for number in range(TIMES):
            (pair.client, pair.server)[number % 2].rekey(timeout=WAIT)
    for host, was in zip((pair.a, pair.b), before, strict=True):
        assert epochs(host) - was >= TIMES * 2  # each of the two QPs begins an epoch
        assert not host.ctx.stats()["refused_tag"]
    assert all(qp.reason == "" for end in (pair.client, pair.server) for qp in end.qps)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("mitm"))


@pytest.mark.parametrize("mode", ["basic", "pd"])
@pytest.mark.parametrize("wire", WIRES)
def test_rekeys_on_a_bad_wire(program, join, tmp_path, wire, mode):
    """One packet in ten is flipped, dropped, duplicated or replaced. This also hits first packets
    of epochs."""
    with shm_middle(program) if wire == "shm" else udp_middle(program, tmp_path) as middle:
        pair = join(middle.site, mode=mode)
        load = Load(pair)
        load.run(load.until(100))
        before = epochs(pair.a)
        middle.mitm.faults(ATTACK)
        done = threading.Event()
        rekeying = run(_many, pair, done)
        load.run(done.is_set)
        rekeying()
        count = middle.mitm.count()
        assert epochs(pair.a) - before >= TIMES
        assert load.reasons == ["", ""] and all(stream.received_all for stream in load.streams)
        assert min(count.flip, count.drop, count.twice, count.replace) > 0
        pair.client.close()
        pair.server.close()


def _many(pair, done) -> None:
    try:
        for number in range(TIMES):
            (pair.client, pair.server)[number % 2].rekey(timeout=WAIT)
    finally:
        done.set()


def test_both_ends_rekey_at_once(site, join):
    pair = join(site, mode="pd")
    for _ in range(10):
        other = run(pair.server.rekey, WAIT)
        pair.client.rekey(WAIT)
        other()


def test_trust_group_keeps_its_secrets(site, join, pki):
    hosts = [join.host(site.a), join.host(site.b)]
    pds = [host.ctx for host in hosts]
    with srdma.PD(pds[0], group="g") as ours, srdma.PD(pds[1], group="g") as theirs:
        hosts[0].pd, hosts[1].pd = ours, theirs
        pair = join.connect(*hosts, mode="pd")
        before = epochs(pair.a)
        pair.client.rekey(WAIT)
        pair.server.rekey(WAIT)
        assert epochs(pair.a) == before
        with pytest.raises(LocalError, match="trust group 'g', which cannot be rotated"):
            ours.rotate()


def test_level_none_has_no_secrets_to_renew(site, join):
    pair = join(site, level="none")
    for end in (pair.client, pair.server):
        with pytest.raises(LocalError, match="no secrets to renew"):
            end.rekey()
    assert pair.a.pd.rotate() == 1  # K_PD changes, although no QP uses it


# pd.rotate() -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["pd", "pd+mem"])
def test_rotation_under_load(site, join, mode):
    """Several connections of one PD, as client and as server, and one in another key mode."""
    hosts = join.host(site.a), join.host(site.b)
    pairs = [join.connect(*hosts, mode=mode), join.connect(*hosts, mode=mode)]
    pairs.append(join.connect(*hosts, mode="basic"))
    pairs.append(join.connect(hosts[1], hosts[0], mode=mode))
    with under_load(*pairs):
        serials = [hosts[0].pd.rotate(WAIT), hosts[1].pd.rotate(WAIT), hosts[0].pd.rotate(WAIT)]
    assert serials[0] >= 1 and serials[1] >= 1 and serials[2] > serials[0]


def test_rotation_of_quiet_connections(site, join):
    hosts = join.host(site.a), join.host(site.b)
    pairs = [join.connect(*hosts, mode="pd") for _ in range(2)]
    assert hosts[0].pd.rotate(WAIT) >= 1
    pairs[0].client.close()
    pairs[0].server.close()
    assert hosts[0].pd.rotate(WAIT) >= 2
    with under_load(pairs[1]):
        pass


def test_rotation_reports_what_blocks_it(site, join):
    """A rotation that does not complete in its timeout, here 0, raises an error that names what
    still uses the former key."""
    pair = join(site, mode="pd")
    with pytest.raises(Timeout, match="depend on the PD's former key"):
        pair.a.pd.rotate(timeout=0.0)
    assert pair.a.pd.rotate(WAIT) >= 1  # another call continues it


# Timer -------------------------------------------------------------------------------


def test_rekey_by_timer(site, join):
    pair = join(site, rekey_every=0.3)
    before = epochs(pair.a)
    with under_load(pair):
        end = time.monotonic() + WAIT
        while epochs(pair.a) < before + 4 and time.monotonic() < end:
            time.sleep(0.05)
    assert epochs(pair.a) >= before + 4
    assert pair.client.alive() and pair.server.alive()


# Ends --------------------------------------------------------------------------------


def test_certificate_expires_before_rekey(site, join, pki, tmp_path):
    """The certificate was valid when the connection was made. Its QPs end with a reason."""
    hosts = join.host(site.a), join.host(site.b)
    start = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)
    seconds = 60 + 12
    issue(pki, "spiffe://test/a", tmp_path / "a", validity=Validity(seconds / 86_400, start))
    (tmp_path / "ca.pem").write_bytes((pki / "ca.pem").read_bytes())
    with srdma.listen(("127.0.0.1", 0), hosts[1].pd, identity=pki / "b", timeout=WAIT) as listener:
        accepted = run(listener.accept, WAIT)
        client = srdma.connect(
            listener.address, hosts[0].pd, identity=tmp_path / "a", peer=B, timeout=WAIT
        )
        server = accepted()
    client.rekey(WAIT)
    while dt.datetime.now(dt.UTC) < start + dt.timedelta(seconds=seconds + 1):
        time.sleep(0.1)
    with pytest.raises(IntegrityError, match="the peer's certificate has expired"):
        server.rekey(WAIT)
    with pytest.raises(
        IntegrityError, match=r"this end.s certificate has expired|the peer reports"
    ):
        client.rekey(WAIT)
    for end in (client, server):
        with pytest.raises(WCError):
            while True:
                end.qp.send(b"x", timeout=WAIT)
        assert end.qp.reason in ("KEY_LIMIT", "PEER_ERROR") and not end.alive()


def test_peer_closes_during_rekey(site, join):
    pair = join(site)
    pair.server.close()
    with pytest.raises(RemoteError, match="the connection was closed"):
        pair.client.rekey(WAIT)


def test_asyncio(site, join):
    async def scene(pd, connection) -> int:
        async with srdma.aio.Connection(connection) as conn:
            await asyncio.gather(*(conn.rekey(WAIT) for _ in range(3)))
            return await srdma.aio.rotate(pd, WAIT)

    pair = join(site, mode="pd")
    assert asyncio.run(scene(pair.a.pd, pair.client)) >= 1
