"""The time of day of this machine, and whether it is sane (agent.md 10)."""

from __future__ import annotations

import ctypes
import datetime as dt
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from srdma.identity import SKEW, Credentials, parse_certificates
from srdma.keyex.fields import ExchangeError

CLOCK = "clock"  # code of an error: the clock is not sane
PLAUSIBLE, SYNCHRONIZED, TRUSTED = "plausible", "synchronized", "trusted"
CONTROL = "control"
DEMANDS = PLAUSIBLE, SYNCHRONIZED, CONTROL, TRUSTED
TOLERANCE = 60  # seconds between the clocks of a NIC and its host
TOLD_MAX = 24 * 3600.0  # seconds for which the time that a host told counts
GRACE = 300  # seconds that the keys of a QP outlive the certificates (agent.md 5)

_TIME_ERROR, _STA_UNSYNC = 5, 0x0040  # adjtimex(2)


class _Timex(ctypes.Structure):
    """The first fields of struct timex, and room for the others."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


class SystemClock:
    """The clocks of the kernel."""

    def time(self) -> float:
        """Unix time, seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some time, never set."""
        return time.monotonic()

    def synchronized(self) -> bool:
        """True if a time service keeps the clock right (adjtimex). False if the kernel does not
        tell."""
        state = _Timex()
        result = ctypes.CDLL(None).adjtimex(ctypes.byref(state))
        return 0 <= result != _TIME_ERROR and not state.status & _STA_UNSYNC


class HostTime:
    """The time of day that each host told last (control-link.md 5)."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        # By name of the host: time of day at monotonic 0; when it came.
        self._told: dict[str, tuple[float, float]] = {}

    def told(self, host: str, epoch: float) -> None:
        """epoch: the host's time of day when the monotonic clock of this computer was 0."""
        self._told[host] = epoch, self._clock.monotonic()

    def check(self, host: str) -> None:
        """Raise ExchangeError (`clock`) unless this computer's time of day is that of the host."""
        now = self._clock.monotonic()
        epoch, at = self._told.get(host, (0.0, -inf))
        if now - at > TOLD_MAX:
            raise ExchangeError(
                CLOCK,
                f"host {host} did not tell the time in the last 24 h, which the policy demands: "
                "check its proxy, or set clock in the policy",
            )
        if abs(epoch + now - self._clock.time()) > TOLERANCE:
            why = f"more than {TOLERANCE} s from the time of host {host}"
            raise _wrong(self._clock.time(), why)


@dataclass(frozen=True)
class ClockRule:
    """The demands of an agent on the clock before a handshake.

    files: the clock is not sane before the time at which one of them was written. host: for the
    demand CONTROL, teller: its name.
    """

    demand: str = PLAUSIBLE
    files: tuple[Path, ...] = ()
    clock: SystemClock = field(default_factory=SystemClock)
    host: HostTime | None = None
    teller: str = ""

    def check(self, own: Credentials) -> None:
        """Raise ExchangeError (`clock`) unless the clock is sane for a handshake with these."""
        if self.demand == TRUSTED:
            return
        now = self.clock.time()
        begin = parse_certificates(own.cert, "the certificate")[0].not_valid_before_utc
        if now < begin.timestamp():
            raise _wrong(now, f"before the notBefore of the own certificate, {begin:%Y-%m-%d}")
        for file, written in _times((Path(__file__), *self.files)):
            if now < written - SKEW.total_seconds():
                raise _wrong(now, f"before {file} was written")
        if self.demand == CONTROL:
            assert self.host
            self.host.check(self.teller)
        if self.demand == SYNCHRONIZED and not self.clock.synchronized():
            raise ExchangeError(
                CLOCK,
                "the clock of this machine is not synchronized (adjtimex), which the policy "
                "demands: start a time service, or set clock in the policy",
            )


class Validity:
    """The end of the certificates of a session, in monotonic time: a clock that is set back does
    not move it."""

    __slots__ = ("_ahead", "_clock", "_end")

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._ahead = float("-inf")  # the most by which the time of day was ahead of the monotonic
        self._end = float("inf")

    def checked(self, not_after: dt.datetime) -> None:
        """Certificates were checked whose earliest end is this."""
        self._ahead = max(self._ahead, self._clock.time() - self._clock.monotonic())
        self._end = not_after.timestamp() - self._ahead

    def left(self) -> float:
        """Seconds until the keys of the QPs have to end; not positive if that is over."""
        return self._end + GRACE - self._clock.monotonic()


def _wrong(now: float, why: str) -> ExchangeError:
    try:
        shown = f"{dt.datetime.fromtimestamp(now, dt.UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError):
        shown = f"{now:g} s"
    return ExchangeError(CLOCK, f"the clock of this machine is wrong: {shown} is {why}: set it")


def _times(files: Iterable[Path]) -> Iterable[tuple[Path, float]]:
    """The files that exist, and when they were written."""
    for file in files:
        try:
            yield file, file.stat().st_mtime
        except OSError:
            continue
