"""Talks between programs of two GIDs (protocol.md 8.9, agent.md 13)."""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from srdma import gid as gids
from srdma.agent.channel import Channel, until_closed
from srdma.agent.dialogue import Dialogue
from srdma.agent.links import Links, check_age
from srdma.agent.meeting import Meeting
from srdma.agent.peers import Peer
from srdma.agent.settings import Identity
from srdma.keyex.fields import ExchangeError
from srdma.keyex.streams import BUSY
from srdma.keyex.talks import Talk, port_of, talk_of

WAITING_MAX, WAITING_PER_IDENTITY = 1024, 256  # talks at a port
PRIVILEGED = 1024  # the first port that any user may serve
FREE_PORTS = range(32_768, 61_000)
INBOX = 8192  # bytes of a talk that may wait: more than its SAYs have
NO_LONGER = "the talk waits no longer: its caller left, or the port is not served any more"

Own = Callable[[], Identity]


@dataclass(eq=False)
class Service:
    """A program serves a port."""

    port: int
    channel: Channel
    own: Own


@dataclass
class Waiting:
    """A talk that the program has not answered."""

    service: Service
    meeting: Meeting


class Talks:
    """All talks of an agent."""

    def __init__(
        self,
        audit: Callable[..., None],
        peer_at: Callable[[bytes], Peer],
        links: Links,
        gid: Callable[[], bytes],
    ) -> None:
        """peer_at: see Peers.at(). gid: of the worker of this agent, or gids.NONE."""
        self._audit, self._peer_at, self._links, self._gid = audit, peer_at, links, gid
        self._services: dict[int, Service] = {}
        # Random, so that a number of the agent before a restart names no other talk.
        self._numbers = itertools.count(1 + secrets.randbits(62))
        self._waiting: dict[int, Waiting] = {}
        # Of each service, and of each identity (with "") at a service: how many have no answer.
        self._counts: Counter[tuple[Service, str]] = Counter()

    async def serve(self, channel: Channel, own: Own, settings: Mapping[str, Any]) -> None:
        """Do what the first message of a channel says, until its end. Raises ExchangeError."""
        match settings:
            case {"do": "serve", "port": int(port)}:
                await self._serve(channel, own, port)
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
        service = self._services.get(talk.port)
        if talk.gid != self._gid() or service is None:
            self._refuse_absent(meeting, talk)
            return
        own = service.own()
        _check(meeting, own)
        check_age(meeting, own if own.name == meeting.own else None)
        if service.channel.unread() or not self._has_room(service, meeting.identity):
            raise ExchangeError("busy", "too many talks wait at this port: try again later")
        self._wait(service, meeting, talk)

    # Internal ---------------------------------------------------------------

    def _refuse_absent(self, meeting: Meeting, talk: Talk) -> None:
        """Nobody serves the port. A program may call one again and again."""
        text = f"no program serves port {talk.port} of {gids.text_of(talk.gid)}"
        link = meeting.stream.link
        self._audit("refused", address=link.address, code="closed", text=text)
        meeting.refuse(ExchangeError("closed", text))
        link.refused(BUSY)

    def _known_gid(self) -> bytes:
        if (gid := self._gid()) == gids.NONE:
            raise ExchangeError(
                "config",
                "a talk needs a system agent, and a worker with a GID: srdma-offload --gid ADDRESS",
            )
        return gid

    async def _serve(self, channel: Channel, own: Own, port: int) -> None:
        with self._service(channel, own, port) as service:
            channel.report("serving", port=service.port)
            await until_closed(channel)

    @contextlib.contextmanager
    def _service(self, channel: Channel, own: Own, port: int) -> Iterator[Service]:
        self._known_gid()
        port = port_of("port", port, 0) or self._free_port()
        if port in self._services:
            raise ExchangeError("taken", f"another program serves port {port}")
        if port < PRIVILEGED and channel.uid != 0:
            raise ExchangeError("policy", f"port {port}: only root may serve one below 1024")
        service = self._services[port] = Service(port, channel, own)
        try:
            yield service
        finally:
            del self._services[port]
            for number, waiting in [*self._waiting.items()]:
                if waiting.service is service:
                    self._uncount(self._remove(number))
                    waiting.meeting.refuse(ExchangeError("closed", NO_LONGER))

    def _free_port(self) -> int:
        free = [port for port in FREE_PORTS if port not in self._services]
        if not free:
            raise ExchangeError("taken", "no port is free")
        return random.choice(free)

    async def _call(self, channel: Channel, own: Own, fields: Mapping[str, Any]) -> None:
        try:
            talk = talk_of(fields)
        except ExchangeError as error:
            raise ExchangeError("config", error.text) from None
        await Dialogue(channel).call(talk, partial(self._meet, own, talk.gid))

    async def _meet(self, own: Own, gid: bytes, former: Meeting | None) -> Meeting:
        """A stream to the agent of a GID. Raises ExchangeError."""
        meeting = await self._links.meet_gid(own(), gid, self._peer_at(gid), avoid=former)
        meeting.stream.most = INBOX
        return meeting

    def _has_room(self, service: Service, identity: str) -> bool:
        return (
            self._counts[service, ""] < WAITING_MAX
            and self._counts[service, identity] < WAITING_PER_IDENTITY
        )

    def _wait(self, service: Service, meeting: Meeting, talk: Talk) -> None:
        self._audit("called", uid=service.channel.uid, identity=meeting.identity, port=service.port)
        number = next(self._numbers)
        self._waiting[number] = Waiting(service, meeting)
        self._counts.update(((service, ""), (service, meeting.identity)))
        meeting.stream.most = INBOX
        meeting.stream.watch(partial(self._heard, number))
        service.channel.report(
            "called",
            talk=number,
            identity=meeting.identity,
            gid=talk.of,
            port=talk.own,
            data=talk.data,
        )

    def _heard(self, number: int) -> None:
        """The caller has ended a talk that waits, or has sent a message before the answer."""
        waiting = self._remove(number)
        self._uncount(waiting)
        meeting = waiting.meeting
        if meeting.stream.connected():
            meeting.refuse(ExchangeError("state", "a message that came before the answer"))
        else:
            meeting.drop()
        if not meeting.stream.link.end:
            meeting.stream.link.refused("state")

    async def _answer(self, channel: Channel, own: Own, number: int) -> None:
        waiting = self._waiting.get(number)
        if waiting is None or waiting.service.channel.uid != channel.uid:
            raise ExchangeError("closed", NO_LONGER)
        self._remove(number)
        try:
            _check(waiting.meeting, own())
        except ExchangeError as error:
            self._uncount(waiting)
            waiting.meeting.refuse(error)
            raise
        await Dialogue(channel).answer(waiting.meeting, partial(self._uncount, waiting))

    def _remove(self, number: int) -> Waiting:
        """Take a talk from those that wait. It still counts."""
        waiting = self._waiting.pop(number)
        waiting.meeting.stream.watch(None)
        return waiting

    def _uncount(self, waiting: Waiting) -> None:
        for key in ((waiting.service, ""), (waiting.service, waiting.meeting.identity)):
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


def _check(meeting: Meeting, own: Identity) -> None:
    """Raise ExchangeError (`identity`) unless the peer came to this identity and may have its
    own. Of several identities with one URI the port presents any."""
    if own.credentials.identity != meeting.uri:
        raise ExchangeError("identity", f"no program serves this port as {meeting.uri}")
    own.check(meeting.identity)
