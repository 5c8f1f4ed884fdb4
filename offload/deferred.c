#include "deferred.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAITING = 1 };

/* 1: the relay must be polled until the object is free, even without a client.
 */
static int ends_object(const struct deferred *d)
{
	return d->kind == SRDMA_CTL_DEREG_MR || d->kind == SRDMA_CTL_DESTROY;
}

static int has_same(const struct deferred_list *l, const struct deferred *d)
{
	const struct deferred *other = l->first;

	while (other && (other->kind != d->kind || other->leg != d->leg ||
			 other->number != d->number))
		other = other->next;
	return other != NULL;
}

int deferred_add(struct deferred_list *l, const struct deferred *d)
{
	struct deferred *copy = malloc(sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	*copy = *d;
	copy->repeats = ends_object(d) && has_same(l, d);
	copy->next = l->first;
	l->first = copy;
	return 0;
}

static int refuse(struct srdma_ctl_msg *out, int err, const char *text)
{
	snprintf(out->text, sizeof(out->text), "%s", text);
	return err;
}

/* Returns WAITING, or the status of the response. */
static int ask(struct deferred_list *l, const struct deferred *d,
	       struct srdma_ctl_msg *out)
{
	struct srdma_relay *relay = l->legs->relay;
	struct srdma_leg *leg = srdma_relay_leg_by_id(relay, d->leg);
	uint32_t reason;
	int rc;

	if (!leg)
		return refuse(out, -ECONNRESET,
			      "the leg ended while this request waited");
	switch (d->kind) {
	case SRDMA_CTL_REG_MR:
		rc = srdma_relay_mr_opening(relay, leg, d->number);
		if (rc == -EINPROGRESS)
			return WAITING;
		out->key = d->number;
		return rc < 0 ? refuse(out, rc, srdma_relay_why(relay)) : 0;
	case SRDMA_CTL_DEREG_MR:
		return srdma_relay_mr_busy(relay, leg, d->number) > 0 ? WAITING
								      : 0;
	case SRDMA_CTL_REVOKE:
		return srdma_relay_mr_revoking(relay, leg, &d->range,
					       d->ticket) > 0
			       ? WAITING
			       : 0;
	case SRDMA_CTL_DESTROY:
		rc = srdma_relay_qp_destroy(relay, leg, d->number);
		if (rc == -EINPROGRESS)
			return WAITING;
		if (rc == 0)
			legs_count_qp(l->legs, d->leg, -1);
		return 0; /* destroyed, by this or another request */
	}
	rc = srdma_relay_qp_state(relay, leg, d->number, &reason);
	if (rc < 0)
		return refuse(out, rc,
			      "the QP was destroyed while this request waited");
	if (rc < SRDMA_QP_RTS)
		return WAITING;
	out->wait.state = (uint32_t)rc;
	out->wait.reason = reason;
	return 0;
}

unsigned deferred_poll(struct deferred_list *l)
{
	struct deferred **at = &l->first;
	struct srdma_ctl_msg out;
	unsigned left = 0;

	while (*at) {
		struct deferred *d = *at;
		int rc = ask(l, d, &out);

		if (rc == WAITING) {
			left++;
			at = &d->next;
			continue;
		}
		*at = d->next;
		l->answer(l->ctx, d, &out, rc);
		free(d);
	}
	return left;
}

/* One item of each object is enough: a client that repeats its request over
 * one connection after the other must not fill the list. */
static int to_finish(const struct deferred *d)
{
	return ends_object(d) && !d->repeats;
}

void deferred_leave(struct deferred_list *l, const struct client *client)
{
	struct deferred **at = &l->first;

	while (*at) {
		struct deferred *d = *at;

		if (d->client == client)
			d->client = NULL;
		if (d->client || to_finish(d)) {
			at = &d->next;
			continue;
		}
		*at = d->next; /* no client waits for it */
		free(d);
	}
}

void deferred_clear(struct deferred_list *l)
{
	while (l->first) {
		struct deferred *next = l->first->next;

		free(l->first);
		l->first = next;
	}
}
