#include "host/objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/error.h"
#include "wire/wire.h"

enum { DEFAULT_DEPTH = 128 };

_Static_assert((int)SRDMA_INLINE_MAX == (int)SRDMA_MAX_INLINE, "inline");
_Static_assert((int)SRDMA_MESSAGE_MAX == (int)SRDMA_MAX_MESSAGE, "message");
_Static_assert((int)SRDMA_QP_MASK_ACCESS == (int)SRDMA_QP_FIELD_ACCESS &&
		       (int)SRDMA_QP_MASK_TIMEOUT ==
			       (int)SRDMA_QP_FIELD_TIMEOUT &&
		       SRDMA_TIMEOUT_NONE == (unsigned)SRDMA_NO_TIMEOUT,
	       "MODIFY");
_Static_assert((int)SRDMA_TIMEOUT_MAX_MS == (int)SRDMA_MAX_TIMEOUT_MS, "time");
_Static_assert((int)SRDMA_SGE_MAX == (int)SRDMA_MAX_SGES, "SGEs");
_Static_assert((int)SRDMA_DEPTH_MAX == (int)SRDMA_HOST_MAX_DEPTH, "depth");
_Static_assert((int)SRDMA_WR_RDMA_WRITE == (int)SRDMA_DESC_WRITE &&
		       (int)SRDMA_WR_RDMA_WRITE_WITH_IMM ==
			       (int)SRDMA_DESC_WRITE_IMM &&
		       (int)SRDMA_WR_RDMA_READ == (int)SRDMA_DESC_READ &&
		       (int)SRDMA_WR_SEND == (int)SRDMA_DESC_SEND &&
		       (int)SRDMA_WR_SEND_WITH_IMM ==
			       (int)SRDMA_DESC_SEND_IMM &&
		       (int)SRDMA_WR_ATOMIC_CMP_AND_SWP ==
			       (int)SRDMA_DESC_COMPARE_SWAP &&
		       (int)SRDMA_WR_ATOMIC_FETCH_AND_ADD ==
			       (int)SRDMA_DESC_FETCH_ADD &&
		       (int)SRDMA_WR_ATOMIC_WRITE ==
			       (int)SRDMA_DESC_ATOMIC_WRITE,
	       "opcodes of descriptors");
_Static_assert((int)SRDMA_SEND_SIGNALED == (int)SRDMA_DESC_SIGNALED &&
		       (int)SRDMA_SEND_FENCE == (int)SRDMA_DESC_FENCE &&
		       (int)SRDMA_SEND_INLINE == (int)SRDMA_DESC_INLINE,
	       "flags of descriptors");

/* --- life ---------------------------------------------------------------- */

static int init(struct srdma_qp *qp, const struct srdma_qp_params *p)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_INIT };
	int r;

	m.init.leg = qp->pd->number;
	m.init.qp = *p;
	r = srdma_pd_call(qp->pd, &m, NULL);
	if (r)
		return r;
	qp->made = m.qp;
	r = srdma_host_qp_add(qp->pd->host, qp->made.qp.qpn, p->sq, p->rq);
	if (!r)
		return 0;
	m = (struct srdma_ctl_msg){ .kind = SRDMA_CTL_DESTROY,
				    .qpn = qp->made.qp.qpn };
	srdma_pd_call(qp->pd, &m, NULL);
	return srdma_error_set(r, "QP 0x%06x: %s", qp->made.qp.qpn,
			       strerror(-r));
}

static int check_depth(const char *name, uint32_t depth)
{
	if (depth <= SRDMA_DEPTH_MAX)
		return 0;
	return srdma_error_set(-EINVAL, "%s %u: a queue has 1 to %d places",
			       name, depth, SRDMA_DEPTH_MAX);
}

int srdma_create_qp(struct srdma_qp **qp, struct srdma_pd *pd,
		    const struct srdma_qp_attr *attr)
{
	const struct srdma_qp_attr defaults = { 0 };
	const struct srdma_qp_attr *a = attr ? attr : &defaults;
	const struct srdma_qp_params p = {
		.sq = a->sq ? a->sq : DEFAULT_DEPTH,
		.rq = a->rq ? a->rq : DEFAULT_DEPTH,
		.timeout_ms = a->timeout_ms,
		.mtu = a->mtu,
	};
	struct srdma_qp *made;
	int r;

	*qp = NULL;
	if (check_depth("sq", p.sq) || check_depth("rq", p.rq))
		return -EINVAL;
	made = calloc(1, sizeof(*made));
	if (!made)
		return srdma_error_set(-ENOMEM, "no memory");
	made->pd = pd;
	made->params = p;
	r = init(made, &p);
	if (r) {
		free(made);
		return r;
	}
	made->next = pd->qps;
	pd->qps = made;
	pd->users++;
	*qp = made;
	return 0;
}

