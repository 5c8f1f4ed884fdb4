#include "host/retry.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "host/error.h"
#include "host/socket.h"

enum {
	FIRST_PAUSE_MS = 50,
	LAST_PAUSE_MS = 1000,
};

static int no_descriptor(int err)
{
	return srdma_error_set(-err,
			       "no descriptor to wait for another connection: "
			       "%s",
			       strerror(err));
}

int srdma_retry_open(struct srdma_retry *r)
{
	r->timer = -1;
	r->epoll = epoll_create1(EPOLL_CLOEXEC);
	return r->epoll < 0 ? no_descriptor(errno) : 0;
}

void srdma_retry_close(struct srdma_retry *r)
{
	if (r->timer >= 0)
		close(r->timer);
	if (r->epoll >= 0)
		close(r->epoll);
}

int srdma_retry_watch(const struct srdma_retry *r, int fd)
{
	struct epoll_event e = { .events = EPOLLIN };

	return epoll_ctl(r->epoll, EPOLL_CTL_ADD, fd, &e) ? no_descriptor(errno)
							  : 0;
}

void srdma_retry_unwatch(const struct srdma_retry *r, int fd)
{
	epoll_ctl(r->epoll, EPOLL_CTL_DEL, fd, NULL);
}

int srdma_retry_begin(struct srdma_retry *r)
{
	int rc;

	r->since = srdma_socket_deadline(0);
	r->pause = FIRST_PAUSE_MS;
	r->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	rc = r->timer < 0 ? no_descriptor(errno)
			  : srdma_retry_watch(r, r->timer);
	if (!rc)
		srdma_retry_alarm(r, r->pause);
	return rc;
}

void srdma_retry_again(struct srdma_retry *r)
{
	r->pause = r->pause * 2 < LAST_PAUSE_MS ? r->pause * 2 : LAST_PAUSE_MS;
	srdma_retry_alarm(r, r->pause);
}

void srdma_retry_end(struct srdma_retry *r)
{
	if (r->timer < 0)
		return;
	srdma_retry_unwatch(r, r->timer);
	close(r->timer);
	r->timer = -1;
}

int srdma_retry_under_way(const struct srdma_retry *r)
{
	return r->timer >= 0;
}

int srdma_retry_lasts(const struct srdma_retry *r, int64_t seconds)
{
	return srdma_socket_deadline(0) - r->since >= seconds * 1000;
}

void srdma_retry_alarm(const struct srdma_retry *r, int64_t ms)
{
	/* zero would disarm it */
	const struct itimerspec never = { 0 }, when = {
		.it_value = { .tv_sec = ms / 1000,
			      .tv_nsec = ms % 1000 * 1000000 + 1 },
	};

	timerfd_settime(r->timer, 0, ms < 0 ? &never : &when, NULL);
}

int srdma_retry_wait(const struct srdma_retry *r, int64_t deadline)
{
	return srdma_socket_wait(r->timer, POLLIN, deadline);
}
