"""The NIC's end of control links (control-link.md): admits proxies, and serves their streams."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

from srdma.agent.accounts import NAME, REMOTE_NAME_MAX, User, remote_user
from srdma.agent.audit import Audit
from srdma.agent.client import message_of
from srdma.agent.clock import HostTime
from srdma.agent.entrance import Entrance, Owner
from srdma.agent.remote.entries import HostEntry
from srdma.agent.remote.link import Link, Wire
from srdma.agent.remote.relay import Relay
from srdma.agent.session import LOST
from srdma.agent.settings import Identity
from srdma.agent.tasks import cancelled
from srdma.control import Control
from srdma.errors import Error
from srdma.keyex.fields import ExchangeError, integer

LINKS_MAX = 4  # of one [[host]]
LOOK = 1.0  # seconds between two looks at the policy
UID_MAX = (1 << 32) - 2


class Rule(Protocol):
    """The policy, as far as it concerns hosts."""

    host_time: HostTime

    def control_identity(self) -> Identity: ...

    def host_named(self, identity: str) -> HostEntry | None: ...


class House(Protocol):
    """The service that streams belong to."""

    audit: Audit

    def open(self, sock: socket.socket, user: User | None = None, link: int = 0) -> None: ...

    async def restricted(self, path: Path, user: User) -> Control: ...


class Hosts(Entrance[Link]):
    """Admits proxies at the address of [control]."""

    def __init__(self, sock: socket.socket, rule: Rule, house: House) -> None:
        super().__init__(sock, lambda _: False, Owner())
        self._rule, self._house = rule, house
        self._links: dict[Link, HostEntry] = {}  # the oldest first
        self._serials = itertools.count(1)  # of links
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> NoReturn:
        """See Entrance. All links end with it."""
        looking = asyncio.ensure_future(self._look())
        try:
            await super().run()
        finally:
            for task in [looking, *self._tasks]:
                await cancelled(task)

    async def _opened(self, sock: socket.socket) -> tuple[Link, Identity]:
        own = self._rule.control_identity()
        return Link(await Wire.open(sock, "server", own.credentials)), own

    def _taken(self, link: Link, own: Identity) -> None:
        own.check(link.identity)
        host = self._rule.host_named(link.identity)
        if host is None:
            raise ExchangeError("identity", "the policy was replaced during the handshake")
        link.opened = partial(self._stream, link, host, next(self._serials))
        link.greeted = partial(self._greeted, link, host)
        link.told = partial(self._told, link, host)
        same = [each for each, of in self._links.items() if of.name == host.name]
        ending, going = [e for e in same if e.over], [e for e in same if not e.over]
        if len(ending) >= LINKS_MAX:
            ending[0].drop()
        if len(going) >= LINKS_MAX:
            going[0].stop(ExchangeError("busy", f"more than {LINKS_MAX} links of this host"))
        self._links[link] = host
        self._later(self._run(link, host))

    async def _refuse(self, address: str, link: Link, error: ExchangeError) -> None:
        self._house.audit("refused", address=address, code=error.code, text=error.text)
        await link.abort(error)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, link: Link, host: HostEntry) -> None:
        try:
            over = await link.run()
            self._house.audit("unlinked", host=host.name, code=over.code, text=over.text)
        finally:
            del self._links[link]

    def _greeted(self, link: Link, host: HostEntry) -> None:
        self._house.audit(
            "linked", host=host.name, identity=host.identity, computer=link.name,
            ahead=link.ahead,
        )  # fmt: skip

    def _told(self, link: Link, host: HostEntry) -> None:
        self._rule.host_time.told(host.name, link.epoch)

    async def _look(self) -> NoReturn:
        """End the links of hosts that the policy does not have any more."""
        while True:
            await asyncio.sleep(LOOK)
            for link, host in [*self._links.items()]:
                now = self._rule.host_named(host.identity)
                if now is None or now.name != host.name:
                    link.stop(ExchangeError("policy", "the policy has this host no more"))

    def _stream(
        self, link: Link, host: HostEntry, serial: int, number: int, fields: dict[str, Any]
    ) -> None:
        """Serve a stream. Raises ExchangeError, which ends the link, for a malformed OPEN."""
        try:
            user = remote_user(host.name, _user_there(fields))
            match fields:
                case {"to": "agent"}:
                    here, there = socket.socketpair()
                    self._house.open(there, user, serial)
                    self._accept(link, number, here, message_of({"do": LOST}))
                case {"to": "worker", "path": str(path)}:
                    self._later(self._worker(link, number, Path(path), user))
                case _:
                    raise ExchangeError("value", "OPEN is to `agent`, or to `worker` with a path")
        except KeyError as error:
            raise ExchangeError("format", f"OPEN lacks {error}") from None
        except OSError as error:
            link.refuse(number, ExchangeError("busy", f"the NIC's agent: {error.strerror}"))

    def _accept(self, link: Link, number: int, sock: socket.socket, farewell: bytes = b"") -> None:
        """farewell: see Relay."""
        relay = Relay(link, sock)
        relay.farewell = farewell
        if link.accept(number, relay):
            relay.start()
        else:
            sock.close()

    async def _worker(self, link: Link, number: int, path: Path, user: User) -> None:
        try:
            control = await self._house.restricted(path, user)
        except ExchangeError as error:
            link.refuse(number, error)
        except Error as error:
            link.refuse(number, ExchangeError("worker", str(error)))
        except OSError as error:  # no descriptors or memory
            link.refuse(number, ExchangeError("busy", f"the NIC's agent: {error.strerror}"))
        else:
            self._accept(link, number, control.detach())


def _user_there(fields: dict[str, Any]) -> User:
    """The uid or container of a program on its host. Raises ExchangeError, KeyError."""
    if "container" not in fields:
        return integer("uid", fields["uid"], 0, UID_MAX)
    name = fields["container"]
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > REMOTE_NAME_MAX:
        raise ExchangeError("value", "OPEN has a container whose name is not legal")
    if "uid" in fields:
        raise ExchangeError("value", "OPEN has a uid and a container")
    return name
