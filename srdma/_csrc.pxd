# What the extension modules use of csrc. Declarations only; the headers say
# what each means.

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "base/bytes.h":
    void srdma_wipe(void *p, size_t len)


cdef extern from "wire/reason.h":
    struct srdma_reason_row:
        const char *name
        const char *text
        uint8_t status
        uint8_t nak

    const srdma_reason_row *srdma_reason(uint32_t code)


cdef extern from "wire/stats.h":
    enum:
        SRDMA_REFUSED_COUNT


cdef extern from "wire/wire.h":
    enum:
        SRDMA_STH_PROOF
        SRDMA_PROOF_LEN
        SRDMA_MAX_GAPS
        SRDMA_MAX_TAG
        SRDMA_MAX_PAYLOAD
        SRDMA_MAX_PACKET
        SRDMA_DESC_LEN
        SRDMA_OPERANDS_LEN
        SRDMA_RECORD_LEN

    struct srdma_gap:
        uint32_t request_id
        uint32_t offset
        uint32_t length

    struct srdma_ack_body:
        uint8_t kind
        uint8_t reason
        uint8_t gaps
        uint8_t skips
        uint32_t request_id
        uint32_t offset
        uint32_t highest_pn
        uint32_t recv_credit
        uint32_t request_credit
        uint32_t length
        srdma_gap gap[8]

    struct srdma_packet:
        uint8_t opcode
        uint8_t epoch
        uint8_t pad
        uint32_t qpn
        uint32_t psn
        uint64_t pn
        uint64_t request_id
        uint32_t offset
        uint8_t flags
        uint8_t depth
        uint32_t expiry
        uint8_t proof[16]
        const uint8_t *access_key
        uint64_t va
        uint32_t rkey
        uint32_t dma_len
        uint64_t swap_add
        uint64_t compare
        uint64_t original
        uint32_t imm
        srdma_ack_body ack
        uint32_t payload_len
        uint32_t tag_at
        uint32_t tag_len
        uint32_t payload_at

    int srdma_wire_parse(srdma_packet *p, const uint8_t *data, size_t len,
                         uint32_t tag_len, uint32_t mtu)

    struct srdma_desc:
        uint8_t opcode
        uint8_t flags
        uint32_t qpn
        uint64_t id
        uint32_t consumed
        uint32_t length
        uint64_t local_addr
        uint32_t local_key
        uint32_t rkey
        uint64_t remote_addr
        uint32_t imm
        uint32_t capability
        uint64_t swap_add
        uint64_t compare

    uint32_t srdma_desc_encode(uint8_t *out, const srdma_desc *d)
    int srdma_desc_decode(srdma_desc *d, const uint8_t *data, size_t len)

    struct srdma_record:
        uint64_t id
        uint32_t qpn
        uint8_t opcode
        uint8_t status
        uint16_t flags
        uint32_t vendor_err
        uint32_t byte_len
        uint32_t imm
        uint32_t sequence

    void srdma_record_encode(uint8_t *out, const srdma_record *r)
    void srdma_record_decode(srdma_record *r, const uint8_t *data)


cdef extern from "crypto/kdf.h":
    struct srdma_kdf_info:
        const char *label
        const uint8_t *context
        size_t context_len

    int srdma_kdf(uint8_t *out, size_t out_len, const uint8_t *parent,
                  size_t parent_len, const srdma_kdf_info *info)


cdef extern from "crypto/provider.h":
    struct srdma_provider:
        pass


cdef extern from "crypto/cmac.h":
    struct srdma_cmac:
        pass

    int srdma_cmac_create(srdma_cmac *c, size_t key_len,
                          srdma_provider *provider)
    void srdma_cmac_destroy(srdma_cmac *c)


cdef extern from "session/window.h":
    int srdma_window_infer(uint64_t *c, uint64_t expected, uint32_t low)


cdef extern from "crypto/suite.h":
    struct srdma_suite_ctx:
        pass

    struct srdma_suite_io:
        const uint8_t *nonce
        const uint8_t *ad
        size_t ad_len
        # "in" is a Python keyword
        const uint8_t *data "in"
        size_t data_len "in_len"
        uint8_t *out

    enum srdma_suite_use:
        SRDMA_SUITE_OPEN
        SRDMA_SUITE_SEAL

    struct srdma_suite

    struct srdma_suite_key:
        const srdma_suite *suite
        srdma_suite_use use
        uint32_t tag_len
        const uint8_t *key

    struct srdma_suite_verbs:
        int (*create)(srdma_suite_ctx **ctx, srdma_provider *p,
                      const srdma_suite_key *k)
        int (*seal)(srdma_suite_ctx *ctx, const srdma_suite_io *io,
                    uint8_t *tag)
        int (*open)(srdma_suite_ctx *ctx, const srdma_suite_io *io,
                    const uint8_t *tag)
        void (*destroy)(srdma_suite_ctx *ctx)

    struct srdma_suite:
        uint8_t id
        const char *name
        uint8_t levels
        uint8_t recommended
        uint8_t key_len
        uint8_t iv_len
        uint8_t tag_len
        uint8_t tag_min
        uint64_t packets
        uint64_t forgeries
        const srdma_suite_verbs *verbs

    const srdma_suite *srdma_suite_by_name(const char *name)
    const srdma_suite *srdma_suite_at(unsigned i)

    int srdma_provider_create(srdma_provider **out, const char *name)
    void srdma_provider_destroy(srdma_provider *p)
    const srdma_suite_verbs *srdma_provider_verbs(const srdma_provider *p,
                                                  const srdma_suite *s)


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
