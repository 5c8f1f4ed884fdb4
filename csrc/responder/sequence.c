/*
 * Stage sequence (docs/protocol.md 5, 5.2, 5.3): the position of a request. A
 * packet at the expected position is executed, a later one waits in the reorder
 * buffer or is dropped and requested again by an ack, an earlier one is
 * acknowledged.
 */
#include <errno.h>
#include <string.h>

#include "responder/responder_impl.h"
#include "session/session.h"

enum order { BEFORE, AT, AFTER };

/* 1: the READ before the position may have no more chunks, as none of it is
 * kept. A chunk that was dropped is requested again when its responses do not
 * arrive. */
static int may_have_ended(const struct srdma_responder *rs)
{
	const struct srdma_reorder_entry *k = rs->reorder.head;

	return rs->message.kind == SRDMA_T_READ &&
	       !(k && k->packet.request_id == rs->accepted.id);
}

/* The packet's order relative to the expected position. If the packet begins the
 * message after a READ that may have ended, the READ ends here. */
static enum order order_of(struct srdma_responder *rs,
			   const struct srdma_packet *p)
{
	const struct srdma_position at = srdma_position_of(p);
	const struct srdma_position expected = rs->accepted;

	if (at.id == expected.id + 1 && !at.offset && may_have_ended(rs)) {
		rs->accepted = at;
		rs->message = (struct srdma_message){ 0 };
		return AT;
	}
	if (srdma_position_before(at, expected))
		return BEFORE;
	return srdma_position_before(expected, at) ? AFTER : AT;
}

/* 1: the id is beyond the request credit, or the end beyond the longest message.
 */
static int too_far(const struct srdma_responder *rs,
		   const struct srdma_packet *p)
{
	const uint32_t len =
		p->traits & SRDMA_T_READ ? p->dma_len : p->payload_len;

	return p->request_id >= rs->accepted.id + SRDMA_REQUEST_CREDIT ||
	       p->offset > SRDMA_MAX_MESSAGE ||
	       len > SRDMA_MAX_MESSAGE - p->offset;
}

static void drop(struct srdma_responder *rs)
{
	rs->env->stats.refused[SRDMA_REFUSED_GAP]++;
	srdma_qp_schedule(rs->qp, SRDMA_SAY_ACK);
}

/* 1: the position lies inside the packet: the peer segmented the message in
 * another way before. An ack would make the peer send the packet again without
 * a limit. */
static int is_segmented_otherwise(const struct srdma_responder *rs,
				  const struct srdma_packet *p)
{
	return p->payload_len && p->request_id == rs->accepted.id &&
	       (uint64_t)p->offset + p->payload_len > rs->accepted.offset;
}

static enum srdma_reason duplicate(const struct srdma_arrival *a)
{
	if (is_segmented_otherwise(a->rs, a->p))
		return SRDMA_REASON_MALFORMED;
	a->rs->env->stats.duplicates++;
	srdma_qp_schedule(a->rs->qp, SRDMA_SAY_ACK);
	if (a->p->traits & SRDMA_T_ANSWERED)
		srdma_slot_again(a);
	return SRDMA_REASON_NONE;
}

/* 1: a kept buffer leaves enough of them for packets in order. */
/* RFC 5042 R6.4.3.1-1, R6.4.3.1-3, A6.4.3.1b */
static int has_buffers(const struct srdma_responder *rs)
{
	struct srdma_port *host = rs->env->host;

	return host->ops->buf_free(host) > SRDMA_MAX_BURST + 1;
}

static int keep(const struct srdma_arrival *a)
{
	struct srdma_responder *rs = a->rs;
	struct srdma_reorder_entry *k;
	const uint8_t *claim;
	int r = srdma_reorder_keep(&rs->reorder, a->p, a->buf, has_buffers(rs),
				   &k);

	if (r < 0)
		return r;
	if (rs->reorder.share.count == 1)
		rs->moved = rs->env->now;
	srdma_qp_wake(rs->qp, rs->env->now + SRDMA_SECOND);
	if (!(a->p->flags & SRDMA_STH_PROOF))
		return r;
	k->claim_len =
		srdma_session_claim(srdma_qp_session(rs->qp), a->p, &claim);
	memcpy(k->claim, claim, k->claim_len);
	return r;
}

