"""A device: the worker of one NIC, reached by its control socket."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random

from srdma._engine.resource import Resource
from srdma.control import TIMEOUT, Control, HostKind, socket_path, thread_path
from srdma.errors import DeviceError, LocalError
from srdma.native.leg import counter_names

_PR_SET_PTRACER = 0x59616D61


class Context(Resource):
    """worker: path or name of a running worker; $SRDMA_WORKER where none is given.

    timeout: seconds for it to answer the first time.
    """

    def __init__(
        self, worker: str | os.PathLike[str] | None = None, *, timeout: float = TIMEOUT
    ) -> None:
        super().__init__()
        self.path = socket_path(worker)
        self._timeout = timeout
        self._control = Control.connect(self.path, timeout)
        try:
            self.hello = self._control.hello(timeout)
            if self.hello.thread:
                raise DeviceError(
                    f"{self.path} is of thread {self.hello.thread} of {self.hello.threads}: give "
                    "the path without the number, and PD(ctx, thread=...)"
                )
        except BaseException:
            self._control.close()
            raise
        if self.hello.host_kind == HostKind.SHM:
            _allow_process_vm(self.hello.pid)
        # Most processes have one PD: theirs shall not all be on the first thread.
        self._next = random.randrange(self.threads)

    @property
    def threads(self) -> int:
        """Of the worker; a PD, with all that belongs to it, lives on one."""
        return self.hello.threads

    def choose(self, thread: int | None = None) -> int:
        """The thread of a new PD: the one that is asked for, or the next in turn."""
        if thread is None:
            thread, self._next = self._next, (self._next + 1) % self.threads
        elif not 0 <= thread < self.threads:
            raise LocalError(
                f"thread={thread}: the worker {self.name} has {self.threads}, numbered from 0"
            )
        return thread

    @property
    def name(self) -> str:
        """Of the worker."""
        return self.hello.name

    def connect(self, thread: int = 0) -> Control:
        """One more control connection, to a thread of the worker."""
        self.ensure_alive()
        return Control.connect(thread_path(self.path, thread), self._timeout)

    def stats(self, thread: int | None = None) -> dict[str, int]:
        """Counters by name (protocol.md 13.2): of a thread, or the sums of all."""
        self.ensure_alive()
        chosen = range(self.threads) if thread is None else [self.choose(thread)]
        values = [sum(of_each) for of_each in zip(*map(self._counters, chosen), strict=True)]
        return {n: v for n, v in zip(counter_names(), values, strict=False) if n}

    def _counters(self, thread: int) -> tuple[int, ...]:
        if not thread:
            return self._control.stats()
        with contextlib.closing(self.connect(thread)) as control:
            return control.stats()

    def _release(self) -> None:
        self._control.close()


def _allow_process_vm(pid: int) -> None:
    """Where Yama is strict, let the worker reach memory that pd.alloc() did not make.

    One process may be named, so the newest Context counts. Without Yama the
    call fails and is not needed.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    prctl(_PR_SET_PTRACER, pid, 0, 0, 0)
