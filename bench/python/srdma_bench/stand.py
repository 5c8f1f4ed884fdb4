"""The setup under test: two workers, two hosts, and the cores that they run on.

Worker A and host A (this process) run on one core, worker B and host B (a child, `host_b.py`) on
another; with enough cores each process has its own. Loads are those of `srdma perf`.

    with Stand(EMBEDDED, Settings(key_cache=0)) as stand:
        with stand.connect(Shape("aead", "aes-128-gcm", "pd")) as link:
            link.measure(Plan("write_bw", 2048, seconds=0.5))
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srdma import connection
from srdma.connection import Connection
from srdma.context import Context
from srdma.demo.stage import HostProcess, make_identities
from srdma.embedded import Closing, Embedded, Worker
from srdma.errors import DeviceError, Error, IntegrityError, LocalError, RemoteError
from srdma.inspect.tap import TapProcess
from srdma.keyex.offers import UNPROTECTED, Suite
from srdma.keyex.policy import describe, suite_named
from srdma.pd import PD
from srdma_bench.device import EMBEDDED, Device
from srdma_bench.perf.measure import Client, Place, Plan, Result, cpu_ns, offered, ring_entries

REGION = 1 << 20
DEPTH = 96  # outstanding requests of a QP, as in the paper
NAMES = ("nica", "nicb")
PEER = "spiffe://demo/host-"
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Settings:
    """Options of both workers; None and "" select the defaults of srdma-offload."""

    unprotected: bool = False
    key_cache: int | None = None
    provider: str = ""
    tap: bool = False  # a tap on the wire captures all packets; embedded only

    def words(self) -> list[str]:
        words = ["--allow-unprotected"] if self.unprotected else []
        words += ["--key-cache", str(self.key_cache)] if self.key_cache is not None else []
        return words + (["--provider", self.provider] if self.provider else [])


@dataclass(frozen=True)
class Shape:
    """A connection between the hosts. suite: "" at level none. proof: True in modes with memory
    proofs; a capability for the whole region is used then. region: bytes."""

    level: str
    suite: str = ""
    mode: str = "basic"
    qps: int = 1
    region: int = REGION
    tag_len: int = 0  # bytes; 0: the default of the suite
    group: str = ""  # trust group, in modes with pd

    @property
    def proof(self) -> bool:
        return "mem" in self.mode

    @property
    def in_force(self) -> Suite:
        """The suite that the QPs must report."""
        return (
            UNPROTECTED
            if self.level == "none"
            else suite_named(self.suite, self.level, self.tag_len or None)
        )

    def check(self, there: Connection) -> None:
        """Raise IntegrityError if another suite or key mode is in force."""
        if there.suite != self.in_force or there.mode != self.mode:
            raise IntegrityError(
                f"requested {describe(self.in_force)} in mode {self.mode}, in force is "
                f"{describe(there.suite)} in mode {there.mode}"
            )

    def options(self, identities: Path, own: str, peer: str) -> dict[str, Any]:
        """Keywords of connect() and listen(); one QP more, for the control messages."""
        return {
            "identity": str(identities / f"host-{own}"),
            "peer": PEER + peer,
            "level": self.level,
            "suites": [self.suite] if self.suite else [],
            "mode": [] if self.level == "none" else self.mode,
            "tag_len": self.tag_len,
            "unprotected_payload": self.level == "header",
            "qps": 1 + self.qps,
            "sq": DEPTH,
            "rq": DEPTH,
        }


# Cores -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cores:
    """The cores of each process."""

    worker_a: frozenset[int]
    host_a: frozenset[int]
    worker_b: frozenset[int]
    host_b: frozenset[int]


def placement(cores: Sequence[int]) -> Cores:
    """Each worker gets a core; the hosts get the other cores, or share those of their workers."""
    a, b = cores[:1], cores[1:2] or cores[:1]
    left = cores[2:]
    half = len(left) // 2
    return Cores(
        frozenset(a),
        frozenset(left[:half] or a),
        frozenset(b),
        frozenset(left[half : 2 * half] or b),
    )


def pin(pid: int, cores: frozenset[int]) -> None:
    """Pin all threads of a process, and thereby threads that they start later."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


# The stand --------------------------------------------------------------------------


class Link:
    """A connection under load. The constructor and each run check the protection in force."""

    def __init__(self, shape: Shape, client: Client, stand: Stand) -> None:
        self.shape, self.client, self._stand = shape, client, stand
        self.in_mid_run = False  # a run is under way or was aborted
        shape.check(client.there)

    def measure(self, plan: Plan) -> Result:
        """One run. Raises IntegrityError if the workers' counters do not match its messages."""
        self.in_mid_run = True
        with self._stand.as_host_a():
            result = self.client.measure(plan)
        self.in_mid_run = False
        return result


