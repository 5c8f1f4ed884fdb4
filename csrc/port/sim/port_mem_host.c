#include "port/sim/port_mem.h"

#include "base/fifo.h"
#include "port/pool.h"
#include "wire/wire.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BUFS = 256 };

enum work_kind { WORK_READ, WORK_WRITE, WORK_ATOMIC, WORK_RECORD };

/* A DMA or completion record under way, in posting order. */
struct work {
	struct work *next;
	enum work_kind kind;
	struct leg *leg; /* NULL: the leg was closed */
	uint64_t due;	 /* number of the poll that executes it */
	int status;	 /* not 0: it fails with this -errno */
	struct srdma_dma dma;
	struct srdma_atomic how; /* for WORK_ATOMIC */
	uint32_t slot;
	uint8_t record[SRDMA_RECORD_LEN];
};

struct leg {
	struct srdma_conn conn;
	struct leg *next;
	struct srdma_fifo posted;
	uint32_t ring;
	bool up_due, down_due, dead;
	uint8_t *records;
};

struct host {
	struct srdma_port port;
	struct srdma_pool *pool;
	const struct srdma_mem_host_params *params;
	struct leg *legs;
	struct work *first, **last;
	uint64_t polls;
};

static const struct srdma_mem_host_params defaults;

static struct host *host_of(struct srdma_port *port)
{
	return (struct host *)port;
}

static struct leg *leg_of(struct srdma_conn *conn)
{
	return (struct leg *)conn;
}

/* --- legs and regions ------------------------------------------------- */

static int leg_open(struct srdma_port *port,
		    const struct srdma_leg_params *params,
		    struct srdma_conn **conn, struct srdma_leg_answer *answer)
{
	struct host *h = host_of(port);
	struct leg *leg;

	if (!params->ring || (params->ring & (params->ring - 1))) {
		port->why = "the ring must be a power of two";
		return -EINVAL;
	}
	leg = calloc(1, sizeof(*leg));
	if (!leg)
		return -ENOMEM;
	leg->records = calloc(params->ring, SRDMA_RECORD_LEN);
	if (!leg->records) {
		free(leg);
		return -ENOMEM;
	}
	leg->conn.port = port;
	leg->ring = params->ring;
	srdma_fifo_init(&leg->posted);
	leg->up_due = true;
	leg->next = h->legs;
	h->legs = leg;
	*answer = (struct srdma_leg_answer){ .fds = { -1, -1 } };
	*conn = &leg->conn;
	return 0;
}

static void orphan_work(struct host *h, struct leg *leg, int status)
{
	for (struct work *w = h->first; w; w = w->next)
		if (w->leg == leg)
			w->status = status;
}

static void leg_close(struct srdma_conn *conn)
{
	struct host *h = host_of(conn->port);
	struct leg *leg = leg_of(conn), **at = &h->legs;

	orphan_work(h, leg, -ECANCELED);
	for (struct work *w = h->first; w; w = w->next)
		if (w->leg == leg)
			w->leg = NULL;
	while (*at != leg)
		at = &(*at)->next;
	*at = leg->next;
	srdma_fifo_clear(&leg->posted);
	free(leg->records);
	free(leg);
}

static int region_open(struct srdma_conn *leg,
		       const struct srdma_region_params *params,
		       struct srdma_region **out)
{
	struct srdma_region *region = calloc(1, sizeof(*region));

	if (!region)
		return -ENOMEM;
	region->leg = leg;
	region->base = params->addr;
	region->length = params->length;
	*out = region;
	return 0;
}

static void region_close(struct srdma_region *region)
{
	free(region);
}

/* --- DMA -------------------------------------------------------------- */

/* Atomic because everything runs in one thread. */
static void change(uint8_t *host, uint8_t *mine, const struct srdma_atomic *how)
{
	uint64_t value;

	memcpy(mine, host, sizeof(value));
	memcpy(&value, host, sizeof(value));
	value = srdma_atomic_apply(how, value);
	memcpy(host, &value, sizeof(value));
}

static void copy(const struct work *w)
{
	uint8_t *host = (uint8_t *)(uintptr_t)w->dma.addr;
	uint8_t *mine = w->dma.buf->data + w->dma.buf_at;

	if (!w->dma.len)
		return;
	if (w->kind == WORK_READ)
		memcpy(mine, host, w->dma.len);
	else if (w->kind == WORK_WRITE)
		memcpy(host, mine, w->dma.len);
	else
		change(host, mine, &w->how);
}

