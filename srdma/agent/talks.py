"""Talks between programs of two GIDs (protocol.md 8.9, agent.md 13)."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from srdma import gid as gids
from srdma.agent.accounts import User, group
from srdma.agent.calls import Calls
from srdma.agent.channel import Channel, until_closed
from srdma.agent.dialogue import Dialogue
from srdma.agent.links import Links, check_age
from srdma.agent.meeting import Meeting
from srdma.agent.peers import Peer
from srdma.agent.places import Full, Limit, Limits, Places
from srdma.agent.ports import Own, Ports, Service
from srdma.agent.settings import Identity
from srdma.keyex.fields import ExchangeError
from srdma.keyex.streams import BUSY
from srdma.keyex.talks import Talk, name_of, port_of, port_of_qp, talk_of

# Talks at a port: all, those of an identity, and those of the peers' programs at a GID.
WAITING_MAX, WAITING_PER_IDENTITY, WAITING_PER_GID = 1024, 256, 256
WAITING_OF_IDENTITY = 4096  # at all ports of a user
INBOX = 8192  # bytes of a talk that may wait: more than its SAYs have
NO_LONGER = (
    "the talk waits no longer: its caller left, it gave way to others, or the port is not served"
)
GIVES_WAY = "this talk gives way to others: its identity or GID has the most: try again later"


@dataclass
class Waiting:
    """A talk that the program has not answered."""

    number: int
    service: Service
    meeting: Meeting
    gid: bytes  # of the caller

    @property
    def limits(self) -> Limits:
        """By the service, or the user of it, and whose talks are counted there; "": all. These come
        last: a talk that gives way under another limit frees a place of them too."""
        user = self.service.channel.uid
        identity, gid = f"identity {self.meeting.identity}", f"GID {gids.text_of(self.gid)}"
        return {
            (self.service, identity): Limit(WAITING_PER_IDENTITY, (gid,)),
            (self.service, gid): Limit(WAITING_PER_GID, (identity,)),
            (group(user) or user, identity): Limit(WAITING_OF_IDENTITY),
            (self.service, ""): Limit(WAITING_MAX, (identity, gid)),
        }


class Talks:
    """All talks of an agent."""

    def __init__(
        self,
        audit: Callable[..., None],
        peer_at: Callable[[bytes], Peer],
        links: Links,
        gid: Callable[[], bytes],
        calls: Callable[[User, Talk], Calls],
    ) -> None:
        """peer_at: see Peers.at(). gid: of the worker of this agent, or gids.NONE. calls: with
        which a talk of a user counts."""
        self._audit, self._peer_at, self._links, self._gid = audit, peer_at, links, gid
        self._ports = Ports(self._abandon)
        self._calls = calls
        # Random, so that a number of the agent before a restart names no other talk.
        self._numbers = itertools.count(1 + secrets.randbits(62))
        self._waiting: dict[int, Waiting] = {}
        self._places = Places[int]()  # of talks that have no answer

    async def serve(self, channel: Channel, own: Own, settings: Mapping[str, Any]) -> None:
        """Do what the first message of a channel says, until its end. Raises ExchangeError."""
        match settings:
            case {"do": "serve", "port": int(port)}:
                await self._serve(channel, own, port, settings.get("key", b""))
            case {"do": "serve", "qpn": int(qpn), "token": bytes(token)}:  # the caller checked it
                await self._serve_qp(channel, own, qpn, token)
            case {"do": "talk", "to": [bytes(gid), int(port)], "from": int(of), "data": data}:
                await self._call(
                    channel,
                    own,
                    {"talk": port, "from": self._known_gid(), "gid": gid, "port": of, "data": data},
                )
            case {"do": "answer", "talk": int(number)}:
                await self._answer(channel, own, number)
            case _:
                raise ExchangeError("config", "serve, talk or answer has wrong fields")

    def called(self, meeting: Meeting, talk: Talk) -> None:
        """A TALK has arrived. Raises ExchangeError if it is refused."""
        if meeting.stream.version == 1:
            raise ExchangeError("version", "a talk needs srdma/2")
        self._peer_at(talk.of).check(talk.of, meeting.identity, meeting.certificate)
        service = self._ports.at(talk.port)
        if talk.gid != self._gid() or service is None:
            raise ExchangeError(
                "closed", f"no program serves {name_of(talk.port)} of {gids.text_of(talk.gid)}"
            )
        own = service.own()
        _check(meeting, own)
        check_age(meeting, own if own.name == meeting.own else None)
        self._wait(Waiting(next(self._numbers), service, meeting, talk.of), talk)

    # Internal ---------------------------------------------------------------

    def _known_gid(self) -> bytes:
        if (gid := self._gid()) == gids.NONE:
            raise ExchangeError(
                "config",
                "a talk needs a system agent, and a worker with a GID: srdma-offload --gid ADDRESS",
            )
        return gid

    async def _serve(self, channel: Channel, own: Own, port: int, key: object) -> None:
        if not isinstance(key, bytes):
            raise ExchangeError("config", "the key of a port is a byte string")
        self._known_gid()
        with self._ports.served(channel, own, port_of("port", port, 0), key) as service:
            channel.report("serving", port=service.port)
            await until_closed(channel)

    async def _serve_qp(self, channel: Channel, own: Own, qpn: int, token: bytes) -> None:
        self._known_gid()
        with self._ports.served(channel, own, port_of_qp("qpn", qpn), token):
            channel.report("serving")
            await until_closed(channel)

    def _abandon(self, service: Service) -> None:
        """Refuse the talks that wait at a port that is not served any more."""
        for number, waiting in [*self._waiting.items()]:
            if waiting.service is service:
                self._leave(self._remove(number))
                waiting.meeting.refuse(ExchangeError("closed", NO_LONGER))

    async def _call(self, channel: Channel, own: Own, fields: Mapping[str, Any]) -> None:
        try:
            talk = talk_of(fields)
        except ExchangeError as error:
            raise ExchangeError("config", error.text) from None
        meet = partial(self._meet, channel.uid, own, talk.gid)
        await Dialogue(channel).call(talk, self._calls(channel.uid, talk), meet)

    async def _meet(self, user: User, own: Own, gid: bytes, former: Meeting | None) -> Meeting:
        """A stream to the agent of a GID. Raises ExchangeError."""
        rule = self._peer_at(gid)
        meeting = await self._links.meet_gid(own(), gid, rule, user=user, avoid=former)
        meeting.stream.most = INBOX
        return meeting

    def _wait(self, waiting: Waiting, talk: Talk) -> None:
        """Let a talk wait for its answer. Raises ExchangeError (`busy`)."""
        service, meeting = waiting.service, waiting.meeting
        if service.channel.unread():
            raise ExchangeError("busy", f"the program at {name_of(service.port)} does not read")
        self._make_room(waiting)
        self._audit("called", uid=service.channel.uid, identity=meeting.identity, port=service.port)
        self._waiting[waiting.number] = waiting
        self._places.add(waiting.number, waiting.limits)
        meeting.stream.most = INBOX
        meeting.stream.watch(partial(self._heard, waiting.number))
        service.channel.report(
            "called",
            talk=waiting.number,
            identity=meeting.identity,
            gid=talk.of,
            port=talk.own,
            data=talk.data,
        )

    def _make_room(self, waiting: Waiting) -> None:
        """Refuse the talks that give way to a new one. Raises ExchangeError (`busy`)."""
        try:
            gone = self._places.make_room(waiting.limits)
        except Full as full:
            raise ExchangeError("busy", _full(waiting, full.at)) from None
        for number in gone:
            former, error = self._remove(number), ExchangeError("busy", GIVES_WAY)
            self._leave(former)
            address = former.meeting.stream.link.address
            self._audit("refused", address=address, code=error.code, text=error.text)
            former.meeting.refuse(error)

    def _heard(self, number: int) -> None:
        """The caller has ended a talk that waits, or has sent a message before the answer."""
        waiting = self._remove(number)
        self._leave(waiting)
        meeting = waiting.meeting
        if meeting.stream.connected():
            meeting.refuse(ExchangeError("state", "a message that came before the answer"))
        else:
            meeting.drop()
        if not meeting.stream.link.end:
            meeting.stream.link.refused(BUSY)

    async def _answer(self, channel: Channel, own: Own, number: int) -> None:
        waiting = self._waiting.get(number)
        if waiting is None or waiting.service.channel.uid != channel.uid:
            raise ExchangeError("closed", NO_LONGER)
        self._remove(number)
        try:
            _check(waiting.meeting, own())
        except ExchangeError as error:
            self._leave(waiting)
            waiting.meeting.refuse(error)
            raise
        self._places.fix(number, waiting.limits)
        await Dialogue(channel).answer(waiting.meeting, partial(self._leave, waiting))

    def _remove(self, number: int) -> Waiting:
        """Take a talk from those that wait for a program. It has its places until _leave()."""
        waiting = self._waiting.pop(number)
        waiting.meeting.stream.watch(None)
        return waiting

    def _leave(self, waiting: Waiting) -> None:
        self._places.remove(waiting.number, waiting.limits)


def _full(waiting: Waiting, at: object) -> str:
    """Why a talk gets no place. at: a key of its limits."""
    assert isinstance(at, tuple)
    of = f" of {at[1]}" if at[1] else ""
    where = name_of(waiting.service.port) if at[0] is waiting.service else "the ports of this user"
    return f"{waiting.limits[at].most} talks{of} wait at {where} already: try again later"


def _check(meeting: Meeting, own: Identity) -> None:
    """Raise ExchangeError (`identity`) unless the peer came to this identity and may have its
    own. Of several identities with one URI the port presents any."""
    if own.credentials.identity != meeting.uri:
        raise ExchangeError("identity", f"no program serves this port as {meeting.uri}")
    own.check(meeting.identity)
