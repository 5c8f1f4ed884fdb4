#include "host/lasting_channel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "host/error.h"
#include "srdma/device.h"

enum {
	FIRST_PAUSE_MS = 50,
	LAST_PAUSE_MS = 1000,
};

struct srdma_lasting_channel {
	const struct srdma_agent_place *agent;
	const char *confirms;
	struct srdma_message again;
	struct srdma_socket_fds fds;   /* beside `again` */
	struct srdma_channel *channel; /* NULL: none is open */
	/* Contains the socket of the channel, and the timer. A caller may have
	 * it in an epoll instance of its own, which would lose a descriptor
	 * that is replaced by dup2(). */
	int epoll;
	int timer;	 /* of the next attempt; -1: the agent is not away */
	int confirmed;	 /* 1: after the first confirmation */
	int64_t lost_at; /* when the end was noticed, ms */
	int64_t pause;	 /* before the next attempt, ms */
	int over;	 /* -errno of all further calls, or 0 */
	char why[512];
};

/* --- the agent is away --------------------------------------------------- */

static int is_away(const struct srdma_lasting_channel *l)
{
	return l->timer >= 0;
}

/* No channel is opened any more: the socket is not needed. */
static int ended(struct srdma_lasting_channel *l, int rc)
{
	srdma_socket_close_fds(&l->fds);
	l->over = rc;
	strcpy(l->why, srdma_error_text());
	return rc;
}

static void arm(const struct srdma_lasting_channel *l, int64_t ms)
{
	/* zero would disarm it */
	const struct itimerspec when = {
		.it_value = { .tv_sec = ms / 1000,
			      .tv_nsec = ms % 1000 * 1000000 + 1 }
	};

	timerfd_settime(l->timer, 0, &when, NULL);
}

static void disarm(const struct srdma_lasting_channel *l)
{
	static const struct itimerspec never;

	timerfd_settime(l->timer, 0, &never, NULL);
}

static int no_descriptor(int err)
{
	return srdma_error_set(-err, "no descriptor to wait for the agent: %s",
			       strerror(err));
}

static int watch(const struct srdma_lasting_channel *l, int fd)
{
	struct epoll_event e = { .events = EPOLLIN };

	return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) ? no_descriptor(errno)
							  : 0;
}

/* close() is not enough: a child of fork() may have the file too. */
static void unwatch(const struct srdma_lasting_channel *l, int fd)
{
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
}

static void close_channel(struct srdma_lasting_channel *l)
{
	if (l->channel)
		unwatch(l, srdma_channel_fd(l->channel));
	srdma_channel_close(l->channel);
	l->channel = NULL;
}

/* The error text is why the last attempt failed. The descriptor stays readable.
 */
static int given_up(struct srdma_lasting_channel *l)
{
	char why[400];

	snprintf(why, sizeof(why), "%s", srdma_error_text());
	arm(l, 0);
	return ended(l, srdma_error_set(-ECONNRESET,
					"the agent ended, and there was no "
					"other for %d s: %s",
					SRDMA_AWAY_MAX_S, why));
}

/* Closes the channel of an agent that ended, and sets the time of the next
 * attempt. Returns 0, or the error that ends the channel. */
static int lose(struct srdma_lasting_channel *l)
{
	int r;

	if (!l->confirmed)
		return ended(l, -ECONNRESET);
	close_channel(l);
	if (is_away(l)) {
		if (srdma_socket_deadline(0) - l->lost_at >=
		    SRDMA_AWAY_MAX_S * 1000)
			return given_up(l);
		l->pause = l->pause * 2 < LAST_PAUSE_MS ? l->pause * 2
							: LAST_PAUSE_MS;
		arm(l, l->pause);
		return 0;
	}
	l->lost_at = srdma_socket_deadline(0);
	l->pause = FIRST_PAUSE_MS;
	l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	r = l->timer < 0 ? no_descriptor(errno) : watch(l, l->timer);
	if (r)
		return ended(l, r);
	arm(l, l->pause);
	return 0;
}

static int away(const struct srdma_lasting_channel *l)
{
	return srdma_error_set(-EAGAIN,
			       "the agent at %s is away: start it again, and "
			       "repeat the call",
			       l->agent->path);
}

