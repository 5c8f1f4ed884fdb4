#include "requester/flight.h"

#include <errno.h>
#include <string.h>

#define MS UINT64_C(1000000)
/*
 * Time-outs per 10,000 packets without loss, of write_bw in messages of 2,048
 * bytes on two CPUs that had other work too, two runs of 2 s each. With a least
 * of 0.2 ms: 0.03 and 0.06 (shm), 0.3 and 0.9 (udp); of 1 ms: 0 and 0.01, 0 and
 * 0.05; of 4 ms: 0.01 and 0.15, 0.1 and 0.2. One run of 3 s each beside two busy
 * loops, too few to compare: 0.6, 0.2 and 0.9 (shm, 32,000 to 58,000 packets);
 * 0, 22 and 0 (udp, 5,500 to 7,500 packets).
 * The first is a guess: it doubles until a round trip was measured, whatever
 * moves meanwhile. Of 600 QPs that connected over shm on two CPUs with ten
 * others' work, 10 sent OPEN twice.
 */
#define RTO_FIRST      (2 * MS)
#define RTO_LEAST      (MS / 5)
#define RTO_MOST       (1000 * MS)
#define PATIENCE_FIRST (25 * MS) /* a guess is no reason to send again */
#define PATIENCE_LEAST (MS / 100)

enum { REORDERED = 3, TRIES = 16, DOUBLINGS = 13, LOOKS = 64, FIRST_ROOM = 8 };

/* A place in the stream of requests; offsets go up to 2^32. */
struct point {
	uint64_t id, offset;
};

static int before(struct point a, struct point b)
{
	return a.id < b.id || (a.id == b.id && a.offset < b.offset);
}

static struct point start_of(const struct srdma_flight *x)
{
	return (struct point){ x->id, x->offset };
}

/* A packet of no bytes takes a place of its own. */
static struct point end_of(const struct srdma_flight *x)
{
	return (struct point){ x->id,
			       (uint64_t)x->offset + (x->len ? x->len : 1) };
}

void srdma_flight_create(struct srdma_flights *f,
			 struct srdma_table_memory *memory, uint32_t size)
{
	*f = (struct srdma_flights){ .memory = memory, .size = size };
}

/* i counts from the head. */
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

/* All but the time and number of one may change here only. */
static void set_state(struct srdma_flights *f, struct srdma_flight *x,
		      uint8_t state)
{
	f->waiting -= x->state < SRDMA_FLIGHT_HELD;
	f->losts -= x->state == SRDMA_FLIGHT_LOST;
	f->held -= x->state == SRDMA_FLIGHT_HELD ? x->answers : 0;
	x->state = state;
	f->waiting += state < SRDMA_FLIGHT_HELD;
	f->losts += state == SRDMA_FLIGHT_LOST;
	f->held += state == SRDMA_FLIGHT_HELD ? x->answers : 0;
}

/* Each flight takes a number at least, so what was sent once is not in front of
 * where this begins. */
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

uint32_t srdma_flight_acknowledge(struct srdma_flights *f, uint64_t id,
				  uint32_t offset)
{
	const struct point position = { id, offset };
	uint32_t n = 0;

	while (f->count && (nth(f, 0)->state == SRDMA_FLIGHT_OVER ||
			    !before(position, end_of(nth(f, 0))))) {
		pop(f);
		n++;
	}
	return n;
}

/* --- judging ---------------------------------------------------------- */

struct range {
	struct point from, to;
};

/* A gap's ids are at or behind the position's. */
static struct range range_of(const struct srdma_flight_word *w,
			     const struct srdma_gap *g)
{
	uint64_t id = w->id + (uint32_t)(g->request_id - (uint32_t)w->id);
	struct range r = { { id, g->offset }, { id, 0 } };

	if (g->length & SRDMA_GAP_IDS)
		r.to.id += g->length & ~SRDMA_GAP_IDS;
	else
		r.to.offset = (uint64_t)g->offset + g->length;
	return r;
}

enum word { SAYS_NOTHING, SAYS_MISSING, SAYS_SEEN, SAYS_HELD };

/* The gaps of an ack, walked in the order of the flights. */
struct gaps {
	struct range range[SRDMA_MAX_GAPS];
	uint32_t count, at; /* those before at lie before the flight */
};

/* What lies between gaps is held. What lies behind the last one is, if it came
 * at all: what the peer saw last may be in front of it. */
static enum word look_up(const struct srdma_flight_word *w, struct gaps *g,
			 const struct srdma_flight *x)
{
	while (g->at < g->count && !before(start_of(x), g->range[g->at].to))
		g->at++;
	if (g->at == g->count)
		return g->count == SRDMA_MAX_GAPS ? SAYS_NOTHING : SAYS_SEEN;
	if (before(g->range[g->at].from, end_of(x)))
		return SAYS_MISSING;
	return !g->at && w->skips ? SAYS_NOTHING : SAYS_HELD;
}

/* Where order may change, the packet may be about to come. */
static int passed(const struct srdma_flight_word *w,
		  const struct srdma_flight *x)
{
	return w->ordered || w->highest - x->pn >= REORDERED ||
	       w->now - x->sent >= w->patience;
}

/* Numbers by which a flight is judged. */
struct numbers {
	uint64_t highest; /* that the peer has */
	uint64_t front;	  /* highest of those in front of it */
	uint64_t probe;
};

/* Where front is higher, one of those in front was sent again behind this one:
 * it may be the furthest that the peer knows, and then this one is in no gap
 * but missing all the same. */
