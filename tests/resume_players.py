"""A peer of an agent that loses its TLS connection and resumes the session in another one
(protocol.md 8.6)."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from OpenSSL import SSL

from srdma.identity import Credentials
from srdma.keyex import tls
from srdma.keyex.exchange import Role
from srdma.keyex.messages import ErrorMessage, Message, Resume, decode, encode
from tests.keyex_players import Keyex
from tests.renew_players import Peer
from tests.tls_players import BlockingTLS

LABEL = b"EXPORTER-srdma-2 resume"
NUMBERS = {"client": 0, "server": 1}  # of the roles, in proofs


class ResumingPeer(Peer):
    """begun: the highest number of an exchange that it began; given: REKEY tx of its worker."""

    program: Keyex
    given = 0

    def again(self, credentials: Credentials | None = None, *, first: bool = False) -> BlockingTLS:
        """Another connection to the agent, which becomes that of this peer by resume().

        first: only srdma/1.
        """
        mine = credentials or self.credentials
        made = BlockingTLS(self.program.other_end(), self.role, mine)
        if first:
            only_first(made, self.role, mine)
        made.handshake()
        return made

    def proof(self, made: BlockingTLS, qp: int, role: str = "") -> bytes:
        """The proof of the end with this role, by default this one, for QP number `qp`."""
        context = made.export(LABEL, self.exchange.hash, 32)
        generation = hashlib.sha256(self.exchange.hash + qp.to_bytes(4, "big")).digest()[:8]
        number = bytes([NUMBERS[role or self.role]])
        return hashlib.sha256(number + generation + context).digest()

    def resume_of(self, made: BlockingTLS) -> Resume:
        """This end's right RESUME."""
        qps = range(len(self.program.config["qps"]))
        proofs = tuple(self.proof(made, qp) for qp in qps)
        return Resume(self.exchange.hash, self.count, (self.given,) * len(qps), proofs)

    def resume(self, **changes: object) -> Resume:
        """Resume in another connection, by a RESUME with these changes. Returns the agent's."""
        made = self.again()
        mine = replace(self.resume_of(made), **changes)  # type: ignore[arg-type]
        return self.resume_by(made, mine)

    def resume_by(self, made: BlockingTLS, mine: Resume) -> Resume:
        """Exchange RESUMEs in a connection, which becomes that of this peer."""
        theirs = exchanged(self.role, made, mine)
        assert isinstance(theirs, Resume), theirs
        assert theirs.hash == self.exchange.hash
        other = "client" if self.role == "server" else "server"
        for qp, found in enumerate(theirs.proofs):
            assert found in (b"", self.proof(made, qp, other))
        self.tls, self.count = made, max(mine.count, theirs.count)
        self.refusal = None
        return theirs

    def exchange_secrets(self) -> None:
        super().exchange_secrets()
        self.given += 1


def exchanged(role: Role, made: BlockingTLS, mine: Message | bytes) -> Message:
    """Sends the first message of this end. Returns the agent's answer, to a RESUME as server the
    RESUME that came before."""
    raw = mine if isinstance(mine, bytes) else encode(mine)
    if role == "server":
        theirs = decode(made.message())
        made.send(raw)
        return theirs
    made.send(raw)
    return decode(made.message())


def refused(role: Role, made: BlockingTLS, mine: Message | bytes) -> str:
    """The code of the ERROR by which the agent answers a first message."""
    answer = exchanged(role, made, mine)
    if role == "server":
        assert isinstance(answer, Resume)
        answer = decode(made.message())
    assert isinstance(answer, ErrorMessage), answer
    made.close()
    return answer.code


def only_first(made: BlockingTLS, role: Role, credentials: Credentials) -> None:
    """Let a connection that has not begun have srdma/1 only."""
    context = tls._context.__wrapped__(credentials, tuple(tls.ALPN))
    context.set_alpn_protos([b"srdma/1"])
    context.set_alpn_select_callback(
        lambda _, offered: b"srdma/1" if b"srdma/1" in offered else SSL.NO_OVERLAPPING_PROTOCOLS
    )
    made._tls = SSL.Connection(context, None)
    made._tls.set_app_data(made._state)
    made._tls.set_connect_state() if role == "client" else made._tls.set_accept_state()
