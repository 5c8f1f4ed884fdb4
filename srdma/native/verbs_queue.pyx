# cython: language_level=3, embedsignature=True
"""The data path of a leg over verbs (host/verbs_queue.h), at a QP that pyverbs made.

Nothing here is thread-safe: `srdma._engine` holds the lock of the PD around every call. This module
is not built without the headers of libibverbs.
"""

import os

from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint32_t

from srdma.native.hostleg cimport SRDMA_DESC_SLOT
from srdma.native.leg cimport NativeLeg, Pinned


cdef extern from "infiniband/verbs.h" nogil:
    struct ibv_comp_channel:
        int fd
    struct ibv_cq:
        ibv_comp_channel *channel
    struct ibv_qp:
        uint32_t qp_num
        ibv_cq *send_cq
    int ibv_get_cq_event(ibv_comp_channel *channel, ibv_cq **cq, void **cq_context)
    void ibv_ack_cq_events(ibv_cq *cq, unsigned int nevents)


cdef extern from "host/verbs_queue.h" nogil:
    enum:
        SRDMA_VERBS_QUEUE_SLOTS
        SRDMA_VERBS_QUEUE_SENDS

    struct srdma_verbs_queue_params:
        ibv_qp *qp
        ibv_cq *cq
        uint8_t *slots
        uint32_t lkey
        uint32_t inline_max
        uint32_t ring

    struct srdma_verbs_queue:
        const char *failed
        int error
        int status

    uint32_t srdma_verbs_queue_receives(uint32_t ring)
    void srdma_verbs_queue_init(srdma_verbs_queue *q, const srdma_verbs_queue_params *params)
    int srdma_verbs_queue_start(srdma_verbs_queue *q)
    uint8_t *srdma_verbs_queue_slot(srdma_verbs_queue *q)
    int srdma_verbs_queue_post(srdma_verbs_queue *q, uint32_t len)
    void srdma_verbs_queue_flush(srdma_verbs_queue *q)
    int srdma_verbs_queue_poll(srdma_verbs_queue *q)
    void srdma_verbs_queue_notify(srdma_verbs_queue *q)
    int srdma_verbs_queue_keepalive(srdma_verbs_queue *q, int64_t now)


SLOTS_LEN = SRDMA_VERBS_QUEUE_SLOTS * SRDMA_DESC_SLOT  # bytes of the slots of a queue
SENDS = SRDMA_VERBS_QUEUE_SENDS  # depth of the send queue


def receives(uint32_t ring):
    """Depth of the receive queue for a completion ring of `ring` records."""
    return srdma_verbs_queue_receives(ring)


cdef class VerbsQueue(NativeLeg):
    """Descriptors and completions of one QP, which has one CQ.

    qp: address of the `struct ibv_qp`, which must outlive this object; qp_num: its number. slots:
    SLOTS_LEN bytes, registered with the key lkey.
    """

    cdef srdma_verbs_queue queue
    cdef ibv_cq *cq
    cdef Pinned slots

    def __cinit__(self, size_t qp, uint32_t qp_num, slots, *, uint32_t lkey, uint32_t inline_max,
                  uint32_t ring):
        cdef srdma_verbs_queue_params p
        p.qp = <ibv_qp *>qp
        # Another version of pyverbs may have the address at another place.
        if qp == 0 or qp % sizeof(void *) or p.qp.qp_num != qp_num:
            raise ValueError(f"this is not the address of QP {qp_num}")
        self.slots = Pinned(slots, True)
        if self.slots.view.len != SLOTS_LEN:
            raise ValueError(f"{self.slots.view.len} bytes of slots, not {SLOTS_LEN}")
        p.cq, p.slots = p.qp.send_cq, <uint8_t *>self.slots.view.buf
        self.cq = p.cq
        p.lkey, p.inline_max, p.ring = lkey, inline_max, ring
        srdma_verbs_queue_init(&self.queue, &p)

    cdef uint8_t *next_slot(self) noexcept nogil:
        return srdma_verbs_queue_slot(&self.queue)

    cdef int append(self, uint32_t length) noexcept nogil:
        return srdma_verbs_queue_post(&self.queue, length)

    cdef void publish(self) noexcept nogil:
        srdma_verbs_queue_flush(&self.queue)

    cdef void take(self) noexcept nogil:
        srdma_verbs_queue_poll(&self.queue)

    cdef int arm_fd(self, bint memory) noexcept nogil:
        if memory or self.cq.channel == NULL:
            return -1
        srdma_verbs_queue_notify(&self.queue)
        return self.cq.channel.fd

    cdef void disarm(self) noexcept nogil:
        """The channel must not block."""
        cdef ibv_cq *cq
        cdef void *context
        while self.cq.channel != NULL and ibv_get_cq_event(self.cq.channel, &cq, &context) == 0:
            ibv_ack_cq_events(cq, 1)

    def start(self):
        """Post all receives; the QP is in INIT."""
        cdef int rc = srdma_verbs_queue_start(&self.queue)
        if rc < 0:
            raise OSError(-rc, f"posting receives: {os.strerror(-rc)}")

    def slot(self):
        cdef uint8_t *at = self.next_slot()
        return None if at == NULL else PyMemoryView_FromMemory(
            <char *>at, SRDMA_DESC_SLOT, PyBUF_WRITE)

    def post(self, uint32_t length):
        if self.append(length) < 0:
            raise ValueError(f"{length} bytes do not fit in a slot")

    def flush(self):
        self.publish()

    def poll(self):
        """Handle completions; returns their number."""
        return srdma_verbs_queue_poll(&self.queue)

    def notify(self):
        """Request an event of the CQ; poll afterwards."""
        srdma_verbs_queue_notify(&self.queue)

    def keepalive(self, int64_t now):
        """Send a heartbeat if it is due. now: monotonic, ms. 1: one was sent; 0: none; below 0: the
        last one was not acknowledged in time."""
        return srdma_verbs_queue_keepalive(&self.queue, now)

    @property
    def failure(self):
        """The text of a failed call, or the status of a failed completion; None: neither."""
        if self.queue.failed != NULL:
            return f"{self.queue.failed.decode()}: {os.strerror(self.queue.error)}"
        return self.queue.status or None
