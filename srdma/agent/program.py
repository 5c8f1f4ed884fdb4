"""The agent as a process (agent.md 1): a private one, `python -m srdma.agent --door-fd N`, or the
one of `srdma agent`.

A private agent takes its channels from the door and ends with it. A system agent accepts them at a
Unix socket, reads its policy again when a file of it was replaced and on SIGHUP, and ends on
SIGTERM and SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from srdma.agent import port as agent_port
from srdma.agent.audit import Audit, AuditLog, stderr_in_a_thread
from srdma.agent.harden import harden
from srdma.agent.heap import collect_less
from srdma.agent.names import THREADS
from srdma.agent.policy import Policy, Private
from srdma.agent.remote.hosts import Hosts
from srdma.agent.service import Service
from srdma.agent.serving import Signals, accept_all, bound, notify_ready, reload
from srdma.agent.steward import Steward
from srdma.agent.takeover import Keeper
from srdma.errors import LocalError
from srdma.keyex import keylog


async def serve_door(door: socket.socket) -> None:
    """A private agent, until the end of the door."""
    loop = asyncio.get_running_loop()
    service, over = Service(Private()), loop.create_future()

    def take() -> None:
        try:
            data, fds, _, _ = socket.recv_fds(door, 1, 1)
        except BlockingIOError:
            return
        for fd in fds:  # none if this process has no descriptors left: the program sees the end
            service.open(socket.socket(fileno=fd))
        if not data:
            loop.remove_reader(door)
            over.set_result(None)

    loop.add_reader(door, take)
    await over
    await service.close()


Listening = tuple[socket.socket, str]  # and the name of its container, or ""


async def serve_sockets(
    policy: Policy,
    listening: Sequence[Listening],
    tcp: tuple[socket.socket | None, socket.socket | None],
    audit: Audit,
) -> None:
    """A system agent, until SIGTERM or SIGINT. tcp: where peers resume sessions, and where proxies
    connect."""
    port, control = tcp
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "names"))
    steward = Steward(lambda: policy.quotas, audit)
    keeper = Keeper(policy.worker_user, steward.give)
    service = Service(policy, audit, keeper, port.getsockname()[:2] if port else None)
    signals = Signals()
    await service.take_over(policy.worker)
    audit("started", socket=str(policy.socket), worker=str(policy.worker))
    notify_ready()
    works: list[Coroutine[Any, Any, Any]] = [
        accept_all(partial(service.open, user=container or None), sock)
        for sock, container in listening
    ]

    def changed() -> int:
        steward.renew()
        keeper.each(steward.give)
        return service.withdraw(policy.permits)

    works.append(reload(policy, changed, signals.hup, audit))
    if port:
        works.append(service.serve_port(port, policy))
    if policy.worker_remote:
        works.append(service.follow(policy.worker))
    else:
        works.append(keeper.attend(policy.worker))
    if control:
        works.append(Hosts(control, policy, service).run())
    await signals.until_over(works, partial(service.close, restart=True))
    keeper.close()


def run(policy: Policy, key_log: Path | None = None) -> None:
    """A system agent, until SIGTERM or SIGINT. Raises LocalError."""
    if key_log:
        begin_key_log(policy, key_log)
    with contextlib.ExitStack() as stack:
        stack.enter_context(stderr_in_a_thread())
        listening = [(stack.enter_context(bound(policy)), "")]
        listening += [(stack.enter_context(bound(door)), door.name) for door in policy.doors]
        port = agent_port.bound(policy.listen) if policy.listen else None
        control = agent_port.bound(policy.control.listen, "[control]") if policy.control else None
        harden()
        collect_less()
        asyncio.run(serve_sockets(policy, listening, (port, control), AuditLog()))


def begin_key_log(policy: Policy, path: Path) -> None:
    """Raises LocalError, also if the policy does not allow a key log."""
    if not policy.key_log:
        raise LocalError(
            f"{policy.path} does not allow a key log, which opens all packets to its readers: set "
            "key_log = true, for tests only"
        )
    try:
        keylog.begin(path)
    except OSError as error:
        raise LocalError(f"cannot write {path}: {error.strerror}") from None


def main() -> int:
    """A private agent. Exit code: 0, or 2 for wrong arguments."""
    harden()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program handles Ctrl-C and closes the door
    parser = argparse.ArgumentParser(prog="srdma.agent", description="A private agent of srdma.")
    parser.add_argument("--door-fd", type=int, required=True)
    options = parser.parse_args()
    try:
        door = socket.socket(fileno=options.door_fd)
    except OSError as error:
        parser.error(f"file descriptor {options.door_fd}: {os.strerror(error.errno or 0)}")
    door.setblocking(False)
    asyncio.run(serve_door(door))
    return 0
