"""When the first message of a stream, which the peer's agent refused, is repeated (protocol.md
8.7)."""

from __future__ import annotations

import random
from collections.abc import Mapping

from srdma.agent.meeting import Meeting
from srdma.keyex.fields import ExchangeError
from srdma.keyex.tls import Truncated

# Code of a refusal -> seconds until the message is repeated the first time.
TALK = {"stale": 0.0, "busy": 0.1}
OFFER = TALK | {"closed": 0.0}
_ENDED = {"rate": 0.1, "busy": 0.1, "idle": 0.0}  # the same, of an ERROR of the connection
_LONGEST = 10.0  # seconds
_FIRST = 1  # number of the stream for which a connection was made


def pause_after(
    meeting: Meeting, error: ExchangeError | Truncated, pauses: Mapping[str, float]
) -> float | None:
    """Seconds until the message is repeated, None if it is not; 0: in another connection."""
    if isinstance(error, ExchangeError):
        return pauses.get(error.code) if error.from_peer else None
    if error.error:  # streams of others may be the cause
        return _ENDED.get(error.error.code)
    return None if meeting.stream.number == _FIRST else 0.0


class Pauses:
    """Pauses of which each is twice as long as the one before."""

    def __init__(self) -> None:
        self._factor = 1.0

    def drawn(self, pause: float) -> float:
        """The next one of those that begin with `pause` seconds: at most 10 s, and 0 to half
        shorter at random, so that callers do not come together. A pause of 0 lengthens none."""
        if not pause:
            return 0.0
        drawn = min(self._factor * pause, _LONGEST) * random.uniform(0.5, 1)
        self._factor *= 2
        return drawn
