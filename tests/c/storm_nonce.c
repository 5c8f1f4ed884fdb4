/* No nonce is spent twice under one key: all pairs of a storm. */
#include <string.h>

#include "bytes.h"
#include "relay_impl.h"
#include "session_state.h"
#include "storm.h"

/*
 * The IV of the key that sealed last. Key and IV are one output of the KDF:
 * who has the same IV has the same key. NULL: the suite has no nonce, or the
 * key is gone already.
 */
static const uint8_t *iv_of(const struct srdma_qp *qp)
{
	const struct srdma_session *s = qp->session;
	const struct srdma_epoch_key *k = &s->tx.epochs.key[SRDMA_EPOCH_NOW];

	if (!s->suite || !s->suite->iv_len)
		return NULL;
	if (!(qp->mode & SRDMA_MODE_PD))
		return k->own.iv;
	return k->slot ? k->slot->keyed.iv : NULL;
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

void storm_nonce_spend(struct storm *w, const struct storm_end *e, uint64_t pn)
{
	const struct srdma_qp *qp =
		srdma_relay_qp(w->side[e->leg->side].relay, e->info.qpn);
	const uint8_t *iv = qp ? iv_of(qp) : NULL;
	uint64_t pair, at;

	if (!iv)
		return;
	/* 0 marks a free place. */
	pair = mix(mix(mix(srdma_load64(iv)) ^ srdma_load32(iv + 8)) ^ pn ^
		   (uint64_t)qp->role << 63) |
	       1;
	STORM_CHECK(w, ++w->nonce_count < STORM_NONCES / 4 * 3,
		    "too many packets");
	for (at = pair >> 1 & (STORM_NONCES - 1); w->nonces[at];
	     at = (at + 1) & (STORM_NONCES - 1))
		STORM_CHECK(w, w->nonces[at] != pair,
			    "packet number %#llx twice under one key",
			    (unsigned long long)pn);
	w->nonces[at] = pair;
}
