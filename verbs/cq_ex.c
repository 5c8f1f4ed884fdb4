/*
 * CQs of ibv_create_cq_ex(), which are polled one completion at a time:
 * start_poll, next_poll and end_poll. Between the first and the last of them the
 * CQ is locked for other threads (ibv_create_cq_ex(3)).
 */
#include <errno.h>
#include <stdlib.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

enum {
	TIME_STAMPS = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
		      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	FIELDS = IBV_WC_STANDARD_FLAGS | TIME_STAMPS,
};

struct verbs_poll {
	pthread_mutex_t lock;
	struct ibv_wc wc; /* the current completion */
	struct verbs_stamp stamp;
};

_Static_assert(offsetof(struct ibv_cq, async_events_completed) ==
		       offsetof(struct ibv_cq_ex, async_events_completed),
	       "an ibv_cq_ex begins as an ibv_cq");

static struct verbs_poll *poll_of(struct ibv_cq_ex *ex)
{
	return ((struct verbs_cq *)ex)->poll;
}

/* --- moving ---------------------------------------------------------------------- */

static int next_poll(struct ibv_cq_ex *ex)
{
	struct verbs_poll *p = poll_of(ex);

	if (verbs_cq_poll((struct verbs_cq *)ex, 1, &p->wc, &p->stamp) != 1)
		return ENOENT;
	ex->wr_id = p->wc.wr_id;
	ex->status = p->wc.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	int err;

	if (attr->comp_mask)
		return EINVAL;
	if (pthread_mutex_lock(&poll_of(ex)->lock)) /* this thread polls it */
		return EINVAL;
	err = next_poll(ex);
	if (err)
		pthread_mutex_unlock(&poll_of(ex)->lock);
	return err;
}

/* Has no effect if the calling thread did not start. */
static void end_poll(struct ibv_cq_ex *ex)
{
	pthread_mutex_unlock(&poll_of(ex)->lock);
}

/* --- reading --------------------------------------------------------------------- */

#define READ(TYPE, NAME, FIELD)                                                \
	static TYPE read_##NAME(struct ibv_cq_ex *ex)                          \
	{                                                                      \
		return poll_of(ex)->FIELD;                                     \
	}

READ(enum ibv_wc_opcode, opcode, wc.opcode)
READ(uint32_t, vendor_err, wc.vendor_err)
READ(uint32_t, byte_len, wc.byte_len)
READ(__be32, imm_data, wc.imm_data)
READ(uint32_t, qp_num, wc.qp_num)
READ(uint32_t, src_qp, wc.src_qp)
READ(unsigned, wc_flags, wc.wc_flags)
READ(uint32_t, slid, wc.slid)
READ(uint8_t, sl, wc.sl)
READ(uint8_t, dlid_path_bits, wc.dlid_path_bits)
READ(uint64_t, completion_ts, stamp.raw)
READ(uint64_t, completion_wallclock_ns, stamp.wall)

static void set_functions(struct ibv_cq_ex *ex)
{
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_completion_ts;
	ex->read_completion_wallclock_ns = read_completion_wallclock_ns;
}

/* --- life ------------------------------------------------------------------------ */

/* A parent domain has no effect on a CQ (domain.c). */
static int is_domain(const struct ibv_pd *pd)
{
	return pd && ((const struct verbs_pd *)pd)->parent;
}

static int check(const struct ibv_cq_init_attr_ex *attr)
{
	const uint32_t mask = attr->comp_mask;
	const uint32_t flags =
		mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;

	if ((mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS |
				IBV_CQ_INIT_ATTR_MASK_PD)) ||
	    (attr->wc_flags & ~(uint64_t)FIELDS) ||
	    (flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
		return EOPNOTSUPP;
	if (mask & IBV_CQ_INIT_ATTR_MASK_PD && !is_domain(attr->parent_domain))
		return EINVAL;
	return attr->cqe > VERBS_CQE_MAX || attr->comp_vector ? EINVAL : 0;
}

struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *context,
				     struct ibv_cq_init_attr_ex *attr)
{
	struct verbs_poll *p;
	struct verbs_cq *cq;
	int err = check(attr);

	if (err)
		return verbs_null(err);
	p = calloc(1, sizeof(*p));
	if (!p)
		return verbs_null(ENOMEM);
	cq = (struct verbs_cq *)ibv_create_cq(
		context, (int)attr->cqe, attr->cq_context, attr->channel, 0);
	if (!cq) {
		free(p);
		return NULL;
	}
	verbs_check_lock_init(&p->lock);
	cq->poll = p;
	cq->stamped = (attr->wc_flags & TIME_STAMPS) != 0;
	set_functions(&cq->ex);
	return &cq->ex;
}

void verbs_poll_free(struct verbs_poll *p)
{
	if (!p)
		return;
	pthread_mutex_destroy(&p->lock);
	free(p);
}
