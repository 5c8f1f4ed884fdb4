#include "wire/reason.h"

/* Values of enum ibv_wc_status. This library must build without libibverbs. */
enum {
	WC_SUCCESS = 0,
	WC_LOC_LEN = 1,
	WC_LOC_QP_OP = 2,
	WC_LOC_PROT = 4,
	WC_WR_FLUSH = 5,
	WC_LOC_ACCESS = 8,
	WC_REM_INV_REQ = 9,
	WC_REM_ACCESS = 10,
	WC_REM_OP = 11,
	WC_RETRY_EXC = 12,
	WC_RNR_RETRY_EXC = 13,
	WC_REM_ABORT = 16,
	WC_FATAL = 19,
	WC_RESP_TIMEOUT = 20,
};

enum { NAK_INVALID = 0x61, NAK_ACCESS = 0x62, NAK_OPERATION = 0x63 };

#define ROW(NAME, STATUS, NAK, CLOSE, TEXT)                                    \
	ROW_RECV(NAME, STATUS, STATUS, NAK, CLOSE, TEXT)

#define ROW_RECV(NAME, STATUS, RECV_STATUS, NAK, CLOSE, TEXT)                  \
	[SRDMA_REASON_##NAME] = {                                              \
		.name = #NAME,                                                 \
		.text = TEXT,                                                  \
		.counter = "reason_" #NAME,                                    \
		.status = STATUS,                                              \
		.recv_status = RECV_STATUS,                                    \
		.nak = NAK,                                                    \
		.close = CLOSE,                                                \
	}

static const struct srdma_reason_row rows[SRDMA_REASON_COUNT] = {
	ROW(NONE, WC_SUCCESS, 0, 0, "success"),
	ROW(BAD_RKEY, WC_REM_ACCESS, NAK_ACCESS, 0,
	    "no memory region of the target has this rkey"),
	ROW(WRONG_PD, WC_REM_ACCESS, NAK_ACCESS, 0,
	    "the rkey belongs to another PD than the target's QP"),
	ROW(OUT_OF_BOUNDS, WC_REM_ACCESS, NAK_ACCESS, 0,
	    "the access does not lie inside the target's memory region"),
	ROW(NO_RIGHT, WC_REM_ACCESS, NAK_ACCESS, 0,
	    "the target's memory region, or its QP, does not grant this right"),
	ROW(QP_SCOPE, WC_REM_ACCESS, NAK_ACCESS, 0,
	    "the rkey is for another QP, or for a peer of another identity"),
	ROW(PROOF_REQUIRED, WC_REM_ACCESS, NAK_ACCESS, 0,
	    "the memory region requires a memory proof: use a capability"),
	ROW(PROOF_UNSUPPORTED, WC_REM_INV_REQ, NAK_INVALID, 0,
	    "the QP's key mode, or the memory region, has no memory proofs"),
	ROW(TOO_MANY_READS, WC_REM_INV_REQ, NAK_INVALID, 0,
	    "more read chunks outstanding than the target has responder slots"),
	ROW_RECV(RECV_TOO_SHORT, WC_REM_INV_REQ, WC_LOC_LEN, NAK_INVALID, 0,
		 "the message is longer than the posted receive"),
	ROW(MALFORMED, WC_REM_INV_REQ, NAK_INVALID, 0,
	    "a verified packet violates the protocol"),
	ROW(UNSUPPORTED, WC_REM_INV_REQ, NAK_INVALID, 0,
	    "this version does not support the operation"),
	ROW(TARGET_DMA, WC_REM_OP, NAK_OPERATION, 0,
	    "the target's NIC could not access the target's memory"),
	ROW(NO_RECV, WC_REM_INV_REQ, NAK_INVALID, 0,
	    "the message exceeds the receive credit"),
	ROW(PROOF_WRONG, WC_REM_ACCESS, NAK_ACCESS, 0,
	    "no live capability of this holder proves the access; it may have been revoked"),
	ROW(PROOF_RANGE, WC_REM_ACCESS, NAK_ACCESS, 0,
	    "no single proof covers the access; part of the range may have been revoked"),
	ROW(PROOF_EXPIRED, WC_REM_ACCESS, NAK_ACCESS, 0,
	    "the capability has expired"),
	ROW(MISALIGNED, WC_REM_INV_REQ, NAK_INVALID, 0,
	    "the address of an atomic is not a multiple of 8"),
	ROW(DEADLINE, WC_RESP_TIMEOUT, 0, 1,
	    "no response before the deadline; the request may have been executed"),
	ROW(NO_RECV_CREDIT, WC_RNR_RETRY_EXC, 0, 1,
	    "the peer posted no receive before the deadline"),
	ROW(PEER_CLOSED, WC_RETRY_EXC, 0, 1, "the peer closed the QP"),
	ROW(PEER_HOST_GONE, WC_RETRY_EXC, 0, 1, "the peer's process ended"),
	ROW(WIRE_LOST, WC_RETRY_EXC, 0, 1,
	    "the connection between the two workers was lost"),
	ROW(PEER_SILENT, WC_RESP_TIMEOUT, 0, 1,
	    "no verified packet from the peer within the silence limit"),
	ROW(KEY_LIMIT, WC_FATAL, 0, 1,
	    "the key reached the usage limit of its suite, or was not renewed in time"),
	ROW(FORGERY_LIMIT, WC_FATAL, 0, 1,
	    "the number of invalid tags reached the limit of the suite"),
	ROW(PEER_ERROR, WC_REM_ABORT, 0, 1, "the peer's QP went to error"),
	ROW(PROVIDER, WC_FATAL, 0, 1, "the cryptographic provider failed"),
	ROW(RECLAIMED, WC_FATAL, 0, 0,
	    "the worker ended the QP, which was idle, to serve others"),
	ROW(FLUSHED, WC_WR_FLUSH, 0, 0, "flushed: the QP is in error"),
	ROW(WORKER_GONE, WC_FATAL, 0, 0,
	    "the local worker ended; start it and connect again"),
	ROW(LOCAL_KEY, WC_LOC_PROT, 0, 0,
	    "the local buffer is not inside a memory region with the required access"),
	ROW(LOCAL_DMA, WC_LOC_PROT, 0, 0,
	    "the local NIC could not access the local buffer, or had no memory for the request"),
	ROW(BAD_DESCRIPTOR, WC_LOC_QP_OP, 0, 0,
	    "the descriptor violates the host protocol"),
	ROW(MESSAGE_TOO_LONG, WC_LOC_LEN, 0, 0,
	    "the message is longer than 1 GiB: split it"),
	ROW(QUEUE_FULL, WC_LOC_QP_OP, 0, 0,
	    "more work requests than the depth of the queue: poll completions first"),
	ROW(QP_STATE, WC_WR_FLUSH, 0, 0, "the QP is not connected"),
	ROW(BAD_CAPABILITY, WC_LOC_ACCESS, 0, 0,
	    "the capability is not installed, does not grant the access, or the QP's key mode has no memory proofs"),
};

static const struct srdma_reason_row unused;

const struct srdma_reason_row *srdma_reason(uint32_t code)
{
	return code < SRDMA_REASON_COUNT ? &rows[code] : &unused;
}
