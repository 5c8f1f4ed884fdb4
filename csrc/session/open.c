#include "session/session.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "session/session_state.h"
#include "wire/stats.h"

static int is_request(const struct srdma_packet *p)
{
	return (p->traits & SRDMA_T_REQUEST) != 0;
}

/* Infers the 62-bit packet number and checks the replay window (4.1). */
static int find_number(const struct srdma_session *s, struct srdma_packet *p)
{
	if (srdma_window_infer(&p->pn, s->window.next, p->psn))
		return -SRDMA_REFUSED_PN_RANGE;
	return srdma_window_test(&s->window, p->pn) ? -SRDMA_REFUSED_REPLAY : 0;
}

/* Infers the 62-bit request id: of the peer's requests if the packet is a
 * request, else of the local requests (4.2). */
static int find_request(const struct srdma_session *s, struct srdma_packet *p)
{
	const uint64_t expected = is_request(p) ? s->peer_next : s->own_next;

	if (srdma_window_infer(&p->request_id, expected,
			       (uint32_t)p->request_id))
		return -SRDMA_REFUSED_REQUEST_ID;
	if (!is_request(p) && p->request_id > expected)
		return -SRDMA_REFUSED_REQUEST_ID;
	if (p->opcode == SRDMA_OP_ACKNOWLEDGE &&
	    p->ack.request_id != (uint32_t)p->request_id)
		return -SRDMA_REFUSED_REQUEST_ID;
	return 0;
}

/* Selects the key slot by the epoch bits (3.5). Packet numbers rise with
 * epochs. The next epoch is reported as CHAIN; open_by() also tries FRESH. */
static int find_epoch(const struct srdma_session *s,
		      const struct srdma_packet *p, enum srdma_epoch_at *at)
{
	const struct srdma_epochs *e = &s->rx.epochs;

	*at = SRDMA_EPOCH_NOW;
	switch ((p->epoch - e->number) & 3) {
	case 0:
		return 0;
	case 1:
		*at = SRDMA_EPOCH_CHAIN;
		if (e->suite && e->number != UINT32_MAX &&
		    p->pn >= s->window.next)
			return 0;
		break;
	case 3:
		*at = SRDMA_EPOCH_BEFORE;
		if (e->key[SRDMA_EPOCH_BEFORE].live && p->pn < s->rx_first)
			return 0;
		break;
	}
	return -SRDMA_REFUSED_EPOCH;
}

/* Verifies with the selected key. The first packet of the next epoch decides
 * whether that epoch uses the new secret (FRESH) or the chain (CHAIN); *at is
 * set to the key that verified. */
static int open_by(struct srdma_session *s, const struct srdma_packet *p,
		   struct srdma_suite_io *io, enum srdma_epoch_at *at)
{
	const uint8_t *tag = p->data + p->tag_at;
	int r;

	if (*at == SRDMA_EPOCH_CHAIN &&
	    s->rx.epochs.key[SRDMA_EPOCH_FRESH].live) {
		r = srdma_flow_open(&s->rx, SRDMA_EPOCH_FRESH, p->pn, io, tag);
		if (!r)
			*at = SRDMA_EPOCH_FRESH;
		if (r != -EBADMSG)
			return r;
	}
	return srdma_flow_open(&s->rx, *at, p->pn, io, tag);
}

/* Verifies the tag. plain receives the payload only if the tag is correct. */
/* RFC 5042 A5.1.1a */
static int unprotect(struct srdma_session *s, const struct srdma_packet *p,
		     enum srdma_epoch_at *at, uint8_t *plain)
{
	const uint8_t *text = p->data + p->payload_at;
	struct srdma_suite_io io = {
		.in = text,
		.in_len = srdma_session_covered(s, p->payload_len),
		.out = plain, /* AEAD: out is wiped if the tag is wrong */
	};
	int r = 0;

	if (s->suite) {
		io.ad_len = srdma_flow_bind(
			&s->rx, p, srdma_epoch_number(&s->rx.epochs, *at));
		r = open_by(s, p, &io, at);
	}
	if (r == -EBADMSG) {
		srdma_session_forged(s, p->epoch);
		return -SRDMA_REFUSED_TAG;
	}
	if (r)
		return -SRDMA_REFUSED_PROVIDER;
	if (s->level != SRDMA_LEVEL_AEAD)
		memcpy(plain, text, p->payload_len);
	return 0;
}

/* Checks in the order of 4.6. State changes only at the end, after all checks;
 * a failed tag only counts. */
/* RFC 5042 R5.4.1-1 */
int srdma_session_open(struct srdma_session *s, struct srdma_packet *p,
		       const uint8_t *data, size_t len, uint8_t *plain)
{
	int r = srdma_wire_parse(p, data, len, s->tag_len, s->mtu);
	enum srdma_epoch_at at;

	if (r)
		return r;
	if (p->qpn != s->local_qpn)
		return -SRDMA_REFUSED_UNKNOWN_QP;
	if (srdma_session_spent(s) || s->closed)
		return -SRDMA_REFUSED_QP_STATE;
	r = find_number(s, p);
	if (!r)
		r = find_request(s, p);
	if (!r)
		r = find_epoch(s, p, &at);
	if (!r)
		r = unprotect(s, p, &at, plain);
	if (r)
		return r;
	srdma_window_commit(&s->window, p->pn);
	if (at > SRDMA_EPOCH_BEFORE)
		srdma_session_follow(s, at, p->pn);
	if (s->window.next > s->rx_passed)
		srdma_session_settle(s);
	if (is_request(p) && p->request_id >= s->peer_next)
		s->peer_next = p->request_id + 1;
	return 0;
}

size_t srdma_session_claim(const struct srdma_session *s,
			   const struct srdma_packet *p, const uint8_t **data)
{
	*data = s->rx.claim;
	return srdma_flow_claim_len(p);
}
