#include "deferred.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "requests.h"

enum { WAITING = 1 };

#define RESET_PATIENCE (5 * SRDMA_SECOND)

/* 1: the relay must be polled until the object is free, even without a client.
 */
static int ends_object(const struct deferred *d)
{
	return d->kind == SRDMA_CTL_DEREG_MR || d->kind == SRDMA_CTL_DESTROY ||
	       d->kind == SRDMA_CTL_REPLACE;
}

static struct deferred_bucket *bucket(struct deferred_list *l,
				      const struct deferred *d)
{
	return &l->ending[srdma_hash_bucket(d->number, DEFERRED_BUCKETS - 1)];
}

/* The item that ends or resets the object, or NULL. */
static struct deferred *first_of(struct deferred_list *l,
				 const struct deferred *d)
{
	struct deferred *other;

	LIST_FOREACH(other, bucket(l, d), of_bucket) {
		if (other->kind == d->kind && other->leg == d->leg &&
		    other->number == d->number)
			return other;
	}
	return NULL;
}

void deferred_init(struct deferred_list *l)
{
	*l = (struct deferred_list){ 0 };
	TAILQ_INIT(&l->waits);
	TAILQ_INIT(&l->others);
}

static void append(struct deferred_list *l, struct deferred *d)
{
	const int wait = d->kind == SRDMA_CTL_WAIT;

	TAILQ_INSERT_TAIL(wait ? &l->waits : &l->others, d, next);
	l->waits_count += (unsigned)wait;
	l->others_count += (unsigned)!wait;
}

static void take(struct deferred_list *l, struct deferred *d)
{
	const int wait = d->kind == SRDMA_CTL_WAIT;

	TAILQ_REMOVE(wait ? &l->waits : &l->others, d, next);
	l->waits_count -= (unsigned)wait;
	l->others_count -= (unsigned)!wait;
}

/* Frees an item that is in no queue any more. */
static void item_free(struct deferred *d)
{
	if (d->client)
		LIST_REMOVE(d, of_client);
	if (d->first)
		LIST_REMOVE(d, of_bucket);
	free(d);
}

/* Notes whether the item is the first one that ends or resets its object. */
static void judge(struct deferred_list *l, struct deferred *d)
{
	d->first = (ends_object(d) || d->kind == SRDMA_CTL_RESET) &&
		   !first_of(l, d);
	if (d->first)
		LIST_INSERT_HEAD(bucket(l, d), d, of_bucket);
}

void deferred_cancel_reset(struct deferred_list *l, uint32_t leg, uint32_t qpn)
{
	const struct deferred reset = { .kind = SRDMA_CTL_RESET,
					.leg = leg,
					.number = qpn };
	struct deferred *d = first_of(l, &reset);

	if (!d)
		return;
	LIST_REMOVE(d, of_bucket);
	d->first = 0;
	d->canceled = 1;
}

