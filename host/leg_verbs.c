#include "host/leg_verbs_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "host/error.h"
#include "port/leg_time.h"

enum {
	EVENTS = 4,   /* descriptors in the epoll set */
	NS = 1000000, /* of a ms */
};

static struct srdma_leg_verbs *verbs_of(struct srdma_host_leg *leg)
{
	return (struct srdma_leg_verbs *)leg;
}

static const uint8_t *verbs_ring(const struct srdma_host_leg *leg)
{
	return ((const struct srdma_leg_verbs *)leg)->records;
}

static int verbs_fd(const struct srdma_host_leg *leg)
{
	return ((const struct srdma_leg_verbs *)leg)->epoll;
}

/* --- end ----------------------------------------------------------------- */

void srdma_leg_verbs_end(struct srdma_leg_verbs *leg, const char *format, ...)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	va_list args;

	if (leg->has_ended)
		return;
	leg->has_ended = 1;
	va_start(args, format);
	vsnprintf(leg->why, sizeof(leg->why), format, args);
	va_end(args);
	leg->rdma->disconnect(leg->id); /* tells the worker, if it can */
	leg->rdma->modify_qp(leg->qp, &attr, IBV_QP_STATE);
	eventfd_write(leg->over, 1);
}

/* Ends the leg if its queue has failed. */
static void check_queue(struct srdma_leg_verbs *leg)
{
	const struct srdma_verbs_queue *q = &leg->queue;

	if (q->failed)
		srdma_leg_verbs_end(leg, "%s: %s", q->failed,
				    strerror(q->error));
	else if (q->status != IBV_WC_SUCCESS)
		srdma_leg_verbs_end(leg, "%s",
				    leg->rdma->wc_status_str(q->status));
}

static void verbs_stop(struct srdma_host_leg *leg)
{
	srdma_leg_verbs_end(verbs_of(leg), "the worker ended");
}

/* --- data path ----------------------------------------------------------- */

static uint8_t *verbs_slot(struct srdma_host_leg *base)
{
	struct srdma_leg_verbs *leg = verbs_of(base);
	uint8_t *slot = srdma_verbs_queue_slot(&leg->queue);

	check_queue(leg);
	return leg->has_ended ? NULL : slot;
}

static int verbs_post(struct srdma_host_leg *leg, uint32_t len)
{
	return srdma_verbs_queue_post(&verbs_of(leg)->queue, len);
}

static void verbs_flush(struct srdma_host_leg *base)
{
	struct srdma_leg_verbs *leg = verbs_of(base);

	if (leg->has_ended)
		return;
	srdma_verbs_queue_flush(&leg->queue);
	check_queue(leg);
}

static void verbs_poll(struct srdma_host_leg *base)
{
	struct srdma_leg_verbs *leg = verbs_of(base);

	if (leg->has_ended)
		return;
	srdma_verbs_queue_poll(&leg->queue);
	check_queue(leg);
}

static void verbs_arm(struct srdma_host_leg *leg)
{
	verbs_flush(leg);
	if (!verbs_of(leg)->has_ended)
		srdma_verbs_queue_notify(&verbs_of(leg)->queue);
	verbs_poll(leg);
}

/* --- events -------------------------------------------------------------- */

/* Starts the timer: it expires when the next heartbeat is due, and, if this one
 * is not acknowledged, again and again after that. */
static void set_timer(const struct srdma_leg_verbs *leg)
{
	const struct itimerspec when = {
		.it_value = { .tv_sec = SRDMA_LEG_BEAT_MS / 1000,
			      .tv_nsec = SRDMA_LEG_BEAT_MS % 1000 * NS },
		.it_interval = { .tv_sec = SRDMA_LEG_LOOK_MS / 1000,
				 .tv_nsec = SRDMA_LEG_LOOK_MS % 1000 * NS },
	};

	timerfd_settime(leg->timer, 0, &when, NULL);
}

static void take_tick(const struct srdma_leg_verbs *leg)
{
	uint64_t ticks;
	const ssize_t n = read(leg->timer, &ticks, sizeof(ticks));

	(void)n;
}

static void take_cq_event(struct srdma_leg_verbs *leg)
{
	struct ibv_cq *cq;
	void *context;

	while (!leg->rdma->get_cq_event(leg->channel, &cq, &context))
		leg->rdma->ack_cq_events(cq, 1);
}

/* Handles what is readable. wakes: 1 to consume the events that wake a
 * sleeper. The descriptor `over` stays readable. */
