# cython: language_level=3, embedsignature=True
"""The host's side of a leg: csrc/host.c and csrc/leg_shm.c, as thin as they can be.

Nothing here is locked: `srdma.pd` holds the lock of its PD around every call.
"""

from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)

from srdma._csrc cimport *
from srdma._hostleg cimport *

BATCH = 64  # completions that one Host.poll() gives at most
RECORD_LEN = SRDMA_RECORD_LEN
SLOT_LEN = SRDMA_DESC_SLOT


def reason(uint32_t code):
    """Name and text of a reason of protocol.md 13.1."""
    cdef const srdma_reason_row *row = srdma_reason(code)
    if row.name == NULL:
        return f"reason {code}", "a reason that this version does not know"
    return row.name.decode(), row.text.decode()


cdef class Pinned:
    """Holds a buffer where it is: it can neither move, nor shrink, nor be freed."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, buffer, bint writable):
        PyObject_GetBuffer(buffer, &self.view,
                           PyBUF_ANY_CONTIGUOUS | (PyBUF_WRITABLE if writable else PyBUF_SIMPLE))
        self.held = True

    def __dealloc__(self):
        self.close()

    cpdef close(self):
        if self.held:
            self.held = False
            PyBuffer_Release(&self.view)

    @property
    def addr(self):
        return <size_t>self.view.buf if self.held else 0

    @property
    def length(self):
        return self.view.len if self.held else 0

    @property
    def readonly(self):
        return bool(self.view.readonly)


cdef class Work:
    """A work request of one QP: a descriptor before the host numbers it."""

    cdef srdma_desc d

    def __cinit__(self, uint8_t opcode, uint32_t qpn, uint64_t wr_id=0, uint8_t flags=0):
        self.d.opcode, self.d.qpn, self.d.id, self.d.flags = opcode, qpn, wr_id, flags

    def local(self, uint64_t addr, uint32_t length, uint32_t key):
        self.d.local_addr, self.d.length, self.d.local_key = addr, length, key

    def remote(self, uint64_t addr, uint32_t rkey):
        self.d.remote_addr, self.d.rkey = addr, rkey

    def immediate(self, uint32_t imm):
        self.d.imm = imm


cdef class Host:
    """Descriptors, completion ring and credits (csrc/host.h). Ints below 0 are -errno."""

    cdef srdma_host *h
    cdef Pinned ring

    def __cinit__(self, ring):
        self.ring = Pinned(ring, False)
        cdef const void *at = self.ring.view.buf
        if srdma_host_create(&self.h, at, self.ring.view.len // SRDMA_RECORD_LEN) < 0:
            raise ValueError("the ring: a power of two of aligned 32-byte records")

    def __dealloc__(self):
        srdma_host_destroy(self.h)

    def close(self):
        srdma_host_destroy(self.h)
        self.h = NULL
        self.ring.close()

    cdef int alive(self) except -1:
        if self.h == NULL:
            raise ValueError("the host is closed")
        return 0

    def qp_add(self, uint32_t qpn, uint32_t sq, uint32_t rq):
        self.alive()
        return srdma_host_qp_add(self.h, qpn, sq, rq)

    def qp_remove(self, uint32_t qpn):
        self.alive()
        return srdma_host_qp_remove(self.h, qpn)

    def post(self, Work work, const uint8_t[::1] payload, uint8_t[::1] slot not None):
        """Fill the slot; payload None: the NIC reads local memory."""
        self.alive()
        cdef srdma_desc d = work.d
        cdef const void *data = NULL
        if slot.shape[0] < SRDMA_DESC_SLOT:
            raise ValueError("a slot has 512 bytes")
        if payload is not None:
            # A pointer to no bytes must not be NULL: the payload is immediate.
            data = <const void *>&payload[0] if payload.shape[0] else <const void *>&slot[0]
            d.length = <uint32_t>min(payload.shape[0], SRDMA_DESC_SLOT)
        return srdma_host_post(self.h, &d, data, &slot[0])

    def credit(self, uint8_t[::1] slot not None):
        self.alive()
        if slot.shape[0] < SRDMA_DESC_SLOT:
            raise ValueError("a slot has 512 bytes")
        return srdma_host_credit(self.h, &slot[0])

    def poll(self, int n):
        """Up to n completions, as (wr_id, qpn, opcode, status, flags, vendor_err, len, imm)."""
        cdef srdma_record records[64]  # BATCH
        cdef srdma_record *r
        self.alive()
        cdef int got = srdma_host_poll(self.h, records, min(n, BATCH))
        out = []
        for i in range(got):
            r = &records[i]
            out.append((r.id, r.qpn, r.opcode, r.status, r.flags, r.vendor_err, r.byte_len, r.imm))
        return out

    def fail(self, uint32_t reason):
        self.alive()
        srdma_host_fail(self.h, reason)

    @property
    def ignored(self):
        self.alive()
        return srdma_host_ignored(self.h)
