"""Key logs of sessions of the reference (agent.md 7)."""

from __future__ import annotations

from collections.abc import Iterable

from srdma.keyex.keylog import Session
from tests.reference.session import Params


def lines(p: Params, *, tx: Iterable[bytes] = (), rx: Iterable[bytes] = ()) -> str:
    """The key log of the end with these parameters."""
    session = Session(
        p.local_qpn, p.generation, p.role, p.suite, p.level, p.tag_len, p.mode, p.local_eid,
        p.tx_pn, p.peer_qpn, p.peer_eid, p.rx_pn, "spiffe://test/a", "spiffe://test/b",
    )  # fmt: skip
    secrets = [("tx", s) for s in tx] + [("rx", s) for s in rx]
    name = f"SRDMA_SECRET {p.local_qpn:06x}"
    return "\n".join(
        [session.line(), *(f"{name} {d} {p.generation.hex()} {s.hex()}" for d, s in secrets), ""]
    )


def both(p: Params) -> str:
    return lines(p, tx=[p.tx_secret], rx=[p.rx_secret])
