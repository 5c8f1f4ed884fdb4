# C declarations for bindings.pyx beside those of srdma.native.csrc.

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from srdma.native.csrc cimport srdma_cmac, srdma_packet, srdma_provider


cdef extern from "crypto/kdf.h":
    struct srdma_kdf_info:
        const char *label
        const uint8_t *context
        size_t context_len

    int srdma_kdf(uint8_t *out, size_t out_len, const uint8_t *parent,
                  size_t parent_len, const srdma_kdf_info *info)


cdef extern from "session/window.h":
    int srdma_window_infer(uint64_t *c, uint64_t expected, uint32_t low)


cdef extern from "session/pdkeys.h":
    enum:
        SRDMA_GROUP_KEY_LEN

    struct srdma_pdkeys:
        uint8_t pd[48]
        uint8_t mem[16]
        uint32_t serial

    struct srdma_endpoint:
        uint8_t eid[16]
        uint32_t qpn

    struct srdma_pdkeys_flow:
        srdma_endpoint receiver
        srdma_endpoint sender
        uint8_t generation[8]

    int srdma_pdkeys_rotate(srdma_pdkeys *keys, const uint8_t *pd)
    int srdma_pdkeys_secret(const srdma_pdkeys *keys, uint8_t *out, size_t len,
                            const srdma_pdkeys_flow *flow)


cdef extern from "session/keycache.h":
    struct srdma_keycache:
        pass

    struct srdma_keycache_counts:
        uint64_t hits
        uint64_t misses
        uint32_t kept

    int srdma_keycache_create(srdma_keycache **out, unsigned contexts,
                              srdma_provider *provider)
    void srdma_keycache_destroy(srdma_keycache *c)
    void srdma_keycache_count(const srdma_keycache *c,
                              srdma_keycache_counts *counts)


cdef extern from "session/session.h":
    struct srdma_session:
        pass

    enum srdma_level:
        SRDMA_LEVEL_NONE
        SRDMA_LEVEL_HEADER
        SRDMA_LEVEL_PACKET
        SRDMA_LEVEL_AEAD

    enum srdma_mode:
        SRDMA_MODE_PD
        SRDMA_MODE_MEM

    enum:
        SRDMA_EID_LEN
        SRDMA_GENERATION_LEN
        SRDMA_MAX_SECRET

    struct srdma_session_params:
        uint8_t role
        uint8_t suite
        uint8_t level
        uint8_t mode
        uint8_t tag_len
        uint8_t secret_len
        uint32_t window
        uint32_t mtu
        uint8_t generation[8]
        uint8_t local_eid[16]
        uint8_t peer_eid[16]
        uint32_t local_qpn
        uint32_t peer_qpn
        uint64_t tx_pn
        uint64_t rx_pn
        uint8_t tx_secret[32]
        uint8_t rx_secret[32]
        uint64_t rekey_packets
        uint64_t rekey_bytes
        uint64_t rekey_ns
        srdma_pdkeys *pd
        uint32_t pd_serial
        uint8_t shared
        srdma_keycache *cache
        srdma_cmac *cmac

    struct srdma_session_state:
        uint32_t key_bytes
        uint32_t nonce_bytes
        uint32_t window_bytes

    int srdma_session_create(srdma_session **out,
                             const srdma_session_params *params)
    void srdma_session_destroy(srdma_session *s)
    int srdma_session_seal(srdma_session *s, srdma_packet *p,
                           const uint8_t *payload, uint8_t *out, size_t cap)
    int srdma_session_open(srdma_session *s, srdma_packet *p,
                           const uint8_t *data, size_t len, uint8_t *plain)
    size_t srdma_session_claim(const srdma_session *s, const srdma_packet *p,
                               const uint8_t **ad)
    void srdma_session_state_of "srdma_session_state"(
        const srdma_session *s, srdma_session_state *state)
    uint64_t srdma_session_highest(const srdma_session *s)
    uint64_t srdma_session_next_pn(const srdma_session *s)
    uint64_t srdma_session_forgeries(const srdma_session *s)
    int srdma_session_spent(const srdma_session *s)
    int srdma_session_limit(srdma_session *s, uint64_t packets,
                            uint64_t forgeries)
    enum srdma_direction:
        SRDMA_RX
        SRDMA_TX
    uint32_t srdma_session_epoch(const srdma_session *s,
                                 srdma_direction direction)
    uint8_t srdma_session_secret_len(const srdma_session *s)
    int srdma_session_advance(srdma_session *s, uint64_t now, uint64_t told)
    int srdma_session_renew(srdma_session *s, srdma_direction direction,
                            const uint8_t *secret, uint32_t pd_serial)
    uint32_t srdma_session_overhead(const srdma_session *s)
