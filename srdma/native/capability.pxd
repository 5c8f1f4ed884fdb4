from libc.stdint cimport uint32_t

from srdma.native.csrc cimport srdma_cmac
from srdma.native.memory cimport srdma_capability, srdma_memkey_bearer, srdma_memnode


cdef int check(int result) except -1
cdef srdma_memkey_bearer bearer_of(bytes holder, uint32_t expiry) except *
cdef tuple node_of(const srdma_memnode *node)


cdef class Cmac:
    cdef srdma_cmac c


cdef class Token:
    cdef srdma_capability cap
