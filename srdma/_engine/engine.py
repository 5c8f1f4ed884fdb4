"""Posting, polling and waiting on one leg, for all QPs of its PD and all threads.

One lock protects the leg and the native Host. One of the waiting threads, the sleeper, sleeps on
the leg's file descriptor and the control socket, and delivers the completions of all threads; the
others wait on a condition variable.
The end of the control socket means that the worker ended: then every outstanding work request
completes with WORKER_GONE.
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
from srdma.native.leg import BATCH, Host, NativeLeg, ShmLeg, Work

LOOK_S = 1e-3  # interval of checks that the worker is alive, during busy polling
SPIN_S = 50e-6  # polling time before a thread sleeps: most completions arrive in this time

Record = tuple[int, ...]
Sink = Callable[[Record], None]


class Engine:
    """Posts, polls and waits for all QPs of a PD; owns the leg, but not the control connection.

    Methods take the lock, except those whose comment requires that the caller holds it.
    """

    def __init__(self, leg: Leg, control: Control) -> None:
        self._leg = leg
        self._host = Host(leg.ring)
        self._control = control
        self._lock = threading.RLock()
        self._cond = threading.Condition(self._lock)
        self._sinks: dict[int, Sink] = {}
        self._asleep = False
        self._waiting = 0  # threads in wait()
        self._looked = 0.0  # time of the last check of the worker, monotonic
        self._claimed = False
        self._closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller = select.poll()
        for fd in (leg.fileno(), control.fileno(), self._wake):
            self._poller.register(fd, select.POLLIN)

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """The lock, which is held while a sink runs; it protects state that sinks change."""
        return self._lock

    def fileno(self) -> int:
        return self._leg.fileno()

    @property
    def ended(self) -> bool:
        """True if the engine is closed, or the worker or the leg ended. poll() then delivers the
        failures."""
        with self._lock:
            if not self._closed:
                self._leg.poll()
            return self._closed or self._gone()

    def claim(self) -> None:
        """Reserve for an event loop: blocking calls are refused until unclaim().

        Raises LocalError if a thread waits in a blocking call.
        """
        with self._lock:
            if self._waiting:
                raise LocalError(
                    "a thread waits in a blocking call of this PD: use a separate PD for srdma.aio"
                )
            self._claimed = True

    def unclaim(self) -> None:
        with self._lock:
            self._claimed = False

    def check_unclaimed(self) -> None:
        """Raise LocalError if an event loop uses this engine; called before a blocking call."""
        if self._claimed:
            raise LocalError(
                "srdma.aio uses this PD: await its calls, or make a PD for the blocking ones"
            )

    def add(self, qpn: int, depths: tuple[int, int], sink: Sink) -> None:
        """Add a QP with depths (sq, rq). Its completions are passed to `sink`, under the lock.

        Raises LocalError for depths that are not legal.
        """
        with self._lock:
            rc = self._host.qp_add(qpn, *depths)
            if rc < 0:
                raise LocalError(f"QP 0x{qpn:06x} with depths {depths}: {os.strerror(-rc)}")
            self._sinks[qpn] = sink

    def remove(self, qpn: int) -> None:
        """Remove a QP after DESTROY; its outstanding requests make no completions any more."""
        with self._lock:
            self._sinks.pop(qpn, None)
            self._host.qp_remove(qpn)
            self._wake_all()

    def post(self, works: list[Work], first: int = 0) -> tuple[int, Exception | None]:
        """Post works[first:] in order. Returns (number posted, error that ended it or None)."""
        with self._lock:
            if self._closed:
                raise ClosedError("the PD is closed")
            posted, code = self._host.post_all(self._leg.native, works, first)
            return posted, post_error(-code) if code else None

    def poll(self) -> int:
        """Deliver the completions that arrived, without waiting. Returns their number."""
        with self._lock:
            return self._collect()

    def poll_again(self) -> int:
        """As poll(), for busy polling: it checks for the end of the worker every LOOK_S only."""
        with self._lock:
            taken = self._take()
            if taken or time.monotonic() - self._looked < LOOK_S:
                return taken
            return self._collect()

    def native(self) -> tuple[Host, NativeLeg]:
        """Host and data path of the leg, for a load generator, which holds the lock around its
        calls of them, and calls watch() from time to time."""
        return self._host, self._leg.native

    def watch(self) -> bool:
        """As look(), and handles events of the device."""
        self._leg.poll()
        return self.look()

    def shm(self) -> tuple[Host, ShmLeg]:
        """Host and leg for a load generator, which holds the lock around its calls of them."""
        if not isinstance(self._leg, ShmLeg):
            raise DeviceError("a load runs on a leg of shared memory: a worker with --host-dev shm")
        return self._host, self._leg

    def look(self) -> bool:
        """True if the worker ended; then every outstanding work request has failed.

        The caller holds the lock.
        """
        self._looked = time.monotonic()
        gone = self._gone()
        if gone:
            self._host.fail(REASON_WORKER_GONE)
        return gone

    def arm(self) -> bool:
        """To be called before sleeping on fileno(). True: do not sleep, completions arrived."""
        with self._lock:
            return not self._closed and (self._leg.arm() or self._collect() > 0)

    def drain(self) -> None:
        """To be called after sleeping on fileno()."""
        with self._lock:
            if not self._closed:
                self._leg.drain()

    def wait(self, done: Callable[[], bool], deadline: float | None = None) -> bool:
        """Deliver completions until done(). False at the deadline (monotonic), or after close()."""
        with self._lock:
            self.check_unclaimed()
            self._waiting += 1
            try:
                return self._spin(done) or self._wait(done, deadline)
            finally:
                self._waiting -= 1

    def close(self) -> None:
        """End every wait, then close the leg."""
        with self._lock:
            self._closed = True
            self._wake_all()
            while self._asleep:
                self._cond.wait()
            self._host.close()
            self._leg.close()
            os.close(self._wake)

    # The caller of the methods below holds the lock.

    def _wake_all(self) -> None:
        """Wake all waiting threads to check their conditions again."""
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
                try:  # a signal handler may raise directly after release()
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
        """Deliver what arrived; if nothing did, check for the end of the worker."""
        taken = self._take()
        if taken or self._closed or not self.look():
            return taken
        return self._take()

    def _take(self) -> int:
        """Deliver the completions that arrived, BATCH at most. Returns their number."""
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
    """The exception for a work request that was refused with this errno."""
    if number == errno.EAGAIN:
        return QueueFullError("the leg is full: poll completions, then post again")
    if number == errno.ENOSPC:
        return QueueFullError(
            "the queue is full: poll completions, post less, or make the QP deeper (sq, rq)"
        )
    if number == errno.ENOTCONN:
        return WorkerGone("the worker ended: start it, open a Context, connect again")
    if number == errno.EMSGSIZE:
        return LocalError(
            f"a message has at most {MAX_MESSAGE} bytes, inline data at most {MAX_INLINE}"
        )
    return LocalError("the QP is closed, or srdma-1 does not support the work request")
