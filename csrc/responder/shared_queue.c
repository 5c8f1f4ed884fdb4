/*
 * Receives that several QPs share (docs/protocol.md 5, Shared queues;
 * local-interface.md 3.6, SHARE). The queue is that of a QP without keys, the
 * holder. A QP takes the oldest receive when a message needs it, into its own
 * queue, where it is like one that was posted there. QPs whose messages find none
 * wait in a list of the holder.
 */
#include <errno.h>

#include "responder/responder_impl.h"

static void begin_to_wait(struct srdma_responder *rs)
{
	if (rs->waiting)
		return;
	TAILQ_INSERT_TAIL(&rs->shared->waiters, rs, wait);
	rs->waiting = 1;
}

static void stop_waiting(struct srdma_responder *rs)
{
	if (!rs->waiting)
		return;
	TAILQ_REMOVE(&rs->shared->waiters, rs, wait);
	rs->waiting = 0;
	srdma_qp_activate(rs->qp);
}

int srdma_shared_queue_join(struct srdma_qp *qp, struct srdma_qp *holder)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);
	struct srdma_responder *from = srdma_qp_responder(holder);

	if (rs == from || rs->shared || from->shared || rs->users ||
	    rs->rq_head != rs->rq_tail)
		return -EINVAL;
	rs->shared = from;
	from->users++;
	return 0;
}

void srdma_shared_queue_leave(struct srdma_qp *qp, struct srdma_qp *holder)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);
	struct srdma_responder *from = srdma_qp_responder(holder);

	if (rs->shared != from)
		return;
	stop_waiting(rs);
	rs->shared = NULL;
	from->users--;
}

int srdma_shared_queue_is_used(const struct srdma_qp *qp)
{
	return srdma_qp_responder(qp)->shared != NULL;
}

uint32_t srdma_shared_queue_users(const struct srdma_qp *holder)
{
	return srdma_qp_responder(holder)->users;
}

/* The holder completes nothing itself: what is taken leaves its queue. -ENOMEM:
 * no memory for the SGL, nothing was taken. */
static int take(struct srdma_responder *rs, struct srdma_responder *from)
{
	if (srdma_responder_rqe(from, from->rq_head)->sges &&
	    srdma_receive_queue_make_sgls(rs))
		return -ENOMEM;
	srdma_receive_queue_move(rs, rs->rq_tail++, from, from->rq_head);
	from->rq_head = from->rq_done = from->rq_next = from->rq_head + 1;
	return 0;
}

/* A QP without memory for the SGL of the oldest receive keeps its place. */
void srdma_shared_queue_serve(struct srdma_responder *from)
{
	struct srdma_responder *rs = TAILQ_FIRST(&from->waiters), *next;

	for (; rs && from->rq_head != from->rq_tail; rs = next) {
		next = TAILQ_NEXT(rs, wait);
		if (!take(rs, from))
			stop_waiting(rs);
	}
}

/* The QP takes a receive without waiting. 0, -EAGAIN or -ENOMEM. */
static int take_at_once(struct srdma_responder *rs,
			struct srdma_responder *from)
{
	if (from->rq_head == from->rq_tail || !TAILQ_EMPTY(&from->waiters))
		return -EAGAIN;
	return take(rs, from);
}

/* RFC 5042 R6.4.3.1-2 */
int srdma_shared_queue_waits(struct srdma_responder *rs,
			     const struct srdma_packet *p)
{
	struct srdma_responder *from = rs->shared;

	if (rs->rq_next != rs->rq_tail ||
	    srdma_qp_state(from->qp) == SRDMA_QP_ERR ||
	    !(p->traits & (SRDMA_T_SEND | SRDMA_T_IMM)))
		return 0;
	/* The QP goes on when it has written a record. */
	if (rs->rq_tail - rs->rq_head == rs->rq_depth)
		return 1;
	if (!take_at_once(rs, from))
		return 0;
	begin_to_wait(rs);
	srdma_shared_queue_serve(from);
	return rs->waiting;
}

void srdma_shared_queue_discard(struct srdma_responder *rs)
{
	struct srdma_responder *waiter;

	stop_waiting(rs);
	while ((waiter = TAILQ_FIRST(&rs->waiters)))
		stop_waiting(waiter);
}

static int has_room(const struct srdma_responder *from)
{
	return from->rq_tail - from->rq_head < from->rq_depth;
}

/* The receive becomes the oldest one again, as if no message had come. */
static void give_back(struct srdma_responder *rs, struct srdma_responder *from)
{
	struct srdma_rqe *e;

	from->rq_head = from->rq_done = from->rq_next = from->rq_head - 1;
	srdma_receive_queue_move(from, from->rq_head, rs, --rs->rq_tail);
	e = srdma_responder_rqe(from, from->rq_head);
	e->done = e->reason = e->with_imm = 0;
	e->byte_len = 0;
}

/* A host that posts more than it may loses receives. */
void srdma_shared_queue_end(struct srdma_responder *rs)
{
	struct srdma_responder *from = rs->shared;

	if (!from)
		return;
	while (rs->rq_tail != rs->rq_head && has_room(from))
		give_back(rs, from);
	rs->shared = NULL;
	from->users--;
	srdma_shared_queue_serve(from);
}
