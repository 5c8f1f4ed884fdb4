#include "meddle.h"

#include <string.h>

/* xorshift64* */
static uint32_t dice(struct meddle *m, uint32_t sides)
{
	m->random ^= m->random >> 12;
	m->random ^= m->random << 25;
	m->random ^= m->random >> 27;
	return (uint32_t)(m->random * 0x2545F4914F6CDD1DU >> 32) % sides;
}

static void give(struct meddle *m, const struct frame *frame)
{
	m->cable->ops->give(m->cable, frame);
}

static void copy(struct meddle_copy *out, const struct frame *frame)
{
	out->frame = *frame;
	out->frame.data = out->bytes;
	memcpy(out->bytes, frame->data, frame->len);
}

static void remember(struct meddle *m, const struct frame *frame)
{
	uint32_t *count = &m->pasts[frame->side];

	copy(&m->past[frame->side][(*count)++ % MEDDLE_PAST], frame);
}

/*
 * Returns an older frame of the same side, to be sent on the connection of this
 * frame, or NULL.
 */
static const struct frame *older(struct meddle *m, const struct frame *frame)
{
	uint32_t n = m->pasts[frame->side];
	struct frame *found;

	if (n > MEDDLE_PAST)
		n = MEDDLE_PAST;
	if (!n)
		return NULL;
	found = &m->past[frame->side][dice(m, n)].frame;
	found->link = frame->link;
	return found;
}

static void replace(struct meddle *m, struct frame *frame)
{
	const struct frame *old = dice(m, 2) ? older(m, frame) : NULL;

	if (old) {
		give(m, old);
		return;
	}
	for (uint32_t i = 0; i < frame->packet; i++)
		frame->data[frame->at + i] = (uint8_t)dice(m, 256);
	if (dice(m, 2))
		m->cable->ops->mend(frame);
	give(m, frame);
}

static void flip(struct meddle *m, struct frame *frame)
{
	uint32_t bit = dice(m, 8 * frame->packet);

	frame->data[frame->at + bit / 8] ^= (uint8_t)(1 << bit % 8);
	if (dice(m, 2))
		m->cable->ops->mend(frame);
	give(m, frame);
}

static void hold(struct meddle *m, const struct frame *frame)
{
	for (int i = 0; i < MEDDLE_HELD; i++) {
		struct meddle_copy *place = &m->held[frame->side][i];

		if (place->wait)
			continue;
		copy(place, frame);
		/* one more, because count_down() counts this frame too */
		place->wait = 1 + dice(m, 8) + 1;
		return;
	}
	give(m, frame);
}

static void do_fault(struct meddle *m, enum meddle_fault fault,
		     struct frame *frame)
{
	m->hits[fault]++;
	switch (fault) {
	case MEDDLE_FLIP:
		flip(m, frame);
		return;
	case MEDDLE_TWICE:
		give(m, frame);
		give(m, frame);
		return;
	case MEDDLE_REPLACE:
		replace(m, frame);
		return;
	case MEDDLE_LATE:
		hold(m, frame);
		return;
	default: /* dropped */
		return;
	}
}

/* Chooses the fault of a packet; MEDDLE_FAULTS: none. */
static enum meddle_fault choose(struct meddle *m)
{
	uint32_t at = dice(m, MEDDLE_OF), fault = 0;

	while (fault < MEDDLE_FAULTS && at >= m->rates[fault])
		at -= m->rates[fault++];
	return (enum meddle_fault)fault;
}

/* A packet of that side has passed: sends held packets that are due. */
static void count_down(struct meddle *m, int side)
{
	for (int i = 0; i < MEDDLE_HELD; i++) {
		struct meddle_copy *place = &m->held[side][i];

		if (place->wait && !--place->wait)
			give(m, &place->frame);
	}
}

void meddle_pass(void *meddle, struct frame *frame)
{
	struct meddle *m = meddle;
	enum meddle_fault fault;
	struct meddle_copy kept;

	if (!frame->packet) {
		give(m, frame);
		return;
	}
	m->packets++;
	if (m->swallow & 1U << frame->side) {
		m->swallowed++;
		return;
	}
	fault = choose(m);
	if (fault == MEDDLE_FAULTS) {
		remember(m, frame);
		give(m, frame);
	} else {
		copy(&kept, frame);
		do_fault(m, fault, frame);
		remember(m, &kept.frame);
	}
	count_down(m, frame->side);
}

int meddle_release(struct meddle *m)
{
	int busy = 0;

	for (int side = LEFT; side < SIDES; side++)
		for (int i = 0; i < MEDDLE_HELD; i++) {
			struct meddle_copy *place = &m->held[side][i];

			if (!place->wait)
				continue;
			place->wait = 0;
			give(m, &place->frame);
			busy = 1;
		}
	return busy;
}