static void forget(struct srdma_qp *qp)
{
	struct srdma_qp **at = &qp->pd->qps;

	while (*at != qp)
		at = &(*at)->next;
	*at = qp->next;
	srdma_host_qp_remove(qp->pd->host, qp->made.qp.qpn);
	qp->pd->users--;
	free(qp);
}

/* Sends a request that ends the QP. 0 also after the end of the worker. */
static int end(const struct srdma_qp *qp, struct srdma_ctl_msg *m)
{
	int r = srdma_pd_call(qp->pd, m, NULL);

	/* -ENOENT: the worker reclaimed the QP, or a former call has timed out,
	 * and its request succeeded */
	return r == -ENOTCONN || r == -ENOENT ? 0 : r;
}

int srdma_destroy_qp(struct srdma_qp *qp)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_DESTROY };
	int r;

	if (!qp)
		return 0;
	m.qpn = qp->made.qp.qpn;
	r = end(qp, &m);
	if (!r)
		forget(qp);
	return r;
}

/* The worker ends the QP, after all descriptors that were posted. */
static int reset(struct srdma_qp *qp)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_RESET };
	int r;

	if (qp->reset)
		return 0;
	if (!qp->pd->gone)
		qp->pd->leg->ops->flush(qp->pd->leg);
	m.reset = (struct srdma_ctl_reset){
		.qpn = qp->made.qp.qpn,
		.posted = srdma_host_posted(qp->pd->host),
	};
	r = end(qp, &m);
	qp->reset = !r;
	return r;
}

int srdma_qp_flush(struct srdma_qp *qp, uint32_t reason)
{
	int r = reset(qp);

	if (r)
		return r;
	qp->status = SRDMA_QP_STATUS_ERROR;
	qp->reason = reason;
	return srdma_host_qp_fail(qp->pd->host, qp->made.qp.qpn, reason);
}

int srdma_qp_reinit(struct srdma_qp *qp)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REINIT };
	int r;

	m.reinit.qpn = qp->made.qp.qpn;
	m.reinit.qp = qp->params;
	r = srdma_pd_call(qp->pd, &m, NULL);
	if (r)
		return r;
	qp->made = m.qp;
	qp->reset = 0;
	qp->status = SRDMA_QP_STATUS_INIT;
	qp->reason = 0;
	return srdma_host_qp_restart(qp->pd->host, m.qp.qp.qpn, m.qp.records);
}

int srdma_modify_qp(struct srdma_qp *qp, const struct srdma_qp_mod *mod,
		    unsigned mask)
{
	const struct srdma_qp_change change = { .fields = mask,
						.access = mod->access,
						.timeout_ms = mod->timeout_ms };

	if (mask & ~(unsigned)(SRDMA_QP_MASK_ACCESS | SRDMA_QP_MASK_TIMEOUT))
		return srdma_error_set(
			-EINVAL, "mask 0x%x: known are ACCESS 1 and TIMEOUT 2",
			mask);
	return srdma_change_qp(qp, &change);
}

int srdma_change_qp(struct srdma_qp *qp, const struct srdma_qp_change *change)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_MODIFY,
				   .modify = *change };

	m.modify.qpn = qp->made.qp.qpn;
	return srdma_pd_call(qp->pd, &m, NULL);
}

void srdma_query_qp(const struct srdma_qp *qp, struct srdma_qp_query *query)
{
	*query = (struct srdma_qp_query){
		.qp_num = qp->made.qp.qpn,
		.mtu = qp->made.qp.mtu,
		.status = qp->status,
		.reason = qp->reason,
	};
}

/* --- posting ------------------------------------------------------------- */

static int post_error(int rc)
{
	switch (rc) {
	case -EAGAIN:
		return srdma_error_set(rc, "the leg is full: poll, then post "
					   "again");
	case -ENOSPC:
		return srdma_error_set(-EAGAIN,
				       "the queue is full: poll, then "
				       "post again, or make the QP deeper");
	case -ENOTCONN:
		return srdma_error_set(rc,
				       "the worker ended: start it, open "
				       "the device and a PD, connect again");
	case -EMSGSIZE:
		return srdma_error_set(rc,
				       "a message has at most %d bytes, "
				       "inline data at most %d",
				       SRDMA_MESSAGE_MAX, SRDMA_INLINE_MAX);
	}
	return srdma_error_set(rc, "the work request is illegal: check opcode, "
				   "flags, length, SGEs and capability");
}

static int post(struct srdma_pd *pd, const struct srdma_desc *d,
		const void *behind)
{
	uint8_t *slot;
	int r;

	slot = pd->gone ? NULL : pd->leg->ops->slot(pd->leg);
	if (!slot)
		return pd->gone ? -ENOTCONN : -EAGAIN;
	r = srdma_host_post(pd->host, d, behind, slot);
	return r <= 0 ? r : pd->leg->ops->post(pd->leg, (uint32_t)r);
}

