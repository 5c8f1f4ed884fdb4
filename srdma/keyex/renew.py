"""New secrets while the QPs run: what `program.py` does after `ready` (protocol.md 8.5).

A `Renewing` drives the exchanges that `exchange_renew.py` describes: it carries the records of the
inner TLS connection in messages of the outer one, gives the own worker what comes of them, and
knows when it is time for the next. It never waits: `step()` does what can be done, and says when
it wants to be called again.

What goes to the worker stands in a queue of jobs, because a worker may refuse for a while (EBUSY,
until the peer has taken up what was given last). The last job of an exchange waits until both
directions of all QPs use what it brought; then who wished for it is told.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

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
from srdma.keyex.messages import ExchangeError, Rekey, encode
from srdma.keyex.secrets import NewSecrets
from srdma.keyex.tls import Channel, Inner

EVERY = 3600.0  # seconds
RETRY = 0.01  # of what a worker refused with EBUSY
NEVER = float("inf")


@dataclass(frozen=True)
class Times:
    """every: seconds from exchange to exchange, 0: none by the clock; limit: for one."""

    every: float
    limit: float


@dataclass
class Job:
    """Calls of the worker, each of which may be refused with EBUSY; then done()."""

    calls: deque[Callable[[], None]]
    deadline: float
    done: Callable[[], None]
    secrets: list[bytearray] = field(default_factory=list, repr=False)

    def wipe(self) -> None:
        for secret in self.secrets:
            secret[:] = bytes(len(secret))


class Renewing:
    """See the module's text. renewed(count, wish): an exchange took effect that serves a wish."""

    def __init__(
        self,
        renewal: Renewal,
        secrets: NewSecrets,
        tls: tuple[Channel, Credentials],
        times: Times,
        renewed: Callable[[int, int], None],
    ) -> None:
        self._renewal, self._secrets, self._times = renewal, secrets, times
        self._channel, self._credentials = tls
        self._renewed = renewed
        self.quiet = True  # no exchange was under way when the peer spoke last
        self._inner: Inner | None = None
        self._jobs: deque[Job] = deque()
        self._retry_at = 0.0
        self._limit = NEVER  # when the exchange under way has to be done
        self._due = NEVER
        self._age = 0  # of a K_PD that is rotated
        self._schedule(time.monotonic())
        self._wanted = self._asked = False
        self._wish = self._serving = self._told = 0  # numbers of the parent's wishes

    # What the caller does ----------------------------------------------------

    def wish(self, number: int) -> None:
        """The parent wants an exchange that begins after this."""
        self._wish, self._wanted = number, True

    def receive(self, message: bytes) -> None:
        """A message of the peer. Raises ExchangeError."""
        self.quiet = self._renewal.idle and not self._jobs
        self._act(self._renewal.receive(message))

    def step(self) -> None:
        """Whatever is to be done. Raises ExchangeError at the end of the exchange's time."""
        now = time.monotonic()
        if now >= self._due:
            self._wanted = True
            self._schedule(now)
        self._work(now)
        if not self._renewal.idle and now >= self._limit:
            self._too_late(WAITING[self._renewal.state])
        if self._wanted and self._renewal.idle and not self._jobs:
            self._start()

    @property
    def wake(self) -> float:
        """When step() is to be called again, if nothing else happens."""
        retry = self._retry_at if self._jobs else NEVER
        return min(self._due, retry, NEVER if self._renewal.idle else self._limit)

    def forget(self) -> None:
        """Wipe what is here of secrets."""
        self._renewal.forget()
        for job in self._jobs:
            job.wipe()

    # When ---------------------------------------------------------------------

    def _schedule(self, now: float) -> None:
        every = self._times.every if self._secrets.has_any else 0
        self._due = now + every if every else NEVER

    def _start(self) -> None:
        if self._renewal.role == "client":
            self._act(self._renewal.begin())
        elif not self._asked:
            self._asked = True
            self._act(self._renewal.ask())

    def _begun(self) -> None:
        """An exchange began, whoever wanted it: it serves all wishes up to now."""
        now = time.monotonic()
        self._wanted = self._asked = False
        self._age = 0 if self._wish != self._serving else int((self._times.every or EVERY) / 2)
        self._serving = self._wish
        self._limit = now + self._times.limit
        self._schedule(now)
        self._inner = Inner(self._renewal.role, self._credentials)

    def _too_late(self, what: str) -> None:
        raise ExchangeError(
            "timeout", f"no new secrets in {self._times.limit:g} s, waiting for {what}"
        )

    # What ---------------------------------------------------------------------

    def _act(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Send(data):
                    self._channel.send(data)
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
                    self._wanted = True
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
            self._channel.send(encode(Rekey(records)))

    @property
    def _live(self) -> Inner:
        assert self._inner is not None
        return self._inner

    def _context(self, qp: int) -> bytes:
        return self._renewal.exporter_context(qp)

    # The own worker -------------------------------------------------------------

    def _rekey(
        self, direction: Direction, secrets: list[bytearray], done: Callable[[], None]
    ) -> None:
        """REKEY for all QPs, or for none where their secrets stay."""
        calls = [
            partial(self._secrets.give, number, direction, secret)
            for number, secret in enumerate(secrets)
        ]
        self._jobs.append(Job(deque(calls), self._limit, done, secrets))

    def _settle(self) -> None:
        """Until both directions of all QPs use what they were given."""
        count, wish = self._renewal.count, self._serving
        numbers = range(len(self._secrets.first.ends)) if self._secrets.has_any else ()
        calls = [
            partial(self._secrets.give, number, Direction.BOTH, bytearray()) for number in numbers
        ]
        self._jobs.append(Job(deque(calls), NEVER, partial(self._tell, count, wish)))

    def _tell(self, count: int, wish: int) -> None:
        """Only of what was wished for: nobody may be reading."""
        if wish > self._told:
            self._told = wish
            self._renewed(count, wish)

    def _work(self, now: float) -> None:
        while self._jobs:
            job = self._jobs[0]
            try:
                while job.calls:
                    job.calls[0]()
                    job.calls.popleft()
            except RefusedError as error:
                if error.errno != errno.EBUSY:
                    raise
                if now >= job.deadline:
                    self._too_late("the last ones to be taken up")
                self._retry_at = now + RETRY
                return
            job.wipe()
            self._jobs.popleft()
            job.done()
