"""Measurements between two hosts: the tests of `srdma perf`, with the names of perftest.

The first QP carries control messages (CBOR) only: the client sends the plan of a run, the server
replies when it is ready and when it is done. The other QPs carry the load, which a host of
`hosts.py` posts and polls. Every run checks the workers' counters of sealed, verified and
unprotected packets against the agreed protection.
"""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import cbor2

from srdma.capability import Capability, Right
from srdma.connection import Connection
from srdma.control import HostKind
from srdma.errors import LocalError, RemoteError, Timeout
from srdma.keyex.offers import LEVELS
from srdma.mr import Access, RemoteMR
from srdma.native.constants import RING_LEAST, RING_MOST
from srdma.native.leg import counter_names
from srdma.pd import PD
from srdma.qp import SecureQP
from srdma.wr import SGE, RecvWR, SendWR, WROpcode
from srdma_bench.perf.counts import check_counts
from srdma_bench.perf.hosts import PATIENCE, Host, Marks, Receives, Sends, Sweep, host_named

WRITE, READ, SEND = WROpcode.RDMA_WRITE, WROpcode.RDMA_READ, WROpcode.SEND
WORKS = 256  # maximum number of work requests of a sweep
SILENCE = 0.5  # seconds without a message after which a stream of unknown length has ended
WARM_UP = 100  # maximum number of uncounted rounds; never more than counted ones
MIB = 1 << 20
ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ


@dataclass(frozen=True)
class Test:
    """A row of the table of tests."""

    title: str
    opcode: WROpcode
    latency: bool
    echo: bool = False  # the other end returns each message
    iterations: int = 1000  # default

    @property
    def messages(self) -> bool:
        return self.opcode == SEND


TESTS = {
    "write_lat": Test("RDMA_Write", WRITE, latency=True, echo=True),
    "read_lat": Test("RDMA_Read", READ, latency=True),
    "send_lat": Test("Send", SEND, latency=True, echo=True),
    "write_bw": Test("RDMA_Write", WRITE, latency=False, iterations=5000),
    "read_bw": Test("RDMA_Read", READ, latency=False),
    "send_bw": Test("Send", SEND, latency=False),
}


@dataclass(frozen=True)
class Plan:
    """One run. size: bytes; iterations: 0 for a run of `seconds`; both: both ends send.

    reads: percent of READs in a write_bw. qps: number of QPs with load, 0: all. host: load
    generator, C or Python.
    """

    test: str
    size: int
    iterations: int = 0
    seconds: float = 0.0
    both: bool = False
    reads: int = 0
    qps: int = 0
    host: str = "C"

    @property
    def row(self) -> Test:
        return TESTS[self.test]


@dataclass
class Result:
    """The result of one run.

    `times` contains the rounds after the warm-up; all other values include the warm-up.
    """

    plan: Plan
    messages: int = 0
    ns: int = 0
    windows: list[float] = field(default_factory=list)  # bytes per ns
    times: list[int] = field(default_factory=list)  # latencies, ns, sorted
    # ns per message: host_cpu, and worker_cpu and peer_worker_cpu unless on another computer
    cpu: dict[str, float] = field(default_factory=dict)
    packets: int = 0  # sealed and verified by both workers
    wire_bytes: int = 0  # sent by both workers
    host: str = ""  # load generator of this end

    @property
    def gigabytes(self) -> float:
        """Payload in gigabytes (10^9 bytes) per second."""
        return self.messages * self.plan.size / self.ns if self.ns else 0.0

    @property
    def each(self) -> float:
        """The ns per message: the median latency, or the mean of a stream."""
        return self.quantile(0.5) * 1000 if self.times else self.ns / self.messages

    def quantile(self, q: float) -> float:
        """The q-quantile of the latencies, in microseconds."""
        return self.times[min(int(q * len(self.times)), len(self.times) - 1)] / 1000

    def summary(self, *, gbits: bool = False) -> dict[str, Any]:
        """The result with the names and units of perftest: MiB/s or Gbit/s, us."""
        common = {"MsgSize": self.plan.size, "n_iterations": len(self.times) or self.messages}
        own = {
            "host": self.host, "messages": self.messages, "ns": self.ns, "packets": self.packets,
            "wire_bytes": self.wire_bytes, "cpu_ns": self.cpu,
        }  # fmt: skip
        return common | (self._latency() if self.plan.row.latency else self._bandwidth(gbits)) | own

    def _latency(self) -> dict[str, float]:
        return {
            "t_min": self.times[0] / 1000, "t_max": self.times[-1] / 1000,
            "t_typical": self.quantile(0.5), "t_avg": statistics.fmean(self.times) / 1000,
            "t_stdev": statistics.pstdev(self.times) / 1000,
            "percentile_99": self.quantile(0.99), "percentile_99.9": self.quantile(0.999),
        }  # fmt: skip

    def _bandwidth(self, gbits: bool) -> dict[str, float]:
        unit = 8.0 if gbits else 1e9 / MIB
        return {
            "BW_peak": max(self.windows) * unit, "BW_average": self.gigabytes * unit,
            "MsgRate": self.messages / self.ns * 1000,
        }  # fmt: skip