uint32_t srdma_qp_send_room(const struct srdma_qp *qp)
{
	return srdma_host_send_room(qp->pd->host, qp->made.qp.qpn);
}

/* Sum of the lengths, or -EINVAL, -EMSGSIZE. */
static int64_t sum_of(const struct srdma_sge *sgl, uint32_t n)
{
	uint64_t sum = 0;

	if (!sgl || n > SRDMA_SGE_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++)
		sum += sgl[i].length;
	return sum > SRDMA_MESSAGE_MAX ? -EMSGSIZE : (int64_t)sum;
}

/* Posts a request or receive whose memory is this list. inlined: its bytes are
 * copied. */
static int post_list(struct srdma_pd *pd, struct srdma_desc *d,
		     const struct srdma_sge *sgl, uint32_t n, int inlined)
{
	uint8_t behind[SRDMA_MAX_INLINE], *at = behind;
	const int64_t sum = sum_of(sgl, n);

	if (sum < 0)
		return (int)sum;
	d->length = (uint32_t)sum;
	if (n == 1 && !inlined) {
		d->local_addr = sgl->addr;
		d->local_key = sgl->lkey;
		return post(pd, d, NULL);
	}
	if (!inlined) {
		d->sges = (uint8_t)n;
		srdma_sgl_encode(behind, sgl, n);
		return post(pd, d, behind);
	}
	if (sum > SRDMA_INLINE_MAX)
		return -EMSGSIZE;
	for (; n--; at += sgl++->length)
		if (sgl->length)
			memcpy(at, (const void *)(uintptr_t)sgl->addr,
			       sgl->length);
	return post(pd, d, behind);
}

static int post_one_send(struct srdma_qp *qp, const struct srdma_send_wr *wr)
{
	const unsigned known =
		SRDMA_SEND_SIGNALED | SRDMA_SEND_FENCE | SRDMA_SEND_INLINE;
	struct srdma_desc d = {
		.opcode = (uint8_t)wr->opcode,
		.flags = (uint8_t)(wr->flags & ~(unsigned)SRDMA_SEND_INLINE),
		.qpn = qp->made.qp.qpn,
		.id = wr->wr_id,
		.length = wr->length,
		.local_addr = (uintptr_t)wr->addr,
		.local_key = wr->lkey,
		.rkey = wr->rkey,
		.remote_addr = wr->remote_addr,
		.imm = wr->imm_data,
		.capability = wr->capability,
	};

	if ((wr->flags & ~known) || wr->opcode < SRDMA_WR_RDMA_WRITE ||
	    wr->opcode > SRDMA_WR_ATOMIC_WRITE)
		return -EINVAL;
	if (wr->opcode == SRDMA_WR_ATOMIC_CMP_AND_SWP) {
		d.compare = wr->compare_add;
		d.swap_add = wr->swap;
	} else {
		d.swap_add = wr->compare_add;
	}
	if (wr->num_sge)
		return post_list(qp->pd, &d, wr->sg_list, wr->num_sge,
				 wr->flags & SRDMA_SEND_INLINE);
	if (!(wr->flags & SRDMA_SEND_INLINE))
		return post(qp->pd, &d, NULL);
	if (!wr->addr && wr->length)
		return -EINVAL;
	/* NULL is legal for an empty message; then any address does */
	return post(qp->pd, &d, wr->addr ? wr->addr : (const void *)wr);
}

static int post_one_recv(struct srdma_qp *qp, const struct srdma_recv_wr *wr)
{
	struct srdma_desc d = {
		.opcode = SRDMA_DESC_RECV,
		.qpn = qp->made.qp.qpn,
		.id = wr->wr_id,
		.length = wr->length,
		.local_addr = (uintptr_t)wr->addr,
		.local_key = wr->lkey,
	};

	if (wr->num_sge)
		return post_list(qp->pd, &d, wr->sg_list, wr->num_sge, 0);
	return post(qp->pd, &d, NULL);
}

int srdma_post_send(struct srdma_qp *qp, struct srdma_send_wr *wr,
		    struct srdma_send_wr **bad_wr)
{
	int r = 0;

	for (; wr; wr = wr->next) {
		r = post_one_send(qp, wr);
		if (r)
			break;
	}
	qp->pd->leg->ops->flush(qp->pd->leg);
	if (bad_wr)
		*bad_wr = wr;
	return r ? post_error(r) : 0;
}

int srdma_post_recv(struct srdma_qp *qp, struct srdma_recv_wr *wr,
		    struct srdma_recv_wr **bad_wr)
{
	int r = 0;

	for (; wr; wr = wr->next) {
		r = post_one_recv(qp, wr);
		if (r)
			break;
	}
	qp->pd->leg->ops->flush(qp->pd->leg);
	if (bad_wr)
		*bad_wr = wr;
	return r ? post_error(r) : 0;
}