static void push_work(struct host *h, struct work *w)
{
	w->next = NULL;
	w->due = h->polls + h->params->dma_polls;
	*h->last = w;
	h->last = &w->next;
}

static struct work *pop_work(struct host *h)
{
	struct work *w = h->first;

	if (!w)
		return NULL;
	h->first = w->next;
	if (!h->first)
		h->last = &h->first;
	return w;
}

/* Start job, of which only dma, kind and how are set. */
static int dma_start(const struct work *job)
{
	const struct srdma_dma *dma = &job->dma;
	const struct srdma_region *r = dma->region;
	struct host *h = host_of(r->leg->port);
	const struct srdma_mem_host_params *p = h->params;
	struct work *w;
	int status = 0;

	/*
	 * The relay checks this first (port.h): a failing assertion is a bug of
	 * the relay.
	 */
	assert(dma->len <= r->length && dma->addr >= r->base &&
	       dma->addr - r->base <= r->length - dma->len);
	assert(dma->buf_at <= dma->buf->cap &&
	       dma->len <= dma->buf->cap - dma->buf_at);
	if (leg_of(r->leg)->dead)
		return -ECONNRESET;
	if (p->dma)
		status = p->dma(p->ctx, dma, job->kind != WORK_READ);
	if (status == -EAGAIN)
		return status;
	if (!h->first && !p->dma_polls) {
		if (!status)
			copy(job);
		return status ? status : 1;
	}
	w = malloc(sizeof(*w));
	if (!w)
		return -EAGAIN;
	*w = *job;
	w->leg = leg_of(r->leg);
	w->status = status;
	push_work(h, w);
	return 0;
}

static int host_read(const struct srdma_dma *dma)
{
	return dma_start(&(struct work){ .kind = WORK_READ, .dma = *dma });
}

static int host_write(const struct srdma_dma *dma)
{
	return dma_start(&(struct work){ .kind = WORK_WRITE, .dma = *dma });
}

static int host_atomic(const struct srdma_dma *dma,
		       const struct srdma_atomic *how)
{
	assert(dma->len == SRDMA_ATOMIC_LEN &&
	       dma->addr % SRDMA_ATOMIC_LEN == 0);
	return dma_start(&(struct work){
		.kind = WORK_ATOMIC, .dma = *dma, .how = *how });
}

static void put_record(struct leg *leg, uint32_t slot, const uint8_t *record)
{
	memcpy(leg->records + (size_t)slot * SRDMA_RECORD_LEN, record,
	       SRDMA_RECORD_LEN);
}

static int complete(struct srdma_conn *conn, uint32_t slot,
		    const uint8_t *record)
{
	struct host *h = host_of(conn->port);
	struct leg *leg = leg_of(conn);
	struct work *w;

	assert(slot < leg->ring);
	if (leg->dead)
		return -ECONNRESET;
	if (!h->first) {
		put_record(leg, slot, record);
		return 0;
	}
	w = calloc(1, sizeof(*w));
	if (!w)
		return -EAGAIN;
	w->kind = WORK_RECORD;
	w->leg = leg;
	w->slot = slot;
	memcpy(w->record, record, SRDMA_RECORD_LEN);
	push_work(h, w);
	return 0;
}

/* --- events ----------------------------------------------------------- */

/* Execute the oldest work. Returns 1 if it produced the event *ev. */
static int finish_work(struct host *h, struct srdma_event *ev)
{
	struct work *w = pop_work(h);
	int made = w->kind != WORK_RECORD;

	*ev = (struct srdma_event){
		.kind = SRDMA_EV_DMA_DONE,
		.status = w->status,
		.conn = w->leg ? &w->leg->conn : NULL,
		.cookie = w->dma.cookie,
	};
	if (!w->status && made)
		copy(w);
	if (!w->status && !made)
		put_record(w->leg, w->slot, w->record);
	free(w);
	return made;
}

static bool has_work(const struct host *h, const struct leg *leg)
{
	for (const struct work *w = h->first; w; w = w->next)
		if (w->leg == leg)
			return true;
	return false;
}

