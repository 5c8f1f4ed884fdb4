"""A control connection to a worker on another computer (control-link.md 2.5).

It ends with the control link, or with the proxy or agent that carry it, while the leg goes on. A
thread then makes another one, as long as the worker keeps the leg.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from srdma.control import forked
from srdma.control.client import TIMEOUT, Control
from srdma.control.messages import Kind
from srdma.errors import (
    ClosedError,
    Error,
    IntegrityError,
    LocalError,
    RefusedError,
    Timeout,
    WorkerGone,
)
from srdma.native.constants import KEEP_LEGS

PAUSE = 0.25  # seconds between two attempts
LOOK = 1.0  # seconds between two looks at whether the object still exists
# Requests that may be sent twice. The others make something, which the program would not know.
ENDING = {Kind.DEREG_MR, Kind.DESTROY, Kind.UNINSTALL}
REPEATED = ENDING | {
    Kind.HELLO,
    Kind.ATTACH,
    Kind.STATS,
    Kind.REVOKE,
    Kind.WITHDRAW,
    Kind.MODIFY,
}


class LastingControl(Control):
    """See the description of the module.

    Calls wait for another connection while there is none. A request whose connection ends before
    its answer is repeated if that changes nothing; otherwise it raises Timeout.
    """

    def __init__(self, control: Control, again: Callable[[], Control]) -> None:
        """control: the first connection, which this owns from now on. again: makes another one.

        After LocalError, IntegrityError, EPERM of the worker and unknown exceptions again() is not
        called any more. Other errors of srdma, and OSError, may pass within KEEP_LEGS.
        """
        super().__init__(control.detach(), control.where)
        self._again = again
        self._over = os.eventfd(0, os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._over)
        self._state = threading.Condition()
        self._lost = self._gone = self._closed = False
        threading.Thread(target=_watch, args=(weakref.ref(self),), daemon=True).start()

    def fileno(self) -> int:
        """It is readable once alive() is False."""
        return self._over

    def alive(self) -> bool:
        """False once there is no hope for another connection."""
        return not self._gone

    def close(self) -> None:
        self._closed = True
        self.give_up()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # a request that is under way ends
        with self._lock:
            super().close()

    def request(
        self,
        kind: Kind,
        values: Sequence[Any] = (),
        fds: Sequence[int] = (),
        timeout: float = TIMEOUT,
    ) -> tuple[tuple[Any, ...], list[int]]:
        """See Control."""
        deadline = time.monotonic() + timeout
        repeated = False
        while True:
            self._wait_for_connection(kind, deadline)
            used = self._sock
            try:
                left = max(deadline - time.monotonic(), 0.001)
                return super().request(kind, values, fds, left)
            except WorkerGone as error:
                with self._state:
                    if self._closed:
                        raise ClosedError(f"the connection to {self.where} was closed") from error
                    if self._gone:
                        raise
                    if self._sock is used:  # _watch() notices it soon
                        self._lost = True
            except RefusedError as error:
                if repeated and kind in ENDING and error.errno == errno.ENOENT:
                    return (), []  # the first request had ended the object
                raise
            if kind not in REPEATED:
                raise Timeout(f"the link to the NIC ended during {kind.name}: try again")
            repeated = True

    def _wait_for_connection(self, kind: Kind, deadline: float) -> None:
        with self._state:
            while self._lost and not self._gone:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Timeout(f"no link to the NIC in time for {kind.name}: see its proxy")
                self._state.wait(left)

    # Calls of the thread --------------------------------------------------------

    def give_up(self) -> None:
        with self._state:
            if not self._gone:
                self._gone = True
                os.eventfd_write(self._over, 1)
                self._state.notify_all()

    def renew(self) -> None:
        """The connection ended: make another one, or give up."""
        with self._state:
            self._lost = True
        renewed = False
        try:
            renewed = self._renewed(time.monotonic() + KEEP_LEGS)
        finally:
            if not renewed:
                self.give_up()

    def _renewed(self, deadline: float) -> bool:
        """Make another connection. False if there is no hope for one."""
        while time.monotonic() < deadline and not self._gone:
            try:
                self._use(self._again())
                return True
            except (LocalError, IntegrityError):
                return False
            except (Error, OSError) as error:
                if isinstance(error, RefusedError) and error.errno == errno.EPERM:
                    return False  # the leg has ended
            with self._state:
                self._state.wait_for(lambda: self._gone, PAUSE)
        return False

    def _use(self, control: Control) -> None:
        sock = control.detach()
        forked.drop(sock)
        with self._lock:
            self._sock.close()
            self._sock = sock
            if self._gone:  # by close()
                sock.close()
        with self._state:
            self._lost = False
            self._state.notify_all()


def _watch(ref: weakref.ref[LastingControl]) -> None:
    """Renew a connection when it ends, until it is closed or dropped."""
    while (control := ref()) is not None and control.alive():
        fd = Control.fileno(control)
        del control
        if fd < 0:  # closed just now
            return
        poll = select.poll()
        poll.register(fd, select.POLLRDHUP)
        if poll.poll(LOOK * 1000) and (control := ref()) is not None:
            control.renew()
