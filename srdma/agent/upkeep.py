"""The upkeep of a session after READY: renewals, and other TLS connections in place of a lost one
(protocol.md 8.5, 8.6).

With srdma/2 a session survives its TLS connection: the client of the first exchange connects again,
and a listener finds the session of a peer that did, by `Sessions`.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from srdma.agent.links import SILENCE, Links
from srdma.agent.meeting import Address, Meeting, agent_of
from srdma.agent.record import Record
from srdma.agent.resumption import UNKNOWN, Resumption
from srdma.agent.settings import Identity
from srdma.agent.setup import WORKER_ENDED
from srdma.agent.tasks import cancelled, next_of
from srdma.agent.worker import Worker
from srdma.keyex.exchange import Role, printable
from srdma.keyex.exchange_renew import Goodbye, Renewal
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, Resume, Wake, decode, encode
from srdma.keyex.pace import BURST, Pace
from srdma.keyex.renew import NEVER, Renewing
from srdma.keyex.secrets import NewSecrets
from srdma.keyex.streams import Idle
from srdma.keyex.tls import PeerClosed, Truncated

RESUME_TIMEOUT = 10.0  # seconds of one attempt to resume
PAUSE_LEAST, PAUSE_MOST = 1.0, 60.0  # seconds between two attempts
LOOK = 15.0  # seconds between two looks at the acknowledgements
LOOK_LOST = 60.0  # seconds between two looks at whether QPs without a connection have ended


class Upkeep:
    """meeting: the present connection, which the upkeep owns; None while it is lost.

    quiet: no exchange was under way when the peer's last message arrived.
    """

    def __init__(
        self,
        record: Record,
        worker: Worker,
        own: Callable[[], Identity],
        peers: tuple[Sessions, Links],
        tell: tuple[Callable[[int, int, dt.datetime], None], Callable[..., None]],
    ) -> None:
        """tell: `renewed` of Renewing, and the audit of this session."""
        self.record, self._worker, self._own = record, worker, own
        self._sessions, self._links = peers
        self._renewed, self._audit = tell
        self.meeting: Meeting | None = None
        self._resumption = Resumption(worker.control, record.agreement)
        self._renewing = Renewing(
            Renewal(record.agreement, record.count),
            NewSecrets(worker.control, record.agreement, record.leg),
            lambda: own().credentials,
            record.times,
            self._in_effect,
        )
        self._wish = 0  # number of the program's newest request for new secrets; 0: taken
        # A peer's RESUME that is to be checked, and a checked one that is to be answered.
        self._offer: tuple[Meeting, Resume] | None = None
        self._proved: tuple[Meeting, Resume] | None = None
        self._news = asyncio.Event()  # a wish or an offer waits
        self._noticed = asyncio.ensure_future(self._news.wait())
        self._heard: asyncio.Future[bytes] | None = None  # the peer's next message
        self._redial: asyncio.Future[tuple[Meeting, Resume]] | None = None
        self._first = True  # no attempt to resume was made
        self._idle = False  # the connection was closed because nothing happened in it
        self._woken = False  # the server wants an exchange
        self._resuming = False  # an attempt to resume is under way
        self._avoid: Meeting | None = None  # of an attempt that was refused
        self._offers, self._wakes = Pace(BURST), Pace(BURST)  # of RESUMEs and WAKEs of the peer
        self._refusing: asyncio.Future[None] | None = None
        self._pause = PAUSE_LEAST  # before the next attempt to resume
        self._look_at = NEVER  # time of the next _look()
        self._absence = PAUSE_LEAST  # seconds between two looks without a connection
        self.resumable = False  # another connection may replace the present one

    @property
    def quiet(self) -> bool:
        return self._renewing.quiet

    @property
    def count(self) -> int:
        """Number of the last exchange."""
        return self._renewing.count

    def wish(self, number: int) -> None:
        """The program wants new secrets from an exchange that begins from now on."""
        self._wish = number
        self._news.set()

    def ended(self) -> bool:
        """True if all QPs have ended."""
        return self._resumption.ended()

    async def run(self, meeting: Meeting | None, pause: float = 0.0) -> NoReturn:
        """Renew secrets until the peer or the worker ends the session.

        meeting: the connection of the first exchange; None: it is lost, and a client waits for
        `pause` seconds before it connects again. Raises ExchangeError, PeerClosed, Goodbye, and
        what the worker's calls raise.
        """
        try:
            self.attach(meeting)
            if self.resumable:
                self._sessions.add(self)
            await self._serve(pause)
        finally:
            self._sessions.remove(self)
            for pending in (self._offer, self._proved):
                if pending:
                    pending[0].drop()
            if self._refusing:
                await cancelled(self._refusing)
            self._renewing.forget()

    def attach(self, meeting: Meeting | None) -> None:
        """Use a connection from now on; None: a session that was adopted has none yet."""
        self.meeting = meeting
        version = meeting.stream.version if meeting else 2
        self.resumable = version > 1 and self.record.agreement.secret_size > 0
        if meeting:
            if self.record.agreement.role == "server":
                self.record = replace(self.record, address=(meeting.stream.link.address, 0))
                self._sessions.moved(self)
            self.record = replace(self.record, agent=agent_of(meeting) or self.record.agent)
            meeting.stream.parks = self._parks
            self._renewing.attach(meeting.stream)
            self._look_at = time.monotonic() + LOOK if self.resumable else NEVER

    def _parks(self) -> bool:
        """True if the session needs no connection before an exchange is due."""
        return self.resumable and self._renewing.idle

    async def _serve(self, pause: float) -> NoReturn:
        try:
            while True:
                self._start(pause)
                waits: set[asyncio.Future[Any]] = {self._worker.ended, self._noticed}
                waits |= {task for task in (self._heard, self._redial) if task}
                done = await next_of(waits, min(self._renewing.wake, self._look_at))
                if self._worker.ended in done:
                    raise ExchangeError("gone", WORKER_ENDED)
                self._take()
                self._renewing.step()
                if self._answer_offer():
                    self._renewing.step()
        finally:
            self._abandon()
            _forget(self._noticed)

    def _start(self, pause: float) -> None:
        """Start to wait for the peer's next message, or to resume."""
        if self.meeting and not self._heard:
            self._heard = asyncio.ensure_future(self.meeting.stream.message())
        if not self._redial and self._resumes():
            self._redial = asyncio.ensure_future(self._again(pause if self._first else 0.0))
            self._first = False
        if self._noticed.done():
            self._noticed = asyncio.ensure_future(self._news.wait())

    def _resumes(self) -> bool:
        """True if this end must connect to the peer: as client, unless the connection was idle and
        no exchange is due; as server if one is, to wake the client."""
        if self.meeting or not self._renewing.given:
            return False
        client = self.record.agreement.role == "client"
        return self._renewing.wanted or (client and not self._idle)

    def _take(self) -> None:
        """Process what has arrived: a message, another connection, a wish, a RESUME."""
        if self._heard and self._heard.done():
            heard, self._heard = self._heard, None
            self._hear(heard)
        if self._redial and self._redial.done():
            redial, self._redial = self._redial, None
            self._resumed(*redial.result())
        self._news.clear()
        if self._wish:
            self._renewing.wish(self._wish)
            self._wish = 0
        if self._woken:
            self._wake_up()
        if self._offer:
            self._check_offer()
        self._look()

    def _abandon(self) -> None:
        """Stop to wait for the peer's next message, and to resume."""
        redial = self._redial
        if redial and redial.done() and not redial.cancelled() and not redial.exception():
            redial.result()[0].drop()
        for task in (self._heard, redial):
            _forget(task)
        self._heard = self._redial = None

    def _look(self) -> None:
        """Look from time to time whether the peer is there. A connection whose peer has
        acknowledged nothing for SILENCE seconds is given up: a firewall may have forgotten it."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK
        if not self.meeting:
            self._absence = min(2 * self._absence, LOOK_LOST)
            self._look_at = time.monotonic() + self._absence
            if self.ended():
                raise Goodbye
        elif not self.meeting.stream.reachable(SILENCE):
            self._audit("lost", text=f"no acknowledgement in {SILENCE:g} s")
            self.meeting.stream.link.drop()
            self._lose()

    def _hear(self, heard: asyncio.Future[bytes]) -> None:
        """Process a message of the peer, or the loss of the connection."""
        assert self.meeting
        try:
            message = heard.result()
        except PeerClosed as end:
            if self.meeting.stream.version == 1:
                raise
            if not self.resumable:
                raise Truncated from None
            # Without a port this end must stay reachable, for a server that wants an exchange.
            self._idle = isinstance(end, Idle) and self._links.port != 0
            self._audit("idle" if self._idle else "lost", text=str(end))
            self._lose()
        else:
            self._receive(message)

    def _receive(self, message: bytes) -> None:
        try:
            self._renewing.receive(message)
        except ExchangeError as error:
            if not (error.from_peer and error.code == "resume" and self.resumable):
                raise
            self._audit("lost", text=error.text)  # the peer did not accept the proofs of this end
            self._lose()

    def _in_effect(self, count: int, wish: int, not_after: dt.datetime) -> None:
        self._pause = PAUSE_LEAST
        self._renewed(count, wish, not_after)

    def _lose(self) -> None:
        self._abandon()
        self._renewing.lost()
        if self.meeting:
            self.meeting.drop()
        self._absence = PAUSE_LEAST
        self.meeting, self._look_at = None, time.monotonic() + self._absence

    def _resumed(self, meeting: Meeting, peers: Resume) -> None:
        self.attach(meeting)
        self._idle = False
        self._renewing.resumed(peers.count)
        self._audit("resumed")

    async def _again(self, first: float) -> tuple[Meeting, Resume]:
        """As client, connect to the peer until it proves that it has the session. As server, wake
        the client until it resumes, which cancels this. Raises Goodbye once no QP is left."""
        await asyncio.sleep(first)
        for turn in itertools.count():
            if not self._idle:
                await asyncio.sleep(self._pause * random.uniform(0.5, 1))
                self._pause = min(2 * self._pause, PAUSE_MOST)
            self._idle = False
            if self.ended():
                raise Goodbye
            known = [each for each in (self.record.agent, self.record.address) if each and each[1]]
            if not known:  # of the agent of a client
                continue
            address = known[turn % len(known)]
            self._resuming = True
            try:
                async with asyncio.timeout(RESUME_TIMEOUT):
                    if self.record.agreement.role == "client":
                        return await self._dial(address)
                    await self._wake(address)
                    continue
            except PeerClosed:
                text = "the peer closed the connection"
            except TimeoutError:
                text = f"no answer in {RESUME_TIMEOUT:g} s"
            except ExchangeError as error:
                text = error.text
            finally:
                self._resuming = False
            self._audit("lost", text=text)
        raise AssertionError("not reached")

    # The end that connects -----------------------------------------------------

    async def _dial(self, address: Address) -> tuple[Meeting, Resume]:
        """One attempt. Raises ExchangeError, PeerClosed, Goodbye."""
        own, resumption = self._own(), self._resumption
        peer = self.record.agreement.identity
        meeting = await self._links.meet(own, address, peer, avoid=self._avoid)
        self._avoid = None
        try:
            self._check_peer(meeting)
            mine = resumption.message(meeting.stream, self.count)
            meeting.stream.send(encode(mine))
            peers = _resume_in(await meeting.hear())
            resumption.withdraw(resumption.check(meeting.stream, peers))
        except ExchangeError as error:
            self._avoid = meeting  # another host may have the session
            await meeting.fail(error)
            raise
        except BaseException:
            meeting.drop()  # no CLOSED: the peer may have resumed the session already
            raise
        return meeting, peers

    async def _wake(self, address: Address) -> None:
        """Ask the client to resume. Raises ExchangeError, PeerClosed."""
        peer = self.record.agreement.identity
        meeting = await self._links.meet(self._own(), address, peer)
        if meeting.stream.version > 1:
            meeting.stream.send(encode(Wake(self.record.agreement.hash)))
        meeting.drop()

    def wake(self) -> None:
        """The server wants an exchange. Raises ExchangeError (`rate`)."""
        if not self._wakes.take(time.monotonic()):
            raise ExchangeError("rate", "WAKE too often")
        self._woken = True
        self._news.set()

    def _wake_up(self) -> None:
        """Resume at once, unless this end has a connection or waits for the peer's RESUME."""
        self._woken = False
        if self.meeting or self._resuming or not self._renewing.given:
            return
        self._abandon()
        self._idle, self._pause = True, PAUSE_LEAST
        self._redial = asyncio.ensure_future(self._again(0.0))

    def _check_peer(self, meeting: Meeting) -> None:
        expected = self.record.agreement.identity
        if meeting.stream.version == 1:
            raise ExchangeError("resume", "the peer has only srdma/1 now, which cannot resume")
        if meeting.identity != expected:
            raise ExchangeError(
                "identity",
                f"the peer is {meeting.identity} now: the session is with {expected}",
                told="this end has a session with another identity",
            )

    # The other end -------------------------------------------------------------

    def offer(self, meeting: Meeting, peers: Resume) -> None:
        """A peer wants to resume this session; the upkeep owns the meeting from now on.

        Raises ExchangeError (`rate`): the worker checks each proof.
        """
        if not self._offers.take(time.monotonic()):
            raise ExchangeError("rate", "RESUME too often: at most one per second")
        if self._offer:
            self._offer[0].drop()
        self._offer = meeting, peers
        self._news.set()

    def may_resume(self, meeting: Meeting) -> bool:
        """True if a peer and this session have the same identities."""
        record, own = self.record, self._own().credentials.identity
        return (meeting.uri, meeting.identity) == (own, record.agreement.identity)

    def _check_offer(self) -> None:
        """Check the peer's RESUME. If it is right, the present connection is dropped."""
        assert self._offer
        (meeting, peers), self._offer = self._offer, None
        try:
            waiting = self._resumption.check(meeting.stream, peers)
        except ExchangeError as error:
            self._audit("refused", code=error.code, text=error.text)
            self._refuse(meeting, error)
            return
        except BaseException:
            meeting.drop()
            raise
        if self._proved:
            self._proved[0].drop()
        self._proved = meeting, peers
        self._lose()
        self._resumption.withdraw(waiting)

    def _refuse(self, meeting: Meeting, error: ExchangeError) -> None:
        """Tell one peer at a time about its error, without waiting for it."""
        if self._refusing and not self._refusing.done():
            meeting.drop()
        else:
            self._refusing = asyncio.ensure_future(meeting.fail(error))

    def _answer_offer(self) -> bool:
        """Answer a right RESUME, as soon as REKEY tx of a lost exchange is complete."""
        if not self._proved or not self._renewing.given:
            return False
        meeting, peers = self._proved
        meeting.stream.send(encode(self._resumption.message(meeting.stream, self.count)))
        self._proved = None
        self._resumed(meeting, peers)
        return True


