/*
 * Time-outs of the requester (docs/protocol.md 5.1, 5.3, 7). When nothing was
 * acknowledged for a round-trip time-out (RTO), a lost last packet, a lost ack
 * or a lost credit is repaired here, long before the request's time limit. No
 * timer runs while nothing is outstanding, nor for packets that a blocked wire
 * holds back.
 */
#include "ledger/ledger.h"
#include "path/bare.h"
#include "path/connect.h"
#include "path/probe.h"
#include "requester/requester_impl.h"

/*
 * Time-outs in a row after which the peer's consent to bare datagrams ends (11a),
 * and after which a path is left.
 */
enum { DOUBTED = 2, ELSEWHERE = 3 };

/* Marks as lost what was overtaken a part of a round trip ago. Returns the time
 * of the next call. */
static uint64_t expire_late(struct srdma_requester *rq, uint64_t now)
{
	const struct srdma_rtt *rtt = srdma_path_rtt(rq->qp);
	uint64_t patience = srdma_rtt_patience(rtt);
	uint64_t due = srdma_time_earlier(
		srdma_flight_expire(&rq->flights, now,
				    srdma_rtt_smoothed(rtt) + patience),
		srdma_read_chunk_expire(&rq->chunks, now, patience));
	uint64_t serial;

	if (rq->chunks.wanted || srdma_flight_next_lost(&rq->flights, &serial))
		srdma_qp_activate(rq->qp);
	return due;
}

static void moved_on(struct srdma_requester *rq)
{
	srdma_path_set_progress(rq->qp);
	srdma_rtt_progress(srdma_path_rtt(rq->qp), SRDMA_RTT_ACK);
	if (rq->flights.count || rq->chunks.count)
		srdma_path_arm(rq->qp);
}

/* Only a response proves that responses arrive; an ack does not. */
void srdma_retry_responded(struct srdma_requester *rq)
{
	srdma_rtt_progress(srdma_path_rtt(rq->qp), SRDMA_RTT_RESPONSE);
	srdma_retry_acked(rq, 1);
}

/* An ack without news may still report a gap or a shorter round trip. */
void srdma_retry_acked(struct srdma_requester *rq, int moved)
{
	if (moved)
		moved_on(rq);
	srdma_qp_wake(rq->qp, expire_late(rq, rq->env->now));
}

/* A timer that started at `since`. Returns when it runs out; SRDMA_NEVER: it ran
 * out now, and its time-out has doubled. */
static uint64_t run(struct srdma_requester *rq, enum srdma_rtt_timer timer,
		    uint64_t since, uint64_t now)
{
	struct srdma_qp *qp = rq->qp;
	struct srdma_rtt *rtt = srdma_path_rtt(qp);
	uint64_t due = since + srdma_rtt_timeout(rtt, timer);
	uint32_t doublings;

	if (now < due)
		return due;
	rq->env->stats.timeouts++;
	srdma_path_set_progress(qp);
	doublings = srdma_rtt_back_off(rtt, timer);
	srdma_path_arm(qp);    /* in case the repeated packet is blocked */
	srdma_path_go_own(qp); /* no answer on the present path */
	if (doublings >= DOUBTED)
		srdma_bare_end(qp);
	if (doublings >= ELSEWHERE && srdma_qp_heard(qp) < since)
		srdma_path_try_another(qp);
	srdma_qp_activate(qp);
	return SRDMA_NEVER;
}

/* Sends a control packet again if it left and nothing was acknowledged since.
 * Its timer starts when it leaves. */
static uint64_t say_again(struct srdma_requester *rq, enum srdma_say what,
			  uint64_t now)
{
	uint64_t due;

	if (srdma_qp_scheduled(rq->qp) & what)
		return SRDMA_NEVER;
	due = run(rq, SRDMA_RTT_ACK, srdma_path_progress(rq->qp), now);
	if (due == SRDMA_NEVER)
		srdma_qp_schedule(rq->qp, what);
	return due;
}

