# cython: language_level=3, embedsignature=True
"""Capabilities (csrc/memory/capability.h, protocol.md 6.2).

Offsets are in bytes from the start of the region.
"""

import errno

from srdma.native.buffers cimport put
from srdma.native.csrc cimport srdma_cmac_create, srdma_cmac_destroy, srdma_wipe
from srdma.native.memory cimport *


class RefusedError(ValueError):
    """A C function failed with -errno; its header in csrc/ gives the meaning."""

    def __init__(self, int number) -> None:
        super().__init__(errno.errorcode[number])
        self.errno = number


cdef int check(int result) except -1:
    """Return a result that is not negative; raise RefusedError for -errno."""
    if result < 0:
        raise RefusedError(-result)
    return result


cdef srdma_memkey_bearer bearer_of(bytes holder, uint32_t expiry) except *:
    cdef srdma_memkey_bearer bearer
    put(bearer.holder, SRDMA_MEMKEY_HOLDER_LEN, holder, "holder")
    bearer.expiry = expiry
    return bearer


cdef tuple node_of(const srdma_memnode *node):
    return node.depth, node.index, node.lo, node.hi


cdef class Cmac:
    """A scratch context for the derivation of keys."""

    def __cinit__(self):
        check(srdma_cmac_create(&self.c, SRDMA_MEMKEY_LEN, NULL))

    def __dealloc__(self):
        srdma_cmac_destroy(&self.c)


cdef class Token:
    """A capability. encode() returns the token; the keys are wiped when the object is freed."""

    def __init__(self, bytes data not None):
        check(srdma_capability_decode(&self.cap, data, len(data)))

    def __dealloc__(self):
        srdma_capability_wipe(&self.cap)

    def encode(self):
        cdef uint8_t out[SRDMA_CAPABILITY_MAX]
        data = out[:check(srdma_capability_encode(out, &self.cap))]
        srdma_wipe(out, sizeof(out))
        return data

    def narrow(self, uint64_t lo, uint64_t hi, uint8_t rights):
        cdef Cmac scratch = Cmac()
        cdef Token token = Token.__new__(Token)
        cdef srdma_capability_scope scope = srdma_capability_scope(lo, hi, rights)
        check(srdma_capability_narrow(&token.cap, &scratch.c, &self.cap, &scope))
        return token

    def seal(self, bytes holder, uint32_t expiry):
        cdef Cmac scratch = Cmac()
        cdef Token token = Token.__new__(Token)
        cdef srdma_memkey_bearer bearer = bearer_of(holder, expiry)
        token.cap = self.cap
        check(srdma_capability_seal(&token.cap, &scratch.c, &bearer))
        return token

    def proof(self, uint8_t right, uint64_t offset, bytes ad):
        """(node, proof) for an access that begins at `offset` and must end at the node's `hi`."""
        cdef Cmac scratch = Cmac()
        cdef Token ready = Token.__new__(Token)
        cdef srdma_capability_entry entry
        cdef uint8_t out[SRDMA_MEMKEY_PROOF_LEN]
        ready.cap = self.cap
        check(srdma_capability_ready(&ready.cap, &scratch.c))
        check(srdma_capability_find(&ready.cap, right, offset, &entry))
        check(srdma_memkey_proof(&scratch.c, out, entry.key, ad, len(ad)))
        return node_of(entry.node), out[:SRDMA_MEMKEY_PROOF_LEN]

    @property
    def nodes(self):
        """(depth, index, lo, hi) of each node."""
        return [node_of(&self.cap.node[i]) for i in range(self.cap.nodes)]

    @property
    def region(self):
        """(start, end, log2 block, depth limit)"""
        cdef srdma_memtree t = self.cap.tree
        return t.start, t.end, t.log2_block, t.depth_limit

    @property
    def granule(self):
        return srdma_memtree_granule(&self.cap.tree)

    @property
    def rkey(self):
        return self.cap.rkey

    @property
    def scope(self):
        """(lo, hi, rights)"""
        return self.cap.scope.lo, self.cap.scope.hi, self.cap.scope.rights

    @property
    def sealed(self):
        return self.cap.final != 0

    @property
    def holder(self):
        return self.cap.bearer.holder[:SRDMA_MEMKEY_HOLDER_LEN]

    @property
    def expiry(self):
        return self.cap.bearer.expiry