/* Opens the channel again. The error text is the reason of a failure. */
static int try_again(struct srdma_lasting_channel *l)
{
	int r = srdma_channel_open(&l->channel, l->agent, &l->again, &l->fds,
				   0);

	if (r)
		return r;
	r = watch(l, srdma_channel_fd(l->channel));
	if (r)
		close_channel(l);
	return r;
}

/* Waits for the time of the next attempt, and tries. 0: a channel is open. */
static int reopen(struct srdma_lasting_channel *l, int64_t deadline)
{
	for (;;) {
		int r = srdma_socket_wait(l->timer, POLLIN, deadline);

		if (r)
			return r == -ETIMEDOUT ? away(l) : r;
		if (!try_again(l)) {
			disarm(l);
			return 0;
		}
		r = lose(l);
		if (r)
			return r;
	}
}

static void confirm(struct srdma_lasting_channel *l)
{
	l->confirmed = 1;
	if (is_away(l)) {
		unwatch(l, l->timer);
		close(l->timer);
		l->timer = -1;
	}
}

/* --- interface ----------------------------------------------------------- */

static int start(struct srdma_lasting_channel *l,
		 const struct srdma_message *first)
{
	int r;

	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0)
		return no_descriptor(errno);
	r = srdma_channel_open(&l->channel, l->agent, first, &l->fds,
			       SRDMA_CHANNEL_TIMEOUT_MS);
	return r ? r : watch(l, srdma_channel_fd(l->channel));
}

int srdma_lasting_open(struct srdma_lasting_channel **out,
		       const struct srdma_lasting_params *p)
{
	struct srdma_lasting_channel *l = calloc(1, sizeof(*l));
	int r;

	*out = NULL;
	if (!l) {
		srdma_message_free(p->again);
		if (p->fd >= 0)
			close(p->fd);
		return srdma_error_set(-ENOMEM, "no memory");
	}
	l->agent = p->agent;
	l->confirms = p->confirms;
	l->again = *p->again;
	memset(p->again, 0, sizeof(*p->again));
	if (p->fd >= 0)
		l->fds.fd[l->fds.n++] = p->fd;
	l->timer = -1;
	r = start(l, p->first);
	if (r) {
		srdma_lasting_close(l);
		return r;
	}
	*out = l;
	return 0;
}

void srdma_lasting_again(struct srdma_lasting_channel *l,
			 struct srdma_message *again)
{
	srdma_message_free(&l->again);
	l->again = *again;
	memset(again, 0, sizeof(*again));
}

/* 1 if a result of the channel shows that its agent ended. */
static int agent_ended(const struct srdma_lasting_channel *l, int r)
{
	return r == -ECONNRESET && srdma_channel_ended(l->channel);
}

int srdma_lasting_next(struct srdma_lasting_channel *l,
		       struct srdma_agent_event *e, int64_t deadline)
{
	int r;

	for (;;) {
		if (l->over)
			return srdma_error_set(l->over, "%s", l->why);
		r = l->channel ? 0 : reopen(l, deadline);
		if (r)
			return r;
		r = srdma_channel_next(l->channel, e, deadline);
		if (agent_ended(l, r)) {
			lose(l);
			continue;
		}
		if (!r && !strcmp(e->event, l->confirms))
			confirm(l);
		if (!r && !strcmp(e->event, "error"))
			ended(l, srdma_channel_error(e));
		return r == -ETIMEDOUT && is_away(l) ? away(l) : r;
	}
}

int srdma_lasting_send(struct srdma_lasting_channel *l,
		       const struct srdma_message *w, int64_t deadline)
{
	int r;

	if (l->over)
		return srdma_error_set(l->over, "%s", l->why);
	if (is_away(l))
		return away(l);
	r = srdma_channel_send(l->channel, w, NULL, deadline);
	/* Events that the agent sent before its end may be unread. So
	 * srdma_lasting_next() closes the channel, when it has read them. */
	return agent_ended(l, r) ? away(l) : r;
}

int srdma_lasting_over(const struct srdma_lasting_channel *l)
{
	return l->over;
}

int srdma_lasting_fd(const struct srdma_lasting_channel *l)
{
	return l->epoll;
}

void srdma_lasting_close(struct srdma_lasting_channel *l)
{
	if (!l)
		return;
	srdma_channel_close(l->channel);
	srdma_socket_close_fds(&l->fds);
	if (l->timer >= 0)
		close(l->timer);
	if (l->epoll >= 0)
		close(l->epoll);
	srdma_message_free(&l->again);
	free(l);
}
