# Declarations of bench/kvs for kvs.pyx. The headers there document them.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from srdma.native.csrc cimport srdma_record
from srdma.native.hostleg cimport srdma_host, srdma_leg_shm


cdef extern from "protocol.h":
    enum:
        KVS_SLOT_LEN
        KVS_KEY_LEN
        KVS_VALUE_LEN

    struct kvs_request:
        pass

    uint32_t kvs_request_seal(kvs_request *r)


cdef extern from "end.h" nogil:
    struct kvs_end:
        srdma_host *host
        srdma_leg_shm *leg
        unsigned idle


cdef extern from "index.h" nogil:
    struct kvs_index:
        pass

    int kvs_index_create(kvs_index **out, uint32_t items, uint32_t buckets,
                         const uint64_t *seed)
    void kvs_index_destroy(kvs_index *index)
    uint64_t kvs_index_hash(const kvs_index *index, const uint8_t *key)
    int kvs_index_put(kvs_index *index, uint64_t hash, const uint8_t *key,
                      const uint8_t *value)
    uint32_t kvs_index_count(const kvs_index *index)
    uint32_t kvs_index_spares(const kvs_index *index)


cdef extern from "keys.h" nogil:
    void kvs_key_make(uint8_t *key, uint64_t id)
    void kvs_value_make(uint8_t *value, uint64_t id, uint64_t version)


cdef extern from "trace.h" nogil:
    struct kvs_mix_row:
        const char *name
        const char *what
        uint8_t reads
        uint8_t insert

    struct kvs_wish:
        pass

    const kvs_mix_row *kvs_mix_at(unsigned i)
    const kvs_mix_row *kvs_mix_named(const char *name)
    int kvs_trace_throw(kvs_wish *out, uint32_t n, const kvs_mix_row *mix,
                        uint32_t keys, double theta, uint64_t seed)


cdef extern from "latency.h" nogil:
    struct kvs_latency:
        pass

    uint64_t kvs_latency_quantile(const kvs_latency *l, double q)


cdef extern from "model.h" nogil:
    struct kvs_event:
        uint64_t start, end, version
        uint32_t id, put

    struct kvs_history:
        pass

    int kvs_history_create(kvs_history **out, uint32_t capacity)
    void kvs_history_destroy(kvs_history *history)
    uint32_t kvs_history_count(const kvs_history *history)
    int kvs_history_check(kvs_history *history, uint32_t keys, kvs_event *wrong)


cdef extern from "server.h" nogil:
    struct kvs_server:
        pass

    struct kvs_served:
        uint32_t qpn, sq, slots
        const uint8_t *memory

    struct kvs_server_counts:
        uint64_t gets, puts, misses, full, bad, bursts, sleeps
        uint32_t lost

    int kvs_server_create(kvs_server **out, const kvs_end *end,
                          kvs_index *index, const kvs_served *list, uint32_t n)
    void kvs_server_destroy(kvs_server *server)
    int kvs_server_run(kvs_server *server, uint64_t ns)
    const kvs_server_counts *_server_counts "kvs_server_counts"(const kvs_server *server)


cdef extern from "client.h" nogil:
    struct kvs_client:
        pass

    struct kvs_asker:
        uint32_t qpn, sq, rq, depth, slots
        uint64_t remote_addr
        uint32_t rkey, capability
        uint8_t *landing
        uint32_t lkey

    struct kvs_client_counts:
        uint64_t gets, puts, misses, ns

    struct kvs_plan:
        const kvs_wish *wishes
        uint32_t count
        const kvs_mix_row *mix
        uint64_t ns
        int (*look)(void *arg) noexcept nogil
        void *arg

    struct kvs_trouble:
        srdma_record record
        uint32_t id
        uint8_t status

    int kvs_client_create(kvs_client **out, const kvs_end *end,
                          const kvs_asker *list, uint32_t n, uint32_t keys,
                          uint32_t capacity)
    void kvs_client_destroy(kvs_client *client)
    void kvs_client_record(kvs_client *client, kvs_history *history)
    int kvs_client_run(kvs_client *client, const kvs_plan *plan, kvs_trouble *trouble)
    int kvs_client_bye(kvs_client *client, kvs_trouble *trouble)
    const kvs_client_counts *_client_counts "kvs_client_counts"(const kvs_client *client)
    const kvs_latency *_client_latency "kvs_client_latency"(const kvs_client *client)
    void kvs_client_reset(kvs_client *client)
    uint32_t kvs_client_keys(const kvs_client *client)
