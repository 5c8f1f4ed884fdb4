/* The arena of a storm's host and its shadow: what each byte may be. */
#ifndef STORM_MEMORY_H
#define STORM_MEMORY_H

#include "storm.h"

enum {
	STORM_EXACT,  /* shadow */
	STORM_EITHER, /* shadow or after */
	STORM_ANY,
};

void storm_memory_fill(struct storm *w, uint8_t *at, uint32_t len);
/* 1: what fill makes is seen in these bytes. */
int storm_memory_shows(const uint8_t *at, uint32_t len);
uint32_t storm_memory_index(const struct storm_leg *leg, const uint8_t *at);
const struct storm_area *storm_memory_area(const struct storm_leg *leg,
					   const uint8_t *at);
/* A range of area i, the caller's alone; NULL: the area is full. */
uint8_t *storm_memory_take(struct storm *w, struct storm_leg *leg, uint32_t i,
			   uint32_t len);
/* 1: this range holds what only its one user wrote. */
int storm_memory_pure(const struct storm_leg *leg, const uint8_t *at);
/* 1: the byte was revoked, and its owner uses it for something else. */
int storm_memory_fixed(const struct storm_leg *leg, uint32_t i);
/* From now on a range is of this kind; after: len bytes, or NULL. */
void storm_memory_expect(struct storm_leg *leg, const uint8_t *at, uint32_t len,
			 int kind, const uint8_t *after);
/* The worker has done with it: whatever it does now shows in the end. */
void storm_memory_spoil(struct storm_leg *leg, uint8_t *at, uint32_t len);

#endif
