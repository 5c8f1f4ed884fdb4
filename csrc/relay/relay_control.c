/*
 * Creation of the relay and its legs, and installed capabilities: OPEN,
 * INSTALL, UNINSTALL of the control socket (docs/local-interface.md 3, 5).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "session/keycache.h"
#include "path/path.h"
#include "relay/relay_impl.h"
#include "requester/requester.h"

enum { LEAST_WINDOW = 16 }; /* packets */

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
	return &r->env.stats;
}

struct srdma_stats *srdma_relay_stats_edit(struct srdma_relay *r)
{
	return &r->env.stats;
}

int srdma_relay_random(struct srdma_relay *r, void *out, size_t len)
{
	int err = r->params.random(r->params.random_ctx, out, len);

	return err ? srdma_relay_refuse(r, -EIO,
					"the source of random numbers failed")
		   : 0;
}

/* Most packets in all reorder buffers together: half of the host port's buffers.
 * The other half stays for packets in order and packets that leave. */
static uint32_t records_of(const struct srdma_relay *r)
{
	int n = (r->env.host->ops->buf_free(r->env.host) - SRDMA_MAX_BURST) / 2;

	if (n < 0)
		return 0;
	return n < SRDMA_MAX_KEPT ? (uint32_t)n : SRDMA_MAX_KEPT;
}

/* The window is at most what the reorder buffers hold, or 16 packets: else the packets after a gap
 * would be dropped, sent again at once and dropped again, until the gap is
 * filled. */
static uint32_t window_of(const struct srdma_relay *r)
{
	const uint32_t records = records_of(r);
	const uint32_t most = records > LEAST_WINDOW ? records : LEAST_WINDOW;

	return r->params.window < most ? r->params.window : most;
}

static int set_liveness(struct srdma_relay *r)
{
	uint32_t ping = r->params.ping_ms, silence = r->params.silence_ms;

	if (!ping)
		ping = SRDMA_DEFAULT_PING_MS;
	if (!silence)
		silence = SRDMA_DEFAULT_SILENCE_MS;
	if (silence <= ping || silence > SRDMA_MAX_SILENCE_MS)
		return -EINVAL;
	r->env.ping = ping * SRDMA_MS;
	r->env.silence = silence * SRDMA_MS;
	return 0;
}

/* At most half of the QPNs of the process are in use, so that a free one is
 * soon drawn. */
static int has_qpns(const struct srdma_relay_params *p)
{
	return p->process < p->processes &&
	       p->qps <= SRDMA_MAX_WORKER_QPS / p->processes;
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

/* Allocates buckets and timers for the most QPs. The kernel commits no page that
 * is not touched. */
static int make_places(struct srdma_relay *r)
{
	uint32_t buckets = srdma_table_room(0, 1, 2 * r->params.qps);

	r->qp_mask = buckets - 1;
	r->qps = calloc(buckets, sizeof(struct srdma_qp *));
	r->env.timers.heap = calloc(r->params.qps, sizeof(*r->env.timers.heap));
	r->env.paths = srdma_path_table_create(&r->env);
	return r->qps && r->env.timers.heap && r->env.paths ? 0 : -ENOMEM;
}

static void free_places(struct srdma_relay *r)
{
	free(r->qps);
	free(r->env.timers.heap);
	srdma_path_table_destroy(r->env.paths);
}

/* RFC 5042 R7.2-1, A7.2 */
static void make_env(struct srdma_relay *r)
{
	struct srdma_env *env = &r->env;

	env->host = r->params.host;
	env->wire = r->params.wire;
	env->wall = UINT32_MAX;
	env->timer = SRDMA_NEVER;
	env->tables.most = r->params.table_memory;
	env->reorder = &r->reorder;
	env->discard = srdma_pump_discard;
	env->path_restarted = srdma_requester_restart;
	env->random = r->params.random;
	env->random_ctx = r->params.random_ctx;
}

int srdma_relay_create(struct srdma_relay **out,
		       const struct srdma_relay_params *params)
{
	struct srdma_relay *r = calloc(1, sizeof(*r));
	int err = -ENOMEM;

	if (!r)
		goto destroy_ports;
	r->params = *params;
	if (!r->params.qps)
		r->params.qps = SRDMA_DEFAULT_QPS;
	if (!r->params.processes)
		r->params.processes = 1;
	make_env(r);
	err = -EINVAL;
	if (!is_legal(params) || !has_qpns(&r->params) || set_liveness(r))
		goto free_relay;
	r->params.mtu = srdma_env_fit(&r->env, params->mtu);
	r->params.window = window_of(r);
	r->env.window = r->params.window;
	r->env.reads = params->reads;
	err = make_places(r);
	if (!err)
		err = srdma_op_pool_create(&r->env.ops, SRDMA_OPS);
	if (err)
		goto free_relay;
	r->env.outgoing = srdma_op_outgoing(&r->env);
	err = srdma_reorder_pool_create(&r->reorder, records_of(r));
	if (err)
		goto free_ops;
	err = srdma_relay_ledger_create(r);
	if (err)
		goto free_ledger;
	err = srdma_cmac_create(&r->cmac, SRDMA_MEMKEY_LEN, r->params.provider);
	if (err)
		goto free_ledger;
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
free_ledger:
	srdma_ledger_destroy(r->env.ledger);
	srdma_reorder_pool_destroy(&r->reorder);
free_ops:
	srdma_op_pool_destroy(&r->env.ops);
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
	struct srdma_port *host = r->env.host;
	const struct srdma_mr_table *mrs = &r->env.mrs;
	struct srdma_qp *qp;

	srdma_op_pool_abandon(&r->env.ops);
	while ((qp = srdma_relay_next_qp(r, NULL)))
		srdma_relay_forget(qp);
	for (int i = 0; i < SRDMA_MR_BUCKETS; i++)
		while (mrs->bucket[i])
			srdma_relay_free_mr(mrs->bucket[i]);
	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		if (r->legs[i])
			host->ops->close(r->legs[i]->conn);
		srdma_leg_free(r->legs[i]);
	}
	srdma_path_table_destroy(r->env.paths);
	r->env.paths = NULL;
	if (r->spare)
		host->ops->buf_put(r->spare);
}

