"""A key-value store over srdma (HERD, bench/kvs): requests by WRITE, responses by SEND.

    with Stand(settings=Settings(unprotected=True)) as stand, KvsServer(stand) as server:
        with server.connect(Shape("aead", "aes-128-gcm"), Store(keys=1 << 20)) as kvs:
            kvs.measure(Mix("b"), seconds=1.0)

The clients are one process with a QP per client, next to worker A; the server is another process
next to worker B. A run raises IntegrityError if the protection in force differs from the requested
one, if a response is wrong, or if the workers did not seal and verify a packet for each request
and each response.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from srdma import connection
from srdma.capability import Capability
from srdma.connection import Connection
from srdma.context import Context
from srdma.demo.stage import HostProcess
from srdma.embedded import Closing
from srdma.errors import DeviceError, Error, IntegrityError, LocalError, RemoteError
from srdma.keyex.offers import QPS_MAX
from srdma.mr import Access
from srdma.native.constants import RING_MOST
from srdma.pd import PD
from srdma_bench.native import kvs as _kvs
from srdma_bench.perf.counts import check_counts, gained
from srdma_bench.perf.measure import Plan, Result, cpu_ns, offered
from srdma_bench.stand import Shape, Stand, pin

KEYS = 1 << 23  # as in the paper
MAX_KEYS = 1 << 26
CONNECTIONS, DEPTH = 8, 8
TRACE = 1 << 20  # requests that are drawn before a run and sent repeatedly in order
HISTORY = 1 << 22  # requests that a check records
MOST_CHECKED = HISTORY // 2  # keys
THETA = 0.99
TICK = 1 << 14  # requests between readings of the clock, with --check


@dataclass(frozen=True)
class Store:
    """Number of keys, number of clients (connections), and outstanding requests per client."""

    keys: int = KEYS
    connections: int = CONNECTIONS
    depth: int = DEPTH

    def __post_init__(self) -> None:
        if not 1 <= self.keys <= MAX_KEYS // 2:
            raise LocalError(f"{self.keys} keys: give 1 to {MAX_KEYS // 2}")
        if not 1 <= self.depth <= 1024:
            raise LocalError(f"a depth of {self.depth}: give 1 to 1024")
        if not 1 <= self.connections <= self.most:
            raise LocalError(
                f"{self.connections} connections do not fit a leg at depth {self.depth}: "
                f"give 1 to {self.most}"
            )

    @property
    def most(self) -> int:
        """The maximum number of connections of a leg at this depth."""
        return min(QPS_MAX, RING_MOST // (2 * self.queue + 1))

    @property
    def slots(self) -> int:
        """Request slots per QP at the server: the depth rounded up to a power of two."""
        return 1 << (self.depth - 1).bit_length()

    @property
    def queue(self) -> int:
        """Queue depth of each QP. It exceeds `depth`, because the acks that free send-queue
        entries may arrive later than the responses."""
        return max(64, 4 * self.depth)

    @property
    def capacity(self) -> int:
        """Keys that the store has room for: those of mix d included, which inserts keys until the
        room is used up."""
        return self.keys + self.keys // 8 + 64

    def check_checkable(self) -> None:
        """Raise LocalError if the history has no room for a GET of every key and further
        requests."""
        if self.keys > MOST_CHECKED:
            raise LocalError(f"{self.keys} keys: with --check give at most {MOST_CHECKED}")


@dataclass(frozen=True)
class Mix:
    """The requests: a name of `mixes()`, and theta, the Zipf exponent (0: uniform)."""

    name: str = "a"
    theta: float = THETA

    def __post_init__(self) -> None:
        if self.name not in mixes():
            raise LocalError(f"unknown mix {self.name!r}: give one of {', '.join(mixes())}")
        if not 0 <= self.theta < 1:
            raise LocalError(f"theta {self.theta}: give 0 (uniform) or more, and less than 1")


@dataclass(frozen=True)
class KvsResult:
    """The result of a run; CPU times are ns per request."""

    level: str
    suite: str
    mode: str
    mix: str
    theta: float
    keys: int
    connections: int
    depth: int
    requests: int
    seconds: float
    misses: int
    p50_us: float
    p99_us: float
    cpu_client: float
    cpu_worker_a: float
    cpu_worker_b: float
    cpu_server: float
    packets: float  # sealed and verified, or neither at level none, per request

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def cpu(self) -> float:
        """CPU time of all four processes, ns per request."""
        return self.cpu_client + self.cpu_workers + self.cpu_server

    @property
    def cpu_workers(self) -> float:
        return self.cpu_worker_a + self.cpu_worker_b


def mixes() -> dict[str, str]:
    """The mixes of requests: name -> description."""
    return _kvs.mixes()


class Kvs:
    """The clients of one server, under one protection."""

    def __init__(
        self, server: KvsServer, serial: int, shape: Shape, store: Store, there: Connection
    ) -> None:
        """serial: number of these clients at the server's process."""
        self.serial, self.shape, self.store = serial, shape, store
        self._server, self._stand, self._there = server, server.stand, there
        self._rounds = 0
        shape.check(there)

    def open(self, pd: PD, memory: list[bytes]) -> None:
        """memory: the server's request memory of each QP, as Served.open() returns it."""
        store, self._pd = self.store, pd
        size = store.queue * _kvs.SLOT_LEN
        landing = pd.alloc(store.connections * size, Access.LOCAL_WRITE)
        places = []
        for number, (qp, data) in enumerate(zip(self._there.qps, memory, strict=True)):
            where = offered(data)
            handle = pd.handles.take(where).number if isinstance(where, Capability) else 0
            places.append((
                qp.qp_num, (store.queue, store.queue), store.depth, store.slots,
                (where.address, where.rkey, handle),
                (landing.buf[number * size :][:size], landing.lkey),
            ))  # fmt: skip
        self._client = _kvs.Client(*pd.engine.shm(), places, store.keys, store.capacity)

    def measure(self, mix: Mix, seconds: float) -> KvsResult:
        """One run. Raises IntegrityError if a response or the workers' counters are wrong."""
        self._rounds += 1  # a new seed: the caches do not contain the keys of the previous run
        trace = _kvs.Trace(mix.name, TRACE, self.store.keys, mix.theta, self._rounds)
        before, cpu = self._stand.stats(), self._cpu()
        self._client.reset()
        self._run(trace, int(seconds * 1e9))
        after, spent = self._stand.stats(), self._cpu()
        counts = self._client.counts
        if counts["misses"] and not trace.inserts:
            of = f"{counts['misses']} of {counts['gets']} GETs"
            raise IntegrityError(f"{of} found nothing, although the store has every key")
        requests = counts["gets"] + counts["puts"]
        moved = [gained(*pair) for pair in zip(before, after, strict=True)]
        run = Result(Plan("write_bw", _kvs.SLOT_LEN), requests, counts["ns"])
        protection = replace(self.shape, qps=self.store.connections)
        check_counts(protection, run, *moved, answers=requests)
        per = {f"cpu_{who}": (spent[who] - cpu[who]) / requests for who in cpu}
        packets = sum(m["packets_sealed"] + m["packets_verified"] for m in moved)
        return KvsResult(
            level=self.shape.level, suite=self.shape.suite, mode=self.shape.mode,
            mix=mix.name, theta=mix.theta, keys=self.store.keys,
            connections=self.store.connections, depth=self.store.depth,
            requests=requests, seconds=counts["ns"] / 1e9, misses=counts["misses"],
            p50_us=self._client.quantile(0.5) / 1000, p99_us=self._client.quantile(0.99) / 1000,
            packets=packets / requests, **per,
        )  # fmt: skip

    def check(self, mix: Mix, seconds: float) -> int:
        """Run for about `seconds`, or until the history is full, then GET every key. Compare all
        responses with a model of the store. Returns the number of requests.

        The model must know every PUT: raises LocalError if measure() was called before. Raises
        IntegrityError for a wrong response.
        """
        history, seed = _kvs.History(HISTORY), int(time.time())
        trace = _kvs.Trace(mix.name, TICK, self.store.keys, mix.theta, seed)
        end = time.monotonic() + seconds
        self.store.check_checkable()
        room = HISTORY - self.store.capacity
        if self._rounds:
            raise LocalError("measure() came before check(): connect again to check")
        self._client.record(history)
        self._run(trace)
        while time.monotonic() < end and len(history) + TICK <= room:
            self._run(trace)
        self._run(None)
        self._client.record(None)
        wrong = history.check(self.store.keys)
        if wrong is not None:
            key, version, start, answered = wrong
            raise IntegrityError(
                f"a GET of key {key} (sent at {start}, answered at {answered}) returned version "
                f"{version}, which the store did not have then; the requests' seed is {seed}"
            )
        state = self._server.state(self)
        if state["keys"] != self._client.keys:
            raise IntegrityError(
                f"the store has {state['keys']} keys, but {self._client.keys} were put"
            )
        return len(history)

    def bye(self) -> None:
        """Send BYE on every connection, after which the server ends."""
        with self._pd.engine.lock:
            self._client.bye()

    def _run(self, trace: _kvs.Trace | None, ns: int = 0) -> None:
        try:
            with self._stand.as_host_a(), self._pd.engine.lock:
                self._client.run(trace, ns)
        except _kvs.Trouble as error:
            raise RemoteError(f"the key-value store: {error}") from None

    def _cpu(self) -> dict[str, float]:
        pids = {
            "client": os.getpid(), "worker_a": self._stand.a.pid,
            "worker_b": self._stand.b.pid, "server": self._server.pid,
        }  # fmt: skip
        return {who: cpu_ns(pid) for who, pid in pids.items()}


