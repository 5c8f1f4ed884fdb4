#include "port/shm/port_shm_host.h"

#include "port/shm/leg_layout.h"
#include "port/shm/port_shm_process.h"
#include "wire/wire.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_EVERY = 256 };

static struct srdma_shm_host *host_of(struct srdma_port *port)
{
	return (struct srdma_shm_host *)port;
}

/* --- bring-up --------------------------------------------------------- */

static int refuse(struct srdma_port *port, int err, const char *why)
{
	port->why = why;
	return err;
}

static int map_leg(struct srdma_shm_leg *leg,
		   const struct srdma_leg_params *params)
{
	struct srdma_port *port = leg->c.conn.port;
	size_t at = srdma_leg_layout_records_at(params->ring);
	int r = srdma_shm_map(&leg->c.map, params->fds[0], 0,
			      at + (size_t)params->ring * SRDMA_RECORD_LEN, 1);

	if (r)
		return refuse(port, r,
			      "the leg must be a memfd with F_SEAL_SHRINK that "
			      "holds both rings");
	r = srdma_ringer_open(&leg->c.ringer, SRDMA_WAKE_SOCKET, params->fds[1],
			      params->fds[2]);
	if (r)
		return refuse(
			port, r,
			"OPEN must pass one end of a pair of empty Unix "
			"stream sockets, and a doorbell: a one-page memfd "
			"with F_SEAL_SHRINK; use a library of this "
			"release");
	leg->records = leg->c.map.at + at;
	leg->ring = params->ring;
	srdma_ring_init(&leg->c.rx, leg->c.map.at, params->ring,
			SRDMA_DESC_SLOT);
	return 0;
}

static void leg_free(struct srdma_shm_leg *leg)
{
	srdma_shm_process_leave(leg);
	srdma_shm_conn_remove(&leg->c);
	if (leg->pidfd >= 0)
		close(leg->pidfd);
	free(leg);
}

static int take_descriptors(struct srdma_shm_leg *leg,
			    const struct srdma_leg_params *params)
{
	int r = srdma_shm_conn_eventfd(&leg->c);

	if (r || params->pid <= 0)
		return r;
	leg->pidfd = fcntl(params->pidfd, F_DUPFD_CLOEXEC, 0);
	return leg->pidfd < 0 ? -errno : 0;
}

static int leg_open(struct srdma_port *port,
		    const struct srdma_leg_params *params,
		    struct srdma_conn **conn, struct srdma_leg_answer *answer)
{
	struct srdma_shm_host *h = host_of(port);
	struct srdma_shm_leg *leg;
	int r;

	if (params->ring < SRDMA_LEG_SHM_MIN_RING ||
	    params->ring > SRDMA_LEG_SHM_MAX_RING ||
	    (params->ring & (params->ring - 1)))
		return refuse(port, -EINVAL,
			      "the ring must be a power of two from 64 to "
			      "65536");
	leg = calloc(1, sizeof(*leg));
	if (!leg)
		return refuse(port, -ENOMEM, "out of memory");
	srdma_shm_conn_add(&h->p, &leg->c);
	leg->pid = params->pid;
	leg->pidfd = -1;
	r = map_leg(leg, params);
	if (r)
		goto free_leg;
	r = take_descriptors(leg, params);
	if (r) {
		port->why =
			"the worker has no file descriptors left: raise its limit (ulimit -n)";
		goto free_leg;
	}
	leg->c.up_due = true;
	*answer = (struct srdma_leg_answer){
		.fds = { leg->c.wake, h->p.bell.fd },
	};
	*conn = &leg->c.conn;
	return 0;
free_leg:
	leg_free(leg);
	return r;
}

static void leg_close(struct srdma_conn *conn)
{
	leg_free(srdma_shm_leg_of(conn));
}

/* --- data path -------------------------------------------------------- */

