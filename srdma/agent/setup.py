"""The first exchange of a session, from the peer's handshake to READY (protocol.md 8.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from srdma.agent import repeat
from srdma.agent.channel import Channel
from srdma.agent.meeting import Meeting
from srdma.agent.settings import Terms
from srdma.agent.tasks import Bell
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
from srdma.keyex.offers import To
from srdma.keyex.secrets import Secrets
from srdma.keyex.streams import CLOSED
from srdma.keyex.tls import PeerClosed, Truncated
from srdma.wc import reason_name, reason_text

WORKER_ENDED = "the local worker ended"


class Setup:
    """waiting_for: for error texts. to: of a rendezvous."""

    def __init__(
        self,
        channel: Channel,
        terms: Terms,
        worker: Worker,
        keying: Callable[[Agreed], int],
    ) -> None:
        """keying(): called before the worker gets the keys; returns the seconds that they live
        (agent.md 5)."""
        self._channel, self._terms, self._worker = channel, terms, worker
        self._keying = keying
        self.to: To | None = None
        self.waiting_for = "the peer's TLS handshake"
        self.answered = False  # the peer has sent a legal message
        self.exchange: Exchange | None = None
        self._meeting: Meeting | None = None
        self._secrets: Secrets | None = None
        self._bell = Bell()
        self._left: list[int] = []  # QPNs that are to reach RTS, the next one last
        self._reached: asyncio.Future[tuple[Any, ...]] | None = None  # the end of the wait for it

    @property
    def done(self) -> bool:
        return self.exchange is not None and self.exchange.done

    def forget(self) -> None:
        """Wipe the secrets of an unfinished exchange."""
        if self.exchange:
            self.exchange.forget()

    def pause(self, meeting: Meeting, error: ExchangeError | Truncated) -> float | None:
        """See repeat.pause_after()."""
        if self.answered or meeting.stream.version == 1:
            return None
        return repeat.pause_after(meeting, error, repeat.OFFER)

    async def agree(self, meeting: Meeting) -> Exchange:
        """Run the exchange until the QPs of both ends are in RTS. Raises ExchangeError,
        PeerClosed, RefusedError."""
        worker, stream, terms = self._worker, meeting.stream, self._terms
        self._meeting = meeting
        self.exchange = exchange = Exchange(meeting.role, self._parameters(meeting))
        self._secrets = Secrets(
            worker.control, stream.export, exchange, terms.ends, meeting.identity, meeting.uri
        )
        self.answered = False
        stream.watch(self._bell.ring)
        worker.ended.add_done_callback(self._bell.ring)
        try:
            self._act(exchange.start())
            while not exchange.done:
                self.waiting_for = WAITING.get(exchange.state, "")
                if worker.ended.done():
                    raise ExchangeError("gone", WORKER_ENDED)
                if not self._advanced(exchange, meeting):
                    await self._bell.wait()
        finally:
            stream.watch(None)
            worker.ended.remove_done_callback(self._bell.ring)
            if self._reached:
                self._reached.cancel()
        return exchange

    def _advanced(self, exchange: Exchange, meeting: Meeting) -> bool:
        """Process one message of the peer, or that a QP is in RTS. False if nothing is there."""
        if self._reached and self._reached.done():
            reached, self._reached = self._reached, None
            self._check(self._left.pop(), reached)
            if self._left:
                self._await_next()
            else:
                self._act(exchange.running())
            return True
        message, decoded = meeting.take()
        if message is None:
            return False
        if message == CLOSED and meeting.stream.version > 1:
            raise PeerClosed
        self._act(exchange.receive(message, decoded))
        self.answered = True
        return True

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
            to=self.to,
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
                    life = self._keying(self.exchange.agreed)
                    self._secrets.install(handover, life)
                    self._left = [end.qpn for end in reversed(self._terms.ends)]
                    self._await_next()
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

    def _await_next(self) -> None:
        self._reached = self._worker.wait(self._left[-1])
        self._reached.add_done_callback(self._bell.ring)

    @staticmethod
    def _check(qpn: int, reached: asyncio.Future[tuple[Any, ...]]) -> None:
        """Raise ExchangeError unless a QP is in RTS."""
        try:
            state, reason = reached.result()
        except RefusedError as error:
            raise ExchangeError("worker", str(error)) from None
        if QPState(state) is not QPState.RTS:
            raise ExchangeError(
                "worker",
                f"QP {qpn:#08x} went to error: {reason_name(reason)}, {reason_text(reason)}",
            )
