#include "ahead.h"

#include "base/bytes.h"
#include "base/prefetch.h"
#include "relay_impl.h"

enum { CROWD = 128 }; /* fewer QPs stay in a core's own cache */

/* QPs of a burst, each once where its packets come one after the other. */
struct burst {
	uint32_t qpn[SRDMA_MAX_BURST];
	int count;
};

static void note(struct burst *b, uint32_t qpn)
{
	if (!b->count || b->qpn[b->count - 1] != qpn)
		b->qpn[b->count++] = qpn;
}

/* What the QP points to. */
static void ask_more(const struct srdma_qp *qp, int directions)
{
	srdma_prefetch(&qp->sq[qp->sq_tail & qp->sq_mask], sizeof(*qp->sq));
	if (qp->flights.ring)
		srdma_prefetch(&qp->flights.ring[qp->flights.head],
			       sizeof(*qp->flights.ring));
	if (qp->session)
		srdma_session_ahead(qp->session, directions);
}

/* Each step needs what the one before it asked for. */
static void ask(const struct srdma_relay *r, const struct burst *b,
		int directions)
{
	const struct srdma_qp *qp[SRDMA_MAX_BURST];

	for (int i = 0; i < b->count; i++)
		srdma_prefetch(srdma_relay_bucket(r, b->qpn[i]),
			       sizeof(struct srdma_qp *));
	for (int i = 0; i < b->count; i++) {
		qp[i] = *srdma_relay_bucket(r, b->qpn[i]);
		if (qp[i])
			srdma_prefetch(qp[i], sizeof(*qp[i]));
	}
	for (int i = 0; i < b->count; i++)
		if (qp[i])
			ask_more(qp[i], directions);
	for (int i = 0; i < b->count; i++)
		if (qp[i] && qp[i]->session)
			srdma_session_ahead_keys(qp[i]->session, directions);
}

void srdma_ahead_host(const struct srdma_relay *r, const struct srdma_event *ev,
		      int n)
{
	struct burst b;

	if (r->qp_count < CROWD)
		return;
	b.count = 0;
	for (int i = 0; i < n; i++)
		if (ev[i].kind == SRDMA_EV_RECV)
			note(&b,
			     srdma_desc_qpn(ev[i].buf->data, ev[i].buf->len));
	ask(r, &b, SRDMA_TX);
}

void srdma_ahead_wire(const struct srdma_relay *r, int n)
{
	const uint8_t *head[SRDMA_MAX_BURST];
	struct burst b;

	if (r->qp_count < CROWD || !r->wire->ops->ahead)
		return;
	b.count = 0;
	n = r->wire->ops->ahead(r->wire, head, n);
	for (int i = 0; i < n; i++)
		note(&b, (uint32_t)srdma_wire_qpn(head[i], SRDMA_BTH_LEN));
	ask(r, &b, SRDMA_RX | SRDMA_TX);
}
