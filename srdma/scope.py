"""The scope of a region: which peers may use its remote rights (protocol.md 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from srdma.errors import LocalError
from srdma.identity import check_identity_uri

if TYPE_CHECKING:
    from srdma.pd import PD
    from srdma.qp import SecureQP

WHOLE_PD: Literal["pd"] = "pd"


@dataclass(frozen=True, slots=True)
class Holders:
    """The peers that may use a region. qpn: the only local QP, 0: each of the PD; identity: the
    only one of peers, "" any."""

    qpn: int = 0
    identity: str = ""


def holders_of(pd: PD, scope: SecureQP | str | None, *, needed: bool) -> Holders:
    """The holders that a scope names. needed: True if an rkey alone gives access.

    Raises LocalError for a scope that is missing or not legal.
    """
    if scope is None:
        if needed:
            raise LocalError(
                "access has remote rights: scope= says which peers may use the region, by one of "
                'the QPs, by the identity of the peer (a URI), or as scope="pd" for all peers of '
                "the PD"
            )
        return Holders()
    if isinstance(scope, str):
        return Holders() if scope == WHOLE_PD else Holders(identity=check_identity_uri(scope))
    if scope.pd is not pd:
        raise LocalError(f"scope: QP {scope.qp_num:#08x} is of another PD than the region")
    return Holders(qpn=scope.qp_num)
