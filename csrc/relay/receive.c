/*
 * A datagram of the wire, through the stages of the receive side, in order:
 *
 *   parse     srdma_wire_parse(): fields and their legal values (2.5)
 *   window    packet number: in the window, and not seen before (4.1)
 *   verify    tag, and decryption (4.3)
 *
 * These three are srdma_session_open(). A verified control packet or response
 * goes to the requester, a verified request through the responder's stages:
 *
 *   sequence  position: expected, repeated or too early (5.2)
 *   access    region, rights, proof (6)
 *   execute   DMA, or a response slot (5)
 *   respond   acks and responses, when the DMA is done: pump.c calls it
 */
#include "path/path.h"
#include "path/probe.h"
#include "qp/inbound.h"
#include "relay/relay_impl.h"
#include "requester/requester.h"
#include "responder/responder.h"
#include "session/session.h"

enum { REPEAT_LAST_NS = 1000000 }; /* least time between final NAKs or CLOSEs */

/* RFC 5042 R6.4.4-1, A6.4.4 */
static void count_refusal(struct srdma_relay *r, struct srdma_qp *qp, int err)
{
	struct srdma_account_counts *counts = srdma_qp_counts(qp);

	r->env.stats.refused[-err]++;
	counts->bad_tags += err == -SRDMA_REFUSED_TAG;
	counts->replays += err == -SRDMA_REFUSED_REPLAY;
	counts->dropped +=
		err != -SRDMA_REFUSED_TAG && err != -SRDMA_REFUSED_REPLAY;
	if (err == -SRDMA_REFUSED_TAG &&
	    srdma_session_spent(srdma_qp_session(qp)))
		srdma_qp_fail(qp, SRDMA_REASON_FORGERY_LIMIT, SRDMA_OLDEST, 1);
}

static void count_verified(struct srdma_relay *r, struct srdma_qp *qp,
			   const struct srdma_packet *p)
{
	struct srdma_account_counts *counts = srdma_qp_counts(qp);
	struct srdma_stats *stats = &r->env.stats;

	srdma_tenant_urgent(&r->env.tenants, srdma_qp_tenant(qp),
			    p->payload_len);
	counts->packets_verified++;
	counts->bytes_verified += p->payload_len;
	if (srdma_qp_keyed(qp)->level == SRDMA_LEVEL_NONE) {
		stats->packets_unprotected_received++;
		return;
	}
	stats->packets_verified++;
	stats->bytes_verified += p->payload_len;
	srdma_qp_rekey_verified(qp, p);
}

/* The QP sends on another path, or its path was validated. Packets under way may
 * be lost. PING requests an ack that reports them, unless OPEN, which probed the
 * path (path.h), did. */
static void path_changed(struct srdma_qp *qp, int probed)
{
	if (!probed)
		srdma_path_restart(qp);
	if (srdma_inbound_busy(qp))
		srdma_inbound_progress(qp);
	if (srdma_qp_state(qp) != SRDMA_QP_RTS)
		return;
	if (!probed && srdma_requester_in_flight(qp))
		srdma_qp_schedule(qp, SRDMA_SAY_PING);
	srdma_path_arm(qp);
	srdma_qp_activate(qp);
}

static void follow(struct srdma_qp *qp, const struct srdma_packet *p,
		   struct srdma_conn *conn)
{
	const int changed = srdma_path_follow(qp, p, conn);

	if (changed)
		path_changed(qp, changed == 2);
}

/* The first verified packet: the peer has its keys too. */
static void ready_to_send(struct srdma_relay *r, struct srdma_qp *qp)
{
	if (srdma_qp_move(qp, SRDMA_QP_RTS))
		return;
	srdma_receive_queue_advertise(qp);
	srdma_qp_wake(qp, r->env.now + SRDMA_SECOND);
}

static void acknowledged(struct srdma_qp *qp, const struct srdma_packet *p)
{
	const uint8_t kind = p->ack.kind;

	if (!srdma_complete_ack(qp, p))
		return;
	if (kind == SRDMA_ACK_PING)
		srdma_responder_pinged(qp);
	else if (kind == SRDMA_ACK_ACK || kind == SRDMA_ACK_RNR)
		srdma_probe_answered(qp, p->ack.path);
}

/* Effects of a verified packet on a QP that is not in ERR. */
static void verified(struct srdma_relay *r, struct srdma_qp *qp,
		     struct srdma_conn *conn, const struct srdma_packet *p)
{
	count_verified(r, qp, p);
	srdma_responder_count(qp, p);
	follow(qp, p, conn);
	srdma_qp_set_heard(qp);
	ready_to_send(r, qp);
	if (p->flags & SRDMA_STH_ACK_NOW)
		srdma_qp_schedule(qp, SRDMA_SAY_ACK);
	if (!(p->traits & SRDMA_T_ACK))
		srdma_qp_entry(qp)->last_work = r->env.now;
	if (p->traits & SRDMA_T_REQUEST)
		srdma_responder_receive(qp, p, &r->spare);
	else if (p->traits & SRDMA_T_ACK)
		acknowledged(qp, p);
	else
		srdma_complete_response(qp, p, &r->spare);
	srdma_qp_activate(qp);
}

/* The QP is in ERR, and its final NAK or CLOSE seems to be lost, as the peer goes
 * on sending: repeats it (5.4). */
static void verified_late(struct srdma_relay *r, struct srdma_qp *qp,
			  struct srdma_conn *conn, const struct srdma_packet *p)
{
	count_verified(r, qp, p);
	if (p->opcode == SRDMA_OP_ACKNOWLEDGE &&
	    (p->ack.kind == SRDMA_ACK_NAK || p->ack.kind == SRDMA_ACK_CLOSE))
		return;
	if (r->env.now < srdma_qp_last(qp)->when + REPEAT_LAST_NS)
		return;
	follow(qp, p, conn);
	srdma_qp_repeat_last(qp);
}

/* 1: the QP opens packets. In ERR it does so to repeat its final NAK or CLOSE. */
static int opens(const struct srdma_qp *qp)
{
	return srdma_qp_can(qp, SRDMA_QP_OPENS) || srdma_qp_last(qp)->sent;
}

/* The QP that a datagram names; NULL: refused and counted. */
static struct srdma_qp *find(struct srdma_relay *r, const struct srdma_buf *in)
{
	const int32_t qpn = srdma_wire_qpn(in->data, in->len);
	struct srdma_qp *qp;

	if (qpn < 0) {
		r->env.stats.refused[SRDMA_REFUSED_SHORT]++;
		return NULL;
	}
	qp = srdma_relay_qp(r, (uint32_t)qpn);
	if (!qp) {
		r->env.stats.refused[SRDMA_REFUSED_UNKNOWN_QP]++;
		return NULL;
	}
	if (!opens(qp)) {
		r->env.stats.refused[SRDMA_REFUSED_QP_STATE]++;
		srdma_qp_counts(qp)->dropped++;
		return NULL;
	}
	return qp;
}

/* The plaintext lies in r->spare, which an op may take over. */
/* RFC 5042 A5.1.1c */
void srdma_receive_datagram(struct srdma_relay *r, struct srdma_conn *conn,
			    const struct srdma_buf *in)
{
	struct srdma_qp *qp = find(r, in);
	struct srdma_packet p;
	int err;

	if (!qp)
		return;
	err = srdma_session_open(srdma_qp_session(qp), &p, in->data, in->len,
				 r->spare->data);
	if (err)
		count_refusal(r, qp, err);
	else if (srdma_qp_state(qp) == SRDMA_QP_ERR)
		verified_late(r, qp, conn, &p);
	else
		verified(r, qp, conn, &p);
}