void srdma_relay_destroy(struct srdma_relay *r)
{
	struct srdma_qp *qp = NULL;

	if (!r)
		return;
	while ((qp = srdma_relay_next_qp(r, qp)))
		srdma_qp_fail(qp, SRDMA_REASON_PEER_CLOSED, SRDMA_OLDEST, 1);
	/* One turn sends CLOSE and writes the records of open requests. */
	srdma_relay_run(r, r->env.now, 0);
	free_everything(r);
	r->env.host->ops->destroy(r->env.host);
	r->env.wire->ops->destroy(r->env.wire);
	srdma_keycache_destroy(r->keys);
	srdma_cmac_destroy(&r->cmac);
	srdma_ledger_destroy(r->env.ledger);
	srdma_reorder_pool_destroy(&r->reorder);
	srdma_op_pool_destroy(&r->env.ops);
	free_places(r);
	free(r);
}

/* --- legs -------------------------------------------------------------- */

static int check_leg(struct srdma_relay *r, uint32_t ring)
{
	if (ring < SRDMA_MIN_RING || ring > SRDMA_MAX_RING ||
	    (ring & (ring - 1)))
		return srdma_relay_refuse(
			r, -EINVAL,
			"a ring of %u records: it must be a power of two, %u..%u",
			ring, SRDMA_MIN_RING, SRDMA_MAX_RING);
	return 0;
}

/* Creates token and keys of a leg, and opens the leg at the port. */
/* RFC 5042 R7.1-1, R2.2.4-2, A7.1a */
static int open_leg(struct srdma_relay *r, struct srdma_leg *leg,
		    struct srdma_leg_params *params,
		    struct srdma_leg_answer *answer)
{
	struct srdma_port *host = r->env.host;
	struct srdma_pdkeys *keys = &leg->keys;
	int err = srdma_relay_random(r, params->token, sizeof(params->token));

	if (!err)
		err = srdma_relay_random(r, keys->pd, sizeof(keys->pd));
	if (!err)
		err = srdma_relay_random(r, keys->mem, sizeof(keys->mem));
	if (err)
		return err;
	host->why = NULL;
	err = host->ops->leg_open(host, params, &leg->conn, answer);
	return err ? srdma_relay_refuse(r, err, "%s",
					host->why ? host->why : strerror(-err))
		   : 0;
}

static void enter(struct srdma_relay *r, struct srdma_leg *leg)
{
	do {
		leg->id = ++r->leg_serial;
	} while (!leg->id || r->legs[leg->id % SRDMA_MAX_LEGS]);
	r->legs[leg->id % SRDMA_MAX_LEGS] = leg;
	r->leg_count++;
}

