#include "control/loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"

enum { WAIT_MAX_MS = 60000 };

int loop_open(struct loop *l)
{
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	return l->epoll < 0 ? -errno : 0;
}

void loop_close(struct loop *l)
{
	close(l->epoll);
}

static int change(struct loop *l, int op, struct watch *w)
{
	struct epoll_event ev = { .events = w->events, .data.ptr = w };

	return epoll_ctl(l->epoll, op, w->fd, &ev) < 0 ? -errno : 0;
}

int loop_add(struct loop *l, struct watch *w)
{
	return change(l, EPOLL_CTL_ADD, w);
}

void loop_set(struct loop *l, struct watch *w, uint32_t events)
{
	if (w->events == events)
		return;
	w->events = events;
	change(l, EPOLL_CTL_MOD, w);
}

void loop_remove(struct loop *l, struct watch *w)
{
	change(l, EPOLL_CTL_DEL, w);
}

uint64_t loop_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SRDMA_SECOND + (uint64_t)now.tv_nsec;
}

/* Rounded up, so that the time has come when epoll_wait() returns. */
static int milliseconds(uint64_t until)
{
	const uint64_t now = loop_now();
	uint64_t ms;

	if (until <= now)
		return 0;
	ms = (until - now + SRDMA_MS - 1) / SRDMA_MS;
	return ms < WAIT_MAX_MS ? (int)ms : WAIT_MAX_MS;
}

void loop_wait(struct loop *l, uint64_t until)
{
	struct epoll_event ev;
	struct watch *w;

	if (epoll_wait(l->epoll, &ev, 1, milliseconds(until)) != 1)
		return;
	w = ev.data.ptr;
	w->run(w, ev.events);
}
