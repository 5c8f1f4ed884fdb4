#include "path/bare.h"

#include "path/path_impl.h"
#include "qp/env.h"
#include "qp/qp.h"

enum { QUESTION = SRDMA_STH_BARE | SRDMA_STH_ACK_NOW };

/* 1: the worker takes bare datagrams, and the tags of the QP protect them. */
static int is_able(const struct srdma_qp_path *x)
{
	return x->env->wire->bare &&
	       srdma_qp_keyed(x->qp)->level >= SRDMA_LEVEL_PACKET;
}

/* 1: the peer sent this after it verified the last question on this path. */
static int answers(const struct srdma_qp_path *x, const struct srdma_packet *p)
{
	return x->question_pn &&
	       (int32_t)(p->ack.highest_pn - (uint32_t)x->question_pn) >= 0;
}

void srdma_bare_note(struct srdma_qp_path *x, const struct srdma_packet *p)
{
	if (!(p->flags & SRDMA_STH_BARE))
		return;
	if (p->flags & SRDMA_STH_ACK_NOW)
		x->asked = 1;
	else if (answers(x, p))
		x->consent = 1;
}

void srdma_bare_end(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	x->consent = 0;
	x->question_pn = 0;
	x->repeats = 0;
}

void srdma_bare_answers(struct srdma_qp *qp, int again)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	if (!again)
		x->repeats = 0;
	else if (!x->repeats)
		x->repeats = x->env->now;
	else if (x->env->now - x->repeats >= srdma_rtt_rto(&x->rtt))
		srdma_bare_end(qp);
}

int srdma_bare_permits(const struct srdma_qp_path *x,
		       const struct srdma_packet *p)
{
	if (p->opcode == SRDMA_OP_ACKNOWLEDGE)
		return (p->flags & QUESTION) == QUESTION;
	return x->consent && is_able(x);
}

/* Packets number 1, 2, 4, 8.. without consent call for a question. */
static void count(struct srdma_qp_path *x, const struct srdma_packet *p)
{
	if (x->consent)
		return;
	x->told++;
	if (x->told & (x->told - 1))
		return;
	x->asking = 1;
	if (p->opcode == SRDMA_OP_ACKNOWLEDGE)
		return;
	/* The control packets of this run have left. */
	srdma_qp_schedule(x->qp, SRDMA_SAY_ACK);
	srdma_qp_activate(x->qp);
}

uint8_t srdma_bare_next(struct srdma_qp_path *x, const struct srdma_packet *p)
{
	const uint8_t kind = p->ack.kind;

	if (!x->current.valid || !is_able(x))
		return 0;
	count(x, p);
	if (p->opcode != SRDMA_OP_ACKNOWLEDGE || kind == SRDMA_ACK_NAK ||
	    kind == SRDMA_ACK_CLOSE)
		return 0;
	if (x->asked)
		return SRDMA_STH_BARE;
	return x->asking && !x->consent ? QUESTION : 0;
}

void srdma_bare_said(struct srdma_qp_path *x, const struct srdma_packet *p)
{
	if ((p->flags & QUESTION) != QUESTION) {
		x->asked = 0;
		return;
	}
	x->asking = 0;
	x->question_pn = p->pn;
}
