"""The rights of programs, as a service uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from srdma.agent.accounts import User
from srdma.agent.groups import Group
from srdma.agent.peers import Peer
from srdma.agent.remote.entries import HostEntry
from srdma.agent.settings import Identity
from srdma.control import Limits


class Rule(Protocol):
    """policy.Private or policy.Policy. Raises ExchangeError."""

    @property
    def worker_user(self) -> int | None: ...

    @property
    def worker_remote(self) -> bool: ...

    def current(self, settings: Mapping[str, Any], user: User) -> Callable[[], Identity]: ...

    def worker_at(self, path: Path) -> Path: ...

    def check_user(self, user: User) -> None: ...

    def limits(self, user: User) -> Limits: ...

    def peer_at(self, gid: bytes) -> Peer: ...

    def group_at(self, gid: bytes) -> Group: ...

    def host_at(self, user: User) -> HostEntry: ...
