# cython: language_level=3, embedsignature=True
"""Memory keys at the region's owner and at the target (memkey.h, memguard.h), for tests only.

Offsets are in bytes from the start of the region.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from srdma.native.buffers cimport put
from srdma.native.capability cimport Cmac, Token, bearer_of, check, node_of
from srdma.native.csrc cimport srdma_cmac, srdma_cmac_create, srdma_cmac_destroy, srdma_wipe
from srdma.native.memory cimport *
from tests.native.memguard cimport *

from srdma.native.capability import RefusedError


cdef class _Claim:
    """The access and proof of a packet, with the bytes that the C structure points to."""

    cdef srdma_memkey_claim claim
    cdef bytes ad
    cdef bytes proof

    def __cinit__(self, dict f):
        c = &self.claim
        self.ad, self.proof = f["ad"], f["proof"]
        if len(self.proof) != SRDMA_MEMKEY_PROOF_LEN:
            raise ValueError(f"proof has {SRDMA_MEMKEY_PROOF_LEN} bytes, not {len(self.proof)}")
        c.bearer = bearer_of(f.get("holder", bytes(16)), f.get("expiry", 0))
        c.right, c.depth, c.addr, c.len = (f[k] for k in ("right", "depth", "addr", "len"))
        c.ad, c.ad_len, c.proof = self.ad, len(self.ad), self.proof


cdef class Region:
    """The keys of a region as its owner has them, for tests and measurements.

    In the product the worker has these keys, in C only.
    """

    cdef srdma_memkey_cache cache
    cdef Cmac scratch
    cdef uint32_t rkey

    def __cinit__(self, bytes pd_key, tuple region, uint32_t rkey, uint64_t generation, bytes salt):
        cdef srdma_memtree tree = srdma_memtree(region[0], region[1], region[2], region[3])
        cdef srdma_memkey_id id
        cdef uint8_t parent[SRDMA_MEMKEY_LEN]
        cdef uint8_t key[SRDMA_MEMKEY_LEN]
        id.rkey, id.generation = rkey, generation
        put(id.salt, SRDMA_MEMKEY_SALT_LEN, salt, "salt")
        put(parent, SRDMA_MEMKEY_LEN, pd_key, "K_PDmem")
        check(srdma_memtree_check(&tree))
        self.scratch, self.rkey = Cmac(), rkey
        check(srdma_memkey_mr(&self.scratch.c, key, parent, &tree, &id))
        srdma_memkey_cache_init(&self.cache, &tree, key)
        srdma_wipe(parent, sizeof(parent))
        srdma_wipe(key, sizeof(key))

    def __dealloc__(self):
        srdma_memkey_cache_wipe(&self.cache)

    @property
    def mr_key(self):
        return self.cache.mr_key[:SRDMA_MEMKEY_LEN]

    def find(self, unsigned depth, uint64_t offset):
        """The node of this depth that contains the byte."""
        cdef srdma_memnode node
        check(srdma_memtree_find(&self.cache.tree, depth, offset, &node))
        return node_of(&node)

    def cover(self, uint64_t lo, uint64_t hi):
        """The fewest nodes that make up a range."""
        cdef srdma_memnode nodes[SRDMA_MEMTREE_COVER_MAX]
        n = check(srdma_memtree_cover(&self.cache.tree, lo, hi, nodes))
        return [node_of(&nodes[i]) for i in range(n)]

    def node_key(self, uint8_t right, unsigned depth, uint64_t offset):
        cdef srdma_memnode node
        cdef uint8_t key[SRDMA_MEMKEY_LEN]
        check(srdma_memtree_find(&self.cache.tree, depth, offset, &node))
        check(srdma_memkey_cache_node(&self.cache, &self.scratch.c, key, right, &node))
        return key[:SRDMA_MEMKEY_LEN]

    def grant(self, uint64_t lo, uint64_t hi, uint8_t rights):
        cdef Token token = Token.__new__(Token)
        cdef srdma_capability_scope scope = srdma_capability_scope(lo, hi, rights)
        check(srdma_capability_grant(&token.cap, &self.scratch.c, &self.cache, self.rkey, &scope))
        return token

    def check(self, dict claim, uint32_t now):
        """Checks a claim as the target does. RefusedError: it is refused."""
        cdef _Claim c = _Claim(claim)
        check(srdma_memkey_check(&self.cache, &self.scratch.c, &c.claim, now))


cdef class Guard:
    """A region that demands proofs, at the target, with its revoked ranges (memguard.h).

    For tests: in the product the worker has it. Here the caller gives the salts.
    """

    cdef srdma_memguard *guard
    cdef srdma_cmac scratch  # not a Cmac: the guard uses it until its own end
    cdef uint8_t pd_key[16]
    cdef uint32_t revoked  # number of this guard's revoked ranges
    cdef readonly uint64_t serial  # of the newest registration or revocation

    def __cinit__(self, bytes pd_key, tuple region, uint32_t rkey, bytes salt):
        cdef srdma_memguard_params p
        cdef srdma_memguard_fresh fresh = self.fresh(salt)
        check(srdma_cmac_create(&self.scratch, SRDMA_MEMKEY_LEN, NULL))
        put(self.pd_key, SRDMA_MEMKEY_LEN, pd_key, "K_PDmem")
        p.tree = srdma_memtree(region[0], region[1], region[2], region[3])
        p.rkey, p.cmac, p.pd_key = rkey, &self.scratch, self.pd_key
        p.revoked = &self.revoked
        check(srdma_memguard_create(&self.guard, &p, &fresh))

    def __dealloc__(self):
        srdma_memguard_destroy(self.guard)
        srdma_cmac_destroy(&self.scratch)
        srdma_wipe(self.pd_key, sizeof(self.pd_key))

    cdef srdma_memguard_fresh fresh(self, bytes salt) except *:
        cdef srdma_memguard_fresh fresh
        put(fresh.salt, SRDMA_MEMKEY_SALT_LEN, salt, "salt")
        self.serial += 1
        fresh.serial = self.serial
        return fresh

    def find(self, uint64_t lo, uint64_t hi):
        """(start, end) of the tree that checks proofs for these bytes."""
        cdef const srdma_memtree *tree
        check(srdma_memguard_find(self.guard, lo, hi, &tree))
        return tree.start, tree.end

    def check(self, dict claim, uint32_t now):
        """Checks a claim as the target does. RefusedError: it is refused."""
        cdef _Claim c = _Claim(claim)
        check(srdma_memguard_check(self.guard, &c.claim, now))

    def current(self, uint64_t serial, uint64_t lo, uint64_t hi):
        """True if none of these bytes was revoked after the serial."""
        return srdma_memguard_current(self.guard, serial, lo, hi) == 1

    def grant(self, uint64_t lo, uint64_t hi, uint8_t rights):
        cdef Token token = Token.__new__(Token)
        cdef srdma_capability_scope scope = srdma_capability_scope(lo, hi, rights)
        check(srdma_memguard_grant(self.guard, &token.cap, &scope))
        return token

    def revoke(self, uint64_t lo, uint64_t hi, bytes salt):
        cdef srdma_memguard_fresh fresh = self.fresh(salt)
        check(srdma_memguard_revoke(self.guard, lo, hi, &fresh))

    def revoke_all(self, bytes salt):
        cdef srdma_memguard_fresh fresh = self.fresh(salt)
        check(srdma_memguard_revoke_all(self.guard, &fresh))
