"""A program's use of a multicast group: its agent asks those of the group's hosts for the members
(agent.md 14)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import NoReturn

from srdma import gid as gids
from srdma.agent import repeat
from srdma.agent.calls import Callers
from srdma.agent.channel import Channel, until_closed
from srdma.agent.links import AGE_MAX, Links
from srdma.agent.meeting import Meeting
from srdma.agent.memberships import Memberships, Use
from srdma.agent.peers import Peer
from srdma.keyex.exchange import printable
from srdma.keyex.fields import ExchangeError
from srdma.keyex.groups import Ask, Members
from srdma.keyex.messages import ErrorMessage, decode, encode
from srdma.keyex.pace import Pace
from srdma.keyex.streams import CLOSED
from srdma.keyex.tls import PeerClosed

ROUND = 5.0  # seconds for the first answers of all hosts
AGAIN = 0.1  # seconds before a host is asked again, at first
HEARD = 128, 0.05  # MEMBERS of a peer at once, and seconds for one more in the long run
INBOX = 65_536  # bytes of MEMBERS that may wait


class Multicast:
    """The uses of groups by all programs of an agent."""

    def __init__(
        self,
        memberships: Memberships,
        peer_at: Callable[[bytes], Peer],
        links: Links,
        gid: Callable[[], bytes],
        callers: Callers,
    ) -> None:
        """See Memberships, and Talks."""
        self._memberships, self._peer_at, self._links = memberships, peer_at, links
        self._gid, self._callers = gid, callers

    async def run(self, use: Use, worker_ended: asyncio.Future[None]) -> None:
        """Serve the channel of a use until its end. Raises ExchangeError."""
        if self._gid() == gids.NONE:
            raise ExchangeError(
                "config", "multicast needs a worker with a GID: srdma-offload --gid ADDRESS"
            )
        with self._memberships.used(use):
            views = [_View(use, self._gid(), host) for host in use.entry.hosts]
            works = [self._follow(view) for view in views]
            ends = [_over(use), _worker_over(worker_ended)]
            await until_closed(use.channel, _report_joined(use.channel, views), *ends, *works)

    # Internal ---------------------------------------------------------------

    async def _follow(self, view: _View) -> NoReturn:
        """Ask a host until the use ends. Its members are forgotten with the stream, unless this end
        asks again because the connection is too old."""
        pauses = repeat.Pauses()
        former: Meeting | None = None
        while True:
            try:
                await self._ask(view, former)
                pauses, former = repeat.Pauses(), None
                continue
            except _Refused as refused:
                first, former = former is None, refused.meeting
                if first:
                    continue
            except (ExchangeError, PeerClosed):
                former = None
            view.learned(())
            await asyncio.sleep(pauses.drawn(AGAIN))

    async def _ask(self, view: _View, former: Meeting | None) -> None:
        """Ask once, and report what the host says, until its connection is too old. Raises
        ExchangeError, PeerClosed, _Refused."""
        use = view.use
        begun = await self._callers.of(use.channel.uid).begin()
        failed = True
        try:
            meeting = await self._links.meet_gid(
                use.own(), view.gid, self._peer_at(view.gid), user=use.channel.uid, avoid=former
            )
            try:
                meeting.stream.most = INBOX
                meeting.stream.send(encode(Ask(use.group, view.own_gid, view.gid)))
                await _hear(meeting, view)
                failed = False
                begun.end(failed=False)
                await _hear_all(meeting, view)
            finally:
                await meeting.stream.close()
        finally:
            begun.end(failed=failed)


class _Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The connection of a meeting is too old for the peer."""

    def __init__(self, meeting: Meeting) -> None:
        super().__init__()
        self.meeting = meeting


class _View:
    """The members at a host, as far as a program knows them."""

    def __init__(self, use: Use, own_gid: bytes, gid: bytes) -> None:
        self.use, self.own_gid, self.gid = use, own_gid, gid
        # Done after the first answer, or the first failure.
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pace = Pace(*HEARD)
        self._qpns: tuple[int, ...] = ()

    def learned(self, qpns: tuple[int, ...]) -> None:
        """The host has these members."""
        if qpns != self._qpns:
            self._qpns = qpns
            data = b"".join(qpn.to_bytes(4, "big") for qpn in qpns)
            self.use.channel.report("members", gid=self.gid, data=data)
        if not self.first.done():
            self.first.set_result(None)


async def _hear(meeting: Meeting, view: _View) -> None:
    """The next message of a host. Raises ExchangeError, PeerClosed, _Refused."""
    message = await meeting.stream.message()
    if message == CLOSED:
        raise PeerClosed
    match decode(message):
        case Members(qpns):
            if not view.pace.take(time.monotonic()):
                raise ExchangeError("rate", "too many MEMBERS")
            view.learned(qpns)
        case ErrorMessage("stale"):
            raise _Refused(meeting)
        case ErrorMessage(code, text):
            raise ExchangeError(printable(code), printable(text), from_peer=True)
        case _:
            raise ExchangeError("state", "a stream of ASK has MEMBERS and ERROR only")


async def _hear_all(meeting: Meeting, view: _View) -> None:
    """Hear a host until its connection is too old for a new question. Raises as _hear()."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(AGE_MAX - meeting.stream.link.age, 0)):
            while True:
                await _hear(meeting, view)


async def _report_joined(channel: Channel, views: list[_View]) -> NoReturn:
    """Report once that the hosts have answered, or have had the time to."""
    await asyncio.wait([view.first for view in views], timeout=ROUND)
    channel.report("joined")
    await asyncio.Event().wait()
    raise AssertionError("nothing sets the event")


async def _over(use: Use) -> NoReturn:
    raise await use.over


async def _worker_over(ended: asyncio.Future[None]) -> NoReturn:
    await asyncio.wait([ended])
    raise ExchangeError("worker", "the worker ended")
