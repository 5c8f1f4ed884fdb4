#include "session/observer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "crypto/suite.h"
#include "session/flow.h"
#include "session/window.h"
#include "wire/stats.h"

struct srdma_observer {
	struct srdma_flow flow;
	struct srdma_window window;
	uint32_t qpn; /* of the receiver */
	uint8_t level, tag_len;
	/* 1 + highest request id verified or heard: of requests; of responses
	 * and acks */
	uint64_t next[2];
};

static int check(const struct srdma_observer_params *p,
		 const struct srdma_suite *suite)
{
	if (!suite || p->level == SRDMA_LEVEL_NONE ||
	    p->level > SRDMA_LEVEL_AEAD || !(suite->levels >> p->level & 1))
		return -ENOTSUP;
	if (!srdma_suite_tag_ok(suite, p->tag_len) ||
	    p->secret_len != srdma_epoch_secret_len(suite))
		return -EINVAL;
	if (p->mode >= SRDMA_MODES || p->direction > 1 ||
	    p->pn >= SRDMA_NUMBER_END)
		return -EINVAL;
	return 0;
}

/* The session whose RX is this direction. Without K_PD its S is given. */
static void lay_params(struct srdma_session_params *s,
		       const struct srdma_observer_params *p)
{
	memset(s, 0, sizeof(*s));
	s->role = !p->direction;
	s->suite = p->suite;
	s->level = p->level;
	s->mode = p->mode;
	s->tag_len = p->tag_len;
	memcpy(s->generation, p->flow.generation, SRDMA_GENERATION_LEN);
	memcpy(s->local_eid, p->flow.receiver.eid, SRDMA_EID_LEN);
	memcpy(s->peer_eid, p->flow.sender.eid, SRDMA_EID_LEN);
	s->local_qpn = p->flow.receiver.qpn;
	s->peer_qpn = p->flow.sender.qpn;
	memcpy(s->rx_secret, p->secret, sizeof(s->rx_secret));
	s->rx_epoch = p->epoch;
}

int srdma_observer_create(struct srdma_observer **out,
			  const struct srdma_observer_params *params)
{
	const struct srdma_suite *suite = srdma_suite_by_id(params->suite);
	struct srdma_session_params session;
	struct srdma_observer *o;
	int r = check(params, suite);

	*out = NULL;
	if (r)
		return r;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->qpn = params->flow.receiver.qpn;
	o->level = params->level;
	o->tag_len = params->tag_len;
	srdma_window_init(&o->window, params->pn, SRDMA_WINDOW_MAX);
	lay_params(&session, params);
	r = srdma_flow_create(&o->flow, suite, &session, SRDMA_SUITE_OPEN);
	srdma_wipe(&session, sizeof(session));
	if (r) {
		srdma_observer_destroy(o);
		return r;
	}
	*out = o;
	return 0;
}

void srdma_observer_destroy(struct srdma_observer *o)
{
	if (!o)
		return;
	srdma_flow_destroy(&o->flow);
	srdma_wipe(o, sizeof(*o));
	free(o);
}

/* The slots in which the epoch bits can lie, in the order in which they are
 * tried. Returns their number. */
static int find_slots(const struct srdma_epochs *e, uint8_t bits,
		      enum srdma_epoch_at at[2])
{
	int n = 0;

	switch ((bits - e->number) & 3) {
	case 0:
		at[n++] = SRDMA_EPOCH_NOW;
		break;
	case 1:
		if (e->key[SRDMA_EPOCH_FRESH].live)
			at[n++] = SRDMA_EPOCH_FRESH;
		at[n++] = SRDMA_EPOCH_CHAIN;
		return e->number == UINT32_MAX ? 0 : n;
	case 3:
		if (e->key[SRDMA_EPOCH_BEFORE].live)
			at[n++] = SRDMA_EPOCH_BEFORE;
		break;
	}
	return n;
}

static int verify(struct srdma_observer *o, const struct srdma_packet *p,
		  enum srdma_epoch_at at, uint8_t *plain)
{
	struct srdma_suite_io io = {
		.in = p->data + p->payload_at,
		.in_len = o->level == SRDMA_LEVEL_HEADER ? 0 : p->payload_len,
		.out = plain,
	};

	io.ad_len = srdma_flow_bind(&o->flow, p,
				    srdma_epoch_number(&o->flow.epochs, at));
	return srdma_flow_open(&o->flow, at, p->pn, &io, p->data + p->tag_at);
}

static int verify_any(struct srdma_observer *o, const struct srdma_packet *p,
		      enum srdma_epoch_at *at, uint8_t *plain)
{
	enum srdma_epoch_at slots[2];
	const int n = find_slots(&o->flow.epochs, p->epoch, slots);

	for (int i = 0; i < n; i++) {
		const int r = verify(o, p, slots[i], plain);

		*at = slots[i];
		if (r != -EBADMSG)
			return r ? -SRDMA_REFUSED_PROVIDER : 0;
	}
	return n ? -SRDMA_REFUSED_TAG : -SRDMA_REFUSED_EPOCH;
}

int srdma_observer_open(struct srdma_observer *o, struct srdma_packet *p,
			const uint8_t *data, size_t len, uint8_t *plain)
{
	int r = srdma_wire_parse(p, data, len, o->tag_len, SRDMA_MAX_PAYLOAD);
	enum srdma_epoch_at at;
	uint64_t *next;

	if (r)
		return r;
	if (p->qpn != o->qpn)
		return -SRDMA_REFUSED_UNKNOWN_QP;
	next = &o->next[!(p->traits & SRDMA_T_REQUEST)];
	if (srdma_window_infer(&p->pn, o->window.next, p->psn))
		return -SRDMA_REFUSED_PN_RANGE;
	if (srdma_window_infer(&p->request_id, *next, (uint32_t)p->request_id))
		return -SRDMA_REFUSED_REQUEST_ID;
	r = verify_any(o, p, &at, plain);
	if (r)
		return r;
	if (at > SRDMA_EPOCH_BEFORE)
		srdma_epoch_begin(&o->flow.epochs, at);
	if (p->request_id >= *next)
		*next = p->request_id + 1;
	if (srdma_window_test(&o->window, p->pn))
		return 1;
	srdma_window_commit(&o->window, p->pn);
	return 0;
}

int srdma_observer_step(struct srdma_observer *o)
{
	if (o->flow.epochs.number == UINT32_MAX)
		return -EINVAL;
	return srdma_epoch_step(&o->flow.epochs);
}

int srdma_observer_renew(struct srdma_observer *o, const uint8_t *secret)
{
	return srdma_epoch_give(&o->flow.epochs, secret, 0);
}

void srdma_observer_seek(struct srdma_observer *o, uint64_t pn,
			 uint64_t request_id)
{
	srdma_window_init(&o->window, pn, SRDMA_WINDOW_MAX);
	o->next[0] = o->next[1] = request_id;
}

uint64_t srdma_observer_requests(const struct srdma_observer *o)
{
	return o->next[0];
}

void srdma_observer_hear(struct srdma_observer *o, uint64_t requests)
{
	if (requests > o->next[1])
		o->next[1] = requests;
}

uint32_t srdma_observer_epoch(const struct srdma_observer *o)
{
	return o->flow.epochs.number;
}
