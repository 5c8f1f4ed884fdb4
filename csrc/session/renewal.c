/*
 * The renewal key of a session, and the proofs made with it (docs/protocol.md
 * 8.6).
 */
#include "session/renewal.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "crypto/kdf.h"
#include "session/session_state.h"

enum {
	PARENT_CONTEXT = SRDMA_GENERATION_LEN + SRDMA_RENEWAL_LEN,
	PROOF_CONTEXT = 1 + SRDMA_PROVE_CONTEXT_LEN,
};

/* Derives from S of the first epoch of a direction. */
static int derive(const struct srdma_epochs *e, const uint8_t *context,
		  size_t context_len, uint8_t out[SRDMA_RENEWAL_LEN])
{
	const struct srdma_kdf_info info = {
		.label = "renew",
		.context = context,
		.context_len = context_len,
	};
	uint8_t secret[SRDMA_MAX_SECRET];
	int r = srdma_epoch_secret(e, secret);

	if (!r)
		r = srdma_kdf(out, SRDMA_RENEWAL_LEN, secret,
			      srdma_epoch_secret_len(e->suite), &info);
	srdma_wipe(secret, sizeof(secret));
	return r;
}

int srdma_renewal_create(struct srdma_session *s)
{
	const int server = s->tx.epochs.direction;
	const struct srdma_epochs *to_server =
		server ? &s->rx.epochs : &s->tx.epochs;
	const struct srdma_epochs *to_client =
		server ? &s->tx.epochs : &s->rx.epochs;
	uint8_t context[PARENT_CONTEXT];
	int r;

	if (!s->suite)
		return 0;
	memcpy(context, to_server->flow.generation, SRDMA_GENERATION_LEN);
	r = derive(to_client, context, SRDMA_GENERATION_LEN,
		   context + SRDMA_GENERATION_LEN);
	if (!r)
		r = derive(to_server, context, sizeof(context), s->renewal.key);
	s->renewal.live = !r;
	srdma_wipe(context, sizeof(context));
	return r;
}

void srdma_session_end_renewal(struct srdma_session *s)
{
	srdma_wipe(&s->renewal, sizeof(s->renewal));
}

/* The proof of an end: role 0 is the client. */
static int make_proof(const struct srdma_session *s, uint8_t role,
		      const uint8_t *prove_context,
		      uint8_t proof[SRDMA_RENEWAL_LEN])
{
	uint8_t context[PROOF_CONTEXT] = { role };
	const struct srdma_kdf_info info = {
		.label = "proof",
		.context = context,
		.context_len = sizeof(context),
	};

	if (!s->renewal.live)
		return -ENOKEY;
	memcpy(context + 1, prove_context, SRDMA_PROVE_CONTEXT_LEN);
	return srdma_kdf(proof, SRDMA_RENEWAL_LEN, s->renewal.key,
			 sizeof(s->renewal.key), &info);
}

int srdma_session_prove(const struct srdma_session *s,
			const uint8_t context[SRDMA_PROVE_CONTEXT_LEN],
			uint8_t proof[SRDMA_RENEWAL_LEN])
{
	return make_proof(s, s->tx.epochs.direction, context, proof);
}

int srdma_session_check_proof(const struct srdma_session *s,
			      const uint8_t context[SRDMA_PROVE_CONTEXT_LEN],
			      const uint8_t proof[SRDMA_RENEWAL_LEN])
{
	uint8_t right[SRDMA_RENEWAL_LEN];
	int r = make_proof(s, s->rx.epochs.direction, context, right);

	if (!r && !srdma_equal(right, proof, sizeof(right)))
		r = -EBADMSG;
	srdma_wipe(right, sizeof(right));
	return r;
}

uint32_t srdma_session_renewals(const struct srdma_session *s,
				enum srdma_direction direction)
{
	return s->renewals[direction == SRDMA_TX];
}