static uint64_t expire_open(struct srdma_requester *rq, uint64_t now)
{
	uint64_t due;

	if (!srdma_path_has_own(rq->qp) || srdma_qp_keyed(rq->qp)->role)
		return SRDMA_NEVER;
	due = say_again(rq, SRDMA_SAY_OPEN, now);
	rq->env->stats.packets_resent += due == SRDMA_NEVER;
	srdma_qp_counts(rq->qp)->packets_resent += due == SRDMA_NEVER;
	return due;
}

/* 1: no packet arrives at all, so more than one is lost (5.5). The time-out has
 * just doubled. */
static int is_silent(const struct srdma_requester *rq, uint64_t now,
		     enum srdma_rtt_timer timer)
{
	return now - srdma_qp_heard(rq->qp) >=
	       srdma_rtt_timeout(srdma_path_rtt(rq->qp), timer) / 2;
}

static uint64_t expire_flights(struct srdma_requester *rq, uint64_t now)
{
	struct srdma_flight *x = srdma_flight_oldest(&rq->flights);
	uint64_t due;

	if (!rq->flights.count)
		return SRDMA_NEVER;
	if (!x)
		return say_again(rq, SRDMA_SAY_PING, now);
	if (x->state != SRDMA_FLIGHT_UNDER_WAY && !srdma_segment_blocked(rq))
		return SRDMA_NEVER;
	due = run(rq, SRDMA_RTT_ACK,
		  srdma_time_later(srdma_path_progress(rq->qp), x->sent), now);
	if (due != SRDMA_NEVER)
		return due;
	if (is_silent(rq, now, SRDMA_RTT_ACK))
		srdma_congestion_timeout(&rq->requests);
	if (x->state != SRDMA_FLIGHT_AGAIN)
		srdma_flight_lose(&rq->flights, x);
	return due;
}

static uint64_t expire_chunks(struct srdma_requester *rq, uint64_t now)
{
	const struct srdma_read_chunk *oldest = rq->chunks.head;
	uint64_t due;

	if (!oldest || oldest->state != SRDMA_READ_CHUNK_ASKED ||
	    srdma_flight_at(&rq->flights, oldest->flight))
		return SRDMA_NEVER;
	due = run(rq, SRDMA_RTT_RESPONSE, oldest->since, now);
	if (due != SRDMA_NEVER)
		return due;
	if (is_silent(rq, now, SRDMA_RTT_RESPONSE))
		srdma_congestion_timeout(&rq->responses);
	srdma_read_chunk_lose(&rq->chunks);
	return due;
}

uint64_t srdma_retry_expire(struct srdma_qp *qp, uint64_t now)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);
	uint64_t due;

	if (!srdma_connect_validated(qp))
		return expire_open(rq, now);
	due = expire_late(rq, now);
	due = srdma_time_earlier(due, expire_flights(rq, now));
	due = srdma_time_earlier(due, expire_chunks(rq, now));
	if ((rq->starving && srdma_segment_starves(rq)) ||
	    srdma_qp_rekeying(qp) || srdma_probe_feeds(qp))
		due = srdma_time_earlier(due,
					 say_again(rq, SRDMA_SAY_PING, now));
	return due;
}

uint64_t srdma_retry_deadline(struct srdma_qp *qp, uint64_t now)
{
	struct srdma_requester *rq = srdma_qp_requester(qp);
	const struct srdma_wqe *w;
	uint64_t i = rq->sq_head;
	int waits;

	while (i < rq->sq_tail && srdma_requester_wqe(rq, i)->done)
		i++;
	if (i == rq->sq_tail)
		return SRDMA_NEVER;
	w = srdma_requester_wqe(rq, i);
	if (now < w->deadline)
		return w->deadline;
	waits = !w->started && srdma_qp_state(qp) == SRDMA_QP_RTS &&
		srdma_desc_consumes_recv(w->opcode) &&
		rq->recv_credit == rq->sends;
	srdma_qp_fail(
		qp, waits ? SRDMA_REASON_NO_RECV_CREDIT : SRDMA_REASON_DEADLINE,
		i, 1);
	return SRDMA_NEVER;
}
