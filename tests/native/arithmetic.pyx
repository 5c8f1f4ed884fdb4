# cython: language_level=3, embedsignature=True
"""Replay window and bounds check of csrc, for the lemmas of tests/proofs."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset


cdef extern from "session/window.h":
    enum:
        SRDMA_WINDOW_WORDS

    struct srdma_window:
        uint64_t next
        uint32_t size
        uint64_t seen[SRDMA_WINDOW_WORDS]

    void srdma_window_init(srdma_window *w, uint64_t first, uint32_t size)
    int srdma_window_test(const srdma_window *w, uint64_t pn)
    void srdma_window_commit(srdma_window *w, uint64_t pn)


cdef extern from "memory/mr.h":
    struct srdma_region:
        uint64_t base
        uint64_t length

    struct srdma_mr:
        srdma_region *region
        uint64_t base

    int srdma_mr_covers(const srdma_mr *mr, uint64_t addr, uint64_t size)


cdef class Window:
    """A replay window (window.h)."""

    cdef srdma_window window

    def __cinit__(self, uint64_t first, uint32_t size):
        srdma_window_init(&self.window, first, size)

    def test(self, uint64_t pn):
        """True if the number may be accepted."""
        return srdma_window_test(&self.window, pn) == 0

    def commit(self, uint64_t pn):
        srdma_window_commit(&self.window, pn)

    @property
    def next(self):
        return self.window.next

    @property
    def seen(self):
        """The bitmap, as one integer."""
        words = [self.window.seen[i] for i in range(SRDMA_WINDOW_WORDS)]
        return sum(word << (64 * i) for i, word in enumerate(words))


def allows(uint64_t base, uint64_t length, uint64_t addr, uint64_t size):
    """True if [addr, addr + size) lies in a region [base, base + length) (mr.h)."""
    cdef srdma_region region
    cdef srdma_mr mr
    memset(&region, 0, sizeof(region))
    memset(&mr, 0, sizeof(mr))
    region.base, region.length = base, length
    mr.region = &region
    mr.base = base
    return srdma_mr_covers(&mr, addr, size) != 0
