"""The rows of `srdma bench targets`: the measured values, and their goals."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from srdma_bench.targets import measure as how
from srdma_bench.targets.measure import Effort, Measured
from srdma_bench.targets.udp import udp


@dataclass(frozen=True)
class Goal:
    """One value of a row and its bound: a maximum, or a minimum if `least`."""

    name: str
    bound: float
    unit: str = ""
    least: bool = False

    @property
    def text(self) -> str:
        return f"{'≥' if self.least else '≤'} {number(self.bound)}{self.unit}"

    def short(self, median: float) -> float:
        """The distance to the bound as a fraction of the bound; 0 if the goal is met."""
        over = (self.bound - median if self.least else median - self.bound) / self.bound
        return max(0.0, over)


@dataclass(frozen=True)
class Target:
    """A row. command: commands that measure its parts alone, shown to the user."""

    name: str
    what: str
    command: str
    measure: Callable[[Effort], Measured]
    goals: tuple[Goal, ...]
    asked: str = ""  # flag that enables this row, because it takes minutes


def number(value: float) -> str:
    """A value with three significant digits, or as an integer from 1000."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


# With three cores the load generator need not share a core with a worker.
BULK = 0.85 if len(os.sched_getaffinity(0)) >= 3 else 0.65

ROWS: tuple[Target, ...] = (
    Target(
        "P1", "seal and open of a packet, over the bare primitive on the same bytes with the "
        "fastest crypto provider here",
        "build/bench/ladder --payload 2048 --rung raw --rung seal --rung open",
        how.seal_and_open,
        (
            Goal("seal, 2 KiB", 1.15, " x"),
            Goal("open, 2 KiB", 1.15, " x"),
            Goal("seal, 32 B", 60, " ns"), Goal("open, 32 B", 60, " ns"),
        ),
    ),
    Target(
        "P2", "header authentication of a 32-byte WRITE through the embedded NIC: CPU time "
        "added to none, both workers, acks included, over (bare MAC + 40 ns); added median "
        "latency of WRITEs to one address",
        "build/bench/ladder --payload 32 --rung mac --rung nic; "
        "srdma perf write_lat --embedded -s 32 --level header --compare", how.header,
        (
            Goal("bursts", 2.5, " x"),
            Goal("alone", 4, " x"),
            Goal("latency", 3, " %"),
        ),
    ),
    Target(
        "P3", "goodput of AEAD, 2 KiB WRITEs, one QP, 96 outstanding, region 1 MiB, embedded "
        "NIC, over the slower of raw seal and raw open on one core",
        "srdma perf write_bw --embedded -s 2048 -t 96", how.goodput,
        (
            Goal("2 KiB", BULK, " x", least=True),
        ),
    ),
    Target(
        "P4", "derivations: ns added per packet to basic over the bare one (CMACs and key "
        "schedules); a claim of 2 KiB at random in 1 GiB, the tree's upper levels cached; "
        "goodput of 2 KiB WRITEs with cached keys over basic, region 1 MiB",
        "build/bench/ladder --rung derive --rung seal --rung open --rung 'mem random'",
        how.derivations,
        (
            Goal("pd, sealed", 1.3, " x"), Goal("pd, opened", 1.3, " x"),
            Goal("mem, judged", 1.3, " x"),
            Goal("pd, cached", 0.98, " x", least=True),
            Goal("mem, cached", 0.98, " x", least=True),
        ),
    ),
    Target(
        "P5", "key-value store (8 connections, mix a): CPU time of both workers added to none "
        "per message, over (bare AEAD of 32 B + 40 ns), depth 8 and 1; without caches, time added "
        "to basic per packet, over the bare derivation",
        "srdma bench kvs --compare -t 8; srdma bench kvs --compare --mode pd --key-cache 0",
        how.store,
        (
            Goal("AEAD, bursts", 2.5, " x"),
            Goal("AEAD, alone", 4, " x"),
            Goal("pd, uncached", 1.3, " x"),
            Goal("mem, uncached", 1.3, " x"),
        ),
    ),
    Target(
        "P6", "key-value store (AEAD, basic, 8 connections, GET) over the best of redis and "
        "memcached with TLS on the same cores, in the same rounds",
        "srdma bench peers --only redis --only memcached", how.peer_stores,
        (
            Goal("rate, depth 1", 8, " x", least=True),
            Goal("median, depth 1", 1 / 6, " x"),
            Goal("rate, depth 8", 5, " x", least=True),
        ),
    ),
    Target(
        "P7", "against TLS 1.3 over loopback TCP (OpenSSL): goodput of records over the best "
        "TLS here; 32-byte round trip over blocking, unpinned TLS",
        "srdma bench peers --only tls", how.tls,
        (
            Goal("2 KiB", 6, " x", least=True),
            Goal("16 KiB", 1.5, " x", least=True),
            Goal("round trip", 1 / 8, " x"),
        ),
    ),
    Target(
        "P8", "time of a forged packet over the bare check: the AEAD of its size, or the MAC where "
        "headers and payload have a MAC only (aes-128-gmac); goodput with a forged AEAD packet "
        "before each genuine one, over T / (T + M), T the time of a genuine packet, M the bare "
        "AEAD",
        "build/bench/ladder --rung raw --rung tag --rung forged --rung junk --rung 'relay aead'",
        how.forged,
        (
            Goal("AEAD refused, 32 B", 1.2, " x"),
            Goal("AEAD refused, 2 KiB", 1.2, " x"),
            Goal("MAC refused, 32 B", 1.2, " x"),
            Goal("MAC refused, 2 KiB", 1.2, " x"),
            Goal("1:1, 32 B", 0.9, " x", least=True),
            Goal("1:1, 2 KiB", 0.9, " x", least=True),
        ),
    ),
    Target(
        "P9", "message rate of 100,000 secure QPs on one worker over that of one QP, with a ring "
        "pair and receive pool per peer; key and nonce state of a QP in mode pd",
        "build/bench/many --qps 64 --qps 100000", how.many_qps,
        (
            Goal("random order", 0.7, " x", least=True),
            Goal("in order", 0.9, " x", least=True),
            Goal("state", 64, " B"),
        ),
    ),
    Target(
        "P10", "CPU of the busier worker, idle and at 1,000 WRITEs of 32 B per second; median "
        "latency of these WRITEs",
        "srdma bench waiting --rate 1000", how.waiting,
        (
            Goal("idle", 0.5, " % of a core"), Goal("1,000/s", 8, " % of a core"),
            Goal("median, 1,000/s", 100, " µs"),
        ),
    ),
    Target(
        "P11", "rxe in the VM: AEAD over none, 2 KiB; median of a signaled 32-byte WRITE; "
        "2 KiB WRITEs, 96 outstanding, over plain ib_write_bw; hosts in Python, region 256 KiB, "
        "and hosts in C, region 64 KiB",
        "srdma bench targets --vm --only P11", how.rxe,
        (
            Goal("AEAD over none", 0.8, " x", least=True),
            Goal("median, 32 B", 1000, " µs"),
            Goal("over ib_write_bw", 0.5, " x", least=True),
            Goal("in C: AEAD over none", 0.8, " x", least=True),
            Goal("in C: median, 32 B", 1000, " µs"),
            Goal("in C: over ib_write_bw", 0.5, " x", least=True),
        ),
        asked="--vm",
    ),
    Target(
        "P12", "2 KiB WRITEs posted in batches from Python over the host in C, one QP, 96 "
        "outstanding, region 1 MiB",
        "srdma perf write_bw --embedded -s 2048 -t 96 --compare-python", how.python_host,
        (
            Goal("2 KiB", 0.5, " x", least=True),
        ),
    ),
    Target(
        "P14", "AEAD message over UDP, both ends in one thread, over one datagram of a WRITE's "
        "size by sendmmsg and recvmmsg: over IPv4 (--wire-trains) and IPv6; on loopback, and over "
        "a pair of veth devices (MTU 9,000) before which the kernel cuts trains",
        "build/bench/ladder --rung datagrams --rung udp", udp,
        (
            Goal("2 KiB, IPv4, loopback", 0.6, " x"),
            Goal("2 KiB, IPv6, loopback", 0.6, " x"),
            Goal("2 KiB, IPv4, link", 0.6, " x"),
            Goal("2 KiB, IPv6, link", 0.6, " x"),
            Goal("32 B, IPv4, loopback", 0.5, " x"),
            Goal("32 B, IPv6, loopback", 0.5, " x"),
            Goal("32 B, IPv4, link", 0.5, " x"),
            Goal("32 B, IPv6, link", 0.5, " x"),
        ),
    ),
    Target(
        "P15", "key set-up with a system agent at each end, embedded NIC: median of connections "
        "of one QP, one after the other; 256 QPs in one connection, and in connections of one QP "
        "made at the same time; QPs per second of one core and end, from the CPU time of the "
        "busier agent; RSS of an agent with 100 peers of 100 QPs each",
        "srdma bench keys; srdma bench sessions", how.agents,
        (
            Goal("one QP", 20, " ms"),
            Goal("256 QPs, one connection", 1, " s"),
            Goal("256 QPs, one each", 1, " s"),
            Goal("rate", 1000, "/s", least=True),
            Goal("memory, 100 peers", 200, " MiB"),
        ),
    ),
    Target(
        "P16", "unmodified programs of perftest by `srdma run` over `srdma perf` of the same: "
        "average of `ib_write_bw -s 65536`, median of `ib_write_lat -s 32`; on two cores each "
        "program beside its worker, or both workers on one and both programs on the other",
        "srdma bench perftest --place beside; srdma bench perftest --place apart", how.unmodified,
        (
            Goal("bandwidth, beside", 0.9, " x", least=True),
            Goal("bandwidth, beside, map_memory", 0.9, " x", least=True),
            Goal("bandwidth, apart", 0.9, " x", least=True),
            Goal("bandwidth, apart, map_memory", 0.9, " x", least=True),
            Goal("latency, beside", 1.2, " x"),
            Goal("latency, beside, map_memory", 1.2, " x"),
            Goal("latency, apart", 1.2, " x"),
            Goal("latency, apart, map_memory", 1.2, " x"),
        ),
    ),
)  # fmt: skip
