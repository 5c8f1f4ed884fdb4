# What _leg.pyx uses of csrc beside _csrc.pxd. Declarations only.

from libc.stdint cimport uint32_t, uint64_t, uint8_t

from srdma._csrc cimport srdma_desc, srdma_record


cdef extern from "wire.h":
    enum:
        SRDMA_DESC_SLOT


cdef extern from "host.h":
    struct srdma_host:
        pass

    int srdma_host_create(srdma_host **out, const void *ring, uint32_t entries)
    void srdma_host_destroy(srdma_host *h)
    int srdma_host_qp_add(srdma_host *h, uint32_t qpn, uint32_t sq, uint32_t rq)
    int srdma_host_qp_remove(srdma_host *h, uint32_t qpn)
    int srdma_host_post(srdma_host *h, const srdma_desc *wr,
                        const void *payload, uint8_t *slot)
    int srdma_host_credit(srdma_host *h, uint8_t *slot)
    int srdma_host_poll(srdma_host *h, srdma_record *out, int n)
    void srdma_host_fail(srdma_host *h, uint32_t reason)
    uint64_t srdma_host_ignored(const srdma_host *h)
