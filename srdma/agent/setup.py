"""The first exchange of a session, from the peer's handshake to READY (protocol.md 8.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from srdma.agent.channel import Channel
from srdma.agent.meeting import Meeting
from srdma.agent.settings import Terms
from srdma.agent.tasks import cancelled, next_of
from srdma.agent.worker import Worker
from srdma.control import QPState
from srdma.errors import RefusedError
from srdma.keyex.exchange import (
    WAITING,
    Agreed,
    Derive,
    Event,
    Exchange,
    Install,
    Parameters,
    Send,
)
from srdma.keyex.fields import ExchangeError
from srdma.keyex.secrets import Secrets
from srdma.keyex.streams import CLOSED
from srdma.keyex.tls import PeerClosed
from srdma.wc import reason_name, reason_text

WORKER_ENDED = "the local worker ended"


class Setup:
    """waiting_for: for error texts."""

    def __init__(
        self,
        channel: Channel,
        terms: Terms,
        worker: Worker,
        keying: Callable[[Agreed], None],
        live: Callable[[], None],
    ) -> None:
        """keying(): called before the worker gets the keys; live(): called behind that, gives them
        their life (agent.md 5)."""
        self._channel, self._terms, self._worker = channel, terms, worker
        self._keying, self._live = keying, live
        self.waiting_for = "the peer's TLS handshake"
        self._installed = asyncio.Event()  # the worker may have the keys of the QPs
        self.answered = False  # the peer has sent a legal message
        self.exchange: Exchange | None = None
        self._meeting: Meeting | None = None
        self._secrets: Secrets | None = None

    @property
    def done(self) -> bool:
        return self.exchange is not None and self.exchange.done

    def forget(self) -> None:
        """Wipe the secrets of an unfinished exchange."""
        if self.exchange:
            self.exchange.forget()

    async def agree(self, meeting: Meeting) -> Exchange:
        """Run the exchange until the QPs of both ends are in RTS. Raises ExchangeError,
        PeerClosed, RefusedError."""
        worker, stream, terms = self._worker, meeting.stream, self._terms
        self._meeting = meeting
        self.exchange = exchange = Exchange(meeting.role, self._parameters(meeting))
        self._secrets = Secrets(
            worker.control, stream.export, exchange, terms.ends, meeting.identity
        )
        self.answered = False
        self._act(exchange.start())
        running = asyncio.ensure_future(self._running(worker))
        heard = meeting.hear()
        try:
            while not exchange.done:
                self.waiting_for = WAITING.get(exchange.state, "")
                waits: set[asyncio.Future[Any]] = {heard, worker.ended}
                done = await next_of(waits if running.done() else {*waits, running})
                if worker.ended in done:
                    raise ExchangeError("gone", WORKER_ENDED)
                if running in done:
                    running.result()
                    self._act(exchange.running())
                if heard in done:
                    message = heard.result()
                    if message == CLOSED and stream.version > 1:
                        raise PeerClosed
                    self._act(exchange.receive(message))
                    self.answered = True
                    heard = asyncio.ensure_future(stream.message())
        finally:
            heard.cancel()  # before any wait: a message that arrives now is one behind READY
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
        assert self.exchange and self._secrets and self._meeting
        for event in events:
            match event:
                case Send(data):
                    self._meeting.stream.send(data)
                case Agreed():
                    self._report_peer(self._meeting, event)
                case Derive(form):
                    self._act(self.exchange.derived(self._secrets.derive(form)))
                case Install(handover):
                    assert self.exchange.agreed
                    self._keying(self.exchange.agreed)
                    self._installed.set()
                    self._secrets.install(handover)
                    self._live()
                    self._act(self.exchange.keyed())

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
