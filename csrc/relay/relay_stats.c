/* Gauges: QPs, and bytes of keys, nonces and windows that they hold, by key mode;
 * legs and the key cache. */
#include "session/keycache.h"
#include "relay/relay_impl.h"
#include "session/session.h"

/* The sums of one key mode. */
struct gauges {
	uint64_t *qps, *keys, *nonces, *windows;
};

static struct gauges gauges_of(struct srdma_stats *s, uint8_t mode)
{
#define OF(MODE)                                                               \
	(struct gauges)                                                        \
	{                                                                      \
		&s->qps_##MODE, &s->key_bytes_##MODE, &s->nonce_bytes_##MODE,  \
			&s->window_bytes_##MODE                                \
	}
	switch (mode) {
	case SRDMA_MODE_BASIC:
		return OF(basic);
	case SRDMA_MODE_PD:
		return OF(pd);
	case SRDMA_MODE_MEM:
		return OF(mem);
	default:
		return OF(pd_mem);
	}
#undef OF
}

/* Adds a QP that has keys; at level none it has none. */
static void add_qp(struct srdma_stats *s, const struct srdma_qp *qp)
{
	const struct srdma_qp_keyed *keyed = srdma_qp_keyed(qp);
	const struct gauges g = gauges_of(s, keyed->mode);
	struct srdma_session_state state;

	if (!srdma_qp_session(qp) || keyed->level == SRDMA_LEVEL_NONE)
		return;
	srdma_session_state(srdma_qp_session(qp), &state);
	*g.qps += 1;
	*g.keys += state.key_bytes;
	*g.nonces += state.nonce_bytes;
	*g.windows += state.window_bytes;
}

static void take_wire_counts(struct srdma_stats *s,
			     const struct srdma_wire_counts *counts)
{
#define X(name) s->name = counts->name;
	SRDMA_WIRE_COUNTS(X)
#undef X
}

void srdma_relay_stats_measure(struct srdma_relay *r)
{
	struct srdma_stats *s = &r->env.stats;
	struct srdma_keycache_counts cache;
	struct srdma_qp *qp = NULL;

#define X(name) s->name = 0;
	SRDMA_GAUGES(X)
#undef X
	while ((qp = srdma_relay_next_qp(r, qp)))
		add_qp(s, qp);
	s->legs = r->leg_count;
	for (int i = 0; i < SRDMA_MAX_LEGS; i++)
		if (r->legs[i])
			s->key_bytes_legs +=
				srdma_pdkeys_bytes(&r->legs[i]->keys);
	srdma_keycache_count(r->keys, &cache);
	s->key_cache_kept = cache.kept;
	s->key_cache_hits = cache.hits;
	s->key_cache_misses = cache.misses;
	if (r->env.wire->counts)
		take_wire_counts(s, r->env.wire->counts);
}
