/*
 * An SRC QP inside the relay: its queues, its place in both directions and
 * its end. Internal to the relay: relay.h is the contract.
 */
#ifndef SRDMA_QP_H
#define SRDMA_QP_H

#include <stdint.h>
#include <sys/queue.h>

#include "atomic.h"
#include "beyond.h"
#include "congestion.h"
#include "dial.h"
#include "flight.h"
#include "op.h"
#include "part.h"
#include "relay.h"
#include "base/timer.h"
#include "wire/wire.h"

/* A request of the own host; its request id is its index in the SQ. */
struct srdma_wqe {
	uint64_t id; /* of the descriptor */
	uint64_t local_addr, remote_addr;
	uint64_t swap_add, compare;
	uint64_t deadline;
	uint32_t length;
	uint32_t local_key, rkey;
	uint32_t imm;
	uint32_t capability; /* handle; 0: none */
	uint32_t asked;	     /* bytes handed to the fetch list */
	uint32_t got;	     /* READ, atomic: bytes in host memory */
	uint8_t opcode;	     /* enum srdma_desc_op */
	uint8_t flags;	     /* enum srdma_desc_flag */
	uint8_t started;     /* its first packet is in the fetch list */
	uint8_t done;	     /* executed; waits for its turn to complete */
	uint16_t fetching;   /* packets fetched again: DMA may read it */
};

/* A posted receive. */
struct srdma_rqe {
	uint64_t id;
	uint64_t addr;
	uint32_t length;
	uint32_t key;
	uint32_t byte_len;
	uint32_t imm;
	uint8_t with_imm;
	uint8_t opcode; /* enum srdma_wc_opcode */
	uint8_t done;
	uint8_t reason; /* if it failed by itself */
};

/* A part of a READ, or an atomic, that the peer asked of us: no data, only what
 * is left. */
struct srdma_slot {
	uint64_t request_id;
	uint64_t va; /* of the message */
	uint32_t rkey;
	uint32_t start, next, end;
	uint32_t sent; /* bytes of the message before it left */
	uint8_t again; /* of struct srdma_op, like this */
	uint8_t atomic;
	uint64_t allowed;  /* for all its answers */
	uint64_t original; /* atomic: what it found, once it is ready */
};

/* The message that the peer is in the middle of. */
struct srdma_message {
	uint8_t kind; /* SRDMA_T_SEND, SRDMA_T_WRITE, SRDMA_T_READ; 0: none */
	uint32_t rkey;
	uint64_t va;
	uint32_t length; /* WRITE: DMALen */
};

enum srdma_say { /* what waits to be sent, by falling urgency */
		 SRDMA_SAY_NAK = 1 << 0,
		 SRDMA_SAY_CLOSE = 1 << 1,
		 SRDMA_SAY_OPEN = 1 << 2,
		 SRDMA_SAY_PING = 1 << 3,
		 SRDMA_SAY_ACK = 1 << 4,
};

struct srdma_grant_use;