class Sessions:
    """The sessions that a peer may resume, by transcript hash."""

    def __init__(self) -> None:
        self._by_hash: dict[tuple[bytes, Role], Upkeep] = {}  # and role of this end
        self._places: dict[Upkeep, str] = {}  # where its peer was last
        self._at: Counter[str] = Counter()  # sessions of an address

    def add(self, upkeep: Upkeep) -> None:
        self._by_hash[_key(upkeep)] = upkeep
        self.moved(upkeep)

    def remove(self, upkeep: Upkeep) -> None:
        if self._by_hash.get(_key(upkeep)) is upkeep:
            del self._by_hash[_key(upkeep)]
        self._place(upkeep, "")

    def moved(self, upkeep: Upkeep) -> None:
        """The record of a session may name another address. No effect before add()."""
        if self._by_hash.get(_key(upkeep)) is upkeep:
            self._place(upkeep, (upkeep.record.address or ("", 0))[0])

    def know(self, address: str) -> bool:
        """True if the peer of a session was last at this IP address."""
        return address in self._at

    def _place(self, upkeep: Upkeep, address: str) -> None:
        if before := self._places.pop(upkeep, ""):
            self._at[before] -= 1
            if not self._at[before]:
                del self._at[before]
        if address:
            self._places[upkeep] = address
            self._at[address] += 1

    def wake(self, meeting: Meeting, transcript: bytes) -> None:
        """A server wants an exchange of a session. Raises ExchangeError as resume()."""
        self._found(meeting, transcript, "client").wake()
        meeting.drop()

    def resume(self, meeting: Meeting, peers: Resume) -> None:
        """Give a peer's RESUME to its session, which owns the meeting from now on.

        Raises ExchangeError: no session of these identities has this hash (`resume`), `rate`.
        """
        self._found(meeting, peers.hash, "server").offer(meeting, peers)

    def _found(self, meeting: Meeting, transcript: bytes, role: Role) -> Upkeep:
        upkeep = self._by_hash.get((transcript, role))
        if upkeep is None or not upkeep.may_resume(meeting):
            raise ExchangeError("resume", UNKNOWN)
        return upkeep


def _key(upkeep: Upkeep) -> tuple[bytes, Role]:
    return upkeep.record.agreement.hash, upkeep.record.agreement.role


def _forget(task: asyncio.Future[Any] | None) -> None:
    """Cancel a task, and drop its result or exception."""
    if task:
        task.cancel()
        task.add_done_callback(lambda task: task.cancelled() or task.exception())


def _resume_in(raw: bytes) -> Resume:
    """The RESUME in a server's first message. Raises ExchangeError."""
    match decode(raw):
        case Resume() as resume:
            return resume
        case ErrorMessage(code, text):
            raise ExchangeError(printable(code), printable(text), from_peer=True)
        case _:
            raise ExchangeError("state", "the peer answered RESUME by another message")
