"""Heartbeats of a leg over verbs (local-interface.md 2.4): they find a worker that is lost."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os

from srdma.native.constants import LEG_BEAT_MS, LEG_SILENCE_MS

BEAT_S = LEG_BEAT_MS / 1000
SILENCE_S = LEG_SILENCE_MS / 1000

_CLOCK_MONOTONIC = 1


class Heartbeat:
    """Decides when a heartbeat is sent. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._sent = -math.inf
        self._under_way = False

    def due(self, now: float) -> bool:
        """True: the caller sends a heartbeat now."""
        if self._under_way or now - self._sent < BEAT_S:
            return False
        self._sent, self._under_way = now, True
        return True

    def acknowledged(self) -> None:
        """The heartbeat under way has completed."""
        self._under_way = False

    def lost(self, now: float) -> bool:
        """True: the heartbeat under way was not acknowledged in time."""
        return self._under_way and now - self._sent >= SILENCE_S


class Ticker:
    """A file descriptor that becomes readable periodically, every `seconds` (timerfd_create(2)).

    It wakes a program that sleeps on the leg, so that the next heartbeat is sent.
    """

    def __init__(self, seconds: float) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = _check(libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        whole, rest = divmod(round(seconds * 1e9), 10**9)
        times = (ctypes.c_long * 4)(whole, rest, whole, rest)  # struct itimerspec
        _check(libc.timerfd_settime(self.fd, 0, times, None))

    def drain(self) -> None:
        """Make the descriptor unreadable until the next period has passed."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8)

    def close(self) -> None:
        os.close(self.fd)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
