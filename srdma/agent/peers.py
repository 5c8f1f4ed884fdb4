"""The identities and agents of GIDs: the entries [[peer]] of a policy (agent.md 11)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from cryptography import x509

from srdma import gid as gids
from srdma.agent.meeting import Address
from srdma.agent.ranges import Ranges, range_of
from srdma.identity import addresses_of
from srdma.keyex.fields import ExchangeError
from srdma.keyex.policy import check_identity
from srdma.uri import check_pattern

PEER_KEYS = {"gid", "agent", "identity", "san"}
PORT_MAX = 65_535


@dataclass(frozen=True)
class Peer:
    """An entry [[peer]]. range: of GIDs; agent: the address of their agent, with the host "" for
    the address of the GID; identity: a URI, or a pattern if the certificate must name the GID
    (`san`)."""

    range: ipaddress.IPv6Network
    agent: Address
    identity: str
    san: bool

    def agent_of(self, gid: bytes) -> Address:
        """Address of the agent of a GID."""
        host, port = self.agent
        return host or gids.text_of(gid), port

    @property
    def expected(self) -> str:
        """The identity for the SNI, "" if it is not known before the handshake."""
        return "" if "*" in self.identity else self.identity

    def check(self, gid: bytes, identity: str, certificate: x509.Certificate) -> None:
        """Raise ExchangeError (`identity`) unless a peer may have a GID (protocol.md 8.8)."""
        try:
            check_identity(identity, (self.identity,))
        except ExchangeError:
            raise _not_of(gid, identity, "by the policy of this end") from None
        address = ipaddress.ip_address(gids.text_of(gid))  # of IPv4, if the GID is a mapped one
        if self.san and address not in addresses_of(certificate):
            raise _not_of(gid, identity, "by a subjectAltName of its certificate")


class Peers:
    """All entries [[peer]] of a policy."""

    def __init__(self, entries: object) -> None:
        """entries: the value of the key `peer`. Raises ValueError."""
        if not isinstance(entries, list):
            raise ValueError("peer must be entries [[peer]]")
        self._ranges = Ranges("[[peer]]", [_peer(entry) for entry in entries])
        self.entries = self._ranges.entries

    def at(self, gid: bytes) -> Peer:
        """The entry of a GID. Raises ExchangeError (`policy`)."""
        if found := self._ranges.at(gid):
            return found
        raise ExchangeError(
            "policy",
            f"the policy of this agent has no [[peer]] with the GID {gids.text_of(gid)}",
            told="the policy does not know this GID",
        )


def _not_of(gid: bytes, identity: str, why: str) -> ExchangeError:
    text = gids.text_of(gid)
    return ExchangeError(
        "identity",
        f"the peer is {identity}, which may not have the GID {text} {why}",
        told=f"this is {identity}, which may not have the GID {text}",
    )


def _peer(entry: object) -> Peer:
    if not isinstance(entry, dict):
        raise ValueError("peer must be entries [[peer]]")
    if unknown := sorted(set(entry) - PEER_KEYS):
        raise ValueError(f"[[peer]] has the unknown key {unknown[0]!r}")
    where, identity, san = entry.get("gid"), entry.get("identity"), entry.get("san", False)
    gid_range = range_of(where, "[[peer]]")
    if not isinstance(identity, str) or not identity:
        raise ValueError(f"[[peer]] {where} needs an identity")
    try:
        check_pattern(identity)
    except ValueError as error:
        raise ValueError(f"identity {identity!r} of [[peer]] {where}: {error}") from None
    if type(san) is not bool:
        raise ValueError(f"san of [[peer]] {where} must be true or false")
    if "*" in identity and not san:
        raise ValueError(
            f"[[peer]] {where} has a pattern as identity: any identity that fits could call as any "
            "of these GIDs: name one identity, or demand the GID in certificates by san = true"
        )
    agent = _agent(where, entry.get("agent"))
    if agent[0] and gid_range.prefixlen < gid_range.max_prefixlen:
        raise ValueError(
            f"agent of [[peer]] {where} is one address for a range: give the port that all its "
            "agents have"
        )
    return Peer(gid_range, agent, identity, san)


def _agent(where: object, value: object) -> Address:
    host, port = "", value
    if isinstance(value, str):
        host, _, port = value.rpartition(":")
        host = gids.plain_address(host.strip("[]"))
        port = int(port) if port.isdecimal() else 0
    if type(port) is not int or not 1 <= port <= PORT_MAX:
        raise ValueError(
            f'agent of [[peer]] {where} must be "ADDRESS:PORT", or a port at the address of the GID'
        )
    return host, port
