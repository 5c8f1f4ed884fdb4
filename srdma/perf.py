"""Measurements between two hosts: what `srdma perf` does, by the names of perftest.

The client says what is measured on a QP that carries nothing else (CBOR messages), the server
answers when it is ready and when it is done; then QPs of their own carry the load, which
`_load.Load` posts and polls without the GIL. Every run checks that what travelled was protected
as agreed: packets sealed, verified and unprotected are counted by both workers.
"""

from __future__ import annotations

import statistics
import time
from array import array
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import cbor2

from ._leg import Work, counter_names
from ._load import Load
from .capability import Capability, Right
from .connection import Connection
from .errors import IntegrityError, LocalError, RemoteError
from .mr import MR, Access, RemoteMR
from .pd import PD
from .qp import SecureQP

SIGNALED = 1
WRITE, READ, SEND, RECV = 1, 3, 4, 16  # opcodes of descriptors (protocol.md 9.1)
WORKS = 256  # that Load takes at once
WINDOWS = 10  # of a bandwidth run, for its peak and spread
SILENCE_NS = 500_000_000  # no message for so long: the stream is over
WARM_UP = 100  # rounds that are not counted
ROUNDS = 1000  # of a latency run, unless told
ITERATIONS = 5000  # of a bandwidth run, unless told
CONTROL_TIMEOUT = 60.0
ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ


@dataclass(frozen=True)
class Test:
    """A row of the table of tests."""

    opcode: int
    latency: bool
    echo: bool = False  # the other end answers each

    @property
    def messages(self) -> bool:
        return self.opcode == SEND


TESTS = {
    "write_lat": Test(WRITE, latency=True, echo=True),
    "read_lat": Test(READ, latency=True),
    "send_lat": Test(SEND, latency=True, echo=True),
    "write_bw": Test(WRITE, latency=False),
    "read_bw": Test(READ, latency=False),
    "send_bw": Test(SEND, latency=False),
}


@dataclass(frozen=True)
class Plan:
    """One run: size in bytes, iterations (0: seconds count), both directions or one.

    reads: percent of a write_bw that are READs. qps: how many carry it, 0 for all.
    """

    test: str
    size: int
    iterations: int = 0
    seconds: float = 0.0
    both: bool = False
    reads: int = 0
    qps: int = 0

    @property
    def row(self) -> Test:
        return TESTS[self.test]


@dataclass
class Result:
    """What one run gave; ns, and counts of this end's workers and processes."""

    plan: Plan
    messages: int = 0
    ns: int = 0
    windows: list[float] = field(default_factory=list)  # bytes per ns
    times: list[int] = field(default_factory=list)  # latency: ns of each, sorted
    cpu: dict[str, float] = field(default_factory=dict)  # ns per message
    packets: int = 0  # sealed and verified by both workers, where somebody counts them

    @property
    def gigabytes(self) -> float:
        """Per second, of payload."""
        return self.messages * self.plan.size / self.ns if self.ns else 0.0

    def quantile(self, q: float) -> float:
        """Of the latencies, in microseconds."""
        return self.times[min(int(q * len(self.times)), len(self.times) - 1)] / 1000

    def summary(self) -> dict[str, Any]:
        """For machines."""
        shown: dict[str, Any] = {
            **asdict(self.plan), "messages": self.messages, "ns": self.ns, "cpu_ns": self.cpu,
        }  # fmt: skip
        if self.plan.row.latency:
            shown |= {
                "iterations": len(self.times),
                "t_min": self.times[0] / 1000, "t_max": self.times[-1] / 1000,
                "t_typical": self.quantile(0.5),
                "t_avg": statistics.fmean(self.times) / 1000,
                "t_stdev": statistics.pstdev(self.times) / 1000,
                "t_99": self.quantile(0.99), "t_999": self.quantile(0.999),
            }  # fmt: skip
        else:
            shown |= {
                "iterations": self.messages,
                "peak_MBps": max(self.windows) * 1000, "average_MBps": self.gigabytes * 1000,
                "least_MBps": min(self.windows) * 1000,
                "Mpps": self.messages / self.ns * 1000,
            }  # fmt: skip
        return shown


