"""Agents under test: processes, their identities, CPU time and memory.

    python -m srdma_bench.keys.agents POLICY [--channels N] [--profile FILE] [--types FILE]

is `srdma agent` with a higher limit of channels per user, and with a profile of its functions, or
of its memory: SIGUSR1 writes FILE.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import gc
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CoroutineType
from typing import Any

from srdma.agent import program, users
from srdma.agent.policy import Policy
from srdma.embedded import Closing, spawn, stop
from srdma.errors import DeviceError, LocalError
from srdma.identity import create_ca, issue
from srdma_bench.perf.measure import cpu_ns

START = 60.0  # seconds
SPARE = 256  # descriptors of an agent besides those of its sessions
TOP = 100  # lines of a profile of memory


@dataclass(frozen=True)
class Usage:
    """Usage of a process so far. cpu: seconds. rss, pss: KiB; pss 0 if it cannot be read."""

    cpu: float
    rss: int
    pss: int
    descriptors: int


def usage(pid: int) -> Usage:
    """Raises LocalError if the process has ended."""
    folder = Path(f"/proc/{pid}")
    cpu = cpu_ns(pid) / 1e9
    rss = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 10
    pss = descriptors = 0
    with contextlib.suppress(PermissionError):  # the agent is not dumpable: only root may read them
        lines = (folder / "smaps_rollup").read_text().splitlines()
        pss = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        descriptors = sum(1 for _ in (folder / "fd").iterdir())
    return Usage(cpu, rss, pss, descriptors)


def descriptors_needed(count: int) -> None:
    """Raise LocalError if a process may not open this many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if count + SPARE > most:
        raise LocalError(
            f"{count + SPARE} file descriptors are needed in a process, the limit is {most}: raise "
            "it (ulimit -n, LimitNOFILE), or measure fewer sessions"
        )


def free_port() -> int:
    """A TCP port that nothing uses now, at any address."""
    with socket.create_server(("0.0.0.0", 0)) as sock:
        return int(sock.getsockname()[1])


def make_identities(folder: Path, names: list[str]) -> None:
    create_ca(folder, "srdma bench", days=1)
    for name in names:
        issue(folder, f"spiffe://bench/{name}", folder / name)


def policy_of(identities: list[str], listen: str = "") -> str:
    """Lines of a policy. listen: address and port; default: any port of 127.0.0.1."""
    listen = listen or f"127.0.0.1:{free_port()}"
    names = "".join(f'[[identity]]\nname = "{n}"\npath = "{n}"\n' for n in identities)
    return f'listen = "{listen}"\n{names}'


class Agent(Closing):
    """A running system agent of one worker. policy: lines of its policy, without its sockets.
    words: further arguments of this module."""

    def __init__(
        self, folder: Path, name: str, worker: Path, policy: str, words: Sequence[str] = ()
    ) -> None:
        self.socket, path = folder / f"{name}.sock", folder / f"{name}.toml"
        path.write_text(f'worker = "{worker}"\nsocket = "{self.socket}"\n{policy}')
        self._log = folder / f"{name}-agent.log"
        command = [sys.executable, "-m", "srdma_bench.keys.agents", str(path), *words]
        with open(self._log, "wb") as log:
            self.process = spawn(command, stderr=log)
        deadline = time.monotonic() + START
        while '"started"' not in self._log.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise DeviceError(f"the agent {name} did not start: {self.log()[-2000:]}")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        stop(self.process, START)  # a profile is written at the end


def ask(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The JSON line that a child prints at its start. Raises DeviceError."""
    assert process.stdout
    found, _, _ = select.select([process.stdout], [], [], START)
    line = process.stdout.readline() if found else b""
    if not line:
        raise DeviceError("the program of host B did not start: see above")
    answer = json.loads(line)
    assert isinstance(answer, dict)
    return answer


# The process -----------------------------------------------------------------------------


def _types() -> dict[str, Any]:
    """The memory of this process: lines of source, and objects that the collector knows."""
    gc.collect()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for found in gc.get_objects():
        name = f"{type(found).__module__}.{type(found).__qualname__}"
        if isinstance(found, CoroutineType | asyncio.Task):
            code = found if isinstance(found, CoroutineType) else found.get_coro()
            name += f" {getattr(code, '__qualname__', '')}"
        counts[name] += 1
        sizes[name] += sys.getsizeof(found)
    snapshot = tracemalloc.take_snapshot()
    lines = [
        (str(stat.traceback), stat.size, stat.count) for stat in snapshot.statistics("lineno")[:TOP]
    ]
    return {
        "traced": tracemalloc.get_traced_memory()[0],
        "tracing": tracemalloc.get_tracemalloc_memory(),
        "rss_kib": usage(os.getpid()).rss,
        "lines": lines,
        "types": [(name, size, counts[name]) for name, size in sizes.most_common(TOP)],
    }


def _write_types(path: Path) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(_types()))
    part.replace(path)  # a reader sees all of it


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policy", type=Path)
    parser.add_argument("--channels", type=int)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--types", type=Path)
    given = parser.parse_args()
    if given.channels:
        users.CHANNELS_MAX = given.channels
    if given.types:
        tracemalloc.start()
        signal.signal(signal.SIGUSR1, lambda *_: _write_types(given.types))
    policy = Policy(given.policy)
    if not given.profile:
        program.run(policy)
        return
    profile = cProfile.Profile(time.thread_time)  # CPU time
    try:
        profile.runcall(program.run, policy)
    finally:
        profile.dump_stats(given.profile)


if __name__ == "__main__":
    main()
