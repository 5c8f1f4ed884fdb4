/*
 * Simulation: the arena of a host and its shadow, which holds the allowed
 * values of each byte.
 */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include "simulation/sim.h"

struct srdma_dma;

enum sim_kind {
	SIM_EXACT, /* equals shadow; must not be written */
	SIM_ONCE,  /* equals shadow; one DMA may change it to after */
	SIM_DONE,  /* SIM_ONCE with its DMA begun: shadow or after */
	SIM_ANY,
	/* flags: */
	SIM_KIND = 3,
	SIM_TAKEN = 1 << 2,  /* taken by a work request */
	SIM_SOURCE = 1 << 3, /* the local worker may read it */
	SIM_ATOMIC = 1 << 5, /* part of a counter: changed by atomics */
	SIM_MOVED = 1 << 4,  /* source changed meanwhile: after or ~after */
};

/* Fills memory with the pattern that begins with word. */
void sim_memory_fill(uint8_t *at, uint32_t len, uint64_t word);
/* Returns 1 if these bytes contain a pattern. */
int sim_memory_shows(const uint8_t *at, uint32_t len);
uint32_t sim_memory_index(const struct sim_leg *leg, const uint8_t *at);
struct sim_area *sim_memory_area(struct sim_leg *leg, const uint8_t *at);
/* Returns 1 if no hostile peer may have written to this range. */
int sim_memory_pure(struct sim_leg *leg, const uint8_t *at);

/* Takes a free range of area i for the caller. NULL: no room. */
uint8_t *sim_memory_take(struct sim *w, struct sim_leg *leg, uint32_t i,
			 uint32_t len);
/*
 * Frees a range. The host changes its bytes, so that a later access by the
 * relay is detected.
 */
void sim_memory_give(struct sim_leg *leg, uint8_t *at, uint32_t len);
/* The host writes a pattern. */
void sim_memory_put(struct sim_leg *leg, uint8_t *at, uint32_t len,
		    uint64_t word);
/* Allows the local worker to read a range. */
void sim_memory_lend(struct sim_leg *leg, const uint8_t *at, uint32_t len);
/*
 * Expects one write of the pattern to a range. any: 1 if a hostile peer may
 * write other bytes instead.
 */
void sim_memory_expect(struct sim_leg *leg, const uint8_t *at, uint32_t len,
		       uint64_t word, int any);
/* Checks that the expected bytes have arrived. */
void sim_memory_arrived(struct sim_leg *leg, const uint8_t *at, uint32_t len,
			const char *what);
/*
 * move: the host changes the source of an outstanding request. follow: the
 * destination of that request, if it is known, may get the old or the new
 * bytes.
 */
void sim_memory_move(struct sim_leg *leg, uint8_t *at, uint32_t len);
void sim_memory_follow(struct sim_leg *leg, const uint8_t *at, uint32_t len);
/* No DMA writes to the range any more: checks its bytes and frees it. */
void sim_memory_settle(struct sim_leg *leg, uint8_t *at, uint32_t len);

/* Expects one write of the original value of an atomic. */
void sim_memory_answer(struct sim_leg *leg, const uint8_t *at, uint64_t found);

/* Checks a DMA that begins. */
void sim_memory_dma(struct sim *w, const struct srdma_dma *d, int is_write);

#endif