def ring_entries(options: Mapping[str, Any]) -> int:
    """Size of the completion ring that a PD needs for a connection with these options. Less than
    the maximum, because a device may not support that. Raises LocalError."""
    qps, sq, rq = (options[name] for name in ("qps", "sq", "rq"))
    need = qps * (sq + rq + 1)
    if need > RING_MOST:
        raise LocalError(
            f"{qps} QPs with queues of {sq} and {rq} need {need} completions, but a worker keeps "
            f"{RING_MOST} for a host: give fewer QPs (-q) or a smaller depth (-t)"
        )
    return max(RING_LEAST, 1 << int(need - 1).bit_length())


class Place:
    """The memory of one end: regions to send from, for the peer's access, and for received data."""

    def __init__(self, pd: PD, region: int, *, proof: bool = False) -> None:
        """region: bytes of each; proof: the target needs a memory proof (key modes with `mem`)."""
        self.pd = pd
        self.source = pd.alloc(region, Access.LOCAL_WRITE)
        self.target = pd.alloc(region, ACCESS, scope="pd", proof=proof)
        self.landing = pd.alloc(region, Access.LOCAL_WRITE)  # received messages and READ data

    def offer(self) -> bytes:
        """The access to the target as bytes for the peer, which calls `offered()`."""
        if self.target.proof:
            return self.target.capability(rights=Right.READ | Right.WRITE).to_bytes()
        return self.target.remote().to_bytes()

    def close(self) -> None:
        for region in (self.source, self.target, self.landing):
            region.close()


def offered(data: bytes) -> RemoteMR | Capability:
    """The peer's region, or a capability for the whole region."""
    if len(data) > len(RemoteMR(0, 0, 0).to_bytes()):
        return Capability.from_bytes(data)
    return RemoteMR.from_bytes(data)


