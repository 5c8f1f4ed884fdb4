"""The proofs of a session in another TLS connection (protocol.md 8.6)."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from srdma.control import Control, Direction
from srdma.control.client import ENDED
from srdma.errors import RefusedError
from srdma.keyex.agreement import Agreement
from srdma.keyex.exchange_renew import Goodbye
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import Resume
from srdma.keyex.secrets import unless_ended
from srdma.keyex.streams import Stream

LABEL, CONTEXT_LEN = b"EXPORTER-srdma-2 resume", 32
UNKNOWN = "no session with this hash and these identities waits here, or a proof is wrong"
LATE = "RESUME came late: an exchange began after it was sent"
REPLACED = "a later RESUME moved the session to another stream"


@dataclass(frozen=True, slots=True)
class Resumption:
    """control: of the local worker."""

    control: Control
    agreement: Agreement

    def ended(self) -> bool:
        """True if all QPs have ended."""
        return not any(map(self._lives, self.agreement.qpns))

    def _lives(self, qpn: int) -> bool:
        try:
            return bool(self._prove(qpn, bytes(CONTEXT_LEN))[1])
        except RefusedError as error:
            if error.errno != errno.EPERM:
                raise
            return True  # a living QP of level none, which has no proof

    def message(self, stream: Stream, count: int) -> Resume:
        """This end's RESUME for a connection. Raises Goodbye if all QPs have ended."""
        context = self._context(stream)
        made = [self._prove(qpn, context) for qpn in self.agreement.qpns]
        given, proofs = zip(*made, strict=True)
        if not any(proofs):
            raise Goodbye
        return Resume(self.agreement.hash, count, given, proofs)

    def _prove(self, qpn: int, context: bytes) -> tuple[int, bytes]:
        """`given` and the proof; (0, b"") if the QP has ended."""
        try:
            made = self.control.prove(qpn, context)
        except RefusedError as error:
            if error.errno not in ENDED:
                raise
            return 0, b""
        return made.tx, made.proof

    def check(self, stream: Stream, peers: Resume, count: int) -> list[int]:
        """Check the peer's RESUME. Returns the QPs for withdraw(): the peer will not use the secret
        that waits for receiving there. Raises ExchangeError (`resume`, `value`), DeviceError.

        count: of this end's last exchange.
        """
        if peers.hash != self.agreement.hash or len(peers.given) != len(self.agreement.qpns):
            raise ExchangeError("resume", UNKNOWN)
        context, proved = self._context(stream), []
        for qpn, given, proof in zip(self.agreement.qpns, peers.given, peers.proofs, strict=True):
            taken = self._taken(qpn, context, proof) if proof else None
            if taken is not None:
                proved.append((qpn, given, taken))
        if not proved:
            raise ExchangeError("resume", UNKNOWN)
        if self.agreement.role == "server" and peers.count < count:
            raise ExchangeError("resume", LATE)
        for qpn, given, taken in proved:
            if taken not in (given, given + 1):
                raise ExchangeError(
                    "value",
                    f"given is {given} for QP {qpn:#08x}: it must be {taken} or {taken - 1}",
                )
        return [qpn for qpn, given, taken in proved if taken > given]

    def withdraw(self, qpns: list[int]) -> None:
        """Raises RefusedError, WorkerGone."""
        for qpn in qpns:
            with unless_ended():
                self.control.rekey(qpn, Direction.WITHDRAW)

    def _taken(self, qpn: int, context: bytes, proof: bytes) -> int | None:
        """How many REKEY rx the worker has taken, or None if the QP has ended."""
        try:
            return self.control.prove(qpn, context, proof).rx
        except RefusedError as error:
            if error.errno == errno.EBADMSG:
                raise ExchangeError("resume", UNKNOWN) from None
            if error.errno not in ENDED:
                raise
        return None

    def _context(self, stream: Stream) -> bytes:
        return stream.export(LABEL, self.agreement.hash, CONTEXT_LEN)
