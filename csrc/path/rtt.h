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

/* 1: a packet should be sent with flag A to be measured: none is being measured,
 * and the last one left at least 0.2 ms ago. */
int srdma_rtt_wants(const struct srdma_rtt *r, uint64_t now);
/* A packet with flag A left: it is measured unless another one is. */
void srdma_rtt_sent(struct srdma_rtt *r, uint64_t pn, uint64_t now);
/* Call while no request is under way, when no timer runs that would give up the
 * packet that is measured. Gives it up if its ack is overdue. */
void srdma_rtt_doubt(struct srdma_rtt *r, uint64_t now);
/*
 * An ack named `highest`, the number of a packet that left at `sent` (0:
 * unknown). After a time-out the sample counts only if it belongs to this packet
 * for certain; such samples are needed to measure a path longer than the
 * time-out.
 */
void srdma_rtt_acked(struct srdma_rtt *r, uint64_t highest, uint64_t sent,
		     uint64_t now);
/* Takes a round-trip time, ns. */
void srdma_rtt_sample(struct srdma_rtt *r, uint64_t ns);
/* Smoothed round-trip time, ns; 0: nothing was measured. */
uint64_t srdma_rtt_smoothed(const struct srdma_rtt *r);

/* Time that a packet may be late on a wire that reorders, before it counts as
 * lost. */
uint64_t srdma_rtt_patience(const struct srdma_rtt *r);
/* The time-out of a timer, with its doublings. */
uint64_t srdma_rtt_timeout(const struct srdma_rtt *r,
			   enum srdma_rtt_timer timer);
/* The time-out without doublings; 100 ms before a round trip was measured. */
uint64_t srdma_rtt_plain(const struct srdma_rtt *r);
/* The time-out of SRDMA_RTT_ACK. */
uint64_t srdma_rtt_rto(const struct srdma_rtt *r);
/* The shorter of both time-outs. */
uint64_t srdma_rtt_least(const struct srdma_rtt *r);
/* The timer ran out: doubles its time-out. Returns the number of doublings. */
uint32_t srdma_rtt_back_off(struct srdma_rtt *r, enum srdma_rtt_timer timer);
/* The ack or response that the timer waited for arrived: resets its doublings,
 * if a round-trip time is known. */
void srdma_rtt_progress(struct srdma_rtt *r, enum srdma_rtt_timer timer);
/* The path is another one: drops the measurement under way and the doublings.
 * The smoothed round-trip time is kept. */
void srdma_rtt_reset(struct srdma_rtt *r);

#endif
