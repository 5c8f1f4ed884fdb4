"""Admission of peers to a listener (agent.md 3).

An *arrival* is an authorised peer that waits until the program accepts it. Before that it is a
candidate (entrance.py).
"""

from __future__ import annotations

import itertools
import secrets
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, Protocol

from srdma.agent.accounts import User, group
from srdma.agent.calls import OF_MEMBERS, UNANSWERED, Callers, Calls
from srdma.agent.entrance import Entrance, Owner
from srdma.agent.groups import Group
from srdma.agent.links import Links, check_age
from srdma.agent.meeting import Address, Meeting, encoded
from srdma.agent.memberships import Memberships
from srdma.agent.multicast import Multicast
from srdma.agent.peers import Peer
from srdma.agent.places import Full, Limit, Limits, Places
from srdma.agent.rendezvous import Rendezvous
from srdma.agent.sessions import Sessions
from srdma.agent.settings import Identity
from srdma.agent.subscriptions import Subscriptions
from srdma.agent.talks import Talks
from srdma.keyex.fields import ExchangeError
from srdma.keyex.groups import Ask
from srdma.keyex.messages import ErrorMessage, Message, Offer, Resume, Wake
from srdma.keyex.offers import To
from srdma.keyex.streams import BUSY, INBOX_MAX, Link, Stream
from srdma.keyex.talks import Talk
from srdma.keyex.tls import Outer

ARRIVALS_MAX, ARRIVALS_PER_IDENTITY = 1024, 256  # at a listener
ARRIVALS_OF_IDENTITY = 4096  # at all listeners of a user
LOOK_EVERY = 0.1  # seconds between two looks at whether the peers that wait have closed
WAITING_MAX = 70_000  # bytes that may arrive in the stream of a peer that waits for accept()
REFUSALS_EVERY = 1.0  # seconds between two reports of refused peers
BUSY_TEXT = "too many peers wait for accept() here: try again later"
NO_LISTENER = "no program accepts connections here"
NO_LONGER = "the peer waits no longer: it closed, the listener did, or it gave way to others"
GIVES_WAY = (
    "this peer gives its place up, because its identity has the most of them: try again later"
)


class Reports(Protocol):
    """A channel, as far as a listener uses it."""

    uid: User

    def report(self, event: str, **fields: Any) -> None: ...

    def unread(self) -> int: ...


