#include "control/streams.h"

#include "base/hash.h"

enum { MASK = 2 * STREAMS_MAX - 1 };

static uint32_t place_of(uint32_t number)
{
	return srdma_hash_bucket(number, MASK);
}

static uint32_t look(const struct streams *t, uint32_t number)
{
	uint32_t at = place_of(number);

	while (t->place[at] && stream_number(t->place[at]) != number)
		at = (at + 1) & MASK;
	return at;
}

void streams_add(struct streams *t, struct stream *s)
{
	t->place[look(t, stream_number(s))] = s;
	t->count++;
}

struct stream *streams_find(const struct streams *t, uint32_t number)
{
	return t->place[look(t, number)];
}

/* Moves streams behind the empty place to it, as long as they are not found
 * without it (Knuth, volume 3, 6.4, algorithm R). */
void streams_remove(struct streams *t, const struct stream *s)
{
	uint32_t hole = look(t, stream_number(s)), at = hole;

	t->place[hole] = NULL;
	t->count--;
	while (t->place[at = (at + 1) & MASK]) {
		const uint32_t home = place_of(stream_number(t->place[at]));

		if (((at - home) & MASK) < ((at - hole) & MASK))
			continue;
		t->place[hole] = t->place[at];
		t->place[at] = NULL;
		hole = at;
	}
}
