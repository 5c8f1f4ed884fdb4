"""Connection management (rdma_cm) of a verbs leg, by pyverbs, without blocking calls of it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import os
import select
import struct
import time
from collections.abc import Iterator
from typing import Any

import pyverbs.cm_enums as ce
from pyverbs.cmid import CMID, CMEvent, CMEventChannel
from pyverbs.pyverbs_error import PyverbsRDMAError

from srdma import errors
from srdma.native.constants import LEG_RESOLVE_MS

MAGIC, VERSION = b"srdma", 1
REFUSAL = struct.Struct(">5sBB")
REFUSALS = {
    1: "this address is not for legs, the version differs, or the host permits no READ",
    2: "no leg with this token and ring is expected",
    3: "the limit of connections is reached",
}
ENDED = {
    ce.RDMA_CM_EVENT_DISCONNECTED,
    ce.RDMA_CM_EVENT_DEVICE_REMOVAL,
    ce.RDMA_CM_EVENT_UNREACHABLE,
    ce.RDMA_CM_EVENT_CONNECT_ERROR,
}


def pointer_of(thing: Any) -> int:
    """Address of the C structure of a pyverbs object, which pyverbs 44 has at offset 40.

    The caller checks that the structure there is the right one.
    """
    return ctypes.c_void_p.from_address(id(thing) + 40).value or 0


def fd_of(channel: Any, depth: int, kind: str) -> int:
    """File descriptor of a pyverbs channel, set to non-blocking.

    pyverbs 44 has no attribute for it. The object has a pointer at offset 40 to a C structure with
    the descriptor at offset `depth`. Its name in /proc must contain `kind`, which proves that the
    right number was read; else DeviceError.
    """
    fd = getattr(channel, "fd", None)
    if fd is None:
        fd = ctypes.c_int.from_address(pointer_of(channel) + depth).value
    try:
        name = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        name = "nothing"
    if kind not in name:
        raise errors.DeviceError(f"cannot find the fd of pyverbs: {fd} is {name}, no {kind}")
    os.set_blocking(fd, False)
    return int(fd)


def split_address(address: str) -> tuple[str, str]:
    """IP address and port of a worker's text IP:PORT or [IPV6]:PORT; else LocalError."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        if colon and 0 < int(port) < 65536:
            return host, port
    raise errors.LocalError(f"{address!r} is no leg address: it must be IP:PORT")


class Cm:
    """A CM id and its events; no method blocks inside pyverbs, which would hold the GIL."""

    def __init__(self) -> None:
        self.channel = CMEventChannel()
        self.fd = fd_of(self.channel, 0, "rdma_cm")
        self.id = CMID(creator=self.channel, port_space=ce.RDMA_PS_TCP)

    def events(self) -> Iterator[tuple[int, bytes]]:
        """The events that arrived: (type, private data of a REJECTED)."""
        while True:
            try:
                event = CMEvent(self.channel)
            except PyverbsRDMAError as error:
                if error.error_code in (errno.EAGAIN, errno.EINTR):
                    return
                raise
            kind = event.event_type
            data = event.private_data if kind == ce.RDMA_CM_EVENT_REJECTED else b""
            event.ack_cm_event()
            yield kind, bytes(data or b"")

    def resolve(self, route: Any, deadline: float, doing: str) -> None:
        """Resolve address and route until the deadline (monotonic).

        Address resolution is repeated with a short time-out (csrc/port/leg_time.h).
        doing: text for errors.
        """
        while True:
            self.id.resolve_addr(route, LEG_RESOLVE_MS)
            kind, data = self._next(deadline, doing)
            if kind != ce.RDMA_CM_EVENT_ADDR_ERROR:
                break
        _check(kind, data, ce.RDMA_CM_EVENT_ADDR_RESOLVED, doing)
        self.id.resolve_route(LEG_RESOLVE_MS)
        self.expect(ce.RDMA_CM_EVENT_ROUTE_RESOLVED, deadline, doing)

    def expect(self, wanted: int, deadline: float, doing: str) -> None:
        _check(*self._next(deadline, doing), wanted, doing)

    def _next(self, deadline: float, doing: str) -> tuple[int, bytes]:
        while (left := deadline - time.monotonic()) > 0:
            select.select([self.fd], [], [], left)
            for event in self.events():
                return event
        raise errors.Timeout(
            f"{doing}: no answer in time. The worker is alive, but the RDMA devices do not "
            "connect: check the route, or choose a device by device=; see docs/rdma.md"
        )


def _check(kind: int, data: bytes, wanted: int, doing: str) -> None:
    if kind != wanted:
        raise errors.DeviceError(f"{doing}: {_why(kind, data)}")


def _why(kind: int, data: bytes) -> str:
    if kind != ce.RDMA_CM_EVENT_REJECTED:
        return f"rdma_cm event {event_name(kind)}"
    if len(data) >= REFUSAL.size:
        magic, version, reason = REFUSAL.unpack_from(data)
        if (magic, version) == (MAGIC, VERSION):
            return f"the worker refused: {REFUSALS.get(reason, f'reason {reason}')}"
    return "refused: no worker listens there"


def event_name(kind: int) -> str:
    names = (n for n in dir(ce) if n.startswith("RDMA_CM_EVENT_") and getattr(ce, n) == kind)
    return next(names, f"event {kind}").removeprefix("RDMA_CM_EVENT_")
