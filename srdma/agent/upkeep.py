"""The upkeep of a session after READY: renewals, and other TLS connections in place of a lost one
(protocol.md 8.5, 8.6).

With srdma/2 a session survives its TLS connection: the client of the first exchange connects again,
and a listener finds the session of a peer that did, by `Sessions`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from srdma.agent.links import Links
from srdma.agent.meeting import Address, Meeting, agent_of
from srdma.agent.record import Record
from srdma.agent.resumption import REPLACED, UNKNOWN, Resumption
from srdma.agent.sessions import Sessions
from srdma.agent.settings import Identity
from srdma.agent.setup import WORKER_ENDED
from srdma.agent.tasks import Bell
from srdma.agent.worker import Worker
from srdma.identity import Credentials
from srdma.keyex.exchange import printable
from srdma.keyex.exchange_renew import Goodbye, Renewal
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, Resume, Wake, decode, encode
from srdma.keyex.pace import BURST, Pace, Turns
from srdma.keyex.renew import NEVER, Presented, Renewing
from srdma.keyex.secrets import NewSecrets
from srdma.keyex.streams import Idle
from srdma.keyex.tls import PeerClosed, Truncated

RESUME_TIMEOUT = 10.0  # seconds of one attempt to resume
PAUSE_LEAST, PAUSE_MOST = 1.0, 60.0  # seconds between two attempts
LOOK_LOST = 60.0  # seconds between two looks at whether QPs without a connection have ended


class House(Protocol):
    """The services that the sessions of an agent share."""

    sessions: Sessions
    links: Links
    turns: Turns


class Owner(Protocol):
    """The session of an upkeep."""

    def identity(self) -> Identity:
        """The own identity, as it is now."""

    def began(self, count: int) -> None:
        """See renew.Owner."""

    def renewed(self, count: int, wish: int, presented: Presented) -> None:
        """See renew.Owner."""

    def told(self, event: str, **fields: object) -> None:
        """An event for the audit."""

    def requests(self) -> float:
        """Process the requests of the program. Returns the time of the next call without news of
        the program. Raises Closed at the end of its channel, ExchangeError, Goodbye."""


class Upkeep:
    """meeting: the present connection, which the upkeep owns; None while it is lost. bell: wakes
    run(), also for requests of the program.

    quiet: no exchange was under way when the peer's last message arrived.
    """

    __slots__ = (
        "_absence", "_avoid", "_first", "_house", "_idle", "_look_at", "_offer", "_offers",
        "_owner", "_pause", "_proved", "_redial", "_renewing", "_resuming", "_wakes",
        "_wish", "_woken", "_worker", "bell", "meeting", "record", "resumable",
    )  # fmt: skip

    def __init__(
        self, record: Record, worker: Worker, owner: Owner, house: House, bell: Bell
    ) -> None:
        self.record, self._worker, self._owner, self._house = record, worker, owner, house
        self.bell = bell
        self.meeting: Meeting | None = None
        self._renewing = Renewing(
            Renewal(record.agreement, record.count),
            NewSecrets(worker.control, record.agreement, record.leg),
            record.times,
            self,
            house.turns,
        )
        self._wish = 0  # number of the program's newest request for new secrets; 0: taken
        # A peer's RESUME that is to be checked, and a checked one that is to be answered.
        self._offer: tuple[Meeting, Resume] | None = None
        self._proved: tuple[Meeting, Resume] | None = None
        self._redial: asyncio.Future[tuple[Meeting, Resume]] | None = None
        self._first = True  # no attempt to resume was made
        self._idle = False  # the connection was closed because nothing happened in it
        self._woken = False  # the server wants an exchange
        self._resuming = False  # an attempt to resume is under way
        self._avoid: Meeting | None = None  # of an attempt that was refused
        self._offers, self._wakes = Pace(BURST), Pace(BURST)  # of RESUMEs and WAKEs of the peer
        self._pause = PAUSE_LEAST  # before the next attempt to resume
        self._look_at = NEVER  # time of the next look at whether QPs without a connection ended
        self._absence = PAUSE_LEAST  # seconds between two of these looks
        self.resumable = False  # another connection may replace the present one

    @property
    def _resumption(self) -> Resumption:
        return Resumption(self._worker.control, self.record.agreement)

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
        self.bell.ring()

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
            del meeting  # this call outlives the connection
            if self.resumable:
                self._house.sessions.add(self)
            self._worker.ended.add_done_callback(self.bell.ring)
            self.bell.ring()
            while True:
                self._start(pause)
                await self.bell.wait(min(self._renewing.wake, self._look_at))
                self._work()
        finally:
            self._worker.ended.remove_done_callback(self.bell.ring)
            self._renewing.forget()  # first: this task may be cancelled below
            self._abandon()
            self._house.sessions.remove(self)
            for pending in (self._offer, self._proved):
                if pending:
                    pending[0].refuse(ExchangeError("resume", UNKNOWN))

    def attach(self, meeting: Meeting | None) -> None:
        """Use a connection from now on; None: a session that was adopted has none yet."""
        self.meeting = meeting
        version = meeting.stream.version if meeting else 2
        self.resumable = version > 1 and self.record.agreement.secret_size > 0
        if meeting:
            if self.record.agreement.role == "server":
                self.record = replace(self.record, address=(meeting.stream.link.address, 0))
                self._house.sessions.moved(self)
            self.record = replace(self.record, agent=agent_of(meeting) or self.record.agent)
            meeting.stream.parks = self._parks
            self._renewing.attach(meeting.stream)
            self._look_at = NEVER
            meeting.stream.replaceable = self.resumable
            meeting.stream.watch(self.bell.ring)
            self.bell.ring()  # messages may wait

    def _parks(self) -> bool:
        """True if the session needs no connection before an exchange is due."""
        return self.resumable and self._renewing.idle

    def _work(self) -> None:
        """Do all work that is due. Raises as run()."""
        if self._worker.ended.done():
            raise ExchangeError("gone", WORKER_ENDED)
        look_at = self._owner.requests()
        self._take()
        self._look_at = min(self._look_at, look_at)
        self._renewing.step()
        if self._answer_offer():
            self._renewing.step()

    def _start(self, pause: float) -> None:
        """Start to resume, if this end has to."""
        if not self._redial and self._resumes():
            self._redial_after(pause if self._first else 0.0)
            self._first = False

    def _redial_after(self, pause: float) -> None:
        self._redial = asyncio.ensure_future(self._again(pause))
        self._redial.add_done_callback(self.bell.ring)

    def _resumes(self) -> bool:
        """True if this end must connect to the peer: as client, unless the connection was idle and
        no exchange is due; as server if one is, to wake the client."""
        if self.meeting or not self._renewing.given:
            return False
        if self.record.agreement.role == "client" and not self._idle:
            return True
        return self._renewing.wanted and self._renewing.turn

    def _take(self) -> None:
        """Process what has arrived: a message, another connection, a wish, a RESUME."""
        if self.meeting:
            self._hear(self.meeting)
        if self._redial and self._redial.done():
            redial, self._redial = self._redial, None
            self._resumed(*redial.result())
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
        redial, self._redial = self._redial, None
        if redial and redial.done() and not redial.cancelled() and not redial.exception():
            redial.result()[0].drop()
        _forget(redial)
        if self.meeting:
            self.meeting.stream.watch(None)

    def _look(self) -> None:
        """Look from time to time whether QPs without a connection have ended. Raises Goodbye."""
        now = time.monotonic()
        if now >= self._look_at:
            self._absence = min(2 * self._absence, LOOK_LOST)
            self._look_at = NEVER if self.meeting else now + self._absence
            if not self.meeting and self.ended():
                raise Goodbye

    def _hear(self, meeting: Meeting) -> None:
        """Process a message of the peer, or the loss of the connection."""
        try:
            message = meeting.stream.take()
        except PeerClosed as end:
            if meeting.stream.version == 1:
                raise
            if not self.resumable:
                raise Truncated from None
            # Without a port this end must stay reachable, for a server that wants an exchange.
            self._idle = isinstance(end, Idle) and meeting.stream.link.port != 0
            self._owner.told("idle" if self._idle else "lost", text=str(end))
            self._lose()
            end.__traceback__ = None  # it refers to the connection, which has this exception
        else:
            if message is not None:
                self.bell.ring()  # more may wait
                self._receive(message)

    def _receive(self, message: bytes) -> None:
        try:
            self._renewing.receive(message)
        except ExchangeError as error:
            if not (error.from_peer and error.code == "resume" and self.resumable):
                raise
            self._owner.told("lost", text=error.text)  # the peer did not accept this end's proofs
            self._lose()

    # Calls of Renewing -----------------------------------------------------------

    def credentials(self) -> Credentials:
        return self._owner.identity().credentials

    def ring(self) -> None:
        self.bell.ring()

    def began(self, count: int) -> None:
        self._owner.began(count)

    def renewed(self, count: int, wish: int, presented: Presented) -> None:
        self._pause = PAUSE_LEAST
        self._owner.renewed(count, wish, presented)

    # RFC 5042 R5.4.5-2
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
        self._owner.told("resumed")

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
            self._owner.told("lost", text=text)
        raise AssertionError("not reached")

    # The end that connects -----------------------------------------------------

    async def _dial(self, address: Address) -> tuple[Meeting, Resume]:
        """One attempt. Raises ExchangeError, PeerClosed, Goodbye."""
        own, resumption = self._owner.identity(), self._resumption
        peer = self.record.agreement.identity
        user = self.record.uid
        meeting = await self._house.links.meet(own, address, peer, user=user, avoid=self._avoid)
        self._avoid = None
        try:
            self._check_peer(meeting)
            mine = resumption.message(meeting.stream, self.count)
            meeting.stream.send(encode(mine))
            peers = _resume_in(await meeting.stream.message())
            resumption.withdraw(resumption.check(meeting.stream, peers, self.count))
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
        peer, user = self.record.agreement.identity, self.record.uid
        meeting = await self._house.links.meet(self._owner.identity(), address, peer, user=user)
        if meeting.stream.version > 1:
            meeting.stream.send(encode(Wake(self.record.agreement.hash)))
        meeting.drop()

    def wake(self) -> None:
        """The server wants an exchange. Raises ExchangeError (`rate`)."""
        if not self._wakes.take(time.monotonic()):
            raise ExchangeError("rate", "WAKE too often")
        self._woken = True
        self.bell.ring()

    def _wake_up(self) -> None:
        """Resume at once, unless this end has a connection or waits for the peer's RESUME."""
        self._woken = False
        if self.meeting or self._resuming or not self._renewing.given:
            return
        self._abandon()
        self._idle, self._pause = True, PAUSE_LEAST
        self._redial_after(0.0)

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
        self.bell.ring()

    def may_resume(self, meeting: Meeting) -> bool:
        """True if a peer and this session have the same identities."""
        record, own = self.record, self.credentials().identity
        return (meeting.uri, meeting.identity) == (own, record.agreement.identity)

    def _check_offer(self) -> None:
        """Check the peer's RESUME. If it is right, the present stream ends. Its ERROR is for a
        client that has not given it up, because the RESUME came late."""
        assert self._offer
        (meeting, peers), self._offer = self._offer, None
        try:
            waiting = self._resumption.check(meeting.stream, peers, self.count)
        except ExchangeError as error:
            self._owner.told("refused", code=error.code, text=error.text)
            meeting.refuse(error)
            return
        except BaseException:
            meeting.drop()
            raise
        if self._proved:
            self._proved[0].drop()
        self._proved = meeting, peers
        if self.meeting:
            self.meeting.refuse(ExchangeError("resume", REPLACED))
        self._lose()
        self._resumption.withdraw(waiting)

    def _answer_offer(self) -> bool:
        """Answer a right RESUME, as soon as REKEY tx of a lost exchange is complete."""
        if not self._proved or not self._renewing.given:
            return False
        meeting, peers = self._proved
        meeting.stream.send(encode(self._resumption.message(meeting.stream, self.count)))
        self._proved = None
        self._resumed(meeting, peers)
        return True


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
