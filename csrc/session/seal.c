#include "session/session.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "memory/memkey.h"
#include "session/session_state.h"

/* 1 if the session has to compute the proof of this packet. */
static int wants_proof(const struct srdma_packet *p)
{
	return (p->flags & SRDMA_STH_PROOF) && p->access_key;
}

/* 1 if the peer's open would accept these fields; wire.c checks the others. */
static int legal(const struct srdma_session *s, const struct srdma_packet *p)
{
	if (p->request_id >= SRDMA_NUMBER_END)
		return 0;
	if (wants_proof(p) && !s->cmac)
		return 0;
	return p->opcode != SRDMA_OP_ACKNOWLEDGE ||
	       p->ack.request_id == (uint32_t)p->request_id;
}

/* 1 if this epoch's limits permit one more packet (3.3, 3.5). */
static int left(const struct srdma_session *s, const struct srdma_packet *p)
{
	const int last_words = p->opcode == SRDMA_OP_ACKNOWLEDGE &&
			       (p->ack.kind == SRDMA_ACK_NAK ||
				p->ack.kind == SRDMA_ACK_CLOSE);

	return s->sealed + (last_words ? 0 : SRDMA_LAST_WORDS) <
		       s->sealed_max &&
	       s->tx_pn < SRDMA_NUMBER_END;
}

/* Computes the proof (6.1) and writes it to packet, datagram and AD. */
static int prove(struct srdma_session *s, struct srdma_packet *p, uint8_t *out)
{
	const uint32_t len = srdma_flow_claim_len(p);
	int r = srdma_memkey_proof(s->cmac, p->proof, p->access_key,
				   s->tx.claim, len);

	if (r)
		return r;
	memcpy(out + p->tag_at - SRDMA_PROOF_LEN, p->proof, SRDMA_PROOF_LEN);
	memcpy(s->tx.claim + len, p->proof, SRDMA_PROOF_LEN);
	return 0;
}

/* Computes proof and tag, and writes the payload in plain or encrypted form to
 * the datagram that wire.c built. */
/* RFC 5042 R5.3-1, A5.3 */
static int protect(struct srdma_session *s, struct srdma_packet *p,
		   const uint8_t *payload, uint8_t *out)
{
	const int aead = s->level == SRDMA_LEVEL_AEAD;
	uint8_t *text = out + p->payload_at;
	struct srdma_suite_io io = {
		/* A MAC reads the copy in the datagram, because the host may
		 * change the payload meanwhile. */
		.in = aead ? payload : text,
		.in_len = srdma_session_covered(s, p->payload_len),
		.out = text,
	};
	int r;

	if (!aead && p->payload_len)
		memcpy(text, payload, p->payload_len);
	if (!s->suite)
		return 0;
	io.ad_len = srdma_flow_bind(&s->tx, p, s->tx.epochs.number);
	r = wants_proof(p) ? prove(s, p, out) : 0;
	if (!r)
		r = srdma_flow_seal(&s->tx, p->pn, &io, out + p->tag_at);
	return r;
}

int srdma_session_seal(struct srdma_session *s, struct srdma_packet *p,
		       const uint8_t *payload, uint8_t *out, size_t cap)
{
	int len;

	if (cap < SRDMA_MAX_PACKET || !legal(s, p))
		return -EINVAL;
	if (!left(s, p))
		return -EKEYEXPIRED;
	p->pn = s->tx_pn;
	p->psn = (uint32_t)(p->pn & 0xffffff);
	p->epoch = s->tx.epochs.number & 3;
	p->qpn = s->peer_qpn;
	len = srdma_wire_build(p, out, s->tag_len);
	if (len < 0)
		return len;
	/* The number is used up before the cipher runs, so that no failure can
	 * lead to its reuse. */
	s->tx_pn++;
	s->sealed++;
	s->bytes += p->payload_len;
	if (s->sealed >= s->rekey.packets || s->bytes >= s->rekey.bytes)
		s->due = 0;
	if (protect(s, p, payload, out)) {
		srdma_wipe(out, (size_t)len);
		return -EIO;
	}
	if ((p->traits & SRDMA_T_REQUEST) && p->request_id >= s->own_next)
		s->own_next = p->request_id + 1;
	return len;
}
