# Declarations of leg.pyx for other extension modules.

from srdma.native.csrc cimport srdma_desc
from srdma.native.hostleg cimport srdma_host, srdma_leg_shm

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef class Pinned:
    cdef Py_buffer view
    cdef bint held, closing
    cdef int views
    cpdef close(self)


cdef class Work:
    cdef srdma_desc d
    cdef Pinned data  # inline data or the SGL that follows the descriptor; None: none
    cdef void move_local(self, uint64_t by) noexcept
    cdef int post(self, srdma_host *h, uint8_t *slot) noexcept


cdef class Host:
    cdef srdma_host *h
    cdef Pinned ring
    cdef int alive(self) except -1


cdef class NativeLeg:
    cdef uint8_t *next_slot(self) noexcept nogil
    cdef int append(self, uint32_t length) noexcept nogil
    cdef void publish(self) noexcept nogil
    cdef void take(self) noexcept nogil
    cdef int arm_fd(self, bint memory) noexcept nogil
    cdef void disarm(self) noexcept nogil
    cdef int alive(self) except -1


cdef class ShmLeg(NativeLeg):
    cdef srdma_leg_shm *leg
    cdef uint32_t entries
    cdef int views
