# cython: language_level=3, embedsignature=True
"""Memory keys and capabilities of csrc, as thin as they can be.

Offsets are in bytes relative to the region's start, as in csrc/memory/memtree.h.
"""

import errno

from libc.string cimport memcpy, memset

from srdma._csrc cimport srdma_cmac, srdma_cmac_create, srdma_cmac_destroy, srdma_wipe
from srdma._memkeys cimport *


class RefusedError(ValueError):
    """It cannot be; `errno` says why, as the headers of csrc tell."""

    def __init__(self, int number) -> None:
        super().__init__(errno.errorcode[number])
        self.errno = number


cdef int check(int result) except -1:
    """The result, or its -errno as an exception."""
    if result < 0:
        raise RefusedError(-result)
    return result


cdef int put(uint8_t *to, size_t size, bytes value, str name) except -1:
    if <size_t>len(value) != size:
        raise ValueError(f"{name} has {size} bytes, not {len(value)}")
    memcpy(to, <const uint8_t *>value, size)
    return 0


cdef srdma_memkey_bearer bearer_of(bytes holder, uint32_t expiry) except *:
    cdef srdma_memkey_bearer bearer
    put(bearer.holder, SRDMA_MEMKEY_HOLDER_LEN, holder, "holder")
    bearer.expiry = expiry
    return bearer


cdef tuple node_of(const srdma_memnode *node):
    return node.depth, node.index, node.lo, node.hi


cdef class Cmac:
    """A scratch context of whoever derives keys."""

    cdef srdma_cmac c

    def __cinit__(self):
        check(srdma_cmac_create(&self.c, SRDMA_MEMKEY_LEN, NULL))

    def __dealloc__(self):
        srdma_cmac_destroy(&self.c)


cdef class Token:
    """A capability; its own bytes are `encode()`."""

    cdef srdma_capability cap

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
        """(node, proof) of an access that begins at offset; the node's `hi` cuts it."""
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
        """(depth, index, lo, hi) of each."""
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


cdef class _Claim:
    """What a packet wants and proves, with the bytes that it points to."""

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
    """The keys of a region as its owner has them: for tests and measurements.

    The product's owner is the worker, which has them in C only.
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
        """The node of a depth with this byte."""
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
        """Does the target take it? RefusedError if not."""
        cdef _Claim c = _Claim(claim)
        check(srdma_memkey_check(&self.cache, &self.scratch.c, &c.claim, now))


cdef class Guard:
    """A region that demands proofs, at its target, and what was revoked of it (memguard.h).

    For tests: the product's is in the worker. Salts are the caller's here.
    """

    cdef srdma_memguard *guard
    cdef srdma_cmac scratch  # not a Cmac: the guard uses it to its end
    cdef uint8_t pd_key[16]
    cdef uint32_t revoked  # its own ranges: no other guard counts there
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
        """(start, end) of the tree that judges these bytes."""
        cdef const srdma_memtree *tree
        check(srdma_memguard_find(self.guard, lo, hi, &tree))
        return tree.start, tree.end

    def check(self, dict claim, uint32_t now):
        """Does the target take it? RefusedError if not."""
        cdef _Claim c = _Claim(claim)
        check(srdma_memguard_check(self.guard, &c.claim, now))

    def current(self, uint64_t serial, uint64_t lo, uint64_t hi):
        """Was nothing of these bytes revoked after the serial?"""
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
