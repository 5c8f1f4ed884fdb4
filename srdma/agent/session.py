"""One connection: TLS, key exchange, worker, then renewals until one side ends it (agent.md 2).

A session belongs to one channel. It ends with the channel, with the peer's close, with an error,
or with the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NoReturn

from srdma.agent.channel import Channel
from srdma.agent.settings import Identity, Terms
from srdma.agent.worker import Worker
from srdma.control import QPState
from srdma.errors import DeviceError, Error, RefusedError, Timeout, WorkerGone
from srdma.keyex.exchange import (
    WAITING,
    Agreed,
    Derive,
    Event,
    Exchange,
    Install,
    Parameters,
    Role,
    Send,
)
from srdma.keyex.exchange_renew import Renewal
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, encode
from srdma.keyex.policy import secret_size
from srdma.keyex.renew import NEVER, Renewing
from srdma.keyex.secrets import NewSecrets, Secrets, unless_ended
from srdma.keyex.tls import PeerClosed, Stream, Truncated
from srdma.native.constants import REASON_PEER_CLOSED, REASON_WIRE_LOST
from srdma.wc import reason_name, reason_text

GRACE = 300  # seconds that the keys of a QP outlive the certificates (agent.md 5)
LIFE_MAX = (1 << 31) - 1
WORKER_ENDED = "the local worker ended"
TOLD = "the other end withdrew the identity from its program"
# Messages of CancelledError, by Service.
WITHDRAWN = "the policy no longer grants the identity to this program"
RESTART = "the agent ends, and its QPs go on"


class Closed(Exception):  # noqa: N818 - an event, not a fault
    """The program closed the channel."""


class Meeting:
    """A TLS connection to a peer that may still have to authenticate."""

    def __init__(self, role: Role, stream: Stream) -> None:
        self.role, self.stream = role, stream
        self.identity = ""  # URI of the peer, once it is authenticated
        self.own = ""  # name of the own identity that it was authenticated for
        self.group = ""  # of the TLS key agreement
        self._heard: asyncio.Future[bytes] | None = None

    async def authenticate(self, own: Identity) -> None:
        """Complete the handshake, unless it is complete. Raises ExchangeError, PeerClosed."""
        if not self.identity:
            identity, self.group = await self.stream.handshake()
            own.check(identity)
            self.identity, self.own = identity, own.name

    def hear(self) -> asyncio.Future[bytes]:
        """The peer's first message, whose receipt begins at the first call."""
        self._heard = self._heard or asyncio.ensure_future(self.stream.message())
        return self._heard

    def drop(self) -> None:
        """Close the TCP connection at once."""
        if self._heard:
            self._heard.cancel()
        self.stream.drop()

    async def fail(self, error: ExchangeError) -> None:
        """Tell the peer about an error and close the connection."""
        if self._heard:
            await cancelled(self._heard)
        if error.from_peer:
            await self.stream.close()
        else:
            code = "identity" if error.code == "policy" else error.code  # protocol.md 8.1
            await self.stream.abort(encode(ErrorMessage(code, error.told)))


Meet = Callable[[], Coroutine[Any, Any, Meeting]]


