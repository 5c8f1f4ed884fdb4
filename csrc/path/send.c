/*
 * Packets to the wire (docs/protocol.md 5.1): sealed under the next packet
 * number and committed to the QP's path.
 */
#include <errno.h>

#include "ledger/ledger.h"
#include "path/bare.h"
#include "path/limit.h"
#include "path/path_impl.h"
#include "path/probe.h"
#include "qp/env.h"
#include "qp/qp.h"
#include "session/session.h"

enum {
	PN_ASK = 1 << 20,
	PN_LEAD = 1 << 22,
};

void srdma_path_begin(struct srdma_qp *qp, uint64_t pn)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	x->first_pn = pn;
	x->acked_pn = pn - 1;
}

static uint64_t lead_of(const struct srdma_qp_path *x)
{
	return srdma_session_next_pn(srdma_qp_session(x->qp)) - x->acked_pn;
}

/* 1: the lead of packet numbers permits one more packet now. */
static int is_near(const struct srdma_qp_path *x)
{
	return lead_of(x) <= PN_LEAD ||
	       x->env->now >= x->probed + srdma_rtt_rto(&x->rtt);
}

/*
 * Limits the lead of packet numbers over the highest acknowledged one (5.1).
 * Above 2^20 each packet requests an ack; above 2^22 one packet per RTO may
 * leave, else -EAGAIN.
 */
static int keep_near(struct srdma_qp_path *x, struct srdma_packet *p)
{
	if (lead_of(x) <= PN_ASK)
		return 0;
	if (!is_near(x))
		return -EAGAIN;
	p->flags |= SRDMA_STH_ACK_NOW;
	x->probed = x->env->now;
	return 0;
}

/* A response left. If none was watched, this one is: its confirmation is due. */
static void answered(struct srdma_qp_path *x, uint64_t pn)
{
	if (x->answered)
		return;
	x->answer_pn = pn;
	x->answered = x->env->now;
	srdma_qp_wake(x->qp, x->env->now + x->env->ping);
}

uint64_t srdma_path_unconfirmed(const struct srdma_qp *qp)
{
	const struct srdma_qp_path *x = srdma_qp_path(qp);

	return x->answered ? x->answered : SRDMA_NEVER;
}

void srdma_path_unwatch(struct srdma_qp *qp)
{
	srdma_qp_path(qp)->answered = 0;
}

/* A packet left. Flag A: its round trip is measured. OPEN, PING: its time-out
 * starts. */
static void left(struct srdma_qp_path *x, const struct srdma_packet *p)
{
	if (p->traits & SRDMA_T_ANSWER)
		answered(x, p->pn);
	if (!(p->flags & SRDMA_STH_ACK_NOW))
		return;
	srdma_rtt_sent(&x->rtt, p->pn, x->env->now);
	if (p->opcode == SRDMA_OP_ACKNOWLEDGE &&
	    (p->ack.kind == SRDMA_ACK_OPEN || p->ack.kind == SRDMA_ACK_PING)) {
		x->progress = x->env->now;
		srdma_path_arm(x->qp);
	}
}

/* At the limit of the key, the QP fails and a last CLOSE is tried. When that
 * fails too, or the provider failed, no CLOSE is sent. */
static void cannot_seal(struct srdma_qp *qp, int err)
{
	if (err == -EKEYEXPIRED && srdma_qp_state(qp) != SRDMA_QP_ERR) {
		srdma_qp_fail(qp, SRDMA_REASON_KEY_LIMIT, SRDMA_OLDEST, 1);
		return;
	}
	srdma_qp_fail(qp, SRDMA_REASON_PROVIDER, SRDMA_OLDEST, 0);
	srdma_qp_mute(qp);
}

static void count(struct srdma_qp_path *x, const struct srdma_packet *p,
		  uint32_t len)
{
	struct srdma_account_counts *counts = srdma_qp_counts(x->qp);
	struct srdma_stats *stats = &x->env->stats;

	if (p->opcode == SRDMA_OP_ACKNOWLEDGE)
		srdma_tenant_urgent(&x->env->tenants, srdma_qp_tenant(x->qp),
				    0);
	else
		srdma_tenant_sent(&x->env->tenants, srdma_qp_tenant(x->qp),
				  p->payload_len);
	counts->packets_sent++;
	counts->bytes_sent += p->payload_len;
	stats->wire_bytes_sent += len;
	if (srdma_qp_keyed(x->qp)->level == SRDMA_LEVEL_NONE) {
		stats->packets_unprotected_sent++;
		return;
	}
	stats->packets_sealed++;
	stats->bytes_sealed += p->payload_len;
	stats->proofs_made += (p->flags & SRDMA_STH_PROOF) != 0;
}

