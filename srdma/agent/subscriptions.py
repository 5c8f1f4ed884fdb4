"""The members of multicast groups at other hosts, as their agents tell them (protocol.md 8.10,
agent.md 14). One stream to a host serves all programs with an identity that use a group."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NoReturn

from srdma import gid as gids
from srdma.agent import repeat
from srdma.agent.links import AGE_MAX, STALE, Links
from srdma.agent.meeting import Meeting
from srdma.agent.memberships import Use
from srdma.agent.peers import Peer
from srdma.agent.settings import Identity
from srdma.keyex.exchange import printable
from srdma.keyex.fields import ExchangeError
from srdma.keyex.groups import MEMBERS_MAX, Ask, Members
from srdma.keyex.messages import ErrorMessage, decode, encode
from srdma.keyex.pace import Pace
from srdma.keyex.streams import CLOSED
from srdma.keyex.talks import QPN_BIT
from srdma.keyex.tls import PeerClosed

ROUND = 5.0  # seconds for which a use waits for the answers of hosts
ANSWER = 10.0  # seconds of an attempt to reach a host, with its first answer
AGAIN = 0.1  # seconds before a host is asked again, at first
AGAIN_FINAL = 30.0  # the same after an error of FINAL
LASTED = 10.0  # seconds of a stream after which the pauses begin with AGAIN
KEPT = 15.0  # seconds for which members at a host without a stream stay known
HEARD = 128, 0.05  # MEMBERS of a peer at once, and seconds for one more in the long run
INBOX = 65_536  # bytes of MEMBERS that may wait
# Codes of errors after which a host has no members, and will not have any soon.
FINAL = {"identity", "policy", "version", "format", "value", "state", "rate"}


class Subscriptions:
    """All subscriptions of an agent."""

    def __init__(
        self,
        audit: Callable[..., None],
        peer_at: Callable[[bytes], Peer],
        links: Links,
        gid: Callable[[], bytes],
    ) -> None:
        """peer_at: see Peers.at(). gid: of the worker of this agent, or gids.NONE."""
        self.peer_at, self.links = peer_at, links
        self._audit, self._gid = audit, gid
        # By GID of the host, and by the identity, the group and the own GID.
        self._all: dict[bytes, dict[tuple[str, bytes, bytes], Subscription]] = {}
        self._failing: set[bytes] = set()  # GIDs of hosts whose failure was audited

    @contextlib.contextmanager
    def of(self, use: Use) -> Iterator[list[asyncio.Future[None]]]:
        """A program uses a group: report its members at each host. Gives what is done when a host
        has told those of now."""
        key = use.own().name, use.group, self._gid()
        try:
            yield [self._at(host, key).added(use) for host in use.entry.hosts]
        finally:
            for host in use.entry.hosts:
                self._remove(host, key, use)

    def have(self, gid: bytes, port: int) -> bool:
        """True if the port of a talk is that of a UD QP that is known as a member."""
        found = self._all.get(gid, {}).values() if port & QPN_BIT else ()
        return any(port ^ QPN_BIT in each.members for each in found)

    def policy_changed(self) -> None:
        """End the streams to hosts that may not have their GID or identity any more."""
        for each in [each for at in self._all.values() for each in at.values()]:
            each.policy_changed()

    def failed(self, gid: bytes, error: ExchangeError | PeerClosed) -> None:
        """A host cannot be asked. The first failure since its last answer is audited."""
        if gid not in self._failing:
            self._failing.add(gid)
            code, text = getattr(error, "code", "lost"), str(error) or "the connection ended"
            self._audit("failed", gid=gids.text_of(gid), code=code, text=text)

    def answered(self, gid: bytes) -> None:
        self._failing.discard(gid)

    # Internal ---------------------------------------------------------------

    def _at(self, host: bytes, key: tuple[str, bytes, bytes]) -> Subscription:
        at = self._all.setdefault(host, {})
        if key not in at:
            _, group, own_gid = key
            at[key] = Subscription(self, Ask(group, own_gid, host))
            at[key].task.add_done_callback(self._over)
        return at[key]

    def _remove(self, host: bytes, key: tuple[str, bytes, bytes], use: Use) -> None:
        """Forget a use, and a subscription without one."""
        at = self._all.get(host, {})
        if key in at and not at[key].removed(use):
            at.pop(key).task.cancel()
            if not at:
                del self._all[host]

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()):
            self._audit("fault", text=f"{type(fault).__name__}: {fault}")


class Subscription:
    """The members of a group at a host, as its agent tells them to one identity.

    members: the QPNs.
    """

    def __init__(self, all_of_agent: Subscriptions, ask: Ask) -> None:
        self._all, self._ask = all_of_agent, ask
        self.members: tuple[int, ...] = ()
        self._uses: dict[Use, tuple[int, ...]] = {}  # and the QPNs that their programs know
        self._told: tuple[int, ...] = ()  # by the last stream
        self._former: tuple[int, ...] = ()  # by the last one that was lost
        self._forgets: asyncio.TimerHandle | None = None  # _former
        self._meeting: Meeting | None = None  # the last one
        self._asks = self._answered = 0  # number of ASKs in its stream, and of those answered
        self._silent_since: float | None = time.monotonic()  # None: the host answers
        # Of uses that wait for the answer to the last question, and to the next one.
        self._asked: list[asyncio.Future[None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self.task = asyncio.ensure_future(self._run())

    def added(self, use: Use) -> asyncio.Future[None]:
        """Report the members to a program from now on. Returns what is done when the host has told
        those of now. It is done at once if the host has not answered for ROUND seconds."""
        self._uses[use] = ()
        self._report(use)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        since = self._silent_since
        if since is not None and time.monotonic() - since >= ROUND:
            answer.set_result(None)
        else:
            self._waiting.append(answer)
            self._question()
        return answer

    def removed(self, use: Use) -> bool:
        """False if no use is left."""
        self._uses.pop(use, None)
        if not self._uses and self._forgets:
            self._forgets.cancel()
        return bool(self._uses)

    def policy_changed(self) -> None:
        """Check the host again, and the programs that learn of it."""
        meeting, gid = self._meeting, self._ask.gid
        if meeting and meeting.stream.connected():
            try:
                self._all.peer_at(gid).check(gid, meeting.identity, meeting.certificate)
                self._own().check(meeting.identity)
            except ExchangeError as error:
                meeting.stream.fail(error)
        self._changed()

    # Internal ---------------------------------------------------------------

    async def _run(self) -> None:
        """Ask the host until the last use ends."""
        pauses = repeat.Pauses()
        avoid: Meeting | None = None
        while True:
            begun_at = time.monotonic()
            try:
                await self._subscribe(avoid)
                avoid = None
                continue
            except (ExchangeError, PeerClosed) as error:
                avoid = self._meeting if _is_stale(error) and avoid is None else None
                if avoid:
                    continue
                pause = self._lost(error)
            if self._answered and time.monotonic() - begun_at >= LASTED:
                pauses = repeat.Pauses()
            await asyncio.sleep(pause or pauses.drawn(AGAIN))

    async def _subscribe(self, avoid: Meeting | None) -> None:
        """Ask once, and hear the host until its connection is too old for a new question. Raises
        ExchangeError, PeerClosed."""
        self._asks = self._answered = 0
        try:
            async with asyncio.timeout(ANSWER) as limit:
                self._meeting = await self._met(avoid)
                await self._serve(self._meeting, limit)
        except TimeoutError:
            if not self._answered:
                raise ExchangeError("timeout", f"no answer in {ANSWER:g} s") from None

    async def _met(self, avoid: Meeting | None) -> Meeting:
        """A stream to the host, by the rights of the oldest use."""
        own, gid, user = self._own(), self._ask.gid, next(iter(self._uses)).channel.uid
        rule, links = self._all.peer_at(gid), self._all.links
        await links.check_groups(own, gid, rule, user=user, avoid=avoid)
        return await links.meet_gid(own, gid, rule, user=user)

    async def _serve(self, meeting: Meeting, limit: asyncio.Timeout) -> NoReturn:
        """limit: for the first answer; then until the connection is old."""
        meeting.stream.most, meeting.stream.replaceable = INBOX, True
        pace = Pace(*HEARD)
        try:
            self._send()
            await self._hear(meeting, pace)
            self._all.answered(self._ask.gid)
            now = asyncio.get_running_loop().time()
            limit.reschedule(now + max(AGE_MAX - meeting.stream.link.age, 0))
            while True:
                await self._hear(meeting, pace)
        except ExchangeError as error:
            await meeting.fail(error)
            raise
        finally:
            await meeting.stream.close()

    async def _hear(self, meeting: Meeting, pace: Pace) -> None:
        """The next message of the host. Raises ExchangeError, PeerClosed."""
        message = await meeting.stream.message()
        if message == CLOSED:
            raise PeerClosed
        match decode(message):
            case Members(qpns, asks):
                if not pace.take(time.monotonic()):
                    raise ExchangeError("rate", "too many MEMBERS")
                if not 0 <= self._asks - asks <= 1:
                    raise ExchangeError("value", f"asks is {asks} after {self._asks} ASK")
                self._learned(qpns, asks)
            case ErrorMessage(code, text):
                raise ExchangeError(printable(code), printable(text), from_peer=True)
            case _:
                raise ExchangeError("state", "the answers to ASK are MEMBERS and ERROR only")

    def _question(self) -> None:
        """Send ASK for the uses that wait, once the one before was answered."""
        live = self._meeting and self._meeting.stream.connected()
        if live and self._waiting and self._answered == self._asks:
            self._send()

    def _send(self) -> None:
        assert self._meeting
        self._asked += self._waiting
        self._waiting = []
        self._asks += 1
        self._meeting.stream.send(encode(self._ask))

    def _learned(self, qpns: tuple[int, ...], asks: int) -> None:
        assert self._meeting
        self._told, self._identity = qpns, self._meeting.identity
        self._silent_since = None
        self._changed()
        if asks == self._asks:
            self._answered = asks
            _resolve(self._asked)
            self._question()

    def _lost(self, error: ExchangeError | PeerClosed) -> float | None:
        """There is no stream. Members stay known for KEPT seconds, unless the error is final.
        Returns the pause after a final one."""
        self._all.failed(self._ask.gid, error)
        if isinstance(error, ExchangeError) and error.code in FINAL:
            self._silent_since = float("-inf")
            self._told = self._former = ()
            self._changed()
            _resolve(self._asked)
            _resolve(self._waiting)
            return AGAIN_FINAL
        if self._silent_since is None:
            self._silent_since = time.monotonic()
        if self._told:
            self._former, self._told = self._told, ()
            if self._forgets:
                self._forgets.cancel()
            self._forgets = asyncio.get_running_loop().call_later(KEPT, self._forget)
        return None

    def _forget(self) -> None:
        self._former = ()
        self._changed()

    def _changed(self) -> None:
        """Tell the programs what they do not know: MEMBERS_MAX at most, former ones last."""
        former = [qpn for qpn in self._former if qpn not in self._told]
        self.members = tuple(sorted([*self._told, *former][:MEMBERS_MAX]))
        for use in self._uses:
            self._report(use)

    def _report(self, use: Use) -> None:
        qpns = self.members if self.members and use.permits(self._identity) else ()
        if qpns != self._uses[use]:
            self._uses[use] = qpns
            data = b"".join(qpn.to_bytes(4, "big") for qpn in qpns)
            use.channel.report("members", gid=self._ask.gid, data=data)

    def _own(self) -> Identity:
        """The identity of the uses, with the peers that the policy permits."""
        return replace(next(iter(self._uses)).own(), allowed=())


def _is_stale(error: ExchangeError | PeerClosed) -> bool:
    """True if the host found its connection too old for a question."""
    return isinstance(error, ExchangeError) and error.from_peer and error.code == STALE


def _resolve(answers: list[asyncio.Future[None]]) -> None:
    """Let the uses that wait go on."""
    for answer in answers:
        answer.set_result(None)
    answers.clear()
