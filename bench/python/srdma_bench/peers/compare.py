"""srdma compared with TLS, redis and memcached: the same work in turn, on the same cores, with
both ends on this machine, certificates at both ends, and AES-128-GCM where there is encryption.

    with Peers(keys=1 << 20) as peers:
        rows = peers.compare("store, depth 8", seconds=1.0, rounds=7)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

from srdma.embedded import Closing
from srdma.errors import LocalError
from srdma_bench.folder import Table
from srdma_bench.kvs.store import Kvs, KvsServer, Mix
from srdma_bench.kvs.store import Store as KvsStore
from srdma_bench.peers.servers import Measured, Memcached, Redis, on, tls_echo
from srdma_bench.perf.measure import Plan
from srdma_bench.series import Spread, in_turn, ratios, spread
from srdma_bench.stand import Link, Settings, Shape, Stand

CONNECTIONS = 8
DEPTHS = (1, 8)
MIX = Mix("c", 0)  # GETs only, because redis-benchmark runs them too; uniform keys
READS = 100  # percent of GETs for the other clients
ECHO = 32
SIZES = (2048, 16384)
KINDS = ("srdma", "tls", "redis", "memcached")
BASE = "srdma, AEAD"

# Legend: the protection of each peer, and its way of waiting.
SLEEPS = "blocks in the kernel"
YIELDS = "all four processes poll and yield for about 50 us, then sleep"
TLS = "TLS 1.3: confidentiality, integrity and order of a byte stream, both identities"
ABOUT = {
    BASE: ("per packet: confidentiality, integrity, order, freshness, address and rights; both "
           "identities. Worker and host are separate processes, as with a NIC", YIELDS),
    "srdma, none": ("no protection", YIELDS),
    "TLS": (TLS, SLEEPS),
    "TLS, pinned": (TLS, f"{SLEEPS}; one core per end"),
    "TLS, one core": (TLS, f"{SLEEPS}; both ends on one core"),
    "TLS, polling": (TLS, "both ends poll without sleeping, one core per end"),
    "redis-benchmark": (TLS, f"{SLEEPS}; the client of redis: it sends its requests together and "
                        "waits for all responses; its CPU time includes TLS handshakes"),
    "redis, our client": (TLS, f"{SLEEPS}; bench/tls_load, which sends a request per response"),
    "memcached, our client": (TLS, f"{SLEEPS}; bench/tls_load, as for redis"),
}  # fmt: skip

Run = Callable[[float], Measured]


@dataclass(frozen=True)
class Row:
    """One run. A stream has a rate in bytes per second and no latency (0)."""

    work: str
    peer: str
    round: int
    rate: float
    p50_us: float
    p99_us: float
    cpu_ns: float


@dataclass(frozen=True)
class Compared:
    """One peer at one work. ahead: rate of srdma with AEAD over that of the peer, per round."""

    work: str
    peer: str
    rate: Spread
    p50_us: Spread
    p99_us: Spread
    cpu_ns: Spread
    ahead: Spread
    slower: Spread  # median latency of the peer over that of srdma, per round


class Peers(Closing):
    """All available peers, running and loaded; a context manager. kinds: some of KINDS.

    skipped: peers that cannot run here, each with the reason.
    """

    def __init__(self, keys: int, kinds: Sequence[str] = KINDS) -> None:
        for kind in kinds:
            if kind not in KINDS:
                raise LocalError(f"unknown peer {kind!r}: give one of {', '.join(KINDS)}")
        self.skipped: dict[str, str] = {}
        self._works: dict[str, dict[str, Run]] = {}
        with ExitStack() as stack:
            self._stand = stack.enter_context(Stand())
            cores = self._stand.cores
            self._a, self._b = min(cores.worker_a), min(cores.worker_b)
            self._cores = cores.worker_a | cores.worker_b | cores.host_a | cores.host_b
            with on(self._cores):
                self._open(stack, keys, {*kinds})
            self._stack = stack.pop_all()

    @property
    def works(self) -> list[str]:
        return list(self._works)

    def kept(self, work: str, rounds: int, table: Table[Row]) -> list[Row]:
        """The rows of an earlier run: all rows of this work, or none. Raises LocalError if the
        table has others."""
        found = [row for row in table if row.work == work]
        peers = list(self._works[work])
        here = set(itertools.product(peers, range(rounds)))
        if found and {(row.peer, row.round) for row in found} != here:
            raise LocalError(
                f"{table.path} has other rows of {work!r} than {rounds} of each of "
                f"{', '.join(peers)}: name a new folder"
            )
        return found

    def compare(self, work: str, seconds: float, rounds: int) -> list[Row]:
        """Run one work with all peers in turn."""
        counts = {peer: itertools.count() for peer in self._works[work]}

        def once(peer: str, run: Run) -> Row:
            with on(self._cores):
                m = run(seconds)
            return Row(work, peer, next(counts[peer]), m.rate, m.p50_us, m.p99_us, m.cpu)

        runs = {peer: partial(once, peer, run) for peer, run in self._works[work].items()}
        return list(itertools.chain.from_iterable(in_turn(runs, rounds).values()))

    # The works ---------------------------------------------------------------------

    def _add(self, work: str, peer: str, run: Run) -> None:
        self._works.setdefault(work, {})[peer] = run

    def _open(self, stack: ExitStack, keys: int, kinds: set[str]) -> None:
        """Open the peers. srdma takes part in every work of another peer; the kind `srdma` selects
        all works, with and without protection."""
        stores = [kind for kind in (Redis, Memcached) if kind.name in kinds]
        self.skipped |= {kind.name: reason for kind in stores if (reason := kind.missing())}
        stores = [kind for kind in stores if kind.name not in self.skipped]
        # Separate workers, because those of the protected stand refuse level none.
        plain = stack.enter_context(Stand(settings=Settings(unprotected=True)))
        shape = Shape("aead", "aes-128-gcm")
        for where in ((BASE, self._stand, shape), ("srdma, none", plain, Shape("none"))):
            if stores or "srdma" in kinds:
                self._open_kvs(stack, keys, *where)
            if "tls" in kinds or "srdma" in kinds:
                self._open_link(stack, *where)
        if "tls" in kinds:
            self._open_tls()
        for kind in stores:
            self._open_store(stack.enter_context(closing(kind(self._stand.identities, keys))))

    def _open_kvs(self, stack: ExitStack, keys: int, name: str, stand: Stand, shape: Shape) -> None:
        server = stack.enter_context(KvsServer(stand))
        for depth in DEPTHS:
            store = KvsStore(keys, CONNECTIONS, depth)
            kvs = stack.enter_context(server.connect(shape, store))
            self._add(_store(depth), name, partial(_of_kvs, kvs))

    def _open_link(self, stack: ExitStack, name: str, stand: Stand, shape: Shape) -> None:
        link = stack.enter_context(stand.connect(shape))
        self._add("echo, 32 B", name, _echo(stand, link))
        for size in SIZES:
            self._add(_stream(size), name, partial(_write, stand, link, size))

    def _open_tls(self) -> None:
        folder, a, b = self._stand.identities, str(self._a), str(self._b)
        ways = {
            "TLS": ("block", "-1", "-1"), "TLS, pinned": ("block", a, b),
            "TLS, one core": ("block", a, a), "TLS, polling": ("spin", a, b),
        }  # fmt: skip
        if a == b:
            self.skipped["TLS, polling"] = "both ends would poll on one core"
            del ways["TLS, polling"], ways["TLS, pinned"]
        for name, how in ways.items():
            self._add("echo, 32 B", name, partial(tls_echo, folder, "echo", ECHO, how))
        for size in SIZES:
            for name in ("TLS", "TLS, pinned"):
                if name in ways:
                    run = partial(tls_echo, folder, "stream", size, ways[name])
                    self._add(_stream(size), name, run)

    def _open_store(self, store: Redis | Memcached) -> None:
        for depth in DEPTHS:
            run = partial(store.load, CONNECTIONS, depth, READS)
            self._add(_store(depth), f"{store.name}, our client", run)
            if isinstance(store, Redis):
                self._add(_store(depth), "redis-benchmark", _benchmark(store, depth))

    def close(self) -> None:
        self._stack.close()


def _store(depth: int) -> str:
    return f"store, depth {depth}"


def _stream(size: int) -> str:
    return f"stream, {size >> 10} KiB"


def _echo(stand: Stand, link: Link) -> Run:
    rate = [1000.0]  # round trips per second of the previous run

    def run(seconds: float) -> Measured:
        before = sum(stand.cpu().values())
        result = link.measure(Plan("send_lat", ECHO, max(100, int(rate[0] * seconds))))
        spent = sum(stand.cpu().values()) - before
        rate[0] = len(result.times) / (2 * sum(result.times) / 1e9)
        p50, p99 = (2 * result.quantile(q) for q in (0.5, 0.99))
        return Measured(rate[0], p50, p99, spent / result.messages)

    return run


def _write(stand: Stand, link: Link, size: int, seconds: float) -> Measured:
    before = sum(stand.cpu().values())
    result = link.measure(Plan("write_bw", size, seconds=seconds))
    spent = sum(stand.cpu().values()) - before
    return Measured(result.gigabytes * 1e9, 0, 0, spent / result.messages)


def _of_kvs(kvs: Kvs, seconds: float) -> Measured:
    result = kvs.measure(MIX, seconds)
    return Measured(result.rate, result.p50_us, result.p99_us, result.cpu)


def _benchmark(redis: Redis, depth: int) -> Run:
    rate = [10000.0]  # requests per second of the previous run

    def run(seconds: float) -> Measured:
        result = redis.benchmark(CONNECTIONS, depth, seconds, rate[0])
        rate[0] = result.rate
        return result

    return run


# Results -----------------------------------------------------------------------------


def compared(rows: Sequence[Row]) -> list[Compared]:
    """Work by work, in the order of the rows."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.work, row.peer), []).append(row)
    return [
        Compared(
            work,
            peer,
            spread(row.rate for row in mine),
            spread(row.p50_us for row in mine),
            spread(row.p99_us for row in mine),
            spread(row.cpu_ns for row in mine),
            ratios([r.rate for r in found[work, BASE]], [r.rate for r in mine]),
            _slower(mine, found[work, BASE]),
        )
        for (work, peer), mine in found.items()
    ]


def _slower(mine: list[Row], base: list[Row]) -> Spread:
    if not base[0].p50_us:
        return spread([0.0])
    return ratios([row.p50_us for row in mine], [row.p50_us for row in base])
