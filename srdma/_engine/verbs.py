"""The host half of a verbs leg: pyverbs objects of one PD, connected to its own worker.

What is SENT is descriptors, what arrives is zero-length WRITE_WITH_IMM behind records
in the completion ring (protocol.md 9.3). Neither is looked at here: `native.leg.Host` does.
pyverbs never releases the GIL, so nothing here blocks in it: its fds are non-blocking,
work requests are built once and posted again and again in chains.

pyverbs destroys what it frees, and in a forked child that is the parent's: nothing is freed there.
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
from srdma._engine.verbs_cm import (
    ENDED,
    MAGIC,
    VERSION,
    Cm,
    event_name,
    fd_of,
    own_address,
    split_address,
)
from srdma.control import forked
from srdma.native.constants import RECORD_LEN, SLOT_LEN

try:
    import pyverbs.libibverbs_enums as e
except ImportError:  # before rdma-core 50
    import pyverbs.enums as e

MAX_READS = 16
CONNECT_SECONDS = 10.0
POLL_BATCH = 64
# The chains that are prebuilt: from aligned slots, as many as the index is a multiple of.
CHAINS = (16, 4, 1)
SIGNAL_EVERY = 16
RECV_CHAIN = 16

# What the QP may wait for: 7 * 4.096 us * 2^16 = 1.9 s for an ack. 7 would be for ever.
ACK_TIMEOUT = 16
RETRIES = 6
RNR_TIMER = 20  # 10 ms

HELLO = struct.Struct(">5sBBx16sQII16x")
KIND_LEG = 1


class _Memory:
    """Anonymous memory, page-aligned, zeroed; `view` is all of it."""

    def __init__(self, length: int) -> None:
        self._map = mmap.mmap(-1, length)
        self._pin = (ctypes.c_char * length).from_buffer(self._map)
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(self._pin)
        self.length = length


class _Sender:
    """Descriptor slots in one registered memory, used as a ring, with their SENDs."""

    def __init__(self, pd: Any, count: int, inline: int) -> None:
        self.memory = _Memory(count * SLOT_LEN)
        self._mr = MR(pd, self.memory.length, e.IBV_ACCESS_LOCAL_WRITE, address=self.memory.address)
        self.count = count
        self._inline = inline
        self._sges: dict[int, list[Any]] = {}
        self._wrs: dict[int, list[Any]] = {}
        for chain in CHAINS:
            self._build(chain)
        self.handed = 0  # serial numbers: done <= posted <= handed
        self.posted = 0
        self.done = 0

    def _build(self, chain: int) -> None:
        """SENDs of all slots, each linked to the next within its group of `chain`."""
        flags = e.IBV_SEND_INLINE if self._inline >= SLOT_LEN else 0
        wrs, sges = [], []
        for i in range(self.count):
            address = self.memory.address + i * SLOT_LEN
            sge = SGE(address, SLOT_LEN, self._mr.lkey)
            signaled = e.IBV_SEND_SIGNALED if (i + 1) % SIGNAL_EVERY == 0 else 0
            wr = SendWR(
                wr_id=i, opcode=e.IBV_WR_SEND, num_sge=1, sg=[sge], send_flags=flags | signaled
            )
            wr.sg_list = sge  # the WR now reads this SGE: its length can be set
            wrs.append(wr)
            sges.append(sge)
        for i in range(self.count):
            if (i + 1) % chain:
                wrs[i].next_wr = wrs[i + 1]
        self._wrs[chain], self._sges[chain] = wrs, sges

    def hand_out(self) -> tuple[int, memoryview] | None:
        if self.handed - self.done == self.count:
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
                        f"slot {slot} with {length} bytes: slot {self.posted % self.count} is "
                        f"next, with 1..{SLOT_LEN}"
                    )
                self.posted += 1
                sges[slot].length = length
            qp.post_send(self._wrs[chain][index])
            at += chain

    def complete(self, index: int) -> None:
        """The SEND of a slot completed, and so all before it."""
        self.done += (index - self.done) % self.count + 1


class _Receiver:
    """Zero-length receives: `count` at least are always posted."""

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
    """A leg over verbs. One thread at a time; slots are posted in the order handed out.

    `records` is the completion ring as the worker writes it. `closed` is None, or why the
    leg ended: from then on nothing can be posted.
    """

    def __init__(
        self,
        device: str,
        worker_address: str,
        token: bytes,
        ring: int,
        *,
        slots: int = 256,
    ) -> None:
        if slots % SIGNAL_EVERY or slots < 2 * SIGNAL_EVERY:
            raise errors.LocalError(f"{slots} slots: a multiple of 16, 32 at least, is right")
        if len(token) != 16:
            raise errors.LocalError(f"a token of {len(token)} bytes: 16 are right")
        self.closed: str | None = None
        self._pid = os.getpid()
        forked.keep(self)  # and all that it holds
        self._mrs: set[Any] = set()
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            try:
                self._open(device, ring, slots, undo)
                self._connect(worker_address, token, device, time.monotonic() + CONNECT_SECONDS)
            except PyverbsError as error:
                raise errors.DeviceError(f"leg on {device}: {error}") from error
            self._undo = undo.pop_all()

    # --- bring-up ---

    def _open(self, device: str, ring: int, slots: int, undo: contextlib.ExitStack) -> None:
        self._context = Context(name=device)
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
        self._cm = Cm()
        undo.callback(self._cm.channel.close)
        undo.callback(self._cm.id.close)
        self._qp, inline = self._make_qp(slots)
        undo.callback(self._qp.close)
        self._sender = _Sender(self.pd, slots, inline)
        self._epoll = select.epoll()
        undo.callback(self._epoll.close)
        for fd in (self._channel_fd, self._cm.fd):
            self._epoll.register(fd, select.EPOLLIN)

    def _make_qp(self, slots: int) -> tuple[Any, int]:
        """The QP and its max_inline_data: a whole slot where the device has it."""
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

    def _connect(self, worker: str, token: bytes, device: str, deadline: float) -> None:
        host, port = split_address(worker)
        source = own_address(self._context, host, device)
        doing = f"connecting the leg from {source} to {worker}"
        route = AddrInfo(src=source, dst=host, dst_service=port, port_space=ce.RDMA_PS_TCP)
        self._cm.resolve(route, deadline, doing)
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
            retry=RETRIES,
            rnr_retry=RETRIES,
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
            attr.timeout = ACK_TIMEOUT
        self._qp.modify(attr, mask)

    # --- data path ---

    @property
    def records(self) -> memoryview:
        return self._ring.view

    def slot(self) -> tuple[int, memoryview] | None:
        """The next descriptor slot, 512 bytes; None: all are in use, poll."""
        return self._sender.hand_out()

    def post(self, slots: Sequence[tuple[int, int]]) -> None:
        """SEND filled slots, (index, bytes) each, all in the order handed out."""
        if self.closed:
            raise errors.WorkerGone(f"the leg ended: {self.closed}")
        try:
            self._sender.post(self._qp, slots)
        except PyverbsRDMAError as error:
            self._end(f"post_send: {error}")
            raise errors.WorkerGone(f"the leg ended: {self.closed}") from error

    def fileno(self) -> int:
        """Readable when there is something for drain() after arm() said False."""
        return self._epoll.fileno()

    def arm(self) -> bool:
        """Before sleeping on fileno(): True if something arrived meanwhile, do not sleep."""
        if self.closed:
            return True
        self._cq.req_notify()
        return self._poll_cq() > 0

    def poll(self) -> None:
        """Take all that arrived, but not what wakes a thread that sleeps on fileno().

        Slots come free, receives are posted again; the ring itself tells the new records.
        """
        self._take(wakes=False)

    def drain(self) -> None:
        """After that sleep: the same, and the wake-up itself."""
        self._take(wakes=True)

    def _take(self, *, wakes: bool) -> None:
        for fd, _ in self._epoll.poll(0) if not self.closed else ():
            if fd == self._cm.fd:
                self._take_cm_events()
            elif wakes:
                self._take_cq_events()
        self._poll_cq()

    def _take_cq_events(self) -> None:
        with contextlib.suppress(PyverbsRDMAError):  # EAGAIN
            while True:
                self._channel.get_cq_event(self._cq)
                self._cq.ack_events(1)

    def _take_cm_events(self) -> None:
        for kind, _ in self._cm.events():
            if kind in ENDED:
                self._poll_cq()
                self._end(f"the CM says {event_name(kind)}")

    def _poll_cq(self) -> int:
        total = arrived = 0
        while not self.closed:
            count, completions = self._cq.poll(POLL_BATCH)
            for wc in completions or ():
                if wc.status != e.IBV_WC_SUCCESS:
                    self._end(f"work completion status {wc.status}")
                elif wc.opcode & e.IBV_WC_RECV:
                    arrived += 1
                else:
                    self._sender.complete(wc.wr_id)
            total += count
            if count < POLL_BATCH:
                break
        if arrived and not self.closed:
            self._receiver.used(self._qp, arrived)
        return total

    def _end(self, why: str) -> None:
        """Remember why, and let the device touch nothing of the leg any more."""
        if self.closed:
            return
        self.closed = why
        with contextlib.suppress(PyverbsRDMAError):
            self._qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)

    # --- memory and end ---

    def reg_mr(self, address: int, length: int, access: int) -> tuple[int, Callable[[], None]]:
        """Register memory of the caller, who keeps it until close: (host rkey, close).

        access is that of verbs, for the own NIC: REMOTE_READ for what is sent,
        LOCAL_WRITE | REMOTE_WRITE for what is written.
        """
        try:
            mr = MR(self.pd, length, access, address=address)
        except PyverbsRDMAError as error:
            raise errors.DeviceError(
                f"registering {length} bytes: {error} (too little locked memory? see `ulimit -l`)"
            ) from error
        self._mrs.add(mr)  # pyverbs deregisters what nobody holds

        def close() -> None:
            self._mrs.discard(mr)
            mr.close()

        return int(mr.rkey), close

    def close(self) -> None:
        """End the leg and free it; a second call does nothing. Not in a forked child."""
        if os.getpid() != self._pid:
            return
        if not self.closed:
            with contextlib.suppress(PyverbsRDMAError):
                self._cm.id.disconnect()
        self._end("closed")
        self._undo.close()
