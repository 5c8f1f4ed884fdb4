/* Queues of datagrams, used by the in-memory ports only. */
#ifndef SRDMA_FIFO_H
#define SRDMA_FIFO_H

#include <stdint.h>

struct srdma_datagram {
	struct srdma_datagram *next;
	/* earliest time of delivery, ns of the simulated clock; 0:
	 * at once */
	uint64_t due;
	uint32_t len;
	uint8_t data[];
};

struct srdma_fifo {
	struct srdma_datagram *first, **last;
	uint32_t count;
};

void srdma_fifo_init(struct srdma_fifo *f);
/* Frees all datagrams. */
void srdma_fifo_clear(struct srdma_fifo *f);

/* Appends a copy. Returns 0 or -ENOMEM. */
int srdma_fifo_copy(struct srdma_fifo *f, const uint8_t *data, uint32_t len);

/* Appends d. The queue takes ownership. */
void srdma_fifo_push(struct srdma_fifo *f, struct srdma_datagram *d);

/* Removes the oldest datagram; the caller frees it. NULL if empty. */
struct srdma_datagram *srdma_fifo_pop(struct srdma_fifo *f);

/* Appends all datagrams of from and leaves it empty. */
void srdma_fifo_move(struct srdma_fifo *to, struct srdma_fifo *from);

/* Removes the oldest datagram of a queue that is not empty and copies it to
 * out, which must be large enough. Returns its length in bytes. */
uint32_t srdma_fifo_take(struct srdma_fifo *f, uint8_t *out);

#endif
