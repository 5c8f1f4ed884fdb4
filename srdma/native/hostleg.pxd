# C declarations of the host side of a leg. The headers in host/ document them.

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from srdma.native.csrc cimport srdma_desc, srdma_record


cdef extern from "wire/wire.h":
    enum:
        SRDMA_DESC_SLOT
        SRDMA_SGE_LEN
        SRDMA_MAX_SGES
        SRDMA_WC_RECV
        SRDMA_WC_QP_EVENT


cdef extern from "wire/reason.h":
    enum:
        SRDMA_REASON_FLUSHED


cdef extern from "relay/relay.h":
    enum:
        SRDMA_MIN_RING
        SRDMA_MAX_RING


cdef extern from "wire/stats.h":
    const char *srdma_stats_name(unsigned i)
    unsigned srdma_stats_count()


cdef extern from "host/host.h" nogil:
    enum:
        SRDMA_HOST_BATCH

    struct srdma_host:
        pass

    int srdma_host_create(srdma_host **out, const void *ring, uint32_t entries)
    void srdma_host_destroy(srdma_host *h)
    int srdma_host_qp_add(srdma_host *h, uint32_t qpn, uint32_t sq, uint32_t rq)
    int srdma_host_qp_remove(srdma_host *h, uint32_t qpn)
    int srdma_host_post(srdma_host *h, const srdma_desc *wr,
                        const void *payload, uint8_t *slot)
    int srdma_host_owes(const srdma_host *h)
    int srdma_host_credit(srdma_host *h, uint8_t *slot)
    int srdma_host_poll(srdma_host *h, srdma_record *out, int n)
    void srdma_host_fail(srdma_host *h, uint32_t reason)
    uint64_t srdma_host_ignored(const srdma_host *h)


cdef extern from "host/leg_shm.h" nogil:
    struct srdma_leg_shm:
        pass

    int srdma_leg_shm_create(srdma_leg_shm **out, uint32_t ring)
    void srdma_leg_shm_destroy(srdma_leg_shm *leg)
    const int *srdma_leg_shm_fds(const srdma_leg_shm *leg)
    int srdma_leg_shm_attach(srdma_leg_shm *leg, const int *fds)
    uint8_t *srdma_leg_shm_slot(srdma_leg_shm *leg)
    int srdma_leg_shm_post(srdma_leg_shm *leg, uint32_t len)
    void srdma_leg_shm_flush(srdma_leg_shm *leg)
    const uint8_t *srdma_leg_shm_ring(const srdma_leg_shm *leg)
    void srdma_leg_shm_arm(srdma_leg_shm *leg, int memory)
    int srdma_leg_shm_fd(const srdma_leg_shm *leg)
    void srdma_leg_shm_disarm(srdma_leg_shm *leg)
    int srdma_leg_shm_region(size_t size, int *fd, void **addr)
    void srdma_leg_shm_region_free(void *addr, size_t size)
