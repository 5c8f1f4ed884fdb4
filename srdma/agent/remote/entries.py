"""[control] and [[host]] of a policy: hosts whose programs use this NIC (control-link.md 1.2)."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srdma.agent.accounts import NAME, group_of_host
from srdma.agent.port import listening
from srdma.agent.quota import RESTRICTED, limits_of, only_limits_of
from srdma.control import Limits
from srdma.control.quotas import Quota
from srdma.gid import plain_address
from srdma.identity import Credentials, IdentityError
from srdma.keyex.fields import ExchangeError
from srdma.keyex.streams import BUSY
from srdma.uri import check as check_uri

KEYS = {"name", "identity", "identities", "listen", "quota", "total", "clock"}
CONTROL_KEYS = {"listen", "path"}
NAME_MAX = 40  # of a host: an account has 63 bytes (local-interface.md 3.9)
WILDCARDS = {"", "0.0.0.0", "::"}
FREE = 2.0  # seconds for which the port of a listener that ended may be in use
TRIES = 16  # with ports of a range, when a program asks for any
_PORTS = re.compile(r"(.+):(\d{1,5})(?:-(\d{1,5}))?")


@dataclass(frozen=True)
class Ports:
    """Ports from first to last of an address at which programs of a host may listen."""

    address: str
    first: int
    last: int

    def some(self) -> list[tuple[str, int]]:
        """The address with at most TRIES ports, from a random one on."""
        count = self.last - self.first + 1
        start = secrets.randbelow(count)
        return [(self.address, self.first + (start + n) % count) for n in range(min(count, TRIES))]

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.first}" + (f"-{self.last}" if self.last > self.first else "")


@dataclass(frozen=True)
class HostEntry:
    """An entry [[host]]. identity: of its proxy; identities: names that its programs may use;
    limits: of each user; total: limits of all, None if there are none; clock: its time of day is
    that of the NIC."""

    name: str
    identity: str
    identities: frozenset[str]
    listen: tuple[Ports, ...]
    limits: Limits
    total: Quota | None
    clock: bool

    @property
    def group(self) -> str:
        """Name of the account of all its users."""
        return group_of_host(self.name)

    def bound(self, host: str, port: int) -> socket.socket:
        """A listening socket for one of its programs.

        Raises ExchangeError (`policy`, `config`, or `busy` if all fitting ports are in use).
        """
        if not 0 <= port < 1 << 16:
            raise ExchangeError("config", f"{port} is no TCP port: give 0 to 65535")
        try:
            wanted = host if host in WILDCARDS else plain_address(host)
        except ValueError:
            raise ExchangeError("config", f"{host!r} is no IP address of the NIC") from None
        found = self._addresses(wanted, port)
        if not found:
            allowed = ", ".join(map(str, self.listen)) or "none"
            raise ExchangeError(
                "policy",
                f"programs of host {self.name} may not listen at {host or '*'}:{port} of the NIC: "
                f"its policy permits {allowed}",
            )
        failed = OSError()
        for address in found:
            try:
                return listening(address)
            except OSError as error:
                failed = error
                if error.errno != errno.EADDRINUSE:
                    break
        code = BUSY if failed.errno == errno.EADDRINUSE else "config"
        raise ExchangeError(
            code, f"the NIC cannot listen at {host or '*'}:{port}: {failed.strerror}"
        )

    async def bound_soon(self, host: str, port: int) -> socket.socket:
        """As bound(), after the socket of a listener that ended is closed (closing.py)."""
        deadline = time.monotonic() + FREE
        while True:
            try:
                return self.bound(host, port)
            except ExchangeError as error:
                if error.code != BUSY or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(FREE / 20)

    def _addresses(self, wanted: str, port: int) -> list[tuple[str, int]]:
        """The permitted addresses that fit, of which one is tried after the other. port: 0: any."""
        fits = [p for p in self.listen if wanted in (*WILDCARDS, p.address)]
        if port:
            return [(p.address, port) for p in fits if p.first <= port <= p.last]
        return [address for p in fits for address in p.some()]


@dataclass(frozen=True)
class Control:
    """[control]. listen: where proxies connect; path: of the files of credentials."""

    listen: tuple[str, int]
    path: Path
    credentials: Credentials


def control_of(policy: Path, entry: object) -> Control | None:
    """From a policy with this path. Raises ValueError, IdentityError."""
    if entry is None:
        return None
    if not isinstance(entry, dict) or set(entry) != CONTROL_KEYS:
        raise ValueError("[control] has the keys listen and path, and no others")
    if not isinstance(entry["path"], str) or not entry["path"]:
        raise ValueError("[control]: path is no text")
    try:
        credentials = Credentials.named(policy.parent / entry["path"])
    except IdentityError as error:
        raise ValueError(f"[control]: {error}") from None
    listen = address_of("[control]: listen", entry["listen"])
    return Control(listen, policy.parent / entry["path"], credentials)


def address_of(what: str, value: object) -> tuple[str, int]:
    """An IP address and a TCP port. Raises ValueError."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    try:
        address, number = plain_address(host.strip("[]")), int(port)
    except ValueError:
        number = 0
    if not 1024 <= number < 1 << 16:
        raise ValueError(
            f'{what} must be "ADDRESS:PORT", with an IP address and a port of 1024 to 65535'
        )
    return address, number


