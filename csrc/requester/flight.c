#include "requester/flight.h"

#include <errno.h>

#include "base/time.h"

enum {
	REORDERED = 3, /* later packets that arrived before it counts as lost */
	TRIES = 16,    /* resends after which only a timer sends it again */
	LOOKS = 64,    /* flights that srdma_flight_sent() examines */
	FIRST_ROOM = 8,
};

static struct srdma_position start_of(const struct srdma_flight *x)
{
	return (struct srdma_position){ x->id, x->offset };
}

/* An empty packet counts as one byte, so that its end follows its start. */
static struct srdma_position end_of(const struct srdma_flight *x)
{
	return (struct srdma_position){ x->id, (uint64_t)x->offset +
						       (x->len ? x->len : 1) };
}

void srdma_flight_create(struct srdma_flights *f,
			 struct srdma_table_memory *memory, uint32_t size)
{
	*f = (struct srdma_flights){ .memory = memory, .size = size };
}

/* The i-th flight from the head. */
static struct srdma_flight *nth(const struct srdma_flights *f, uint32_t i)
{
	return &f->ring[(f->head + i) & (f->room - 1)];
}

static void give_ring(struct srdma_flights *f)
{
	srdma_table_give(f->memory, f->ring, f->room, sizeof(*f->ring));
	f->ring = NULL;
	f->room = f->head = 0;
}

void srdma_flight_destroy(struct srdma_flights *f)
{
	give_ring(f);
	*f = (struct srdma_flights){ 0 };
}

void srdma_flight_shrink(struct srdma_flights *f)
{
	if (!f->count)
		give_ring(f);
}

int srdma_flight_make_room(struct srdma_flights *f, uint32_t n)
{
	const uint32_t all = f->count + n < f->size ? f->count + n : f->size;
	const uint32_t room = srdma_table_room(f->room, FIRST_ROOM, all);
	struct srdma_flight *ring;

	if (all <= f->room)
		return 0;
	ring = srdma_table_take(f->memory, room, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->count; i++)
		ring[i] = *nth(f, i);
	give_ring(f);
	f->ring = ring;
	f->room = room;
	return 0;
}

uint64_t srdma_flight_add(struct srdma_flights *f,
			  const struct srdma_flight *flight)
{
	struct srdma_flight *x = nth(f, f->count);

	*x = *flight;
	x->state = SRDMA_FLIGHT_UNDER_WAY;
	f->waiting++;
	return f->first + f->count++;
}

struct srdma_flight *srdma_flight_at(const struct srdma_flights *f,
				     uint64_t serial)
{
	struct srdma_flight *x;

	if (serial < f->first || serial - f->first >= f->count)
		return NULL;
	x = nth(f, (uint32_t)(serial - f->first));
	return x->state == SRDMA_FLIGHT_OVER ? NULL : x;
}

