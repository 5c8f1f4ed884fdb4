"""Frames on a pipe, between processes of the demo and their parent.

A frame is the length of a CBOR map, 4 bytes big-endian, and the map.
"""

from __future__ import annotations

import os
import select
import time
from typing import Any

import cbor2

from srdma import plain_cbor
from srdma.errors import DeviceError, Timeout

LENGTH = 4
MAX = 1 << 30


def write_frame(fd: int, value: dict[str, Any]) -> None:
    raw = cbor2.dumps(value)
    rest = memoryview(len(raw).to_bytes(LENGTH, "big") + raw)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_frame(fd: int, timeout: float | None = None) -> dict[str, Any] | None:
    """The next map; None at the end of the pipe or for a truncated frame. Raises Timeout."""
    deadline = None if timeout is None else time.monotonic() + timeout
    head = _read(fd, LENGTH, deadline)
    size = int.from_bytes(head, "big")
    if len(head) < LENGTH or size > MAX:
        return None
    body = _read(fd, size, deadline)
    return dict(plain_cbor.loads(body)) if len(body) == size else None


def ask(fds: tuple[int, int], request: dict[str, Any], timeout: float = 30.0) -> dict[str, Any]:
    """Write a request to fds[0] and read the answer from fds[1].

    Raises DeviceError if the other process ended or its answer has an "error", or Timeout.
    """
    try:
        write_frame(fds[0], request)
        answer = read_frame(fds[1], timeout)
    except BrokenPipeError:
        answer = None
    if answer is None:
        raise DeviceError(f"no answer to {request.get('do')}: the process ended")
    if "error" in answer:
        raise DeviceError(str(answer["error"]))
    return answer


def _read(fd: int, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while len(data) < size:
        left = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
        if not poll.poll(left):
            raise Timeout("no answer in time")
        if not (part := os.read(fd, min(size - len(data), 1 << 20))):
            break
        data += part
    return bytes(data)