static uint8_t judged(const struct srdma_flight_word *w, enum word said,
		      const struct srdma_flight *x, const struct numbers *n)
{
	if (said == SAYS_HELD)
		return SRDMA_FLIGHT_HELD;
	if (x->pn > n->highest || said == SAYS_NOTHING)
		return x->state;
	if (said == SAYS_MISSING)
		/* Who misses what was sent so often is slowed by the timer. */
		return x->state == SRDMA_FLIGHT_AGAIN || x->tries == TRIES ||
				       !passed(w, x)
			       ? x->state
			       : SRDMA_FLIGHT_LOST;
	if (n->front <= x->pn)
		return SRDMA_FLIGHT_HELD;
	return x->pn < n->probe && x->state == SRDMA_FLIGHT_UNDER_WAY
		       ? SRDMA_FLIGHT_LOST
		       : x->state;
}

/* What a timer sent again was what was waited for, and nothing that was sent
 * before it came behind it: its number, or 0. If it has not come yet, then what
 * was sent first had, and the timer was too early. */
static uint64_t answered_probe(struct srdma_flights *f,
			       const struct srdma_flight_word *w)
{
	uint64_t probe = f->probe;

	if (f->ended < probe)
		return 0;
	f->probe = 0;
	return w->gaps || w->highest < probe ? 0 : probe;
}

/* It is in a gap and was not passed long enough. */
static void miss(struct srdma_flights *f, struct srdma_flight *x)
{
	x->missed = 1;
	if (!f->missed || x->sent < f->missed)
		f->missed = x->sent;
}

int srdma_flight_judge(struct srdma_flights *f,
		       const struct srdma_flight_word *w)
{
	struct gaps gaps = { .count = w->gaps };
	struct numbers n = { w->highest, f->ended, 0 };
	int moved = 0;

	if (w->pn <= f->judged || w->gaps > SRDMA_MAX_GAPS)
		return 0;
	f->judged = w->pn;
	n.probe = answered_probe(f, w);
	for (uint32_t i = 0; i < w->gaps; i++)
		gaps.range[i] = range_of(w, &w->gap[i]);
	for (uint32_t i = 0; i < f->count; i++) {
		struct srdma_flight *x = nth(f, i);
		enum word said;
		uint8_t state;

		if (x->state == SRDMA_FLIGHT_OVER)
			continue;
		said = look_up(w, &gaps, x);
		state = judged(w, said, x, &n);
		n.front = higher(n.front, x->pn);
		if (said == SAYS_MISSING && x->pn <= n.highest &&
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
		return f->missed ? f->missed + patience : UINT64_MAX;
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
	return first ? first + patience : UINT64_MAX;
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

/* --- the round-trip time ---------------------------------------------- */

void srdma_rtt_sample(struct srdma_rtt *r, uint64_t ns)
{
	uint64_t off;

	if (ns > RTO_MOST)
		ns = RTO_MOST;
	if (!ns)
		ns = 1;
	if (!r->srtt) {
		r->srtt = ns;
		r->var = ns / 2;
		return;
	}
	off = ns > r->srtt ? ns - r->srtt : r->srtt - ns;
	r->var = r->var - r->var / 4 + off / 4;
	r->srtt = r->srtt - r->srtt / 8 + ns / 8;
	if (!r->srtt)
		r->srtt = 1;
}

uint64_t srdma_rtt_doubled(const struct srdma_rtt *r, uint32_t doublings)
{
	uint64_t rto = r->srtt ? r->srtt + 4 * r->var : RTO_FIRST;

	if (rto < RTO_LEAST)
		rto = RTO_LEAST;
	rto <<= doublings;
	return rto > RTO_MOST ? RTO_MOST : rto;
}

uint64_t srdma_rtt_rto(const struct srdma_rtt *r)
{
	return srdma_rtt_doubled(r, r->backoff);
}

uint64_t srdma_rtt_patience(const struct srdma_rtt *r)
{
	uint64_t patience = r->srtt ? r->srtt / 4 : PATIENCE_FIRST;

	return patience < PATIENCE_LEAST ? PATIENCE_LEAST : patience;
}

int srdma_rtt_wants(const struct srdma_rtt *r, uint64_t now)
{
	return !r->pn && now - r->sent >= RTO_LEAST;
}

void srdma_rtt_sent(struct srdma_rtt *r, uint64_t pn, uint64_t now)
{
	if (r->pn)
		return;
	r->pn = pn;
	r->sent = now;
}

void srdma_rtt_doubt(struct srdma_rtt *r, uint64_t now)
{
	if (now - r->sent > srdma_rtt_rto(r))
		r->pn = 0;
}

void srdma_rtt_told(struct srdma_rtt *r, uint64_t highest, uint64_t sent,
		    uint64_t now)
{
	const uint32_t doublings = r->backoff + r->unanswered;

	if (!r->pn || highest < r->pn)
		return;
	if (!sent && (highest == r->pn || !doublings))
		sent = r->sent;
	if (sent)
		srdma_rtt_sample(r, now - sent);
	r->pn = 0;
}

void srdma_rtt_back_off(uint32_t *doublings)
{
	if (*doublings < DOUBLINGS)
		++*doublings;
}

void srdma_rtt_moved(struct srdma_rtt *r)
{
	if (r->srtt)
		r->backoff = 0;
}

void srdma_rtt_answered(struct srdma_rtt *r)
{
	if (r->srtt)
		r->unanswered = 0;
}

void srdma_rtt_reset(struct srdma_rtt *r)
{
	r->pn = 0;
	r->backoff = r->unanswered = 0;
}
