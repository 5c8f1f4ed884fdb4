"""A TLS connection to a peer, from its handshake to its close."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from srdma.agent.dial import dial
from srdma.agent.settings import Identity
from srdma.agent.tasks import cancelled
from srdma.keyex.exchange import Role
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, encode
from srdma.keyex.tls import Stream, no_wait

Address = tuple[str, int]  # host and port of a peer's listener


class Meeting:
    """A TLS connection to a peer that may still have to authenticate. role: in TLS."""

    def __init__(self, role: Role, stream: Stream) -> None:
        self.role, self.stream = role, stream
        self.identity = ""  # URI of the peer, once it is authenticated
        self.own = self.uri = ""  # name and URI of the own identity that the peer came to
        self.group = ""  # of the TLS key agreement
        self._heard: asyncio.Future[bytes] | None = None

    @classmethod
    async def dial(cls, own: Identity, address: Address) -> Meeting:
        """Connect to a peer's agent, as client. Raises ExchangeError."""
        sock = await dial(*address)
        return cls("client", await Stream.open(sock, "client", own.credentials))

    async def authenticate(
        self, own: Identity, turn: Callable[[], Awaitable[None]] = no_wait
    ) -> None:
        """Complete the handshake, unless it is complete. Raises ExchangeError, PeerClosed."""
        if not self.identity:
            own.clock.check(own.credentials)
            identity, self.group = await self.stream.handshake(turn)
            own.check(identity)
            self.identity, self.own, self.uri = identity, own.name, own.credentials.identity

    def hear(self) -> asyncio.Future[bytes]:
        """The peer's first message, whose receipt begins at the first call."""
        self._heard = self._heard or asyncio.ensure_future(self.stream.message())
        return self._heard

    def drop(self) -> None:
        """Close the TCP connection at once."""
        if self._heard:
            self._heard.cancel()
        self.stream.drop()

    async def fail(self, error: ExchangeError) -> None:
        """Tell the peer about an error and close the connection."""
        if self._heard:
            await cancelled(self._heard)
        if error.from_peer:
            await self.stream.close()
        else:
            code = "identity" if error.code == "policy" else error.code  # protocol.md 8.1
            await self.stream.abort(encode(ErrorMessage(code, error.told)))
