"""The identities and agents of GIDs: the entries [[peer]] of a policy (agent.md 11)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from cryptography import x509

from srdma import gid as gids
from srdma.agent.meeting import Address
from srdma.identity import addresses_of
from srdma.keyex.fields import ExchangeError
from srdma.keyex.policy import check_identity
from srdma.uri import check_pattern

PEER_KEYS = {"gid", "agent", "identity", "san"}
PORT_MAX = 65_535
MAPPED = 96  # bits before the address in an IPv4-mapped one


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
        made = [_peer(entry) for entry in entries]
        self.entries = sorted(made, key=lambda peer: -peer.range.prefixlen)  # the narrowest first
        # Number of bits of the ranges -> these bits -> entry.
        self._by_bits: dict[int, dict[int, Peer]] = {}
        for peer in self.entries:
            of_size = self._by_bits.setdefault(peer.range.prefixlen, {})
            if of_size.setdefault(_bits(peer.range.network_address, peer.range), peer) is not peer:
                raise ValueError(f"two entries [[peer]] have the gid {range_text(peer.range)}")

    def at(self, gid: bytes) -> Peer:
        """The entry of a GID. Raises ExchangeError (`policy`)."""
        address = ipaddress.IPv6Address(gid)
        for of_size in self._by_bits.values():
            size = next(iter(of_size.values())).range
            if found := of_size.get(_bits(address, size)):
                return found
        raise ExchangeError(
            "policy",
            f"the policy of this agent has no [[peer]] with the GID {gids.text_of(gid)}",
            told="the policy does not know this GID",
        )


def _bits(address: ipaddress.IPv6Address, gid_range: ipaddress.IPv6Network) -> int:
    """The bits of an address that say whether it is in a range of this size."""
    return int(address) >> (address.max_prefixlen - gid_range.prefixlen)


def range_text(gid_range: ipaddress.IPv6Network) -> str:
    """An address, or a range in CIDR notation."""
    bits = gid_range.prefixlen
    first = gid_range.network_address
    text = gids.text_of(first.packed)
    if bits == first.max_prefixlen:
        return text
    return f"{text}/{bits - MAPPED if first.ipv4_mapped else bits}"


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


def range_of(value: object, entry: str) -> ipaddress.IPv6Network:
    """The `gid` of an entry: an address or a range, IPv4 as IPv4-mapped. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{entry} needs a gid: an address, or a range such as 10.0.0.0/24")
    found = ipaddress.ip_network(value)
    bits = found.prefixlen + (MAPPED if found.version == 4 else 0)
    return ipaddress.IPv6Network((gids.of_address(found.network_address), bits))


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
