"""New secrets for QPs in RTS: the work of a connection after `ready` (protocol.md 8.5).

A `Renewing` drives the exchanges of `exchange_renew.py`. It carries the records of the inner TLS
connection in messages of the outer one, gives the new secrets to the local worker, and decides
when the next exchange starts. It never blocks: `step()` does all work that is due, and `wake` is
the time of the next call.

Calls of the worker are queued as jobs, because a worker may refuse them for a while (EBUSY, until
the peer uses the secrets of the previous REKEY). The last job of an exchange waits until both
directions of all QPs use the new secrets. The program's request is then reported as completed.

Clock (a) of agent.md 4 runs from the time at which new secrets are due until they are in effect,
whatever the reason for the delay, while the peer is reachable.

The outer connection may be lost, and another one may replace it (8.6): lost(), then attach() and
resumed(). Without one, no exchange starts, and the peer is not reachable.
"""

from __future__ import annotations

import datetime as dt
import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from cryptography import x509

from srdma.control import Direction
from srdma.errors import RefusedError
from srdma.identity import Credentials
from srdma.keyex.exchange import Send
from srdma.keyex.exchange_renew import (
    WAITING,
    Begin,
    Derive,
    Event,
    Feed,
    Give,
    Renewal,
    Say,
    Take,
    Wanted,
)
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import Rekey, encode
from srdma.keyex.pace import BURST, PEERS_BURST, Pace, Turns
from srdma.keyex.secrets import NewSecrets
from srdma.keyex.streams import Stream
from srdma.keyex.tls import Inner

EVERY = 3600.0  # seconds between exchanges, by default
RETRY = 0.01  # seconds until a call that was refused with EBUSY is repeated; they double
RETRY_MOST = 0.5
SLOW_RETRY = 1.0  # the same while there is no connection to the peer
LOOK, LOOK_LEAST = 5.0, 0.05  # seconds between two looks at whether the peer is reachable
NEVER = float("inf")
TOO_OFTEN = "the peer begins exchanges of new secrets too often: at most one per second"


@dataclass(frozen=True, slots=True)
class Times:
    """every: seconds between the starts of exchanges, 0: no periodic exchanges; limit: seconds
    from when new secrets are due until they must be in effect (agent.md 4)."""

    every: float
    limit: float


@dataclass(slots=True)
class Job:
    """Calls of the worker, each repeated while it is refused with EBUSY; done() follows the last.

    direction: of REKEY; BOTH: the wait at the end of an exchange. waiting_for: for error texts.
    secrets: owned; wiped after the last call.
    """

    direction: Direction
    calls: list[Callable[[], None]] = field(repr=False)  # their arguments are secrets
    waiting_for: str
    done: Callable[[], None]
    secrets: list[bytearray] = field(default_factory=list, repr=False)

    def wipe(self) -> None:
        for secret in self.secrets:
            secret[:] = bytes(len(secret))


class Clock:
    """Clock (a): counts the time that new secrets are overdue, while the peer is reachable."""

    __slots__ = ("_left", "_limit", "_looked", "_reachable")

    def __init__(self, limit: float, reachable: Callable[[], bool]) -> None:
        self._limit, self._reachable = limit, reachable
        self._left = NEVER  # seconds until new secrets must be in effect; NEVER: none are due
        self._looked = 0.0

    def start(self, now: float) -> None:
        """New secrets are due. No effect if they were already."""
        if self._left == NEVER:
            self._left, self._looked = self._limit, now

    @property
    def half_over(self) -> bool:
        return self._left <= self._limit / 2

    def stop(self) -> None:
        """The new secrets are in effect."""
        self._left = NEVER

    def ran_out(self, now: float) -> bool:
        if self._left == NEVER:
            return False
        if self._reachable():
            self._left -= min(now - self._looked, 2 * LOOK)  # this process may have been stopped
        self._looked = now
        return self._left <= 0

    def look(self, now: float) -> None:
        """The peer was not reachable until now."""
        self._looked = now

    @property
    def wake(self) -> float:
        """Time of the next call of ran_out(), at the latest when half of the limit is over."""
        if self._left == NEVER:
            return NEVER
        rest = self._left if self.half_over else self._left - self._limit / 2
        return self._looked + min(max(rest, LOOK_LEAST), LOOK)