static void look(struct srdma_leg_verbs *leg, int wakes)
{
	struct epoll_event events[EVENTS];
	const int n = epoll_wait(leg->epoll, events, EVENTS, 0);

	for (int i = 0; i < n; i++) {
		const int fd = events[i].data.fd;

		if (fd == leg->cm->fd)
			srdma_leg_verbs_cm_poll(leg);
		else if (wakes && fd == leg->channel->fd)
			take_cq_event(leg);
		else if (wakes && fd == leg->timer)
			take_tick(leg);
	}
}

static const char *verbs_ended(struct srdma_host_leg *base)
{
	struct srdma_leg_verbs *leg = verbs_of(base);

	if (!leg->has_ended)
		look(leg, 0);
	return leg->has_ended ? leg->why : NULL;
}

static void verbs_disarm(struct srdma_host_leg *leg)
{
	look(verbs_of(leg), 1);
}

static void verbs_keepalive(struct srdma_host_leg *base, int64_t now)
{
	struct srdma_leg_verbs *leg = verbs_of(base);
	int sent;

	if (leg->has_ended)
		return;
	sent = srdma_verbs_queue_keepalive(&leg->queue, now);
	if (sent < 0)
		srdma_leg_verbs_end(leg,
				    "the worker's device did not answer for "
				    "%d s",
				    SRDMA_LEG_SILENCE_MS / 1000);
	check_queue(leg);
	if (sent > 0)
		set_timer(leg);
}

/* --- memory -------------------------------------------------------------- */

static int verbs_alloc(struct srdma_host_leg_region *m)
{
	m->addr = mmap(NULL, m->length, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m->fd = -1;
	return m->addr == MAP_FAILED ? -errno : 0;
}

static void verbs_free(struct srdma_host_leg_region *m)
{
	munmap(m->addr, m->length);
}

/* --- life ---------------------------------------------------------------- */

/* The CM's id has the device open, so it is destroyed last. */
static void verbs_destroy(struct srdma_host_leg *base)
{
	struct srdma_leg_verbs *leg = verbs_of(base);

	if (leg->connected && !leg->has_ended)
		leg->rdma->disconnect(leg->id);
	srdma_leg_verbs_device_close(leg);
	srdma_leg_verbs_cm_close(leg);
	if (leg->epoll >= 0)
		close(leg->epoll);
	if (leg->timer >= 0)
		close(leg->timer);
	if (leg->over >= 0)
		close(leg->over);
	free(leg);
}

static const struct srdma_host_leg_ops ops = {
	.tells_end = 1,
	.slot = verbs_slot,
	.post = verbs_post,
	.flush = verbs_flush,
	.ring = verbs_ring,
	.poll = verbs_poll,
	.ended = verbs_ended,
	.stop = verbs_stop,
	.keepalive = verbs_keepalive,
	.arm = verbs_arm,
	.fd = verbs_fd,
	.disarm = verbs_disarm,
	.alloc = verbs_alloc,
	.free = verbs_free,
	.reg = srdma_leg_verbs_reg,
	.dereg = srdma_leg_verbs_dereg,
	.destroy = verbs_destroy,
};

int srdma_leg_verbs_check(void)
{
	const struct srdma_rdma *rdma;

	return srdma_rdma_load(&rdma);
}

static int open_descriptors(struct srdma_leg_verbs *leg)
{
	leg->epoll = epoll_create1(EPOLL_CLOEXEC);
	leg->timer =
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	leg->over = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return leg->epoll < 0 || leg->timer < 0 || leg->over < 0
		       ? srdma_error_set(-errno, "descriptors of a leg: %s",
					 strerror(errno))
		       : 0;
}

int srdma_leg_verbs_create(struct srdma_host_leg **out,
			   const struct srdma_leg_verbs_params *params,
			   int64_t deadline)
{
	struct srdma_leg_verbs *leg;
	const struct srdma_rdma *rdma;
	int r = srdma_rdma_load(&rdma);

	*out = NULL;
	if (r)
		return r;
	leg = calloc(1, sizeof(*leg));
	if (!leg)
		return srdma_error_set(-ENOMEM, "no memory");
	leg->base.ops = &ops;
	leg->rdma = rdma;
	leg->ring = params->ring;
	r = open_descriptors(leg);
	if (!r)
		r = srdma_leg_verbs_connect(leg, params, deadline);
	if (r)
		verbs_destroy(&leg->base);
	else
		*out = &leg->base;
	return r;
}