struct srdma_qp {
	struct srdma_qp *hash_next;	     /* by SRC QPN */
	struct srdma_qp *leg_next, **leg_at; /* what points to it */
	struct srdma_qp *active_next;
	struct srdma_timer timer; /* to srdma_qp_expire() */
	uint8_t active;		  /* on the relay's list */
	uint8_t state;		  /* enum srdma_qp_state */
	uint8_t role;
	uint8_t level;
	uint8_t mode;	   /* enum srdma_mode, from KEYS on */
	uint8_t silent;	   /* no records: the leg or the QP is being removed */
	uint8_t event_due; /* the QP_EVENT record waits */
	uint8_t ctl;	   /* enum srdma_say */
	uint8_t refusing;  /* a NAK waits for what was accepted before it */
	uint8_t ending;	  /* NAK or CLOSE came: it waits for what came before */
	uint8_t asked;	  /* by a PING whose ack has not left */
	uint8_t flushing; /* requests end with errors from sq_head on */
	uint8_t nak_reason, close_reason;
	uint8_t last_words; /* the NAK or CLOSE that it went to ERR with */
	uint64_t nak_id, ending_id;
	uint32_t nak_offset;
	uint32_t reason; /* why ERR */
	uint32_t qpn;
	struct srdma_relay *relay;
	struct srdma_leg *leg;
	struct srdma_session *session; /* from KEYS on */
	struct srdma_conn *wire;       /* current; NULL: none */
	struct srdma_conn *home;       /* the one connected for this QP */
	LIST_ENTRY(srdma_qp) wire_next, home_next; /* of their links */
	struct srdma_dial dial;
	uint64_t first_pn;
	uint64_t timeout;		 /* ns */
	uint64_t heard, pinged, closing; /* times, ns */
	uint64_t worked;   /* requests, own ones and the peer's, when it ... */
	uint64_t rested;   /* ... has rested enough, if there are no more */
	uint64_t served;   /* when what the peer asked got on last */
	uint64_t said;	   /* when it said its last words last */
	uint64_t urged;	   /* when it asked to be told, for an epoch to begin */
	uint64_t followed; /* when the peer's epoch began */
	uint32_t peer_epoch; /* highest verified */
	uint32_t
		pd_serial; /* K_PD of the secret that KEY gave last, held ... */
	uint8_t pd_held;   /* ... until the session holds it */
	uint8_t renewing; /* a new secret to send with: the peer has not told that it
				verified a packet of its epoch */
	uint32_t mtu; /* payload taken */
	uint32_t peer_mtu, peer_window;
	uint32_t answer_mtu; /* of READ answers: the smaller mtu of both ends */
	uint8_t peer_holder[SRDMA_MEMKEY_HOLDER_LEN]; /* its identity (6.1) */
	uint32_t dmas;				      /* ops ISSUED */

	/* requests: [sq_head, sq_tail), not yet fetched from sq_next on */
	struct srdma_wqe *sq;
	uint8_t *sq_inline; /* SRDMA_MAX_INLINE each; NULL: none yet */
	uint64_t sq_head, sq_next, sq_tail;
	uint32_t sq_depth, sq_mask;
	uint64_t sent_id;     /* requests before it are wholly sent */
	uint32_t sent_offset; /* bytes of request sent_id that were sent */
	uint64_t failed_id;   /* ended the QP; or one of the two below */
	uint32_t reads_open;  /* READs and atomics started and not done */
	struct srdma_op_list fetch;
	uint64_t acked_id; /* requests before it are executed */
	struct srdma_flights flights;
	struct srdma_congestion sending, asking; /* requests, answers */
	struct srdma_rtt rtt;
	uint64_t acked_pn; /* highest that the peer told */
	uint64_t progress; /* when an ack moved something, or a timer ran out */
	uint64_t probed;   /* far ahead of acked_pn: when a packet left */
	uint8_t starving;  /* nothing may start for want of credit */
	uint32_t sends;	   /* SENDs and WRITE_IMMs started */
	uint32_t recv_credit, request_credit; /* of the peer */
	struct srdma_parts parts;

	/* receives: [rq_head, rq_tail), the next message takes rq_next, the
	 * next one that is placed fills rq_done */
	struct srdma_rqe *rq;
	uint64_t rq_head, rq_done, rq_next, rq_tail;
	uint32_t rq_depth, rq_mask;
	uint32_t advertised; /* RECV credit last told */

	/* the peer's requests */
	uint64_t rx_id; /* position accepted */
	uint32_t rx_offset;
	struct srdma_message message;
	struct srdma_beyond beyond; /* what came too early */
	uint64_t done_id;	    /* position executed */
	uint32_t done_offset;
	struct srdma_op_list place;
	struct srdma_atomic_results atomics;
	struct srdma_slot *slots; /* ring of the relay's reads; NULL: not yet */
	uint32_t slots_head, slots_count;
	uint32_t slots_ready;	/* of these, behind everything before them */
	uint32_t slots_fetched; /* of these, wholly in the answer list */
	struct srdma_op_list answer;
	uint8_t answers_first; /* the wire was full of acks: see relay.c */
};