int deferred_add(struct deferred_list *l, const struct deferred *d)
{
	struct deferred *copy = malloc(sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	*copy = *d;
	copy->until = srdma_relay_now(l->legs->relay) + RESET_PATIENCE;
	judge(l, copy);
	if (copy->client)
		LIST_INSERT_HEAD(&copy->client->deferred, copy, of_client);
	append(l, copy);
	return 0;
}

static int refuse(struct srdma_ctl_msg *out, int err, const char *text)
{
	snprintf(out->text, sizeof(out->text), "%s", text);
	return err;
}

/* The status of a response that the relay decided. */
static int status_of(struct srdma_relay *relay, int rc,
		     struct srdma_ctl_msg *out)
{
	if (rc == -EINPROGRESS)
		return WAITING;
	return rc < 0 ? refuse(out, rc, srdma_relay_why(relay)) : 0;
}

static int ask_reset(struct srdma_relay *relay, struct srdma_leg *leg,
		     const struct deferred *d, struct srdma_ctl_msg *out)
{
	int rc;

	if (d->canceled)
		return refuse(out, -ECANCELED,
			      "a newer RESET or REINIT of this QP came: its "
			      "answer counts");
	rc = srdma_relay_qp_reset(relay, leg, d->number, (uint32_t)d->ticket);
	if (rc == -EINPROGRESS && srdma_relay_now(relay) >= d->until)
		return refuse(
			out, -ETIMEDOUT,
			"5 s after RESET the QP has DMA under way, or "
			"descriptors that the host has posted are "
			"missing: repeat RESET, or end the QP by DESTROY");
	return status_of(relay, rc, out);
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
		out->key = d->number;
		rc = srdma_relay_mr_opening(relay, leg, d->number);
		return status_of(relay, rc, out);
	case SRDMA_CTL_DEREG_MR:
		return srdma_relay_mr_busy(relay, leg, d->number) > 0 ? WAITING
								      : 0;
	case SRDMA_CTL_REVOKE:
		return srdma_relay_mr_revoking(relay, leg, &d->range,
					       d->ticket) > 0
			       ? WAITING
			       : 0;
	case SRDMA_CTL_WITHDRAW:
		return srdma_relay_mr_withdrawing(relay, leg, d->number,
						  d->ticket) > 0
			       ? WAITING
			       : 0;
	case SRDMA_CTL_REPLACE:
		rc = srdma_relay_mr_replace(relay, leg, d->number,
					    (uint32_t)d->ticket);
		return status_of(relay, rc, out);
	case SRDMA_CTL_RESET:
		return ask_reset(relay, leg, d, out);
	case SRDMA_CTL_DESTROY:
		rc = srdma_relay_qp_destroy(relay, leg, d->number);
		if (rc == -EINPROGRESS)
			return WAITING;
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

/* Looks at the first n items of a queue, at most DEFERRED_LOOKS. Returns how
 * many that were. */
static unsigned look(struct deferred_list *l, struct deferred_queue *queue,
		     unsigned n)
{
	unsigned done = 0;
	struct deferred *d;

	while (done < n && done < DEFERRED_LOOKS && (d = TAILQ_FIRST(queue))) {
		struct srdma_ctl_msg out;
		int rc = ask(l, d, &out);

		done++;
		take(l, d);
		if (rc == WAITING) {
			append(l, d);
			continue;
		}
		l->answer(l->ctx, d, &out, rc);
		item_free(d);
	}
	return done;
}

unsigned deferred_poll(struct deferred_list *l)
{
	const uint64_t changes = srdma_relay_changes(l->legs->relay);

	if (changes != l->changes)
		l->looks = l->waits_count;
	l->changes = changes;
	l->looks -= look(l, &l->waits, l->looks);
	look(l, &l->others, l->others_count);
	return l->waits_count + l->others_count;
}

/* No client knows the key of this region. If a DMA is under way, the item ends
 * the region from now on. */
static void abandon_region(struct deferred_list *l, struct deferred *d)
{
	struct srdma_relay *relay = l->legs->relay;
	struct srdma_leg *leg = srdma_relay_leg_by_id(relay, d->leg);

	if (!leg || srdma_relay_mr_dereg(relay, leg, d->number) != -EINPROGRESS)
		return;
	d->kind = SRDMA_CTL_DEREG_MR;
	judge(l, d);
}

/* One item of each object is enough: a client that repeats its request over
 * one connection after the other must not fill the list. */
void deferred_leave(struct deferred_list *l, struct client *client)
{
	struct deferred *d;

	while ((d = LIST_FIRST(&client->deferred)) != NULL) {
		LIST_REMOVE(d, of_client);
		d->client = NULL;
		if (d->kind == SRDMA_CTL_REG_MR)
			abandon_region(l, d);
		if (d->first && ends_object(d))
			continue;
		take(l, d); /* no client waits for it */
		item_free(d);
	}
	if (l->looks > l->waits_count)
		l->looks = l->waits_count;
}

static void clear(struct deferred_queue *queue)
{
	struct deferred *d;

	while ((d = TAILQ_FIRST(queue)) != NULL) {
		TAILQ_REMOVE(queue, d, next);
		free(d); /* clients may be freed already */
	}
}

void deferred_clear(struct deferred_list *l)
{
	clear(&l->waits);
	clear(&l->others);
}
