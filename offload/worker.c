#include "worker.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"
#include "ledger/ledger.h"
#include "log.h"
#include "wallclock.h"
#include "yield.h"

enum {
	BUDGET = 32,	   /* events per port and turn */
	TICK_NS = 1000000, /* interval of control socket checks while busy */
};

/* Sources that wake a sleeping worker, as a bit set. */
enum source { PORTS = 1, CONTROL = 2, SIGNALS = 4, WORDS = 8, ENDED = 16 };
enum { EVENTS = 6 }; /* two ports and the other sources */

struct worker {
	const struct worker_params *p;
	int epoll;
	int stop;
	uint64_t started, ticked, next_report;
	struct yield_policy yields;
};

static uint64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SRDMA_SECOND + (uint64_t)t.tv_nsec;
}

static uint32_t wall_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	return wallclock_seconds(t.tv_sec);
}

/* One turn of the relay. Its clocks are updated before it processes packets. */
static int turn(const struct worker *w, uint64_t now)
{
	srdma_relay_clock(w->p->relay, wall_now());
	return srdma_relay_run(w->p->relay, now, BUDGET);
}

static void print_report(struct worker *w, uint64_t now)
{
	const struct report r = {
		.name = w->p->name,
		.uptime_ns = now - w->started,
		.qps = (uint32_t)srdma_ledger_used(
			srdma_relay_ledger(w->p->relay), SRDMA_SIDE_LOCAL,
			SRDMA_RES_QPS),
		.stats = srdma_relay_stats(w->p->relay),
	};

	srdma_relay_stats_measure(w->p->relay);
	report_print(&r, w->p->report);
}

/* Broadcast the signals of the process to all worker processes. */
static void take_signals(const struct worker *w)
{
	struct signalfd_siginfo info;

	while (read(w->p->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGUSR1) {
			broadcast_tell(w->p->words, BROADCAST_REPORT);
			continue;
		}
		log_info("signal %u: stopping", info.ssi_signo);
		broadcast_tell(w->p->words, BROADCAST_STOP);
	}
}

static void take_words(struct worker *w, uint64_t now)
{
	unsigned told = broadcast_take(w->p->words, w->p->index);

	if (told & BROADCAST_REPORT)
		print_report(w, now);
	if (told & BROADCAST_STOP)
		w->stop = 1;
}

static void report_if_due(struct worker *w, uint64_t now)
{
	if (now < w->next_report)
		return;
	print_report(w, now);
	/* Lines missed during a long sleep are not made up for. */
	while (w->next_report <= now)
		w->next_report += w->p->stats * SRDMA_SECOND;
}

/*
 * Wait up to ms milliseconds (-1: forever). Returns the ready sources, or
 * -errno.
 */
static int wait_for(const struct worker *w, int ms)
{
	struct epoll_event ev[EVENTS];
	int n = epoll_wait(w->epoll, ev, EVENTS, ms), ready = 0;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++)
		ready |= (int)ev[i].data.u32;
	return ready;
}

/*
 * Process everything but packets. The relay's clock must be current, because
 * requests of clients set deadlines relative to it.
 */
static void tick(struct worker *w, uint64_t now, int ready)
{
	w->ticked = now;
	if (ready & CONTROL)
		control_run(w->p->control);
	control_poll(w->p->control);
	if (ready & SIGNALS)
		take_signals(w);
	if (ready & ENDED) /* a killed process could not broadcast it itself */
		broadcast_tell(w->p->words, BROADCAST_STOP);
	if (ready & WORDS)
		take_words(w, now);
	report_if_due(w, now);
}

/* Milliseconds until the next deadline, rounded up; -1: none. */
static int timeout_ms(const struct worker *w, uint64_t now)
{
	uint64_t due = srdma_relay_timer(w->p->relay);
	const uint64_t kept = control_timer(w->p->control);
	uint64_t ms;

	if (kept < due)
		due = kept;
	if (w->next_report < due)
		due = w->next_report;
	if (due == UINT64_MAX)
		return -1;
	if (due <= now)
		return 0;
	ms = (due - now + 999999) / 1000000;
	return ms < INT_MAX ? (int)ms : INT_MAX;
}