def spots(room: int, qps: int) -> tuple[int, int]:
    """The number of places in a turn of a sweep, and the number of turns (laps) in a region.

    room: number of places in the region. With at least one place per QP, no two QPs share a place.
    """
    laps = -(-room // WORKS)
    count = room // laps // qps * qps or qps
    return count, max(1, room // count)


class End:
    """One end of a connection. The first QP carries control messages, the others are measured.

    patience: maximum seconds for a reply of the peer, and without a completion in a run.
    """

    def __init__(
        self, there: Connection, place: Place, remote: RemoteMR | Capability,
        patience: float = PATIENCE,
    ) -> None:  # fmt: skip
        self.there, self._place, self._remote, self._patience = there, place, remote, patience
        self._talk, *self._qps = there.qps
        self._control = place.pd.connect()
        pid = self._control.hello(patience).pid  # of the worker process that serves the PD
        self._pid = pid if self._control.is_of(pid) else None
        self._hosts: dict[str, Host] = {}

    def close(self) -> None:
        self._control.close()

    # Control messages -----------------------------------------------------------

    def say(self, **words: Any) -> None:
        self._talk.send(cbor2.dumps(words), timeout=self._patience)

    def hear(self, word: str, timeout: float | None) -> Any:
        """The value of key `word` in the peer's next control message. Raises RemoteError if the
        message lacks it, and Timeout."""
        said = cbor2.loads(self._talk.recv(timeout).data)
        if not isinstance(said, dict) or word not in said:
            raise RemoteError(
                f"the peer sent {said!r} instead of {word!r}: use the same version at both ends"
            )
        return said[word]

    # Work requests ---------------------------------------------------------------

    @property
    def shared(self) -> bool:
        """True if the leg is on shared memory."""
        return self._place.pd.ctx.hello.host_kind == HostKind.SHM

    def _host(self, plan: Plan) -> Host:
        if plan.host not in self._hosts:
            self._hosts[plan.host] = host_named(plan.host, self._place.pd, self._patience)
        return self._hosts[plan.host]

    def _sends(self, opcode: WROpcode, size: int, busy: Sequence[SecureQP], count: int) -> Sends:
        """`count` requests, over the QPs in turn, each at a place of its own if the region has
        enough places."""
        local = self._place.source if opcode != READ else self._place.landing
        room = local.length // size
        return [
            (
                busy[n % len(busy)],
                self._send(opcode, local.sge(n % room * size, size), n % room * size),
            )
            for n in range(count)
        ]

    def _sweep(self, plan: Plan) -> Sweep:
        """A sweep over the whole region, with READs evenly distributed."""
        busy, opcode = self._qps[: plan.qps or None], plan.row.opcode
        count, laps = spots(self._place.source.length // plan.size, len(busy))
        sends = list(self._sends(opcode, plan.size, busy, count))
        if plan.reads:
            for n, read in enumerate(self._sends(READ, plan.size, busy, count)):
                spot = n // len(busy)
                if (spot + 1) * plan.reads // 100 > spot * plan.reads // 100:
                    sends[n] = read
        return Sweep(sends, laps, count * plan.size)

    def _send(self, opcode: WROpcode, sge: SGE, offset: int) -> SendWR:
        wr = SendWR(0, opcode, [sge])
        if opcode is not SEND:
            wr.set_remote(self._remote, offset)
        return wr

    def _receives(self) -> Receives:
        landing = self._place.landing.sge()
        return [(qp, RecvWR(sg=[landing])) for qp in self._qps]

    # Runs -------------------------------------------------------------------------

    def run(self, plan: Plan, *, first: bool) -> tuple[Result, dict[str, float]]:
        """Execute this end's part of a run. first: this end is the client. Returns the result and
        the differences of the counters of worker and process."""
        host, before = self._host(plan), self._counts()
        result = self._run(plan, host, first)
        result.host = host.name
        after = self._counts()
        return result, {name: after[name] - before[name] for name in before}

    def _run(self, plan: Plan, host: Host, first: bool) -> Result:
        row = plan.row
        if row.echo:
            return self._echo(plan, host, first)
        if row.latency and first:
            todo = self._sends(row.opcode, plan.size, self._qps, 1)
            return self._timed(plan, lambda times: host.alone(todo, times))
        if first or (plan.both and not row.latency):
            marks = host.stream(self._sweep(plan), plan.iterations, int(plan.seconds * 1e9))
            if row.messages and plan.both:
                self._take(plan, host)  # the peer may still be sending
            return _streamed(plan, marks)
        if row.messages:
            return Result(plan, *self._take(plan, host))
        return Result(plan)

    def _take(self, plan: Plan, host: Host) -> tuple[int, int]:
        return host.take(plan.iterations, int(SILENCE * 1e9))

    def _echo(self, plan: Plan, host: Host, first: bool) -> Result:
        """Ping-pong: half of a round is the latency, as in perftest."""
        place, todo = self._place, self._sends(plan.row.opcode, plan.size, self._qps, 1)
        out = memoryview(place.source.buf)[: plan.size]
        back = None if plan.row.messages else memoryview(place.target.buf)[: plan.size]
        result = self._timed(plan, lambda times: host.play(todo, (out, back), times, first))
        result.times = [ns // 2 for ns in result.times]
        return result

    def _timed(self, plan: Plan, play: Callable[[array[int]], None]) -> Result:
        warm_up = min(WARM_UP, plan.iterations)
        times = array("Q", bytes(8 * (plan.iterations + warm_up)))
        play(times)
        return Result(plan, len(times), sum(times), times=sorted(times[warm_up:]))

    def prepare(self, plan: Plan) -> None:
        """Prepare memory and receives; called before this end reports that it is ready."""
        self._place.target.buf[plan.size - 1] = 0
        if plan.row.messages:
            self._host(plan).receives(self._receives())

    # Costs --------------------------------------------------------------------------

    def _counts(self) -> dict[str, float]:
        counted = dict(zip(counter_names(), self._control.stats(), strict=False))
        return {
            **{name: counted[name] for name in COUNTED},
            "host_cpu": time.process_time_ns(),
            **({} if self._pid is None else {"worker_cpu": cpu_ns(self._pid)}),
        }


def _streamed(plan: Plan, marks: Marks) -> Result:
    """The result of a stream. Windows without a completion are omitted."""
    windows = [
        (done - before) * plan.size / (at - since)
        for (before, since), (done, at) in pairwise([(0, 0), *marks])
        if done > before and at > since
    ]
    return Result(plan, *marks[-1], windows)


COUNTED = (
    "packets_sealed",
    "packets_verified",
    "packets_unprotected_sent",
    "packets_unprotected_received",
    "proofs_made",
    "proofs_verified",
    "wire_bytes_sent",
)


def cpu_ns(pid: int) -> float:
    """CPU time of all threads of a process of this machine, ns. Raises LocalError."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        return sum(_thread_ns(task, task.name == str(pid)) for task in tasks.iterdir())
    except (FileNotFoundError, ProcessLookupError) as error:  # the latter: it ended meanwhile
        raise LocalError(
            f"the CPU time of process {pid} cannot be read (it may have ended): {error}"
        ) from None


def _thread_ns(task: Path, first: bool) -> int:
    """CPU time of a thread; 0 if it has ended, as helper threads of a worker do. Raises OSError if
    the first thread has ended."""
    try:
        return int((task / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        if first:
            raise
        return 0


class Client(End):
    """The end that plans the runs and reports the results."""

    @property
    def level(self) -> str:
        """Name of the level in force."""
        number = self.there.suite.level
        return next(name for name, level in LEVELS.items() if level == number)

    @property
    def proof(self) -> bool:
        return isinstance(self._remote, Capability)

    @property
    def qps(self) -> int:
        return len(self._qps)

    def measure(self, plan: Plan) -> Result:
        """One run. Raises IntegrityError if the workers' counters do not match its messages."""
        self.prepare(plan)
        self.say(run=asdict(plan))
        self.hear("ready", self._patience)
        result, own = self.run(plan, first=True)
        self.say(over=True)
        done = self.hear("done", self._patience)
        theirs = done["counts"]
        check_counts(self, result, own, theirs)
        if plan.both:
            result.messages += int(done["messages"])
            result.ns = max(result.ns, int(done["ns"]))
            result.windows = [max(result.windows) + float(done["peak"])]
        result.packets = _sum(("packets_sealed", "packets_verified"), own, theirs)
        result.wire_bytes = _sum(("wire_bytes_sent",), own, theirs)
        ends = {"": own, "peer_": theirs}
        workers = {f"{end}worker_cpu": counts.get("worker_cpu") for end, counts in ends.items()}
        result.cpu = {
            name: float(ns) / result.messages
            for name, ns in {"host_cpu": own["host_cpu"], **workers}.items()
            if ns is not None
        }
        return result

    def finish(self) -> None:
        """Tell the server that no run follows. It closes when the message arrives, and its agent
        may say so to this end before its worker acknowledges the message (protocol.md 7.5)."""
        try:
            self.say(end=True)
        except RemoteError:
            if self._talk.reason != "PEER_CLOSED":
                raise


def _sum(names: tuple[str, ...], *counts: Mapping[str, float]) -> int:
    return int(sum(count[name] for name in names for count in counts))


class Server(End):
    """The other end. It waits without a time-out, because its worker ends the QP of a dead peer."""

    def serve(self) -> None:
        """Serve runs until the client ends."""
        while self.turn(None):
            pass

    def turn(self, timeout: float | None) -> bool:
        """Serve one run if the client requests one within `timeout` seconds (None: no limit).
        Returns False if the client has ended."""
        try:
            said = cbor2.loads(self._talk.recv(timeout).data)
        except Timeout:
            return True
        if "end" in said:
            return False
        plan = Plan(**said["run"])
        self.prepare(plan)
        before = self._counts()
        self.say(ready=True)
        result, _ = self.run(plan, first=False)
        self.hear("over", None)
        after = self._counts()
        counts = {name: after[name] - before[name] for name in before}
        done = {"messages": result.messages, "ns": result.ns, "counts": counts}
        self.say(done=done | {"peak": max(result.windows, default=0.0)})
        return True
