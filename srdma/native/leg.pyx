# cython: language_level=3, embedsignature=True
"""The host side of a leg: thin bindings of host/host.h and host/leg_shm.h.

Nothing here is thread-safe: `srdma._engine` holds the lock of the PD around every call.
"""

import os

from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBUF_WRITE, PyBuffer_FillInfo,
    PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t

from srdma.native.csrc cimport *
from srdma.native.hostleg cimport *

BATCH = SRDMA_HOST_BATCH  # completions that one Host.poll() gives at most


def reason(uint32_t code):
    """Name and text of a reason of protocol.md 13.1."""
    cdef const srdma_reason_row *row = srdma_reason(code)
    if row.name == NULL:
        return f"reason {code}", "a reason that this version does not know"
    return row.name.decode(), row.text.decode()


def counter_names():
    """Names of the counters of STATS (local-interface.md 3.7), in order; "" for unused places."""
    names = []
    for i in range(srdma_stats_count()):
        names.append("" if srdma_stats_name(i) == NULL else srdma_stats_name(i).decode())
    return names


cdef class Pinned:
    """Pins the memory of a buffer: it cannot be moved, shrunk or freed until close().

    It exports the same memory as plain bytes. Raises BufferError or ValueError if the buffer is not
    contiguous, or not writable as requested.
    """

    def __cinit__(self, buffer, bint writable):
        PyObject_GetBuffer(buffer, &self.view,
                           PyBUF_ANY_CONTIGUOUS | (PyBUF_WRITABLE if writable else PyBUF_SIMPLE))
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cpdef close(self):
        """Release the buffer; delayed until the last view of it is released."""
        self.closing = True
        if self.held and not self.views:
            self.held = False
            PyBuffer_Release(&self.view)

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.closing:
            raise ValueError("the memory was released")
        PyBuffer_FillInfo(view, self, self.view.buf, self.view.len, self.view.readonly, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.views -= 1
        if self.closing:
            self.close()

    @property
    def addr(self):
        return <size_t>self.view.buf if self.held else 0

    @property
    def length(self):
        return self.view.len if self.held else 0


cdef class Work:
    """A work request of one QP: a descriptor before the host sets its id and its
    count of consumed records."""

    def __cinit__(self, uint8_t opcode, uint32_t qpn, uint64_t wr_id=0, uint8_t flags=0):
        self.d.opcode, self.d.qpn, self.d.id, self.d.flags = opcode, qpn, wr_id, flags

    def local(self, uint64_t addr, uint32_t length, uint32_t key):
        self.d.local_addr, self.d.length, self.d.local_key = addr, length, key

    def scatter(self, list sges):
        """Set an SGL of at most SRDMA_MAX_SGES tuples (address, length, key)."""
        cdef srdma_sge sgl[SRDMA_MAX_SGES]
        cdef int i
        if len(sges) > SRDMA_MAX_SGES:
            raise ValueError(f"{len(sges)} SGEs: at most {SRDMA_MAX_SGES} are legal")
        for i in range(<int>len(sges)):
            sgl[i].addr, sgl[i].length, sgl[i].lkey = sges[i]
        self.data = Pinned(bytearray(len(sges) * SRDMA_SGE_LEN), True)
        srdma_sgl_encode(<uint8_t *>self.data.view.buf, sgl, <uint32_t>len(sges))
        self.d.length = sum(length for _, length, _ in sges)
        self.d.sges = <uint8_t>len(sges)

    cdef void move_local(self, uint64_t by) noexcept:
        cdef srdma_sge sgl[SRDMA_MAX_SGES]
        cdef int i
        self.d.local_addr += by
        if not self.d.sges:
            return
        srdma_sgl_decode(sgl, <uint8_t *>self.data.view.buf, self.d.sges)
        for i in range(self.d.sges):
            sgl[i].addr += by
        srdma_sgl_encode(<uint8_t *>self.data.view.buf, sgl, self.d.sges)

    def remote(self, uint64_t addr, uint32_t rkey):
        self.d.remote_addr, self.d.rkey = addr, rkey

    def immediate(self, uint32_t imm):
        self.d.imm = imm

    def capability(self, uint32_t handle):
        self.d.capability = handle

    def operands(self, uint64_t swap_add, uint64_t compare):
        self.d.swap_add, self.d.compare = swap_add, compare

    def payload(self, data):
        """Set inline data; its bytes are read at each post."""
        self.data = Pinned(data, False)
        self.d.length = <uint32_t>min(self.data.view.len, SRDMA_DESC_SLOT)

    cdef int post(self, srdma_host *h, uint8_t *slot) noexcept:
        cdef const void *data = NULL
        if self.data is not None:
            # The pointer must not be NULL even for 0 bytes: it marks inline data.
            data = self.data.view.buf if self.data.view.len else slot
        return srdma_host_post(h, &self.d, data, slot)


def move(list works, int64_t by):
    """Add `by` bytes to the local addresses of each work request, and to a remote one if not 0."""
    cdef Work work
    for work in works:
        work.move_local(<uint64_t>by)
        if work.d.remote_addr:
            work.d.remote_addr += <uint64_t>by


cdef class Host:
    """Descriptors, completion ring and credits (host/host.h). Negative results are -errno."""

    def __cinit__(self, ring):
        self.ring = Pinned(ring, False)
        cdef const void *at = self.ring.view.buf
        cdef uint32_t entries = <uint32_t>min(self.ring.view.len // SRDMA_RECORD_LEN, 1 << 20)
        if (self.ring.view.len % SRDMA_RECORD_LEN
                or srdma_host_create(&self.h, at, entries) < 0):
            raise ValueError("the ring must be an aligned power of two of 32-byte records")

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

    def post_all(self, NativeLeg leg not None, list works not None, Py_ssize_t first):
        """Post works[first:] and make them visible. Returns (number posted, 0 or the -errno that
        ended it)."""
        cdef Py_ssize_t end = len(works), i = first
        cdef uint8_t *slot
        cdef int used = 0
        self.alive()
        leg.alive()
        while i < end:
            slot = leg.next_slot()
            used = -EAGAIN if slot == NULL else (<Work?>works[i]).post(self.h, slot)
            if used < 0:
                break
            leg.append(<uint32_t>used)
            i += 1
        leg.publish()
        return i - first, min(used, 0)

    @property
    def owes(self):
        """True if a CREDIT descriptor must be posted (local-interface.md 2.3)."""
        self.alive()
        return srdma_host_owes(self.h) != 0

    def credit(self, uint8_t[::1] slot not None):
        self.alive()
        if slot.shape[0] < SRDMA_DESC_SLOT:
            raise ValueError("a slot has 512 bytes")
        return srdma_host_credit(self.h, &slot[0])

    def poll(self, int n):
        """Up to n (at most BATCH) completions: (wr_id, qpn, opcode, status, flags, vendor_err,
        byte_len, imm)."""
        cdef srdma_record records[SRDMA_HOST_BATCH]
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


cdef class Region:
    """Zeroed memory in a memfd, which the worker can map; exported as this object's buffer."""

    cdef void *at
    cdef Py_ssize_t size
    cdef readonly int fd  # memfd to send with REG_MR; -1 after sent()

    def __cinit__(self, size_t size):
        self.fd = -1
        if srdma_leg_shm_region(size, &self.fd, &self.at) < 0:
            raise MemoryError(f"cannot allocate {size} bytes of shared memory")
        self.size = size

    def __dealloc__(self):
        self.sent()
        if self.at != NULL:
            srdma_leg_shm_region_free(self.at, self.size)

    cpdef sent(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.at, self.size, 0, flags)


cdef class NativeLeg:
    """The data path of a leg, for Host.post_all() and for load generators."""

    cdef uint8_t *next_slot(self) noexcept nogil:
        """The next free slot; NULL: none is free."""
        return NULL

    cdef int append(self, uint32_t length) noexcept nogil:
        """Append the slot, of which `length` bytes are used. 0 or -EMSGSIZE."""
        return 0

    cdef void publish(self) noexcept nogil:
        """Make what was appended visible to the worker."""

    cdef void take(self) noexcept nogil:
        """Handle completions of the device; called before each look at the ring."""

    cdef int arm_fd(self, bint memory) noexcept nogil:
        """Returns a file descriptor that becomes readable when a completion arrives; poll once
        more before sleeping. memory: also when a peer writes to memory; -1: the leg cannot."""
        return -1

    cdef void disarm(self) noexcept nogil:
        """Called after arm_fd(), with or without sleeping."""

    cdef int alive(self) except -1:
        return 0


cdef class ShmLeg(NativeLeg):
    """A leg of the embedded NIC (host/leg_shm.h). It exports the completion ring as its buffer."""

    def __cinit__(self, uint32_t entries):
        if srdma_leg_shm_create(&self.leg, entries) < 0:
            raise MemoryError(f"no leg of {entries} records: a power of two, "
                              f"{SRDMA_MIN_RING}..{SRDMA_MAX_RING}, is legal")
        self.entries = entries

    def __dealloc__(self):
        srdma_leg_shm_destroy(self.leg)

    cdef int alive(self) except -1:
        if self.leg == NULL:
            raise ValueError("the leg is closed")
        return 0

    cdef uint8_t *next_slot(self) noexcept nogil:
        return srdma_leg_shm_slot(self.leg)

    cdef int append(self, uint32_t length) noexcept nogil:
        return srdma_leg_shm_post(self.leg, length)

    cdef void publish(self) noexcept nogil:
        srdma_leg_shm_flush(self.leg)

    cdef int arm_fd(self, bint memory) noexcept nogil:
        srdma_leg_shm_arm(self.leg, memory)
        return srdma_leg_shm_fd(self.leg)

    cdef void disarm(self) noexcept nogil:
        srdma_leg_shm_disarm(self.leg)

    @property
    def native(self):
        return self

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.alive()
        PyBuffer_FillInfo(view, self, <void *>srdma_leg_shm_ring(self.leg),
                          self.entries * SRDMA_RECORD_LEN, 1, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.views -= 1

    def close(self):
        if self.views:
            raise BufferError("the completion ring is in use: close the host first")
        srdma_leg_shm_destroy(self.leg)
        self.leg = NULL

    @property
    def ring(self):
        return memoryview(self)

    closed = None  # never set: the end of the worker shows at the control socket

    def poll(self):
        """Nothing to do: the worker writes the ring directly."""

    @property
    def fds(self):
        self.alive()
        cdef const int *fds = srdma_leg_shm_fds(self.leg)
        return fds[0], fds[1], fds[2]

    def attach(self, fds):
        """Use the two file descriptors of OPEN's answer; the caller still owns them."""
        cdef int[2] got
        self.alive()
        got[0], got[1] = fds
        cdef int rc = srdma_leg_shm_attach(self.leg, got)
        if rc < 0:
            raise OSError(-rc, f"unusable file descriptors of the worker: {os.strerror(-rc)}")

    def slot(self):
        self.alive()
        cdef uint8_t *at = srdma_leg_shm_slot(self.leg)
        if at == NULL:
            return None
        return PyMemoryView_FromMemory(<char *>at, SRDMA_DESC_SLOT, PyBUF_WRITE)

    def post(self, uint32_t length):
        self.alive()
        if srdma_leg_shm_post(self.leg, length) < 0:
            raise ValueError(f"{length} bytes do not fit in a slot")

    def flush(self):
        self.alive()
        srdma_leg_shm_flush(self.leg)

    def fileno(self):
        self.alive()
        return srdma_leg_shm_fd(self.leg)

    def arm(self, bint memory=False):
        """Prepare for sleeping on fileno(); poll once more before. Always returns False."""
        self.alive()
        srdma_leg_shm_arm(self.leg, memory)
        return False

    def drain(self):
        self.alive()
        srdma_leg_shm_disarm(self.leg)

    def reg(self, uint64_t addr, uint64_t length, int access):
        """Nothing to register: the embedded NIC has no host rkeys."""
        return 0

    def dereg(self, uint32_t rkey):
        """Nothing to undo."""