/* RFC 5042 R2.2.4-3 */
int srdma_relay_leg_open(struct srdma_relay *r, struct srdma_leg_params *params,
			 struct srdma_leg **out,
			 struct srdma_leg_answer *answer)
{
	int err = check_leg(r, params->ring);
	struct srdma_leg *leg;

	if (err)
		return err;
	leg = calloc(1, sizeof(*leg));
	if (!leg)
		return srdma_relay_refuse(r, -ENOMEM, "no memory for a leg");
	leg->relay = r;
	leg->cq.ring = params->ring;
	err = srdma_relay_charge_leg(r, leg, params->account);
	if (!err)
		err = open_leg(r, leg, params, answer);
	if (err) {
		srdma_leg_free(leg);
		return err;
	}
	leg->conn->user = leg;
	leg->cq = (struct srdma_cq){ .env = &r->env,
				     .conn = leg->conn,
				     .ring = params->ring };
	leg->shared = params->shared;
	leg->rotated = r->env.now;
	memcpy(leg->token, params->token, sizeof(leg->token));
	enter(r, leg);
	*out = leg;
	return 0;
}

uint32_t srdma_relay_leg_id(const struct srdma_leg *leg)
{
	return leg->id;
}

int srdma_relay_leg_was_up(const struct srdma_leg *leg)
{
	return leg->was_up;
}

struct srdma_leg *srdma_relay_leg_by_id(struct srdma_relay *r, uint32_t id)
{
	struct srdma_leg *leg = r->legs[id % SRDMA_MAX_LEGS];

	return leg && leg->id == id && !leg->closing ? leg : NULL;
}

struct srdma_leg *srdma_relay_leg_of_qp(struct srdma_relay *r, uint32_t qpn)
{
	const struct srdma_qp *qp = srdma_relay_qp(r, qpn);
	struct srdma_leg *leg = qp ? srdma_qp_entry(qp)->leg : NULL;

	return leg && !leg->closing ? leg : NULL;
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

int srdma_relay_leg_ended(const struct srdma_relay *r, uint32_t id)
{
	const struct srdma_ended_leg *e = &r->ended[id % SRDMA_MAX_LEGS];

	return e->id == id ? e->status : 0;
}

void srdma_relay_leg_close(struct srdma_leg *leg)
{
	srdma_leg_end(leg);
}

/* --- installed capabilities (6.4) --------------------------------------- */

static int why_no_token(struct srdma_relay *r, int err, size_t len)
{
	if (err == -EBADMSG)
		return srdma_relay_refuse(
			r, err, "a damaged token: its check does not match");
	if (err == -EMSGSIZE)
		return srdma_relay_refuse(
			r, err,
			"a token of %zu bytes: no token has this length", len);
	if (err == -EPROTO)
		return srdma_relay_refuse(
			r, err,
			"not a token of version 1, or a field of it is not legal");
	return srdma_relay_refuse(r, err, "the capability: %s", strerror(-err));
}

int srdma_relay_install(struct srdma_relay *r, struct srdma_leg *leg,
			const uint8_t *token, size_t len, uint32_t *handle)
{
	struct srdma_capability cap;
	int err = srdma_capability_decode(&cap, token, len);

	if (!err)
		err = srdma_capability_ready(&cap, &r->cmac);
	srdma_cmac_forget(&r->cmac);
	if (err)
		return why_no_token(r, err, len);
	err = srdma_relay_charge(r, leg->account, SRDMA_RES_CAPABILITIES, 1);
	if (err) {
		srdma_capability_wipe(&cap);
		return err;
	}
	err = srdma_captable_add(&leg->captable, &cap, handle);
	srdma_capability_wipe(&cap);
	if (err)
		srdma_account_give(leg->account, SRDMA_RES_CAPABILITIES, 1);
	if (err == -EDQUOT)
		return srdma_relay_refuse(
			r, err, "the leg has its limit of %u capabilities",
			SRDMA_CAPTABLE_MAX);
	return err ? srdma_relay_refuse(r, err, "no memory for a capability")
		   : 0;
}

int srdma_relay_uninstall(struct srdma_relay *r, struct srdma_leg *leg,
			  uint32_t handle)
{
	if (srdma_captable_drop(&leg->captable, handle))
		return srdma_relay_refuse(
			r, -ENOENT, "the leg has no capability of this handle");
	srdma_account_give(leg->account, SRDMA_RES_CAPABILITIES, 1);
	srdma_cmac_forget(&r->cmac); /* it may hold a key of the capability */
	return 0;
}
