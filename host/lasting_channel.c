#include "host/lasting_channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/error.h"
#include "host/retry.h"
#include "srdma/device.h"

struct srdma_lasting_channel {
	const struct srdma_agent_place *agent;
	const char *confirms;
	struct srdma_message again;
	struct srdma_socket_fds fds;   /* beside `again` */
	struct srdma_channel *channel; /* NULL: none is open */
	struct srdma_retry retry;      /* under way: the agent is away */
	int confirmed;		       /* 1: after the first confirmation */
	int over;		       /* -errno of all further calls, or 0 */
	char why[512];
};

/* --- the agent is away --------------------------------------------------- */

static int is_away(const struct srdma_lasting_channel *l)
{
	return srdma_retry_under_way(&l->retry);
}

/* No channel is opened any more: the socket is not needed. */
static int ended(struct srdma_lasting_channel *l, int rc)
{
	srdma_socket_close_fds(&l->fds);
	l->over = rc;
	strcpy(l->why, srdma_error_text());
	return rc;
}

static void close_channel(struct srdma_lasting_channel *l)
{
	if (l->channel)
		srdma_retry_unwatch(&l->retry, srdma_channel_fd(l->channel));
	srdma_channel_drop(l->channel);
	l->channel = NULL;
}

/* The error text is why the last attempt failed. The descriptor stays readable.
 */
static int given_up(struct srdma_lasting_channel *l)
{
	char why[400];

	snprintf(why, sizeof(why), "%s", srdma_error_text());
	srdma_retry_alarm(&l->retry, 0);
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
		if (srdma_retry_lasts(&l->retry, SRDMA_AWAY_MAX_S))
			return given_up(l);
		srdma_retry_again(&l->retry);
		return 0;
	}
	r = srdma_retry_begin(&l->retry);
	return r ? ended(l, r) : 0;
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
	r = srdma_retry_watch(&l->retry, srdma_channel_fd(l->channel));
	if (r)
		close_channel(l);
	return r;
}

/* Waits for the time of the next attempt, and tries. 0: a channel is open. */
static int reopen(struct srdma_lasting_channel *l, int64_t deadline)
{
	for (;;) {
		int r = srdma_retry_wait(&l->retry, deadline);

		if (r)
			return r == -ETIMEDOUT ? away(l) : r;
		if (!try_again(l)) {
			srdma_retry_alarm(&l->retry, -1);
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
	srdma_retry_end(&l->retry);
}

/* --- interface ----------------------------------------------------------- */

static int start(struct srdma_lasting_channel *l,
		 const struct srdma_message *first)
{
	int r = srdma_retry_open(&l->retry);

	if (r)
		return r;
	r = srdma_channel_open(&l->channel, l->agent, first, &l->fds,
			       SRDMA_CHANNEL_TIMEOUT_MS);
	return r ? r
		 : srdma_retry_watch(&l->retry, srdma_channel_fd(l->channel));
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

/* 1 if a proxy has no link, or an agent no worker: a later attempt may
 * succeed. */
static int is_absent(const struct srdma_lasting_channel *l,
		     const struct srdma_agent_event *e)
{
	return is_away(l) && !strcmp(e->event, "error") &&
	       !strcmp(e->code, "worker");
}

/* Handles an event. 1: another agent is needed, for which it was prepared. */
static int handle(struct srdma_lasting_channel *l,
		  const struct srdma_agent_event *e)
{
	if (is_absent(l, e)) {
		srdma_channel_error(e);
		lose(l);
		return 1;
	}
	if (!strcmp(e->event, l->confirms))
		confirm(l);
	if (!strcmp(e->event, "error"))
		ended(l, srdma_channel_error(e));
	return 0;
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
		if (!r && handle(l, e))
			continue;
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
	return l->retry.epoll;
}

void srdma_lasting_close_copies(struct srdma_lasting_channel *l)
{
	if (l->channel)
		close(srdma_channel_fd(l->channel));
	srdma_retry_close(&l->retry);
}

int srdma_lasting_close(struct srdma_lasting_channel *l)
{
	int closed;

	if (!l)
		return 0;
	closed = srdma_channel_close(l->channel) && !is_away(l);
	srdma_socket_close_fds(&l->fds);
	srdma_retry_close(&l->retry);
	srdma_message_free(&l->again);
	free(l);
	return closed;
}
