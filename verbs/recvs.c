#include "verbs/recvs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "srdma/queue.h"

int verbs_recvs_create(struct verbs_recvs *q, uint32_t room, uint32_t max_sge)
{
	*q = (struct verbs_recvs){
		.ring = { .room = room },
		.max_sge = max_sge,
		.wrs = calloc(room, sizeof(*q->wrs)),
		.sges = calloc((size_t)room * max_sge, sizeof(*q->sges)),
	};
	if (q->wrs && q->sges)
		return 0;
	verbs_recvs_destroy(q);
	return ENOMEM;
}

void verbs_recvs_destroy(struct verbs_recvs *q)
{
	free(q->wrs);
	free(q->sges);
	*q = (struct verbs_recvs){ 0 };
}

static uint64_t length_of(const struct ibv_recv_wr *wr)
{
	uint64_t length = 0;

	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	return length;
}

int verbs_recvs_put(struct verbs_recvs *q, const struct ibv_recv_wr *wr)
{
	struct ibv_sge *list;
	uint32_t place;

	if (wr->num_sge < 0 || wr->num_sge > (int)q->max_sge)
		return EINVAL;
	if (length_of(wr) > SRDMA_MESSAGE_MAX)
		return EMSGSIZE;
	if (q->ring.count == q->ring.room)
		return ENOMEM;
	place = ud_ring_at(&q->ring, q->ring.count++);
	list = q->sges + (size_t)place * q->max_sge;
	if (wr->num_sge)
		memcpy(list, wr->sg_list,
		       (size_t)wr->num_sge * sizeof(*wr->sg_list));
	q->wrs[place] = (struct ibv_recv_wr){ .wr_id = wr->wr_id,
					      .sg_list = list,
					      .num_sge = wr->num_sge };
	return 0;
}
