/*
 * QPs, posting and completions (docs/local-interface.md 2). Errors and threads:
 * device.h.
 */
#ifndef SRDMA_PUBLIC_QUEUE_H
#define SRDMA_PUBLIC_QUEUE_H

#include <stdint.h>

#include "srdma/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct srdma_pd;
struct srdma_qp;

enum {
	SRDMA_INLINE_MAX = 448,		/* bytes */
	SRDMA_MESSAGE_MAX = 1073741824, /* 2^30 bytes */
	SRDMA_DEPTH_MAX = 4096,
	SRDMA_SGE_MAX = 28, /* entries of a list */
	SRDMA_TIMEOUT_MAX_MS = 600000,
};

struct srdma_qp_attr {
	uint32_t sq, rq; /* depths, 1 to SRDMA_DEPTH_MAX; 0: 128 */
	/* Of a request, at most SRDMA_TIMEOUT_MAX_MS; 0: 30,000. */
	uint32_t timeout_ms;
	uint32_t mtu; /* payload bytes of a packet, 256 to 4,096; 0: the
			 worker's own */
};

/*
 * Makes a QP in state INIT (docs/local-interface.md 3.6). It can receive now;
 * srdma_connect() and srdma_accept() (connection.h) connect it. attr: NULL for
 * the defaults.
 * -EINVAL: an attribute; -ENOSPC: the ring of the PD is too small; -EDQUOT.
 */
int srdma_create_qp(struct srdma_qp **qp, struct srdma_pd *pd,
		    const struct srdma_qp_attr *attr);
/*
 * Ends a QP: the peer's fails with PEER_CLOSED. Returns when no DMA of the QP
 * is under way. Its outstanding work requests make no completions. On failure
 * the QP exists until a further call succeeds. It succeeds after the end of the
 * worker, and for a QP that the worker has freed (SRDMA_REASON_RECLAIMED). NULL is
 * allowed.
 */
int srdma_destroy_qp(struct srdma_qp *qp);

enum srdma_qp_mask { SRDMA_QP_MASK_ACCESS = 1, SRDMA_QP_MASK_TIMEOUT = 2 };
#define SRDMA_TIMEOUT_NONE UINT32_MAX

struct srdma_qp_mod {
	/* Rights of the peer on this QP: SRDMA_ACCESS_REMOTE_*, or-ed. At first
	 * all. The rights of a region limit it too. */
	uint32_t access;
	/* Time limit of requests that are posted from now on, 1 to
	 * SRDMA_TIMEOUT_MAX_MS; SRDMA_TIMEOUT_NONE: they wait as long as the
	 * QP lives. */
	uint32_t timeout_ms;
};

/*
 * Changes the attributes that mask names (enum srdma_qp_mask, or-ed;
 * docs/local-interface.md 3.6, MODIFY). -EINVAL: mask, or an attribute.
 */
int srdma_modify_qp(struct srdma_qp *qp, const struct srdma_qp_mod *mod,
		    unsigned mask);

enum srdma_qp_status {
	SRDMA_QP_STATUS_INIT = 0,
	SRDMA_QP_STATUS_CONNECTED = 1,
	/* The completion QP_EVENT was polled, or srdma_connect() or
	 * srdma_accept() failed. */
	SRDMA_QP_STATUS_ERROR = 2,
};

struct srdma_qp_query {
	uint32_t qp_num;
	uint32_t mtu; /* of this end */
	enum srdma_qp_status status;
	uint32_t reason; /* of the error, enum srdma_reason; else 0 */
};

void srdma_query_qp(const struct srdma_qp *qp, struct srdma_qp_query *query);

/* --- posting ------------------------------------------------------------- */

enum srdma_wr_opcode {
	SRDMA_WR_RDMA_WRITE = 1,
	SRDMA_WR_RDMA_WRITE_WITH_IMM = 2,
	SRDMA_WR_RDMA_READ = 3,
	SRDMA_WR_SEND = 4,
	SRDMA_WR_SEND_WITH_IMM = 5,
	SRDMA_WR_ATOMIC_CMP_AND_SWP = 6,
	SRDMA_WR_ATOMIC_FETCH_AND_ADD = 7,
	/* A WRITE of 8 bytes to an address that is a multiple of 8. They are
	 * one step where an atomic is (docs/local-interface.md 4.4). */
	SRDMA_WR_ATOMIC_WRITE = 8,
};

enum srdma_send_flags {
	/* A completion in case of success too. An unsignaled request occupies
	 * its place in the queue until a later completion of the queue. */
	SRDMA_SEND_SIGNALED = 1,
	/* Starts when all earlier READs and atomics of the QP are complete. */
	SRDMA_SEND_FENCE = 2,
	/* The payload is copied now, at most SRDMA_INLINE_MAX bytes; lkey is
	 * not used. SEND and WRITE only; addr may be NULL if length is 0. */
	SRDMA_SEND_INLINE = 4,
};

