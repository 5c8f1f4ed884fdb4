# C declarations that several extension modules share. The headers in csrc/ document them.

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
        uint32_t path
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
    int srdma_wire_tag_code(uint32_t tag_len)

    struct srdma_desc:
        uint8_t opcode
        uint8_t flags
        uint8_t sges
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

    struct srdma_sge:
        uint64_t addr
        uint32_t length
        uint32_t lkey

    void srdma_sgl_encode(uint8_t *out, const srdma_sge *sgl, uint32_t n)
    void srdma_sgl_decode(srdma_sge *sgl, const uint8_t *data, uint32_t n)

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


cdef extern from "crypto/provider.h":
    struct srdma_provider:
        pass


cdef extern from "crypto/cmac.h":
    struct srdma_cmac:
        pass

    int srdma_cmac_create(srdma_cmac *c, size_t key_len,
                          srdma_provider *provider)
    void srdma_cmac_destroy(srdma_cmac *c)


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
    int srdma_suite_selftest(const srdma_suite *s, srdma_provider *p)

    int srdma_provider_create(srdma_provider **out, const char *name)
    void srdma_provider_destroy(srdma_provider *p)
    const srdma_suite_verbs *srdma_provider_verbs(const srdma_provider *p,
                                                  const srdma_suite *s)
