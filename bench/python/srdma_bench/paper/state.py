"""Tables 2 and 3 of the paper: bytes that packets carry, and bytes that workers store for QPs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from srdma.errors import IntegrityError
from srdma.keyex.policy import TAG_SIZES
from srdma.native.packet import parse
from srdma_bench.folder import Folder
from srdma_bench.perf.measure import Plan
from srdma_bench.stand import Link, Settings, Shape, Stand

WRITE_ONLY = 0x0A
BTH, RETH = 12, 16  # bytes, as in plain RoCEv2
CODE_AT, CODE_SHIFT, CODES = 8, 4, 7  # byte, shift, mask of the tag code (protocol.md 2.1)
PAYLOAD = 32
QPS = 10  # per connection, for table 3
GROUP = "table 3"
GCM = "aes-128-gcm"
K_PDMEM = 16  # bytes; the gauge of a leg's keys contains it and K_PD


@dataclass(frozen=True)
class Sth:
    """A row of table 2: bytes of a WRITE of 32 bytes besides BTH, RETH and payload."""

    code: int
    tag: int
    sth: int  # the whole STH with the tag
    packet: int


@dataclass(frozen=True)
class State:
    """A row of table 3, in bytes: per QP, what N QPs share, and per packet."""

    mode: str
    policy: str
    qp_keys: int
    shared_keys: int
    qp_numbers: int
    header: int


def written(stand: Stand, link: Link) -> bytes:
    """One captured WRITE of a connection."""
    stand.capture()
    link.measure(Plan("write_lat", PAYLOAD, 10))
    packet = next((p for p in stand.capture() if p[0] == WRITE_ONLY), None)
    if packet is None:
        raise IntegrityError("no WRITE was seen on the wire")
    return packet


def carried(packet: bytes, tag_len: int) -> int:
    """Bytes of a packet that plain RoCEv2 does not have."""
    return len(packet) - BTH - RETH - len(parse(packet, tag_len)["payload"])


def sth_sizes(stand: Stand) -> Iterator[Sth]:
    """Table 2: one connection for each tag length."""
    for tag in TAG_SIZES:
        with stand.connect(Shape("packet", "hmac-sha512", tag_len=tag)) as link:
            packet = written(stand, link)
        code = packet[CODE_AT] >> CODE_SHIFT & CODES
        yield Sth(code, tag, carried(packet, tag), len(packet))


def states(stand: Stand) -> Iterator[State]:
    """Table 3."""
    for mode, policy in (
        ("basic", "owner"), ("pd", "owner"), ("pd", "shared"),
        ("mem", "owner"), ("pd+mem", "owner"), ("pd+mem", "shared"),
    ):  # fmt: skip
        yield _state(stand, mode, policy)


def _state(stand: Stand, mode: str, policy: str) -> State:
    group = GROUP if policy == "shared" else ""
    shape = Shape("aead", GCM, mode, qps=QPS - 1, group=group)  # one QP more for control messages
    with stand.connect(shape) as link:
        _, stats = stand.stats()
        packet = written(stand, link)
    name = mode.replace("+", "_")
    if stats[f"qps_{name}"] != QPS or stats["legs"] != 1:
        raise IntegrityError(f"{stats[f'qps_{name}']} QPs are in mode {mode}, expected {QPS}")
    return State(
        mode=mode,
        policy=policy,
        qp_keys=each(stats[f"key_bytes_{name}"]),
        shared_keys=_shared(stats, mode),
        qp_numbers=each(stats[f"nonce_bytes_{name}"]),
        header=carried(packet, link.client.there.suite.tag_len),
    )


def each(size: int) -> int:
    """Bytes of one QP of QPS equal ones. Raises IntegrityError if `size` is not a multiple."""
    if size % QPS:
        raise IntegrityError(f"{size} bytes of {QPS} QPs: the QPs must be equal")
    return size // QPS


def _shared(stats: dict[str, int], mode: str) -> int:
    """Bytes shared by QPs. In every mode a leg has K_PD in two lengths (`pd`) and K_PDmem
    (`mem`)."""
    both = stats["key_bytes_legs"]
    return {"basic": 0, "pd": both - K_PDMEM, "mem": K_PDMEM, "pd+mem": both}[mode]


def measure(folder: Folder, tell: Callable[[int, str], None]) -> None:
    """Measure the missing rows of both tables. tell: reports progress (steps done, text)."""
    sizes = folder.table("table2", Sth, ("tag",))
    keys = folder.table("table3", State, ("mode", "policy"))
    with ExitStack() as stack:
        if len(sizes) < len(TAG_SIZES) or len(keys) < 6:
            stand = stack.enter_context(Stand(settings=Settings(tap=True)))
            for row in sth_sizes(stand):
                if sizes.get(tag=row.tag) is None:
                    sizes.add(row)
                tell(1, f"tags of {row.tag} bytes")
            for state in states(stand):
                if keys.get(mode=state.mode, policy=state.policy) is None:
                    keys.add(state)
                tell(1, f"keys of mode {state.mode}")
