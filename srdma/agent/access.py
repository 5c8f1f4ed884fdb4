"""The program's side of a restricted connection (agent.md 9): the system agent passes a connected
socket to a program that may not connect to the worker itself."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

from srdma import plain_cbor
from srdma.agent.client import SystemAgent, error_of, message_of
from srdma.control import Control
from srdma.errors import DeviceError, RefusedError, Timeout

_EVENT_MAX = 65536


class Passed(NamedTuple):
    """A connection to a worker process. remote: the agent is on another computer too; lasting: the
    connection may end while its leg goes on (control-link.md)."""

    control: Control
    remote: bool
    lasting: bool


def worker_connection(agent: SystemAgent, path: Path, timeout: float) -> Passed:
    """A connection to the worker process at `path`, as the agent's policy names it.

    Raises LocalError if the policy does not grant it, RefusedError with EDQUOT if this user has
    too many, Timeout, DeviceError.
    """
    event, fds = _asked(agent, {"do": "open", "worker": os.path.abspath(path)}, timeout)
    if event.get("event") == "opened" and len(fds) == 1:
        sock = socket.socket(fileno=fds[0])
        remote = bool(event.get("remote"))
        lasting = remote or bool(event.get("lasting"))
        return Passed(Control(sock, f"the worker at {path}"), remote, lasting)
    for fd in fds:
        os.close(fd)
    if event.get("code") == "quota":
        raise RefusedError(errno.EDQUOT, event["text"])
    if event.get("event") == "error":
        raise error_of(event)
    raise DeviceError("the agent passed no connection: use an agent of the same release")


def proxy_status(agent: SystemAgent, timeout: float) -> dict[str, Any] | None:
    """The event `status` of a proxy (control-link.md 4); None if it is an agent.

    Raises Timeout, DeviceError.
    """
    event, fds = _asked(agent, {"do": "status"}, timeout)
    for fd in fds:
        os.close(fd)
    return event if event.get("event") == "status" else None


def _asked(
    agent: SystemAgent, message: dict[str, Any], timeout: float
) -> tuple[dict[str, Any], list[int]]:
    """The first event of a channel, and the file descriptors beside it."""
    with contextlib.closing(agent.open()) as channel:
        channel.settimeout(timeout)
        try:
            channel.sendall(message_of(message))
            return _answer(channel, time.monotonic() + timeout)
        except TimeoutError:
            raise Timeout(f"the agent did not answer in {timeout} s") from None
        except OSError as e:
            raise DeviceError(f"the agent ended unexpectedly: {e.strerror}") from e


def _answer(channel: socket.socket, deadline: float) -> tuple[dict[str, Any], list[int]]:
    """The event, and the file descriptors beside it. Raises OSError, DeviceError."""
    fds, data = array.array("i"), b""
    try:
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            channel.settimeout(max(deadline - time.monotonic(), 0.001))
            space = socket.CMSG_LEN(fds.itemsize)
            part, control, _, _ = channel.recvmsg(_EVENT_MAX, space, socket.MSG_CMSG_CLOEXEC)
            for level, kind, found in control:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds.frombytes(found[: len(found) - len(found) % fds.itemsize])
            data += part
            if not part or len(data) > _EVENT_MAX:
                raise DeviceError("the agent ended unexpectedly: see its log")
        event = plain_cbor.loads(data[4:])
        if not isinstance(event, dict):
            raise DeviceError("the agent sent an illegal message")
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    return event, list(fds)
