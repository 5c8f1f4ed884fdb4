"""The services that the sessions of an agent share."""

from __future__ import annotations

from typing import Protocol

from srdma.agent.calls import Callers
from srdma.agent.peers import Peer
from srdma.agent.record import Record
from srdma.agent.rendezvous import Rendezvous
from srdma.agent.upkeep import House as Shared
from srdma.agent.worker import Worker


class House(Shared, Protocol):
    """The part of Service that a Session uses."""

    rendezvous: Rendezvous
    callers: Callers

    @property
    def worker_remote(self) -> bool:
        """True if the worker is on another computer: after the end of its connections, the agent
        takes the sessions over (control-link.md 7)."""

    def peer_at(self, gid: bytes) -> Peer:
        """See Peers.at()."""

    def audit(self, event: str, **fields: object) -> None: ...

    def keep(self, record: Record, worker: Worker) -> None:
        """Let the worker keep a session for an agent that restarts."""