/* 1: the packet at the position must wait for a response slot, or for a receive. */
static int waits(struct srdma_responder *rs, const struct srdma_packet *p)
{
	rs->slots_refused = 0;
	return ((p->traits & SRDMA_T_ANSWERED) && srdma_slot_waits(rs, p)) ||
	       (rs->shared && srdma_shared_queue_waits(rs, p));
}

/* Keeps or drops a packet after the position, or at it while it waits. */
static void set_aside(const struct srdma_arrival *a)
{
	struct srdma_responder *rs = a->rs;
	int r;

	if (too_far(rs, a->p)) {
		drop(rs);
		return;
	}
	r = keep(a);
	srdma_reorder_note(&rs->reorder, a->p);
	if (r == -EINVAL) { /* no ack: it would be sent again at once */
		rs->env->stats.refused[SRDMA_REFUSED_GAP]++;
		return;
	}
	if (r == -ENOSPC) {
		drop(rs);
		return;
	}
	rs->env->stats.kept += r == 0;
	rs->env->stats.duplicates += r == -EALREADY;
	srdma_qp_schedule(rs->qp, SRDMA_SAY_ACK);
}

/* The packet is at the position, which moves unless the packet is refused. */
static enum srdma_reason run(const struct srdma_arrival *a)
{
	a->rs->moved = a->rs->env->now;
	return srdma_responder_run(a);
}

static enum srdma_reason at_position(const struct srdma_arrival *a)
{
	if (waits(a->rs, a->p)) {
		srdma_slot_count_refusal(a->rs);
		set_aside(a);
		return SRDMA_REASON_NONE;
	}
	srdma_reorder_note(&a->rs->reorder, a->p);
	return run(a);
}

static int drain_kept(struct srdma_responder *rs)
{
	struct srdma_reorder_entry *k;

	while ((k = rs->reorder.head) != NULL) {
		const struct srdma_arrival a = { rs, &k->packet, &k->buf, k };
		enum order order = order_of(rs, a.p);
		enum srdma_reason why;

		if (order == AFTER || (order == AT && waits(rs, a.p)))
			return 0;
		if (!rs->env->ops.left)
			return -EAGAIN;
		why = order == BEFORE ? duplicate(&a) : run(&a);
		srdma_reorder_pop(&rs->reorder);
		if (why)
			srdma_responder_refuse(rs, why);
	}
	return 0;
}

static int drain(struct srdma_responder *rs)
{
	rs->slots_refused = 0;
	return rs->reorder.head ? drain_kept(rs) : 0;
}

int srdma_responder_drain(struct srdma_qp *qp)
{
	return drain(srdma_qp_responder(qp));
}

void srdma_responder_receive(struct srdma_qp *qp, const struct srdma_packet *p,
			     struct srdma_buf **buf)
{
	struct srdma_responder *rs = srdma_qp_responder(qp);
	const struct srdma_arrival a = { rs, p, buf, NULL };
	enum srdma_reason why = SRDMA_REASON_NONE;

	if (rs->refusing || srdma_qp_is_ending(qp))
		return;
	switch (order_of(rs, p)) {
	case BEFORE:
		why = duplicate(&a);
		break;
	case AT:
		why = at_position(&a);
		break;
	case AFTER:
		set_aside(&a);
		break;
	}
	if (why)
		srdma_responder_refuse(rs, why);
	if (drain(rs))
		srdma_qp_activate(qp);
}

void srdma_sequence_gaps(struct srdma_responder *rs, struct srdma_ack_body *ack)
{
	const struct srdma_reorder_from from = {
		.at = rs->accepted,
		.reading = rs->message.kind == SRDMA_T_READ,
		.highest = srdma_session_highest(srdma_qp_session(rs->qp)),
		.credit = rs->accepted.id + SRDMA_REQUEST_CREDIT,
	};
	struct srdma_reorder_gaps gaps;

	srdma_reorder_gaps(&rs->reorder, &from, &gaps);
	ack->gaps = gaps.count;
	ack->skips = gaps.skips;
	memcpy(ack->gap, gaps.gap, gaps.count * sizeof(*ack->gap));
}
