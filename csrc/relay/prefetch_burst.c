#include "relay/prefetch_burst.h"

#include "base/prefetch.h"
#include "relay/relay_impl.h"
#include "requester/requester.h"
#include "session/session.h"

enum { CROWD = 128 }; /* fewer QPs stay in a core's own cache */

/* QPs of a burst; a QP with packets in a row is listed once for them. */
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
static void fetch_parts(const struct srdma_qp *qp, int directions)
{
	const struct srdma_session *session = srdma_qp_session(qp);

	srdma_requester_prefetch(qp);
	if (session)
		srdma_session_prefetch(session, directions);
}

/* Each step needs the lines that the step before it fetched. */
static void fetch(const struct srdma_relay *r, const struct burst *b,
		  int directions)
{
	const struct srdma_qp *qp[SRDMA_MAX_BURST];

	for (int i = 0; i < b->count; i++)
		srdma_prefetch(srdma_relay_bucket(r, b->qpn[i]),
			       sizeof(struct srdma_qp *));
	for (int i = 0; i < b->count; i++) {
		qp[i] = *srdma_relay_bucket(r, b->qpn[i]);
		if (qp[i])
			srdma_qp_prefetch(qp[i]);
	}
	for (int i = 0; i < b->count; i++)
		if (qp[i])
			fetch_parts(qp[i], directions);
	for (int i = 0; i < b->count; i++)
		if (qp[i] && srdma_qp_session(qp[i]))
			srdma_session_prefetch_keys(srdma_qp_session(qp[i]),
						    directions);
}

void srdma_prefetch_burst_host(const struct srdma_relay *r,
			       const struct srdma_event *ev, int n)
{
	struct burst b;

	if (r->qp_count < CROWD)
		return;
	b.count = 0;
	for (int i = 0; i < n; i++)
		if (ev[i].kind == SRDMA_EV_RECV)
			note(&b,
			     srdma_desc_qpn(ev[i].buf->data, ev[i].buf->len));
	fetch(r, &b, SRDMA_TX);
}

void srdma_prefetch_burst_wire(const struct srdma_relay *r, int n)
{
	struct srdma_port *wire = r->env.wire;
	const uint8_t *head[SRDMA_MAX_BURST];
	struct burst b;

	if (r->qp_count < CROWD || !wire->ops->prefetch)
		return;
	b.count = 0;
	n = wire->ops->prefetch(wire, head, n);
	for (int i = 0; i < n; i++)
		note(&b, (uint32_t)srdma_wire_qpn(head[i], SRDMA_BTH_LEN));
	fetch(r, &b, SRDMA_RX | SRDMA_TX);
}
