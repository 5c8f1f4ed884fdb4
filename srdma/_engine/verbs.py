"""The host side of a verbs leg: pyverbs objects of one PD, connected to the worker.

Each descriptor is a SEND. Each record is a WRITE_WITH_IMM into the completion ring, which consumes
a zero-length receive (local-interface.md 2.4). `native.leg.Host` encodes and decodes them.

pyverbs never releases the GIL, so no call may block in it: its fds are non-blocking. Work requests
are built once and posted repeatedly, in chains.

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
from collections.abc import Callable, Sequence
from typing import Any

import pyverbs.cm_enums as ce
from pyverbs.cmid import AddrInfo, ConnParam
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from srdma import errors
from srdma._engine.heartbeat import BEAT_S, SILENCE_S, Heartbeat, Ticker
from srdma._engine.host_device import route
from srdma._engine.verbs_cm import ENDED, MAGIC, VERSION, Cm, event_name, fd_of, split_address
from srdma.control import forked
from srdma.native.constants import LEG_ACK_TIMEOUT, LEG_RETRIES, RECORD_LEN, SLOT_LEN

try:
    import pyverbs.libibverbs_enums as e
except ImportError:  # before rdma-core 50
    import pyverbs.enums as e

MAX_READS = 16
CONNECT_SECONDS = 10.0
POLL_BATCH = 64
# Lengths of prebuilt chains. A chain of n SENDs starts at a slot whose index is a multiple of n.
CHAINS = (16, 4, 1)
SIGNAL_EVERY = 16
RECV_CHAIN = 16

RNR_RETRIES = 6  # 7 would mean no limit
RNR_TIMER = 20  # code of IBTA: 10.24 ms
HEARTBEAT = 1 << 32  # wr_id; those of descriptors are indexes of slots

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


class _Sender:
    """A ring of descriptor slots in registered memory, with prebuilt SENDs."""

    def __init__(self, pd: Any, count: int, inline: int) -> None:
        self.memory = _Memory(count * SLOT_LEN)
        self._mr = MR(pd, self.memory.length, e.IBV_ACCESS_LOCAL_WRITE, address=self.memory.address)
        self.count = count
        self._inline = inline
        self._sges: dict[int, list[Any]] = {}
        self._wrs: dict[int, list[Any]] = {}
        for chain in CHAINS:
            self._build(chain)
        empty = SGE(self.memory.address, 0, self._mr.lkey)
        self.heartbeat = SendWR(wr_id=HEARTBEAT, opcode=e.IBV_WR_SEND, num_sge=1, sg=[empty])
        self.heartbeat.num_sge = 0
        self.handed = 0  # serial numbers: done <= posted <= handed
        self.posted = 0
        self.done = 0

    def _build(self, chain: int) -> None:
        """Build a SEND per slot, linked to the next one within groups of `chain` slots."""
        flags = e.IBV_SEND_INLINE if self._inline >= SLOT_LEN else 0
        wrs, sges = [], []
        for i in range(self.count):
            address = self.memory.address + i * SLOT_LEN
            sge = SGE(address, SLOT_LEN, self._mr.lkey)
            signaled = e.IBV_SEND_SIGNALED if (i + 1) % SIGNAL_EVERY == 0 else 0
            wr = SendWR(
                wr_id=i, opcode=e.IBV_WR_SEND, num_sge=1, sg=[sge], send_flags=flags | signaled
            )
            wr.sg_list = sge  # the WR refers to this SGE: post() sets its length
            wrs.append(wr)
            sges.append(sge)
        for i in range(self.count):
            if (i + 1) % chain:
                wrs[i].next_wr = wrs[i + 1]
        self._wrs[chain], self._sges[chain] = wrs, sges

    def hand_out(self) -> tuple[int, memoryview] | None:
        if self.handed - self.done == self.count - 1:  # one place is left for a heartbeat
            return None
        index = self.handed % self.count
        self.handed += 1
        return index, self.memory.view[index * SLOT_LEN : (index + 1) * SLOT_LEN]

    def post(self, qp: Any, slots: Sequence[tuple[int, int]]) -> None:
        at = 0
        while at < len(slots):
            index = slots[at][0]
            left = len(slots) - at
            chain = next(c for c in CHAINS if index % c == 0 and c <= left)
            sges = self._sges[chain]
            for slot, length in slots[at : at + chain]:
                if slot != self.posted % self.count or not 0 < length <= SLOT_LEN:
                    raise errors.LocalError(
                        f"slot {slot} with {length} bytes: slot {self.posted % self.count} must "
                        f"be next, with 1 to {SLOT_LEN} bytes"
                    )
                self.posted += 1
                sges[slot].length = length
            qp.post_send(self._wrs[chain][index])
            at += chain

    def complete(self, index: int) -> None:
        """The SEND of slot `index` and all earlier ones completed."""
        self.done += (index - self.done) % self.count + 1


class _Receiver:
    """Zero-length receives; at least `count` are posted at any time."""

    def __init__(self, count: int, lkey: int, address: int) -> None:
        self.chains = -(-count // RECV_CHAIN) + 1
        self._used = 0
        self._wrs = [
            RecvWR(wr_id=0, num_sge=1, sg=[SGE(address, 0, lkey)]) for _ in range(RECV_CHAIN)
        ]
        for wr, following in zip(self._wrs, self._wrs[1:], strict=False):
            wr.next_wr = following

    @property
    def depth(self) -> int:
        return self.chains * RECV_CHAIN

    def start(self, qp: Any) -> None:
        for _ in range(self.chains):
            qp.post_recv(self._wrs[0])

    def used(self, qp: Any, n: int) -> None:
        self._used += n
        while self._used >= RECV_CHAIN:
            qp.post_recv(self._wrs[0])
            self._used -= RECV_CHAIN


class VerbsLeg:
    """A leg over verbs. Not thread-safe. Slots must be posted in the order of slot().

    `records` is the completion ring, written by the worker. `closed` is None, or the text that
    says why the leg ended; nothing can be posted then. device: a device of this host, or None for
    that of the kernel's route. Raises LocalError, DeviceError or Timeout.
    """

    def __init__(
        self,
        device: str | None,
        worker_address: str,
        token: bytes,
        ring: int,
        *,
        slots: int = 256,
    ) -> None:
        if slots % SIGNAL_EVERY or slots < 2 * SIGNAL_EVERY:
            raise errors.LocalError(f"{slots} slots: give a multiple of 16, at least 32")
        if len(token) != 16:
            raise errors.LocalError(f"a token of {len(token)} bytes: it must have 16")
        self.closed: str | None = None
        self._pid = os.getpid()
        forked.keep(self)  # with all objects that it holds
        self._mrs: set[Any] = set()
        self._beats = Heartbeat()
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            deadline = time.monotonic() + CONNECT_SECONDS
            try:
                self._resolve(device, worker_address, deadline, undo)
                self._open(ring, slots, undo)
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

    def _open(self, ring: int, slots: int, undo: contextlib.ExitStack) -> None:
        self._context = Context(name=self.device)
        undo.callback(self._context.close)
        caps = self._context.query_device().atomic_caps
        self._has_atomics: bool = caps != e.IBV_ATOMIC_NONE
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
        self._receiver = _Receiver(ring, self._ring_mr.lkey, self._ring.address)
        self._channel = CompChannel(self._context)
        undo.callback(self._channel.close)
        self._channel_fd = fd_of(self._channel, 8, "infinibandevent")
        self._cq = CQ(self._context, self._receiver.depth + slots, None, self._channel, 0)
        undo.callback(self._cq.close)
        self._qp, inline = self._make_qp(slots)
        undo.callback(self._qp.close)
        self._sender = _Sender(self.pd, slots, inline)
        self._epoll = select.epoll()
        undo.callback(self._epoll.close)
        self._ticker = Ticker(BEAT_S)
        undo.callback(self._ticker.close)
        for fd in (self._channel_fd, self._cm.fd, self._ticker.fd):
            self._epoll.register(fd, select.EPOLLIN)

    def _make_qp(self, slots: int) -> tuple[Any, int]:
        """The QP and its max_inline_data: a whole slot if the device supports that, else 0."""
        for inline in (SLOT_LEN, 0):
            cap = QPCap(max_send_wr=slots, max_recv_wr=self._receiver.depth, max_inline_data=inline)
            attr = QPInitAttr(
                qp_type=e.IBV_QPT_RC, scq=self._cq, rcq=self._cq, cap=cap, sq_sig_all=0
            )
            try:
                return QP(self.pd, attr), inline
            except PyverbsRDMAError:
                if not inline:
                    raise
        raise AssertionError

    def _connect(self, worker: str, token: bytes, deadline: float) -> None:
        doing = f"connecting the leg over {self.device} to {worker}"
        self._cm.id.connect(self._conn_param(token))
        self._cm.expect(ce.RDMA_CM_EVENT_CONNECT_RESPONSE, deadline, doing)
        for state in (e.IBV_QPS_INIT, e.IBV_QPS_RTR, e.IBV_QPS_RTS):
            self._to_state(state)
            if state == e.IBV_QPS_INIT:
                self._receiver.start(self._qp)
        self._cm.id.establish()

    def _conn_param(self, token: bytes) -> Any:
        ring = self._ring
        hello = HELLO.pack(
            *(MAGIC, VERSION, KIND_LEG, token, ring.address, self._ring_mr.rkey),
            ring.length // RECORD_LEN,
        )
        param = ConnParam(
            resources=MAX_READS,
            depth=1,
            retry=LEG_RETRIES,
            rnr_retry=RNR_RETRIES,
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
            attr.min_rnr_timer = RNR_TIMER
        else:
            attr.timeout = LEG_ACK_TIMEOUT
            attr.retry_cnt = LEG_RETRIES
        self._qp.modify(attr, mask)

    # --- data path ---

    @property
    def records(self) -> memoryview:
        return self._ring.view

    def slot(self) -> tuple[int, memoryview] | None:
        """(index, memory) of the next descriptor slot, 512 bytes; None: all are in use, poll."""
        return self._sender.hand_out()

    def post(self, slots: Sequence[tuple[int, int]]) -> None:
        """SEND filled slots, (index, length) each, in the order of slot(). Raises WorkerGone."""
        if self.closed:
            raise errors.WorkerGone(f"the leg ended: {self.closed}")
        try:
            self._sender.post(self._qp, slots)
        except PyverbsRDMAError as error:
            self._end(f"post_send: {error}")
            raise errors.WorkerGone(f"the leg ended: {self.closed}") from error

    def fileno(self) -> int:
        """File descriptor that is readable when there is work for drain(), after arm()."""
        return self._epoll.fileno()

    def arm(self) -> bool:
        """To be called before sleeping on fileno(). True: do not sleep, something arrived."""
        if self.closed:
            return True
        self._cq.req_notify()
        return self._poll_cq() > 0

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
        self._poll_cq()
        self._beat(time.monotonic())

    def _beat(self, now: float) -> None:
        if self.closed:
            return
        if self._beats.lost(now):
            self._end(f"the worker acknowledged no heartbeat for {SILENCE_S:g} s")
        elif self._beats.due(now):
            try:
                self._qp.post_send(self._sender.heartbeat)
            except PyverbsRDMAError as error:
                self._end(f"post_send: {error}")

    def _take_cq_events(self) -> None:
        with contextlib.suppress(PyverbsRDMAError):  # EAGAIN
            while True:
                self._channel.get_cq_event(self._cq)
                self._cq.ack_events(1)

    def _take_cm_events(self) -> None:
        for kind, _ in self._cm.events():
            if kind in ENDED:
                self._poll_cq()
                self._end(f"rdma_cm event {event_name(kind)}")

    def _poll_cq(self) -> int:
        total = arrived = 0
        while not self.closed:
            count, completions = self._cq.poll(POLL_BATCH)
            for wc in completions or ():
                if wc.status != e.IBV_WC_SUCCESS:
                    self._end(_failure(wc.status))
                elif wc.opcode & e.IBV_WC_RECV:
                    arrived += 1
                elif wc.wr_id == HEARTBEAT:
                    self._beats.acknowledged()
                else:
                    self._sender.complete(wc.wr_id)
            total += count
            if count < POLL_BATCH:
                break
        if arrived and not self.closed:
            self._receiver.used(self._qp, arrived)
        return total

    def _end(self, why: str) -> None:
        """Record why the leg ended, and move its QP to ERR so that the device stops all DMA."""
        if self.closed:
            return
        self.closed = why
        with contextlib.suppress(PyverbsRDMAError):
            self._qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)

    # --- memory and end ---

    def reg_mr(self, address: int, length: int, access: int) -> tuple[int, Callable[[], None]]:
        """Register memory, which the caller keeps until close(). Returns (host rkey, close).

        access: verbs flags for the local NIC: REMOTE_READ for memory that is sent,
        LOCAL_WRITE | REMOTE_WRITE for memory that is written. Raises DeviceError.
        """
        try:
            mr = MR(self.pd, length, access, address=address)
        except PyverbsRDMAError as error:
            raise errors.DeviceError(
                f"cannot register {length} bytes: {error} (check the limit `ulimit -l`)"
            ) from error
        self._mrs.add(mr)  # pyverbs deregisters an MR without references

        def close() -> None:
            self._mrs.discard(mr)
            mr.close()

        return int(mr.rkey), close

    def close(self) -> None:
        """End the leg and free it. No effect the second time, or in a forked child."""
        if os.getpid() != self._pid:
            return
        if not self.closed:
            with contextlib.suppress(PyverbsRDMAError):
                self._cm.id.disconnect()
        self._end("closed")
        self._undo.close()


def _failure(status: int) -> str:
    if status == e.IBV_WC_RETRY_EXC_ERR:
        return "the worker does not acknowledge: its machine or device, or the link to it, is lost"
    return f"work completion status {status}"
