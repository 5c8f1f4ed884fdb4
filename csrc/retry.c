/*
 * What is sent again by the clock (docs/protocol.md 5.1, 5.3, 7): when nothing
 * moved for a round-trip time-out (RTO), a lost tail, a lost ack or a lost
 * credit would else be waited for until the request's deadline. No timer is
 * set while nothing is outstanding, nor for what has not left yet: a blocked
 * wire is no loss.
 */
#include "mutant.h"
#include "relay_impl.h"

enum { ELSEWHERE = 3 }; /* time-outs in a row, and nothing was heard */

/* What left last may be a packet, or ask for a part. */
void srdma_retry_arm(struct srdma_qp *qp)
{
	const struct srdma_rtt *r = &qp->rtt;
	uint32_t least =
		r->backoff < r->unanswered ? r->backoff : r->unanswered;

	srdma_relay_wake_qp(qp, qp->relay->now + srdma_rtt_doubled(r, least));
}

void srdma_retry_reset(struct srdma_qp *qp)
{
	srdma_rtt_reset(&qp->rtt);
	srdma_congestion_restart(&qp->sending);
	srdma_congestion_restart(&qp->asking);
	qp->progress = qp->relay->now;
}

void srdma_retry_rewired(struct srdma_qp *qp, int ask)
{
	if (ask) /* else that began it */
		srdma_retry_reset(qp);
	if (qp->place.count || qp->slots_count)
		qp->served = qp->relay->now;
	if (SRDMA_MUTANT(FLIGHTS_FORGOTTEN))
		srdma_flight_acknowledge(&qp->flights, qp->sq_next, 0);
	if (qp->state != SRDMA_QP_RTS)
		return;
	if (ask && qp->flights.count)
		qp->ctl |= SRDMA_SAY_PING;
	srdma_retry_arm(qp);
	srdma_relay_activate(qp);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What was overtaken, and did not come for a part of a round trip, is lost. */
static uint64_t expire_late(struct srdma_qp *qp, uint64_t now)
{
	uint64_t patience = srdma_rtt_patience(&qp->rtt);
	uint64_t due = earlier(
		srdma_flight_expire(&qp->flights, now, qp->rtt.srtt + patience),
		srdma_part_expire(&qp->parts, now, patience));
	uint64_t serial;

	if (qp->parts.wanted || srdma_flight_next_lost(&qp->flights, &serial))
		srdma_relay_activate(qp);
	return due;
}

static void moved_on(struct srdma_qp *qp)
{
	qp->progress = qp->relay->now;
	srdma_rtt_moved(&qp->rtt);
	if (qp->flights.count || qp->parts.count)
		srdma_retry_arm(qp);
}

/* An ack says nothing of whether answers can come. */
void srdma_retry_answered(struct srdma_qp *qp)
{
	srdma_rtt_answered(&qp->rtt);
	srdma_retry_heard(qp, 1);
}

/* Even what moved nothing may tell of a gap, or of a shorter round trip. */
void srdma_retry_heard(struct srdma_qp *qp, int moved)
{
	if (moved)
		moved_on(qp);
	srdma_relay_wake_qp(qp, expire_late(qp, qp->relay->now));
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* When a timer that runs since a moment, after so many doublings, runs out;
 * SRDMA_NEVER: it just did. */
static uint64_t run(struct srdma_qp *qp, uint64_t since, uint64_t now,
		    uint32_t *doublings)
{
	uint64_t due = since + srdma_rtt_doubled(&qp->rtt, *doublings);

	if (now < due)
		return due;
	qp->relay->stats.timeouts++;
	qp->progress = now;
	srdma_rtt_back_off(doublings);
	srdma_retry_arm(qp);	/* what it has sent again may be blocked */
	srdma_link_go_home(qp); /* where it is nobody answers */
	if (*doublings >= ELSEWHERE && qp->heard < since)
		srdma_link_try_another(qp);
	srdma_relay_activate(qp);
	return SRDMA_NEVER;
}

/* Say it again, if it was said and moved nothing. The timer is set when it
 * leaves. */
static uint64_t say_again(struct srdma_qp *qp, enum srdma_say word,
			  uint64_t now)
{
	uint64_t due;

	if (qp->ctl & word)
		return SRDMA_NEVER;
	due = run(qp, qp->progress, now, &qp->rtt.backoff);
	if (due == SRDMA_NEVER)
		qp->ctl |= (uint8_t)word;
	return due;
}

static uint64_t expire_open(struct srdma_qp *qp, uint64_t now)
{
	uint64_t due;

	if (!qp->home)
		return SRDMA_NEVER;
	due = say_again(qp, SRDMA_SAY_OPEN, now);
	qp->relay->stats.packets_resent += due == SRDMA_NEVER;
	return due;
}

/* Nothing comes at all: more than one packet is lost (5.5). It has just backed
 * off. */
static int is_silent(const struct srdma_qp *qp, uint64_t now,
		     uint32_t doublings)
{
	return now - qp->heard >= srdma_rtt_doubled(&qp->rtt, doublings) / 2;
}

static uint64_t expire_flights(struct srdma_qp *qp, uint64_t now)
{
	struct srdma_flight *x = srdma_flight_oldest(&qp->flights);
	uint64_t due;

	if (!qp->flights.count || SRDMA_MUTANT(TIMER_IGNORED))
		return SRDMA_NEVER;
	if (!x)
		return say_again(qp, SRDMA_SAY_PING, now);
	if (x->state != SRDMA_FLIGHT_UNDER_WAY && !srdma_cut_blocked(qp))
		return SRDMA_NEVER;
	due = run(qp, later(qp->progress, x->sent), now, &qp->rtt.backoff);
	if (due != SRDMA_NEVER)
		return due;
	if (is_silent(qp, now, qp->rtt.backoff))
		srdma_congestion_timeout(&qp->sending);
	if (x->state != SRDMA_FLIGHT_AGAIN)
		srdma_flight_lose(&qp->flights, x);
	return due;
}

static uint64_t expire_parts(struct srdma_qp *qp, uint64_t now)
{
	const struct srdma_part *oldest = qp->parts.head;
	uint64_t due;

	if (!oldest || oldest->state != SRDMA_PART_ASKED ||
	    srdma_flight_at(&qp->flights, oldest->flight))
		return SRDMA_NEVER;
	due = run(qp, oldest->since, now, &qp->rtt.unanswered);
	if (due != SRDMA_NEVER)
		return due;
	if (is_silent(qp, now, qp->rtt.unanswered))
		srdma_congestion_timeout(&qp->asking);
	srdma_part_lose(&qp->parts);
	return due;
}

uint64_t srdma_retry_expire(struct srdma_qp *qp, uint64_t now)
{
	uint64_t due;

	if (!srdma_dial_settled(qp))
		return expire_open(qp, now);
	due = expire_late(qp, now);
	due = earlier(due, expire_flights(qp, now));
	due = earlier(due, expire_parts(qp, now));
	if ((qp->starving && srdma_cut_starves(qp)) || qp->renewing)
		due = earlier(due, say_again(qp, SRDMA_SAY_PING, now));
	return due;
}
