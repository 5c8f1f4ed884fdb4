"""Messages of a talk, from the program to the peer and back (agent.md 13)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NoReturn

from srdma.agent import repeat
from srdma.agent.calls import Begun, Calls
from srdma.agent.channel import Channel
from srdma.agent.meeting import Meeting
from srdma.agent.tasks import RESTART, TOLD, WITHDRAWN, Bell, Closed, Watched
from srdma.keyex.exchange import printable
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, decode, encode
from srdma.keyex.streams import CLOSED
from srdma.keyex.talks import Say, Talk, say_of
from srdma.keyex.tls import PeerClosed, Truncated

SAYS_MAX = 16  # of each end, in a talk
ABSENT_REPEATS, ABSENT_PAUSE = 3, 0.1  # of TALK, if no program serves the port

Meet = Callable[[Meeting | None], Awaitable[Meeting]]


class Dialogue:
    """A talk of the program of a channel. It runs in one task."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._begun: Begun | None = None  # the call of this program
        self._bell = Bell()
        self._said = self._heard = self._absent = 0
        self._pauses, self._absences = repeat.Pauses(), repeat.Pauses()
        self._answered: Callable[[], None] | None = None  # None: this program called the peer

    async def call(self, talk: Talk, calls: Calls, meet: Meet) -> None:
        """Call the peer, and serve the talk until its end. TALK is repeated as an OFFER is
        (protocol.md 8.7).

        calls: of the user. meet: makes a stream, in another connection than that of a former
        meeting. Raises ExchangeError.
        """
        former: Meeting | None = None
        pause = 0.0
        while True:
            meeting = await self._met(calls, partial(meet, former), pause)
            if meeting is None:
                return
            meeting.stream.send(encode(talk))
            try:
                await self._run(meeting)
                return
            except (ExchangeError, Truncated) as error:
                again = self._again(meeting, error)
                if again is None or (not again and former):
                    raise _told(error) from None
                pause = again
            finally:
                if self._begun:
                    self._begun.end(failed=True)
            former = None if pause else meeting

    async def answer(self, meeting: Meeting, answered: Callable[[], None]) -> None:
        """Serve a talk that the peer began, until its end. Raises ExchangeError.

        answered: called once, when the program says something or the talk ends.
        """
        self._answered = answered
        self._channel.report("talking")
        try:
            await self._run(meeting)
        except Truncated as error:
            raise _told(error) from None
        finally:
            if not self._said:
                answered()

    # Internal ---------------------------------------------------------------

    async def _met(
        self, calls: Calls, meet: Callable[[], Awaitable[Meeting]], pause: float
    ) -> Meeting | None:
        """A stream to the peer; None if the program closed the channel."""
        watched = Watched(self._check_open)
        self._channel.watch(watched.news)
        try:
            with watched:
                await asyncio.sleep(pause)
                self._begun = await calls.begin()
                try:
                    return await meet()
                except BaseException:
                    self._begun.end(failed=False)
                    raise
        except Closed:
            return None
        finally:
            self._channel.watch(None)

    def _check_open(self) -> None:
        if self._channel.ended:
            raise Closed

    async def _run(self, meeting: Meeting) -> None:
        """Serve the talk until its end. Raises ExchangeError, Truncated."""
        self._channel.watch(self._bell.ring)
        meeting.stream.watch(self._bell.ring)
        try:
            await self._relay(meeting)
        except Closed:
            await meeting.stream.close()
        except Truncated:
            meeting.drop()
            raise
        except PeerClosed:
            meeting.drop()
            self._channel.report("closed")
        except ExchangeError as error:
            await meeting.fail(error)
            raise
        except asyncio.CancelledError as end:
            if WITHDRAWN in end.args:
                await meeting.fail(ExchangeError("policy", WITHDRAWN, told=TOLD))
            elif RESTART in end.args:
                meeting.drop()
            else:
                await meeting.stream.close()
            raise
        finally:
            self._channel.watch(None)

    async def _relay(self, meeting: Meeting) -> NoReturn:
        while True:
            while self._from_peer(meeting) or self._from_program(meeting):
                pass
            if self._channel.ended:
                raise Closed
            await self._bell.wait()

    def _from_program(self, meeting: Meeting) -> bool:
        """Pass one message of the program on. False: none is there."""
        if (message := self._channel.take()) is None:
            return False
        match message:
            case {"do": "say", "data": bytes(data), **rest} if not rest:
                if not self._answered and not self._heard:
                    raise ExchangeError("config", "the peer of this talk has not answered yet")
                if self._answered and not self._said:
                    self._answered()
                self._said += 1
                if self._said > SAYS_MAX:
                    raise ExchangeError("config", f"more than {SAYS_MAX} messages in a talk")
                meeting.stream.send(encode(say_of({"say": data})))
                return True
            case _:
                raise ExchangeError(
                    "config", "a malformed request: it must be {'do': 'say', 'data': bytes}"
                )

    def _from_peer(self, meeting: Meeting) -> bool:
        """Pass one message of the peer on. False: none is there."""
        message = meeting.stream.take()
        if message is None:
            return False
        if message == CLOSED:
            raise PeerClosed
        match decode(message):
            case Say(data):
                if self._answered and not self._said:
                    raise ExchangeError("state", "SAY came before the answer")
                if self._begun:
                    self._begun.end(failed=False)
                self._heard += 1
                if self._heard > SAYS_MAX:
                    raise ExchangeError("state", f"more than {SAYS_MAX} SAY in a talk")
                self._channel.report("heard", data=data)
                return True
            case ErrorMessage(code, text):
                raise ExchangeError(printable(code), printable(text), from_peer=True)
            case _:
                raise ExchangeError("state", "a talk has SAY, CLOSED and ERROR only")

    def _again(self, meeting: Meeting, error: ExchangeError | Truncated) -> float | None:
        """Seconds until TALK is repeated; see repeat.pause_after()."""
        if self._heard:
            return None
        if isinstance(error, ExchangeError) and error.from_peer and error.code == "closed":
            self._absent += 1
            again = ABSENT_PAUSE if self._absent <= ABSENT_REPEATS else None
            return again and self._absences.drawn(again)
        again = repeat.pause_after(meeting, error, repeat.TALK)
        return again and self._pauses.drawn(again)


def _told(error: ExchangeError | Truncated) -> ExchangeError:
    """For the program."""
    if isinstance(error, ExchangeError):
        return error
    return error.error or ExchangeError("lost", f"the connection of the talk ended: {error}")
