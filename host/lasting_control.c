#include "host/lasting_control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "host/access.h"
#include "host/error.h"
#include "host/retry.h"
#include "srdma/device.h"

enum { ATTEMPT_MS = 10000 };

enum state {
	CONNECTED,
	PAUSING,   /* until the next attempt */
	ASKING,	   /* the agent for a connection */
	ATTACHING, /* ATTACH was sent */
	OVER,
};

struct srdma_lasting_control {
	struct srdma_lasting_control_params p;
	enum state state;
	struct srdma_control *control; /* CONNECTED, ATTACHING; else NULL */
	struct srdma_channel *channel; /* ASKING; else NULL */
	/* Watches either; not open if the worker is on this computer. */
	struct srdma_retry retry;
	char why[512]; /* OVER: the error text of all calls */
};

int srdma_lasting_control_lasts(const struct srdma_lasting_control *l)
{
	return l->p.agent != NULL;
}

/* --- another connection -------------------------------------------------- */

static void drop(struct srdma_lasting_control *l)
{
	if (l->channel)
		srdma_retry_unwatch(&l->retry, srdma_channel_fd(l->channel));
	srdma_channel_drop(l->channel);
	l->channel = NULL;
	if (l->control && srdma_lasting_control_lasts(l))
		srdma_retry_unwatch(&l->retry, srdma_control_fd(l->control));
	srdma_control_close(l->control);
	l->control = NULL;
}

/* The error text says why. The descriptor stays readable, if it can. */
static void give_up(struct srdma_lasting_control *l)
{
	snprintf(l->why, sizeof(l->why),
		 "no other connection to the worker at %s: %.300s", l->p.path,
		 srdma_error_text());
	drop(l);
	l->state = OVER;
	if (srdma_retry_under_way(&l->retry))
		srdma_retry_alarm(&l->retry, 0);
}

/* The connection ended. */
static void lose(struct srdma_lasting_control *l)
{
	drop(l);
	l->state = PAUSING;
	if (srdma_retry_begin(&l->retry))
		give_up(l);
}

/* 1 if the agent or the worker refuses this program for good. Errors of
 * connect() do not count: a proxy that starts sets the owner and the mode of
 * its socket after bind(). */
static int is_refusal(const struct srdma_lasting_control *l, int rc)
{
	return l->state != PAUSING &&
	       (rc == -EPERM || rc == -EACCES || rc == -EINVAL);
}

/* An attempt failed, with this error. */
static void fail(struct srdma_lasting_control *l, int rc)
{
	if (is_refusal(l, rc) ||
	    (l->p.has_leg &&
	     srdma_retry_lasts(&l->retry, SRDMA_CTL_KEEP_LEGS))) {
		give_up(l);
		return;
	}
	drop(l);
	l->state = PAUSING;
	srdma_retry_again(&l->retry);
}

static int no_answer_yet(const struct srdma_lasting_control *l, int rc)
{
	return rc == -ETIMEDOUT && srdma_retry_wait(&l->retry, 0) != 0;
}

/* The pause is over. */
static int ask(struct srdma_lasting_control *l)
{
	int r = srdma_access_ask(&l->channel, l->p.agent, l->p.path, 0);

	if (!r)
		r = srdma_retry_watch(&l->retry, srdma_channel_fd(l->channel));
	if (r)
		return r;
	l->state = ASKING;
	srdma_retry_alarm(&l->retry, ATTEMPT_MS);
	return 0;
}

static void use(struct srdma_lasting_control *l)
{
	srdma_retry_end(&l->retry);
	l->state = CONNECTED;
}

static int attach(struct srdma_lasting_control *l)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_ATTACH };
	int r;

	if (!l->p.has_leg) {
		use(l);
		return 0;
	}
	memcpy(m.token, l->p.token, sizeof(m.token));
	r = srdma_control_ask(l->control, &m);
	srdma_wipe(&m, sizeof(m));
	l->state = ATTACHING;
	return r;
}

static int take_connection(struct srdma_lasting_control *l)
{
	struct srdma_control *made;
	enum srdma_access_kind kind;
	int r = srdma_access_take(l->channel, &made, l->p.path, &kind, 0);

	if (r)
		return no_answer_yet(l, r) ? 0 : r;
	drop(l);
	l->control = made;
	r = srdma_retry_watch(&l->retry, srdma_control_fd(made));
	return r ? r : attach(l);
}

static int take_attached(struct srdma_lasting_control *l)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_ATTACH };
	int r = srdma_control_take(l->control, &m);

	if (!r)
		use(l);
	return r && no_answer_yet(l, r) ? 0 : r;
}

/* Waits for the next step towards another connection, and does it. 0;
 * -ETIMEDOUT and -EINTR: nothing has changed. */
static int step(struct srdma_lasting_control *l, int64_t deadline)
{
	int r = srdma_socket_wait(l->retry.epoll, POLLIN, deadline);

	if (r)
		return r;
	if (l->state == PAUSING)
		r = ask(l);
	else if (l->state == ASKING)
		r = take_connection(l);
	else
		r = take_attached(l);
	if (r)
		fail(l, r);
	return 0;
}

/* Notices the end of the connection. */
static void look(struct srdma_lasting_control *l)
{
	if (l->state == CONNECTED && srdma_lasting_control_lasts(l) &&
	    !srdma_control_alive(l->control))
		lose(l);
}

