"""A stream to a peer's agent in an authenticated connection, from its first message to its end."""

from __future__ import annotations

from cryptography import x509

from srdma.agent.settings import Identity
from srdma.keyex.exchange import Role
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, Message, decode, encode
from srdma.keyex.streams import Stream

Address = tuple[str, int]  # host and port of a peer's listener or agent


class Meeting:
    """role: in the key exchange of the stream; first: its first message, if the peer opened it.

    identity: URI of the peer; own and uri: name and URI of the identity of this end; group: of the
    TLS key agreement.
    """

    __slots__ = ("_decoded", "_first", "group", "identity", "own", "role", "stream", "uri")

    def __init__(
        self,
        role: Role,
        stream: Stream,
        own: Identity,
        first: bytes | None = None,
    ) -> None:
        self.role, self.stream = role, stream
        self.identity, self.group = stream.link.identity, stream.link.group
        self.own, self.uri = own.name, stream.link.outer.credentials.identity
        self._first = first
        self._decoded: Message | None = None

    @property
    def awaited(self) -> bool:
        """True if the peer's first message has not arrived with the stream (srdma/1)."""
        return self._first is None

    def opening(self) -> Message | None:
        """The first message, which remains to be taken; None with srdma/1. Raises ExchangeError."""
        if self._first is not None and self._decoded is None:
            self._decoded = decode(self._first)
        return self._decoded

    def take(self) -> tuple[bytes | None, Message | None]:
        """The peer's next message, as Stream.take(), and the decoded one if it is known."""
        if self._first is None:
            return self.stream.take(), None
        first, self._first = (self._first, self._decoded), None
        self._decoded = None
        return first

    @property
    def certificate(self) -> x509.Certificate:
        """The certificate of the peer."""
        return self.stream.link.outer.peer_certificate()

    def check(self, own: Identity) -> None:
        """Raise ExchangeError unless the peer came to this identity of the present end (`policy`),
        and may have its own (`identity`)."""
        if own.name != self.own:
            raise ExchangeError(
                "policy", f"the peer came to identity {self.own!r}: accept it with that one"
            )
        own.check(self.identity)

    def drop(self) -> None:
        """Process no more messages of the peer; with srdma/1 close the TCP connection at once."""
        self.stream.watch(None)
        self.stream.forget()

    def refuse(self, error: ExchangeError) -> None:
        """End a stream that is not in use; with srdma/2 the peer learns why."""
        if self.stream.version > 1:
            self.stream.send(encoded(error))
        self.drop()

    async def fail(self, error: ExchangeError) -> None:
        """Tell the peer about an error, and end the stream."""
        self.stream.watch(None)
        if not error.from_peer:
            await self.stream.abort(encoded(error))
        elif self.stream.version > 1:
            self.stream.forget()
        else:
            await self.stream.close()


def encoded(error: ExchangeError) -> bytes:
    """The ERROR that tells the peer."""
    code = "identity" if error.code == "policy" else error.code  # protocol.md 8.1
    return encode(ErrorMessage(code, error.told))


def agent_of(meeting: Meeting) -> Address | None:
    """The address of the peer's agent, if it has a port (protocol.md 8.7)."""
    link = meeting.stream.link
    return (link.address, link.agent) if link.agent else None
