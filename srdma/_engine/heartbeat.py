"""A timer for the heartbeats of a leg over verbs (local-interface.md 2.4)."""

from __future__ import annotations

import contextlib
import ctypes
import os

_CLOCK_MONOTONIC = 1


class Ticker:
    """A file descriptor that is readable `first` seconds after restart(), and then every `period`.

    It wakes a program that sleeps on the leg (timerfd_create(2)), so that heartbeats are sent, and
    a lost worker is noticed.
    """

    def __init__(self, first: float, period: float) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = _check(self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        # struct itimerspec: period, first
        self._times = (ctypes.c_long * 4)(*_timespec(period), *_timespec(first))
        self.restart()

    def restart(self) -> None:
        _check(self._libc.timerfd_settime(self.fd, 0, self._times, None))

    def drain(self) -> None:
        """Make the descriptor unreadable until the next period has passed."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8)

    def close(self) -> None:
        os.close(self.fd)


def _timespec(seconds: float) -> tuple[int, int]:
    return divmod(round(seconds * 1e9), 10**9)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