void srdma_shm_leg_record(struct srdma_shm_leg *leg, uint32_t slot,
			  const uint8_t *record)
{
	uint8_t *at = leg->records + (size_t)slot * SRDMA_RECORD_LEN;
	uint32_t sequence;

	assert(slot < leg->ring);
	/*
	 * The host accepts a record when it sees its sequence number: store
	 * that last.
	 */
	memcpy(&sequence, record + SRDMA_LEG_SHM_SEQUENCE, sizeof(sequence));
	memcpy(at, record, SRDMA_LEG_SHM_SEQUENCE);
	atomic_store_explicit(
		(_Atomic uint32_t *)(void *)(at + SRDMA_LEG_SHM_SEQUENCE),
		sequence, memory_order_release);
	srdma_shm_leg_due(leg, SRDMA_DOORBELL_NEWS);
}

/* A record that follows tasks of the leg. */
static int complete_later(struct srdma_shm_leg *leg, uint32_t slot,
			  const uint8_t *record)
{
	struct srdma_shm_task task = {
		.kind = SRDMA_SHM_RECORD,
		.leg = leg,
		.slot = slot,
	};

	memcpy(task.record, record, sizeof(task.record));
	return srdma_shm_process_start(&task);
}

static int complete(struct srdma_conn *conn, uint32_t slot,
		    const uint8_t *record)
{
	struct srdma_shm_leg *leg = srdma_shm_leg_of(conn);

	if (leg->c.under_way)
		return complete_later(leg, slot, record);
	srdma_shm_leg_record(leg, slot, record);
	return 0;
}

static void host_flush(struct srdma_port *port)
{
	struct srdma_shm_host *h = host_of(port);
	struct srdma_shm_leg *leg;

	if (!h->due)
		return;
	h->due = false;
	atomic_thread_fence(memory_order_seq_cst);
	for (struct srdma_shm_conn *c = h->p.conns; c; c = c->next) {
		leg = srdma_shm_leg_of(&c->conn);
		if (leg->due)
			srdma_ringer_ring(&c->ringer, leg->due);
		leg->due = 0;
	}
}

static int host_poll(struct srdma_port *port, struct srdma_event *ev, int n)
{
	struct srdma_shm_host *h = host_of(port);
	int got;

	host_flush(port);
	if (!h->p.until_look--) {
		h->p.until_look = LOOK_EVERY;
		srdma_shm_port_look(&h->p);
	}
	/* Copies leave at least half of the events to legs. */
	got = srdma_shm_process_poll(h, ev, (n + 1) / 2);
	return got + srdma_shm_port_poll(port, ev + got, n - got);
}

static int host_arm(struct srdma_port *port)
{
	host_flush(port);
	if (srdma_shm_port_arm(port))
		return 1;
	if (!srdma_shm_process_has_work(host_of(port)))
		return 0;
	srdma_shm_port_disarm(port);
	return 1;
}

static void host_destroy(struct srdma_port *port)
{
	struct srdma_shm_host *h = host_of(port);

	if (!port)
		return;
	host_flush(port);
	while (h->p.conns)
		leg_close(&h->p.conns->conn);
	srdma_shm_process_clear(h);
	srdma_shm_port_fini(&h->p);
	free(h);
}

static const struct srdma_port_ops host_ops = {
	.poll = host_poll,
	.flush = host_flush,
	.buf_get = srdma_shm_port_buf_get,
	.buf_put = srdma_shm_port_buf_put,
	.buf_free = srdma_shm_port_buf_free,
	.read = srdma_shm_region_read,
	.write = srdma_shm_region_write,
	.atomic = srdma_shm_region_atomic,
	.complete = complete,
	.leg_open = leg_open,
	.region_open = srdma_shm_region_open,
	.region_close = srdma_shm_region_close,
	.region_ready = srdma_shm_region_ready,
	.keepalive = srdma_shm_process_look,
	.close = leg_close,
	.fd = srdma_shm_port_fd,
	.arm = host_arm,
	.disarm = srdma_shm_port_disarm,
	.destroy = host_destroy,
};

int srdma_port_shm_create_host(struct srdma_port **out,
			       int (*spawn)(void *(*run)(void *), void *arg))
{
	struct srdma_shm_host *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return -ENOMEM;
	r = srdma_shm_port_init(&h->p, &host_ops);
	if (r) {
		free(h);
		return r;
	}
	h->spawn = spawn;
	*out = &h->p.port;
	return 0;
}
