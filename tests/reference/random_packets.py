"""Random legal packets from a seeded generator, for vectors and differential tests."""

from __future__ import annotations

from random import Random

from .ack import GAP_IDS, MAX_GAPS, MAX_MESSAGE, AckBody, Kind, gap_end
from .kdf import secret_size
from .reasons import CLOSE_REASONS, NAK_SYNDROME
from .session import FIRST_PN, Params
from .suites import SUITES, Level
from .wire import ROWS, Fields, Flag, Op, Packet, Payload


def u(rng: Random, bits: int) -> int:
    return rng.getrandbits(bits)


def gaps(rng: Random, request_id: int, count: int) -> tuple[tuple[int, int, int], ...]:
    """Returns legal gaps after a position in this request."""
    found, at = [], (request_id + 1, 0)
    for _ in range(count):
        start = (at[0] + rng.choice((0, 1, 7)), u(rng, 20)) if rng.random() < 0.5 else at
        start = max(start, at)
        limit = MAX_MESSAGE - start[1]
        in_ids = rng.random() < 0.3 or limit == 0
        extent = GAP_IDS + 1 + u(rng, 10) if in_ids else rng.randint(1, min(limit, 1 << 16))
        found.append((start[0] & 0xFFFFFFFF, start[1], extent))
        at = gap_end(*start, extent)
    return tuple(found)


def ack_body(rng: Random, request_id: int, offset: int, kind: Kind | None = None) -> AckBody:
    kind = kind or rng.choice(list(Kind))
    reasons = {Kind.NAK: sorted(NAK_SYNDROME), Kind.CLOSE: sorted(CLOSE_REASONS)}.get(kind, [0])
    count = rng.choice((0, 0, 1, 2, MAX_GAPS))
    reason, highest = rng.choice(reasons), u(rng, 32)
    return AckBody(
        kind=kind,
        reason=reason,
        request_id=request_id & 0xFFFFFFFF,
        offset=offset,
        highest_pn=highest,
        path=highest ^ 0xA5A5A5A5 if reason == 0 else 0,
        recv_credit=u(rng, 32),
        request_credit=u(rng, 32),
        gaps=gaps(rng, request_id, count),
    )


def packet(rng: Random, op: Op, request_id: int, payload: bytes, proof: bool = False) -> Packet:
    """Returns a packet of `op`. `payload` must fit its row of table 2.2."""
    row = ROWS[op]
    fields: Fields = {}
    if "RETH" in row.headers:
        fields |= {"va": u(rng, 64), "rkey": u(rng, 32), "dma_len": u(rng, 32)}
    if "Atomic" in row.headers:
        fields |= {"va": u(rng, 64), "rkey": u(rng, 32)}
        fields |= {"swap_add": u(rng, 64), "compare": u(rng, 64)}
    if "AtomicAck" in row.headers:
        fields["original"] = u(rng, 64)
    if "Imm" in row.headers:
        fields["imm"] = u(rng, 32)
    flags = rng.choice((0, Flag.ACK_NOW))
    if proof and row.proof:
        flags |= Flag.PROOF | rng.choice((0, Flag.HOLDER))
        fields |= {"depth": u(rng, 8), "expiry": u(rng, 32), "proof": rng.randbytes(16)}
    offset = u(rng, 32)
    if op == Op.ACKNOWLEDGE:
        fields["ack"] = ack_body(rng, request_id, offset)
    return Packet(
        op, request_id=request_id, flags=int(flags), offset=offset, payload=payload, **fields
    )


def payload_for(rng: Random, op: Op, size: int) -> bytes:
    """Returns at most `size` bytes, as many as the row of `op` permits."""
    rule = ROWS[op].payload
    return rng.randbytes({Payload.NONE: 0, Payload.SOME: max(size, 1)}.get(rule, size))


def params(
    rng: Random, suite: int, level: Level, role: int = 0, tag_len: int | None = None
) -> Params:
    """`tag_len` is that of the suite unless given."""
    row = SUITES.get(suite)
    if tag_len is None:
        tag_len = row.tag_size if row else 0
    size = secret_size(row) if row else 0
    return Params(
        role=role,
        suite=suite,
        level=level,
        tag_len=tag_len,
        generation=rng.randbytes(8),
        local_eid=rng.randbytes(16),
        peer_eid=rng.randbytes(16),
        local_qpn=rng.randrange(1, 1 << 24),
        peer_qpn=rng.randrange(1, 1 << 24),
        tx_pn=rng.choice(FIRST_PN),
        rx_pn=rng.choice(FIRST_PN),
        tx_secret=rng.randbytes(size),
        rx_secret=rng.randbytes(size),
    )


def forms() -> list[tuple[int, Level]]:
    """Every pair of suite and level of this version, and level none."""
    of_suites = [(suite.id, level) for suite in SUITES.values() for level in suite.levels]
    return [*of_suites, (0, Level.NONE)]
