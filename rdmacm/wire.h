/* The messages of RDMA-CM in a talk (docs/run.md 5). */
#ifndef RDMACM_WIRE_H
#define RDMACM_WIRE_H

#include <stddef.h>
#include <stdint.h>

enum cm_kind {
	CM_REQUEST = 1, /* in the first message of the caller */
	CM_REPLY = 2,
	CM_REJECT = 3,
	CM_CONFIRM = 4, /* of the caller */
	CM_DEPART = 5,
	CM_UD_REQUEST = 6,
	CM_UD_REPLY = 7,
};

enum {
	CM_VERSION = 1,
	CM_HEAD = 16, /* bytes before the private data */
	CM_PRIVATE_MAX = 240,
	CM_MESSAGE_MAX = CM_HEAD + CM_PRIVATE_MAX,
	/* IBTA 12.6: bytes of private data, of a request without the header of
	 * annex A11. */
	CM_REQUEST_PRIVATE = 56,
	CM_REPLY_PRIVATE = 196,
	CM_REJECT_PRIVATE = 148,
	/* IBTA 12.11: the same of UD; of a request without the header of librdmacm
	 * (rdma_connect(3)). A rejection of UD is a SIDR_REP too. */
	CM_UD_REQUEST_PRIVATE = 180,
	CM_UD_REPLY_PRIVATE = 136,
	CM_DEPTH_MAX = 16, /* of READs and atomics, as the device has */
	CM_RETRY_MAX = 7,
	/* Reasons of a rejection, IBTA 12.6.7.2. */
	CM_NO_SERVICE = 8,
	CM_BY_CONSUMER = 28,
	/* Status of a SIDR_REP, IBTA 12.11.2.1. */
	CM_UD_NO_SERVICE = 1,
	CM_UD_BY_CONSUMER = 2,
};

/* Fields that a kind has not are zero. */
struct cm_message {
	enum cm_kind kind;
	uint16_t reason; /* of a rejection */
	uint32_t qp_num;
	uint32_t qkey; /* of a reply of UD */
	uint8_t responder_resources, initiator_depth;
	uint8_t flow_control, retry_count, rnr_retry_count, srq;
	uint8_t private_len;
	uint8_t private_data[CM_PRIVATE_MAX];
};

/* Returns the length. */
size_t cm_wire_write(uint8_t out[CM_MESSAGE_MAX], const struct cm_message *m);

/* 0, or -EPROTO: another length, version or kind, more private data than the
 * kind has, or a field of a request or reply that is out of range. */
int cm_wire_read(struct cm_message *m, const uint8_t *in, size_t len);

#endif
