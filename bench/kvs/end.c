#include "end.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "wire/wire.h"

enum { YIELDS = 64, NAP_MS = 20 };

static void credit(struct kvs_end *end)
{
	uint8_t *slot = srdma_leg_shm_slot(end->leg);
	int used = slot ? srdma_host_credit(end->host, slot) : 0;

	if (used)
		srdma_leg_shm_post(end->leg, (uint32_t)used);
}

int kvs_end_collect(struct kvs_end *end, struct srdma_record *out)
{
	int n = srdma_host_poll(end->host, out, KVS_RECORDS);

	if (n)
		credit(end);
	return n;
}

void kvs_end_wait(struct kvs_end *end, int memory, int (*look)(void *),
		  void *arg)
{
	struct pollfd p = { .fd = srdma_leg_shm_fd(end->leg),
			    .events = POLLIN };

	srdma_leg_shm_flush(end->leg);
	if (++end->idle < YIELDS) {
		sched_yield();
		return;
	}
	srdma_leg_shm_arm(end->leg, memory);
	if (look(arg))
		end->idle = 0;
	else
		poll(&p, 1, NAP_MS);
	srdma_leg_shm_disarm(end->leg);
}

void kvs_queue_init(struct kvs_queue *q, const struct srdma_desc *desc,
		    uint32_t depth)
{
	*q = (struct kvs_queue){ .desc = *desc,
				 .every = depth / 2,
				 .room = depth };
}

int kvs_queue_ready(const struct kvs_end *end, const struct kvs_queue *q)
{
	return q->room && srdma_leg_shm_slot(end->leg);
}

int kvs_queue_post(struct kvs_end *end, struct kvs_queue *q,
		   const void *payload, uint32_t len, uint64_t remote_addr)
{
	uint8_t *slot = srdma_leg_shm_slot(end->leg);
	int used;

	if (!kvs_queue_ready(end, q))
		return -EAGAIN;
	q->desc.flags = q->since + 1 == q->every ? SRDMA_DESC_SIGNALED : 0;
	q->desc.length = len;
	q->desc.remote_addr = remote_addr;
	used = srdma_host_post(end->host, &q->desc, payload, slot);
	if (used < 0)
		return used;
	srdma_leg_shm_post(end->leg, (uint32_t)used);
	q->since = q->desc.flags ? 0 : q->since + 1;
	q->room--;
	return 0;
}

void kvs_queue_retire(struct kvs_queue *q)
{
	q->room += q->every;
}