class Arrivals:
    """Authorised peers of all listeners, by number."""

    def __init__(self) -> None:
        # Random, so that a number of the agent before a restart names no other peer.
        self._numbers = itertools.count(1 + secrets.randbits(62))
        self._waiting: dict[int, tuple[Listener, Meeting]] = {}
        self._places = Places[int]()
        self._looked_at = -LOOK_EVERY

    def add(self, listener: Listener, meeting: Meeting) -> int:
        """Keep a peer until take(), or until it closes."""
        number = next(self._numbers)
        self._waiting[number] = listener, meeting
        self._places.add(number, _limits(listener, meeting))
        if meeting.awaited:
            meeting.stream.watch(partial(self._heard, number))
        return number

    def take(self, number: object, uid: User) -> Meeting:
        """Remove one of a listener of this user. Raises ExchangeError (`closed`) without one, and
        if it closed after its OFFER."""
        if (
            not isinstance(number, int)
            or number not in self._waiting
            or self._waiting[number][0].uid != uid
        ):
            raise ExchangeError("closed", NO_LONGER)
        meeting = self._pop(number)
        meeting.stream.watch(None)
        meeting.stream.most = INBOX_MAX
        if isinstance(meeting.opening(), Offer) and not meeting.stream.connected():
            meeting.drop()
            raise ExchangeError("closed", NO_LONGER)
        return meeting

    def make_room(self, listener: Listener, meeting: Meeting) -> None:
        """Refuse the peers that give way to a new one. Raises ExchangeError (`busy`).

        Peers that closed after their first message are dropped before, once there are too many: a
        look at each of them takes some time.
        """
        limits = _limits(listener, meeting)
        if any(self._places.count(key) >= limit.most for key, limit in limits.items()):
            self._look()
        try:
            gone = self._places.make_room(limits)
        except Full:
            raise ExchangeError("busy", BUSY_TEXT) from None
        for number in gone:  # peers of this listener: only its own limit has holders
            former, error = self._pop(number), ExchangeError("busy", GIVES_WAY)
            listener.refused(former.stream.link.address, error)
            former.refuse(error)

    def _look(self) -> None:
        """Drop the peers that closed."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        for number, (_, waiting) in [*self._waiting.items()]:
            if not waiting.stream.connected():
                self._pop(number).drop()

    def close(self, listener: Listener) -> None:
        """The listener ended: refuse its peers."""
        for number, (of, meeting) in [*self._waiting.items()]:
            if of is listener:
                self._pop(number)
                meeting.refuse(ExchangeError("closed", NO_LISTENER))

    def _heard(self, number: int) -> None:
        """The peer sent a message, which take() serves if it is malformed too, or closed."""
        if number in self._waiting and self._waiting[number][1].stream.gone:
            self._pop(number).drop()

    def _pop(self, number: int) -> Meeting:
        listener, meeting = self._waiting.pop(number)
        self._places.remove(number, _limits(listener, meeting))
        return meeting


def _limits(listener: Listener, meeting: Meeting) -> Limits:
    """By the listener, or the user of it, and whose peers are counted there; "": all."""
    identity = meeting.identity
    return {
        (listener, ""): Limit(ARRIVALS_MAX, (identity,)),
        (listener, identity): Limit(ARRIVALS_PER_IDENTITY),
        (group(listener.uid) or listener.uid, identity): Limit(ARRIVALS_OF_IDENTITY),
    }


class Admission:
    """The streams that peers open, at listeners and in connections that this end made, and the
    connections themselves."""

    def __init__(
        self,
        audit: Callable[..., None],
        peer_at: Callable[[bytes], Peer],
        group_at: Callable[[bytes], Group],
        port: Address | None = None,
    ) -> None:
        """peer_at: see Peers.at(); group_at: see Groups.at(); port: see Links."""
        self.audit = audit
        self.rendezvous = Rendezvous(audit, peer_at)
        self.arrivals, self.sessions = Arrivals(), Sessions()
        self.links = Links(partial(self.opened, None), port)
        self.callers, self.member_callers = Callers(UNANSWERED), Callers(OF_MEMBERS)
        self.talks = Talks(audit, peer_at, self.links, self._gid, self._calls_of)
        self.memberships = Memberships(audit, peer_at, group_at, self._gid)
        self.subscriptions = Subscriptions(audit, peer_at, self.links, self._gid)
        self.multicast = Multicast(self.memberships, self.subscriptions)
        self._owners: dict[User, Owner] = {}  # the policy names all of them

    def _gid(self) -> bytes:
        return self.rendezvous.gid

    def know(self, gid: bytes) -> None:
        """See Rendezvous.know()."""
        self.rendezvous.know(gid)
        self.memberships.know(gid)

    def policy_changed(self) -> None:
        """Check the uses of groups, and the agents that tell or learn members, again."""
        self.memberships.policy_changed()
        self.subscriptions.policy_changed()

    def _calls_of(self, user: User, talk: Talk) -> Calls:
        """The calls with which a talk of a user counts."""
        member = self.subscriptions.have(talk.gid, talk.port)
        return (self.member_callers if member else self.callers).of(user)

    def owner(self, user: User) -> Owner:
        """The user, also if all its listeners have ended. One owner stands for all users of
        another computer, which can name any number of them."""
        return self._owners.setdefault(group(user) or user, Owner())

    def opened(
        self, listener: Listener | None, own: Identity, stream: Stream, first: bytes | None
    ) -> None:
        """Take a stream and its first message: RESUME and WAKE go to their session, an OFFER waits
        for accept(), or for a call if it names a QP, TALK waits for an answer, and ASK gets one."""
        meeting = Meeting("server", stream, own, first)
        opening: Message | None = None
        try:
            match opening := meeting.opening():
                case Resume() as resume:
                    self.sessions.resume(meeting, resume)
                case Wake(transcript):
                    self.sessions.wake(meeting, transcript)
                case Offer(to=To() as to) as offer if stream.version > 1:
                    self.rendezvous.offered(meeting, offer, to)
                case Talk() as talk:
                    self.talks.called(meeting, talk)
                case Ask() as ask:
                    self.memberships.asked(meeting, ask)
                case Offer() | ErrorMessage() | None:  # accept() reports the peer's error
                    if listener is None:
                        raise ExchangeError("closed", NO_LISTENER)
                    listener.arrived(meeting)
                case _:
                    raise ExchangeError(
                        "state",
                        "the first message of a stream must be OFFER, RESUME, WAKE, TALK or ASK",
                    )
        except ExchangeError as error:
            if listener and not isinstance(opening, Talk | Ask):
                listener.refused(stream.link.address, error)
            else:
                self.audit("refused", address=stream.link.address, code=error.code, text=error.text)
            meeting.refuse(error)
            if stream.version > 1:
                by_program = isinstance(opening, Offer | Talk | Ask)  # not by the peer's agent
                stream.link.refused(BUSY if by_program else error.code)


class Listener(Entrance[Link]):
    """Admits the peers of one listening socket."""

    def __init__(
        self,
        channel: Reports,
        sock: socket.socket,
        own: Callable[[], Identity],
        admission: Admission,
    ) -> None:
        """own: called for each handshake."""
        super().__init__(sock, admission.sessions.know, admission.owner(channel.uid))
        self._channel, self._own = channel, own
        self._admission, self._audit = admission, admission.audit
        self._refused_at = -REFUSALS_EVERY

    @property
    def uid(self) -> User:
        """User of the program."""
        return self._channel.uid

    async def run(self) -> NoReturn:
        """See Entrance. The peers that wait for accept() are refused at the end."""
        try:
            await super().run()
        finally:
            self._admission.arrivals.close(self)

    async def _opened(self, sock: socket.socket) -> tuple[Link, Identity]:
        own = self._own()
        outer = await self._outer(sock, own)
        return Link(outer, "server", self._admission.links.port_of(outer)), own

    def _taken(self, link: Link, own: Identity) -> None:
        own = self._identity(link, own)
        own.check(link.identity)
        self._admission.links.accepted(link, own)
        link.start(partial(self._admission.opened, self, own))

    async def _refuse(self, address: str, link: Link, error: ExchangeError) -> None:
        self.refused(address, error)
        await link.abort(encoded(error))

    async def _outer(self, sock: socket.socket, own: Identity) -> Outer:
        return await Outer.open(sock, "server", own.credentials)

    def _identity(self, link: Link, own: Identity) -> Identity:
        """The identity to which the peer of a link came."""
        return own

    def arrived(self, meeting: Meeting) -> None:
        """An authorised peer waits for accept(). Raises ExchangeError if it must not."""
        check_age(meeting, self._own())
        if self._closed:
            raise ExchangeError("closed", NO_LISTENER)
        if self._channel.unread():
            raise ExchangeError("busy", BUSY_TEXT)
        self._admission.arrivals.make_room(self, meeting)
        self._audit("admitted", address=meeting.stream.link.address, identity=meeting.identity)
        meeting.stream.most = WAITING_MAX
        number = self._admission.arrivals.add(self, meeting)
        self._channel.report("arrived", arrival=number, identity=meeting.identity)

    def refused(self, address: str, error: ExchangeError) -> None:
        self._audit("refused", address=address, code=error.code, text=error.text)
        now = time.monotonic()
        if now - self._refused_at >= REFUSALS_EVERY and not self._channel.unread():
            self._refused_at = now
            self._channel.report("refused", address=address, code=error.code, text=error.text)
