/*
 * Bring-up of the relay: itself and its legs, as the control socket asks for
 * them (docs/protocol.md 10, 12).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "session/keycache.h"
#include "relay_impl.h"

enum { LEAST_WINDOW = 16 };

int srdma_relay_refuse(struct srdma_relay *r, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	return err;
}

const char *srdma_relay_why(const struct srdma_relay *r)
{
	return r->why;
}

const struct srdma_stats *srdma_relay_stats(const struct srdma_relay *r)
{
	return &r->stats;
}

struct srdma_stats *srdma_relay_stats_edit(struct srdma_relay *r)
{
	return &r->stats;
}

int srdma_relay_random(struct srdma_relay *r, void *out, size_t len)
{
	int err = r->params.random(r->params.random_ctx, out, len);

	return err ? srdma_relay_refuse(r, -EIO, "no random numbers") : 0;
}

/* Packets that QPs may keep beyond gaps: the other half of the buffers is for
 * what arrives in order and for what leaves, however many peers leave gaps. */
static uint32_t records_of(const struct srdma_relay *r)
{
	int n = (r->host->ops->buf_free(r->host) - SRDMA_MAX_BURST) / 2;

	if (n < 0)
		return 0;
	return n < SRDMA_MAX_KEPT ? (uint32_t)n : SRDMA_MAX_KEPT;
}

/* What is sent beyond that is dropped behind each gap, sent again at once and
 * dropped again, until the gap is filled. */
static uint32_t window_of(const struct srdma_relay *r)
{
	const uint32_t records = records_of(r);
	const uint32_t most = records > LEAST_WINDOW ? records : LEAST_WINDOW;

	return r->params.window < most ? r->params.window : most;
}

static int set_liveness(struct srdma_relay *r)
{
	const uint64_t ms = SRDMA_SECOND / 1000;
	uint32_t ping = r->params.ping_ms, silence = r->params.silence_ms;

	if (!ping)
		ping = SRDMA_DEFAULT_PING_MS;
	if (!silence)
		silence = SRDMA_DEFAULT_SILENCE_MS;
	if (silence <= ping || silence > SRDMA_MAX_SILENCE_MS)
		return -EINVAL;
	r->ping = ping * ms;
	r->silence = silence * ms;
	return 0;
}

static int is_legal(const struct srdma_relay_params *p)
{
	return p->mtu >= SRDMA_MIN_MTU && p->mtu <= SRDMA_MAX_PAYLOAD &&
	       p->window && p->window <= SRDMA_MAX_WINDOW && p->reads &&
	       p->reads <= SRDMA_MAX_READS &&
	       p->key_cache <= SRDMA_MAX_KEY_CACHE && p->qps <= SRDMA_MAX_QPS &&
	       p->rekey_packets <= SRDMA_REKEY_PACKETS &&
	       p->rekey_bytes <= SRDMA_REKEY_BYTES &&
	       p->rekey_ns <= SRDMA_REKEY_NS;
}

/* Of as many QPs as there may be. Pages that none needs stay untouched. */
static int make_places(struct srdma_relay *r)
{
	uint32_t buckets = 1;

	if (!r->params.qps)
		r->params.qps = SRDMA_DEFAULT_QPS;
	while (buckets < 2 * r->params.qps)
		buckets *= 2;
	r->qp_mask = buckets - 1;
	r->qps = calloc(buckets, sizeof(struct srdma_qp *));
	r->timers.heap = calloc(r->params.qps, sizeof(*r->timers.heap));
	return r->qps && r->timers.heap ? 0 : -ENOMEM;
}

static void free_places(struct srdma_relay *r)
{
	free(r->qps);
	free(r->timers.heap);
}

