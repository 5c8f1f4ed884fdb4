/*
 * Enumerations of work requests, completions, regions and connections. The
 * worker uses the same values (docs/protocol.md, docs/local-interface.md).
 */
#ifndef SRDMA_PUBLIC_TYPES_H
#define SRDMA_PUBLIC_TYPES_H

#include <stdint.h>

/* Rights over a region (docs/protocol.md 6). Every region can be read locally.
 * REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE. */
enum srdma_access { /* values of enum ibv_access_flags */
		    SRDMA_ACCESS_LOCAL_WRITE = 1,
		    SRDMA_ACCESS_REMOTE_WRITE = 2,
		    SRDMA_ACCESS_REMOTE_READ = 4,
		    SRDMA_ACCESS_REMOTE_ATOMIC = 8,
		    SRDMA_ACCESS_ALL = 15,
		    SRDMA_ACCESS_PROOF = 0x100, /* remote: proof required */
		    /* Regions of other programs may expose the same bytes to
		     * peers, if they have this flag too. */
		    SRDMA_ACCESS_SHARED = 0x200,
};

/* Operation of a completion. RECV is a bit of both receive operations. */
enum srdma_wc_opcode { /* values of enum ibv_wc_opcode */
		       SRDMA_WC_SEND = 0,
		       SRDMA_WC_RDMA_WRITE = 1,
		       SRDMA_WC_RDMA_READ = 2,
		       SRDMA_WC_COMP_SWAP = 3,
		       SRDMA_WC_FETCH_ADD = 4,
		       SRDMA_WC_ATOMIC_WRITE = 9,
		       SRDMA_WC_RECV = 128,
		       SRDMA_WC_RECV_RDMA_WITH_IMM = 129,
		       /* The QP went to error; no work request completes. */
		       SRDMA_WC_QP_EVENT = 255,
};

/* Status of a completion. Its vendor_err (enum srdma_reason) says more. */
enum srdma_wc_status { /* values of enum ibv_wc_status */
		       SRDMA_WC_SUCCESS = 0,
		       SRDMA_WC_LOC_LEN_ERR = 1,
		       SRDMA_WC_LOC_QP_OP_ERR = 2,
		       SRDMA_WC_LOC_PROT_ERR = 4,
		       SRDMA_WC_WR_FLUSH_ERR = 5,
		       SRDMA_WC_LOC_ACCESS_ERR = 8,
		       SRDMA_WC_REM_INV_REQ_ERR = 9,
		       SRDMA_WC_REM_ACCESS_ERR = 10,
		       SRDMA_WC_REM_OP_ERR = 11,
		       SRDMA_WC_RETRY_EXC_ERR = 12,
		       SRDMA_WC_RNR_RETRY_EXC_ERR = 13,
		       SRDMA_WC_REM_ABORT_ERR = 16,
		       SRDMA_WC_FATAL_ERR = 19,
		       SRDMA_WC_RESP_TIMEOUT_ERR = 20,
};

/* Local memory of a work request, or a part of it (scatter/gather element). */
struct srdma_sge {
	uint64_t addr;
	uint32_t length; /* bytes; 0: the element is ignored */
	uint32_t lkey;	 /* key of a region of the PD */
};

enum { SRDMA_GID_LEN = 16 }; /* of a worker, as of RoCEv2 */

/* Level of protection of a session (docs/protocol.md 4). */
enum srdma_level {
	SRDMA_LEVEL_NONE = 0,
	SRDMA_LEVEL_HEADER = 1,
	SRDMA_LEVEL_PACKET = 2,
	SRDMA_LEVEL_AEAD = 3,
};

/* Key mode, a set of bits (docs/protocol.md 3.4). */
enum srdma_mode {
	SRDMA_MODE_BASIC = 0,
	SRDMA_MODE_PD = 1,  /* secrets derived from K_PD (3.4) */
	SRDMA_MODE_MEM = 2, /* packets may carry memory proofs (6.1) */
	SRDMA_MODES = 4,
};

#endif
