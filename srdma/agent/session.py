"""One session: TLS, key exchange, worker, then renewals until one side ends it (agent.md 2).

A session belongs to one channel. It ends with the channel, with the peer's goodbye, with an error,
or with the worker. An agent that was restarted adopts the sessions of the one before; their
programs come back later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from srdma.agent.accounts import host_of
from srdma.agent.calls import Begun
from srdma.agent.channel import Absent, Channel
from srdma.agent.clock import Validity
from srdma.agent.house import House
from srdma.agent.meeting import Address, Meeting, agent_of
from srdma.agent.record import Record
from srdma.agent.rendezvous import Call
from srdma.agent.repeat import Pauses
from srdma.agent.settings import Identity, Terms
from srdma.agent.setup import WORKER_ENDED, Setup
from srdma.agent.tasks import RESTART, TOLD, WITHDRAWN, Bell, Closed, Watched
from srdma.agent.upkeep import Upkeep
from srdma.agent.wires import check_wires
from srdma.agent.worker import Worker
from srdma.errors import DeviceError, Error, Timeout, WorkerGone
from srdma.gid import QPName
from srdma.keyex.agreement import Agreement
from srdma.keyex.exchange import Agreed, Exchange
from srdma.keyex.exchange_renew import Goodbye
from srdma.keyex.fields import ExchangeError
from srdma.keyex.policy import secret_size
from srdma.keyex.renew import NEVER, Presented
from srdma.keyex.secrets import unless_ended
from srdma.keyex.tls import PeerClosed, Truncated
from srdma.native.constants import REASON_PEER_CLOSED, REASON_WIRE_LOST

LIFE_MAX = (1 << 31) - 1
REQUESTS = 16  # of a program that are served before other tasks run
ABSENT_LOOK = 60.0  # seconds between two looks at whether the QPs of an absent program have ended
UNLINKED = "the link to the computer of the program ended during the key exchange"
LOST = "lost"  # `do` of the last message of a channel whose program is on a computer out of reach


class Session:
    """See the description of the module. It runs in one task."""

    __slots__ = (
        "_bell", "_channel", "_first_meeting", "_house", "_life", "_own", "_qpns", "_setup",
        "_upkeep", "_validity", "_worker",
    )  # fmt: skip

    def __init__(
        self, channel: Channel | Absent, own: Callable[[], Identity], house: House
    ) -> None:
        self._channel, self._own, self._house = channel, own, house
        self._bell = Bell()
        self._worker: Worker | None = None
        self._qpns: tuple[int, ...] = ()  # those whose keys the worker may have
        self._life = 0.0  # most seconds that secrets live without renewal
        self._validity = Validity(own().clock.clock)
        self._first_meeting: Meeting | None = None  # until READY
        self._setup: Setup | None = None  # until READY
        self._upkeep: Upkeep | None = None  # from READY on

    async def begin(self, worker: Worker, terms: Terms, peer: Meeting | Address | QPName) -> bool:
        """Run the exchange with the peer. False if that failed, which ended the session.

        peer: the meeting with a client, which the session owns, the address of a listener, or a QP
        that a program of the peer connects too.
        """
        self._worker = worker
        assert isinstance(self._channel, Channel)
        self._setup = setup = Setup(self._channel, terms, worker, partial(self._keying, terms))
        try:
            return await self._run(self._work(worker, setup, terms, peer))
        finally:
            setup.forget()

    def keep(self) -> Coroutine[Any, Any, bool]:
        """Serve renewals until the end, after begin()."""
        assert self._upkeep
        return self._run(self._upkeep.run(self._upkeep.meeting))

    async def adopt(self, worker: Worker, record: Record, pause: float) -> None:
        """Serve the renewals of a session that an earlier agent made.

        pause: seconds before a client connects to its peer.
        """
        self._worker, self._qpns = worker, record.agreement.qpns
        self._life = record.max_age if record.agreement.renews else LIFE_MAX
        self._upkeep = upkeep = Upkeep(record, worker, self, self._house, self._bell)
        self.told("adopted")
        await self._run(upkeep.run(None, pause))

    def returned(self, channel: Channel) -> bool:
        """The program of an adopted session, or of another computer, is back. False if it is
        another user's, or was back already."""
        if isinstance(self._channel, Channel) and self.remote and self._channel.uid == channel.uid:
            self._leave()  # the end of its link was not noticed yet
        absent = self._channel
        if not isinstance(absent, Absent) or absent.returned or absent.uid != channel.uid:
            return False
        absent.returned = channel
        self._bell.ring()
        return True

    def _leave(self) -> None:
        """The program of another computer may come back by a new channel."""
        assert isinstance(self._channel, Channel)
        self._channel.drop()
        self._channel = Absent(self._channel.uid)

    async def _run(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do a work of the session. False if that ended it."""
        try:
            try:
                await work
                return True
            except (PeerClosed, Goodbye, Closed, Error) as end:
                await self._over(end)
                return False
        except asyncio.CancelledError as end:
            if WITHDRAWN in end.args:
                await self._failed(ExchangeError("policy", WITHDRAWN, told=TOLD))
            elif RESTART in end.args:
                if self._setup:  # the next agent does not get this session
                    self._expire_qps()
                self._drop()
            else:
                await self._closed(Closed())
            raise
        except Exception:  # a fault of this program: no QP may go on without its clocks
            self._expire_qps()
            if meeting := self._meeting:
                meeting.refuse(ExchangeError("worker", "a fault of this end's agent"))
            raise

    def _drop(self) -> None:
        """Neither the peer nor the program learns of the end."""
        if meeting := self._meeting:
            meeting.drop()

    async def _over(self, end: Exception) -> None:
        """The work ended."""
        assert self._worker
        if self._upkeep and self._house.worker_remote and not self._worker.alive():
            self._drop()
            return
        # The program may close because the worker ended, before this process has noticed it.
        if isinstance(end, Closed) and not self._worker.alive():
            await self._failed(ExchangeError("gone", WORKER_ENDED))
        elif isinstance(end, Error):
            await self._failed(end)
        else:
            await self._closed(end)
            if isinstance(end, Truncated) and self._upkeep:
                await self._linger()

    # The ends of a session ---------------------------------------------------

    @property
    def _meeting(self) -> Meeting | None:
        return self._upkeep.meeting if self._upkeep else self._first_meeting

    async def _closed(self, end: Exception) -> None:
        if meeting := self._meeting:
            await meeting.stream.close()
        if isinstance(end, Closed):  # the peer's QPs end too; those of this end may be destroyed
            self._end_qps(REASON_PEER_CLOSED)
        if isinstance(end, PeerClosed) and self._setup and not self._setup.done:
            self._expire_qps()
            text = f"the peer closed while this end waited for {self._setup.waiting_for}"
            self._channel.report("error", code="closed", text=text)
            return
        if isinstance(end, PeerClosed | Goodbye) and not isinstance(end, Truncated):
            self._end_qps(REASON_PEER_CLOSED)
        self._channel.report("closed")

    async def _linger(self) -> None:
        """The QPs go on without a TLS connection until their life is over (agent.md 5), unless the
        program closes the channel, the worker ends, or the policy withdraws the identity."""
        assert self._worker
        told = self._channel  # the channel that has the event `closed`
        self._worker.ended.add_done_callback(self._bell.ring)
        try:
            while True:
                if self._worker.ended.done():
                    raise ExchangeError("gone", WORKER_ENDED)
                look_at = self.requests()
                if self._channel is not told:
                    told = self._channel
                    told.report("closed")
                await self._bell.wait(look_at)
        except (Closed, Goodbye):
            self._end_qps(REASON_PEER_CLOSED)
        except Error as error:
            await self._failed(error)
        finally:
            self._worker.ended.remove_done_callback(self._bell.ring)

    async def _failed(self, error: Error) -> None:
        if not isinstance(error, ExchangeError):
            what = "gone" if isinstance(error, WorkerGone) else "worker"
            error = ExchangeError(what, str(error))
        if error.code == "gone":
            self._end_qps(REASON_WIRE_LOST)
        elif not (error.from_peer and self._upkeep and self._upkeep.quiet):
            self._expire_qps()
        text = f"the peer reports: {error.text}" if error.from_peer else error.text
        self._house.audit(
            "ended", uid=self._channel.uid, own=self._own().name, code=error.code, text=text
        )
        self._channel.report("error", code=error.code, text=text)
        if meeting := self._meeting:
            await meeting.fail(error)

    def _expire_qps(self) -> None:
        """EXPIRE: no exchange can renew the keys of the QPs any more (protocol.md 8.5)."""
        self._each_qp(lambda worker, qpn: worker.control.expire(qpn))

    def _end_qps(self, reason: int) -> None:
        """END: the peer closed the connection or reported its end (protocol.md 7.5)."""
        self._each_qp(lambda worker, qpn: worker.control.end(qpn, reason))

    def _each_qp(self, call: Callable[[Worker, int], None]) -> None:
        assert self._worker
        if not self._worker.alive():
            return
        with contextlib.suppress(DeviceError, Timeout):
            for qpn in self._qpns:
                with unless_ended():
                    call(self._worker, qpn)

    # The program ---------------------------------------------------------------

    def requests(self) -> float:
        """See upkeep.Owner."""
        if isinstance(self._channel, Absent):
            if self._channel.returned is None:
                return self._absent(self._channel)
            self._channel = self._channel.returned
            self._channel.watch(self._bell.ring)
            self._channel.report("ready")
        for _ in range(REQUESTS):
            if (message := self._channel.take()) is None:
                break
            match message:
                case {"do": "renew", "wish": int(wish), **rest} if not rest and self._upkeep:
                    self._upkeep.wish(wish)
                case {"do": do} if do == LOST and self.remote:
                    if not self._upkeep:
                        raise ExchangeError("closed", UNLINKED)
                    self._leave()
                    self.told("lost")
                    return self.requests()
                case _:
                    raise ExchangeError(
                        "config",
                        "a malformed request: it must be {'do': 'renew', 'wish': n}, after ready",
                    )
        else:  # more may wait, and other tasks run first
            asyncio.get_running_loop().call_soon(self._bell.ring)
            return NEVER
        if self._channel.ended:
            raise Closed
        return NEVER

    def _absent(self, absent: Absent) -> float:
        """Raise Goodbye once the QPs of an adopted session have ended."""
        now = time.monotonic()
        if now >= absent.look_at:
            absent.look_at = now + ABSENT_LOOK
            if self._upkeep and self._upkeep.ended():
                raise Goodbye
        return absent.look_at

    @property
    def remote(self) -> bool:
        """True if its program is on another computer."""
        return bool(host_of(self._channel.uid))

    @property
    def qpns(self) -> tuple[int, ...]:
        """QPs that may have keys."""
        return self._qpns

    @property
    def leg(self) -> int:
        """Number of the leg of its QPs; 0 before READY."""
        return self._upkeep.record.leg if self._upkeep else 0

    # Up to `ready` -----------------------------------------------------------

    async def _work(
        self, worker: Worker, setup: Setup, terms: Terms, peer: Meeting | Address | QPName
    ) -> None:
        self._first_meeting = peer if isinstance(peer, Meeting) else None
        assert isinstance(self._channel, Channel)
        watched = Watched(self.requests)
        self._channel.watch(watched.news)
        try:
            with watched:
                async with asyncio.timeout(terms.timeout):
                    leg = await worker.attach(terms.token, self._channel.uid)
                    goal = self._call(setup, terms, peer) if isinstance(peer, QPName) else peer
                    meeting, exchange = await self._agree(setup, goal)
        except Timeout:  # of a call of the worker
            raise
        except Truncated as end:
            if end.error:
                raise end.error from None
            raise
        except TimeoutError:
            raise ExchangeError(
                "timeout",
                f"the key exchange did not complete in {terms.timeout:g} s, waiting for "
                f"{setup.waiting_for}",
            ) from None
        record = Record(
            Agreement.of(exchange, self._qpns, meeting.identity),
            meeting.own,
            self._channel.uid,
            leg,
            self._place(meeting, goal),
            terms.times,
            terms.max_age,
            agent=agent_of(meeting),
            gid=peer.gid if isinstance(peer, QPName) else b"",
        )
        self._upkeep = upkeep = Upkeep(record, worker, self, self._house, self._bell)
        self._setup = self._first_meeting = None
        self._channel.watch(self._bell.ring)
        upkeep.attach(meeting)
        if upkeep.resumable:
            self._house.keep(record, worker)
        self._channel.report("ready")
        self.told("connected")

    def _call(self, setup: Setup, terms: Terms, peer: QPName) -> Call:
        """The call of the program's QP. Raises ExchangeError (`config`) if it may not call."""
        assert self._worker
        control = self._worker.control
        gid = control.hello().gid
        if len(terms.ends) != 1:
            raise ExchangeError("config", f"a rendezvous has one QP, not {len(terms.ends)}")
        qpn = terms.ends[0].qpn
        self._worker.check_new(qpn)
        call = Call.of(QPName(gid, qpn), peer)
        self._house.peer_at(peer.gid)
        setup.to = call.to
        return call

    def _place(self, meeting: Meeting, goal: Meeting | Address | Call) -> Address:
        """The address of the peer in the record."""
        if meeting.role == "server":
            return meeting.stream.link.address, 0
        if isinstance(goal, Call):
            return self._house.peer_at(goal.peer.gid).agent_of(goal.peer.gid)
        assert not isinstance(goal, Meeting)
        return goal

    async def _agree(
        self, setup: Setup, peer: Meeting | Address | Call
    ) -> tuple[Meeting, Exchange]:
        """The first exchange. If the peer refuses the OFFER with `stale` or `closed`, or ends a
        connection that was there before, the exchange is repeated once in another connection; with
        `busy`, until the time is over (protocol.md 8.7)."""
        if isinstance(peer, Call) and peer.role == "server":
            setup.waiting_for = f"{peer.peer}, whose program must call too"
            peer = await self._house.rendezvous.met(peer, self._own)
        if isinstance(peer, Meeting):
            return peer, await self._agree_with(setup, peer)
        former: Meeting | None = None
        pauses, calls = Pauses(), self._house.callers.of(self._channel.uid)
        while True:
            begun = await calls.begin()
            meeting = await self._called(begun, peer, former)
            try:
                return meeting, await self._agree_with(setup, meeting)
            except (ExchangeError, Truncated) as error:
                pause = setup.pause(meeting, error)
                if pause is None or (not pause and former):
                    raise
                former = None if pause else meeting
                meeting.drop()
            finally:
                begun.end(failed=not setup.answered)
            setup.forget()
            await asyncio.sleep(pauses.drawn(pause))

    async def _called(self, begun: Begun, peer: Address | Call, former: Meeting | None) -> Meeting:
        """As _meet(). A call that reaches no agent does not count."""
        try:
            return await self._meet(peer, former)
        except BaseException:
            begun.end(failed=False)
            raise

    async def _meet(self, peer: Address | Call, former: Meeting | None) -> Meeting:
        """A stream to the server. former: in another connection than that one."""
        links, own, user = self._house.links, self._own(), self._channel.uid
        if not isinstance(peer, Call):
            return await links.meet(own, peer, user=user, avoid=former)
        gid = peer.peer.gid
        return await links.meet_gid(own, gid, self._house.peer_at(gid), user=user, avoid=former)

    async def _agree_with(self, setup: Setup, meeting: Meeting) -> Exchange:
        self._first_meeting = meeting
        self._validity.checked(meeting.stream.not_after())
        return await setup.agree(meeting)

    def _keying(self, terms: Terms, agreed: Agreed) -> int:
        """The worker gets the keys of the QPs now. Returns the seconds of their life. Raises
        ExchangeError (`worker`) if the policy does not permit the peer's wire addresses."""
        check_wires(agreed.ends, self._own().wires)
        self._qpns = tuple(end.qpn for end in terms.ends)
        renews = secret_size(agreed.suite) and not agreed.group
        self._life = terms.max_age if renews else LIFE_MAX
        return self._seconds()

    # After `ready` -----------------------------------------------------------

    def identity(self) -> Identity:
        """See upkeep.Owner."""
        return self._own()

    def renewed(self, count: int, wish: int, presented: Presented) -> None:
        """See upkeep.Owner."""
        assert self._upkeep and self._worker
        record = self._upkeep.record
        self._own().check(record.agreement.identity)  # the policy may have changed
        if record.gid:
            rule = self._house.peer_at(record.gid)
            rule.check(record.gid, record.agreement.identity, presented.peer)
        self._validity.checked(presented.not_after)
        self._live()
        self.began(self._upkeep.count)  # that of a newer exchange, if one has begun
        self.told("renewed", count=count)
        if wish:
            self._channel.report("renewed", count=count, wish=wish)

    def began(self, count: int) -> None:
        """See upkeep.Owner. The worker keeps the number, for an agent that is restarted."""
        assert self._upkeep and self._worker
        if self._upkeep.resumable:
            self._house.keep(replace(self._upkeep.record, count=count), self._worker)

    def told(self, event: str, **fields: object) -> None:
        """See upkeep.Owner."""
        assert self._upkeep
        record = self._upkeep.record
        agreement = record.agreement
        self._house.audit(
            event,
            uid=self._channel.uid,
            own=record.own,
            peer=agreement.identity,
            role=agreement.role,
            qps=len(agreement.qpns),
            **fields,
        )

    def _live(self) -> None:
        """Give the secrets of the QPs a new life (agent.md 5).

        Raises RefusedError, WorkerGone: without its end no QP may go on.
        """
        assert self._worker
        self._worker.control.lives(self._qpns, self._seconds())

    def _seconds(self) -> int:
        return max(1, int(min(self._life, self._validity.left(), LIFE_MAX)))
