"""The data of a session after READY that an agent needs to renew it (protocol.md 8.6).

The worker keeps it as bytes for an agent that restarts (local-interface.md 3.6, KEEP). It has no
secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cbor2

from srdma import plain_cbor
from srdma.agent.accounts import User
from srdma.control import Kept, KeptQP
from srdma.keyex.agreement import Agreement
from srdma.keyex.offers import QPS_MAX, Suite
from srdma.keyex.renew import Times
from srdma.native.constants import EID_LEN

VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """own: name of the own identity; uid: user of the program, or name of its container; leg:
    number of the leg of the QPs.

    address: of the peer's listener; for the server of the first exchange the last address of the
    peer, with port 0, None if it is unknown. agent: of the peer's agent, if it has a port. max_age:
    seconds that secrets live without renewal (agent.md 5). gid: of the peer's worker, after a
    rendezvous.
    """

    agreement: Agreement
    own: str
    uid: User
    leg: int
    address: tuple[str, int] | None
    times: Times
    max_age: float
    count: int = 0
    agent: tuple[str, int] | None = None
    gid: bytes = b""

    def to_bytes(self) -> bytes:
        agreement = self.agreement
        return cbor2.dumps(
            {
                "v": VERSION,
                "role": agreement.role,
                "hash": agreement.hash,
                "suite": list(agreement.suite),
                "mode": agreement.mode,
                "group": agreement.group,
                "identity": agreement.identity,
                "own": self.own,
                "uid": self.uid,
                "address": list(self.address or ()),
                "agent": list(self.agent or ()),
                "every": self.times.every,
                "limit": self.times.limit,
                "max_age": self.max_age,
                "count": self.count,
                "qps": len(agreement.qpns),
                "gid": self.gid,
            }
        )

    @classmethod
    def of(cls, kept: Kept) -> Record:
        """The record in the bytes of to_bytes(). A QP that has ended has
        the QPN 0, which no QP has. Raises ValueError for the bytes of another version.
        """
        fields: Any = plain_cbor.loads(kept.data)
        if not isinstance(fields, dict) or fields.get("v") != VERSION:
            raise ValueError("it was kept by another version of srdma")
        qps = {qp.index: qp for qp in kept.qps}
        ended = KeptQP(0, 0, 0, bytes(EID_LEN))
        ends = [qps.get(index, ended) for index in range(min(fields["qps"], QPS_MAX))]
        agreement = Agreement(
            role=fields["role"],
            hash=fields["hash"],
            suite=Suite(*fields["suite"]),
            mode=fields["mode"],
            group=fields["group"],
            identity=fields["identity"],
            qpns=tuple(qp.qpn for qp in ends),
            peers=tuple((qp.peer_eid, qp.peer_qpn) for qp in ends),
        )
        return cls(
            agreement=agreement,
            own=fields["own"],
            uid=fields["uid"],
            leg=kept.leg,
            address=_address(fields["address"]),
            agent=_address(fields.get("agent", [])),
            times=Times(fields["every"], fields["limit"]),
            max_age=fields["max_age"],
            count=fields["count"],
            gid=fields.get("gid", b""),
        )


def _address(value: list[Any]) -> tuple[str, int] | None:
    return (value[0], value[1]) if value else None
