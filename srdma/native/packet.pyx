# cython: language_level=3, embedsignature=True
"""Parses a packet into a dictionary (csrc/wire/wire.h, protocol.md 2)."""

from srdma.native.csrc cimport *

# Names of the counters of dropped packets (protocol.md 13.2), by enum srdma_refusal.
cdef extern from *:
    """
    #include "wire/stats.h"
    #define X(NAME, name) #name,
    static const char *const refusal_names[] = { "", SRDMA_REFUSALS(X) };
    #undef X
    """
    const char *refusal_names[]


REFUSALS = tuple(refusal_names[i].decode() for i in range(1, SRDMA_REFUSED_COUNT))


class RefusedError(ValueError):
    """The packet must be dropped; `counter` names the failed check (protocol.md 13.2)."""

    def __init__(self, counter: str) -> None:
        super().__init__(f"the packet was refused: {counter}")
        self.counter = counter


cdef int accepted(int result) except -1:
    """Return 0 for an accepted packet; raise RefusedError otherwise."""
    if result < 0:
        raise RefusedError(refusal_names[-result].decode())
    return 0


cdef dict get_ack(const srdma_ack_body *a):
    return {
        "kind": a.kind, "reason": a.reason, "request_id": a.request_id, "offset": a.offset,
        "highest_pn": a.highest_pn, "recv_credit": a.recv_credit,
        "request_credit": a.request_credit, "path": a.path, "skips": a.skips,
        "gaps": tuple(
            (a.gap[i].request_id, a.gap[i].offset, a.gap[i].length) for i in range(a.gaps)
        ),
    }


cdef dict get_packet(const srdma_packet *p):
    return {
        "opcode": p.opcode, "qpn": p.qpn, "psn": p.psn, "epoch": p.epoch,
        "request_id": p.request_id, "flags": p.flags, "offset": p.offset, "depth": p.depth,
        "expiry": p.expiry, "proof": p.proof[:SRDMA_PROOF_LEN], "va": p.va, "rkey": p.rkey,
        "dma_len": p.dma_len, "swap_add": p.swap_add, "compare": p.compare,
        "original": p.original, "imm": p.imm,
        "ack": get_ack(&p.ack) if p.ack.kind else None,
    }


# Tag length in bytes by tag size code (protocol.md 2.1).
TAG_LENGTHS = {
    srdma_wire_tag_code(n): n for n in range(SRDMA_MAX_TAG + 1) if srdma_wire_tag_code(n) >= 0
}


def parse(bytes data, uint32_t tag_len, uint32_t mtu=SRDMA_MAX_PAYLOAD):
    """Fields of the packet `data`; tag and payload are as on the wire, not verified.

    tag_len: tag length of the QP; mtu: largest payload accepted; both in bytes. Raises
    RefusedError.
    """
    cdef srdma_packet p
    accepted(srdma_wire_parse(&p, data, len(data), tag_len, mtu))
    fields = get_packet(&p)
    fields["tag"] = data[p.tag_at : p.tag_at + p.tag_len]
    fields["payload"] = data[p.payload_at : p.payload_at + p.payload_len]
    return fields
