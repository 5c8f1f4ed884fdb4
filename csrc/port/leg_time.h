/*
 * Time limits of the RC connection of a leg (docs/local-interface.md 2.4), for
 * both of its ends. A leg survives 8 s without a packet. A peer that lost its
 * power is noticed within 15 s.
 *
 * A packet is sent at 0, T, 2 T, .. RETRIES * T, with T = 4.096 us *
 * 2^ACK_TIMEOUT = 2.147 s: for the last time after 8.6 s. After 10.7 s the
 * device ends the connection. RETRIES is less than 7, which rxe takes for no
 * limit. A device may wait for up to 4 T (IBTA), so each end has a clock too:
 * BEAT + SILENCE + LOOK = 14 s.
 */
#ifndef SRDMA_PORT_LEG_TIME_H
#define SRDMA_PORT_LEG_TIME_H

enum srdma_leg_time {
	SRDMA_LEG_ACK_TIMEOUT = 19, /* code of IBTA, of local ACK timeout */
	SRDMA_LEG_RETRIES = 4,
	/* of the host, whose SENDs need receives of the worker: no limit. A
	 * stopped worker posts none, but its device answers. Heartbeats limit
	 * the time. */
	SRDMA_LEG_RNR_RETRIES = 7,
	SRDMA_LEG_RNR_TIMER = 20, /* of both, code of IBTA: 10.24 ms */
	/*
	 * Of an attempt to resolve address or route, ms. Linux may miss that a
	 * neighbour was resolved, and report it only after the time-out: it is
	 * short, and the attempt is repeated.
	 */
	SRDMA_LEG_RESOLVE_MS = 200,
	SRDMA_LEG_BEAT_MS = 2000, /* between two heartbeats */
	/* time after which a heartbeat without an ack ends the leg */
	SRDMA_LEG_SILENCE_MS = 11000,
	/* between two looks at a heartbeat that is under way */
	SRDMA_LEG_LOOK_MS = 1000,
};

#endif
