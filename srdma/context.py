"""Context: a device, which is the worker of one NIC, reached through its control socket."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import threading
from pathlib import Path

from srdma._engine.resource import Resource
from srdma.agent.access import worker_connection
from srdma.agent.accounts import uid_of
from srdma.agent.client import Agent, SystemAgent
from srdma.agent.private import PrivateAgent
from srdma.control import TIMEOUT, Control, Hello, HostKind, socket_path, thread_path
from srdma.control.lasting import LastingControl
from srdma.errors import DeviceError, Error, LocalError, NoWorkerError, WorkerGone
from srdma.native.leg import counter_names

_PR_SET_PTRACER = 0x59616D61


class Context(Resource):
    """A running worker.

    worker: path of its control socket, or its name in $XDG_RUNTIME_DIR/srdma; default:
    $SRDMA_WORKER. timeout: seconds to connect, and to wait for the answer to HELLO
    (local-interface.md 3.4). agent: path of the socket of a system agent (agent.md 1); default:
    $SRDMA_AGENT; "" or neither: a private agent. agent_user: a user, by name or uid, whose system
    agent is trusted besides those of this user and root; default: $SRDMA_AGENT_USER. A program that
    may not connect to the worker itself, or whose worker is on another computer, gets its
    connections from the system agent or proxy (agent.md 9, control-link.md).
    device: name of this host's RDMA device for the legs to a worker with an RDMA device; default:
    $SRDMA_HOST_DEVICE, else the device of the kernel's route to the worker (rdma.md).
    Raises NoWorkerError, another DeviceError, LocalError, or Timeout.

    remote: True if worker and agent are on another computer (control-link.md).
    """

    def __init__(
        self,
        worker: str | os.PathLike[str] | None = None,
        *,
        timeout: float = TIMEOUT,
        agent: str | os.PathLike[str] | None = None,
        agent_user: str | int | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        self.path = socket_path(worker)
        self._timeout = timeout
        self._agent_path = os.environ.get("SRDMA_AGENT", "") if agent is None else os.fspath(agent)
        self._agent_user = agent_uid(agent_user)
        self.device = os.environ.get("SRDMA_HOST_DEVICE") or None if device is None else device
        self._restricted = self.remote = self._lasting = False
        self._control, self.hello = self._first_connection()
        try:
            if self.remote and self.hello.host_kind == HostKind.SHM:
                raise DeviceError(
                    f"the worker {self.hello.name} is on another computer, and serves programs of "
                    "its own only: start it with --host-dev DEVICE"
                )
            if self.hello.thread:
                raise DeviceError(
                    f"{self.path} is the control socket of process {self.hello.thread} of a worker "
                    f"with {self.hello.threads}: give the path without the number, and choose the "
                    "process by PD(ctx, thread=...)"
                )
            if device is not None and self.hello.host_kind == HostKind.SHM:
                raise LocalError(
                    f"device={device!r}: the hosts of {self.name} use shared memory: leave it out"
                )
        except BaseException:
            self._control.close()
            raise
        self._control = self.lasting(self._control)
        if self.hello.host_kind == HostKind.SHM and not self._restricted:
            _allow_process_vm(self.hello.pid)
        # Start at a random process: most programs have one PD, which must not all share process 0.
        self._next = random.randrange(self.threads)
        self._agent: Agent | None = None
        self._agents = threading.Lock()

    @property
    def has_system_agent(self) -> bool:
        """True if identities are names in the policy of a system agent, not files."""
        return bool(self._agent_path)

    def agent(self) -> Agent:
        """The agent of this Context; a private one starts at the first call. Raises DeviceError."""
        self.ensure_alive()
        with self._agents:
            if self._agent is not None and not self._agent.alive():
                self._agent.close()
                self._agent = None
            if self._agent is None:
                self._agent = self._system_agent() if self._agent_path else PrivateAgent()
            return self._agent

    def _system_agent(self) -> SystemAgent:
        return SystemAgent(Path(self._agent_path), self._agent_user)

    def _first_connection(self) -> tuple[Control, Hello]:
        """The connection to worker process 0, and its HELLO."""
        try:
            direct = _greet(Control.connect(self.path, self._timeout), self._timeout)
            lasting = self._lasting_one() if self._may_be_far(*direct) else None
            if lasting:
                direct[0].close()
            return lasting or direct
        except (NoWorkerError, WorkerGone) as direct:
            # A worker of root with --agent-uid closes connections of other users after connect().
            if not self._agent_path or not _may_be_of_others(direct):
                raise
            try:
                self._restricted = True
                return _greet(self._from_agent(self.path), self._timeout)
            except Error as error:
                if _is_missing(direct) and type(error) is DeviceError:  # the agent has none either
                    direct.add_note(f"by the agent: {error}")
                    raise direct from error
                error.add_note(f"connecting to the worker itself: {direct}")
                raise

    def _from_agent(self, path: Path) -> Control:
        passed = worker_connection(self._system_agent(), path, self._timeout)
        self.remote, self._lasting = passed.remote, passed.lasting
        return passed.control

    def _may_be_far(self, control: Control, hello: Hello) -> bool:
        """True if a proxy may be at the socket of the worker (control-link.md 7)."""
        local = hello.host_kind == HostKind.SHM or control.is_of(hello.pid)
        return bool(self._agent_path) and not local

    def _lasting_one(self) -> tuple[Control, Hello] | None:
        """A connection of the agent, if it may be made again and is to this worker."""
        found = None
        try:
            control = self._from_agent(self.path)
            if self._lasting and not self.remote:
                found = _greet(control, self._timeout)
            else:
                control.close()
        except Error:  # it has none for this program
            pass
        self.remote, self._lasting = False, bool(found)
        self._restricted = bool(found)
        return found

    @property
    def threads(self) -> int:
        """Number of worker processes. A PD and everything made from it are served by one."""
        return self.hello.threads

    def choose(self, thread: int | None = None) -> int:
        """Number of the worker process for a new PD: `thread`, or the next in turn for None.

        Raises LocalError if the worker has no such process.
        """
        if thread is None:
            thread, self._next = self._next, (self._next + 1) % self.threads
        elif not 0 <= thread < self.threads:
            raise LocalError(
                f"thread={thread}: the worker {self.name} has {self.threads} processes, "
                "numbered from 0"
            )
        return thread

    @property
    def name(self) -> str:
        """Name of the worker, its option --name."""
        return self.hello.name

    def lasting(self, control: Control, thread: int = 0, token: bytes = b"") -> Control:
        """The control connection of this Context, or of a PD with this token. If the worker is on
        another computer, it is made again when it ends (control-link.md 2.5)."""
        if not self._lasting:
            return control
        path = thread_path(self.path, thread)

        def again() -> Control:
            made = self._from_agent(path)
            try:
                if token:
                    made.attach(token)
            except BaseException:
                made.close()
                raise
            return made

        return LastingControl(control, again)

    def connect(self, thread: int = 0) -> Control:
        """A new control connection to worker process `thread`; the caller closes it."""
        self.ensure_alive()
        path = thread_path(self.path, thread)
        if self._restricted:
            return self._from_agent(path)
        return Control.connect(path, self._timeout)

    def stats(self, thread: int | None = None) -> dict[str, int]:
        """Counters by name (local-interface.md 3.7): of one worker process; None: sums of all."""
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
        if self._agent is not None:
            self._agent.close()
        self._control.close()


def agent_uid(user: str | int | None) -> int | None:
    """uid of an agent that is trusted. user: None for $SRDMA_AGENT_USER. Raises LocalError."""
    chosen = os.environ.get("SRDMA_AGENT_USER", "") if user is None else user
    if chosen == "":
        return None
    try:
        number = isinstance(chosen, str) and chosen.isdecimal()
        return uid_of(int(chosen) if number else chosen)
    except ValueError as error:
        raise LocalError(f"the user of the agent: {error}") from None


def _greet(control: Control, timeout: float) -> tuple[Control, Hello]:
    """The connection and its HELLO. It is closed on an error."""
    try:
        return control, control.hello(timeout)
    except BaseException:
        control.close()
        raise


def _may_be_of_others(error: DeviceError) -> bool:
    """True if connect() failed because of the user, or because the socket is not in the file system
    of this container."""
    cause = error.__cause__
    if isinstance(error, WorkerGone) or not isinstance(cause, OSError):
        return True
    return cause.errno in (errno.EACCES, errno.EPERM, errno.ENOENT)


def _is_missing(error: DeviceError) -> bool:
    return isinstance(error.__cause__, FileNotFoundError)


def _allow_process_vm(pid: int) -> None:
    """Permit the worker to copy to and from memory that pd.alloc() did not make.

    Required where Yama restricts ptrace. The kernel keeps one permitted process, so only the
    worker of the newest Context has the permission. Without Yama prctl() fails, and the permission
    is not required.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    prctl(_PR_SET_PTRACER, pid, 0, 0, 0)