class Place:
    """What one end needs of its PD: memory to send from, and memory that the peer uses."""

    def __init__(self, pd: PD, region: int, *, proof: bool = False) -> None:
        """proof: the peer must prove that it may use the memory, for key modes with `mem`."""
        self.pd = pd
        self.source = pd.alloc(region, Access.LOCAL_WRITE)
        self.target = pd.alloc(region, ACCESS, proof=proof)
        self.landing = pd.alloc(region, Access.LOCAL_WRITE)  # of messages

    def offer(self) -> bytes:
        """What the peer needs to use the target: `offered()` reads it."""
        if self.target.proof:
            return self.target.capability(rights=Right.READ | Right.WRITE).to_bytes()
        return self.target.remote().to_bytes()

    def close(self) -> None:
        for region in (self.source, self.target, self.landing):
            region.close()


def offered(data: bytes) -> RemoteMR | Capability:
    """A region, or the capability of all of it."""
    if len(data) > len(RemoteMR(0, 0, 0).to_bytes()):
        return Capability.from_bytes(data)
    return RemoteMR.from_bytes(data)


class End:
    """One end of a connection whose first QP is for talk and whose others are measured."""

    def __init__(self, there: Connection, place: Place, remote: RemoteMR | Capability) -> None:
        self.there, self._place, self._remote = there, place, remote
        self._talk, *self._qps = there.qps
        pd = place.pd
        self._handle = pd.handles.take(remote) if isinstance(remote, Capability) else None
        self.load: Load = pd.engine.load()
        self._control = pd.connect()
        self._pid = pd.ctx.hello.pid
        self._posted = False

    def close(self) -> None:
        self._control.close()

    # Talk -----------------------------------------------------------------------

    def say(self, **words: Any) -> None:
        self._talk.send(cbor2.dumps(words), timeout=CONTROL_TIMEOUT)

    def hear(self, word: str, timeout: float | None = CONTROL_TIMEOUT) -> Any:
        """What the peer says of a word, which must be in its next message."""
        said = cbor2.loads(self._talk.recv(timeout).data)
        if not isinstance(said, dict) or word not in said:
            raise RemoteError(f"the peer of a measurement says {said!r}, not {word}")
        return said[word]

    # Work requests ---------------------------------------------------------------

    def works(self, opcode: int, size: int, qps: int = 0) -> list[Work]:
        """QP by QP, of all or so many, over the whole region."""
        local = self._place.source if opcode != READ else self._place.landing
        busy = self._qps[: qps or None]
        spots = max(1, min(WORKS // len(busy), local.length // max(size, 1)))
        return [
            self._work(qp, opcode, (local, spot * size, size))
            for spot in range(spots)
            for qp in busy
        ]

    def mixed(self, plan: Plan) -> list[Work]:
        """Those of a stream, with READs evenly among them."""
        qps = plan.qps or len(self._qps)
        works = self.works(plan.row.opcode, plan.size, qps)
        if plan.reads:
            for n, read in enumerate(self.works(READ, plan.size, qps)):
                spot = n // qps
                if (spot + 1) * plan.reads // 100 > spot * plan.reads // 100:
                    works[n] = read
        return works

    def _work(self, qp: SecureQP, opcode: int, local: tuple[MR, int, int]) -> Work:
        mr, at, size = local
        work = Work(opcode, qp.qp_num, 0, SIGNALED if opcode != RECV else 0)
        work.local(mr.addr + at, size, mr.lkey)
        if opcode in (WRITE, READ):
            work.remote(self._remote.address + at, self._remote.rkey)
            if self._handle is not None:
                work.capability(self._handle.number)
        return work

    def receives(self) -> list[Work]:
        landing = self._place.landing
        return [self._work(qp, RECV, (landing, 0, landing.length)) for qp in self._qps]

    # Runs -------------------------------------------------------------------------

    def run(self, plan: Plan, *, first: bool) -> Result:
        """This end's part of a run; first: the client's."""
        before = self._counts()
        with self._place.pd.engine.lock:
            result = self._run(plan, first)
        after = self._counts()
        if result.messages:
            moved = {name: after[name] - before[name] for name in before}
            self._check(result, moved)
            for name in ("host_cpu", "worker_cpu"):
                result.cpu[name] = moved[name] / result.messages
        return result

    def _run(self, plan: Plan, first: bool) -> Result:
        row = plan.row
        if row.echo:
            return self._echo(plan, first)
        if row.latency:
            return self._alone(plan) if first else Result(plan)
        if first or plan.both:
            if row.messages and plan.both:
                self._post_receives()
            return self._stream(plan)
        if row.messages:
            done, ns = self.load.receive(self.receives(), plan.iterations, SILENCE_NS)
            return Result(plan, done, ns)
        return Result(plan)

    def _stream(self, plan: Plan) -> Result:
        result = Result(plan)
        works = self.mixed(plan)
        for window in range(WINDOWS):
            count = (plan.iterations + window) // WINDOWS
            ns = int(plan.seconds * 1e9 / WINDOWS)
            if plan.iterations and not count:
                continue
            done, took = self.load.stream(works, count, ns)
            result.messages += done
            result.ns += took
            result.windows.append(done * plan.size / took)
        return result

    def _alone(self, plan: Plan) -> Result:
        (work, *_) = self.works(plan.row.opcode, plan.size)
        return self._measured(plan, lambda times: self.load.alone(work, times))

    def _echo(self, plan: Plan, first: bool) -> Result:
        """Ping-pong: half of a round is the latency, as in perftest."""
        place, row = self._place, plan.row
        (work, *_) = self.works(row.opcode, plan.size)
        (receive, *_) = self.receives()
        if row.messages:
            self._post_receives()
        out = memoryview(place.source.buf)[: plan.size]
        back = memoryview(place.target.buf)[: plan.size]
        answer = receive if row.messages else None
        result = self._measured(
            plan, lambda times: self.load.play(work, answer, out, back, times, first)
        )
        result.times = [ns // 2 for ns in result.times]
        return result

    def _measured(self, plan: Plan, play: Any) -> Result:
        rounds = plan.iterations or ROUNDS
        times = array("Q", bytes(8 * (rounds + WARM_UP)))
        play(times)
        counted = sorted(times[WARM_UP:])
        return Result(plan, len(times), sum(counted), times=counted)

    def _post_receives(self) -> None:
        """As many as the queues take, once: each that is used is posted again."""
        if not self._posted:
            self._posted = True
            while self.load.post_all(self.receives()) == len(self._qps):
                pass

    def prepare(self, plan: Plan) -> None:
        """Before this end says that it is ready."""
        self._place.target.buf[plan.size - 1] = 0
        if plan.row.messages:
            with self._place.pd.engine.lock:
                self._post_receives()

    # What it cost, and that it was protected ---------------------------------------

    def _counts(self) -> dict[str, float]:
        counted = dict(zip(counter_names(), self._control.stats(), strict=False))
        return {
            **{name: counted[name] for name in PROTECTION},
            "host_cpu": time.process_time_ns(),
            "worker_cpu": cpu_ns(self._pid),
        }

    def _check(self, result: Result, moved: dict[str, float]) -> None:
        """The benchmark measures the protection that it names."""
        plain = self.there.suite.level == 0
        wanted, other = ("packets_unprotected_sent", "packets_sealed")
        if not plain:
            wanted, other = other, wanted
        if moved[other]:
            raise IntegrityError(f"{moved[other]:.0f} packets counted as {other} in this run")
        sends = result.plan.row.opcode != READ or not result.windows
        if sends and moved[wanted] < 1:
            raise IntegrityError(f"{result.messages} messages, and none counted as {wanted}")


PROTECTION = (
    "packets_sealed",
    "packets_verified",
    "packets_unprotected_sent",
    "packets_unprotected_received",
)


def cpu_ns(pid: int) -> float:
    """CPU time of all threads of a process of this machine."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())
    except FileNotFoundError as error:
        raise LocalError(f"the CPU time of worker {pid} is not to be had here: {error}") from None


class Client(End):
    """The end that says what is measured, and prints it."""

    def measure(self, plan: Plan) -> Result:
        self.prepare(plan)
        self.say(run=asdict(plan))
        self.hear("ready")
        result = self.run(plan, first=True)
        self.say(over=True)
        done = self.hear("done")
        if plan.both:
            result.messages += int(done["messages"])
            result.ns = max(result.ns, int(done["ns"]))
        result.cpu["peer_worker_cpu"] = float(done["worker_cpu"]) / max(result.messages, 1)
        return result

    def finish(self) -> None:
        self.say(end=True)


class Server(End):
    """The other end."""

    def serve(self) -> None:
        """Until the client ends."""
        while True:
            said = cbor2.loads(self._talk.recv(None).data)
            if "end" in said:
                return
            plan = Plan(**said["run"])
            self.prepare(plan)
            worker = cpu_ns(self._pid)
            self.say(ready=True)
            result = self.run(plan, first=False)
            self.hear("over", None)
            worker = cpu_ns(self._pid) - worker
            self.say(done={"messages": result.messages, "ns": result.ns, "worker_cpu": worker})
