#include "host/objects.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <time.h>

#include "host/error.h"

enum {
	LOOK_MS = 1,	    /* interval of checks that the worker lives */
	LEG_LOOK_MS = 1000, /* of sleep, between checks that the leg lives */
	/* Polling before a sleep: most completions arrive in this time. */
	SPIN_NS = 50000,
};

static void note_event(struct srdma_pd *pd, const struct srdma_record *rec)
{
	struct srdma_qp *qp = pd->qps;

	while (qp && qp->made.qp.qpn != rec->qpn)
		qp = qp->next;
	if (!qp)
		return;
	qp->status = SRDMA_QP_STATUS_ERROR;
	qp->reason = rec->vendor_err;
}

static void convert(struct srdma_pd *pd, struct srdma_wc *wc,
		    const struct srdma_record *rec)
{
	*wc = (struct srdma_wc){
		.wr_id = rec->id,
		.status = (enum srdma_wc_status)rec->status,
		.opcode = (enum srdma_wc_opcode)rec->opcode,
		.vendor_err = rec->vendor_err,
		.byte_len = rec->byte_len,
		.imm_data = rec->imm,
		.qp_num = rec->qpn,
		.wc_flags = rec->flags & SRDMA_RECORD_WITH_IMM
				    ? SRDMA_WC_WITH_IMM
				    : 0,
	};
	if (rec->opcode == SRDMA_WC_QP_EVENT)
		note_event(pd, rec);
}

/* Takes what is in the ring, and tells the worker what was consumed. */
static int take(struct srdma_pd *pd, int n, struct srdma_wc *wc)
{
	const struct srdma_host_leg_ops *ops = pd->leg->ops;
	struct srdma_record records[SRDMA_HOST_BATCH];
	uint8_t *slot;
	int got = 0, some = SRDMA_HOST_BATCH;

	while (got < n && some == SRDMA_HOST_BATCH) {
		int most =
			n - got < SRDMA_HOST_BATCH ? n - got : SRDMA_HOST_BATCH;

		ops->poll(pd->leg);
		some = srdma_host_poll(pd->host, records, most);
		for (int i = 0; i < some; i++)
			convert(pd, &wc[got++], &records[i]);
	}
	if (!srdma_host_owes(pd->host))
		return got;
	slot = ops->slot(pd->leg);
	if (slot) { /* else a later descriptor tells it */
		int len = srdma_host_credit(pd->host, slot);

		ops->post(pd->leg, (uint32_t)len);
		ops->flush(pd->leg);
	}
	return got;
}

/* As take(); checks at times that the worker lives, if there is nothing. A
 * program that always has completions must come back to a worker on another
 * computer too. */
static int collect(struct srdma_pd *pd, int n, struct srdma_wc *wc)
{
	int64_t now;
	int got = take(pd, n, wc);

	if (pd->gone || (got && !srdma_lasting_control_lasts(pd->control)))
		return got;
	now = srdma_socket_deadline(0);
	if (!pd->armed && now - pd->looked < LOOK_MS)
		return got;
	pd->looked = now;
	pd->leg->ops->keepalive(pd->leg, now);
	return srdma_pd_gone(pd) ? got + take(pd, n - got, wc + got) : got;
}

/* While armed: a wake-up without a completion must not make the descriptor
 * readable for good. */
static int collect_armed(struct srdma_pd *pd, int n, struct srdma_wc *wc)
{
	int got = collect(pd, n, wc);

	pd->leg->ops->disarm(pd->leg);
	if (!got) {
		pd->leg->ops->arm(pd->leg);
		got = collect(pd, n, wc);
		if (got)
			pd->leg->ops->disarm(pd->leg);
	}
	pd->armed = !got;
	return got;
}

int srdma_poll_cq(struct srdma_pd *pd, int n, struct srdma_wc *wc)
{
	if (n <= 0)
		return n ? srdma_error_set(-EINVAL,
					   "n %d: it must not be "
					   "negative",
					   n)
			 : 0;
	return pd->armed ? collect_armed(pd, n, wc) : collect(pd, n, wc);
}

void srdma_req_notify_cq(struct srdma_pd *pd)
{
	if (!pd->armed)
		pd->leg->ops->arm(pd->leg);
	pd->armed = 1;
}

int srdma_cq_fd(const struct srdma_pd *pd)
{
	return pd->epoll;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int spin(struct srdma_pd *pd, int n, struct srdma_wc *wc)
{
	const int64_t end = now_ns() + SPIN_NS;
	int got;

	do {
		got = srdma_poll_cq(pd, n, wc);
		if (got)
			return got;
		sched_yield(); /* the worker may need this core */
	} while (now_ns() < end);
	return 0;
}

/*
 * Sleeps until a completion or the deadline. A leg that does not tell its end
 * is looked after: after LEG_LOOK_MS without a completion, also of several
 * waits, checks that the worker still has the leg.
 * Returns 0, also after a check; -ETIMEDOUT at the deadline; -EINTR.
 */
static int sleep_armed(struct srdma_pd *pd, int64_t deadline)
{
	const int64_t begin = srdma_socket_deadline(0);
	const int64_t check = pd->leg->ops->tells_end
				      ? INT64_MAX
				      : begin + LEG_LOOK_MS - pd->slept;
	const int64_t until = check < deadline ? check : deadline;
	const int r = srdma_socket_wait(pd->epoll, POLLIN, until);

	pd->slept += srdma_socket_deadline(0) - begin;
	if (r != -ETIMEDOUT || until == deadline)
		return r;
	srdma_pd_check_leg(pd, deadline);
	pd->slept = 0;
	return 0;
}

int srdma_wait_cq(struct srdma_pd *pd, int n, struct srdma_wc *wc,
		  int timeout_ms)
{
	const int64_t deadline = srdma_socket_deadline(timeout_ms);
	const int notify = pd->armed; /* 1: by srdma_req_notify_cq() */
	int r, got;

	if (n <= 0)
		return srdma_poll_cq(pd, n, wc);
	got = spin(pd, n, wc);
	while (!got) {
		srdma_req_notify_cq(pd);
		got = srdma_poll_cq(pd, n, wc);
		if (got)
			break;
		if (pd->gone)
			return srdma_error_set(-ENOTCONN,
					       "the worker or the leg ended: "
					       "see that the worker runs, "
					       "open the device and a PD, "
					       "connect again");
		r = sleep_armed(pd, deadline);
		got = srdma_poll_cq(pd, n, wc);
		if (!got && r && !notify) {
			pd->leg->ops->disarm(pd->leg);
			pd->armed = 0;
		}
		if (!got && r)
			return r == -EINTR ? srdma_error_set(r, "a signal") : 0;
	}
	pd->slept = 0;
	return got;
}