class Session:
    """See the description of the module."""

    def __init__(
        self,
        channel: Channel,
        own: Callable[[], Identity],
        terms: Terms,
        audit: Callable[..., None],
    ) -> None:
        self._channel, self._own, self._terms = channel, own, terms
        self._audit = audit
        self._worker: Worker | None = None
        self._meeting: Meeting | None = None
        self._exchange: Exchange | None = None
        self._secrets: Secrets | None = None
        self._renewing: Renewing | None = None
        self._waiting_for = "the peer's TLS handshake"
        self._wish = 0  # number of the newest request for new secrets
        self._wished = asyncio.Event()
        self._installed = asyncio.Event()  # the worker has the keys of the QPs

    async def run(self, worker: Worker, peer: Meeting | Meet) -> None:
        """Run the exchange with the peer, then serve renewals until the end.

        peer: the meeting, which the session closes, or how to get one.
        """
        self._worker = worker
        self._meeting = peer if isinstance(peer, Meeting) else None
        meet = partial(_itself, peer) if isinstance(peer, Meeting) else peer
        try:
            await self._serve(worker, meet)
        except asyncio.CancelledError as end:
            if WITHDRAWN in end.args:
                await self._failed(ExchangeError("policy", WITHDRAWN, told=TOLD))
            elif RESTART in end.args and self._meeting:
                self._meeting.drop()
            else:
                await self._closed(Closed())
            raise
        except Exception:  # a fault of this program: no QP may go on without its clocks
            self._expire_qps()
            if self._meeting:
                self._meeting.drop()
            raise
        finally:
            if self._exchange:
                self._exchange.forget()
            if self._renewing:
                self._renewing.forget()

    async def _serve(self, worker: Worker, meet: Meet) -> None:
        try:
            await first_of(self._requests(), self._work(worker, meet))
        except Closed as end:
            # The program may close for the same reason, before this process has noticed it.
            if not worker.alive():
                await self._failed(ExchangeError("gone", WORKER_ENDED))
            else:
                await self._closed(end)
        except PeerClosed as end:
            await self._closed(end)
            if isinstance(end, Truncated) and self._renewing:
                await self._linger()
        except Error as error:
            await self._failed(error)

    # The ends of a session ---------------------------------------------------

    async def _closed(self, end: Exception) -> None:
        if self._meeting:
            await self._meeting.stream.close()
        if isinstance(end, Closed):  # the peer's QPs end too; those of this end may be destroyed
            self._end_qps(REASON_PEER_CLOSED)
        if isinstance(end, PeerClosed) and not (self._exchange and self._exchange.done):
            self._expire_qps()
            text = f"the peer closed while this end waited for {self._waiting_for}"
            self._channel.report("error", code="closed", text=text)
            return
        if isinstance(end, PeerClosed) and not isinstance(end, Truncated):
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

    def _expire_qps(self) -> None:
        """EXPIRE: no exchange can renew the keys of the QPs any more (protocol.md 8.5)."""
        self._each_qp(lambda worker, qpn: worker.control.expire(qpn))

    def _end_qps(self, reason: int) -> None:
        """END: the peer closed the connection or reported its end (protocol.md 7.5)."""
        self._each_qp(lambda worker, qpn: worker.control.end(qpn, reason))

    def _each_qp(self, call: Callable[[Worker, int], None]) -> None:
        assert self._worker
        if not self._installed.is_set() or not self._worker.alive():
            return
        with contextlib.suppress(DeviceError, Timeout):
            for end in self._terms.ends:
                with unless_ended():
                    call(self._worker, end.qpn)

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

    async def _work(self, worker: Worker, meet: Meet) -> NoReturn:
        terms = self._terms
        try:
            async with asyncio.timeout(terms.timeout):
                leg = await worker.attach(terms.token)
                self._meeting = meeting = await meet()
                await meeting.authenticate(self._own())
                exchange = await self._agree(meeting, worker)
        except Timeout:  # of a call of the worker
            raise
        except TimeoutError:
            raise ExchangeError(
                "timeout",
                f"the key exchange did not complete in {terms.timeout:g} s, waiting for "
                f"{self._waiting_for}",
            ) from None
        assert self._secrets is not None
        self._channel.report("ready")
        self._told("connected")
        renewing = Renewing(
            Renewal(exchange, meeting.identity),
            NewSecrets(self._secrets, leg),
            (meeting.stream, lambda: self._own().credentials),
            terms.times,
            self._renewed,
        )
        await self._renew(renewing, meeting.stream, worker)

    async def _agree(self, meeting: Meeting, worker: Worker) -> Exchange:
        """Run the first exchange until the QPs of both ends are in RTS."""
        stream = meeting.stream
        self._exchange = exchange = Exchange(meeting.role, self._parameters(meeting))
        self._secrets = Secrets(
            worker.control, stream.export, exchange, self._terms.ends, meeting.identity
        )
        self._act(exchange.start())
        running = asyncio.ensure_future(self._running(worker))
        heard = meeting.hear()
        try:
            while not exchange.done:
                self._waiting_for = WAITING.get(exchange.state, "")
                waits: set[asyncio.Future[Any]] = {heard, worker.ended}
                done = await next_of(waits if running.done() else {*waits, running})
                if worker.ended in done:
                    raise ExchangeError("gone", WORKER_ENDED)
                if running in done:
                    running.result()
                    self._act(exchange.running())
                if heard in done:
                    self._act(exchange.receive(heard.result()))
                    heard = asyncio.ensure_future(stream.message())
        finally:
            await cancelled(running)
            await cancelled(heard)
        return exchange

    def _parameters(self, meeting: Meeting) -> Parameters:
        own, peer = meeting.stream.certificate_hashes()
        terms = self._terms
        return Parameters(
            suites=terms.suites,
            modes=terms.modes,
            group=terms.group,
            random=terms.random,
            ends=terms.ends,
            data=terms.data,
            certificates=(own, peer) if meeting.role == "client" else (peer, own),
        )

    def _act(self, events: list[Event]) -> None:
        assert self._exchange and self._secrets and self._meeting
        for event in events:
            match event:
                case Send(data):
                    self._meeting.stream.send(data)
                case Agreed():
                    self._report_peer(self._meeting, event)
                case Derive(form):
                    self._act(self._exchange.derived(self._secrets.derive(form)))
                case Install(handover):
                    self._installed.set()
                    self._secrets.install(handover)
                    self._live()
                    self._act(self._exchange.keyed())

    def _report_peer(self, meeting: Meeting, agreed: Agreed) -> None:
        self._channel.report(
            "peer",
            identity=meeting.identity,
            data=agreed.data,
            suite=list(agreed.suite),
            mode=agreed.mode,
            trust_group=agreed.group,
            group=meeting.group,
        )

    async def _running(self, worker: Worker) -> None:
        """Wait until the worker reports RTS for every QP, or an error."""
        await self._installed.wait()
        for end in self._terms.ends:
            try:
                state, reason = await worker.wait(end.qpn)
            except RefusedError as error:
                raise ExchangeError("worker", str(error)) from None
            if state is not QPState.RTS:
                raise ExchangeError(
                    "worker",
                    f"QP {end.qpn:#08x} went to error: {reason_name(reason)}, "
                    f"{reason_text(reason)}",
                )

    # After `ready` -----------------------------------------------------------

    async def _renew(self, renewing: Renewing, stream: Stream, worker: Worker) -> NoReturn:
        """Renew secrets until the peer, the worker or the program ends the connection."""
        self._renewing = renewing
        heard = asyncio.ensure_future(stream.message())
        wished = asyncio.ensure_future(self._wished.wait())
        try:
            while True:
                done = await next_of({heard, wished, worker.ended}, renewing.wake)
                if worker.ended in done:
                    raise ExchangeError("gone", WORKER_ENDED)
                if heard in done:
                    renewing.receive(heard.result())
                    heard = asyncio.ensure_future(stream.message())
                if wished in done:
                    self._wished.clear()
                    wished = asyncio.ensure_future(self._wished.wait())
                    renewing.wish(self._wish)
                renewing.step()
        finally:
            await cancelled(heard)
            await cancelled(wished)

    def _renewed(self, count: int, wish: int) -> None:
        assert self._meeting
        self._own().check(self._meeting.identity)  # the policy may have changed
        self._live()
        self._told("renewed", count=count)
        if wish:
            self._channel.report("renewed", count=count, wish=wish)

    def _told(self, event: str, **fields: object) -> None:
        assert self._meeting
        self._audit(
            event,
            uid=self._channel.uid,
            own=self._own().name,
            peer=self._meeting.identity,
            role=self._meeting.role,
            qps=len(self._terms.ends),
            **fields,
        )

    def _has_secrets(self) -> bool:
        """False if no exchange changes S: at level none and in a trust group (8.5)."""
        assert self._exchange and self._exchange.agreed
        agreed = self._exchange.agreed
        return bool(secret_size(agreed.suite)) and not agreed.group

    def _live(self) -> None:
        """Give the secrets of the QPs a new life (agent.md 5).

        Raises RefusedError, WorkerGone: without its end no QP may go on.
        """
        assert self._meeting and self._worker
        left = (self._meeting.stream.not_after() - dt.datetime.now(dt.UTC)).total_seconds()
        age = self._terms.max_age if self._has_secrets() else LIFE_MAX
        seconds = min(age, left + GRACE, LIFE_MAX)
        for end in self._terms.ends:
            with unless_ended():
                self._worker.control.life(end.qpn, max(1, int(seconds)))


async def _itself(meeting: Meeting) -> Meeting:
    return meeting


async def first_of(*works: Coroutine[Any, Any, NoReturn]) -> NoReturn:
    """Run all; raise the exception of the first that ends, and cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        for task in await next_of({*tasks}):
            task.result()
    finally:
        for task in tasks:
            await cancelled(task)
    raise AssertionError("a task ended without an exception")


async def next_of(
    tasks: set[asyncio.Future[Any]], until: float = NEVER
) -> set[asyncio.Future[Any]]:
    """Wait for one of these, or for a time (time.monotonic() seconds); returns those that ended."""
    pause = None if until == NEVER else max(until - time.monotonic(), 0)
    done, _ = await asyncio.wait(tasks, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
    return done


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end. Its result, or the event that ended it, is dropped."""
    task.cancel()
    await asyncio.wait({task})  # not `await task`: this task may be cancelled too
    error = None if task.cancelled() else task.exception()
    if error and not isinstance(error, Error | PeerClosed | Closed):
        raise error
