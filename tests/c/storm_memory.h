/* The arena of a storm's host and its shadow: what each byte may be. */
#ifndef STORM_MEMORY_H
#define STORM_MEMORY_H

#include "storm.h"

struct srdma_dma;

enum storm_kind {
	STORM_EXACT, /* shadow, and nobody may write it */
	STORM_ONCE,  /* shadow; a DMA may make it after */
	STORM_DONE,  /* that DMA has begun: shadow or after */
	STORM_ANY,
	/* and with these: */
	STORM_KIND = 3,
	STORM_TAKEN = 1 << 2,  /* of a work request */
	STORM_SOURCE = 1 << 3, /* its own worker may read it */
	STORM_ATOMIC = 1 << 5, /* of a counter: as the atomics leave it */
	STORM_MOVED =
		1 << 4, /* its source changed under way: after or ~after */
};

/* The pattern of a word. */
void storm_memory_fill(uint8_t *at, uint32_t len, uint64_t word);
/* 1: a pattern is seen in these bytes. */
int storm_memory_shows(const uint8_t *at, uint32_t len);
uint32_t storm_memory_index(const struct storm_leg *leg, const uint8_t *at);
struct storm_area *storm_memory_area(struct storm_leg *leg, const uint8_t *at);
/* 1: this range holds what only its one user wrote. */
int storm_memory_pure(struct storm_leg *leg, const uint8_t *at);

/* A range of area i, the caller's alone; NULL: there is none. */
uint8_t *storm_memory_take(struct storm *w, struct storm_leg *leg, uint32_t i,
			   uint32_t len);
/* It is nobody's again. The host changes the bytes: whoever reads or writes
 * them now is noticed. */
void storm_memory_give(struct storm_leg *leg, uint8_t *at, uint32_t len);
/* The host lays down a pattern. */
void storm_memory_put(struct storm_leg *leg, uint8_t *at, uint32_t len,
		      uint64_t word);
/* Its own worker may read it. */
void storm_memory_lend(struct storm_leg *leg, const uint8_t *at, uint32_t len);
/* The pattern shall be written there, once; any: or what a liar likes. */
void storm_memory_expect(struct storm_leg *leg, const uint8_t *at, uint32_t len,
			 uint64_t word, int any);
/* It must be there. */
void storm_memory_arrived(struct storm_leg *leg, const uint8_t *at,
			  uint32_t len, const char *what);
/* The host changes what a request is being made of; it goes to another range,
 * if that is known. */
void storm_memory_move(struct storm_leg *leg, uint8_t *at, uint32_t len);
void storm_memory_follow(struct storm_leg *leg, const uint8_t *at,
			 uint32_t len);
/* Nobody writes there any more: as it may be, and nobody's again. */
void storm_memory_settle(struct storm_leg *leg, uint8_t *at, uint32_t len);

/* What an atomic found shall be written there, once. */
void storm_memory_answer(struct storm_leg *leg, const uint8_t *at,
			 uint64_t found);

/* A DMA that begins. */
void storm_memory_dma(struct storm *w, const struct srdma_dma *d, int is_write);

#endif
