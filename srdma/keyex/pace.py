"""The rate of exchanges of a session (protocol.md 8.5). Time is an argument."""

from __future__ import annotations

EVERY = 1.0  # seconds per exchange in the long run
BURST = 10  # exchanges at once that an end begins, or asks for
PEERS_BURST = 2 * BURST  # that a client may begin unasked; more than BURST, for an agent's restart


class Pace:
    """Permits `burst` events at once, and one per EVERY seconds in the long run."""

    def __init__(self, burst: int) -> None:
        self._room = (burst - 1) * EVERY
        self._paid = float("-inf")  # time up to which the events so far would last

    def take(self, now: float) -> bool:
        """Count an event. False, without effect, if it comes too early."""
        paid = max(self._paid, now)
        if paid - now > self._room:
            return False
        self._paid = paid + EVERY
        return True

    @property
    def next(self) -> float:
        """Time from which take() permits an event."""
        return self._paid - self._room
