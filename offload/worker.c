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

#include "log.h"

enum {
	BUDGET = 32,	   /* events per port and turn */
	TICK_NS = 1000000, /* between looks at the control socket when busy */
	MAX_YIELD_NS = 50000, /* as long as a sleep and its wake-up cost */
	MIN_YIELD_NS = 3000,
	SHORT_WAIT_NS =
		3 * MAX_YIELD_NS, /* as long as another worker's sleep */
};

/* What wakes a sleeping worker; as bits, what has something to do. */
enum source { PORTS = 1, CONTROL = 2, SIGNALS = 4, WORDS = 8, ENDED = 16 };
enum { EVENTS = 6 }; /* two ports, and the others */

#define SECOND_NS UINT64_C(1000000000)

struct worker {
	const struct worker_params *p;
	int epoll;
	int stop;
	uint64_t started, ticked, next_report;
	/* To yield before a sleep; adapts. By whether the last wait was long. */
	uint64_t yield_ns[2];
	int was_long;
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
			broadcast_tell(w->p->words, BROADCAST_REPORT);
			continue;
		}
		log_info("signal %u: stopping", info.ssi_signo);
		broadcast_tell(w->p->words, BROADCAST_STOP);
	}
}

static void take_words(struct worker *w, uint64_t now)
{
	unsigned told = broadcast_take(w->p->words, w->p->thread);

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
	/* After a long sleep no lines are made up for. */
	while (w->next_report <= now)
		w->next_report += w->p->stats * SECOND_NS;
}

/* The sources that have something within so many milliseconds, or -errno. */
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
 * Everything but packets. The relay's clock must be fresh: what a client
 * asks for now has its deadlines from now.
 */
static void tick(struct worker *w, uint64_t now, int ready)
{
	w->ticked = now;
	if (ready & CONTROL)
		control_run(w->p->control);
	control_poll(w->p->control);
	if (ready & SIGNALS)
		take_signals(w);
	if (ready & ENDED) /* and could not tell it itself, if it was killed */
		broadcast_tell(w->p->words, BROADCAST_STOP);
	if (ready & WORDS)
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
 * There is work, for which the worker waited so long. What came while it yielded,
 * however long others had the core, gets all the time to yield that pays off;
 * what came soon after half of it, as more would have been in vain; what came
 * late next to none. Long and short waits may take turns: a request after a
 * pause, then its ack, which comes when the other worker has woken up. So waits
 * after a long one have a budget of their own.
 */
static void adapt(struct worker *w, uint64_t waited, int slept)
{
	uint64_t *budget = &w->yield_ns[w->was_long];

	w->was_long = slept && waited >= SHORT_WAIT_NS;
	if (!slept)
		*budget = MAX_YIELD_NS;
	else if (!w->was_long)
		*budget = MAX_YIELD_NS / 2;
	else
		*budget /= 2;
	if (*budget < MIN_YIELD_NS)
		*budget = MIN_YIELD_NS;
}

/* The sources that have something, or -errno: epoll itself is broken. */
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
 * Nothing to do since idle_since: yield the core, which may be shared with
 * the very process that will send, then sleep. Who is woken by a timer, and
 * has nothing to send then, sleeps on. 1: there was work, 0, or -errno.
 */
static int idle(struct worker *w, uint64_t idle_since, uint64_t now)
{
	int ready, work;

	if (now - idle_since < w->yield_ns[w->was_long]) {
		sched_yield();
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
		adapt(w, now - idle_since, 1);
	return work;
}

/* There is work: no wait any more. */
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
		rc = watch(w, broadcast_fd(p->words, p->thread), WORDS);
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
		.yield_ns = { MAX_YIELD_NS, MAX_YIELD_NS },
	};
	if (p->stats)
		w->next_report = w->started + p->stats * SECOND_NS;
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
 * What a client asked may have left work to the relay: a turn of it lies
 * between each tick and the next sleep.
 */
int worker_run(struct worker *w)
{
	uint64_t idle_since = 0;
	int waits = 0, rc = 0;

	while (!w->stop && rc >= 0) {
		uint64_t now = clock_now();

		if (turn(w, now) > 0) {
			if (waits)
				adapt(w, now - idle_since, 0);
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
