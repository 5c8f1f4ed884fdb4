/* Types of QPs: their requests, rights and attributes (docs/run.md 4). */
#ifndef VERBS_TRANSPORT_H
#define VERBS_TRANSPORT_H

#include <infiniband/verbs.h>

struct verbs_transport {
	unsigned opcodes;    /* of requests: bits 1 << enum ibv_wr_opcode */
	uint64_t operations; /* enum ibv_qp_create_send_ops_flags, or-ed */
	unsigned rights;     /* of qp_access_flags, those that a peer can use */
	int absent;	     /* attributes that ibv_modify_qp() refuses */
	int limits; /* attributes with which the worker is told time limits */
};

/* NULL: there are no QPs of this type. */
const struct verbs_transport *verbs_transport_of(enum ibv_qp_type type);

/* 1: QPs of the type have requests with this opcode. */
static inline int verbs_transport_has(const struct verbs_transport *t,
				      enum ibv_wr_opcode opcode)
{
	return opcode < 32 && t->opcodes & 1u << opcode;
}

#endif