enum {
	SRDMA_REQUEST_CREDIT = 1024, /* ids a peer may use from the position */
	SRDMA_UNDER_WAY = 128, /* request packets, answer packets: at most */
	SRDMA_PARTS = 512,     /* asked and not wholly answered */
};

#define SRDMA_OLDEST UINT64_MAX	      /* failed_id: the first not executed */
#define SRDMA_NONE   (UINT64_MAX - 1) /* failed_id: none, all flush */

static inline struct srdma_wqe *srdma_qp_wqe(struct srdma_qp *qp, uint64_t i)
{
	return &qp->sq[i & qp->sq_mask];
}

static inline struct srdma_rqe *srdma_qp_rqe(struct srdma_qp *qp, uint64_t i)
{
	return &qp->rq[i & qp->rq_mask];
}

/* --- qp.c: life and completions --- */
int srdma_qp_create(struct srdma_qp **out, struct srdma_relay *r,
		    struct srdma_leg *leg,
		    const struct srdma_qp_params *params);
/* No op may be ISSUED. */
void srdma_qp_free(struct srdma_qp *qp);
/* Room for the payload of INLINE requests. 0 or -ENOMEM. */
int srdma_qp_make_inline(struct srdma_qp *qp);
/*
 * To ERR, once. id: the own request that the reason is about, or
 * SRDMA_OLDEST, SRDMA_NONE. tell: CLOSE goes to the peer.
 */
void srdma_qp_fail(struct srdma_qp *qp, enum srdma_reason reason, uint64_t id,
		   int tell);
/* Refuse the peer's request at the accepted position: once all before it is
 * placed and answered, NAK and ERR. */
void srdma_qp_refuse(struct srdma_qp *qp, enum srdma_reason reason);
/* The peer ended the QP: once all that arrived before is placed, ERR. */
void srdma_qp_end(struct srdma_qp *qp, enum srdma_reason reason, uint64_t id);
/* NAK a request at once, and ERR. */
void srdma_qp_nak(struct srdma_qp *qp, enum srdma_reason reason, uint64_t id,
		  uint32_t offset);
/* Something for the peer is about to wait for DMA or the wire. */
void srdma_qp_owe(struct srdma_qp *qp);
/* Write what completion records are due. -EAGAIN: the leg takes no more. */
int srdma_qp_complete(struct srdma_qp *qp);
/* 1: in ERR, no DMA under way, and its last words said or not wanted. */
int srdma_qp_removable(const struct srdma_qp *qp);
/* When something of this QP may expire next; UINT64_MAX: never. Its timer is not
 * later, but for an RTO that got shorter since: that counts from what leaves, or
 * moves something, next. */
uint64_t srdma_qp_expire(struct srdma_qp *qp, uint64_t now);

/* --- post.c: what the own host posts --- */
void srdma_post(struct srdma_qp *qp, const struct srdma_desc *d,
		const uint8_t *payload);
/* What the request's capability grants of len bytes from offset on. */
int srdma_post_grant(const struct srdma_qp *qp, const struct srdma_wqe *w,
		     uint32_t offset, uint32_t len,
		     struct srdma_grant_use *use);

/* --- cut.c: own requests, host to packets --- */
/* Cut what may be sent, lost packets first, and fetch it. 0 or -EAGAIN. */
int srdma_cut_fetch(struct srdma_qp *qp);
/* 1: as many packets are under way as may be. */
int srdma_cut_blocked(const struct srdma_qp *qp);
/* 1: the next request waits for credit, and for nothing else. */
int srdma_cut_starves(const struct srdma_qp *qp);

/* --- tx.c: own packets, to the wire --- */
/* Cut, fetch, seal, send. -EAGAIN: something was full, come again. */
int srdma_tx_requests(struct srdma_qp *qp);
/* Seal a packet and commit it to the QP's wire. 0, -EAGAIN, -EKEYEXPIRED. */
int srdma_tx_emit(struct srdma_qp *qp, struct srdma_packet *p,
		  const uint8_t *payload);

/* --- relay_rekey.c: epochs --- */
/* Before a packet is sealed: the next epoch begins, or the packet asks to be
 * told whether it may. 0, -EIO. */
