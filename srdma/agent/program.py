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
import errno
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from srdma.agent import port as agent_port
from srdma.agent.accounts import Door
from srdma.agent.audit import Audit, AuditLog, stderr_in_a_thread
from srdma.agent.heap import collect_less
from srdma.agent.policy import Policy, PolicyError, Private
from srdma.agent.service import Service, harden
from srdma.agent.takeover import Keeper
from srdma.errors import LocalError
from srdma.keyex import keylog

BACKLOG = 128
LOOK = 2.0  # seconds between two looks at the files of the policy


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
    policy: Policy, listening: Sequence[Listening], port: socket.socket | None, audit: Audit
) -> None:
    """A system agent, until SIGTERM or SIGINT. port: where peers resume sessions."""
    loop = asyncio.get_running_loop()
    keeper = Keeper(policy.worker_user)
    service = Service(policy, audit, keeper, port.getsockname()[:2] if port else None)
    over, hup = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    loop.add_signal_handler(signal.SIGHUP, hup.set)
    await service.take_over(policy.worker)
    audit("started", socket=str(policy.socket), worker=str(policy.worker))
    works = [_accept(service, sock, container) for sock, container in listening]
    works.append(_reload(service, policy, hup, audit))
    if port:
        works.append(service.serve_port(port, policy))
    tasks = [asyncio.ensure_future(work) for work in works]
    ending = asyncio.ensure_future(over.wait())
    done, _ = await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (ending, *tasks):
        task.cancel()
    await service.close(restart=True)
    keeper.close()
    for task in done:
        task.result()  # a fault of this program


async def _accept(service: Service, listening: socket.socket, container: str) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            sock, _ = await loop.sock_accept(listening)
        except OSError:  # no descriptors or memory
            await asyncio.sleep(LOOK / 20)
        else:
            service.open(sock, container)
            await asyncio.sleep(0)  # sock_accept() does not yield while connections wait


async def _reload(service: Service, policy: Policy, hup: asyncio.Event, audit: Audit) -> None:
    """Read the policy again when it changed. One that is not legal leaves the former in force."""
    stamp = policy.stamp()
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hup.wait(), LOOK)
        if not hup.is_set() and policy.stamp() == stamp:
            continue
        hup.clear()
        stamp = policy.stamp()
        try:
            policy.load()
        except PolicyError as error:
            audit("policy-refused", text=str(error))
            continue
        audit("policy", file=str(policy.path), withdrawn=service.withdraw(policy.permits))
        stamp = policy.stamp()


@contextlib.contextmanager
def bound(place: Policy | Door) -> Iterator[socket.socket]:
    """The listening socket of a policy or container. Raises LocalError."""
    path = os.fspath(place.socket)
    sock = socket.socket(socket.AF_UNIX)
    with contextlib.closing(sock):
        _clear(place.socket)
        before = os.umask(0o777 & ~place.mode)
        try:
            sock.bind(path)
            if isinstance(place, Door):
                os.chown(path, place.owner, place.group)
        except OSError as error:
            raise LocalError(f"cannot listen at {path}: {error.strerror or error}") from None
        finally:
            os.umask(before)
        try:
            sock.listen(BACKLOG)
            sock.setblocking(False)
            yield sock
        finally:
            with contextlib.suppress(FileNotFoundError):
                place.socket.unlink()


def _clear(path: Path) -> None:
    """Remove the socket of an agent that has ended. Raises LocalError for any other file."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as other:
        found = other.connect_ex(os.fspath(path))
    if found == 0:
        raise LocalError(f"an agent serves {path} already: stop it first")
    if not os.path.lexists(path):
        return
    # connect() to a file that is no socket is refused too.
    if found != errno.ECONNREFUSED or not path.is_socket():
        raise LocalError(
            f"{path} is in use, and not the socket of an agent that has ended: give another path "
            "in the policy"
        )
    path.unlink()


def run(policy: Policy, key_log: Path | None = None) -> None:
    """A system agent, until SIGTERM or SIGINT. Raises LocalError."""
    if key_log:
        begin_key_log(policy, key_log)
    with contextlib.ExitStack() as stack:
        stack.enter_context(stderr_in_a_thread())
        listening = [(stack.enter_context(bound(policy)), "")]
        listening += [(stack.enter_context(bound(door)), door.name) for door in policy.doors]
        port = agent_port.bound(policy.listen) if policy.listen else None
        harden()
        collect_less()
        asyncio.run(serve_sockets(policy, listening, port, AuditLog()))


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