int srdma_relay_create(struct srdma_relay **out,
		       const struct srdma_relay_params *params)
{
	struct srdma_relay *r = calloc(1, sizeof(*r));
	int err = -ENOMEM;

	if (!r)
		goto destroy_ports;
	r->params = *params;
	r->host = params->host;
	r->wire = params->wire;
	r->timer = SRDMA_NEVER;
	r->tables.most = params->table_memory;
	r->wall = UINT32_MAX;
	err = -EINVAL;
	if (!is_legal(params) || set_liveness(r))
		goto free_relay;
	TAILQ_INIT(&r->strangers);
	r->params.mtu = srdma_relay_fit(r, params->mtu);
	r->params.window = window_of(r);
	err = make_places(r);
	if (!err)
		err = srdma_op_pool_create(&r->ops, SRDMA_OPS);
	if (err)
		goto free_relay;
	err = srdma_beyond_pool_create(&r->beyond, records_of(r));
	if (err)
		goto free_ops;
	err = srdma_cmac_create(&r->cmac, SRDMA_MEMKEY_LEN, r->params.provider);
	if (err)
		goto free_beyond;
	err = srdma_keycache_create(&r->keys, params->key_cache,
				    params->provider);
	if (err)
		goto free_cmac;
	err = srdma_relay_random(r, r->eid, sizeof(r->eid));
	if (err)
		goto free_keys;
	*out = r;
	return 0;

free_keys:
	srdma_keycache_destroy(r->keys);
free_cmac:
	srdma_cmac_destroy(&r->cmac);
free_beyond:
	srdma_beyond_pool_destroy(&r->beyond);
free_ops:
	srdma_op_pool_destroy(&r->ops);
free_relay:
	free_places(r);
	free(r);
destroy_ports:
	params->host->ops->destroy(params->host);
	params->wire->ops->destroy(params->wire);
	return err;
}

static void free_everything(struct srdma_relay *r)
{
	struct srdma_link *link;
	struct srdma_qp *qp;

	while ((qp = srdma_relay_next_qp(r, NULL)))
		srdma_relay_forget(qp);
	for (int i = 0; i < SRDMA_MR_BUCKETS; i++)
		while (r->mrs.bucket[i])
			srdma_mr_free(&r->mrs, r->mrs.bucket[i]);
	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		if (r->legs[i])
			r->host->ops->close(r->legs[i]->conn);
		srdma_leg_free(r->legs[i]);
	}
	while ((link = r->links) != NULL) {
		r->links = link->next;
		link->conn->port->ops->close(link->conn);
		free(link);
	}
	if (r->spare)
		r->host->ops->buf_put(r->spare);
}

void srdma_relay_destroy(struct srdma_relay *r)
{
	struct srdma_qp *qp = NULL;

	if (!r)
		return;
	while ((qp = srdma_relay_next_qp(r, qp)))
		srdma_qp_fail(qp, SRDMA_REASON_PEER_CLOSED, SRDMA_OLDEST, 1);
	/* One turn says CLOSE and writes the records of what was open. */
	srdma_relay_run(r, r->now, 0);
	free_everything(r);
	r->host->ops->destroy(r->host);
	r->wire->ops->destroy(r->wire);
	srdma_keycache_destroy(r->keys);
	srdma_cmac_destroy(&r->cmac);
	srdma_beyond_pool_destroy(&r->beyond);
	srdma_op_pool_destroy(&r->ops);
	free_places(r);
	free(r);
}

/* --- legs -------------------------------------------------------------- */

int srdma_relay_leg_open(struct srdma_relay *r, struct srdma_leg_params *params,
			 struct srdma_leg **out,
			 struct srdma_leg_answer *answer)
{
	uint32_t ring = params->ring;
	struct srdma_leg *leg;
	int err;

