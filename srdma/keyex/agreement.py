"""The values of a session that remain after its first exchange (protocol.md 8.3, 8.6).

An `Agreement` has no secret, so that a worker may keep it for an agent that restarts.
"""

from __future__ import annotations

from dataclasses import dataclass

from srdma.keyex.exchange import (
    CLIENT_DIRECTION,
    SERVER_DIRECTION,
    Exchange,
    Role,
    generation,
)
from srdma.keyex.offers import Suite
from srdma.keyex.policy import secret_size


@dataclass(frozen=True, slots=True)
class Agreement:
    """role: of this end in the first exchange; hash: H, 32 bytes; identity: URI of the peer.

    qpns: the QPs of this end; peers: endpoint id (16 bytes) and QPN of the peer's, in this order.
    """

    role: Role
    hash: bytes
    suite: Suite
    mode: int
    group: str
    identity: str
    qpns: tuple[int, ...]
    peers: tuple[tuple[bytes, int], ...]

    @classmethod
    def of(cls, exchange: Exchange, qpns: tuple[int, ...], identity: str) -> Agreement:
        """exchange: the first one, in state `done`."""
        agreed = exchange.agreed
        assert agreed is not None
        peers = tuple((end.eid, end.qpn) for end in agreed.ends)
        return cls(
            exchange.role, exchange.hash, agreed.suite, agreed.mode, agreed.group, identity, qpns,
            peers,
        )  # fmt: skip

    def generation(self, qp: int) -> bytes:
        """Generation of QP number `qp`, counted from 0; 8 bytes (8.3)."""
        return generation(self.hash, qp)

    @property
    def direction(self) -> int:
        """The direction in which this end sends, which is also its role in KEYS."""
        return CLIENT_DIRECTION if self.role == "client" else SERVER_DIRECTION

    @property
    def secret_size(self) -> int:
        """Bytes of the secret of one direction; 0 for level `none`."""
        return secret_size(self.suite)

    @property
    def renews(self) -> bool:
        """False if exchanges never change S: at level none and in a trust group (8.5)."""
        return bool(self.secret_size) and not self.group