def hosts_of(entries: object, defaults: Quota, identities: set[str]) -> dict[str, HostEntry]:
    """From [[host]] of a policy with these identities. Raises ValueError."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("host is no list of tables [[host]]")
    hosts = [_host(entry, defaults, identities) for entry in entries]
    for what in ("name", "identity"):
        values = [getattr(host, what) for host in hosts]
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise ValueError(f"two entries [[host]] have the same {what}: {twice}")
    return {host.name: host for host in hosts}


def _host(entry: Mapping[str, Any], defaults: Quota, identities: set[str]) -> HostEntry:
    if unknown := sorted(set(entry) - KEYS):
        raise ValueError(
            f"[[host]] has the unknown key {unknown[0]!r}: known are {', '.join(sorted(KEYS))}"
        )
    name = entry.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > NAME_MAX:
        raise ValueError(
            f"a name of a [[host]] has 1 to {NAME_MAX} letters, digits, '.', '_' and '-'"
        )
    allowed = entry.get("identities")
    if not isinstance(allowed, list) or not allowed:
        raise ValueError(f"[[host]] {name!r}: identities is no list of names")
    if unknown := sorted({str(one) for one in allowed} - identities):
        raise ValueError(f"[[host]] {name!r}: there is no [[identity]] {unknown[0]!r}")
    listen = entry.get("listen", [])
    if not isinstance(listen, list):
        raise ValueError(f"[[host]] {name!r}: listen is no list of addresses")
    clock = entry.get("clock", False)
    if not isinstance(clock, bool):
        raise ValueError(f"[[host]] {name!r}: clock is neither true nor false")
    what = f"[[host]] {name!r}"
    return HostEntry(
        name,
        exact_identity(f"{what}: identity", entry.get("identity")),
        frozenset(allowed),
        tuple(_ports(name, value) for value in listen),
        limits_of(only_limits_of(f"{what}: quota", entry.get("quota", {}), defaults, RESTRICTED)),
        only_limits_of(f"{what}: total", entry["total"]) if "total" in entry else None,
        clock,
    )


def teller_of(hosts: Mapping[str, HostEntry]) -> str:
    """The host that tells the time with clock = "control". Raises ValueError."""
    names = [host.name for host in hosts.values() if host.clock] or [*hosts]
    if len(names) != 1:
        raise ValueError(
            'clock = "control" needs [control] and one [[host]] that tells the time: give one of '
            "several clock = true"
        )
    return names[0]


def exact_identity(what: str, value: object) -> str:
    """One identity, not a pattern. Raises ValueError."""
    if not isinstance(value, str) or not value or "*" in value:
        raise ValueError(f"{what} must be one identity (URI), not a pattern")
    try:
        check_uri(value)
    except ValueError as error:
        raise ValueError(f"{what} {value!r} is no identity: {error}") from None
    return value


def _ports(name: str, value: object) -> Ports:
    match = _PORTS.fullmatch(value) if isinstance(value, str) else None
    try:
        assert match
        address = plain_address(match[1].strip("[]"))
        first, last = int(match[2]), int(match[3] or match[2])
        valid = 1024 <= first <= last < 1 << 16
        valid = valid and not ipaddress.ip_address(address).is_unspecified
    except (AssertionError, ValueError):
        valid = False
    if not valid:
        raise ValueError(
            f'[[host]] {name!r}: listen has {value!r}: give "ADDRESS:PORT" or "ADDRESS:PORT-PORT", '
            "with an address of this NIC and ports of 1024 to 65535"
        )
    return Ports(address, first, last)