static int arm(const struct worker *w)
{
	struct srdma_port *host = w->p->host, *wire = w->p->wire;

	if (host->ops->arm(host))
		return 1;
	if (!wire->ops->arm(wire))
		return 0;
	host->ops->disarm(host);
	return 1;
}

static void disarm(const struct worker *w)
{
	w->p->host->ops->disarm(w->p->host);
	w->p->wire->ops->disarm(w->p->wire);
}

static void wait_ended(struct worker *w, uint64_t since, uint64_t now,
		       int slept)
{
	yield_wait_ended(&w->yields, &(struct yield_wait){ since, now, slept });
}

/* Returns the ready sources, or -errno if epoll failed. */
static int sleep_until_event(struct worker *w, uint64_t now)
{
	int ready;

	if (arm(w))
		return 0;
	ready = wait_for(w, timeout_ms(w, now));
	disarm(w);
	srdma_relay_stats_edit(w->p->relay)->wakeups++;
	return ready;
}

/*
 * No work since idle_since: yield the core, because the process that will send
 * next may share it, then sleep. After a wake-up by a timer without anything to
 * send the worker sleeps again. Returns 1 if there was work, 0, or -errno.
 */
static int idle(struct worker *w, uint64_t idle_since, uint64_t now)
{
	int ready, work;

	if (yield_is_due(&w->yields, idle_since, now)) {
		now = clock_now(); /* the turn before it may be a long one */
		sched_yield();
		yield_returned(&w->yields, clock_now() - now);
		return 0;
	}
	control_poll(w->p->control);
	ready = sleep_until_event(w, now);
	if (ready < 0)
		return ready;
	now = clock_now();
	work = turn(w, now) > 0;
	tick(w, now, ready);
	if (work)
		wait_ended(w, idle_since, now, 1);
	return work;
}

/* There was work: run tick() at its interval, without waiting. */
static int busy(struct worker *w, uint64_t now)
{
	int ready;

	if (now - w->ticked < TICK_NS)
		return 0;
	ready = wait_for(w, 0);
	if (ready < 0)
		return ready;
	tick(w, now, ready);
	return 0;
}

static int watch(struct worker *w, int fd, enum source source)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = source };

	if (fd < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		return fd < 0 ? fd : -errno;
	return 0;
}

static int watch_all(struct worker *w)
{
	const struct worker_params *p = w->p;
	int rc = watch(w, p->host->ops->fd(p->host), PORTS);

	if (rc == 0)
		rc = watch(w, p->wire->ops->fd(p->wire), PORTS);
	if (rc == 0)
		rc = watch(w, control_fd(p->control), CONTROL);
	if (rc == 0)
		rc = watch(w, broadcast_fd(p->words, p->index), WORDS);
	if (rc == 0 && p->signals >= 0)
		rc = watch(w, p->signals, SIGNALS);
	if (rc == 0 && p->ended >= 0)
		rc = watch(w, p->ended, ENDED);
	return rc;
}

int worker_create(struct worker **out, const struct worker_params *p)
{
	struct worker *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return -ENOMEM;
	*w = (struct worker){
		.p = p,
		.epoll = epoll_create1(EPOLL_CLOEXEC),
		.started = clock_now(),
		.next_report = UINT64_MAX,
	};
	yield_policy_init(&w->yields);
	if (p->stats)
		w->next_report = w->started + p->stats * SRDMA_SECOND;
	rc = w->epoll < 0 ? -errno : watch_all(w);
	if (rc == 0)
		*out = w;
	else
		worker_destroy(w);
	return rc;
}

void worker_destroy(struct worker *w)
{
	if (w->epoll >= 0)
		close(w->epoll);
	free(w);
}

/*
 * A client's request may leave work for the relay, so a turn of the relay
 * follows each tick before the next sleep.
 */
int worker_run(struct worker *w)
{
	uint64_t idle_since = 0;
	int waits = 0, rc = 0;

	while (!w->stop && rc >= 0) {
		uint64_t now = clock_now();

		if (turn(w, now) > 0) {
			if (waits)
				wait_ended(w, idle_since, now, 0);
			waits = 0;
			rc = busy(w, now);
		} else {
			if (!waits)
				idle_since = now;
			rc = idle(w, idle_since, now);
			waits = rc <= 0;
		}
	}
	if (rc >= 0)
		return 0;
	log_error("waiting for events: %s", strerror(-rc));
	return rc;
}
