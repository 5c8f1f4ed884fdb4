"""Texts of the page: statements of the paper, captions, and sentences about measured values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from srdma_bench.paper.loads import BASIC, CACHED, NONE, Row
from srdma_bench.plot import Point

PAPER = {
    "table2": "Three bits of the BTH give the length of the STH: none, or a MAC of 96 to 512 bits.",
    "table3": "With AES-128: a key of 16 bytes per QP, or one per PD; 10 bytes for the nonces of a "
    "QP; 16 bytes of header in each packet.",
    "fig2": "Latency grows linearly with the depth: about 0.5 µs per step, 2 µs for the 4 steps to "
    "a block of 1 MiB of 16 MiB; throughput falls accordingly.",
    "fig5": "AES is the fastest for small blocks: 8 Gbit/s for 64 bytes by one thread. "
    "ChaCha20-Poly1305 is about 4 times slower than AES on average. SHA-512 does not reach the "
    "link's 20.6 Gbit/s.",
    "fig6": "Without protection a WRITE takes 9.55 µs (half a round trip) and a READ 18.2 µs; all "
    "suites add about 0.9 µs, 9 %, to a WRITE in basic mode. Deriving the QP's key costs more than "
    "deriving the memory key; both together cost most.",
    "fig7": "A WRITE of 2 KiB takes 15 µs with packet authentication, 12 µs with header "
    "authentication. Latency rises with the payload, faster for encryption; SHA-512 costs most.",
    "fig8": "With 8 threads: header authentication reaches line rate (20.6 Gbit/s) in all modes; "
    "packet authentication 19.6 with AES-128 and 13 with SHA-512; encryption 19 with AES-128, of "
    "20.5 without protection. One thread without protection: 8. Derived keys cost 2 Gbit/s on "
    "average. Each thread served one QP.",
    "fig9": "READs cost more than WRITEs: the initiator's NIC keeps a context per READ and "
    "matches the responses with it.",
    "fig10": "5/95 exceeds WRITEs alone by up to 150,000 requests/s, because both directions of "
    "the link carry data; more READs cost more than this gains.",
    "fig11": "HERD over sRDMA: 475,000 GETs and 492,000 PUTs per second without protection; basic "
    "packet authentication is almost as fast, encryption costs 7.3 %, a derived key per packet "
    "21 %, and memory proofs far more, because each request derives 20 or 21 keys of the tree.",
}

HERE = {
    "table2": [
        "Codes 1 to 7 are tags of 12, 16, 20, 28, 32, 48 and 64 bytes, the paper's 96 to 512 bits.",
        "The 8 bytes besides the tag are request id, flags and offset. The reliability of the "
        "secure layer needs them, because the RC connections below end at the next NIC.",
    ],
    "table3": [
        "There are two keys instead of one, because each direction has its own. Without pd each "
        "direction also keeps its secret, from which the key of the next epoch is derived.",
        "In mem a packet carries the proof and the tag; the paper's proof replaces the tag.",
    ],
}

CAPTIONS = {
    "table2": "From captured packets of the embedded NIC, for every --device: a WRITE of 32 bytes "
    "at level packet with hmac-sha512.",
    "table3": "On the embedded NIC, for every --device: gauges key_bytes and nonce_bytes of a "
    "running worker with 10 QPs; headers from captured packets. The gauge of a PD's keys contains "
    "those of pd and mem in every mode: 16 bytes of it are counted as mem, the rest as pd. "
    "“shared” is pd in a trust group, where every member has the PD's key.",
    "fig2": "Derivation from the key of a region to the key of a leaf, without cached keys between "
    "them; CPU time.",
    "fig5": "MACs of all suites that only authenticate, in CPU time of pinned threads, with the "
    "fastest crypto provider of this CPU and with OpenSSL.",
    "fig6": "Level header. pd, mem and pd+mem: every packet derives its keys (--key-cache 0), the "
    "paper's worst case; “cached”: the default. Bars are medians of rounds, with quartiles.",
    "fig7": "One request at a time; WRITE is half a round trip of a ping-pong, READ a full one.",
    "fig8": "Two worker processes with one thread each, so QPs and not threads are the x axis; "
    "region of 1 MiB; with fewer than 4 cores the hosts share the workers' cores.",
    "fig9": "As figure 8.",
    "fig10": "One QP, 96 outstanding requests, READs evenly among the WRITEs.",
    "fig11": "One server, 8 clients with 8 outstanding requests each, uniformly distributed keys; "
    "requests by WRITE, responses by SEND. In mem a client's capability covers its request region. "
    "The rates include the time of clients and server: with fewer than 4 cores they share the "
    "workers' cores.",
}

PAPER_KEYS = {"basic": "16 N", "pd": "16", "mem": "16 N + 16", "pd+mem": "16 + 16"}


def plural(count: float, what: str) -> str:
    """A count with its noun: "1 thread", "2 threads"."""
    return f"{count:g} {what}{'s' if count != 1 else ''}"


def of_keys(each: int, shared: int) -> str:
    """Bytes in the notation of the paper: "16 N + 16"."""
    return " + ".join([*([f"{each} N"] if each else []), *([str(shared)] if shared else [])])


def of_points(name: str, points: Sequence[Point]) -> list[str]:
    texts = {"fig2": _fig2, "fig5": _fig5}
    return [*texts[name](points)] if points else []


def _fig2(points: Sequence[Point]) -> Iterator[str]:
    own = sorted((p for p in points if p.panel.startswith("latency")), key=lambda p: p.x)
    first, last = own[0], own[-1]
    if last.x > first.x:
        step = (last.median - first.median) / (last.x - first.x)
        yield f"{step:.2f} µs per step, so {4 * step:.1f} µs for 4 steps."
    yield f"{first.median:.2f} µs at depth {first.x:g}, {last.median:.2f} µs at depth {last.x:g}."


def _fig5(points: Sequence[Point]) -> Iterator[str]:
    for panel in dict.fromkeys(point.panel for point in points if "1 thread" in point.panel):
        for size in (64, 2048):
            own = [point for point in points if point.panel == panel and point.x == size]
            best = sorted(own, key=lambda p: -p.median)
            if best:
                yield (
                    f"{panel}, {size} bytes: {best[0].line} {best[0].median:.1f} Gbit/s, "
                    f"{best[-1].line} {best[-1].median:.1f}."
                )


def of_loads(name: str, rows: Sequence[Row]) -> list[str]:
    texts = {"fig6": _fig6, "fig7": _fig7, "fig8": _goodput, "fig9": _goodput, "fig10": _fig10,
             "fig11": _fig11}  # fmt: skip
    return [*texts[name](rows)] if rows else []


def _select(rows: Iterable[Row], **want: object) -> list[Row]:
    return [row for row in rows if all(getattr(row, k) == v for k, v in want.items())]


def _range(values: Sequence[float], spec: str = "+.0%") -> str:
    low, high = f"{min(values):{spec}}", f"{max(values):{spec}}"
    return low if low == high else f"{low} to {high}"


def _fig6(rows: Sequence[Row]) -> Iterator[str]:
    for op in ("WRITE", "READ"):
        own = _select(rows, op=op)
        plain = _select(own, mode=NONE)
        if plain:
            yield f"{op} without protection: {_range([r.median for r in plain], '.2f')} µs."
        for mode in (BASIC, "pd", f"pd{CACHED}", "mem", "pd+mem"):
            here = _select(own, mode=mode)
            if here:
                yield f"{op}, {mode}: {_range([r.ratio - 1 for r in here])} over no protection."


def _fig7(rows: Sequence[Row]) -> Iterator[str]:
    size = max(row.x for row in rows)
    for level in dict.fromkeys(row.level for row in rows):
        here = _select(rows, op="WRITE", level=level, mode=BASIC, x=size)
        for row in here:
            yield (
                f"{level}, {row.suite}: a WRITE of {size:g} bytes takes {row.median:.1f} µs, "
                f"{row.ratio - 1:+.0%} over no protection."
            )


def _goodput(rows: Sequence[Row]) -> Iterator[str]:
    most = max(row.x for row in rows)
    plain = _select(rows, mode=NONE, x=most)
    yield f"No protection, {plural(most, 'QP')}: {_range([r.median for r in plain], '.1f')} Gbit/s."
    for level in dict.fromkeys(row.level for row in rows):
        for row in _select(rows, level=level, mode=BASIC, x=most):
            derived = _select(rows, level=level, suite=row.suite, mode="pd", x=most)
            cached = _select(rows, level=level, suite=row.suite, mode=f"pd{CACHED}", x=most)
            others = [f"pd {r.median:.1f}" for r in derived]
            others += [f"pd cached {r.median:.1f}" for r in cached]
            yield (
                f"{level}, {row.suite}: {row.median:.1f} Gbit/s in basic mode, "
                f"{row.ratio:.2f} of no protection{''.join(f'; {text}' for text in others)}."
            )


def _fig10(rows: Sequence[Row]) -> Iterator[str]:
    for level in dict.fromkeys(row.level for row in rows):
        own = sorted(_select(rows, level=level, mode=BASIC), key=lambda r: r.x)
        values = ", ".join(f"{r.x:g}/{100 - r.x:g} {r.median:.0f}" for r in own)
        yield f"{level}, {own[0].suite}, basic: {values} thousand requests/s."


def _fig11(rows: Sequence[Row]) -> Iterator[str]:
    for op in dict.fromkeys(row.op for row in rows):
        own = _select(rows, op=op)
        plain = [row.median for row in _select(own, mode=NONE)]
        yield f"{op}, no protection: {_range(plain, '.0f')} thousand requests/s."
        for row in own:
            if row.mode in (BASIC, "pd", "mem"):
                yield (
                    f"{op}, {row.level}, {row.mode}: {row.median:.0f} thousand, "
                    f"{row.ratio - 1:+.0%} ({row.ratio_low - 1:+.0%} to {row.ratio_high - 1:+.0%})."
                )
