#include "worker.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

enum {
	BUDGET = 32,	   /* events per port and turn */
	SPINS = 8,	   /* fruitless turns before the first yield */
	TICK_NS = 1000000, /* between looks at the control socket when busy */
	MAX_YIELD_NS = 50000, /* as long as a sleep and its wake-up cost */
	MIN_YIELD_NS = 3000,
	SHORT_SLEEP_NS = 3 * MAX_YIELD_NS, /* yielding longer had been better */
	EVENTS = 8,
};

#define SECOND_NS UINT64_C(1000000000)

struct worker {
	const struct worker_params *p;
	int epoll;
	int stop;
	uint64_t started, ticked, next_report;
	uint64_t yield_ns; /* time to yield before a sleep; adapts */
};

static uint64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

/*
 * Unix seconds. A clock that is set to a time that cannot be told lets every
 * capability with an expiry be void.
 */
static uint32_t wall_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	return t.tv_sec >= 0 && t.tv_sec < UINT32_MAX ? (uint32_t)t.tv_sec
						      : UINT32_MAX;
}

/* A turn of the relay, whose clocks are right before it looks at a packet. */
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
		.qps = control_qps(w->p->control),
		.stats = srdma_relay_stats(w->p->relay),
	};

	srdma_relay_stats_measure(w->p->relay);
	report_print(&r, w->p->report);
}

/* The signals of the process, as words to all threads. */
static void take_signals(const struct worker *w)
{
	struct signalfd_siginfo info;

	while (read(w->p->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGUSR1) {
			words_tell(w->p->words, WORD_REPORT);
			continue;
		}
		log_info("signal %u: stopping", info.ssi_signo);
		words_tell(w->p->words, WORD_STOP);
	}
}

static void take_words(struct worker *w, uint64_t now)
{
	unsigned told = words_take(w->p->words, w->p->thread);

	if (told & WORD_REPORT)
		print_report(w, now);
	if (told & WORD_STOP)
		w->stop = 1;
}

static void report_if_due(struct worker *w, uint64_t now)
{
	if (now < w->next_report)
		return;
	print_report(w, now);
	/* After a long sleep no lines are made up for. */
	while (w->next_report <= now)
		w->next_report += w->p->stats * SECOND_NS;
}

/*
 * Everything but packets. The relay's clock must be fresh: what a client
 * asks for now has its deadlines from now.
 */
static void tick(struct worker *w, uint64_t now)
{
	w->ticked = now;
	control_run(w->p->control);
	control_poll(w->p->control);
	if (w->p->signals >= 0)
		take_signals(w);
	take_words(w, now);
	report_if_due(w, now);
}

/* Milliseconds until something is due, rounded up; -1: nothing is. */
static int timeout_ms(const struct worker *w, uint64_t now)
{
	uint64_t due = srdma_relay_timer(w->p->relay);
	uint64_t ms;

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

/*
 * A sleep that was short cost more than yielding through it; after a long
 * one the yields before it were wasted.
 */
static void adapt(struct worker *w, uint64_t slept)
{
	if (slept < SHORT_SLEEP_NS)
		w->yield_ns *= 2;
	else
		w->yield_ns /= 2;
	if (w->yield_ns > MAX_YIELD_NS)
		w->yield_ns = MAX_YIELD_NS;
	if (w->yield_ns < MIN_YIELD_NS)
		w->yield_ns = MIN_YIELD_NS;
}

/* 0, or -errno: epoll itself is broken. */
static int sleep_until_event(struct worker *w, uint64_t now)
{
	struct epoll_event ev[EVENTS];
	int n, err;

	if (arm(w))
		return 0;
	n = epoll_wait(w->epoll, ev, EVENTS, timeout_ms(w, now));
	err = errno;
	disarm(w);
	if (n < 0 && err != EINTR)
		return -err;
	srdma_relay_stats_edit(w->p->relay)->wakeups++;
	adapt(w, clock_now() - now);
	return 0;
}

/*
 * Nothing to do since idle_since: yield the core, which may be shared with
 * the very process that will send, then sleep. 1: slept, 0, or -errno.
 */
static int idle(struct worker *w, uint64_t idle_since)
{
	uint64_t now = clock_now();
	int rc;

	if (now - idle_since < w->yield_ns) {
		sched_yield();
		return 0;
	}
	control_poll(w->p->control);
	rc = sleep_until_event(w, now);
	if (rc < 0)
		return rc;
	now = clock_now();
	turn(w, now);
	tick(w, now);
	return 1;
}

/*
 * What a client asked may have left work to the relay: a turn of it lies
 * between each tick and the next sleep.
 */
static int loop(struct worker *w)
{
	uint64_t idle_since = 0;
	unsigned turns = 0; /* without work */

	while (!w->stop) {
		uint64_t now = clock_now();
		int rc = 0;

		if (turn(w, now) > 0) {
			turns = 0;
			if (now - w->ticked >= TICK_NS)
				tick(w, now);
			continue;
		}
		if (turns++ == 0)
			idle_since = now;
		if (turns > SPINS)
			rc = idle(w, idle_since);
		if (rc < 0)
			return rc;
		if (rc > 0)
			turns = 0;
	}
	return 0;
}

static int watch(struct worker *w, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (fd < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		return fd < 0 ? fd : -errno;
	return 0;
}

static int watch_all(struct worker *w)
{
	const struct worker_params *p = w->p;
	const int fds[] = {
		p->host->ops->fd(p->host),
		p->wire->ops->fd(p->wire),
		control_fd(p->control),
		words_fd(p->words, p->thread),
	};
	int rc = p->signals < 0 ? 0 : watch(w, p->signals);

	for (unsigned i = 0; rc == 0 && i < sizeof(fds) / sizeof(*fds); i++)
		rc = watch(w, fds[i]);
	return rc;
}

int worker_run(const struct worker_params *p)
{
	struct worker w = {
		.p = p,
		.started = clock_now(),
		.next_report = UINT64_MAX,
		.yield_ns = MAX_YIELD_NS,
	};
	int rc;

	if (p->stats)
		w.next_report = w.started + p->stats * SECOND_NS;
	w.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w.epoll < 0)
		return -errno;
	rc = watch_all(&w);
	if (rc == 0)
		rc = loop(&w);
	if (rc < 0)
		log_error("waiting for events: %s", strerror(-rc));
	close(w.epoll);
	return rc;
}
