"""Rendezvous: connects two QPs whose programs know each other's (GID, QPN) (protocol.md 8.8)."""

from __future__ import annotations

from srdma import gid as gids
from srdma._engine.resource import Resource
from srdma.agent.client import Attempt
from srdma.connection import Connection, new_qp, prepared
from srdma.errors import LocalError
from srdma.options import Options
from srdma.pd import PD
from srdma.qp import SecureQP


class Rendezvous(Resource):
    """A new QP, for a peer that is told its (GID, QPN); made by rendezvous().

    Both programs make one, tell each other `gid` and `qp_num`, and call connect(), in any order.
    """

    def __init__(self, pd: PD, options: Options) -> None:
        super().__init__(pd)
        self._pd, self._options = pd, options
        self._qp: SecureQP | None = None
        try:
            if options.qps != 1:
                raise LocalError(f"qps={options.qps}: a rendezvous connects one QP")
            if pd.ctx.hello.gid == gids.NONE:
                raise LocalError(
                    f"the worker {pd.ctx.name} has no GID: start srdma-offload with --gid ADDRESS"
                )
            self._qp = new_qp(pd, options)
            self._qp_num = self._qp.qp_num
        except BaseException:
            self.close()
            raise

    @property
    def gid(self) -> str:
        """GID of the local worker: an IPv4 or IPv6 address."""
        return gids.text_of(self._pd.ctx.hello.gid)

    @property
    def qp_num(self) -> int:
        """Number of the QP."""
        return self._qp_num

    def connect(self, gid: str, qp_num: int, *, attempt: Attempt | None = None) -> Connection:
        """Connect with the QP `qp_num` of the worker with this GID (an address, also as pyverbs
        writes GIDs). attempt: as in Connection.

        Returns when the peer's program has called too and both QPs are in RTS, within the option
        `timeout`. The connection owns the QP from now on, and closes it on an error. The error is
        one of srdma.connect().
        """
        try:
            peer = gids.parse(gid)
        except ValueError:
            raise LocalError(f"{gid!r} is no GID: give an IPv4 or IPv6 address") from None
        self.ensure_alive()
        if self._qp is None:
            raise LocalError("the QP of this rendezvous was connected before: make another one")
        qp, self._qp = self._qp, None
        name = gids.QPName(peer, qp_num)
        return Connection(self._pd, self._options, name, qps=[qp], attempt=attempt)

    @property
    def pd(self) -> PD:
        return self._pd

    def _release(self) -> None:
        if self._qp is not None:
            self._qp.close()


def rendezvous(pd: PD, **options: object) -> Rendezvous:
    """A QP for a rendezvous. The keywords are the fields of `Options`.

    It needs a system agent whose policy has the peer's GID (agent.md 11), and a worker with a GID.
    Raises LocalError, DeviceError.
    """
    return Rendezvous(pd, prepared(pd, options))