	if (ring < SRDMA_MIN_RING || ring > SRDMA_MAX_RING ||
	    (ring & (ring - 1)))
		return srdma_relay_refuse(
			r, -EINVAL,
			"a ring of %u records; a power of two, %u..%u, would be right",
			ring, SRDMA_MIN_RING, SRDMA_MAX_RING);
	if (r->leg_count == SRDMA_MAX_LEGS)
		return srdma_relay_refuse(r, -EDQUOT,
					  "the worker has its limit of %u legs",
					  SRDMA_MAX_LEGS);
	leg = calloc(1, sizeof(*leg));
	if (!leg)
		return srdma_relay_refuse(r, -ENOMEM, "no memory for a leg");
	err = srdma_relay_random(r, params->token, sizeof(params->token));
	if (!err)
		err = srdma_relay_random(r, leg->keys.pd, sizeof(leg->keys.pd));
	if (!err)
		err = srdma_relay_random(r, leg->keys.mem,
					 sizeof(leg->keys.mem));
	if (!err) {
		r->host->why = NULL;
		err = r->host->ops->leg_open(r->host, params, &leg->conn,
					     answer);
		if (err)
			srdma_relay_refuse(r, err, "%s",
					   r->host->why ? r->host->why
							: strerror(-err));
	}
	if (err) {
		srdma_leg_free(leg);
		return err;
	}
	leg->conn->user = leg;
	leg->relay = r;
	leg->ring = ring;
	leg->shared = params->shared;
	leg->rotated = r->now;
	memcpy(leg->token, params->token, sizeof(leg->token));
	do {
		leg->id = ++r->leg_serial;
	} while (!leg->id || r->legs[leg->id % SRDMA_MAX_LEGS]);
	r->legs[leg->id % SRDMA_MAX_LEGS] = leg;
	r->leg_count++;
	*out = leg;
	return 0;
}

uint32_t srdma_relay_leg_id(const struct srdma_leg *leg)
{
	return leg->id;
}

struct srdma_leg *srdma_relay_leg_by_id(struct srdma_relay *r, uint32_t id)
{
	struct srdma_leg *leg = r->legs[id % SRDMA_MAX_LEGS];

	return leg && leg->id == id && !leg->closing ? leg : NULL;
}

struct srdma_leg *srdma_relay_leg_by_token(struct srdma_relay *r,
					   const uint8_t *token)
{
	struct srdma_leg *found = NULL;

	for (int i = 0; i < SRDMA_MAX_LEGS; i++)
		if (r->legs[i] && !r->legs[i]->closing &&
		    srdma_equal(r->legs[i]->token, token, SRDMA_TOKEN_LEN))
			found = r->legs[i];
	return found;
}

void srdma_relay_leg_close(struct srdma_relay *r, struct srdma_leg *leg)
{
	(void)r;
	srdma_leg_end(leg);
}

/* --- capabilities that the leg's requests may name (6.4) ---------------- */

static int why_no_token(struct srdma_relay *r, int err, size_t len)
{
	if (err == -EBADMSG)
		return srdma_relay_refuse(
			r, err, "a damaged token: its check does not match");
	if (err == -EMSGSIZE)
		return srdma_relay_refuse(
			r, err, "a token of %zu bytes: none has this length",
			len);
	if (err == -EPROTO)
		return srdma_relay_refuse(
			r, err,
			"not a token of version 1, or a field of it is not legal");
	return srdma_relay_refuse(r, err, "the capability: %s", strerror(-err));
}

int srdma_relay_grant_add(struct srdma_relay *r, struct srdma_leg *leg,
			  const uint8_t *token, size_t len, uint32_t *handle)
{
	struct srdma_capability cap;
	int err = srdma_capability_decode(&cap, token, len);

	if (!err)
		err = srdma_capability_ready(&cap, &r->cmac);
	srdma_cmac_forget(&r->cmac);
	if (err)
		return why_no_token(r, err, len);
	err = srdma_grant_add(&leg->grants, &cap, handle);
	srdma_capability_wipe(&cap);
	if (err == -EDQUOT)
		return srdma_relay_refuse(
			r, err, "the leg has its limit of %u capabilities",
			SRDMA_MAX_GRANTS);
	return err ? srdma_relay_refuse(r, err, "no memory for a capability")
		   : 0;
}

int srdma_relay_grant_drop(struct srdma_relay *r, struct srdma_leg *leg,
			   uint32_t handle)
{
	if (srdma_grant_drop(&leg->grants, handle))
		return srdma_relay_refuse(
			r, -ENOENT, "the leg has no capability of this handle");
	srdma_cmac_forget(&r->cmac); /* that its last proof was made with */
	return 0;
}
