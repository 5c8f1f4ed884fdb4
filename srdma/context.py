"""A device: the worker of one NIC, reached by its control socket."""

from __future__ import annotations

import ctypes
import os

from srdma._leg import counter_names
from srdma.control import TIMEOUT, Control, HostKind, socket_path
from srdma.resource import Resource

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
        except BaseException:
            self._control.close()
            raise
        if self.hello.host_kind == HostKind.SHM:
            _allow_process_vm(self.hello.pid)

    @property
    def name(self) -> str:
        """Of the worker."""
        return self.hello.name

    def connect(self) -> Control:
        """One more control connection."""
        self.ensure_alive()
        return Control.connect(self.path, self._timeout)

    def stats(self) -> dict[str, int]:
        """The worker's counters by name (protocol.md 13.2)."""
        self.ensure_alive()
        values = self._control.stats()
        return {n: v for n, v in zip(counter_names(), values, strict=False) if n}

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
