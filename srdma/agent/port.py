"""The port of a system agent (agent.md 3): peers of all its identities resume their sessions
there."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

from srdma.agent.accounts import User
from srdma.agent.listener import NO_LISTENER, Admission, Listener
from srdma.agent.meeting import Address, Meeting
from srdma.agent.settings import Identity
from srdma.errors import LocalError
from srdma.identity import Credentials, server_name
from srdma.keyex.fields import ExchangeError
from srdma.keyex.streams import Link
from srdma.keyex.tls import Outer

BACKLOG = 1024


class Nobody:
    """In place of the channel of a listener: no program waits for reports."""

    uid: User = -1

    def report(self, event: str, **fields: object) -> None:
        """The audit has it."""

    def unread(self) -> int:
        return 0


class Port(Listener):
    """Admits peers that have a session with an identity of this agent."""

    def __init__(
        self, sock: socket.socket, identities: Callable[[], list[Identity]], admission: Admission
    ) -> None:
        """identities: called for each handshake."""
        super().__init__(Nobody(), sock, lambda: identities()[0], admission)
        self._identities = identities

    async def _outer(self, sock: socket.socket, own: Identity) -> Outer:
        return await Outer.open(sock, "server", own.credentials, choose=self._choose)

    def _choose(self, name: str) -> Credentials | None:
        """Credentials for an SNI: those of the one identity that it names."""
        all_of_them = [identity.credentials for identity in self._identities()]
        if len(all_of_them) == 1:
            return all_of_them[0]
        named = (each for each in all_of_them if server_name(each.identity) == name)
        return next(named, None)

    def _identity(self, link: Link, own: Identity) -> Identity:
        """Of several identities with these credentials the first that admits the peer."""
        chosen = link.outer.credentials
        error = ExchangeError("identity", "the policy was replaced during the handshake")
        for identity in self._identities():
            if identity.credentials == chosen:
                identity.clock.check(chosen)
                try:
                    identity.check(link.identity)
                    return identity
                except ExchangeError as refusal:
                    error = refusal
        raise error

    def arrived(self, meeting: Meeting) -> None:
        """Sessions begin at listeners only."""
        raise ExchangeError("closed", NO_LISTENER)


def listening(address: Address) -> socket.socket:
    """A listening TCP socket at an IP address and a port. Raises OSError."""
    family = socket.AF_INET6 if ipaddress.ip_address(address[0]).version == 6 else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def bound(address: Address, table: str = "the policy") -> socket.socket:
    """As listening(), for `listen` of the policy or of a table of it. Raises LocalError."""
    try:
        return listening(address)
    except OSError as error:
        raise LocalError(
            f"cannot listen at {address[0]}:{address[1]}: {error.strerror or error}: change "
            f"`listen` of {table}"
        ) from None
