/*
 * Requests, acks, retries, two changes of epoch and the end of a session, with a
 * window of 4 (docs/protocol.md 3.5, 5.1, 5.4, 7.5): each request is executed
 * once and in order, every run ends, and both ends close.
 *
 * The network delivers in any order; it loses and repeats a few packets. Packets
 * carry a packet number, a request and an epoch; the receiver drops numbers that
 * it has seen. The retransmission timer runs out only when nothing is on its
 * way, or as one of a few that are premature.
 *
 * Without cycles in the graph of states every run ends; `timeout` sees its end.
 * The search for non-progress cycles (-DNP) finds a cycle if there is one.
 *
 * Twins (-DNAME) are errors, of which each must violate an assertion or make a
 * cycle.
 */
#ifndef REQUESTS
#define REQUESTS 4
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#define COPIES	  1
#define PREMATURE 1
#define WINDOW	  4
#define EPOCH	  2 /* packets after which the next epoch is due */
#define HARD	  7 /* packets of an epoch before the QP must end */
#define CHANGES	  2
#define CLOSE	  15 /* in place of a request */
#define BIT(n)	  (1 << (n))

chan net = [6] of { byte, byte, byte }; /* packet number, request, epoch */
chan acks = [6] of { byte, byte }; /* requests executed, highest number */

byte next_pn = 1, first_pn = 1, confirmed, epoch, sealed, changes;
byte next_request, executed_by_acks;
bool closed;

byte expected, held, highest, rx_epoch;
int seen;
bool owes; /* an ack is due */
bool peer_closed;

byte losses, copies, premature;

inline seal(what)
{
	if
	:: sealed >= EPOCH && changes < CHANGES && confirmed >= first_pn ->
		epoch++;
		changes++;
		sealed = 0;
		first_pn = next_pn
	:: !(sealed >= EPOCH && changes < CHANGES && confirmed >= first_pn)
	fi;
	assert(sealed < HARD || changes == CHANGES);
	net!next_pn, what, epoch;
	next_pn++;
	sealed++
}

#define WAITS !closed && executed_by_acks < next_request && nfull(net)

inline again()
{
#ifdef SAME_NUMBER
	net!executed_by_acks + 1, executed_by_acks, epoch
#else
#ifdef NO_RETRY
	skip
#else
	seal(executed_by_acks)
#endif
#endif
}

proctype Sender()
{
	byte e, h;

endless:
	do
	:: atomic {
		!closed && next_request < REQUESTS &&
		next_request < executed_by_acks + WINDOW && nfull(net) ->
		seal(next_request);
		next_request++
	}
	/* The timer: the oldest request is sent again, with a new number. */
	:: atomic { WAITS && empty(net) && empty(acks) && !owes -> again() }
	:: atomic { WAITS && premature < PREMATURE -> premature++; again() }
	:: atomic {
		acks??e, h ->
		executed_by_acks = (e > executed_by_acks -> e : executed_by_acks);
#ifndef ACKS_CONFIRM_NOTHING
		confirmed = (h > confirmed -> h : confirmed);
#endif
		e = 0; h = 0
	}
	/* CLOSE is not acknowledged. */
	:: atomic {
		!closed && executed_by_acks == REQUESTS && nfull(net) ->
		closed = true;
		seal(CLOSE)
	}
	od
}

inline execute()
{
	do
	:: held & BIT(expected) ->
		held = held & (255 - BIT(expected));
		expected++
	:: else -> break
	od
}

proctype Receiver()
{
	byte pn, what, e;

endless:
	do
	:: atomic {
		net??pn, what, e ->
		if
		:: (seen & BIT(pn)) || peer_closed
		:: !(seen & BIT(pn)) && !peer_closed ->
			assert(e <= rx_epoch + 1); /* one change at a time */
			assert(e + 1 >= rx_epoch || pn < highest);
			seen = seen | BIT(pn);
			rx_epoch = (e > rx_epoch -> e : rx_epoch);
			highest = (pn > highest -> pn : highest);
			if
			:: what == CLOSE ->
				assert(expected == REQUESTS);
				peer_closed = true;
				owes = false
			:: what != CLOSE ->
				owes = true;
				if
#ifdef EXECUTED_AGAIN
				:: true -> held = held | BIT(what)
#else
				:: what >= expected -> held = held | BIT(what)
				:: what < expected /* a repetition: ack only */
#endif
				fi;
				assert(!(held & (BIT(expected) - 1)));
				execute()
			fi
		fi;
		pn = 0; what = 0; e = 0
	}
	/* One ack for a burst. */
	:: atomic { owes && nfull(acks) -> acks!expected, highest; owes = false }
#ifndef SILENCE_UNNOTICED
	/* The CLOSE was lost: the peer is silent for too long (7.5). */
	:: atomic { closed && empty(net) && !peer_closed -> peer_closed = true; owes = false }
#endif
	od
}

proctype Network()
{
	byte a, b, c;

endless:
	do
	:: atomic { losses < LOSSES && nempty(net) -> net??a, b, c; losses++; a = 0; b = 0; c = 0 }
	:: atomic { losses < LOSSES && nempty(acks) -> acks??a, b; losses++; a = 0; b = 0 }
	:: atomic { copies < COPIES && nempty(net) && nfull(net) ->
		net?<a, b, c>; net!a, b, c; copies++; a = 0; b = 0; c = 0 }
	od
}

init
{
	atomic { run Sender(); run Receiver(); run Network() }
	timeout ->
	assert(expected == REQUESTS && executed_by_acks == REQUESTS);
	assert(closed && peer_closed)
}
