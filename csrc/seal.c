#include "session.h"

#include <errno.h>
#include <string.h>

#include "bytes.h"
#include "session_state.h"

/* Is this a packet that the peer's open would take? wire.c asks the rest. */
static int legal(const struct srdma_packet *p)
{
	if (p->request_id >= SRDMA_NUMBER_END)
		return 0;
	return p->opcode != SRDMA_OP_ACKNOWLEDGE ||
	       p->ack.request_id == (uint32_t)p->request_id;
}

/* Tag, and the payload as it travels, into the datagram that was built. */
static int protect(struct srdma_session *s, const struct srdma_packet *p,
		   const uint8_t *payload, uint8_t *out)
{
	const int aead = s->level == SRDMA_LEVEL_AEAD;
	uint8_t *text = out + p->payload_at;
	struct srdma_suite_io io = {
		.nonce = s->tx.nonce,
		.ad = s->tx.ad,
		/* A MAC covers what is sent, not what the caller may change. */
		.in = aead ? payload : text,
		.in_len = srdma_session_covered(s, p->payload_len),
		.out = text,
	};

	if (!aead && p->payload_len)
		memcpy(text, payload, p->payload_len);
	if (!s->suite)
		return 0;
	io.ad_len = srdma_flow_bind(&s->tx, p);
	return s->suite->verbs->seal(s->tx.ctx, &io, out + p->tag_at);
}

int srdma_session_seal(struct srdma_session *s, struct srdma_packet *p,
		       const uint8_t *payload, uint8_t *out, size_t cap)
{
	int len;

	if (cap < SRDMA_MAX_PACKET || !legal(p))
		return -EINVAL;
	if (s->sealed >= s->sealed_max || s->tx_pn >= SRDMA_NUMBER_END)
		return -EKEYEXPIRED;
	p->pn = s->tx_pn;
	p->psn = (uint32_t)(p->pn & 0xffffff);
	p->epoch = 0;
	p->qpn = s->peer_qpn;
	len = srdma_wire_build(p, out, s->tag_len);
	if (len < 0)
		return len;
	/* Spent before the cipher runs: no outcome uses the number again. */
	s->tx_pn++;
	s->sealed++;
	if (protect(s, p, payload, out)) {
		srdma_wipe(out, (size_t)len);
		return -EIO;
	}
	if ((srdma_wire_traits(p->opcode) & SRDMA_T_REQUEST) &&
	    p->request_id >= s->own_next)
		s->own_next = p->request_id + 1;
	return len;
}