class Stand(Closing):
    """Two running workers and two hosts of one device; a context manager. Its end stops the
    processes and removes their files."""

    def __init__(self, device: Device = EMBEDDED, settings: Settings | None = None) -> None:
        self.device, self.settings = device, settings or Settings()
        self.cores = placement(sorted(os.sched_getaffinity(0)))
        with ExitStack() as stack:
            self._nics = stack.enter_context(Embedded())
            self.identities = make_identities(self._nics.folder / "identities")
            self.a, self.b = self._start(stack)
            self._host_b = stack.enter_context(closing(HostProcess("srdma_bench.host_b")))
            self._host_b.wait_until_up()
            self._pin()
            self._contexts = tuple(
                stack.enter_context(Context(w.control)) for w in (self.a, self.b)
            )
            self._stack = stack.pop_all()

    def _start(self, stack: ExitStack) -> tuple[Worker, Worker]:
        words, nics = self.settings.words(), self._nics
        self._tap: TapProcess | None = None
        if self.settings.tap:
            if self.device != EMBEDDED:
                raise LocalError(
                    f"--device {self.device.name} cannot capture packets: use embedded"
                )
            wires = nics.wire("a"), nics.wire("b")
            self._tap = stack.enter_context(closing(TapProcess(wires, NAMES)))
            self._tap.wait_until_up()
            a, b = (
                nics.start(name, wire=wire, options=words)
                for name, wire in zip(NAMES, "ab", strict=True)
            )
            return a, b
        a, b = (
            nics.launch(name, [*own, *words])
            for name, own in zip(NAMES, self.device.words(nics), strict=True)
        )
        return a, b

    def _pin(self) -> None:
        pin(self.a.pid, self.cores.worker_a)
        pin(self.b.pid, self.cores.worker_b)
        pin(self._host_b.pid, self.cores.host_b)

    @contextmanager
    def as_host_a(self) -> Iterator[None]:
        """Run this thread on the cores of host A during a run only: other stands may exist."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores.host_a)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    @property
    def provider(self) -> str:
        """The crypto provider that worker A logged at its start. Raises DeviceError."""
        said = re.search(r"crypto provider: (\S+)", self.a.log.read_text(errors="replace"))
        if said is None:
            raise DeviceError(f"the log of worker {self.a.name} has no line 'crypto provider: X'")
        return said[1]

    def cpu(self) -> dict[str, float]:
        """CPU time of each process so far, in ns."""
        pids = {
            "worker_a": self.a.pid, "worker_b": self.b.pid,
            "host_a": os.getpid(), "host_b": self._host_b.pid,
        }  # fmt: skip
        return {who: cpu_ns(pid) for who, pid in pids.items()}

    def stats(self) -> tuple[dict[str, int], dict[str, int]]:
        """The counters of both workers."""
        a, b = self._contexts
        return a.stats(), b.stats()

    def wires(self) -> tuple[str, str]:
        """The addresses of both workers' wires."""
        a, b = self._contexts
        return a.hello.wire, b.hello.wire

    def capture(self) -> list[bytes]:
        """Every packet since the last call; only for a stand with a tap."""
        assert self._tap is not None
        return [packet.data for packet in self._tap.capture()]

    @contextmanager
    def connect(self, shape: Shape) -> Iterator[Link]:
        """A connection; there may be many at once. Connections without a run use no CPU."""
        words: dict[str, Any] = {"worker": str(self.b.control), "group": shape.group}
        words |= {"region": shape.region, "proof": shape.proof}
        patience = {"timeout": self.device.patience}
        options = shape.options(self.identities, "b", "a") | patience
        heard = self._host_b.ask("listen", **words, options=options)
        with self._reason_of_host_b(heard["serial"]), ExitStack() as stack:
            context = stack.enter_context(Context(self.a.control))
            options = shape.options(self.identities, "a", "b") | patience
            pd = stack.enter_context(PD(context, ring_entries(options), shape.group))
            place = stack.enter_context(closing(Place(pd, shape.region, proof=shape.proof)))
            there = stack.enter_context(
                connection.connect(tuple(heard["address"]), pd, data=place.offer(), **options)
            )
            client = stack.enter_context(closing(Client(there, place, offered(there.data))))
            link = Link(shape, client, self)
            yield link
            if link.in_mid_run:  # the peer does not read control messages during a run
                return
            client.finish()
            self._host_b.ask("end", serial=heard["serial"])

    @contextmanager
    def _reason_of_host_b(self, serial: int) -> Iterator[None]:
        """Add host B's own error to an error of a connection, which often says only that the peer
        has ended."""
        try:
            yield
        except RemoteError as error:
            try:
                self._host_b.ask("end", serial=serial)
            except Error as theirs:
                error.add_note(f"host B: {theirs}")
            raise

    def close(self) -> None:
        self._stack.close()
