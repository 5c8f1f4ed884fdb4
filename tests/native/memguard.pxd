# C declarations for memkeys.pyx beside those of srdma.native.memory.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from srdma.native.csrc cimport srdma_cmac
from srdma.native.memory cimport (
    srdma_capability, srdma_capability_scope, srdma_memkey_claim, srdma_memtree,
)


cdef extern from "memory/memguard.h":
    struct srdma_memguard:
        pass

    struct srdma_memguard_params:
        srdma_memtree tree
        uint32_t rkey
        srdma_cmac *cmac
        const uint8_t *pd_key
        uint32_t *revoked

    struct srdma_memguard_fresh:
        uint8_t salt[16]
        uint64_t serial

    int srdma_memguard_create(srdma_memguard **out,
                              const srdma_memguard_params *params,
                              const srdma_memguard_fresh *fresh)
    void srdma_memguard_destroy(srdma_memguard *g)
    int srdma_memguard_find(const srdma_memguard *g, uint64_t lo, uint64_t hi,
                            const srdma_memtree **tree)
    int srdma_memguard_check(srdma_memguard *g,
                             const srdma_memkey_claim *claim, uint32_t now)
    int srdma_memguard_current(const srdma_memguard *g, uint64_t serial,
                               uint64_t lo, uint64_t hi)
    int srdma_memguard_grant(srdma_memguard *g, srdma_capability *cap,
                             const srdma_capability_scope *scope)
    int srdma_memguard_revoke_all(srdma_memguard *g,
                                  const srdma_memguard_fresh *fresh)
    int srdma_memguard_revoke(srdma_memguard *g, uint64_t lo, uint64_t hi,
                              const srdma_memguard_fresh *fresh)
