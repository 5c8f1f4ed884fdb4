/*
 * The outstanding work requests of a queue whose records come in order. An entry
 * has a number, from 0 in the order of posting. No I/O.
 */
#ifndef SRDMA_HOST_WR_QUEUE_H
#define SRDMA_HOST_WR_QUEUE_H

#include <stdint.h>

struct srdma_desc;

struct srdma_wr_entry {
	uint64_t wr_id;
	uint8_t opcode; /* enum srdma_wc_opcode */
	uint8_t signaled;
};

struct srdma_wr_queue {
	uint64_t head, tail; /* numbers: oldest outstanding, next to post */
	uint32_t depth;
	uint8_t failing; /* 1: an entry was completed with the reason */
	struct srdma_wr_entry *entries; /* index: number modulo depth */
};

/* Adds an entry and returns its number. Requires a free place. */
uint64_t srdma_wr_queue_add(struct srdma_wr_queue *q,
			    const struct srdma_desc *wr);
/* The entry that a record with this number completes, with all before it; NULL: it
 * is not outstanding, or an earlier signaled one is. */
const struct srdma_wr_entry *srdma_wr_queue_retire(struct srdma_wr_queue *q,
						   uint64_t number);
/* Drops all entries. Their numbers are not given again. */
void srdma_wr_queue_drop(struct srdma_wr_queue *q);

#endif
