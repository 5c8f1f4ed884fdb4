# C declarations of the control socket's messages. csrc/relay/ctl.h documents them.

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "ledger/resource.h":
    enum:
        SRDMA_RESOURCES

    enum:
        SRDMA_SIDE_LOCAL
        SRDMA_SIDE_REMOTE

    struct srdma_resource_row:
        unsigned sides
        const char *name

    const srdma_resource_row *srdma_resource(int r)
    const char *srdma_resource_count_name(unsigned i)


cdef extern from "ledger/ledger.h":
    enum:
        SRDMA_ACCOUNT_PROGRAM
        SRDMA_ACCOUNT_PROCESS
        SRDMA_ACCOUNT_GROUP
        SRDMA_ACCOUNT_IDENTITY
        SRDMA_LEDGER_QUOTAS


cdef extern from "relay/ctl.h":
    enum:
        SRDMA_CTL_VERSION
        SRDMA_CTL_HEADER_LEN
        SRDMA_CTL_MAX
        SRDMA_CTL_MAX_BODY
        SRDMA_CTL_IDENTITY_LEN
        SRDMA_CTL_TOKEN_MIN
        SRDMA_CTL_ALLOW_UNPROTECTED
        SRDMA_CTL_SHARED
        SRDMA_CTL_KINDS
        SRDMA_CTL_KEPT_QP_LEN
        SRDMA_CTL_RESOURCES
        SRDMA_CTL_QUOTA_LAST

    enum srdma_ctl_side:
        SRDMA_CTL_REQUEST
        SRDMA_CTL_ANSWER

    struct srdma_ctl_token:
        uint32_t len
        uint8_t *bytes  # an array

    struct srdma_ctl_stats_answer:
        uint32_t count
        uint64_t *counter  # an array

    struct srdma_ctl_msg:
        uint16_t kind
        uint32_t tag
        uint32_t status
        srdma_ctl_stats_answer stats
        char *text  # an array

    const char *srdma_ctl_name(uint32_t kind)
    int srdma_ctl_peek(srdma_ctl_msg *m, const uint8_t *data, size_t len)
    int srdma_ctl_decode(srdma_ctl_msg *m, srdma_ctl_side side, const uint8_t *data, size_t len)
    int srdma_ctl_encode(uint8_t *out, srdma_ctl_side side, const srdma_ctl_msg *m)


cdef extern from "relay/ctl_layout.h":
    enum:
        SRDMA_FIELD_END
        SRDMA_FIELD_UINT
        SRDMA_FIELD_BYTES
        SRDMA_FIELD_TEXT
        SRDMA_FIELD_ZERO
        SRDMA_FIELD_COUNTERS
        SRDMA_FIELD_TOKEN

    struct srdma_ctl_field:
        uint8_t type
        uint16_t size
        uint16_t at

    struct srdma_ctl_kind_layout:
        const srdma_ctl_field **body  # an array, by srdma_ctl_side

    const srdma_ctl_kind_layout *srdma_ctl_layout_of(uint32_t kind)


cdef extern from "memory/capability.h":
    enum:
        SRDMA_CAPABILITY_MAX