struct srdma_send_wr {
	uint64_t wr_id;
	struct srdma_send_wr *next; /* NULL: the last one */
	enum srdma_wr_opcode opcode;
	unsigned flags; /* enum srdma_send_flags, or-ed */
	/* Local memory: source of SEND and WRITE, destination of READ and
	 * atomics. length: bytes, at most SRDMA_MESSAGE_MAX; of an atomic, and
	 * of ATOMIC_WRITE, 8. */
	void *addr;
	uint32_t length;
	uint32_t lkey;
	/* num_sge > 0: local memory in parts, which addr, length and lkey do
	 * not name then. The message is gathered from them, or scattered to
	 * them, in order. At most SRDMA_SGE_MAX; of an atomic 1. */
	const struct srdma_sge *sg_list;
	uint32_t num_sge;
	uint32_t imm_data; /* opcodes WITH_IMM; a number */
	/* WRITE, READ, atomics: memory of the peer. */
	uint32_t rkey;
	uint64_t remote_addr;
	uint32_t capability; /* handle of srdma_install_cap(); 0: none */
	/* Atomics: the operand of add, or the value compared; and the value
	 * stored by compare-and-swap. Their byte order is that of the peer. */
	uint64_t compare_add;
	uint64_t swap;
};

struct srdma_recv_wr {
	uint64_t wr_id;
	struct srdma_recv_wr *next;
	void *addr; /* memory with LOCAL_WRITE */
	uint32_t length;
	uint32_t lkey;
	const struct srdma_sge *sg_list; /* num_sge > 0: instead */
	uint32_t num_sge;
};

/*
 * Posts a list of work requests in order (docs/local-interface.md 2.1). The
 * memory of a request must stay valid until its completion. On failure *bad_wr
 * (bad_wr may be NULL) is the first request that was not posted; earlier ones
 * are posted.
 * -EAGAIN: the queue or the leg is full: poll, then post again;
 * -EMSGSIZE: too long; -EINVAL: a field, or too many SGEs; -ENOTCONN: the worker
 * ended.
 * The worker checks keys and bounds; a fault there is a failed completion.
 */
int srdma_post_send(struct srdma_qp *qp, struct srdma_send_wr *wr,
		    struct srdma_send_wr **bad_wr);
int srdma_post_recv(struct srdma_qp *qp, struct srdma_recv_wr *wr,
		    struct srdma_recv_wr **bad_wr);

/* --- completions --------------------------------------------------------- */

enum srdma_wc_flags { SRDMA_WC_WITH_IMM = 1 };

struct srdma_wc {
	uint64_t wr_id; /* QP_EVENT: 0 */
	enum srdma_wc_status status;
	enum srdma_wc_opcode opcode;
	uint32_t vendor_err; /* enum srdma_reason */
	uint32_t byte_len;   /* of a receive: bytes that came */
	uint32_t imm_data;   /* with SRDMA_WC_WITH_IMM */
	uint32_t qp_num;
	unsigned wc_flags; /* enum srdma_wc_flags */
};

/*
 * Takes up to n completions of all QPs of a PD, in posting order per queue
 * (docs/local-interface.md 2.2).
 * Never blocks. Returns their number. A QP that fails makes one completion
 * QP_EVENT, with the reason in vendor_err. After the end of the worker every
 * outstanding request completes with WORKER_GONE or FLUSHED. -EINVAL: n < 0.
 */
int srdma_poll_cq(struct srdma_pd *pd, int n, struct srdma_wc *wc);

/*
 * As srdma_poll_cq(), but waits up to timeout_ms (negative: no limit) for the
 * first completion. 0: there was none, or n is 0. -EINVAL: n < 0; -EINTR: a
 * signal; -ENOTCONN: the worker or the leg ended, and all completions were
 * taken. Over shared memory, after each second of waiting without a completion it
 * asks the worker whether the leg lives, because a leg may end alone.
 */
int srdma_wait_cq(struct srdma_pd *pd, int n, struct srdma_wc *wc,
		  int timeout_ms);

/*
 * For event loops: from now on srdma_cq_fd() becomes readable when a completion
 * arrives, or when the worker ends. Poll once more before waiting: a completion
 * may have arrived before. A poll that returns completions ends the request.
 * The descriptor may also become readable without a completion: poll, then wait
 * again. Over shared memory, a leg that ends alone does not make it readable:
 * srdma_wait_cq() and the functions that contact the worker notice it.
 */
void srdma_req_notify_cq(struct srdma_pd *pd);
/* File descriptor for poll(2), owned by the PD. It stays readable after the end
 * of the worker. */
int srdma_cq_fd(const struct srdma_pd *pd);

#ifdef __cplusplus
}
#endif

#endif
