# C declarations of memory keys and capabilities. The headers in csrc/memory document them.

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from srdma.native.csrc cimport srdma_cmac


cdef extern from "memory/memtree.h":
    enum:
        SRDMA_MEMTREE_COVER_MAX

    struct srdma_memtree:
        uint64_t start
        uint64_t end
        uint8_t log2_block
        uint8_t depth_limit

    struct srdma_memnode:
        uint64_t index
        uint64_t lo
        uint64_t hi
        uint8_t depth

    int srdma_memtree_check(const srdma_memtree *t)
    uint64_t srdma_memtree_granule(const srdma_memtree *t)
    int srdma_memtree_find(const srdma_memtree *t, unsigned depth,
                           uint64_t offset, srdma_memnode *node)
    int srdma_memtree_cover(const srdma_memtree *t, uint64_t lo, uint64_t hi,
                            srdma_memnode *node)


cdef extern from "memory/memkey.h":
    enum:
        SRDMA_MEMKEY_LEN
        SRDMA_MEMKEY_SALT_LEN
        SRDMA_MEMKEY_HOLDER_LEN
        SRDMA_MEMKEY_PROOF_LEN

    struct srdma_memkey_id:
        uint32_t rkey
        uint64_t generation
        uint8_t salt[16]

    struct srdma_memkey_bearer:
        uint8_t holder[16]
        uint32_t expiry

    struct srdma_memkey_cache:
        srdma_memtree tree
        uint8_t mr_key[16]

    struct srdma_memkey_claim:
        uint8_t right
        uint8_t depth
        uint64_t addr
        uint64_t len
        srdma_memkey_bearer bearer
        const uint8_t *ad
        size_t ad_len
        const uint8_t *proof

    int srdma_memkey_mr(srdma_cmac *c, uint8_t *out, const uint8_t *pd_key,
                        const srdma_memtree *t, const srdma_memkey_id *id)
    int srdma_memkey_proof(srdma_cmac *c, uint8_t *out,
                           const uint8_t *access_key, const uint8_t *ad,
                           size_t ad_len)
    void srdma_memkey_cache_init(srdma_memkey_cache *cache,
                                 const srdma_memtree *t,
                                 const uint8_t *mr_key)
    void srdma_memkey_cache_wipe(srdma_memkey_cache *cache)
    int srdma_memkey_cache_node(srdma_memkey_cache *cache, srdma_cmac *c,
                                uint8_t *out, uint8_t right,
                                const srdma_memnode *node)
    int srdma_memkey_check(srdma_memkey_cache *cache, srdma_cmac *c,
                           const srdma_memkey_claim *claim, uint32_t now)


cdef extern from "memory/capability.h":
    enum:
        SRDMA_CAPABILITY_MAX

    struct srdma_capability_scope:
        uint64_t lo
        uint64_t hi
        uint8_t rights

    struct srdma_capability:
        srdma_memtree tree
        uint32_t rkey
        srdma_capability_scope scope
        srdma_memkey_bearer bearer
        uint8_t final
        uint16_t nodes
        srdma_memnode *node

    struct srdma_capability_entry:
        const srdma_memnode *node
        const uint8_t *key

    void srdma_capability_wipe(srdma_capability *cap)
    int srdma_capability_grant(srdma_capability *cap, srdma_cmac *c,
                               srdma_memkey_cache *cache, uint32_t rkey,
                               const srdma_capability_scope *scope)
    int srdma_capability_narrow(srdma_capability *cap, srdma_cmac *c,
                                const srdma_capability *source,
                                const srdma_capability_scope *scope)
    int srdma_capability_seal(srdma_capability *cap, srdma_cmac *c,
                              const srdma_memkey_bearer *bearer)
    int srdma_capability_ready(srdma_capability *cap, srdma_cmac *c)
    int srdma_capability_find(const srdma_capability *cap, uint8_t right,
                              uint64_t offset, srdma_capability_entry *e)
    int srdma_capability_encode(uint8_t *out, const srdma_capability *cap)
    int srdma_capability_decode(srdma_capability *cap, const uint8_t *data,
                                size_t len)
