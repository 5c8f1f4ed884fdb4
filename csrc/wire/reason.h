/*
 * Reasons why a request, packet or QP failed (docs/protocol.md 13.1). A reason
 * is sent in NAK and CLOSE and reported in completions (vendor_err).
 */
#ifndef SRDMA_REASON_H
#define SRDMA_REASON_H

#include <stdint.h>

#include "srdma/reason.h"

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