static int leg_event(struct host *h, struct leg *leg, struct srdma_event *ev)
{
	*ev = (struct srdma_event){ .conn = &leg->conn };
	if (leg->up_due) {
		leg->up_due = false;
		ev->kind = SRDMA_EV_UP;
		return 1;
	}
	if (leg->down_due && !has_work(h, leg)) {
		leg->down_due = false;
		ev->kind = SRDMA_EV_DOWN;
		ev->status = -ECONNRESET;
		return 1;
	}
	if (leg->dead || !leg->posted.first)
		return 0;
	ev->kind = SRDMA_EV_RECV;
	ev->buf = srdma_pool_get(h->pool);
	if (!ev->buf)
		return 0;
	ev->buf->len = srdma_fifo_take(&leg->posted, ev->buf->data);
	return 1;
}

static int host_poll(struct srdma_port *port, struct srdma_event *ev, int n)
{
	struct host *h = host_of(port);
	int got = 0, before;

	h->polls++;
	while (got < n && h->first &&
	       (h->first->due <= h->polls || h->first->status))
		got += finish_work(h, &ev[got]);
	do {
		before = got;
		for (struct leg *leg = h->legs; leg && got < n; leg = leg->next)
			got += leg_event(h, leg, &ev[got]);
	} while (got < n && got > before);
	return got;
}

static void host_flush(struct srdma_port *port)
{
	(void)port;
}

static struct srdma_buf *host_buf_get(struct srdma_port *port)
{
	return srdma_pool_get(host_of(port)->pool);
}

static void host_buf_put(struct srdma_buf *buf)
{
	srdma_pool_put(host_of(buf->port)->pool, buf);
}

static int host_buf_free(struct srdma_port *port)
{
	return srdma_pool_left(host_of(port)->pool);
}

/* Sleeping is not supported: host and worker run in one thread. */
static int host_fd(struct srdma_port *port)
{
	(void)port;
	return -ENOTSUP;
}

static int host_arm(struct srdma_port *port)
{
	struct host *h = host_of(port);

	if (h->first)
		return 1;
	for (struct leg *leg = h->legs; leg; leg = leg->next)
		if (leg->up_due || leg->down_due || leg->posted.first)
			return 1;
	return 0;
}

static void host_disarm(struct srdma_port *port)
{
	(void)port;
}

static void host_destroy(struct srdma_port *port)
{
	struct host *h = host_of(port);
	struct work *w;

	if (!port)
		return;
	while (h->legs)
		leg_close(&h->legs->conn);
	while ((w = pop_work(h)))
		free(w);
	srdma_pool_destroy(h->pool);
	free(h);
}

static const struct srdma_port_ops host_ops = {
	.poll = host_poll,
	.flush = host_flush,
	.buf_get = host_buf_get,
	.buf_put = host_buf_put,
	.buf_free = host_buf_free,
	.read = host_read,
	.write = host_write,
	.atomic = host_atomic,
	.complete = complete,
	.leg_open = leg_open,
	.region_open = region_open,
	.region_close = region_close,
	.close = leg_close,
	.fd = host_fd,
	.arm = host_arm,
	.disarm = host_disarm,
	.destroy = host_destroy,
};

int srdma_port_mem_host(struct srdma_port **out,
			const struct srdma_mem_host_params *params)
{
	struct host *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return -ENOMEM;
	h->port.ops = &host_ops;
	h->port.kind = SRDMA_PORT_MEM;
	h->params = params ? params : &defaults;
	h->last = &h->first;
	r = srdma_pool_create(&h->pool, &h->port,
			      h->params->bufs ? h->params->bufs : BUFS);
	if (r) {
		free(h);
		return r;
	}
	*out = &h->port;
	return 0;
}

/* --- the test's side -------------------------------------------------- */

int srdma_port_mem_post(struct srdma_conn *conn, const uint8_t *desc,
			uint32_t len)
{
	struct leg *leg = leg_of(conn);

	if (!len || len > SRDMA_DESC_SLOT)
		return -EMSGSIZE;
	if (leg->posted.count >= leg->ring)
		return -EAGAIN;
	return srdma_fifo_copy(&leg->posted, desc, len);
}

uint8_t *srdma_port_mem_ring(struct srdma_conn *leg)
{
	return leg_of(leg)->records;
}

void srdma_port_mem_kill(struct srdma_conn *conn)
{
	struct leg *leg = leg_of(conn);

	if (leg->dead)
		return;
	leg->dead = leg->down_due = true;
	orphan_work(host_of(conn->port), leg, -ECONNRESET);
}
