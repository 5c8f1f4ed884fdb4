"""Rendezvous: programs at two agents connect QPs that they know by (GID, QPN) (protocol.md 8.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from srdma import gid as gids
from srdma.agent.links import STALE, check_age
from srdma.agent.meeting import Meeting
from srdma.agent.peers import Peer
from srdma.agent.places import Full, Limit, Limits, Places
from srdma.agent.settings import Identity
from srdma.gid import QPName
from srdma.keyex.exchange import Role
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import Offer
from srdma.keyex.offers import END_RANGES, To
from srdma.keyex.streams import BUSY

QPN_LEAST, QPN_MOST = END_RANGES["qpn"]
OFFERS_MAX, OFFERS_PER_IDENTITY = 4096, 1024
BUSY_TEXT = "too many OFFERs wait for programs here: try again later"


Key = tuple[To, int]  # `to` of the OFFER, and QPN of the client


@dataclass(frozen=True)
class Call:
    """A program connects its QP `own` with the QP `peer`."""

    own: QPName
    peer: QPName

    @classmethod
    def of(cls, own: QPName, peer: QPName) -> Call:
        """Raises ExchangeError (`config`)."""
        if own.gid == gids.NONE:
            raise ExchangeError(
                "config", "the worker has no GID: start srdma-offload with --gid ADDRESS"
            )
        if not QPN_LEAST <= peer.qpn <= QPN_MOST:
            raise ExchangeError(
                "config", f"QPN {peer.qpn} of the peer: it must be {QPN_LEAST} to {QPN_MOST}"
            )
        if own == peer:
            raise ExchangeError("config", "a QP cannot be connected with itself")
        return cls(own, peer)

    @property
    def role(self) -> Role:
        """The lower (QPN, GID) is the client."""
        client = (self.own.qpn, self.own.gid) < (self.peer.qpn, self.peer.gid)
        return "client" if client else "server"

    @property
    def to(self) -> To:
        """The field of the client's OFFER."""
        ends = (self.own, self.peer) if self.role == "client" else (self.peer, self.own)
        return To(ends[0].gid, *ends[1])

    @property
    def key(self) -> Key:
        return self.to, min(self.own.qpn, self.peer.qpn)


class Rendezvous:
    """The calls of programs and the OFFERs of peers that wait for each other, at the server.

    gid: of the worker of this agent, NONE as long as it is unknown.
    """

    def __init__(self, audit: Callable[..., None], peer_at: Callable[[bytes], Peer]) -> None:
        """peer_at: see Peers.at()."""
        self.gid = gids.NONE
        self._audit = audit
        self._peer_at = peer_at
        self._calls: dict[Key, asyncio.Future[Meeting]] = {}
        self._offers: dict[Key, Meeting] = {}  # the oldest first
        self._places = Places[Key]()

    def know(self, gid: bytes) -> None:
        """The GID of the worker of this agent; NONE while there is no worker."""
        if gid not in (gids.NONE, self.gid):
            for key in [*self._offers]:
                if key[0].gid != gid:
                    self._remove(key).refuse(_closed(gid))
        self.gid = gid

    def offered(self, meeting: Meeting, offer: Offer, to: To) -> None:
        """An OFFER with `to` has arrived. Raises ExchangeError if it is refused."""
        self._peer_at(to.of).check(to.of, meeting.identity, meeting.certificate)
        if self.gid not in (gids.NONE, to.gid):
            raise _closed(self.gid)
        key = to, offer.ends[0].qpn
        call = self._calls.get(key)
        if call and not call.done():
            call.set_result(meeting)
            return
        if key in self._offers:
            former = self._remove(key)
            former.refuse(ExchangeError("state", "another OFFER of the same QP replaces this one"))
            former.stream.link.refused(BUSY)
        self._make_room(key, meeting)
        self._offers[key] = meeting
        self._places.add(key, _limits(key, meeting))
        meeting.stream.watch(lambda: self._heard(key, meeting))

    async def met(self, call: Call, own: Callable[[], Identity]) -> Meeting:
        """Wait for the OFFER that fits a call of the server. The caller owns the meeting.

        Raises ExchangeError: a call of this QP is under way already (`config`), or the peer is not
        one of `own` or of the GID (`policy`, `identity`).
        """
        key = call.key
        if key in self._calls:
            raise ExchangeError("config", f"a call for {call.peer} is under way already")
        self._calls[key] = asyncio.get_running_loop().create_future()
        try:
            while True:
                meeting = self._remove(key) if key in self._offers else await self._wait(key)
                try:
                    self._check(call, meeting, own())
                    return meeting
                except ExchangeError as error:
                    meeting.refuse(error)
                    if error.code != STALE:  # else the client repeats it in another connection
                        raise
        finally:
            del self._calls[key]

    # Internal ---------------------------------------------------------------

    def _check(self, call: Call, meeting: Meeting, own: Identity) -> None:
        """Raise ExchangeError unless the peer of a call is right. Of several identities with one
        URI the port presents any."""
        if own.credentials.identity != meeting.uri:
            raise ExchangeError(
                "policy", f"the peer came to {meeting.uri}: call with that identity"
            )
        own.check(meeting.identity)
        rule = self._peer_at(call.peer.gid)
        rule.check(call.peer.gid, meeting.identity, meeting.certificate)
        check_age(meeting, own if own.name == meeting.own else None)

    async def _wait(self, key: Key) -> Meeting:
        found: asyncio.Future[Meeting] = asyncio.get_running_loop().create_future()
        self._calls[key] = found
        try:
            return await found
        except asyncio.CancelledError:
            if found.done() and not found.cancelled():  # both at once
                found.result().refuse(ExchangeError("closed", "the program calls no longer"))
            raise

    def _heard(self, key: Key, meeting: Meeting) -> None:
        """The client of a waiting OFFER has ended its stream or connection, or has sent a message,
        which it must not before CHOICE."""
        self._remove(key)
        if meeting.stream.connected():
            meeting.refuse(ExchangeError("state", "a message that came before CHOICE"))
        else:
            meeting.drop()
        if not meeting.stream.link.end:
            meeting.stream.link.refused(BUSY)

    def _remove(self, key: Key) -> Meeting:
        """Take an OFFER from those that wait."""
        meeting = self._offers.pop(key)
        meeting.stream.watch(None)
        self._places.remove(key, _limits(key, meeting))
        return meeting

    def _make_room(self, key: Key, meeting: Meeting) -> None:
        """Refuse the OFFERs that give way to a new one. Raises ExchangeError (`busy`)."""
        try:
            gone = self._places.make_room(_limits(key, meeting))
        except Full:
            raise ExchangeError("busy", BUSY_TEXT) from None
        for each in gone:
            former, error = self._remove(each), ExchangeError("busy", BUSY_TEXT)
            address = former.stream.link.address
            self._audit("refused", address=address, code=error.code, text=error.text)
            former.refuse(error)


def _limits(key: Key, meeting: Meeting) -> Limits:
    """By the identity of the client; "": of all."""
    identity, gid = f"identity {meeting.identity}", f"GID {gids.text_of(key[0].of)}"
    return {
        identity: Limit(OFFERS_PER_IDENTITY, (gid,)),
        "": Limit(OFFERS_MAX, (identity, gid)),
    }


def _closed(gid: bytes) -> ExchangeError:
    return ExchangeError("closed", f"the GID here is {gids.text_of(gid)}")
