"""Posting, polling and waiting on one leg, for all QPs of its PD and all threads.

One lock is around the leg and the host. Of the threads that wait, one sleeps on
the leg's descriptor and the control socket (the sleeper) and hands out what
arrives; the others wait for it. A worker that is gone shows as the end of the
control socket: then every outstanding work request ends with WORKER_GONE.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from srdma._engine.leg import Leg
from srdma.control import Control
from srdma.errors import ClosedError, DeviceError, Error, LocalError, QueueFullError, WorkerGone
from srdma.native.constants import MAX_INLINE, MAX_MESSAGE, REASON_WORKER_GONE
from srdma.native.leg import BATCH, Host, ShmLeg, Work

LOOK_S = 1e-3  # between looks whether the worker is there
SPIN_S = 50e-6  # of polling before a thread sleeps: most answers come in this time

Record = tuple[int, ...]
Sink = Callable[[Record], None]


class Engine:
    """Everything but `lock` and what says so takes the lock itself."""

    def __init__(self, leg: Leg, control: Control) -> None:
        self._leg = leg
        self._host = Host(leg.ring)
        self._control = control
        self._lock = threading.RLock()
        self._cond = threading.Condition(self._lock)
        self._sinks: dict[int, Sink] = {}
        self._asleep = False
        self._waiting = 0  # threads in wait()
        self._looked = 0.0  # when the worker was there last, monotonic
        self._claimed = False
        self._closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller = select.poll()
        for fd in (leg.fileno(), control.fileno(), self._wake):
            self._poller.register(fd, select.POLLIN)

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """Held while a sink runs; for state that sinks change."""
        return self._lock

    def fileno(self) -> int:
        return self._leg.fileno()

    @property
    def ended(self) -> bool:
        """True once nothing more can come."""
        with self._lock:
            return self._closed or self._gone()

    def claim(self) -> None:
        """For an event loop: no thread may wait until unclaim()."""
        with self._lock:
            if self._waiting:
                raise LocalError(
                    "a thread waits in a blocking call of this PD: use a PD of its own "
                    "for srdma.aio"
                )
            self._claimed = True

    def unclaim(self) -> None:
        with self._lock:
            self._claimed = False

    def check_unclaimed(self) -> None:
        """Before a blocking call."""
        if self._claimed:
            raise LocalError(
                "srdma.aio uses this PD: await its calls, or make a PD for the blocking ones"
            )

    def add(self, qpn: int, depths: tuple[int, int], sink: Sink) -> None:
        """A QP; its completions go to sink, under the lock."""
        with self._lock:
            rc = self._host.qp_add(qpn, *depths)
            if rc < 0:
                raise LocalError(f"QP 0x{qpn:06x} with depths {depths}: {os.strerror(-rc)}")
            self._sinks[qpn] = sink

    def remove(self, qpn: int) -> None:
        """After DESTROY; what was outstanding is forgotten."""
        with self._lock:
            self._sinks.pop(qpn, None)
            self._host.qp_remove(qpn)
            self._wake_all()

    def post(self, works: list[Work], first: int = 0) -> tuple[int, Exception | None]:
        """Hand work requests to the worker, in order, from number `first` on.

        How many it were, and why not all.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the PD is closed")
            if isinstance(self._leg, ShmLeg):
                posted, code = self._host.post_all(self._leg, works, first)
            else:
                posted, code = self._post_slots(works, first)
                self._leg.flush()
            return posted, post_error(-code) if code else None

    def _post_slots(self, works: list[Work], first: int) -> tuple[int, int]:
        for number in range(first, len(works)):
            slot = self._leg.slot()
            used = -errno.EAGAIN if slot is None else self._host.post(works[number], slot)
            if used < 0:
                return number - first, used
            self._leg.post(used)
        return len(works) - first, 0

    def poll(self) -> int:
        """Hand out what arrived, without waiting. Returns how many completions."""
        with self._lock:
            return self._collect()

    def poll_again(self) -> int:
        """The same, for who does it all the time: the end of the worker shows after LOOK_S."""
        with self._lock:
            taken = self._take()
            if taken or time.monotonic() - self._looked < LOOK_S:
                return taken
            return self._collect()

    def shm(self) -> tuple[Host, ShmLeg]:
        """For what posts and polls itself at full speed; the lock is held around its calls."""
        if not isinstance(self._leg, ShmLeg):
            raise DeviceError("a load runs on a leg of shared memory: a worker with --host-dev shm")
        return self._host, self._leg

    def look(self) -> bool:
        """True if the worker is gone; then every outstanding work request has failed.

        The caller holds the lock.
        """
        self._looked = time.monotonic()
        gone = self._gone()
        if gone:
            self._host.fail(REASON_WORKER_GONE)
        return gone

    def arm(self) -> bool:
        """Before the caller sleeps on fileno(). True: something arrived; do not."""
        with self._lock:
            return not self._closed and (self._leg.arm() or self._collect() > 0)

    def drain(self) -> None:
        """After the caller slept on fileno()."""
        with self._lock:
            if not self._closed:
                self._leg.drain()

    def wait(self, done: Callable[[], bool], deadline: float | None = None) -> bool:
        """Hand out what arrives until done() or the deadline (monotonic): False then."""
        with self._lock:
            self.check_unclaimed()
            self._waiting += 1
            try:
                return self._spin(done) or self._wait(done, deadline)
            finally:
                self._waiting -= 1

    def close(self) -> None:
        """Ends every wait. The leg is closed too."""
        with self._lock:
            self._closed = True
            self._wake_all()
            while self._asleep:
                self._cond.wait()
            self._host.close()
            self._leg.close()
            os.close(self._wake)

    # All below: with the lock.

    def _wake_all(self) -> None:
        """Something ended that threads may wait for."""
        os.eventfd_write(self._wake, 1)
        self._cond.notify_all()

    def _wait(self, done: Callable[[], bool], deadline: float | None) -> bool:
        while not done():
            left = None if deadline is None else deadline - time.monotonic()
            if self._closed or (left is not None and left <= 0):
                return False
            if self._asleep:
                self._cond.wait(left)
            else:
                self._sleep(left)
        return True

    def _spin(self, done: Callable[[], bool]) -> bool:
        end = time.perf_counter() + SPIN_S
        while True:
            self._take()
            if done():
                return True
            if self._asleep or time.perf_counter() > end:
                return False
            os.sched_yield()

    def _sleep(self, left: float | None) -> None:
        self._asleep = True
        try:
            if not self._leg.arm() and not self._collect():
                try:  # a signal's handler may raise right behind release()
                    self._cond.release()
                    self._poller.poll(None if left is None else left * 1000 + 1)
                finally:
                    self._cond.acquire()
            if not self._closed:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
                self._leg.drain()
                self._collect()
        finally:
            self._asleep = False
            self._cond.notify_all()

    def _collect(self) -> int:
        """What arrived, or the end of the worker."""
        taken = self._take()
        if taken or self._closed or not self.look():
            return taken
        return self._take()

    def _take(self) -> int:
        """What arrived."""
        if self._closed:
            return 0
        self._leg.poll()
        records = self._host.poll(BATCH)
        for record in records:
            sink = self._sinks.get(record[1])
            if sink is not None:
                sink(record)
        if records:
            if self._host.owes:
                self._credit()
            self._cond.notify_all()
        return len(records)

    def _gone(self) -> bool:
        return bool(self._leg.closed) or not self._control.alive()

    def _credit(self) -> None:
        slot = self._leg.slot()
        used = self._host.credit(slot) if slot is not None else 0
        if used:
            self._leg.post(used)
            self._leg.flush()


def post_error(number: int) -> Error:
    """Why a work request with this errno was not taken."""
    if number == errno.EAGAIN:
        return QueueFullError("the leg is full: poll completions, then post again")
    if number == errno.ENOSPC:
        return QueueFullError(
            "the queue is full: poll completions, post less, or make the QP deeper (sq, rq)"
        )
    if number == errno.ENOTCONN:
        return WorkerGone("the worker is gone: start it, open a Context, connect again")
    if number == errno.EMSGSIZE:
        return LocalError(
            f"a message has at most {MAX_MESSAGE} bytes, at most {MAX_INLINE} as data of a WR"
        )
    return LocalError("the QP is closed, or its work request is not one of srdma-1")
