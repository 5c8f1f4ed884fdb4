from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.string cimport memcpy


cdef inline int put(uint8_t *to, size_t size, bytes value, str name) except -1:
    """Copy `value` to a C array of `size` bytes; ValueError if its length differs."""
    if <size_t>len(value) != size:
        raise ValueError(f"{name} has {size} bytes, not {len(value)}")
    memcpy(to, <const uint8_t *>value, size)
    return 0
