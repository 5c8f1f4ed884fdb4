/*
 * Simulation: the arena of a host and its shadow, which holds the allowed
 * values of each byte.
 */
#ifndef STORM_MEMORY_H
#define STORM_MEMORY_H

#include "storm.h"

struct srdma_dma;

enum storm_kind {
	STORM_EXACT, /* equals shadow; must not be written */
	STORM_ONCE,  /* equals shadow; one DMA may change it to after */
	STORM_DONE,  /* that DMA has begun: shadow or after */
	STORM_ANY,
	/* flags: */
	STORM_KIND = 3,
	STORM_TAKEN = 1 << 2,  /* taken by a work request */
	STORM_SOURCE = 1 << 3, /* the local worker may read it */
	STORM_ATOMIC = 1 << 5, /* part of a counter: changed by atomics */
	STORM_MOVED = 1 << 4,  /* source changed meanwhile: after or ~after */
};

/* Fills memory with the pattern that begins with word. */
void storm_memory_fill(uint8_t *at, uint32_t len, uint64_t word);
/* Returns 1 if these bytes contain a pattern. */
int storm_memory_shows(const uint8_t *at, uint32_t len);
uint32_t storm_memory_index(const struct storm_leg *leg, const uint8_t *at);
struct storm_area *storm_memory_area(struct storm_leg *leg, const uint8_t *at);
/* Returns 1 if no hostile peer may have written to this range. */
int storm_memory_pure(struct storm_leg *leg, const uint8_t *at);

/* Takes a free range of area i for the caller. NULL: no room. */
uint8_t *storm_memory_take(struct storm *w, struct storm_leg *leg, uint32_t i,
			   uint32_t len);
/*
 * Frees a range. The host changes its bytes, so that a later access by the
 * relay is detected.
 */
void storm_memory_give(struct storm_leg *leg, uint8_t *at, uint32_t len);
/* The host writes a pattern. */
void storm_memory_put(struct storm_leg *leg, uint8_t *at, uint32_t len,
		      uint64_t word);
/* Allows the local worker to read a range. */
void storm_memory_lend(struct storm_leg *leg, const uint8_t *at, uint32_t len);
/*
 * Expects the pattern to be written to a range, once. any: a hostile peer may
 * write other bytes.
 */
void storm_memory_expect(struct storm_leg *leg, const uint8_t *at, uint32_t len,
			 uint64_t word, int any);
/* Checks that the expected bytes have arrived. */
void storm_memory_arrived(struct storm_leg *leg, const uint8_t *at,
			  uint32_t len, const char *what);
/*
 * The host changes the source of a request (move), and its destination, if
 * known, may get either value (follow).
 */
void storm_memory_move(struct storm_leg *leg, uint8_t *at, uint32_t len);
void storm_memory_follow(struct storm_leg *leg, const uint8_t *at,
			 uint32_t len);
/* No DMA writes to the range any more: checks its bytes and frees it. */
void storm_memory_settle(struct storm_leg *leg, uint8_t *at, uint32_t len);

/* Expects the original value of an atomic to be written, once. */
void storm_memory_answer(struct storm_leg *leg, const uint8_t *at,
			 uint64_t found);

/* Checks a DMA that begins. */
void storm_memory_dma(struct storm *w, const struct srdma_dma *d, int is_write);

#endif
