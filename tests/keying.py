"""Keys for two QPs without TLS: one process does what the agents do at both workers.

For tests that need many connections, or wrong keys. `key()` plays both ends of protocol.md 8.1,
steps 2a to 4, on control connections that may use the QPs' legs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import srdma
from srdma.control import Control, KeyRequest, Keys, QPInfo, QPState
from srdma.keyex.offers import Suite
from srdma.keyex.policy import secret_size

GENERATION_LEN = 8
PD_BIT = 1
NO_GROUP_KEY = bytes(48)

Spoil = Callable[[Keys], Keys]


@dataclass(frozen=True)
class End:
    """A QP, and how to reach its worker."""

    control: Control
    info: QPInfo
    identity: str = ""


@dataclass(frozen=True)
class Protection:
    """Parameters of both ends. group: policy `shared`, on legs that are open for a trust group."""

    suite: Suite
    mode: int = 0
    group: bool = False


def attach(pd: srdma.PD) -> Control:
    """A control connection that may use the PD's leg. The caller closes it."""
    control = pd.ctx.connect()
    control.attach(pd.token)
    return control


def untouched(keys: Keys) -> Keys:
    return keys


def key(
    client: End,
    server: End,
    how: Protection,
    *,
    generation: bytes = b"",
    spoil_client: Spoil = untouched,
    spoil_server: Spoil = untouched,
) -> tuple[bytes, bytes]:
    """Gives KEYS to both workers, the server's first. Then the client's worker connects.

    Returns S to the server and S to the client. They are empty if the group has a key.
    """
    generation = generation or os.urandom(GENERATION_LEN)
    size = secret_size(how.suite)
    to_server, to_client, group_key = _secrets(client, server, how, generation, size)
    both = (client, 0, server, to_server, to_client), (server, 1, client, to_client, to_server)
    made = [
        Keys(
            qpn=own.info.qpn,
            role=role,
            suite=how.suite.id,
            level=how.suite.level,
            tag_len=how.suite.tag_len,
            mode=how.mode,
            secret_len=size,
            generation=generation,
            peer_eid=peer.info.eid,
            peer_qpn=peer.info.qpn,
            peer_pn=peer.info.pn,
            peer_mtu=peer.info.mtu,
            peer_window=peer.info.window,
            peer_reads=peer.info.reads,
            peer_wire=peer.info.wire,
            peer_identity=peer.identity,
            tx_secret=tx,
            rx_secret=b"" if how.mode & PD_BIT else rx,
            group_key=group_key,
        )
        for own, role, peer, tx, rx in both
    ]
    server.control.keys(spoil_server(made[1]))
    client.control.keys(spoil_client(made[0]))
    return to_server, to_client


def _secrets(
    client: End, server: End, how: Protection, generation: bytes, size: int
) -> tuple[bytes, bytes, bytes]:
    """Returns S to the server, S to the client, and the group's key. Absent
    ones are empty or zero."""
    if not how.mode & PD_BIT:
        return os.urandom(size), os.urandom(size), NO_GROUP_KEY
    if how.group:
        return b"", b"", _ask(server, client, size, generation, group=True)[1]
    to_server, _ = _ask(server, client, size, generation)
    to_client, _ = _ask(client, server, size, generation)
    return to_server, to_client, NO_GROUP_KEY


def _ask(
    own: End, peer: End, size: int, generation: bytes, *, group: bool = False
) -> tuple[bytes, bytes]:
    secret, group_key = own.control.key(
        KeyRequest(own.info.qpn, size, generation, peer.info.eid, peer.info.qpn, group)
    )
    return bytes(secret[:size]), bytes(group_key)


def until_running(client: End, server: End, seconds: float) -> None:
    """Waits until each worker has verified a packet of the other."""
    for end in (client, server):
        state, reason = end.control.wait(end.info.qpn, seconds)
        assert state is QPState.RTS, reason