/* A control packet over UDP: checks the limit of the path and fills in the field
 * `path` (7.3). 0 or -EAGAIN. */
static int admit(struct srdma_qp_path *x, int other, struct srdma_packet *p)
{
	const uint32_t len =
		srdma_session_control_len(srdma_qp_session(x->qp), p->ack.gaps);

	if (!srdma_limit_permits(x, other, p, len))
		return -EAGAIN;
	p->ack.path = srdma_probe_word(x, other, p);
	return 0;
}

/* A control packet left over UDP. */
static void told(struct srdma_qp_path *x, int other,
		 const struct srdma_packet *p, uint32_t len)
{
	const uint8_t kind = p->ack.kind;

	srdma_limit_sent(x, other, p, len);
	if (kind == SRDMA_ACK_ACK || kind == SRDMA_ACK_RNR)
		srdma_probe_answer_left(x);
}

/* other: 1 to send to the candidate. */
static int send_to(struct srdma_qp_path *x, int other, struct srdma_packet *p,
		   const uint8_t *payload)
{
	struct srdma_conn *conn = other ? x->candidate : x->conn;
	struct srdma_port *wire = x->env->wire;
	uint8_t *out = wire->ops->reserve(conn);
	const int probes = srdma_path_is_one_way(conn) &&
			   p->opcode == SRDMA_OP_ACKNOWLEDGE &&
			   !(p->flags & SRDMA_STH_BARE);
	int len;

	if (!out || keep_near(x, p) || (probes && admit(x, other, p)))
		return -EAGAIN;
	len = srdma_qp_rekey_seal(x->qp, p, x->acked_pn,
				  srdma_rtt_rto(&x->rtt));
	if (!len)
		len = srdma_session_seal(srdma_qp_session(x->qp), p, payload,
					 out, SRDMA_MAX_PACKET);
	if (len < 0) {
		cannot_seal(x->qp, len);
		return len;
	}
	if (srdma_bare_permits(x, p))
		wire->ops->commit_bare(conn, (uint32_t)len);
	else
		wire->ops->commit(conn, (uint32_t)len);
	count(x, p, (uint32_t)len);
	if (probes)
		told(x, other, p, (uint32_t)len);
	return 0;
}

/* Asks for bare datagrams, or consents to them, behind a packet of 2.4. */
static void say_of_bare(struct srdma_qp_path *x, const struct srdma_packet *p)
{
	const uint8_t flags = srdma_bare_next(x, p);
	struct srdma_packet ack;

	if (!flags)
		return;
	ack = *p;
	ack.flags = flags;
	ack.ack.kind = SRDMA_ACK_ACK;
	ack.ack.path = 0;
	if (!send_to(x, 0, &ack, NULL))
		srdma_bare_said(x, &ack);
}

int srdma_path_send(struct srdma_qp *qp, struct srdma_packet *p,
		    const uint8_t *payload)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	int err = send_to(x, 0, p, payload);

	if (!err) {
		left(x, p);
		say_of_bare(x, p);
	}
	return err;
}

int srdma_path_send_probe(struct srdma_qp *qp, struct srdma_packet *p)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	return x->candidate ? send_to(x, 1, p, NULL) : 0;
}

int srdma_path_has_room(const struct srdma_qp *qp)
{
	const struct srdma_qp_path *x = srdma_qp_path(qp);

	return is_near(x) && x->env->wire->ops->reserve(x->conn);
}

uint64_t srdma_path_first(const struct srdma_qp *qp)
{
	return srdma_qp_path(qp)->first_pn;
}

uint64_t srdma_path_acked(const struct srdma_qp *qp)
{
	return srdma_qp_path(qp)->acked_pn;
}

void srdma_path_set_acked(struct srdma_qp *qp, uint64_t highest)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	x->acked_pn = highest;
	if (highest >= x->shown_by)
		srdma_path_remember(x, srdma_path_of(x->conn));
	if (highest >= x->answer_pn)
		x->answered = 0;
	srdma_qp_rekey_acked(qp, highest);
}

struct srdma_rtt *srdma_path_rtt(const struct srdma_qp *qp)
{
	return &srdma_qp_path(qp)->rtt;
}

uint64_t srdma_path_progress(const struct srdma_qp *qp)
{
	return srdma_qp_path(qp)->progress;
}

void srdma_path_set_progress(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	x->progress = x->env->now;
}

void srdma_path_arm(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	srdma_qp_wake(qp, x->env->now + srdma_rtt_least(&x->rtt));
}
