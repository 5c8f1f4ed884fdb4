/* Work requests of verbs become work requests of libsrdma. */
#include <arpa/inet.h>
#include <errno.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

/* By enum ibv_wr_opcode. */
static const uint8_t opcodes[] = {
	[IBV_WR_RDMA_WRITE] = SRDMA_WR_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = SRDMA_WR_RDMA_WRITE_WITH_IMM,
	[IBV_WR_SEND] = SRDMA_WR_SEND,
	[IBV_WR_SEND_WITH_IMM] = SRDMA_WR_SEND_WITH_IMM,
	[IBV_WR_RDMA_READ] = SRDMA_WR_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = SRDMA_WR_ATOMIC_CMP_AND_SWP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = SRDMA_WR_ATOMIC_FETCH_AND_ADD,
	[IBV_WR_ATOMIC_WRITE] = SRDMA_WR_ATOMIC_WRITE,
};

/* Copies a list of SGEs. Returns it, or NULL if n is out of range. */
static const struct srdma_sge *list_of(const struct ibv_sge *from, int n,
				       struct srdma_sge to[SRDMA_SGE_MAX])
{
	if (n < 0 || n > SRDMA_SGE_MAX)
		return NULL;
	for (int i = 0; i < n; i++)
		to[i] = (struct srdma_sge){ from[i].addr, from[i].length,
					    from[i].lkey };
	return to;
}

static unsigned flags_of(const struct verbs_qp *qp, unsigned flags)
{
	unsigned out = 0;

	if (qp->sq_sig_all || (flags & IBV_SEND_SIGNALED))
		out |= SRDMA_SEND_SIGNALED;
	if (flags & IBV_SEND_FENCE)
		out |= SRDMA_SEND_FENCE;
	if (flags & IBV_SEND_INLINE)
		out |= SRDMA_SEND_INLINE;
	return out; /* SOLICITED: each receive counts as solicited */
}

/* 0 or errno. */
static int convert(const struct verbs_qp *qp, const struct ibv_send_wr *from,
		   struct srdma_send_wr *to)
{
	if (!verbs_transport_has(qp->transport, from->opcode) ||
	    from->num_sge > (int)qp->cap.max_send_sge)
		return EINVAL;
	*to = (struct srdma_send_wr){
		.wr_id = from->wr_id,
		.opcode = opcodes[from->opcode],
		.flags = flags_of(qp, from->send_flags),
		.num_sge = (uint32_t)from->num_sge,
		.imm_data = ntohl(from->imm_data),
		.rkey = from->wr.rdma.rkey,
		.remote_addr = from->wr.rdma.remote_addr,
	};
	if (from->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    from->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		to->rkey = from->wr.atomic.rkey;
		to->remote_addr = from->wr.atomic.remote_addr;
		to->compare_add = from->wr.atomic.compare_add;
		to->swap = from->wr.atomic.swap;
	}
	return 0;
}

/* -EAGAIN of libsrdma, a full queue, is ENOMEM in verbs. */
static int post_error(int rc)
{
	return rc == -EAGAIN ? ENOMEM : verbs_error(rc);
}

static int send_one(struct verbs_qp *qp, const struct ibv_send_wr *wr)
{
	struct srdma_sge list[SRDMA_SGE_MAX];
	struct srdma_send_wr w;
	int err;

	if (qp->ud)
		return verbs_ud_post_send(qp->ud, wr);
	err = convert(qp, wr, &w);
	if (err)
		return err;
	w.sg_list = list_of(wr->sg_list, wr->num_sge, list);
	if (!w.sg_list)
		return EINVAL;
	return post_error(srdma_post_send(qp->qp, &w, NULL));
}

static int may_send(const struct verbs_qp *qp)
{
	return qp->ibv.state == IBV_QPS_RTS || qp->ibv.state == IBV_QPS_ERR;
}

/* Posts the list at *wr, which becomes the request that failed. */
static int send_list(struct verbs_qp *qp, struct ibv_send_wr **wr)
{
	int err = 0;

	if (!may_send(qp))
		return EINVAL;
	while (*wr && !err) {
		err = send_one(qp, *wr);
		*wr = err ? *wr : (*wr)->next;
	}
	return err;
}

int verbs_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad_wr)
{
	struct verbs_root *root = verbs_root_of(ibv->context);
	int err;

	pthread_mutex_lock(&root->lock);
	err = send_list((struct verbs_qp *)ibv, &wr);
	pthread_mutex_unlock(&root->lock);
	if (err && bad_wr)
		*bad_wr = wr;
	return err;
}

static uint32_t room_of(const struct verbs_qp *qp)
{
	return qp->ud ? verbs_ud_send_room(qp->ud) : srdma_qp_send_room(qp->qp);
}

int verbs_post_all(struct verbs_qp *qp, struct ibv_send_wr *wr, uint32_t n)
{
	struct verbs_root *root = verbs_root_of(qp->ibv.context);
	int err;

	pthread_mutex_lock(&root->lock);
	if (may_send(qp) && room_of(qp) < n)
		err = ENOMEM;
	else
		err = qp->ud ? verbs_ud_check_all(qp->ud, wr) : 0;
	if (!err)
		err = send_list(qp, &wr);
	pthread_mutex_unlock(&root->lock);
	return err;
}

int verbs_post_one_recv(struct srdma_qp *qp, const struct ibv_recv_wr *wr,
			uint32_t max_sge)
{
	struct srdma_sge list[SRDMA_SGE_MAX];
	struct srdma_recv_wr w = {
		.wr_id = wr->wr_id,
		.sg_list = list_of(wr->sg_list, wr->num_sge, list),
		.num_sge = (uint32_t)wr->num_sge,
	};

	if (!w.sg_list || wr->num_sge > (int)max_sge)
		return EINVAL;
	return post_error(srdma_post_recv(qp, &w, NULL));
}

static int recv_one(struct verbs_qp *qp, const struct ibv_recv_wr *wr)
{
	int err;

	if (qp->ud)
		return verbs_ud_post_recv(qp->ud, wr);
	if (qp->recvs == qp->rq)
		return ENOMEM;
	err = verbs_post_one_recv(qp->qp, wr, qp->cap.max_recv_sge);
	qp->recvs += !err;
	return err;
}

int verbs_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr,
		    struct ibv_recv_wr **bad_wr)
{
	struct verbs_qp *qp = (struct verbs_qp *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);
	int err = 0;

	pthread_mutex_lock(&root->lock);
	if (ibv->state == IBV_QPS_RESET || ibv->srq)
		err = EINVAL;
	for (; wr && !err; wr = err ? wr : wr->next)
		err = recv_one(qp, wr);
	pthread_mutex_unlock(&root->lock);
	if (err && bad_wr)
		*bad_wr = wr;
	return err;
}
