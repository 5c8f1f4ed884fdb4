"""The TLS connections of an agent, which its sessions share (protocol.md 8.7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from srdma.agent.accounts import User, group
from srdma.agent.dial import dial
from srdma.agent.heap import trim
from srdma.agent.meeting import Address, Meeting
from srdma.agent.names import Names
from srdma.agent.peers import Peer
from srdma.agent.settings import Identity
from srdma.agent.tasks import cancelled
from srdma.identity import Credentials
from srdma.keyex.fields import ExchangeError
from srdma.keyex.streams import Idle, Link, Stream
from srdma.keyex.tls import Outer

AGE_MAX = 3600.0  # seconds since the handshake, for an OFFER
STALE = "stale"  # code of an error
AGE_HERE = AGE_MAX + 600  # the same for the OFFER of a peer
KEPT = 256  # connections that are not closed for idleness
OPEN_MAX = 512  # connections above which the longest idle ones are closed before IDLE
IDLE = 60.0  # seconds without a message
JOINED = 5.0  # seconds of an attempt to connect, after which no further session waits for it
UNUSED = 5.0  # seconds without a stream, after which the end that connected closes
UNUSED_HERE = 10.0  # the same at the other end
PER_IDENTITY = 1024  # accepted connections of one identity
SILENCE = 60.0  # seconds without an acknowledgement, after which a connection is given up
SWEEP = 1.0  # seconds between two looks at the connections
LOOK = 15.0  # seconds between two looks at the acknowledgements of a connection
TRIM_AFTER, TRIM_EVERY = 100, 10.0  # closed connections, and seconds, between two calls of trim()

Opened = Callable[[Identity, Stream, bytes | None], None]
# Name and credentials of the own identity, address of the peer, its identity or "".
Key = tuple[str, Credentials, Address, str]


@dataclass
class Attempt:
    """A connection under way, and the number of sessions that wait for it."""

    task: asyncio.Task[Link]
    waiting: int = 0
    begun_at: float = field(default_factory=time.monotonic)

    @property
    def joinable(self) -> bool:
        """False for one that may hang: sessions that wait long must not make the others wait."""
        return time.monotonic() - self.begun_at < JOINED


class Links:
    """See the description of the module."""

    def __init__(self, opened: Opened, port: Address | None = None) -> None:
        """opened: takes the streams that peers open in connections that this end made.

        port: where this agent listens for peers, if it does.
        """
        self._opened, self._port = opened, port
        self._links: dict[Link, list[Key]] = {}  # the oldest first
        self._found: dict[Key, Link] = {}  # where new streams are opened
        self._names = Names()
        self._attempts: dict[tuple[Key, User], Attempt] = {}
        self._accepted: dict[str, dict[Link, None]] = {}  # by identity of the peer
        self._sweeper: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = 0  # connections since the last trim()
        self._trimmed_at = float("-inf")

    def port_of(self, outer: Outer) -> int:
        """TCP port of this agent at the local address of a connection, for HELLO; 0: there it has
        none."""
        if self._port is None:
            return 0
        host, port = self._port
        own = outer.local()
        return port if host in (own, "::") or (host == "0.0.0.0" and ":" not in own) else 0

    async def meet(
        self,
        own: Identity,
        address: Address,
        expected: str = "",
        *,
        user: User,
        avoid: Meeting | None = None,
    ) -> Meeting:
        """Open a stream to the agent at an address.

        expected: the identity of the peer, if there is only one right one. user: who waits for the
        connection. avoid: in another connection than that one. Raises ExchangeError, PeerClosed:
        no connection, or the peer is not one of `own`.
        """
        key = own.name, own.credentials, address, expected
        self._avoid(key, avoid)
        meeting = Meeting("client", (await self._link(own, key, user)).open(), own)
        try:
            own.check(meeting.identity)
        except ExchangeError as error:
            await meeting.fail(error)
            raise
        return meeting

    async def meet_gid(
        self, own: Identity, gid: bytes, rule: Peer, *, user: User, avoid: Meeting | None = None
    ) -> Meeting:
        """Open a stream to the agent of a GID, which must be a peer of this GID by its `rule`.

        Raises as meet(), and ExchangeError (`version`): the peer has no srdma/2.
        """
        address = rule.agent_of(gid)
        meeting = await self.meet(own, address, rule.expected, user=user, avoid=avoid)
        try:
            if meeting.stream.version == 1:
                raise ExchangeError(
                    "version", "a peer that is named by its GID needs srdma/2 at both agents"
                )
            rule.check(gid, meeting.identity, meeting.certificate)
        except ExchangeError as error:
            await meeting.fail(error)
            raise
        return meeting

    async def check_groups(
        self, own: Identity, gid: bytes, rule: Peer, *, user: User, avoid: Meeting | None = None
    ) -> None:
        """Raise ExchangeError (`version`) if the agent of a GID does not know ASK, and as meet().
        The next stream is opened in the same connection."""
        key = own.name, own.credentials, rule.agent_of(gid), rule.expected
        self._avoid(key, avoid)
        link = await self._link(own, key, user)
        if link.version > 1:  # else meet_gid() refuses it
            await link.hello()
            if link.end:
                raise link.end
            if not link.groups:
                raise ExchangeError("version", "the agent of the peer knows no multicast groups")

    def accepted(self, link: Link, own: Identity) -> None:
        """Keep a connection that a peer made. Raises ExchangeError (`busy`) if it has too many."""
        if link.version > 1:
            others = self._accepted.setdefault(link.identity, {})
            if len(others) >= PER_IDENTITY:
                unused = next((other for other in others if not other.streams), None)
                if unused is None:
                    raise ExchangeError("busy", f"more than {PER_IDENTITY} connections of this end")
                self._close(unused)
            others[link] = None
        link.greeted = lambda: self._greeted(link, own.name)
        self._add(link)

    async def close(self, *, restart: bool = False) -> None:
        """Close all connections. restart: without close_notify."""
        for attempt in [*self._attempts.values()]:
            await cancelled(attempt.task)
        if self._sweeper:
            await cancelled(self._sweeper)
        for link in [*self._links]:
            if restart:
                link.drop()
            else:
                self._close(link)
        if self._closing:
            await asyncio.wait(self._closing)

    # Internal ---------------------------------------------------------------

    async def _link(self, own: Identity, key: Key, user: User) -> Link:
        """A connection in which a stream can be opened. Each user makes attempts of its own: those
        of another one may wait for their look-up of the same name."""
        asked = key, group(user) or user
        while True:
            link = self._found.get(key)
            if link and _usable(link):
                return link
            attempt = self._attempts.get(asked)
            if attempt is None or not attempt.joinable:
                attempt = Attempt(asyncio.ensure_future(self._connect(own, *asked)))
                self._attempts[asked] = attempt
            attempt.waiting += 1
            try:
                link = await asyncio.shield(attempt.task)
            finally:
                attempt.waiting -= 1
                if not attempt.waiting and not attempt.task.done():
                    if self._attempts.get(asked) is attempt:
                        del self._attempts[asked]  # no session may wait for it from now on
                    await cancelled(attempt.task)
            if link.has_room:  # one of srdma/1 serves the first session only
                return link

    async def _connect(self, own: Identity, key: Key, user: User) -> Link:
        name, credentials, address, expected = key
        try:
            own.clock.check(credentials)
            source = self._port[0] if self._port else ""
            sock = await dial(*address, source, partial(self._names.addresses, user))
            outer = await Outer.open(sock, "client", credentials, expected=expected)
            link = Link(outer, "client", self.port_of(outer))
            try:
                await link.handshake()
            except BaseException:
                link.drop()
                raise
        finally:
            current = self._attempts.get((key, user))
            if current and current.task is asyncio.current_task():
                del self._attempts[key, user]
        link.greeted = lambda: self._greeted(link, name)
        link.start(lambda stream, first: self._opened(own, stream, first))
        self._add(link)
        self._find(link, (name, credentials, address, ""))
        self._find(link, (name, credentials, address, link.identity))
        return link

    def _greeted(self, link: Link, name: str) -> None:
        """The peer told the port of its agent."""
        if link.agent:
            address = link.outer.address(), link.agent
            self._find(link, (name, link.outer.credentials, address, link.identity))

    def _find(self, link: Link, key: Key) -> None:
        """Open new streams for `key` in this connection, unless another one precedes it."""
        if link not in self._links or link.end:
            return
        other = self._found.get(key)
        if other and _usable(other) and other.maker < link.maker:
            return
        self._lose(key)
        self._found[key] = link
        self._links[link].append(key)

    def _avoid(self, key: Key, former: Meeting | None) -> None:
        """Open the next stream for `key` in another connection than that of a former meeting."""
        if former and self._found.get(key) is former.stream.link:
            self._lose(key)

    def _lose(self, key: Key) -> None:
        """Open no new stream for `key` in the connection that serves it."""
        if former := self._found.pop(key, None):
            self._links[former].remove(key)

    def _add(self, link: Link) -> None:
        self._links[link] = []
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.ensure_future(self._sweep())

    async def _sweep(self) -> None:
        """Close idle connections, until there is none left."""
        while self._links:
            await asyncio.sleep(SWEEP)
            now = time.monotonic()
            for link in [*self._links]:
                if link.end:
                    self._remove(link)
                elif link.version > 1 and link.stuck(now):
                    link.drop()
                elif link.version > 1 and now - link.used_at > self._allowed(link):
                    self._close(link)
                elif now >= link.look_at:
                    link.look_at = now + LOOK
                    self._look(link)
            self._close_above(OPEN_MAX)
            self._trim(now)

    def _allowed(self, link: Link) -> float:
        """Seconds that a connection may be idle."""
        if not link.streams:
            return UNUSED if link.role == "client" else UNUSED_HERE
        return IDLE if len(self._links) > KEPT and self._may_part(link) else float("inf")

    def _may_part(self, link: Link) -> bool:
        """True if this end may close a connection that its sessions use (protocol.md 8.7)."""
        mine = link.role == "client" and link.port != 0 and link.version > 1
        return mine and link.agent != 0 and link.parks()

    def _close_above(self, most: int) -> None:
        """Close idle connections until `most` are left, the longest idle first."""
        if (above := len(self._links) - most) <= 0:
            return
        for link in sorted(self._links, key=lambda link: link.used_at):
            if above and link.streams and not link.end and self._may_part(link):
                self._close(link)
                above -= 1

    def _look(self, link: Link) -> None:
        """Give a connection up whose peer has acknowledged nothing for SILENCE seconds: a firewall
        may have forgotten it."""
        if link.replaceable and not link.outer.reachable(SILENCE):
            link.drop(f"no acknowledgement in {SILENCE:g} s")

    def _trim(self, now: float) -> None:
        """Return the memory of closed connections to the system, of which TLS takes the most."""
        if self._closed >= TRIM_AFTER and now - self._trimmed_at >= TRIM_EVERY:
            self._closed, self._trimmed_at = 0, now
            trim()

    def _close(self, link: Link) -> None:
        self._remove(link)
        task = asyncio.ensure_future(link.close(Idle("it was idle")))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _remove(self, link: Link) -> None:
        self._closed += 1
        for key in self._links.pop(link, []):
            self._found.pop(key, None)
        others = self._accepted.get(link.identity, {})
        others.pop(link, None)
        if not others:
            self._accepted.pop(link.identity, None)


def check_age(meeting: Meeting, own: Identity | None) -> None:
    """Raise ExchangeError (STALE) unless the connection of a peer is fit for a first exchange: it
    is young, and has the credentials of `own`, if that is given."""
    link = meeting.stream.link
    if link.age > AGE_HERE or (own and link.outer.credentials != own.credentials):
        raise ExchangeError(STALE, "the connection is too old for a key exchange")


def _usable(link: Link) -> bool:
    return link.has_room and link.age < AGE_MAX and link.outer.reachable()
