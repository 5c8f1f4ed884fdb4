"""The host side of a verbs leg: pyverbs objects of one PD, connected to the worker.

Each descriptor is a SEND. Each record is a WRITE_WITH_IMM into the completion ring, which consumes
a zero-length receive (local-interface.md 2.4). `native.leg.Host` encodes and decodes them.

pyverbs makes the objects of the device. `native.verbs_queue.VerbsQueue` posts to the QP and polls
its CQ. pyverbs never releases the GIL, so no call may block in it: its fds are non-blocking.

pyverbs destroys objects when it frees them. In a forked child they belong to the parent, so
nothing is freed there.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import select
import struct
import time
from typing import Any

import pyverbs.cm_enums as ce
from pyverbs.cmid import AddrInfo, ConnParam
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

from srdma import errors
from srdma._engine.heartbeat import Ticker
from srdma._engine.host_device import route
from srdma._engine.leg import verbs_access
from srdma._engine.verbs_cm import (
    ENDED,
    MAGIC,
    VERSION,
    Cm,
    event_name,
    fd_of,
    pointer_of,
    split_address,
)
from srdma.control import forked
from srdma.native.constants import (
    HELLO_READS,
    LEG_ACK_TIMEOUT,
    LEG_BEAT_MS,
    LEG_LOOK_MS,
    LEG_RETRIES,
    LEG_RNR_RETRIES,
    LEG_RNR_TIMER,
    RECORD_LEN,
    SLOT_LEN,
)

try:
    from srdma.native.verbs_queue import SENDS, SLOTS_LEN, VerbsQueue, receives
except ImportError as error:
    raise errors.DeviceError(
        "srdma was built without legs over RDMA: build it where libibverbs-dev and librdmacm-dev "
        "are installed"
    ) from error

try:
    import pyverbs.libibverbs_enums as e
except ImportError:  # before rdma-core 50
    import pyverbs.enums as e

CONNECT_SECONDS = 10.0
LOST = "the worker does not acknowledge: its machine or device, or the link to it, is lost"

HELLO = struct.Struct(">5sBBx16sQII16x")
KIND_LEG = 1


class _Memory:
    """Anonymous memory of `length` bytes, page-aligned, zeroed; `view` covers all of it."""

    def __init__(self, length: int) -> None:
        self._map = mmap.mmap(-1, length)
        self._pin = (ctypes.c_char * length).from_buffer(self._map)
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(self._pin)
        self.length = length


class VerbsLeg:
    """A leg over verbs (_engine.leg.Leg). Not thread-safe.

    device: a device of this host, or None for
    that of the kernel's route. Raises LocalError, DeviceError or Timeout.
    """

    def __init__(
        self,
        device: str | None,
        worker_address: str,
        token: bytes,
        ring: int,
    ) -> None:
        if len(token) != 16:
            raise errors.LocalError(f"a token of {len(token)} bytes: it must have 16")
        self._closed: str | None = None
        self._pid = os.getpid()
        forked.keep(self)  # with all objects that it holds
        self._mrs: dict[int, Any] = {}  # by rkey; pyverbs deregisters an MR without references
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            deadline = time.monotonic() + CONNECT_SECONDS
            try:
                self._resolve(device, worker_address, deadline, undo)
                self._open(ring, undo)
                self._connect(worker_address, token, deadline)
            except PyverbsError as error:
                raise errors.DeviceError(f"the leg to {worker_address}: {error}") from error
            self._undo = undo.pop_all()

    # --- bring-up ---

    def _resolve(
        self, device: str | None, worker: str, deadline: float, undo: contextlib.ExitStack
    ) -> None:
        """Set `device` to the name of the device over which the leg is connected."""
        host, port = split_address(worker)
        source, target = route(host, device)
        self._cm = Cm()
        undo.callback(self._cm.channel.close)
        undo.callback(self._cm.id.close)
        addresses = AddrInfo(src=source, dst=target, dst_service=port, port_space=ce.RDMA_PS_TCP)
        self._cm.resolve(addresses, deadline, f"connecting the leg to {worker}")
        self.device: str = self._cm.id.dev_name
        if device not in (None, self.device):
            raise errors.DeviceError(
                f"{source} is an address of {self.device} and {device}: give {device} another one"
            )

    def _open(self, ring: int, undo: contextlib.ExitStack) -> None:
        self._context = Context(name=self.device)
        undo.callback(self._context.close)
        limits = self._context.query_device()
        self._has_atomics: bool = limits.atomic_caps != e.IBV_ATOMIC_NONE
        self._reads: int = limits.max_qp_rd_atom
        self.pd = PD(self._context)
        undo.callback(self.pd.close)
        self._ring = _Memory(ring * RECORD_LEN)
        self._ring_mr = MR(
            self.pd,
            self._ring.length,
            e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE,
            address=self._ring.address,
        )
        undo.callback(self._ring_mr.close)
        self._channel = CompChannel(self._context)
        undo.callback(self._channel.close)
        self._channel_fd = fd_of(self._channel, 8, "infinibandevent")
        self._cq = CQ(self._context, receives(ring) + SENDS, None, self._channel, 0)
        undo.callback(self._cq.close)
        self._qp, inline = self._make_qp(ring)
        undo.callback(self._qp.close)
        self._queue = self._make_queue(inline, ring)
        self._epoll = select.epoll()
        undo.callback(self._epoll.close)
        self._ticker = Ticker(LEG_BEAT_MS / 1000, LEG_LOOK_MS / 1000)
        undo.callback(self._ticker.close)
        for fd in (self._channel_fd, self._cm.fd, self._ticker.fd):
            self._epoll.register(fd, select.EPOLLIN)

    def _make_qp(self, ring: int) -> tuple[Any, int]:
        """The QP and its max_inline_data: a whole slot if the device supports that, else 0."""
        for inline in (SLOT_LEN, 0):
            cap = QPCap(max_send_wr=SENDS, max_recv_wr=receives(ring), max_inline_data=inline)
            attr = QPInitAttr(
                qp_type=e.IBV_QPT_RC, scq=self._cq, rcq=self._cq, cap=cap, sq_sig_all=0
            )
            try:
                return QP(self.pd, attr), inline
            except PyverbsRDMAError:
                if not inline:
                    raise
        raise AssertionError

    def _make_queue(self, inline: int, ring: int) -> VerbsQueue:
        self._slots = _Memory(SLOTS_LEN)
        self._slots_mr = MR(
            self.pd, SLOTS_LEN, e.IBV_ACCESS_LOCAL_WRITE, address=self._slots.address
        )
        try:
            return VerbsQueue(
                pointer_of(self._qp),
                self._qp.qp_num,
                self._slots.view,
                lkey=self._slots_mr.lkey,
                inline_max=inline,
                ring=ring,
            )
        except ValueError as error:
            raise errors.DeviceError(f"cannot find the QP of pyverbs: {error}") from error

    def _connect(self, worker: str, token: bytes, deadline: float) -> None:
        doing = f"connecting the leg over {self.device} to {worker}"
        self._cm.id.connect(self._conn_param(token))
        self._cm.expect(ce.RDMA_CM_EVENT_CONNECT_RESPONSE, deadline, doing)
        for state in (e.IBV_QPS_INIT, e.IBV_QPS_RTR, e.IBV_QPS_RTS):
            self._to_state(state)
            if state == e.IBV_QPS_INIT:
                self._queue.start()
        self._cm.id.establish()

    def _conn_param(self, token: bytes) -> Any:
        ring = self._ring
        hello = HELLO.pack(
            *(MAGIC, VERSION, KIND_LEG, token, ring.address, self._ring_mr.rkey),
            ring.length // RECORD_LEN,
        )
        param = ConnParam(
            resources=min(self._reads, HELLO_READS),
            depth=1,
            retry=LEG_RETRIES,
            rnr_retry=LEG_RNR_RETRIES,
            qp_num=self._qp.qp_num,
            data_len=len(hello),
        )
        param.set_private_data(hello)
        return param

    def _to_state(self, state: int) -> None:
        attr, mask = self._cm.id.init_qp_attr(state)
        if state == e.IBV_QPS_INIT:
            attr.qp_access_flags = e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE
            if self._has_atomics:
                attr.qp_access_flags |= e.IBV_ACCESS_REMOTE_ATOMIC
        elif state == e.IBV_QPS_RTR:
            attr.min_rnr_timer = LEG_RNR_TIMER
        else:
            attr.timeout = LEG_ACK_TIMEOUT
            attr.retry_cnt = LEG_RETRIES
        self._qp.modify(attr, mask)

    # --- data path ---

    @property
    def ring(self) -> memoryview:
        return self._ring.view

    @property
    def native(self) -> VerbsQueue:
        return self._queue

    @property
    def closed(self) -> str | None:
        """Why the leg ended, or None. The queue is used by others, and tells its failure here."""
        if self._closed is None and (failure := self._queue.failure) is not None:
            self._end(failure if isinstance(failure, str) else _failure(failure))
        return self._closed

    def slot(self) -> memoryview | None:
        return self._queue.slot()

    def post(self, length: int) -> None:
        self._queue.post(length)

    def flush(self) -> None:
        self._queue.flush()

    def fileno(self) -> int:
        """File descriptor that is readable when there is work for drain(), after arm()."""
        return self._epoll.fileno()

    def arm(self) -> bool:
        """To be called before sleeping on fileno(). True: do not sleep, something arrived."""
        if self.closed:
            return True
        self._queue.flush()
        self._queue.notify()
        return self._queue.poll() > 0 or self.closed is not None

    def poll(self) -> None:
        """Process CM events and completions: free slots, post receives again.

        The event that wakes a thread sleeping on fileno() is not consumed. New records are found
        in the ring itself.
        """
        self._take(wakes=False)

    def drain(self) -> None:
        """As poll(), and consume the event; to be called after sleeping on fileno()."""
        self._take(wakes=True)

    def _take(self, *, wakes: bool) -> None:
        for fd, _ in self._epoll.poll(0) if not self.closed else ():
            if fd == self._cm.fd:
                self._take_cm_events()
            elif wakes and fd == self._ticker.fd:
                self._ticker.drain()
            elif wakes:
                self._take_cq_events()
        if not self.closed:
            self._queue.poll()
            self._beat()

    def _beat(self) -> None:
        sent = self._queue.keepalive(time.monotonic_ns() // 1_000_000)
        if sent < 0:
            self._end(LOST)
        elif sent:
            self._ticker.restart()

    def _take_cq_events(self) -> None:
        with contextlib.suppress(PyverbsRDMAError):  # EAGAIN
            while True:
                self._channel.get_cq_event(self._cq)
                self._cq.ack_events(1)

    def _take_cm_events(self) -> None:
        for kind, _ in self._cm.events():
            if kind in ENDED:
                self._queue.poll()
                self._end(f"rdma_cm event {event_name(kind)}")

    def _end(self, why: str) -> None:
        """Record why the leg ended, tell the worker, and move the QP to ERR: all DMA stops."""
        if self._closed:
            return
        self._closed = why
        with contextlib.suppress(PyverbsRDMAError):
            self._cm.id.disconnect()
        with contextlib.suppress(PyverbsRDMAError):
            self._qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)

    # --- memory and end ---

    def reg(self, addr: int, length: int, access: int) -> int:
        """Register memory, which the caller keeps until dereg(). Raises DeviceError."""
        try:
            mr = MR(self.pd, length, verbs_access(access), address=addr)
        except PyverbsRDMAError as error:
            raise errors.DeviceError(
                f"cannot register {length} bytes: {error} (check the limit `ulimit -l`)"
            ) from error
        self._mrs[int(mr.rkey)] = mr
        return int(mr.rkey)

    def dereg(self, rkey: int) -> None:
        self._mrs.pop(rkey).close()

    def close(self) -> None:
        """End the leg and free it. No effect the second time, or in a forked child."""
        if os.getpid() != self._pid:
            return
        self._end("closed")
        self._undo.close()


def _failure(status: int) -> str:
    if status == e.IBV_WC_RETRY_EXC_ERR:
        return LOST
    return f"work completion status {status}"
