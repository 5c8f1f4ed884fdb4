/*
 * Reasons why a request, packet or QP failed (docs/protocol.md 13.1). A reason
 * is sent in NAK and CLOSE and reported in completions (vendor_err).
 */
#ifndef SRDMA_REASON_H
#define SRDMA_REASON_H

#include <stdint.h>

enum srdma_reason {
	SRDMA_REASON_NONE = 0,
	SRDMA_REASON_BAD_RKEY = 1,
	SRDMA_REASON_WRONG_PD = 2,
	SRDMA_REASON_OUT_OF_BOUNDS = 3,
	SRDMA_REASON_NO_RIGHT = 4,
	SRDMA_REASON_QP_SCOPE = 5,
	SRDMA_REASON_PROOF_REQUIRED = 6,
	SRDMA_REASON_PROOF_UNSUPPORTED = 7,
	SRDMA_REASON_TOO_MANY_READS = 8,
	SRDMA_REASON_RECV_TOO_SHORT = 9,
	SRDMA_REASON_MALFORMED = 10,
	SRDMA_REASON_UNSUPPORTED = 11,
	SRDMA_REASON_TARGET_DMA = 12,
	SRDMA_REASON_NO_RECV = 13,
	SRDMA_REASON_PROOF_WRONG = 14,
	SRDMA_REASON_PROOF_RANGE = 15,
	SRDMA_REASON_PROOF_EXPIRED = 16,
	SRDMA_REASON_MISALIGNED = 17,
	SRDMA_REASON_DEADLINE = 20,
	SRDMA_REASON_NO_RECV_CREDIT = 21,
	SRDMA_REASON_PEER_CLOSED = 22,
	SRDMA_REASON_PEER_HOST_GONE = 23,
	SRDMA_REASON_WIRE_LOST = 24,
	SRDMA_REASON_PEER_SILENT = 25,
	SRDMA_REASON_KEY_LIMIT = 26,
	SRDMA_REASON_FORGERY_LIMIT = 27,
	SRDMA_REASON_PEER_ERROR = 28,
	SRDMA_REASON_PROVIDER = 29,
	SRDMA_REASON_FLUSHED = 40,
	SRDMA_REASON_WORKER_GONE = 41,
	SRDMA_REASON_LOCAL_KEY = 42,
	SRDMA_REASON_LOCAL_DMA = 43,
	SRDMA_REASON_BAD_DESCRIPTOR = 44,
	SRDMA_REASON_MESSAGE_TOO_LONG = 45,
	SRDMA_REASON_QUEUE_FULL = 46,
	SRDMA_REASON_QP_STATE = 47,
	SRDMA_REASON_BAD_CAPABILITY = 48,
	SRDMA_REASON_COUNT = 49,
};

/* A row of the table in 13.1. */
struct srdma_reason_row {
	const char *name;    /* "BAD_RKEY"; NULL: unused code */
	const char *text;    /* cause and, where it helps, the remedy */
	const char *counter; /* "reason_BAD_RKEY" (stats.h) */
	uint8_t status;	     /* ibv_wc_status of the failed work request */
	uint8_t recv_status; /* the same of a receive that the message fails */
	uint8_t nak;	     /* AETH syndrome in a NAK; 0: never in a NAK */
	uint8_t close;	     /* 1: may be sent in CLOSE */
};

/* The row of a code. Any value is allowed; an unused code has name NULL. */
const struct srdma_reason_row *srdma_reason(uint32_t code);

#endif