static int is_away(const struct srdma_lasting_control *l)
{
	return l->state != CONNECTED && l->state != OVER;
}

int srdma_lasting_control_alive(struct srdma_lasting_control *l)
{
	if (!srdma_lasting_control_lasts(l))
		return srdma_control_alive(l->control);
	look(l);
	while (is_away(l) && !step(l, 0))
		;
	return l->state != OVER;
}

const char *srdma_lasting_control_over(const struct srdma_lasting_control *l)
{
	return l->state == OVER ? l->why : NULL;
}

/* --- calls --------------------------------------------------------------- */

static int ends_object(uint16_t kind)
{
	return kind == SRDMA_CTL_DEREG_MR || kind == SRDMA_CTL_DESTROY ||
	       kind == SRDMA_CTL_UNINSTALL;
}

/* 1: the same request may be sent twice. */
static int may_be_repeated(uint16_t kind)
{
	return ends_object(kind) || kind == SRDMA_CTL_HELLO ||
	       kind == SRDMA_CTL_ATTACH || kind == SRDMA_CTL_STATS ||
	       kind == SRDMA_CTL_REVOKE || kind == SRDMA_CTL_WITHDRAW ||
	       kind == SRDMA_CTL_MODIFY;
}

static int wait_connected(struct srdma_lasting_control *l, uint16_t kind,
			  int64_t deadline)
{
	look(l);
	while (is_away(l))
		if (step(l, deadline) == -ETIMEDOUT)
			return srdma_error_set(-ETIMEDOUT,
					       "no link to the NIC in time for "
					       "%s: see its proxy",
					       srdma_ctl_name(kind));
	return l->state == OVER ? srdma_error_set(-ENOTCONN,
						  "%s: open the device and a "
						  "PD, connect again",
						  l->why)
				: 0;
}

int srdma_lasting_control_call_until(struct srdma_lasting_control *l,
				     struct srdma_ctl_msg *m,
				     const struct srdma_socket_fds *out,
				     struct srdma_socket_fds *in,
				     int64_t deadline)
{
	const uint16_t kind = m->kind;
	int r, repeated = 0;

	for (;; repeated = 1) {
		r = srdma_lasting_control_lasts(l)
			    ? wait_connected(l, kind, deadline)
			    : 0;
		if (r)
			return r;
		r = srdma_control_call_until(l->control, m, out, in, deadline);
		if (r == -ENOENT && repeated && ends_object(kind))
			return 0; /* the former request succeeded */
		if (r != -ENOTCONN || !srdma_lasting_control_lasts(l) ||
		    srdma_control_alive(l->control))
			return r;
		if (!may_be_repeated(kind))
			return srdma_error_set(-ETIMEDOUT,
					       "the link to the NIC ended "
					       "during %s: try again",
					       srdma_ctl_name(kind));
	}
}

int srdma_lasting_control_call(struct srdma_lasting_control *l,
			       struct srdma_ctl_msg *m,
			       const struct srdma_socket_fds *out,
			       struct srdma_socket_fds *in)
{
	if (!srdma_lasting_control_lasts(l))
		return srdma_control_call(l->control, m, out, in);
	return srdma_lasting_control_call_until(
		l, m, out, in, srdma_socket_deadline(SRDMA_CONTROL_TIMEOUT_MS));
}

/* --- life ---------------------------------------------------------------- */

int srdma_lasting_control_create(struct srdma_lasting_control **out,
				 struct srdma_control *control,
				 const struct srdma_lasting_control_params *p)
{
	struct srdma_lasting_control *l = calloc(1, sizeof(*l));
	int r = 0;

	*out = NULL;
	if (!l) {
		srdma_control_close(control);
		return srdma_error_set(-ENOMEM, "no memory");
	}
	l->p = *p;
	l->control = control;
	l->retry.epoll = l->retry.timer = -1;
	if (srdma_lasting_control_lasts(l))
		r = srdma_retry_open(&l->retry);
	if (!r && srdma_lasting_control_lasts(l))
		r = srdma_retry_watch(&l->retry, srdma_control_fd(control));
	if (r)
		srdma_lasting_control_close(l);
	else
		*out = l;
	return r;
}

void srdma_lasting_control_set_leg(struct srdma_lasting_control *l,
				   const uint8_t token[SRDMA_TOKEN_LEN])
{
	memcpy(l->p.token, token, SRDMA_TOKEN_LEN);
	l->p.has_leg = 1;
}

void srdma_lasting_control_close(struct srdma_lasting_control *l)
{
	if (!l)
		return;
	drop(l);
	srdma_retry_close(&l->retry);
	srdma_wipe(l, sizeof(*l));
	free(l);
}

void srdma_lasting_control_end(struct srdma_lasting_control *l)
{
	if (!srdma_lasting_control_lasts(l))
		srdma_control_end(l->control);
}

pid_t srdma_lasting_control_pid(const struct srdma_lasting_control *l)
{
	return srdma_control_pid(l->control);
}

int srdma_lasting_control_fd(const struct srdma_lasting_control *l)
{
	return srdma_lasting_control_lasts(l) ? l->retry.epoll
					      : srdma_control_fd(l->control);
}
