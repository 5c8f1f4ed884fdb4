/*
 * Round-trip time of a path and the time-outs that follow from it (RFC 6298;
 * docs/protocol.md 5.1). All times are ns. It reads no clock.
 */
#ifndef SRDMA_PATH_RTT_H
#define SRDMA_PATH_RTT_H

#include <stdint.h>

struct srdma_rtt;

/* The two timers of a requester back off separately. */
enum srdma_rtt_timer {
	SRDMA_RTT_ACK,	    /* an ack is due */
	SRDMA_RTT_RESPONSE, /* a response is due */
	SRDMA_RTT_TIMERS,
};

/* 1: a packet may be measured now; one at a time is. */
int srdma_rtt_wants(const struct srdma_rtt *r, uint64_t now);
/* A packet with flag A left. */
void srdma_rtt_sent(struct srdma_rtt *r, uint64_t pn, uint64_t now);
/* No request is under way, so no timer gives up the packet that is measured: if
 * its ack is overdue, it was lost. */
void srdma_rtt_doubt(struct srdma_rtt *r, uint64_t now);
/*
 * The peer acknowledged its highest packet number, of a packet that left at
 * `sent` (0: unknown). A packet that a timer may have given up is measured too
 * if it is certainly this one; else a path longer than the time-out would never
 * be measured.
 */
void srdma_rtt_acked(struct srdma_rtt *r, uint64_t highest, uint64_t sent,
		     uint64_t now);
void srdma_rtt_sample(struct srdma_rtt *r, uint64_t ns);
/* Smoothed round-trip time; 0: nothing was measured. */
uint64_t srdma_rtt_smoothed(const struct srdma_rtt *r);

/* How much later than others a packet may arrive where packets may overtake
 * each other. */
uint64_t srdma_rtt_patience(const struct srdma_rtt *r);
/* The time-out of a timer, with its doublings. */
uint64_t srdma_rtt_timeout(const struct srdma_rtt *r,
			   enum srdma_rtt_timer timer);
/* The time-out of SRDMA_RTT_ACK. */
uint64_t srdma_rtt_rto(const struct srdma_rtt *r);
/* The shorter one of both time-outs. */
uint64_t srdma_rtt_least(const struct srdma_rtt *r);
/* The timer ran out: one more doubling. Returns how many there are. */
uint32_t srdma_rtt_back_off(struct srdma_rtt *r, enum srdma_rtt_timer timer);
/* What the timer waited for arrived: no doublings, if a round-trip time is
 * known. */
void srdma_rtt_progress(struct srdma_rtt *r, enum srdma_rtt_timer timer);
/* The path is another one: nothing is being measured, no doublings. */
void srdma_rtt_reset(struct srdma_rtt *r);

#endif