static uint64_t higher(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The only writer of a state: the counts follow it. */
static void set_state(struct srdma_flights *f, struct srdma_flight *x,
		      uint8_t state)
{
	f->waiting -= x->state < SRDMA_FLIGHT_HELD;
	f->losts -= x->state == SRDMA_FLIGHT_LOST;
	f->held -= x->state == SRDMA_FLIGHT_HELD ? x->responses : 0;
	x->state = state;
	f->waiting += state < SRDMA_FLIGHT_HELD;
	f->losts += state == SRDMA_FLIGHT_LOST;
	f->held += state == SRDMA_FLIGHT_HELD ? x->responses : 0;
}

/* Each flight took at least one packet number, so the flight of a packet that
 * was sent once is not before the start of the search. */
uint64_t srdma_flight_sent(const struct srdma_flights *f, uint64_t pn)
{
	uint64_t last = f->count ? nth(f, f->count - 1)->pn : 0;
	uint32_t from = 0;

	if (last >= pn && last - pn < f->count)
		from = f->count - 1 - (uint32_t)(last - pn);
	for (uint32_t i = from; i < f->count && i - from < LOOKS; i++)
		if (nth(f, i)->pn == pn)
			return nth(f, i)->sent;
	return 0;
}

void srdma_flight_again(struct srdma_flights *f, struct srdma_flight *flight)
{
	set_state(f, flight, SRDMA_FLIGHT_AGAIN);
}

void srdma_flight_resent(struct srdma_flights *f, struct srdma_flight *flight,
			 uint64_t pn, uint64_t now)
{
	if (flight->probe)
		f->probe = pn;
	flight->probe = flight->missed = 0;
	flight->tries += flight->tries < TRIES;
	flight->pn = pn;
	flight->sent = now;
	set_state(f, flight, SRDMA_FLIGHT_UNDER_WAY);
}

static void pop(struct srdma_flights *f)
{
	f->ended = higher(f->ended, nth(f, 0)->pn);
	set_state(f, nth(f, 0), SRDMA_FLIGHT_OVER);
	f->head = (f->head + 1) & (f->room - 1);
	f->first++;
	f->count--;
}

void srdma_flight_over(struct srdma_flights *f, uint64_t serial)
{
	struct srdma_flight *x = srdma_flight_at(f, serial);

	if (x)
		set_state(f, x, SRDMA_FLIGHT_OVER);
	while (f->count && nth(f, 0)->state == SRDMA_FLIGHT_OVER)
		pop(f);
}

uint32_t srdma_flight_acknowledge(struct srdma_flights *f,
				  struct srdma_position position)
{
	uint32_t n = 0;

	while (f->count &&
	       (nth(f, 0)->state == SRDMA_FLIGHT_OVER ||
		!srdma_position_before(position, end_of(nth(f, 0))))) {
		pop(f);
		n++;
	}
	return n;
}

/* --- acks ----------------------------------------------------------------- */

struct range {
	struct srdma_position from, to;
};

/* A gap's ids are not lower than the position's. */
static struct range range_of(const struct srdma_flight_ack *ack,
			     const struct srdma_gap *g)
{
	uint64_t id = ack->position.id +
		      (uint32_t)(g->request_id - (uint32_t)ack->position.id);
	struct range r = { { id, g->offset }, { id, 0 } };

	if (g->length & SRDMA_GAP_IDS)
		r.to.id += g->length & ~SRDMA_GAP_IDS;
	else
		r.to.offset = (uint64_t)g->offset + g->length;
	return r;
}

/* Report of an ack's gaps on a flight. SEEN: it is after the last gap. The peer
 * holds it if it has verified its packet number. */
enum report { NOTHING, MISSING, SEEN, HELD };

/* The gaps of an ack, visited in the order of the flights. */
struct gaps {
	struct range range[SRDMA_MAX_GAPS];
	uint32_t count, at; /* gaps before at lie before the flight */
};

/* A flight between gaps is held. One after the last gap may not have arrived:
 * the last packet that the peer verified may be before it. */
static enum report look_up(const struct srdma_flight_ack *ack, struct gaps *g,
			   const struct srdma_flight *x)
{
	while (g->at < g->count &&
	       !srdma_position_before(start_of(x), g->range[g->at].to))
		g->at++;
	if (g->at == g->count)
		return g->count == SRDMA_MAX_GAPS ? NOTHING : SEEN;
	if (srdma_position_before(g->range[g->at].from, end_of(x)))
		return MISSING;
	return !g->at && ack->skips ? NOTHING : HELD;
}

/* 1: the overtaken packet counts as lost. On a wire that reorders it may still
 * arrive, until enough packets or time have passed. */
static int passed(const struct srdma_flight_ack *ack,
		  const struct srdma_flight *x)
{
	return ack->ordered || ack->highest - x->pn >= REORDERED ||
	       ack->now - x->sent >= ack->patience;
}

/* Packet numbers by which a flight is judged. */
struct numbers {
	uint64_t highest; /* that the peer has verified */
	uint64_t front;	  /* highest of earlier flights */
	uint64_t probe;
};

/* New state of a flight in a gap. After TRIES only the timer sends it again. A
 * held one was dropped by the peer: it is under way again, for the timers. */
static uint8_t missing(const struct srdma_flight_ack *ack,
		       const struct srdma_flight *x)
{
	if (x->state != SRDMA_FLIGHT_AGAIN && x->tries < TRIES &&
	    passed(ack, x))
		return SRDMA_FLIGHT_LOST;
	return x->state == SRDMA_FLIGHT_HELD ? SRDMA_FLIGHT_UNDER_WAY
					     : x->state;
}

/* New state of a flight. If front is higher than its number, an earlier flight
 * was sent again after it: the peer's highest number does not prove that this
 * flight arrived, and without a later position the peer lists no gap for it. */
static uint8_t judged(const struct srdma_flight_ack *ack, enum report told,
		      const struct srdma_flight *x, const struct numbers *n)
{
	if (told == HELD)
		return SRDMA_FLIGHT_HELD;
	if (x->pn > n->highest || told == NOTHING)
		return x->state;
	if (told == MISSING)
		return missing(ack, x);
	if (n->front <= x->pn)
		return SRDMA_FLIGHT_HELD;
	return x->pn < n->probe && x->state == SRDMA_FLIGHT_UNDER_WAY
		       ? SRDMA_FLIGHT_LOST
		       : x->state;
}

/* The number of the packet that a timer sent again, once its flight ended and
 * the ack lists no gap; else 0. If the ack's highest number is lower, the first
 * copy had arrived and the timer was too early: 0 too. */
static uint64_t answered_probe(struct srdma_flights *f,
			       const struct srdma_flight_ack *ack)
{
	uint64_t probe = f->probe;

	if (f->ended < probe)
		return 0;
	f->probe = 0;
	return ack->gaps || ack->highest < probe ? 0 : probe;
}

/* Notes a flight that is in a gap and not yet lost. */
static void miss(struct srdma_flights *f, struct srdma_flight *x)
{
	x->missed = 1;
	if (!f->missed || x->sent < f->missed)
		f->missed = x->sent;
}

int srdma_flight_judge(struct srdma_flights *f,
		       const struct srdma_flight_ack *ack)
{
	struct gaps gaps;
	struct numbers n = { ack->highest, f->ended, 0 };
	int moved = 0;

	if (ack->pn <= f->judged || ack->gaps > SRDMA_MAX_GAPS)
		return 0;
	f->judged = ack->pn;
	n.probe = answered_probe(f, ack);
	gaps.at = 0;
	gaps.count = ack->gaps;
	for (uint32_t i = 0; i < ack->gaps; i++)
		gaps.range[i] = range_of(ack, &ack->gap[i]);
	for (uint32_t i = 0; i < f->count; i++) {
		struct srdma_flight *x = nth(f, i);
		enum report told;
		uint8_t state;

		if (x->state == SRDMA_FLIGHT_OVER)
			continue;
		told = look_up(ack, &gaps, x);
		state = judged(ack, told, x, &n);
		n.front = higher(n.front, x->pn);
		if (told == MISSING && x->pn <= n.highest &&
		    state == SRDMA_FLIGHT_UNDER_WAY)
			miss(f, x);
		if (state == x->state)
			continue;
		moved = 1;
		set_state(f, x, state);
		if (state == SRDMA_FLIGHT_LOST && f->first + i < f->lost)
			f->lost = f->first + i;
	}
	return moved;
}

uint64_t srdma_flight_expire(struct srdma_flights *f, uint64_t now,
			     uint64_t patience)
{
	uint64_t first = 0;

	if (!f->missed || now < f->missed + patience)
		return f->missed ? f->missed + patience : SRDMA_NEVER;
	for (uint32_t i = 0; i < f->count; i++) {
		struct srdma_flight *x = nth(f, i);

		if (!x->missed || x->state != SRDMA_FLIGHT_UNDER_WAY)
			continue;
		if (now >= x->sent + patience) {
			set_state(f, x, SRDMA_FLIGHT_LOST);
			f->lost = f->first;
		} else if (!first || x->sent < first) {
			first = x->sent;
		}
	}
	f->missed = first;
	return first ? first + patience : SRDMA_NEVER;
}

struct srdma_flight *srdma_flight_next_lost(struct srdma_flights *f,
					    uint64_t *serial)
{
	if (f->lost < f->first)
		f->lost = f->first;
	for (; f->lost < f->first + f->count; f->lost++) {
		struct srdma_flight *x = nth(f, (uint32_t)(f->lost - f->first));

		if (x->state != SRDMA_FLIGHT_LOST)
			continue;
		*serial = f->lost;
		return x;
	}
	return NULL;
}

struct srdma_flight *srdma_flight_oldest(const struct srdma_flights *f)
{
	for (uint32_t i = 0; i < f->count; i++) {
		struct srdma_flight *x = nth(f, i);

		if (x->state < SRDMA_FLIGHT_HELD)
			return x;
	}
	return NULL;
}

void srdma_flight_lose(struct srdma_flights *f, struct srdma_flight *flight)
{
	set_state(f, flight, SRDMA_FLIGHT_LOST);
	flight->probe = 1;
	f->lost = f->first;
}
