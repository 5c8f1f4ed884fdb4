"""WRITEs to a worker whose UDP wire also gets datagrams that are not genuine.

`bench/flooder` sends them. A run counts what the worker refused and the growth of its memory and
of its log. Each flood is compared with the same flood to a closed port of the worker's address,
which costs the kernel about as much, and the worker nothing.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from srdma.errors import DeviceError
from srdma_bench.perf.measure import Plan
from srdma_bench.primitives import program
from srdma_bench.stand import Link, Stand

CLOSED_PORT = 9  # discard: no worker uses it
# prefixes and names of the counters of dropped packets
REFUSALS = ("refused_", "wire_short", "wire_long", "wire_icrc", "wire_source")


@dataclass(frozen=True)
class Flood:
    """kind: of bench/flooder. copies: forged packets for each genuine one, kind tag only. rate:
    datagrams per second, other kinds; 0: as many as possible."""

    name: str
    kind: str
    copies: int = 1
    rate: int = 0

    def words(self, to: str, watch: str) -> list[str]:
        words = ["--to", to, "--watch", watch, "--kind", self.kind, "--copies", str(self.copies)]
        return words + (["--rate", str(self.rate)] if self.rate else [])


FLOODS = (
    Flood("forged 1:1", "tag"),
    Flood("forged 10:1", "tag", copies=10),
    Flood("2^20 QPNs", "qpn", rate=100_000),
    Flood("garbage", "garbage", rate=100_000),
)


@dataclass(frozen=True)
class Flooded:
    """One run. goodput: payload, GB/s. sent: datagrams of the flood. refused: packets that worker B
    dropped, by counter. memory: growth of its resident memory, bytes; log: of its log."""

    goodput: float
    sent: int
    seconds: float
    refused: dict[str, int]
    memory: int
    log: int


def resident(pid: int) -> int:
    """Resident memory of a process, bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise DeviceError(f"/proc/{pid}/status has no VmRSS: the process has ended")


def measure(stand: Stand, link: Link, plan: Plan, flood: Flood | None, *, closed: bool) -> Flooded:
    """One run of the plan beside the flood; None: without one. closed: the flood goes to a port
    where no worker is."""
    wire = stand.wires()[1]
    to = f"{wire.rpartition(':')[0]}:{CLOSED_PORT}" if closed else wire
    before, memory, log = stand.stats()[1], resident(stand.b.pid), stand.b.log.stat().st_size
    with _flooding(flood, to, wire) as flooded:
        result = link.measure(plan)
    after = stand.stats()[1]
    refused = {
        name: after[name] - before[name]
        for name in after
        if name.startswith(REFUSALS) and after[name] > before[name]
    }
    said = flooded[0] if flooded else {"sent": 0, "seconds": result.ns / 1e9}
    return Flooded(
        result.gigabytes, int(said["sent"]), said["seconds"], refused,
        resident(stand.b.pid) - memory, stand.b.log.stat().st_size - log,
    )  # fmt: skip


@contextmanager
def _flooding(flood: Flood | None, to: str, watch: str) -> Iterator[list[dict[str, float]]]:
    """Yields a list that has the flooder's report after the context."""
    reports: list[dict[str, float]] = []
    if flood is None:
        yield reports
        return
    command = [str(program("flooder")), *flood.words(to, watch)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    try:
        yield reports
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    if process.returncode:
        raise DeviceError(f"flooder: {err.strip() or process.returncode}")
    reports.append(json.loads(out))
