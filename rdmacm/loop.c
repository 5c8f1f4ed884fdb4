/* The thread that reads what the agent says. It begins with the first id, and
 * ends with the process. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rdmacm/objects.h"

enum { READY_MAX = 64 };

static int epoll = -1, wake = -1, started;

int64_t cm_loop_now(void)
{
	return srdma_socket_deadline(0);
}

/* --- what it waits for ------------------------------------------------------------ */

int cm_loop_watch(struct cm_id *id, int fd)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLONESHOT,
				 .data.u64 = id->serial };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

void cm_loop_rearm(const struct cm_id *id)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLONESHOT,
				 .data.u64 = id->serial };

	if (id->service)
		epoll_ctl(epoll, EPOLL_CTL_MOD, srdma_lasting_fd(id->service),
			  &e);
	else if (id->talk)
		epoll_ctl(epoll, EPOLL_CTL_MOD, srdma_channel_fd(id->talk), &e);
}

void cm_loop_unwatch(int fd)
{
	epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
}

void cm_loop_wake(void)
{
	const uint64_t one = 1;

	if (write(wake, &one, sizeof(one)) < 0 && errno != EAGAIN)
		abort(); /* an eventfd of this library has no other error */
}

/* --- the thread ---------------------------------------------------------------------- */

/* An id that another thread holds is looked at when it is released. */
static void advance(struct cm_id *id)
{
	int lives;

	id->disarmed = 1;
	if (id->held)
		return;
	id->held = 1;
	cm_unlock();
	lives = cm_progress(id);
	cm_lock();
	if (lives)
		cm_release(id);
}

/* 0: of the eventfd. The id may have ended meanwhile. */
static void look(uint64_t serial)
{
	struct cm_id *id = cm_ids;
	uint64_t n;

	if (!serial) {
		if (read(wake, &n, sizeof(n)) < 0 && errno != EAGAIN)
			abort();
		return;
	}
	while (id && id->serial != serial)
		id = id->next;
	if (id)
		advance(id);
}

/* Returns ms until the next look at this id. */
static int64_t tick_one(struct cm_id *id)
{
	int64_t ms;

	id->late = id->held;
	if (id->held || !cm_ticks(id))
		return INT64_MAX;
	id->held = 1;
	cm_unlock();
	ms = cm_tick(id);
	cm_lock();
	cm_release(id);
	return ms;
}

/* Returns the time-out of the next wait. An id that the loop holds does not end, so
 * that the list can be continued from it. */
static int tick(void)
{
	int64_t next = INT64_MAX;

	for (struct cm_id *id = cm_ids; id; id = id->next) {
		const int64_t ms = tick_one(id);

		next = ms < next ? ms : next;
	}
	return next > INT32_MAX ? -1 : (int)next;
}

static void *run(void *unused)
{
	struct epoll_event ready[READY_MAX];
	int n, timeout = -1;

	(void)unused;
	for (;;) {
		n = epoll_wait(epoll, ready, READY_MAX, timeout);
		cm_lock();
		for (int i = 0; i < n; i++)
			look(ready[i].data.u64);
		timeout = tick();
		cm_unlock();
	}
	return NULL;
}

static int start(void)
{
	struct epoll_event e = { .events = EPOLLIN };
	sigset_t all, before;
	pthread_t thread;
	int r;

	epoll = epoll_create1(EPOLL_CLOEXEC);
	wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (epoll < 0 || wake < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, wake, &e))
		return -errno;
	sigfillset(&all); /* signals are for the program's threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -r;
}

static void close_all(void)
{
	if (epoll >= 0)
		close(epoll);
	if (wake >= 0)
		close(wake);
	epoll = wake = -1;
}

int cm_loop_start(void)
{
	int r;

	cm_lock();
	r = cm_watch_forks();
	if (!r && !started)
		r = start();
	if (!r)
		started = 1;
	else if (!started)
		close_all();
	cm_unlock();
	return r;
}

void cm_loop_forget(void)
{
	close_all();
	started = 0;
}
