#include "host/leg_verbs_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "host/error.h"
#include "srdma/types.h"

static const char *name_of(const struct srdma_leg_verbs *leg)
{
	return leg->rdma->get_device_name(leg->id->verbs->device);
}

static int failed_on(const struct srdma_leg_verbs *leg, const char *what,
		     int err)
{
	return srdma_error_set(-err, "%s on %s: %s%s", what, name_of(leg),
			       strerror(err),
			       err == ENOMEM ? ": check the limit of locked "
					       "memory, `ulimit -l`"
					     : "");
}

/* A function of the table failed. It may have left errno as it was. */
static int failed_call(const struct srdma_leg_verbs *leg, const char *what)
{
	const int err = srdma_rdma_errno(leg->rdma);

	return failed_on(leg, what, err ? err : ENOMEM);
}

/* --- objects ------------------------------------------------------------- */

static int map(uint8_t **out, size_t len)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return -errno;
	*out = at;
	return 0;
}

static size_t records_size(const struct srdma_leg_verbs *leg)
{
	return (size_t)leg->ring * SRDMA_RECORD_LEN;
}

enum {
	SLOTS_SIZE = SRDMA_VERBS_QUEUE_SLOTS * SRDMA_DESC_SLOT,
};

static int open_memory(struct srdma_leg_verbs *leg)
{
	const struct srdma_rdma *rdma = leg->rdma;

	if (map(&leg->records, records_size(leg)) ||
	    map(&leg->slots, SLOTS_SIZE))
		return srdma_error_set(-ENOMEM, "no memory");
	srdma_rdma_clear_errno(leg->rdma);
	leg->records_mr = (rdma->reg_mr)(
		leg->pd, leg->records, records_size(leg),
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (leg->records_mr)
		leg->slots_mr =
			(rdma->reg_mr)(leg->pd, leg->slots, SLOTS_SIZE, 0);
	return leg->slots_mr
		       ? 0
		       : failed_call(leg, "registering the rings of a leg");
}

/* As much inline data as the device permits: a slot, or most descriptors. */
static int open_qp(struct srdma_leg_verbs *leg, uint32_t *inline_max)
{
	static const uint32_t wanted[] = { SRDMA_DESC_SLOT, 128, 0 };

	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = leg->cq,
			.recv_cq = leg->cq,
			.cap = { .max_send_wr = SRDMA_VERBS_QUEUE_SENDS,
				 .max_recv_wr =
					 srdma_verbs_queue_receives(leg->ring),
				 .max_send_sge = 1,
				 .max_recv_sge = 1,
				 .max_inline_data = wanted[i] },
			.qp_type = IBV_QPT_RC,
		};

		srdma_rdma_clear_errno(leg->rdma);
		leg->qp = leg->rdma->create_qp(leg->pd, &attr);
		*inline_max = attr.cap.max_inline_data;
		if (leg->qp)
			return 0;
	}
	return failed_call(leg, "creating a QP");
}

static int open_queues(struct srdma_leg_verbs *leg)
{
	const uint32_t size =
		srdma_verbs_queue_receives(leg->ring) + SRDMA_VERBS_QUEUE_SENDS;

	srdma_rdma_clear_errno(leg->rdma);
	leg->pd = leg->rdma->alloc_pd(leg->id->verbs);
	if (!leg->pd)
		return failed_call(leg, "allocating a PD");
	leg->channel = leg->rdma->create_comp_channel(leg->id->verbs);
	if (!leg->channel)
		return failed_call(leg, "creating a completion channel");
	leg->cq = leg->rdma->create_cq(leg->id->verbs, (int)size, NULL,
				       leg->channel, 0);
	return leg->cq ? 0 : failed_call(leg, "creating a CQ");
}

/* --- the descriptor to wait on ------------------------------------------- */

static int watch(struct srdma_leg_verbs *leg, int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };
	const int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ||
	       epoll_ctl(leg->epoll, EPOLL_CTL_ADD, fd, &e);
}

static int open_events(struct srdma_leg_verbs *leg)
{
	if (watch(leg, leg->timer) || watch(leg, leg->over) ||
	    watch(leg, leg->channel->fd) || watch(leg, leg->cm->fd))
		return failed_on(leg, "watching a leg", errno);
	return 0;
}

int srdma_leg_verbs_device_open(struct srdma_leg_verbs *leg)
{
	uint32_t inline_max = 0;
	int r = leg->rdma->query_device(leg->id->verbs, &leg->limits);

	r = r ? failed_on(leg, "querying the device", r) : open_queues(leg);
	if (!r)
		r = open_memory(leg);
	if (!r)
		r = open_qp(leg, &inline_max);
	if (!r)
		r = open_events(leg);
	if (r)
		return r;
	srdma_verbs_queue_init(&leg->queue, &(struct srdma_verbs_queue_params){
						    .qp = leg->qp,
						    .cq = leg->cq,
						    .slots = leg->slots,
						    .lkey = leg->slots_mr->lkey,
						    .inline_max = inline_max,
						    .ring = leg->ring,
					    });
	return 0;
}

void srdma_leg_verbs_device_close(struct srdma_leg_verbs *leg)
{
	const struct srdma_rdma *rdma = leg->rdma;

	if (leg->qp)
		rdma->destroy_qp(leg->qp);
	if (leg->cq)
		rdma->destroy_cq(leg->cq);
	if (leg->slots_mr)
		rdma->dereg_mr(leg->slots_mr);
	if (leg->records_mr)
		rdma->dereg_mr(leg->records_mr);
	if (leg->channel)
		rdma->destroy_comp_channel(leg->channel);
	if (leg->pd)
		rdma->dealloc_pd(leg->pd);
	if (leg->slots)
		munmap(leg->slots, SLOTS_SIZE);
	if (leg->records)
		munmap(leg->records, records_size(leg));
}

/* --- regions ------------------------------------------------------------- */

/* The worker's NIC reads every region; it writes those that may be written, by
 * requests of this host or of a peer. */
static int access_of(uint32_t access)
{
	int flags = IBV_ACCESS_REMOTE_READ;

	if (access & SRDMA_ACCESS_LOCAL_WRITE)
		flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	if (access & SRDMA_ACCESS_REMOTE_ATOMIC)
		flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	return flags;
}

int srdma_leg_verbs_reg(struct srdma_host_leg *base,
			struct srdma_host_leg_region *m)
{
	struct srdma_leg_verbs *leg = (struct srdma_leg_verbs *)base;
	struct ibv_mr *mr;

	if ((m->access & SRDMA_ACCESS_REMOTE_ATOMIC) &&
	    leg->limits.atomic_cap == IBV_ATOMIC_NONE)
		return srdma_error_set(-ENOTSUP,
				       "SRDMA_ACCESS_REMOTE_ATOMIC: %s has no "
				       "atomics",
				       name_of(leg));
	srdma_rdma_clear_errno(leg->rdma);
	mr = (leg->rdma->reg_mr)(leg->pd, m->addr, m->length,
				 access_of(m->access));
	if (!mr)
		return failed_call(leg, "registering a region");
	m->device_mr = mr;
	m->rkey = mr->rkey;
	return 0;
}

void srdma_leg_verbs_dereg(struct srdma_host_leg *base,
			   struct srdma_host_leg_region *m)
{
	struct srdma_leg_verbs *leg = (struct srdma_leg_verbs *)base;

	leg->rdma->dereg_mr(m->device_mr);
	m->device_mr = NULL;
}