class Presented(NamedTuple):
    """The certificates of an exchange. not_after: the earliest end of validity among those of both
    ends; peer: that of the peer."""

    not_after: dt.datetime
    peer: x509.Certificate


class Owner(Protocol):
    """A session, as far as its renewals use it."""

    def credentials(self) -> Credentials:
        """For the next exchange."""

    def began(self, count: int) -> None:
        """Exchange `count` begins. Nothing of it was sent."""

    def renewed(self, count: int, wish: int, presented: Presented) -> None:
        """Exchange `count`, which completes request `wish`, took effect; wish is 0 if no request
        waited for it. presented: in this exchange."""

    def ring(self) -> None:
        """Call step() soon."""


class Renewing:
    """See the description of the module."""

    __slots__ = (
        "_age", "_asked", "_clock", "_due", "_inner", "_jobs", "_newest", "_owner", "_pace",
        "_peers_pace", "_renewal", "_reported", "_retry", "_retry_at", "_secrets", "_serving",
        "_since", "_stream", "_times", "_turns", "_wanted", "quiet",
    )  # fmt: skip

    def __init__(
        self, renewal: Renewal, secrets: NewSecrets, times: Times, owner: Owner, turns: Turns
    ) -> None:
        """turns: of all sessions."""
        self._renewal, self._secrets, self._times = renewal, secrets, times
        self._owner, self._turns = owner, turns
        self._stream: Stream | None = None
        self.quiet = True  # no exchange was under way when the peer's last message arrived
        self._inner: Inner | None = None
        self._jobs: list[Job] = []
        self._retry, self._retry_at = RETRY, 0.0
        self._since = 0.0  # time since which an exchange is wanted
        self._clock = Clock(times.limit, self._reachable)
        self._due = NEVER  # start of the next periodic exchange
        self._age = 0  # ROTATE: replace K_PD if it is at least this old, seconds
        self._schedule(time.monotonic())
        self._wanted = self._asked = False
        self._pace, self._peers_pace = Pace(BURST), Pace(PEERS_BURST)
        # Numbers of the program's requests: newest, in the exchange under way, reported.
        self._newest = self._serving = self._reported = 0

    # Calls of the caller -----------------------------------------------------

    def attach(self, stream: Stream) -> None:
        """Use this outer connection from now on."""
        self._stream = stream
        self._clock.look(time.monotonic())

    def lost(self) -> None:
        """The outer connection is lost. An exchange under way is over, except that REKEY tx goes on
        if it began, because the peer's worker has the secret already."""
        self._clock.ran_out(time.monotonic())  # counts the time of the connection
        self._stream, self._inner = None, None
        self._renewal.lost()
        self._asked = False
        self._serving = self._reported  # requests that the exchange would have completed wait
        self._drop(Direction.RX)

    @property
    def given(self) -> bool:
        """False while REKEY tx of an exchange goes on after the loss of its connection."""
        return all(job.direction is not Direction.TX for job in self._jobs)

    @property
    def idle(self) -> bool:
        """True if no exchange is under way or due."""
        return self._renewal.idle and not self._jobs and not self._wanted

    @property
    def wanted(self) -> bool:
        """True if this end wants an exchange."""
        return self._wanted

    @property
    def count(self) -> int:
        """Number of the last exchange."""
        return self._renewal.count

    def resumed(self, count: int) -> None:
        """Both ends proved themselves in the connection of attach(); count: that of the peer's
        RESUME. An exchange is due at once, in place of the one that the loss ended."""
        self._drop(Direction.BOTH)
        self._renewal.resumed(count)
        if self._renewal.role == "client":
            self._want(time.monotonic())

    def wish(self, number: int) -> None:
        """The program requests an exchange that begins after this call."""
        self._newest = number
        self._want(time.monotonic())

    def receive(self, message: bytes) -> None:
        """Process a message of the peer. Raises ExchangeError."""
        assert self._stream
        self.quiet = self._renewal.idle and not self._jobs
        self._act(self._renewal.receive(message, self._stream.version))

    def step(self) -> None:
        """Do all work that is due. Raises ExchangeError if clock (a) ran out."""
        now = time.monotonic()
        if now >= self._due:
            self._want(now)
            self._due = NEVER  # until it begins: a short period must not wake the agent at once
        self._work(now)
        if self._clock.ran_out(now):
            raise ExchangeError(
                "timeout",
                f"no new secrets in {self._times.limit:g} s, waiting for {self._waiting_for()}",
            )
        if self._may_start:
            self._start(now)
        elif not self._waits and self._renewal.idle and self.given:
            self._turns.give(self)

    @property
    def _waits(self) -> bool:
        """True if the next step is the peer's, or needs a connection."""
        return self._asked or (self._wanted and self._stream is None)

    @property
    def under_way(self) -> bool:
        """True from the beginning of an exchange, or the request for one, until it took effect."""
        return self._asked or bool(self._jobs) or not self._renewal.idle

    @property
    def turn(self) -> bool:
        """True if this end may begin the exchange that it wants. Otherwise Owner.ring() follows.
        One that is overdue does not wait for others."""
        return self._turns.take(self, self._since, self._owner.ring) or self._clock.half_over

    @property
    def wake(self) -> float:
        """Time of the next call of step() without other events, time.monotonic() seconds."""
        retry = self._retry_at if self._jobs else NEVER
        paced = self._may_start and not self._turns.waits(self)
        start = self._pace.next if paced else NEVER
        clock = self._clock.wake if self._stream else NEVER
        return min(self._due, retry, clock, start)

    def forget(self) -> None:
        """Wipe all secrets that this object holds."""
        self._turns.give(self)
        self._renewal.forget()
        for job in self._jobs:
            job.wipe()

    # Timing -------------------------------------------------------------------

    def _schedule(self, now: float) -> None:
        every = self._times.every if self._secrets.agreement.renews else 0
        self._due = now + every if every else NEVER

    @property
    def _may_start(self) -> bool:
        """True if an exchange is wanted, and nothing but its pace delays it."""
        return self._wanted and self._stream is not None and not self.under_way

    def _start(self, now: float) -> None:
        if self._pace.next > now or not self.turn:
            return
        self._pace.take(now)
        if self._renewal.role == "client":
            self._act(self._renewal.begin())
        else:
            self._asked = True
            self._act(self._renewal.ask())

    def _begun(self) -> None:
        """An exchange began, at the request of either end: it completes all requests so far."""
        now = time.monotonic()
        unasked = self._renewal.role == "server" and not self._asked
        if unasked and not self._peers_pace.take(now):
            raise ExchangeError("rate", TOO_OFTEN)
        self._wanted = self._asked = False
        self._age = 0 if self._newest != self._serving else int((self._times.every or EVERY) / 2)
        self._serving = self._newest
        self._clock.start(now)
        self._schedule(now)
        self._inner = Inner(self._renewal.role, self._owner.credentials())
        self._owner.began(self._renewal.count)

    def _reachable(self) -> bool:
        return self._stream is not None and self._stream.reachable()

    def _want(self, now: float) -> None:
        if not self._wanted:
            self._since = now
        self._wanted = True
        self._clock.start(now)

    def _waiting_for(self) -> str:
        if not self._renewal.idle:
            return WAITING[self._renewal.state]
        return self._jobs[0].waiting_for if self._jobs else "the peer to begin the exchange"

    # Events -------------------------------------------------------------------

    def _act(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Send(data):
                    self._send(data)
                case Begin():
                    self._begun()
                    self._shake()
                case Feed(records):
                    self._feed(records)
                case Derive(form):
                    self._act(self._renewal.derived(self._secrets.derive(form, self._age)))
                case Say(data):
                    self._live.say(data)
                case Take():
                    self._take()
                case Give(handover):
                    made = self._secrets.sent(self._live.export, self._context, handover)
                    self._rekey(Direction.TX, made, lambda: None)
                    self._settle()
                case Wanted():
                    self._want(time.monotonic())
        self._flush()
        if self._renewal.idle:
            self._inner = None

    def _take(self) -> None:
        made = self._secrets.received(self._live.export, self._context)
        self._rekey(Direction.RX, made, lambda: self._act(self._renewal.taken()))

    def _feed(self, records: bytes) -> None:
        inner = self._live
        inner.feed(records)
        self._shake()
        while self._renewal.state != "shaking" and (message := inner.receive()) is not None:
            self._act(self._renewal.hear(message))

    def _shake(self) -> None:
        if self._renewal.state == "shaking" and (identity := self._live.shake()):
            self._act(self._renewal.shaken(identity))

    def _flush(self) -> None:
        while self._inner and (records := self._inner.records()):
            self._send(encode(Rekey(records)))

    def _send(self, message: bytes) -> None:
        assert self._stream
        self._stream.send(message)

    @property
    def _live(self) -> Inner:
        assert self._inner is not None
        return self._inner

    def _context(self, qp: int) -> bytes:
        return self._renewal.exporter_context(qp)

    # The local worker -----------------------------------------------------------

    def _rekey(
        self, direction: Direction, secrets: list[bytearray], done: Callable[[], None]
    ) -> None:
        """Queue REKEY for all QPs; for no QP if `secrets` is empty, because S stays (8.5)."""
        calls: list[Callable[[], None]] = [
            partial(self._secrets.give, number, direction, secret)
            for number, secret in enumerate(secrets)
        ]
        text = "the QPs to use the previous secrets"
        self._jobs.append(Job(direction, calls, text, done, secrets))

    def _settle(self) -> None:
        """Queue the wait until both directions of all QPs use the secrets of their last REKEY."""
        count, wish = self._renewal.count, self._serving
        agreement = self._secrets.agreement
        numbers = range(len(agreement.qpns)) if agreement.renews else ()
        calls: list[Callable[[], None]] = [
            partial(self._secrets.give, number, Direction.BOTH, bytearray()) for number in numbers
        ]
        text = "both directions of all QPs to use the new secrets"
        presented = Presented(self._live.not_after(), self._live.peer_certificate())
        done = partial(self._in_effect, count, wish, presented)
        self._jobs.append(Job(Direction.BOTH, calls, text, done))

    def _in_effect(self, count: int, wish: int, presented: Presented) -> None:
        self._clock.stop()
        if self._wanted or self._jobs or not self._renewal.idle:  # the next one is due already
            self._clock.start(time.monotonic())
        answered = wish if wish > self._reported else 0
        self._reported = max(wish, self._reported)
        self._owner.renewed(count, answered, presented)

    def _drop(self, direction: Direction) -> None:
        """Forget the jobs of a direction. Some of their calls may have been made."""
        for job in [job for job in self._jobs if job.direction is direction]:
            job.wipe()
            self._jobs.remove(job)

    def _work(self, now: float) -> None:
        while self._jobs:
            job = self._jobs[0]
            try:
                while job.calls:
                    job.calls[0]()
                    job.calls.pop(0)
                    self._retry = RETRY
            except RefusedError as error:
                if error.errno != errno.EBUSY:
                    raise
                # Without a connection no exchange waits for this one.
                slow = self._stream is None and job.direction is Direction.BOTH
                self._retry_at = now + (SLOW_RETRY if slow else self._retry)
                self._retry = min(2 * self._retry, RETRY_MOST)
                return
            job.wipe()
            self._jobs.pop(0)
            job.done()
