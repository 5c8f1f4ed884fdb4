"""Hosts that know each other by GIDs (agent.md 11), in threads of a test."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from srdma import gid as gids
from srdma.identity import Names, create_ca, issue
from srdma.keyex.messages import ErrorMessage, decode
from tests.host_players import Host
from tests.keyex_players import load
from tests.tls_players import BlockingTLS

A, B, C = (gids.parse(f"127.0.0.{n}") for n in (1, 2, 3))
NAMES = {A: "a", B: "b", C: "c"}
PEER = """
[[peer]]
gid = "{gid}"
agent = {agent}
identity = "{identity}"
san = {san}
"""


def identities(path: Path) -> Path:
    """Makes a CA and the identities of all hosts in a folder, which it returns."""
    create_ca(path / "ca", "test")
    for gid, name in NAMES.items():
        own = ipaddress.ip_address(gids.text_of(gid))
        issue(path / "ca", uri(name), path / name)
        issue(path / "ca", Names(uri(name), (own,)), path / f"{name}-san")
    (path / "ca.pem").write_bytes((path / "ca/ca.pem").read_bytes())
    return path


def uri(name: str) -> str:
    return f"spiffe://test/host-{name}"


def entry(gid: bytes | str, agent: int | str, identity: str = "", *, san: bool = False) -> str:
    """An entry [[peer]]. gid: or a range. agent: port at the address of the GID, or TOML."""
    name = identity or uri(NAMES[gid])  # type: ignore[index]
    text = gid if isinstance(gid, str) else gids.text_of(gid)
    return PEER.format(gid=text, agent=agent, identity=name, san=str(san).lower())


def host(folder: Path, gid: bytes, port: int, *entries: str, **changes: Any) -> Host:
    """The host of a GID. Its policy has all GIDs, if there are no `entries`."""
    known = entries or tuple(entry(each, port) for each in NAMES)
    names = changes.pop("names", [NAMES[gid]])
    values = {"gid": gid, "port": port, "address": gids.text_of(gid), "peers": "".join(known)}
    return Host(folder, *names, **values | changes)


def running(folder: Path, gid: bytes, port: int) -> Iterator[Host]:
    """For a fixture: the host of a GID, which is closed afterwards."""
    made = host(folder, gid, port)
    yield made
    made.close()


class Stranger(BlockingTLS):
    """A host with the identity of A, connected to the port of B, that sends what it wants."""

    def __init__(self, b: Host, folder: Path, name: str = "a") -> None:
        """name: of another identity, if it is not that of A."""
        sock = socket.create_connection(("127.0.0.2", b.port), timeout=20)
        super().__init__(sock, "client", load(folder, name))
        self.handshake()
        self.raw = True
        assert self.message()[:4] == bytes(4)  # HELLO

    def error(self) -> tuple[int, str]:
        """Number of the stream and code of the next ERROR."""
        raw = self.message()
        told = decode(raw[4:])
        assert isinstance(told, ErrorMessage)
        return int.from_bytes(raw[:4], "big"), told.code
