"""Keys of PDs: the secrets of key mode pd (protocol.md 3.4)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .kdf import kdf
from .protect import End
from .session import Params


@dataclass(frozen=True)
class PdKeys:
    """K_PD of a leg, or of all legs of a trust group."""

    kpd16: bytes = field(repr=False)
    kpd32: bytes = field(repr=False)

    @property
    def group_key(self) -> bytes:
        return self.kpd16 + self.kpd32

    def secret(self, receiver: End, sender: End, generation: bytes, size: int) -> bytes:
        """Derives S of the direction to a QP of this PD."""
        context = b"".join(end.eid + end.qpn.to_bytes(4, "big") for end in (receiver, sender))
        parent = {16: self.kpd16, 32: self.kpd32}[size]
        return kdf(parent, "qp rx", context + generation, size)


def with_secrets(params: Params, own: PdKeys, peer: PdKeys) -> Params:
    """Returns `params` with the secrets of both PDs, in the size of the secrets that they
    replace. Policy `shared` passes one PD twice."""
    size, generation = len(params.tx_secret), params.generation
    here, there = End(params.local_eid, params.local_qpn), End(params.peer_eid, params.peer_qpn)
    return replace(
        params,
        tx_secret=peer.secret(there, here, generation, size),
        rx_secret=own.secret(here, there, generation, size),
    )
