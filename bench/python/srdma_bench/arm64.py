"""Instructions per call and per message on ARM, counted by qemu-user (`make bench-arm64`).

    python -m srdma_bench.arm64 LADDER PLUGIN [--rung NAME ...] [--results FILE]

LADDER is the program bench/ladder for aarch64, PLUGIN the shared object of bench/arm64/count.c.
This module needs the standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

CPU = "cortex-a72"  # BlueField-2 and Stingray
PAYLOADS = (32, 2048)
PROVIDERS = ("openssl", "nettle")
# The rungs in two runs, because a run selects at most 16. Two threads are left out: the counter
# belongs to one. So are rungs for which qemu-user lacks system calls (UDP_SEGMENT).
RUNGS = (
    ("raw", "decrypt", "mac", "tag", "suite", "rekey", "seal", "open", "forged", "tree", "proof"),
    ("mem", "relay", "alone", "junk", "forged 1:1", "udp none", "udp aead", "nic"),
)
# The goals of P13: the rung, its payload, the largest number of instructions.
GOALS = (
    ("nic none", 32, 3300),
    ("nic aead", 32, 6000),
    ("nic aead", 2048, 17500),
    ("open pd", 32, 9500),
    ("mem random", 32, 34000),
)

HEAD = """\
# Instructions on ARM

`make bench-arm64` generates this file; do not edit it. Values are instructions per call or per
message of 32 B and of 2 KiB, without those of the kernel, as qemu-user executes them for a {cpu}.
A message counts with all instructions of both hosts, both workers and its acks. The rungs are
those of `build/bench/ladder`, which [docs/performance.md](../docs/performance.md) explains.
"""

Counts = dict[str, float]  # by rung


def count(ladder: Path, plugin: Path, *words: str) -> Counts:
    """Runs the ladder once. Raises CalledProcessError if it fails, ValueError if nothing counts."""
    with tempfile.TemporaryDirectory() as folder:
        counter = os.path.join(folder, "counter")
        command = ["qemu-aarch64", "-cpu", CPU, "-plugin", f"{plugin},counter={counter}"]
        command += [str(ladder), "--instructions", counter, "--rounds", "1", "--json", *words]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    counts = {rung["name"]: rung["instructions"] for rung in json.loads(done.stdout)["rungs"]}
    if not min(counts.values(), default=0) > 0:
        raise ValueError(f"{plugin} has counted no instructions of a rung")
    return counts


def column(
    ladder: Path, plugin: Path, provider: str, payload: int, rungs: Sequence[Sequence[str]] = RUNGS
) -> Counts:
    found: Counts = {}
    for names in rungs:
        words = [word for name in names for word in ("--rung", name)]
        found |= count(ladder, plugin, "--provider", provider, "--payload", str(payload), *words)
    return found


def page(columns: Mapping[tuple[str, int], Counts]) -> str:
    """The text of the results. Keys: provider, payload."""
    titles = [f"{provider}, {payload} B" for provider, payload in columns]
    rows = [HEAD.format(cpu=CPU), f"| rung | {' | '.join(titles)} |"]
    rows.append("|---|" + "---|" * len(titles))
    for name in next(iter(columns.values())):
        cells = [f"{counts[name]:,.0f}" for counts in columns.values()]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    rows += ["", "Goals (P13):", "", "| rung | payload | goal | provider | instructions |"]
    rows.append("|---|---|---|---|---|")
    for name, payload, most in GOALS:
        counted = [
            (counts[name], provider)
            for (provider, size), counts in columns.items()
            if size == payload and name in counts
        ]
        if not counted:
            continue
        best, provider = min(counted)
        rows.append(f"| {name} | {payload} B | {most:,} | {provider} | {best:,.0f} |")
    return "\n".join(rows) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="srdma_bench.arm64")
    parser.add_argument("ladder", type=Path)
    parser.add_argument("plugin", type=Path)
    parser.add_argument("--rung", action="append", help="count this rung only (default: all)")
    parser.add_argument("--results", type=Path, help="also write the page to this file")
    options = parser.parse_args(arguments)
    ladder, plugin = options.ladder.resolve(), options.plugin.resolve()
    rungs: Sequence[Sequence[str]] = [options.rung] if options.rung else RUNGS
    text = page({
        (provider, payload): column(ladder, plugin, provider, payload, rungs)
        for provider in PROVIDERS
        for payload in PAYLOADS
    })  # fmt: skip
    print(text, end="")
    if options.results:
        options.results.write_text(text)


if __name__ == "__main__":
    main()