class KvsServer(Closing):
    """The server's process, next to worker B of a stand; a context manager."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self._host = HostProcess("srdma_bench.kvs.host")
        self._host.wait_until_up()
        pin(self._host.pid, stand.cores.host_b)

    @property
    def pid(self) -> int:
        return self._host.pid

    @contextmanager
    def connect(self, shape: Shape, store: Store) -> Iterator[Kvs]:
        """A store with its clients. A store without a run costs memory only."""
        stand = self.stand
        qps = {"qps": store.connections, "sq": store.queue, "rq": store.queue}
        heard = self._host.ask(
            "listen", worker=str(stand.b.control), keys=store.keys, capacity=store.capacity,
            slots=store.slots, proof=shape.proof,
            options=shape.options(stand.identities, "b", "a") | qps,
        )  # fmt: skip
        serial = heard["serial"]
        with ExitStack() as stack:
            pd = stack.enter_context(PD(stack.enter_context(Context(stand.a.control)), RING_MOST))
            options = shape.options(stand.identities, "a", "b") | qps
            self._host.request("open", serial=serial, sq=store.queue)
            try:
                there = connection.connect(tuple(heard["address"]), pd, **options)
            except Error:
                with suppress(DeviceError):  # the same failure, as host B reports it
                    self._host.answer()
                raise
            stack.enter_context(there)
            memory = self._host.answer()["memory"]
            kvs = Kvs(self, serial, shape, store, there)
            kvs.open(pd, memory)
            yield kvs
            kvs.bye()
            self._host.ask("end", serial=serial)

    def state(self, kvs: Kvs) -> dict[str, int]:
        """The server's counters, and the number of keys and spare buckets of the store."""
        return self._host.ask("state", serial=kvs.serial)

    def close(self) -> None:
        self._host.close()
