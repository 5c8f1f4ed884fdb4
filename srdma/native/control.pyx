# cython: language_level=3, embedsignature=True
"""Messages of a worker's control socket, by the C codec of the worker (csrc/relay/ctl.h).

A body is a sequence of values in the order of its layout (csrc/relay/ctl_layout.c): int for
numbers, str for texts, bytes-like for the rest, without reserved fields. A request may contain
secrets: the caller wipes the message. Copies in C are wiped here.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset, strlen

from srdma.native.csrc cimport srdma_wipe
from srdma.native.ctl cimport *

VERSION = SRDMA_CTL_VERSION
HEADER_LEN = SRDMA_CTL_HEADER_LEN
MAX_MESSAGE = SRDMA_CTL_MAX
IDENTITY_LEN = SRDMA_CTL_IDENTITY_LEN  # with the last zero
TOKEN_MIN = SRDMA_CTL_TOKEN_MIN
TOKEN_MAX = SRDMA_CAPABILITY_MAX
ALLOW_UNPROTECTED = SRDMA_CTL_ALLOW_UNPROTECTED  # flag of the answer to HELLO
SHARED = SRDMA_CTL_SHARED  # flag of OPEN
KEPT_QP_LEN = SRDMA_CTL_KEPT_QP_LEN  # bytes of a QP in the answer to ADOPT


def resources_of(side):
    """Names of the resources that accounts of a side have."""
    return tuple(
        srdma_resource(r).name.decode()
        for r in range(<int>SRDMA_RESOURCES)
        if srdma_resource(r).sides & 1 << side
    )


# Resources by their numbers, and the places that QUOTA and USAGE have for them.
RESOURCES = tuple(
    srdma_resource(r).name.decode() for r in range(<int>SRDMA_RESOURCES)
)
LOCAL_RESOURCES = resources_of(SRDMA_SIDE_LOCAL)  # that local programs have
REMOTE_RESOURCES = resources_of(SRDMA_SIDE_REMOTE)  # that identities of peers have
RESOURCE_PLACES = SRDMA_CTL_RESOURCES
QUOTA_LAST = SRDMA_CTL_QUOTA_LAST  # flag of QUOTA
QUOTAS_MAX = SRDMA_LEDGER_QUOTAS  # with a name
PROGRAM = SRDMA_ACCOUNT_PROGRAM  # kinds of accounts
PROCESS = SRDMA_ACCOUNT_PROCESS
GROUP = SRDMA_ACCOUNT_GROUP
IDENTITY = SRDMA_ACCOUNT_IDENTITY

# Kinds of messages by name.
KINDS = {
    srdma_ctl_name(kind).decode(): kind
    for kind in range(1, SRDMA_CTL_KINDS)
    if srdma_ctl_name(kind) != NULL
}


def count_names():
    """Names of the counters of QPs and accounts, in their order."""
    names = []
    while srdma_resource_count_name(len(names)) != NULL:
        names.append(srdma_resource_count_name(len(names)).decode())
    return tuple(names)


cdef const srdma_ctl_field *layout(uint32_t kind, srdma_ctl_side side) except NULL:
    cdef const srdma_ctl_kind_layout *found = srdma_ctl_layout_of(kind)
    if found == NULL:
        raise ValueError(f"there is no message of kind {kind}")
    return found.body[<int>side]


cdef bytearray copied(const void *data, size_t size):
    cdef bytearray out = bytearray(size)
    memcpy(PyByteArray_AS_STRING(out), data, size)
    return out


# --- requests ---------------------------------------------------------------


cdef int put_uint(void *member, unsigned size, object value) except -1:
    cdef uint64_t most = <uint64_t>-1 >> (64 - 8 * size)
    if not 0 <= value <= most:
        raise ValueError(f"{value} does not fit into {size} bytes")
    if size == 1:
        (<uint8_t *>member)[0] = value
    elif size == 4:
        (<uint32_t *>member)[0] = value
    else:
        (<uint64_t *>member)[0] = value
    return 0


cdef int put_bytes(void *member, size_t size, const uint8_t[:] value) except -1:
    """Copy at most `size` bytes; the caller has zeroed the field."""
    if <size_t>value.shape[0] > size:
        raise ValueError(f"{value.shape[0]} bytes do not fit in {size}")
    if value.shape[0]:
        memcpy(member, &value[0], value.shape[0])
    return 0


cdef int put_text(void *member, size_t size, str value) except -1:
    data = value.encode()
    if <size_t>len(data) >= size or 0 in data:
        raise ValueError(f"{value!r}: give at most {size - 1} bytes of text without a zero")
    memcpy(member, <const uint8_t *>data, len(data))
    return 0


cdef int put_token(srdma_ctl_token *token, const uint8_t[:] value) except -1:
    put_bytes(token.bytes, SRDMA_CAPABILITY_MAX, value)
    token.len = <uint32_t>value.shape[0]
    return 0


cdef int put_field(srdma_ctl_msg *m, const srdma_ctl_field *f, object value) except -1:
    cdef void *member = <char *>m + f.at
    if f.type == SRDMA_FIELD_UINT:
        return put_uint(member, f.size, value)
    if f.type == SRDMA_FIELD_TEXT:
        return put_text(member, f.size, value)
    if f.type == SRDMA_FIELD_TOKEN:
        return put_token(<srdma_ctl_token *>member, value)
    return put_bytes(member, f.size, value)


cdef int put_body(srdma_ctl_msg *m, const srdma_ctl_field *f, values) except -1:
    left = iter(values)
    while f.type != SRDMA_FIELD_END:
        if f.type != SRDMA_FIELD_ZERO:
            put_field(m, f, next(left))
        f += 1
    if next(left, None) is not None:
        raise ValueError("more values than fields")
    return 0


def encode(uint32_t kind, uint32_t tag, values):
    """Encode a request. ValueError if a value does not fit into its field."""
    cdef srdma_ctl_msg m
    cdef uint8_t out[SRDMA_CTL_MAX]
    memset(&m, 0, sizeof(m))
    m.kind, m.tag = kind, tag
    try:
        put_body(&m, layout(kind, SRDMA_CTL_REQUEST), values)
        length = srdma_ctl_encode(out, SRDMA_CTL_REQUEST, &m)
        if length < 0:
            raise ValueError("a text or a token is not legal")
        return copied(out, length)
    finally:
        srdma_wipe(&m, sizeof(m))
        srdma_wipe(out, sizeof(out))


# --- answers ----------------------------------------------------------------


cdef object get_uint(const void *member, unsigned size):
    if size == 1:
        return (<const uint8_t *>member)[0]
    if size == 4:
        return (<const uint32_t *>member)[0]
    return (<const uint64_t *>member)[0]


cdef object get_field(const srdma_ctl_msg *m, const srdma_ctl_field *f):
    cdef const char *member = <const char *>m + f.at
    cdef const srdma_ctl_token *token = <const srdma_ctl_token *>member
    if f.type == SRDMA_FIELD_UINT:
        return get_uint(member, f.size)
    if f.type == SRDMA_FIELD_TEXT:
        return member[:strlen(member)].decode()
    if f.type == SRDMA_FIELD_COUNTERS:
        return tuple(m.stats.counter[i] for i in range(m.stats.count))
    if f.type == SRDMA_FIELD_TOKEN:
        return copied(token.bytes, token.len)
    return copied(member, f.size)


def peek(const uint8_t[:] data):
    """(kind, tag, status) of a message; None if its header is illegal."""
    cdef srdma_ctl_msg m
    if data.shape[0] == 0 or srdma_ctl_peek(&m, &data[0], data.shape[0]) < 0:
        return None
    return m.kind, m.tag, m.status


def decode(const uint8_t[:] data not None):
    """Values of an answer, or the text of a refusal. ValueError if the message is illegal."""
    cdef srdma_ctl_msg m
    cdef const srdma_ctl_field *f
    try:
        if data.shape[0] == 0 or srdma_ctl_decode(&m, SRDMA_CTL_ANSWER, &data[0], data.shape[0]) < 0:
            raise ValueError("no legal answer")
        if m.status != 0:
            return m.text[:strlen(m.text)].decode()
        f, found = layout(m.kind, SRDMA_CTL_ANSWER), []
        while f.type != SRDMA_FIELD_END:
            if f.type != SRDMA_FIELD_ZERO:
                found.append(get_field(&m, f))
            f += 1
        return tuple(found)
    finally:
        srdma_wipe(&m, sizeof(m))
