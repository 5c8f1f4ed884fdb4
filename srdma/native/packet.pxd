from srdma.native.csrc cimport srdma_packet


cdef int accepted(int result) except -1
cdef dict get_packet(const srdma_packet *p)
