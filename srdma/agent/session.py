"""One session: TLS, key exchange, worker, then renewals until one side ends it (agent.md 2).

A session belongs to one channel. It ends with the channel, with the peer's goodbye, with an error,
or with the worker. With srdma/2 it survives its TLS connection (protocol.md 8.6): the client of the
first exchange connects again, and a listener finds the session of a peer that did.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NoReturn

from srdma.agent.channel import Channel
from srdma.agent.kept import Kept
from srdma.agent.meeting import Meeting
from srdma.agent.resumption import UNKNOWN, Resumption
from srdma.agent.settings import Identity, Terms
from srdma.agent.setup import WORKER_ENDED, Setup
from srdma.agent.tasks import Closed, cancelled, first_of, next_of
from srdma.agent.worker import Worker
from srdma.errors import DeviceError, Error, Timeout, WorkerGone
from srdma.keyex.agreement import Agreement
from srdma.keyex.exchange import Agreed, printable
from srdma.keyex.exchange_renew import Goodbye, Renewal
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ClosedMessage, ErrorMessage, Resume, decode, encode
from srdma.keyex.policy import secret_size
from srdma.keyex.renew import Renewing
from srdma.keyex.secrets import NewSecrets, unless_ended
from srdma.keyex.tls import PeerClosed, Truncated
from srdma.native.constants import REASON_PEER_CLOSED, REASON_WIRE_LOST

GRACE = 300  # seconds that the keys of a QP outlive the certificates (agent.md 5)
LIFE_MAX = (1 << 31) - 1
RESUME_TIMEOUT = 10.0  # seconds of one attempt to resume
PAUSE_LEAST, PAUSE_MOST = 1.0, 60.0  # seconds between two attempts
TOLD = "the other end withdrew the identity from its program"
# Messages of CancelledError, by Service.
WITHDRAWN = "the policy no longer grants the identity to this program"
RESTART = "the agent ends, and its QPs go on"

Address = tuple[str, int]  # host and port of a peer's listener


class Session:
    """See the description of the module."""

    def __init__(
        self,
        channel: Channel,
        own: Callable[[], Identity],
        audit: Callable[..., None],
        sessions: Sessions,
    ) -> None:
        self._channel, self._own = channel, own
        self._audit, self._sessions = audit, sessions
        self._worker: Worker | None = None
        self._qpns: tuple[int, ...] = ()  # those whose keys the worker may have
        self._life = 0.0  # most seconds that secrets live without renewal
        self._meeting: Meeting | None = None
        self._setup: Setup | None = None
        self._kept: Kept | None = None  # from READY on
        self._renewing: Renewing | None = None
        self._not_after = dt.datetime.max.replace(tzinfo=dt.UTC)
        self._wish = 0  # number of the newest request for new secrets
        self._wished = asyncio.Event()
        # A peer's RESUME that is to be checked, and a checked one that is to be answered.
        self._offer: tuple[Meeting, Resume] | None = None
        self._proved: tuple[Meeting, Resume] | None = None
        self._offered = asyncio.Event()

    async def run(self, worker: Worker, terms: Terms, peer: Meeting | Address) -> None:
        """Run the exchange with the peer, then serve renewals until the end.

        peer: the meeting with a client, which the session owns, or the address of a listener.
        """
        self._worker = worker
        self._meeting = peer if isinstance(peer, Meeting) else None
        address = None if isinstance(peer, Meeting) else peer
        self._setup = Setup(self._channel, terms, worker, partial(self._keying, terms), self._live)
        try:
            await self._serve(worker, self._work(self._setup, terms, address))
        except asyncio.CancelledError as end:
            if WITHDRAWN in end.args:
                await self._failed(ExchangeError("policy", WITHDRAWN, told=TOLD))
            elif RESTART in end.args:
                self._drop()
            else:
                await self._closed(Closed())
            raise
        except Exception:  # a fault of this program: no QP may go on without its clocks
            self._expire_qps()
            self._drop()
            raise
        finally:
            if self._kept:
                self._sessions.remove(self._kept.agreement.hash, self)
            for pending in (self._offer, self._proved):
                if pending:
                    pending[0].drop()
            self._setup.forget()
            if self._renewing:
                self._renewing.forget()

    async def _serve(self, worker: Worker, work: Coroutine[Any, Any, NoReturn]) -> None:
        try:
            await first_of(self._requests(), work)
        except Closed as end:
            # The program may close for the same reason, before this process has noticed it.
            if not worker.alive():
                await self._failed(ExchangeError("gone", WORKER_ENDED))
            else:
                await self._closed(end)
        except (PeerClosed, Goodbye) as end:
            await self._closed(end)
            if isinstance(end, Truncated) and self._renewing:
                await self._linger()
        except Error as error:
            await self._failed(error)

    # The ends of a session ---------------------------------------------------

    async def _closed(self, end: Exception) -> None:
        if self._meeting:
            if isinstance(end, Closed) and self._renewing and self._meeting.stream.version > 1:
                self._meeting.stream.send(encode(ClosedMessage()))
            await self._meeting.stream.close()
        if isinstance(end, Closed):  # the peer's QPs end too; those of this end may be destroyed
            self._end_qps(REASON_PEER_CLOSED)
        if isinstance(end, PeerClosed) and not (self._setup and self._setup.done):
            self._expire_qps()
            waiting_for = self._setup.waiting_for if self._setup else "the peer"
            text = f"the peer closed while this end waited for {waiting_for}"
            self._channel.report("error", code="closed", text=text)
            return
        if isinstance(end, PeerClosed | Goodbye) and not isinstance(end, Truncated):
            self._end_qps(REASON_PEER_CLOSED)
        self._channel.report("closed")

    async def _linger(self) -> None:
        """The QPs go on without a TLS connection until their life is over (agent.md 5), unless the
        program closes the channel, or the policy withdraws the identity."""
        try:
            await self._requests()
        except Closed:
            self._end_qps(REASON_PEER_CLOSED)
        except ExchangeError:  # of a request
            self._expire_qps()
            raise

    async def _failed(self, error: Error) -> None:
        if not isinstance(error, ExchangeError):
            what = "gone" if isinstance(error, WorkerGone) else "worker"
            error = ExchangeError(what, str(error))
        if error.code == "gone":
            self._end_qps(REASON_WIRE_LOST)
        elif not (error.from_peer and self._renewing and self._renewing.quiet):
            self._expire_qps()
        text = f"the peer reports: {error.text}" if error.from_peer else error.text
        self._audit(
            "ended", uid=self._channel.uid, own=self._own().name, code=error.code, text=text
        )
        self._channel.report("error", code=error.code, text=text)
        if self._meeting:
            await self._meeting.fail(error)

    def _drop(self) -> None:
        if self._meeting:
            self._meeting.drop()

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

    async def _requests(self) -> NoReturn:
        """Take requests of the program. Raises Closed at the end of the channel."""
        while (message := await self._channel.message()) is not None:
            match message:
                case {"do": "renew", "wish": int(wish), **rest} if not rest:
                    self._wish = wish
                    self._wished.set()
                case _:
                    raise ExchangeError(
                        "config", "a malformed request: it must be {'do': 'renew', 'wish': n}"
                    )
        raise Closed

    # Up to `ready` -----------------------------------------------------------

    async def _work(self, setup: Setup, terms: Terms, address: Address | None) -> NoReturn:
        worker = self._worker
        assert worker
        try:
            async with asyncio.timeout(terms.timeout):
                leg = await worker.attach(terms.token)
                if address:
                    self._meeting = await Meeting.dial(self._own(), *address)
                meeting = self._meeting
                assert meeting
                await meeting.authenticate(self._own())
                self._not_after = meeting.stream.not_after()
                exchange = await setup.agree(meeting)
        except Timeout:  # of a call of the worker
            raise
        except TimeoutError:
            raise ExchangeError(
                "timeout",
                f"the key exchange did not complete in {terms.timeout:g} s, waiting for "
                f"{setup.waiting_for}",
            ) from None
        self._kept = Kept(
            Agreement.of(exchange, self._qpns, meeting.identity),
            meeting.own,
            self._channel.uid,
            leg,
            address,
            terms.times,
            terms.max_age,
        )
        self._channel.report("ready")
        self._told("connected")
        await self._keep(self._kept, worker)

    def _keying(self, terms: Terms, agreed: Agreed) -> None:
        """The worker gets the keys of the QPs now."""
        self._qpns = tuple(end.qpn for end in terms.ends)
        renews = secret_size(agreed.suite) and not agreed.group
        self._life = terms.max_age if renews else LIFE_MAX

    # After `ready` -----------------------------------------------------------

    async def _keep(self, kept: Kept, worker: Worker) -> NoReturn:
        """Renew secrets until the peer, the worker or the program ends the session."""
        self._renewing = renewing = Renewing(
            Renewal(kept.agreement),
            NewSecrets(worker.control, kept.agreement, kept.leg),
            lambda: self._own().credentials,
            kept.times,
            self._renewed,
        )
        assert self._meeting
        renewing.attach(self._meeting.stream)
        if kept.agreement.role == "server" and self._resumable():
            self._sessions.add(kept.agreement.hash, self)
        wished = asyncio.ensure_future(self._wished.wait())
        offered = asyncio.ensure_future(self._offered.wait())
        heard: asyncio.Future[bytes] | None = None
        again: asyncio.Future[tuple[Meeting, Resume]] | None = None
        try:
            while True:
                if self._meeting and not heard:
                    heard = asyncio.ensure_future(self._meeting.stream.message())
                if not self._meeting and renewing.given and not again:
                    again = asyncio.ensure_future(self._again(kept))
                waits: set[asyncio.Future[Any]] = {wished, offered, worker.ended}
                waits |= {task for task in (heard, again) if task}
                done = await next_of(waits, renewing.wake)
                if worker.ended in done:
                    raise ExchangeError("gone", WORKER_ENDED)
                if heard and heard in done:
                    self._hear(heard)
                    heard = None
                if again and again in done:
                    self._resumed(*again.result())
                    again = None
                if wished in done:
                    self._wished.clear()
                    wished = asyncio.ensure_future(self._wished.wait())
                    renewing.wish(self._wish)
                if offered in done:
                    self._offered.clear()
                    offered = asyncio.ensure_future(self._offered.wait())
                    if await self._check_offer(kept, worker) and heard:
                        await cancelled(heard)  # a message of the former connection
                        heard = None
                renewing.step()
                self._answer_offer(kept, worker)
        finally:
            for task in (heard, again, wished, offered):
                if task:
                    await cancelled(task)

    def _resumable(self) -> bool:
        """True if another connection may replace the present one (protocol.md 8.6)."""
        assert self._kept and self._meeting
        return self._meeting.stream.version > 1 and self._kept.agreement.secret_size > 0

    def _hear(self, heard: asyncio.Future[bytes]) -> None:
        """Process a message of the peer, or the loss of the connection."""
        assert self._renewing and self._meeting
        try:
            message = heard.result()
        except (PeerClosed, ExchangeError) as end:
            if self._meeting.stream.version == 1 or getattr(end, "code", "tls") != "tls":
                raise
            if not self._resumable():
                raise Truncated from None
            self._told("lost", text=str(end) or "the TLS connection ended")
            self._lose()
        else:
            self._renewing.receive(message)

    def _lose(self) -> None:
        assert self._renewing
        self._renewing.lost()
        self._drop()
        self._meeting = None

    def _resumed(self, meeting: Meeting, peers: Resume) -> None:
        assert self._renewing
        self._meeting = meeting
        self._renewing.attach(meeting.stream)
        self._renewing.resumed(peers.count)
        self._told("resumed")

    async def _again(self, kept: Kept) -> tuple[Meeting, Resume]:
        """As client, connect to the peer until it proves that it has the session. A server waits
        for the peer. Raises Goodbye once no QP is left."""
        assert self._worker
        pause, resumption = PAUSE_LEAST, Resumption(self._worker.control, kept.agreement)
        while True:
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, PAUSE_MOST)
            if resumption.ended():
                raise Goodbye
            if not kept.address:
                continue
            try:
                async with asyncio.timeout(RESUME_TIMEOUT):
                    return await self._dial(kept, kept.address)
            except PeerClosed:
                text = "the peer closed the connection"
            except TimeoutError:
                text = f"no answer in {RESUME_TIMEOUT:g} s"
            except ExchangeError as error:
                text = error.text
            self._told("lost", text=text)

    # Resumption as client ------------------------------------------------------

    async def _dial(self, kept: Kept, address: Address) -> tuple[Meeting, Resume]:
        """One attempt. Raises ExchangeError, PeerClosed, Goodbye."""
        assert self._worker and self._renewing
        own, resumption = self._own(), Resumption(self._worker.control, kept.agreement)
        meeting = await Meeting.dial(own, *address)
        try:
            await meeting.authenticate(own)
            self._check_peer(kept, meeting)
            mine = resumption.message(meeting.stream, self._renewing.count)
            meeting.stream.send(encode(mine))
            peers = _resume_in(await meeting.hear())
            resumption.withdraw(resumption.check(meeting.stream, peers))
        except ExchangeError as error:
            await meeting.fail(error)
            raise
        except BaseException:
            meeting.drop()
            raise
        return meeting, peers

    def _check_peer(self, kept: Kept, meeting: Meeting) -> None:
        if meeting.stream.version == 1:
            raise ExchangeError("resume", "the peer has only srdma/1 now, which cannot resume")
        if meeting.identity != kept.agreement.identity:
            raise ExchangeError(
                "identity",
                f"the peer is {meeting.identity} now: the session is with "
                f"{kept.agreement.identity}",
                told="this end has a session with another identity",
            )

    # Resumption as server ------------------------------------------------------

    def offer(self, meeting: Meeting, peers: Resume) -> None:
        """A peer wants to resume this session; the session owns the meeting from now on."""
        if self._offer:
            self._offer[0].drop()
        self._offer = meeting, peers
        self._offered.set()

    def may_resume(self, meeting: Meeting) -> bool:
        """True if a peer and this session have the same identities."""
        assert self._kept
        return (meeting.own, meeting.identity) == (self._kept.own, self._kept.agreement.identity)

    async def _check_offer(self, kept: Kept, worker: Worker) -> bool:
        """Check the peer's RESUME. If it is right, the present connection is dropped."""
        assert self._offer and self._renewing
        (meeting, peers), self._offer = self._offer, None
        resumption = Resumption(worker.control, kept.agreement)
        try:
            waiting = resumption.check(meeting.stream, peers)
        except ExchangeError as error:
            self._told("refused", code=error.code, text=error.text)
            await meeting.fail(error)
            return False
        if self._proved:
            self._proved[0].drop()
        self._lose()
        resumption.withdraw(waiting)
        self._proved = meeting, peers
        return True

    def _answer_offer(self, kept: Kept, worker: Worker) -> None:
        """Answer a right RESUME, as soon as REKEY tx of a lost exchange is complete."""
        assert self._renewing
        if not self._proved or not self._renewing.given:
            return
        (meeting, peers), self._proved = self._proved, None
        mine = Resumption(worker.control, kept.agreement).message(
            meeting.stream, self._renewing.count
        )
        meeting.stream.send(encode(mine))
        self._resumed(meeting, peers)

    # Reports and life ------------------------------------------------------------

    def _renewed(self, count: int, wish: int, not_after: dt.datetime) -> None:
        assert self._kept
        self._own().check(self._kept.agreement.identity)  # the policy may have changed
        self._not_after = not_after
        self._live()
        self._told("renewed", count=count)
        if wish:
            self._channel.report("renewed", count=count, wish=wish)

    def _told(self, event: str, **fields: object) -> None:
        assert self._kept
        agreement = self._kept.agreement
        self._audit(
            event,
            uid=self._channel.uid,
            own=self._own().name,
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
        left = (self._not_after - dt.datetime.now(dt.UTC)).total_seconds()
        seconds = min(self._life, left + GRACE, LIFE_MAX)
        for qpn in self._qpns:
            with unless_ended():
                self._worker.control.life(qpn, max(1, int(seconds)))


class Sessions:
    """The sessions that a peer may resume, by transcript hash."""

    def __init__(self) -> None:
        self._by_hash: dict[bytes, Session] = {}

    def add(self, transcript: bytes, session: Session) -> None:
        self._by_hash[transcript] = session

    def remove(self, transcript: bytes, session: Session) -> None:
        if self._by_hash.get(transcript) is session:
            del self._by_hash[transcript]

    def resume(self, meeting: Meeting, peers: Resume) -> None:
        """Give a peer's RESUME to its session, which owns the meeting from now on.

        Raises ExchangeError (`resume`) if no session of these identities has this hash.
        """
        session = self._by_hash.get(peers.hash)
        if session is None or not session.may_resume(meeting):
            raise ExchangeError("resume", UNKNOWN)
        session.offer(meeting, peers)


def _resume_in(raw: bytes) -> Resume:
    """The RESUME in a server's first message. Raises ExchangeError."""
    match decode(raw):
        case Resume() as resume:
            return resume
        case ErrorMessage(code, text):
            raise ExchangeError(printable(code), printable(text), from_peer=True)
        case _:
            raise ExchangeError("state", "the peer answered RESUME by another message")
