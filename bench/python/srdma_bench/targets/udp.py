"""P14: messages over UDP, compared with datagrams of the same size between two sockets, in the same
run. One thread has both ends, so that a time is the CPU time of both."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from srdma.errors import LocalError
from srdma_bench.link import End, link
from srdma_bench.series import ratios
from srdma_bench.targets.measure import LARGE, SMALL, Effort, Measured, Rungs, ladder

SIZES = {"2 KiB": LARGE, "32 B": SMALL}
# rungs of build/bench/ladder
ONE, TRAIN = "datagrams", "datagrams train"
WAYS = {"IPv4": "udp bare aead", "IPv6": "udp6 aead"}


def udp(effort: Effort) -> Measured:
    """P14. The values are ratios to ONE; the note has those to TRAIN."""
    places: dict[str, Sequence[End]] = {"loopback": ()}
    lacks = ""
    with ExitStack() as stack:
        try:
            places["link"] = stack.enter_context(link())
        except LocalError as why:
            lacks = str(why)
        runs: dict[tuple[str, str], list[Rungs]] = {}
        for _ in range(effort.rounds):
            for size, payload in SIZES.items():
                for place, ends in places.items():
                    rungs = ladder(effort, payload, ONE, *WAYS.values(), ends=ends)
                    runs.setdefault((size, place), []).append(rungs)
    values: dict[str, list[float]] = {}
    notes = []
    for (size, place), found in runs.items():
        for way, rung in WAYS.items():
            ns = [rungs[rung] for rungs in found]
            name = f"{size}, {way}, {place}"
            values[name] = [a / rungs[ONE] for a, rungs in zip(ns, found, strict=True)]
            over = ratios(ns, [rungs[TRAIN] for rungs in found])
            notes.append(f"{name} {over:.2f}")
    return Measured(values, f"over a datagram of a train: {'; '.join(notes)}", lacks)
