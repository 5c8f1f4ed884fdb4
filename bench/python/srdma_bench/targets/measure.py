"""The measurements of the rows in rows.py. Each function returns one value per round for every
goal of its row, from runs in turn. The runs check that the protection is in force.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from srdma.embedded import spawn, stop
from srdma.errors import DeviceError, LocalError
from srdma_bench import perftest
from srdma_bench.device import EMBEDDED
from srdma_bench.keys.sessions import Crowd
from srdma_bench.keys.sessions import measure as cost_of
from srdma_bench.keys.setup import CONNECTIONS, ONE, QPS, Extent, Pair
from srdma_bench.keys.setup import measure as set_up
from srdma_bench.kvs.store import Kvs, KvsResult, KvsServer, Mix, Store
from srdma_bench.link import End
from srdma_bench.paper.state import states
from srdma_bench.peers.compare import BASE, DEPTHS, ECHO, SIZES, Peers, Row
from srdma_bench.perf.measure import Plan, Result
from srdma_bench.primitives import program, said
from srdma_bench.series import in_turn, spread
from srdma_bench.stand import ROOT, Link, Settings, Shape, Stand
from srdma_bench.waiting import PaceError
from srdma_bench.waiting import measure as wait

AEAD = Shape("aead", "aes-128-gcm")
HEADER = Shape("header", "aes-128-gmac")
PD, MEM = Shape("aead", "aes-128-gcm", "pd"), Shape("aead", "aes-128-gcm", "mem")
NONE = Shape("none")
SMALL, LARGE = 32, 2048
MIX = Mix("a", 0)  # GET and PUT of uniformly distributed keys
BURSTS, ALONE = 8, 1  # outstanding requests of a client of the store
PACE = 1000  # messages per second
COOL = 64  # number of QPs whose state fits into a core's cache
SLACK = 40  # ns that the goals permit besides the bare primitive
VM, RXE_TEST = ROOT / "tests/rxe/vm.py", "tests/rxe/inside/test_perf_rxe.py"
VM_SECONDS, VM_STOP = 580, 20
RXE_ROUNDS = "SRDMA_RXE_ROUNDS"  # environment variable: number of rounds of the test in the VM
RXE_VALUES = "values of the rows:"  # prefix of the line that the test in the VM prints
SUITE = "the bare derivations need the crypto provider intel-ipsec-mb, which is not installed"


class NotMeasuredError(Exception):
    """A row cannot be measured here; the text has the reason."""


AGENTS = Extent(rounds=9)


@dataclass(frozen=True)
class Effort:
    """The extent of the measurements."""

    name: str
    rounds: int = 9
    seconds: float = 1.0  # of a load
    iterations: int = 2000  # of a latency run
    batches: int = 5  # rounds of the program ladder in each round
    keys: int = 1 << 20  # in the key-value store
    qps: int = 100_000  # of P9
    messages: int = 100_000  # over these QPs
    agents: Extent = AGENTS  # of P15
    peers: int = 100  # of P15, each with as many QPs


FULL = Effort("full")
QUICK = Effort("quick", 7, 0.2, 500, 3, 1 << 17, messages=10_000, agents=Extent(rounds=3))
SMOKE = Effort("smoke", 1, 0.05, 50, 1, 1 << 12, 2_000, 2_000, Extent(4, 8, 1), 4)


@dataclass(frozen=True)
class Measured:
    """values: name of a goal -> one value per round. note: a remark for the page. lacks: why some
    goals have no value."""

    values: Mapping[str, Sequence[float]]
    note: str = ""
    lacks: str = ""


Rungs = dict[str, float]


def ladder(effort: Effort, payload: int, *names: str, ends: Sequence[End] = ()) -> Rungs:
    """Run build/bench/ladder. Returns the ns of each rung whose name begins with one of `names`;
    payload: bytes; ends: both of a link, for rungs over UDP."""
    words = [str(program("ladder")), "--json", "--payload", str(payload)]
    words += ["--rounds", str(effort.batches)]
    for name in names:
        words += ["--rung", name]
    for end in ends:
        words += ["--end", end.text]
    return {rung["name"]: rung["ns"] for rung in json.loads(said(words))["rungs"]}


def fastest(rungs: Rungs, begins: str) -> float:
    """The lowest ns of the rungs with this prefix: that of the fastest crypto provider."""
    return min(ns for name, ns in rungs.items() if name.startswith(begins))


def _per_round(effort: Effort, once: Callable[[], dict[str, float]]) -> Measured:
    rounds = [once() for _ in range(effort.rounds)]
    return Measured({name: [values[name] for values in rounds] for name in rounds[0]})


def _merged(*parts: Measured) -> Measured:
    values = {name: v for part in parts for name, v in part.values.items()}
    return Measured(values, "; ".join(part.note for part in parts if part.note))


def _over(of: Sequence[float], to: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(of, to, strict=True)]


# One packet --------------------------------------------------------------------------


def seal_and_open(effort: Effort) -> Measured:
    """P1"""

    def once() -> dict[str, float]:
        small, large = (ladder(effort, n, "raw", "seal", "open") for n in (SMALL, LARGE))
        return {
            "seal, 2 KiB": large["seal"] / fastest(large, "raw"),
            "open, 2 KiB": large["open"] / fastest(large, "raw"),
            "seal, 32 B": small["seal"] - fastest(small, "raw"),
            "open, 32 B": small["open"] - fastest(small, "raw"),
        }

    return _per_round(effort, once)


def header(effort: Effort) -> Measured:
    """P2"""

    def once() -> dict[str, float]:
        rungs = ladder(effort, SMALL, "mac", "nic none", "nic header", "nic alone")
        bare = fastest(rungs, "mac") + SLACK
        alone = rungs["nic alone header"] - rungs["nic alone none"]
        return {
            "bursts": (rungs["nic header"] - rungs["nic none"]) / bare,
            "alone": alone / bare,
        }

    plan = Plan("write_lat", SMALL, effort.iterations)
    with Stand(settings=Settings(unprotected=True)) as stand, ExitStack() as stack:
        found = _links(effort, stand, stack, plan, {"none": NONE, "header": HEADER})
    times = {name: [run.quantile(0.5) for run in runs] for name, runs in found.items()}
    slower = [100 * (x - 1) for x in _over(times["header"], times["none"])]
    return _merged(_per_round(effort, once), Measured({"latency": slower}))


def _links(
    effort: Effort, stand: Stand, stack: ExitStack, plan: Plan, shapes: Mapping[str, Shape]
) -> dict[str, list[Result]]:
    links = {name: stack.enter_context(stand.connect(shape)) for name, shape in shapes.items()}
    runs = {name: partial(link.measure, plan) for name, link in links.items()}
    return in_turn(runs, effort.rounds)


def goodput(effort: Effort) -> Measured:
    """P3"""
    plan = Plan("write_bw", LARGE, seconds=effort.seconds)
    with Stand() as stand, stand.connect(AEAD) as link:

        def once() -> dict[str, float]:
            before = _slower_bare(effort)
            result = link.measure(plan)
            bare = (before + _slower_bare(effort)) / 2
            return {"2 KiB": bare / (result.ns / result.messages)}

        return _per_round(effort, once)


def _slower_bare(effort: Effort) -> float:
    rungs = ladder(effort, LARGE, "raw", "decrypt")
    return max(fastest(rungs, "raw"), fastest(rungs, "decrypt"))


def derivations(effort: Effort) -> Measured:
    """P4"""

    def once() -> dict[str, float]:
        rungs = ladder(effort, LARGE, "seal", "open", "derive", "mem random")
        return {
            "pd, sealed": (rungs["seal pd"] - rungs["seal"]) / rungs["derive tx"],
            "pd, opened": (rungs["open pd"] - rungs["open"]) / rungs["derive rx"],
            "mem, judged": rungs["mem random"] / rungs["derive judge"],
        }

    plan = Plan("write_bw", LARGE, seconds=effort.seconds)
    shapes = {"basic": AEAD, "pd": PD, "mem": MEM}
    with Stand() as stand, ExitStack() as stack:
        found = _links(effort, stand, stack, plan, shapes)
    rates = {name: [run.gigabytes for run in runs] for name, runs in found.items()}
    cached = {f"{name}, cached": _over(rates[name], rates["basic"]) for name in ("pd", "mem")}
    if not has_bare(effort):
        return Measured(cached, lacks=SUITE)
    return _merged(_per_round(effort, once), Measured(cached))


def has_bare(effort: Effort) -> bool:
    """Whether the ladder can time bare derivations, which only one crypto provider supports."""
    return "derive tx" in ladder(effort, SMALL, "derive tx")


def forged(effort: Effort) -> Measured:
    """P8. An AEAD decrypts in the pass that computes its tag, so a forged packet is compared with
    the whole AEAD. T and T + M are times of a packet in both relays; the delivery of the forged
    packet is not counted."""

    def once() -> dict[str, float]:
        values = {}
        for name, payload in (("32 B", SMALL), ("2 KiB", LARGE)):
            names = ("raw", "tag", "forged", "junk", "relay aead")
            rungs = ladder(effort, payload, *names)
            aead, genuine = fastest(rungs, "raw"), rungs["relay aead"]
            cost = rungs["forged 1:1"] - rungs["junk 1:1"]
            values[f"AEAD refused, {name}"] = rungs["forged"] / aead
            values[f"MAC refused, {name}"] = rungs["forged mac"] / fastest(rungs, "tag")
            values[f"1:1, {name}"] = (genuine + aead) / (genuine + cost)
        return values

    return _per_round(effort, once)


# The key-value store, and comparable programs -------------------------------------------


def store(effort: Effort) -> Measured:
    """P5"""
    warm, cold = Settings(unprotected=True), Settings(key_cache=0)
    values: dict[str, list[float]] = {}
    for name, depth in (("bursts", BURSTS), ("alone", ALONE)):
        runs, rungs = _stores(effort, warm, depth, {"none": NONE, "aead": AEAD}, "raw")
        bare = [fastest(r, "raw") + SLACK for r in rungs]
        more = _more(runs["aead"], runs["none"], lambda run: 2)  # a request and a response
        values[f"AEAD, {name}"] = _over(more, bare)
    note = f"{effort.keys} keys"
    if not has_bare(effort):
        return Measured(values, note, SUITE)
    shapes = {"basic": AEAD, "pd": PD, "mem": MEM}
    runs, derived = _stores(effort, cold, BURSTS, shapes, "derive")
    sealed_and_opened = [(r["derive tx"] + r["derive rx"]) / 2 for r in derived]
    # The access check without a cache derives from the root of the tree.
    judged = [r["derive step"] + r["derive access"] for r in derived]
    proved_and_judged = [r["derive proof"] + ns for r, ns in zip(derived, judged, strict=True)]
    more = _more(runs["pd"], runs["basic"], lambda run: run.packets)
    values["pd, uncached"] = _over(more, sealed_and_opened)
    more = _more(runs["mem"], runs["basic"], lambda run: 1)  # only requests carry proofs
    values["mem, uncached"] = _over(more, proved_and_judged)
    return Measured(values, note)


def _more(
    of: Sequence[KvsResult], to: Sequence[KvsResult], parts: Callable[[KvsResult], float]
) -> list[float]:
    """CPU time of both workers added by `of` to `to`, in ns per part of a request."""
    return [(a.cpu_workers - b.cpu_workers) / parts(a) for a, b in zip(of, to, strict=True)]


def _stores(
    effort: Effort, settings: Settings, depth: int, shapes: Mapping[str, Shape], rungs: str
) -> tuple[dict[str, list[KvsResult]], list[Rungs]]:
    """Measure the stores in turn, and before the first store of each round the rungs with this
    prefix. Returns both."""
    bare: list[Rungs] = []
    with ExitStack() as stack:
        stand = stack.enter_context(Stand(settings=settings))
        server = stack.enter_context(KvsServer(stand))
        opened: dict[str, Kvs] = {
            name: stack.enter_context(server.connect(shape, Store(effort.keys, depth=depth)))
            for name, shape in shapes.items()
        }

        def run(kvs: Kvs) -> KvsResult:
            if kvs is next(iter(opened.values())):
                bare.append(ladder(effort, SMALL, rungs))
            return kvs.measure(MIX, effort.seconds)

        found = in_turn({name: partial(run, kvs) for name, kvs in opened.items()}, effort.rounds)
    return found, bare


def peer_stores(effort: Effort) -> Measured:
    """P6"""
    values: dict[str, list[float]] = {}
    with Peers(effort.keys, ("redis", "memcached")) as peers:
        missing = "; ".join(f"{name} was skipped: {why}" for name, why in peers.skipped.items())
        if {*peers.skipped} >= {"redis", "memcached"}:
            raise NotMeasuredError(missing)
        for depth in DEPTHS:
            name = f"store, depth {depth}"
            rows = by_peer(peers.compare(name, effort.seconds, effort.rounds))
            values |= ahead_of_stores(depth, rows)
    return Measured(values, missing)


def by_peer(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.peer, []).append(row)
    return found


def ahead_of_stores(depth: int, rows: Mapping[str, Sequence[Row]]) -> dict[str, list[float]]:
    """Ratios of srdma to the best of the other stores, round by round."""
    base = rows[BASE]
    others = [runs for peer, runs in rows.items() if not peer.startswith("srdma")]
    rates = [max(runs[n].rate for runs in others) for n in range(len(base))]
    values = {f"rate, depth {depth}": _over([row.rate for row in base], rates)}
    if depth == 1:
        waits = [min(runs[n].p50_us for runs in others) for n in range(len(base))]
        values["median, depth 1"] = _over([row.p50_us for row in base], waits)
    return values


def tls(effort: Effort) -> Measured:
    """P7"""
    values: dict[str, list[float]] = {}
    notes = []
    with Peers(effort.keys, ("tls",)) as peers:
        for size in SIZES:
            work = f"stream, {size >> 10} KiB"
            rows = by_peer(peers.compare(work, effort.seconds, effort.rounds))
            ways = [runs for peer, runs in rows.items() if not peer.startswith("srdma")]
            best = [max(runs[n].rate for runs in ways) for n in range(effort.rounds)]
            values[f"{size >> 10} KiB"] = _over([row.rate for row in rows[BASE]], best)
        rows = by_peer(peers.compare(f"echo, {ECHO} B", effort.seconds, effort.rounds))
    waits = {peer: [row.p50_us for row in runs] for peer, runs in rows.items()}
    values["round trip"] = _over(waits[BASE], waits["TLS"])
    for peer, times in waits.items():
        middle = sorted(times)[len(times) // 2]
        notes.append(f"{peer} {middle:.0f} µs")
    return Measured(values, f"round trip of 32 B: {', '.join(notes)}")


# Waiting, and Python -------------------------------------------------------------------


def waiting(effort: Effort) -> Measured:
    """P10, for the busier worker."""
    with Stand() as stand, stand.connect(AEAD) as link:
        runs = {
            str(rate): partial(wait, stand, link, rate, 2 * effort.seconds) for rate in (0, PACE)
        }
        try:
            found = in_turn(runs, effort.rounds)
        except PaceError as why:
            raise NotMeasuredError(str(why)) from None
    busier = {rate: [max(run.worker_a, run.worker_b) for run in of] for rate, of in found.items()}
    return Measured({
        "idle": busier["0"],
        "1,000/s": busier[str(PACE)],
        "median, 1,000/s": [run.median for run in found[str(PACE)]],
    })  # fmt: skip


def python_host(effort: Effort) -> Measured:
    """P12"""
    plans = {
        host: Plan("write_bw", LARGE, seconds=effort.seconds, host=host) for host in ("C", "Python")
    }

    def run(link: Link, plan: Plan) -> float:
        result = link.measure(plan)
        return result.messages / result.ns

    with Stand() as stand, stand.connect(AEAD) as link:
        runs = {host: partial(run, link, plan) for host, plan in plans.items()}
        found = in_turn(runs, effort.rounds)
    return Measured({"2 KiB": _over(found["Python"], found["C"])})


# Agents --------------------------------------------------------------------------------


def unmodified(effort: Effort) -> Measured:
    """P16"""
    ways = {perftest.DEFAULT: "", perftest.MAPPED: ", map_memory"}
    values: dict[str, list[float]] = {}
    for place in perftest.PLACES:
        try:
            hosts = perftest.Hosts(place)
        except LocalError as why:  # a program or library is not installed
            raise NotMeasuredError(str(why)) from None
        with hosts:
            found = hosts.compare(effort.iterations, effort.rounds)
        for name, runs in found.items():
            for way, memory in ways.items():
                values[f"{name}, {place}{memory}"] = _over(runs[way], runs[perftest.PERF])
    return Measured(values)


def agents(effort: Effort) -> Measured:
    """P15. The rate is that of connections of one QP."""
    found = set_up("system", EMBEDDED, effort.agents)
    crowd = Crowd(effort.peers, effort.peers, effort.peers, idle=0, renewed=False)
    with Pair("system", crowd.load) as pair:
        cost = asyncio.run(cost_of(pair, crowd))
    note = f"{effort.agents.many} QPs; memory with {cost.qps} QPs of {cost.peers} peers"
    return Measured(
        {
            "one QP": [made.median for made in found[ONE]],
            "256 QPs, one connection": [made.seconds for made in found[QPS]],
            "256 QPs, one each": [made.seconds for made in found[CONNECTIONS]],
            "rate": [made.rate for made in found[CONNECTIONS]],
            "memory, 100 peers": [cost.rss / 1024],
        },
        note,
    )


# Many QPs, and SoftRoCE -----------------------------------------------------------------


def many_qps(effort: Effort) -> Measured:
    """P9, messages of 32 B. The state of a QP comes from the gauges of a running worker."""
    words = [str(program("many")), "--json", "--rounds", str(effort.rounds)]
    words += ["--messages", str(effort.messages), "--qps", str(COOL), "--qps", str(effort.qps)]
    one, cool, many = json.loads(said(words))
    with Stand(settings=Settings(tap=True)) as stand:
        pd = next(state for state in states(stand) if state.mode == "pd")
    alone = spread(_over(_message(one, "random"), _message(cool, "random"))).median
    note = (
        f"{many['qps']} QPs: {many['resident'] / 1024:.1f} KiB each, {many['set_ups']:.0f} set up "
        f"per second of CPU time; {COOL} QPs, where each message has its own ack too: {alone:.2f} x"
    )
    return Measured({
        "random order": _over(_message(one, "random"), _message(many, "random")),
        "in order": _over(_message(one, "in order"), _message(many, "in order")),
        "state": [pd.qp_keys + pd.qp_numbers],
    }, note)  # fmt: skip


def _message(crowd: Mapping[str, Any], order: str) -> list[float]:
    """The ns of a message, round by round."""
    cases = {(case["payload"], case["order"]): case["ns"] for case in crowd["cases"]}
    ns: list[float] = cases[SMALL, order]
    return ns


def rxe(effort: Effort) -> Measured:
    """P11, in the virtual machine of the tests. One line of its output has the values of each
    round."""
    words = [sys.executable, str(VM), "--timeout", str(VM_SECONDS), "--"]
    words += ["env", "-C", str(ROOT), f"{RXE_ROUNDS}={effort.rounds}"]
    words += [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", RXE_TEST]
    code, text = _ended(words)
    found = re.search(rf"^{RXE_VALUES} (.*)$", text, re.MULTILINE)
    if found and code == 0:
        return Measured(json.loads(found[1]), "crypto provider openssl")
    if skipped := re.search(r"^SKIPPED .*?: (.*)$", text, re.MULTILINE):
        raise NotMeasuredError(skipped[1])
    why = re.findall(r"^E  +(.*)", text, re.MULTILINE)[:1] or text.strip().splitlines()[-1:]
    raise DeviceError(f"{' '.join(words)} ended with {code}: {' '.join(why)}")


def _ended(words: Sequence[str]) -> tuple[int, str]:
    """Exit code and output of a child process. The child and its virtual machine end with this
    process."""
    child = spawn(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = child.communicate()
    finally:
        stop(child, VM_STOP)
    return child.returncode, output.decode(errors="replace")