int srdma_rekey_before(struct srdma_qp *qp, struct srdma_packet *p);
/* The peer told a higher number than before that it verified: a new secret may
 * have waited for that. */
void srdma_rekey_told(struct srdma_qp *qp, uint64_t highest);
/* A packet of the peer's verified that has other epoch bits than the last. */
void srdma_rekey_heard(struct srdma_qp *qp);
/* KEY gave, or a session took over, the secret by a K_PD. */
void srdma_rekey_hold(struct srdma_qp *qp);
void srdma_rekey_release(struct srdma_qp *qp);

/* --- retry.c: what is sent again by the clock --- */
/* When the next timer runs out; SRDMA_NEVER: none is set. */
uint64_t srdma_retry_expire(struct srdma_qp *qp, uint64_t now);
/* Something left for which an ack or an answer is due. */
void srdma_retry_arm(struct srdma_qp *qp);
/* An ack came; moved: it told something new. */
void srdma_retry_heard(struct srdma_qp *qp, int moved);
/* An answer came. */
void srdma_retry_answered(struct srdma_qp *qp);
/* What is under way may be lost with its wire: timers begin anew. */
void srdma_retry_reset(struct srdma_qp *qp);
/* The same, and there is another wire now; ask: to be told what was lost. */
void srdma_retry_rewired(struct srdma_qp *qp, int ask);

/* --- answer.c: acks and answers, target to wire --- */
int srdma_answer_control(struct srdma_qp *qp);
int srdma_answer_reads(struct srdma_qp *qp);

/* --- order.c: the peer's requests, into their order --- */
/* buf holds the payload; taken over, or left with *buf != NULL. */
void srdma_order_request(struct srdma_qp *qp, const struct srdma_packet *p,
			 struct srdma_buf **buf);
/* Execute what was kept and is at the position now. 0: that is done; -EAGAIN:
 * there is no op for more of it, come again. */
int srdma_order_drain(struct srdma_qp *qp);
/* The gaps of an ack. */
void srdma_order_gaps(struct srdma_qp *qp, struct srdma_ack_body *ack);

/* --- rx.c: the peer's requests, wire to host --- */
struct srdma_arrival {
	struct srdma_qp *qp;
	const struct srdma_packet *p;
	struct srdma_buf **buf;	 /* as above */
	struct srdma_kept *kept; /* where it waited; NULL: it came just now */
};
/* Bytes of a region that a packet names. */
struct srdma_span {
	uint32_t right; /* one flag of enum srdma_access */
	uint32_t rkey;
	uint64_t addr;
	uint32_t len;
};
/* One at the position, with an op left for it. Why it is refused, or NONE. */
enum srdma_reason srdma_rx_execute(const struct srdma_arrival *a);
/* 1: a READ_REQUEST or atomic that no slot, or no memory, is free for. */
int srdma_rx_full(struct srdma_qp *qp, const struct srdma_packet *p);
/* 1: one that comes the first time and waits for either. */
int srdma_rx_waits(struct srdma_qp *qp, const struct srdma_packet *p);
/* Answer a READ_REQUEST or atomic again, if that is right and an answer is not
 * on its way already (5, 5.3). */
void srdma_rx_again(const struct srdma_arrival *a);
/* Place what was accepted and retire it. -EAGAIN: come again. */
int srdma_rx_place(struct srdma_qp *qp);

/* --- judge.c: may a packet touch memory --- */
/* Without its proof. NONE and *mr set, or why not. */
enum srdma_reason srdma_judge_region(const struct srdma_qp *qp,
				     const struct srdma_span *span,
				     struct srdma_mr **mr);
/* All of it. No bytes need neither rkey nor proof. */
enum srdma_reason srdma_judge_access(const struct srdma_arrival *a,
				     const struct srdma_span *span);

/* --- reply.c: answers and acks to own requests --- */
void srdma_reply_answer(struct srdma_qp *qp, const struct srdma_packet *p,
			struct srdma_buf **buf);
void srdma_reply_ack(struct srdma_qp *qp, const struct srdma_packet *p);

#endif
